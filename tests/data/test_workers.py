"""DataLoaders with worker processes: the same batches, and no waiting for what will not come."""

from __future__ import annotations

import gc
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import time
from typing import Any

import numpy as np
import pytest

import flambeau as torch
from flambeau.utils import data


class Samples(data.Dataset):
    """Tensors, arrays, numbers and strings; `at` says what goes wrong at sample 5."""

    def __init__(self, size: int = 10, at: str = "", shape: tuple[int, ...] = (2,)) -> None:
        self.size = size
        self.at = at
        self.shape = shape

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, i: int) -> Any:
        if i == 5 and self.at:
            self.fail()
        return torch.full(self.shape, float(i)), np.full(2, i), i, str(i)

    def fail(self) -> None:
        if self.at == "raise":
            raise ValueError("sample five")
        if self.at == "key":
            raise KeyError("five")
        if self.at == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if self.at == "exit":
            os._exit(3)
        if self.at == "sleep":
            time.sleep(60)


class Random(data.Dataset):
    def __len__(self) -> int:
        return 8

    def __getitem__(self, i: int) -> Any:
        return torch.rand(()).item(), float(np.random.rand()), random.random()


class Stream(data.IterableDataset):
    def __iter__(self) -> Any:
        info = data.get_worker_info()
        start, step = (info.id, info.num_workers) if info else (0, 1)
        return iter(range(start, 11, step))


def plain(batch: Any) -> Any:
    if isinstance(batch, torch.Tensor):
        return batch.tolist()
    return [plain(part) for part in batch] if isinstance(batch, (list, tuple)) else batch


@pytest.mark.parametrize("options", [{}, {"shuffle": True}, {"drop_last": True}])
def test_same_batches_as_without_workers(options: dict[str, Any]) -> None:
    results = []
    for workers in (0, 2):
        torch.manual_seed(3)
        loader = data.DataLoader(Samples(), 3, num_workers=workers, **options)
        results.append([plain(batch) for batch in loader] + [torch.rand(()).item()])
    assert results[0] == results[1]


def test_random_numbers_of_workers() -> None:
    torch.manual_seed(5)
    batches = [plain(b) for b in data.DataLoader(Random(), 2, num_workers=2)]
    # Those of PyTorch 2.13: torch, NumPy and random, of the first sample of each worker.
    assert [batches[0][k][0] for k in range(3)] == pytest.approx(
        [0.7106006741523743, 0.48524966518109036, 0.9732059885921714]
    )
    assert batches[1][1][1] == pytest.approx(0.9242645271423134)


def test_persistent_workers_and_abandoned_passes() -> None:
    loader = data.DataLoader(Samples(9), 2, num_workers=2, persistent_workers=True)
    whole = [plain(b) for b in loader]
    pids = [p.pid for p in loader._iterator._workers]
    iterator = iter(loader)
    assert plain(next(iterator)) == whole[0]
    assert [plain(b) for b in loader] == whole
    assert [p.pid for p in loader._iterator._workers] == pids


def test_streams() -> None:
    for persistent in (False, True):
        loader = data.DataLoader(
            Stream(), 2, num_workers=2, persistent_workers=persistent, prefetch_factor=3
        )
        for _ in range(2):
            batches = [b.tolist() for b in loader]
            assert batches == [[0, 2], [1, 3], [4, 6], [5, 7], [8, 10], [9]]


def test_out_of_order() -> None:
    loader = data.DataLoader(range(20), 2, num_workers=2, in_order=False)
    assert sorted(x for b in loader for x in b.tolist()) == list(range(20))


def test_worker_init_fn_and_info() -> None:
    def initialise(worker: int) -> None:
        info = data.get_worker_info()
        assert (info.id, info.num_workers) == (worker, 2)
        info.dataset.shape = (worker + 1,)

    assert data.get_worker_info() is None
    loader = data.DataLoader(Samples(4), 1, num_workers=2, worker_init_fn=initialise)
    assert [b[0].shape[1] for b in loader] == [1, 2, 1, 2]


