"""What runs in a worker process of a DataLoader.

A worker has one two-way pipe to the process that made it, and nothing that is shared with other
workers: no lock that a killed one could leave taken. Down the pipe come tasks, up go pickled
results. Two threads keep the pipe moving while the worker computes: one takes tasks off it, so
that the other side never waits to send, one sends results, so that the worker goes on to its next
task while the last one is not yet fetched.
"""

from __future__ import annotations

import os
import pickle
import queue
import random
import threading
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import flambeau as torch
from flambeau._utils import ExceptionWrapper

from .fetch import _DatasetKind
from .transport import Sender, send

#: Seconds between two looks at whether the other side still lives.
CHECK_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class WorkerInfo:
    """What `get_worker_info` gives in a worker.

    Attributes:
        id: from 0 to ``num_workers - 1``.
        num_workers: how many there are.
        seed: of this worker's generators.
        dataset: this worker's copy.
        rng: None: the generators of the process are the worker's own.
        worker_method: "multiprocessing".
    """

    id: int
    num_workers: int
    seed: int
    dataset: Any
    rng: Any = None
    worker_method: str | None = "multiprocessing"


class _Current:
    info: WorkerInfo | None = None


def get_worker_info() -> WorkerInfo | None:
    """In a worker process of a DataLoader, what it is (see `WorkerInfo`); elsewhere None."""
    return _Current.info


class Task(NamedTuple):
    """Fetch the batch number `index` of the pass number `epoch`.

    `released`: arenas that nothing uses any more.
    """

    epoch: int
    index: int
    indices: Any
    released: list[int]


class Resume(NamedTuple):
    """A new pass begins; what is left of the one before is done, but not sent."""

    epoch: int
    released: list[int]


class Result(NamedTuple):
    """A batch, an `ExceptionWrapper`, or the end of this worker's stream."""

    epoch: int
    index: int
    value: Any


class _IterableDatasetStopIteration(NamedTuple):
    """Sent in place of a batch when a worker's stream has come to its end."""

    worker_id: int


@dataclass
class Setup:
    """What a worker needs to begin."""

    kind: int
    dataset: Any
    auto_collation: bool
    collate_fn: Any
    drop_last: bool
    base_seed: int
    init_fn: Any
    worker_id: int
    num_workers: int
    persistent: bool

    def where(self) -> str:
        """How an error that arose here is introduced."""
        return f"in DataLoader worker process {self.worker_id}"


class _Pipe:
    """The worker's end of the pipe, with its two threads."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.tasks: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.results: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.epoch = 0
        self.closed = False
        self._sender = threading.Thread(target=self._send, daemon=True)
        self._sender.start()
        threading.Thread(target=self._receive, daemon=True).start()

    def _receive(self) -> None:
        parent = os.getppid()
        try:
            while True:
                # A parent that was killed leaves the pipe open where other workers, forked later,
                # have inherited its end; but then this process gets another parent.
                while not self.connection.poll(CHECK_SECONDS):
                    if os.getppid() != parent:
                        return
                message = pickle.loads(self.connection.recv_bytes())
                if message is None:
                    return
                if isinstance(message, Resume):
                    self.epoch = message.epoch
                self.tasks.put(message)
        except (EOFError, OSError):
            return
        finally:
            self.closed = True
            self.tasks.put(None)

    def _send(self) -> None:
        while (message := self.results.get()) is not None:
            if self.closed:
                continue
            try:
                send(self.connection, *message)
            except OSError:
                self.closed = True

    def finish(self) -> None:
        """Send what is still to be sent, unless nobody is there to receive it."""
        self.results.put(None)
        while self._sender.is_alive() and not self.closed:
            self._sender.join(0.5)


def _seed_all(setup: Setup) -> int:
    seed = setup.base_seed + setup.worker_id
    random.seed(seed)
    torch.manual_seed(seed)
    try:
        import numpy as np  # lazy: only workers need it, and it is heavy
    except ModuleNotFoundError:
        return seed
    low, high = setup.base_seed & 0xFFFFFFFF, setup.base_seed >> 32
    entropy = [setup.worker_id, low, high, 0]
    np.random.seed(np.random.SeedSequence(entropy).generate_state(4))
    return seed


def worker_loop(setup: Setup, connection: Connection, others: list[Connection]) -> None:
    """The main function of a worker process.

    `others` are ends of pipes that a forked worker has inherited and must not keep open.
    """
    for other in others:
        other.close()
    try:
        _work(setup, _Pipe(connection))
    except KeyboardInterrupt:
        # The main process has it too, and tells the user.
        pass
    finally:
        connection.close()


def _work(setup: Setup, pipe: _Pipe) -> None:
    torch.set_num_threads(1)
    seed = _seed_all(setup)
    _Current.info = WorkerInfo(setup.worker_id, setup.num_workers, seed, setup.dataset)
    fetcher = failure = None
    try:
        if setup.init_fn is not None:
            setup.init_fn(setup.worker_id)
        fetcher = _new_fetcher(setup)
    except Exception:
        failure = ExceptionWrapper(where=setup.where())
    ended = False
    sender = Sender()
    while True:
        task = pipe.tasks.get()
        if task is None or pipe.closed:
            break
        sender.release(task.released)
        if isinstance(task, Resume):
            ended = False
            if setup.persistent and failure is None:
                fetcher, failure = _begun_again(setup)
            continue
        if ended:
            continue
        value: Any
        if failure is not None:
            value, failure = failure, None
            if fetcher is None:
                # Without a fetcher every task fails; the first failure is what the user sees.
                failure = value
        else:
            value = _fetched(setup, fetcher, task.indices)
            ended = isinstance(value, _IterableDatasetStopIteration)
        if task.epoch == pipe.epoch:
            result = Result(task.epoch, task.index, value)
            pipe.results.put(_message(setup, sender, result))
            del result
        # A worker whose stream has ended stays until it is told to end: what it sent may refer to
        # it (file descriptors are fetched from their sender).
        del task, value
    pipe.finish()


def _new_fetcher(setup: Setup) -> Any:
    return _DatasetKind.create_fetcher(
        setup.kind,
        setup.dataset,
        setup.auto_collation,
        setup.collate_fn,
        setup.drop_last,
    )


def _begun_again(setup: Setup) -> tuple[Any, ExceptionWrapper | None]:
    try:
        return _new_fetcher(setup), None
    except Exception:
        return None, ExceptionWrapper(where=setup.where())


def _fetched(setup: Setup, fetcher: Any, indices: Any) -> Any:
    try:
        return fetcher.fetch(indices)
    except Exception as error:
        if isinstance(error, StopIteration) and setup.kind == _DatasetKind.Iterable:
            return _IterableDatasetStopIteration(setup.worker_id)
        # A string form of the traceback: the frames themselves would keep the batch alive.
        return ExceptionWrapper(where=setup.where())


def _message(setup: Setup, sender: Sender, result: Result) -> Any:
    """What to send; where the batch cannot be pickled, the error."""
    try:
        return sender.message(result)
    except Exception:
        failure = ExceptionWrapper(where=setup.where())
        return sender.message(result._replace(value=failure))
