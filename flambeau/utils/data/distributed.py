"""A sampler that gives each process of a group its own part of a dataset."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import flambeau as torch

from .dataset import Dataset
from .sampler import Sampler

__all__ = ["DistributedSampler"]


class DistributedSampler(Sampler[int]):
    """Every `num_replicas`-th index, beginning with `rank`.

    All processes get the same number: the first indices are taken again to fill up, or with
    `drop_last` the last ones are left out. Call `set_epoch` before each pass, or every pass has
    the same order.

    Args:
        dataset: its length counts.
        num_replicas: number of processes (default: that of the process group).
        rank: the number of this process (default: from the process group).
        shuffle: permute the indices, the same way everywhere.
        seed: of the permutation, the same everywhere.
        drop_last: see above.
    """

    def __init__(
        self,
        dataset: Dataset[Any],
        num_replicas: int | None = None,
        rank: int | None = None,
        shuffle: bool = True,
        seed: int = 0,
        drop_last: bool = False,
    ) -> None:
        if num_replicas is None:
            num_replicas = _process_group().get_world_size()
        if rank is None:
            rank = _process_group().get_rank()
        if rank >= num_replicas or rank < 0:
            raise ValueError(
                f"Invalid rank {rank}, rank should be in the interval [0, {num_replicas - 1}]"
            )
        self.dataset = dataset
        self.num_replicas = num_replicas
        self.rank = rank
        self.epoch = 0
        self.drop_last = drop_last
        size = len(dataset)  # type: ignore[arg-type]
        if drop_last and size % num_replicas != 0:
            self.num_samples = math.ceil((size - num_replicas) / num_replicas)
        else:
            self.num_samples = math.ceil(size / num_replicas)
        self.total_size = self.num_samples * num_replicas
        self.shuffle = shuffle
        self.seed = seed

    def __iter__(self) -> Iterator[int]:
        size = len(self.dataset)  # type: ignore[arg-type]
        if self.shuffle:
            generator = torch.Generator()
            generator.manual_seed(self.seed + self.epoch)
            indices = torch.randperm(size, generator=generator).tolist()
        else:
            indices = list(range(size))
        if not self.drop_last and indices:
            missing = self.total_size - len(indices)
            indices += (indices * math.ceil(missing / len(indices)))[:missing]
        indices = indices[: self.total_size]
        if len(indices) != self.total_size:
            raise AssertionError(
                f"Number of indices ({len(indices)}) does not match total_size ({self.total_size})"
            )
        return iter(indices[self.rank :: self.num_replicas])

    def __len__(self) -> int:
        return self.num_samples

    def set_epoch(self, epoch: int) -> None:
        """Choose the permutation of the passes that follow."""
        self.epoch = epoch


def _process_group() -> Any:
    # Reached through the package, so that a program without processes does not load it.
    group = torch.distributed
    if not group.is_available():
        raise RuntimeError("Requires distributed package to be available")
    return group