@pytest.mark.parametrize(("at", "error"), [("raise", ValueError), ("key", KeyError)])
def test_error_in_worker(at: str, error: type[Exception]) -> None:
    iterator = iter(data.DataLoader(Samples(at=at), 2, num_workers=2))
    next(iterator)
    next(iterator)
    with pytest.raises(error, match=r"in DataLoader worker process 0.\s+Original Traceback"):
        next(iterator)
    # The others are not lost.
    assert next(iterator)[2].tolist() == [6, 7]


def test_error_before_the_first_sample() -> None:
    def initialise(worker: int) -> None:
        raise RuntimeError("no start")

    with pytest.raises(RuntimeError, match="no start"):
        list(data.DataLoader(Samples(), num_workers=1, worker_init_fn=initialise))


def test_batch_that_cannot_be_pickled() -> None:
    loader = data.DataLoader(Samples(), 2, num_workers=1, collate_fn=lambda b: lambda: b)
    with pytest.raises((AttributeError, TypeError), match="in DataLoader worker process 0"):
        next(iter(loader))


@pytest.mark.parametrize(
    ("at", "text"), [("kill", "is killed by signal: Killed"), ("exit", "exit code 3")]
)
def test_worker_that_dies(at: str, text: str) -> None:
    began = time.monotonic()
    with pytest.raises(RuntimeError, match="exited unexpectedly") as caught:
        list(data.DataLoader(Samples(at=at), 2, num_workers=2))
    assert text in str(caught.value.__cause__)
    assert time.monotonic() - began < 5


def test_timeout() -> None:
    loader = data.DataLoader(Samples(at="sleep"), 2, num_workers=1, timeout=0.5)
    iterator = iter(loader)
    with pytest.raises(RuntimeError, match=r"DataLoader timed out after 0.5 seconds"):
        list(iterator)
    for process in iterator._workers:
        process.kill()


def test_workers_end_with_their_iterator() -> None:
    began = time.monotonic()
    iterator = iter(data.DataLoader(Samples(100), 1, num_workers=2))
    next(iterator)
    processes = iterator._workers
    del iterator
    assert not any(p.is_alive() for p in processes)
    assert time.monotonic() - began < 5


def test_large_batches_keep_their_values() -> None:
    """Memory that a batch came in is used again only when nothing refers to it."""
    loader = data.DataLoader(Samples(60, shape=(128, 128)), 2, num_workers=2)
    kept = []
    for k, batch in enumerate(loader):
        if k % 4 == 0:
            kept.append((k, batch[0][1]))
        del batch
    assert len(kept) == 8
    for k, row in kept:
        assert row.min().item() == row.max().item() == 2 * k + 1


def test_large_arrays_can_be_written_to() -> None:
    loader = data.DataLoader(
        Samples(4), 2, num_workers=1, collate_fn=lambda b: (np.ones(50_000), torch.zeros(50_000))
    )
    for array, tensor in loader:
        array += 1
        tensor += 1
        assert array.sum() == 100_000
        assert tensor.sum().item() == 50_000


def test_spawned_workers() -> None:
    loader = data.DataLoader(Samples(4), 2, num_workers=1, multiprocessing_context="spawn")
    assert [b[2].tolist() for b in loader] == [[0, 1], [2, 3]]


def test_nothing_is_left_when_the_main_process_is_killed() -> None:
    program = (
        "import sys, time\n"
        "import flambeau\n"
        "from flambeau.utils.data import DataLoader\n"
        "it = iter(DataLoader(range(1000), 1, num_workers=2))\n"
        "next(it)\n"
        "print(*[p.pid for p in it._workers], flush=True)\n"
        "time.sleep(60)\n"
    )
    child = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    pids = [int(word) for word in child.stdout.readline().split()]
    child.kill()
    child.wait()
    child.stdout.close()
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline and any(os.path.exists(f"/proc/{p}/stat") for p in pids):
        time.sleep(0.1)
    states = [_state(p) for p in pids]
    assert all(state in ("", "Z") for state in states)


def _state(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0]
    except OSError:
        return ""


def test_no_process_is_left() -> None:
    gc.collect()
    until = time.monotonic() + 20  # a busy machine takes its time to end one
    while multiprocessing.active_children() and time.monotonic() < until:
        time.sleep(0.05)
    assert not multiprocessing.active_children()
