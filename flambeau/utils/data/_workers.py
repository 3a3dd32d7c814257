"""A pass over a DataLoader whose batches come from worker processes.

Batch number ``i`` is made by worker ``i % num_workers`` (of those whose stream has not ended), and
``prefetch_factor * num_workers`` batches are under way. Each worker has its own two-way pipe (see
`_utils.worker`); here one waits for all pipes and for the deaths of all workers at once, so that a
killed worker is an error and not a wait without end.
"""

from __future__ import annotations

import contextlib
import itertools
import multiprocessing
import signal
import time
import weakref
from collections.abc import Iterable, Iterator
from multiprocessing.connection import Connection, wait
from multiprocessing.reduction import ForkingPickler
from typing import TYPE_CHECKING, Any

from flambeau._utils import ExceptionWrapper

from ._iterators import _BaseDataLoaderIter
from ._utils.pin_memory import pin_memory
from ._utils.transport import Receiver
from ._utils.worker import (
    CHECK_SECONDS,
    Resume,
    Setup,
    Task,
    _IterableDatasetStopIteration,
    worker_loop,
)

if TYPE_CHECKING:
    from .dataloader import DataLoader


class _Worker:
    """One worker process, seen from here."""

    def __init__(self, context: Any, setup: Setup, older: Iterable[_Worker]) -> None:
        self.ended = False
        self.connection, theirs = context.Pipe(duplex=True)
        # A forked process has copies of all that is open here. It must not keep them open.
        forked = context.get_start_method() == "fork"
        inherited = [w.connection for w in older] + [self.connection] if forked else []
        self.process = context.Process(
            target=worker_loop, args=(setup, theirs, inherited), daemon=True
        )
        try:
            self.process.start()
        except BaseException:
            self.connection.close()
            raise
        finally:
            theirs.close()
        self.receiver = Receiver(self.connection)

    def send(self, message: Any) -> None:
        """Send a task; that a dead worker cannot have it shows when its answer is awaited."""
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self.connection.send_bytes(ForkingPickler.dumps(message))

    def _exit_code(self) -> int | None:
        # A dying process closes what it has open a little before its exit code can be had.
        deadline = time.monotonic() + CHECK_SECONDS
        while self.process.exitcode is None and wait([self.process.sentinel], 0):
            if time.monotonic() > deadline:
                break
            time.sleep(0.001)
        return self.process.exitcode

    def death(self) -> RuntimeError | None:
        """Why the process is dead, None if it lives."""
        code = self._exit_code()
        if code is None:
            return None
        if code >= 0:
            return RuntimeError(
                f"DataLoader worker (pid {self.process.pid}) exited unexpectedly with exit code "
                f"{code}. Details are lost due to multiprocessing. Rerunning with num_workers=0 "
                "may give better error trace."
            )
        text = signal.strsignal(-code) or str(-code)
        message = f"DataLoader worker (pid {self.process.pid}) is killed by signal: {text}. "
        if -code == signal.SIGBUS:
            message += (
                "It is possible that dataloader's workers are out of shared memory. "
                "Please try to raise your shared memory limit."
            )
        return RuntimeError(message)


def _end(workers: list[_Worker]) -> None:
    """Ask workers to end, and end those that do not."""
    for worker in workers:
        if not worker.connection.closed:
            worker.send(None)
            worker.connection.close()
    deadline = time.monotonic() + CHECK_SECONDS
    for worker in workers:
        worker.process.join(max(0.0, deadline - time.monotonic()))
    for last_resort in ("terminate", "kill"):
        for worker in workers:
            if worker.process.is_alive():
                getattr(worker.process, last_resort)()
                worker.process.join(CHECK_SECONDS)


class _MultiProcessingDataLoaderIter(_BaseDataLoaderIter):
    """Iterates over a DataLoader with worker processes."""

    def __init__(self, loader: DataLoader[Any]) -> None:
        super().__init__(loader)
        self._in_order = loader.in_order
        self._prefetch_factor = loader.prefetch_factor or 0
        if self._prefetch_factor <= 0:
            raise AssertionError(
                "prefetch_factor must be greater than 0 for MultiProcessingDataLoaderIter"
            )
        self._epoch = -1
        self._live: list[_Worker] = []
        # Also where the iterator is only dropped, and when the interpreter ends.
        self._finalizer = weakref.finalize(self, _end, self._live)
        context = loader.multiprocessing_context or multiprocessing.get_context()
        for worker_id in range(self._num_workers):
            setup = Setup(
                kind=self._dataset_kind,
                dataset=self._dataset,
                auto_collation=self._auto_collation,
                collate_fn=self._collate_fn,
                drop_last=self._drop_last,
                base_seed=self._base_seed,
                init_fn=loader.worker_init_fn,
                worker_id=worker_id,
                num_workers=self._num_workers,
                persistent=self._persistent_workers,
            )
            self._live.append(_Worker(context, setup, self._live))
        self._begin()

    @property
    def _workers(self) -> list[Any]:
        return [worker.process for worker in self._live]

    def _reset(self, loader: DataLoader[Any], first_iter: bool = False) -> None:
        super()._reset(loader, first_iter)
        for worker in self._live:
            worker.send(Resume(self._epoch + 1, worker.receiver.take_released()))
        self._begin()

    def _begin(self) -> None:
        """Begin a pass: forget what is under way, and give out the first tasks."""
        self._epoch += 1
        self._next_sent = 0
        self._next_given = 0
        #: For each batch under way, which worker makes it.
        self._made_by: dict[int, _Worker] = {}
        #: Batches that came before their turn.
        self._early: dict[int, Any] = {}
        for worker in self._live:
            worker.ended = False
        self._turn: Iterator[_Worker] = itertools.cycle(self._live)
        for _ in range(self._prefetch_factor * self._num_workers):
            self._send_task()

    def _worker_in_turn(self) -> _Worker | None:
        """The next worker that can take a task."""
        active = [w for w in self._live if not w.ended]
        for _ in self._live:
            worker = next(self._turn)
            if worker.ended:
                continue
            if self._in_order:
                return worker
            # Out of order, a slow worker must not gather all tasks.
            most = self._prefetch_factor * self._num_workers // len(active)
            if sum(maker is worker for maker in self._made_by.values()) < most:
                return worker
        return None

    def _send_task(self) -> None:
        if all(worker.ended for worker in self._live):
            return
        try:
            indices = self._next_index()
        except StopIteration:
            return
        worker = self._worker_in_turn()
        if worker is None:
            return
        worker.send(Task(self._epoch, self._next_sent, indices, worker.receiver.take_released()))
        self._made_by[self._next_sent] = worker
        self._next_sent += 1

    def _next_data(self) -> Any:
        while True:
            if not self._in_order and self._early:
                index = next(iter(self._early))
                return self._given(self._early.pop(index))
            if self._in_order:
                # Batches that a worker could not make, its stream having ended, are passed over.
                while self._next_given < self._next_sent and not self._expected(self._next_given):
                    self._next_given += 1
                if self._next_given in self._early:
                    self._next_given += 1
                    return self._given(self._early.pop(self._next_given - 1))
            if not self._made_by:
                if not self._persistent_workers:
                    self._shutdown_workers()
                raise StopIteration
            self._receive()

    def _expected(self, index: int) -> bool:
        return index in self._early or index in self._made_by

    def _given(self, value: Any) -> Any:
        self._send_task()
        if isinstance(value, ExceptionWrapper):
            value.reraise()
        if self._pin_memory:
            value = pin_memory(value, self._pin_memory_device)
        return value

    def _receive(self) -> None:
        """Take one answer from the workers into ``_early``, or note that a stream has ended."""
        worker, answer = self._next_answer()
        if answer.epoch != self._epoch or answer.index not in self._made_by:
            return
        del self._made_by[answer.index]
        if not isinstance(answer.value, _IterableDatasetStopIteration):
            self._early[answer.index] = answer.value
            return
        worker.ended = True
        if not self._persistent_workers:
            worker.send(None)
        for index in [i for i, maker in self._made_by.items() if maker is worker]:
            del self._made_by[index]
        self._send_task()

    def _next_answer(self) -> tuple[_Worker, Any]:
        deadline = time.monotonic() + self._timeout if self._timeout > 0 else None
        makers = {id(w): w for w in self._made_by.values()}.values()
        by_handle: dict[Any, _Worker] = {}
        for worker in makers:
            by_handle[worker.connection] = worker
            by_handle[worker.process.sentinel] = worker
        while True:
            left = CHECK_SECONDS
            if deadline is not None:
                left = min(left, deadline - time.monotonic())
            ready = wait(by_handle, max(0.0, left))
            # What a worker sent before it died is taken first.
            for handle in sorted(ready, key=lambda h: not isinstance(h, Connection)):
                worker = by_handle[handle]
                if not isinstance(handle, Connection) and worker.connection.poll(0):
                    handle = worker.connection
                if isinstance(handle, Connection):
                    try:
                        return worker, worker.receiver.receive()
                    except (EOFError, ConnectionResetError):
                        # The process is dying, or has closed its pipe without a reason.
                        wait([worker.process.sentinel], CHECK_SECONDS)
                self._raise_dead()
            if deadline is not None and time.monotonic() >= deadline:
                raise RuntimeError(f"DataLoader timed out after {self._timeout} seconds")

    def _raise_dead(self) -> None:
        dead = [w for w in self._live if not w.ended and w.death() is not None]
        if not dead:
            raise RuntimeError("DataLoader worker closed its pipe without a message")
        pids = ", ".join(str(w.process.pid) for w in dead)
        cause = dead[0].death()
        for worker in dead:
            worker.ended = True
        raise RuntimeError(f"DataLoader worker (pid(s) {pids}) exited unexpectedly") from cause

    def _shutdown_workers(self) -> None:
        self._finalizer()
