"""From indices to a batch: the two kinds of datasets behind one method."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import flambeau as torch

from ..dataset import Subset, TensorDataset
from .collate import default_collate


class _BaseDatasetFetcher:
    def __init__(
        self,
        dataset: Any,
        auto_collation: bool,
        collate_fn: Callable[[Any], Any],
        drop_last: bool,
    ) -> None:
        self.dataset = dataset
        self.auto_collation = auto_collation
        self.collate_fn = collate_fn
        self.drop_last = drop_last

    def fetch(self, possibly_batched_index: Any) -> Any:
        """The batch of these indices (or the sample of this one)."""
        raise NotImplementedError(f"{type(self).__name__} does not define fetch()")


class _IterableDatasetFetcher(_BaseDatasetFetcher):
    """Takes as many samples from a stream as it is given indices; StopIteration at its end."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.dataset_iter = iter(self.dataset)
        self.ended = False

    def fetch(self, possibly_batched_index: Any) -> Any:
        if self.ended:
            raise StopIteration
        if not self.auto_collation:
            return self.collate_fn(next(self.dataset_iter))
        samples = []
        for _ in possibly_batched_index:
            try:
                samples.append(next(self.dataset_iter))
            except StopIteration:
                self.ended = True
                break
        short = self.drop_last and len(samples) < len(possibly_batched_index)
        if not samples or short:
            raise StopIteration
        return self.collate_fn(samples)


class _MapDatasetFetcher(_BaseDatasetFetcher):
    """Asks the dataset for each index, or for all of them where it takes lists."""

    def fetch(self, possibly_batched_index: Any) -> Any:
        if not self.auto_collation:
            return self.collate_fn(self.dataset[possibly_batched_index])
        indices = possibly_batched_index
        if self.collate_fn is default_collate:
            rows = _rows_at_once(self.dataset, indices)
            if rows is not None:
                return rows
        if getattr(self.dataset, "__getitems__", None):
            return self.collate_fn(self.dataset.__getitems__(indices))
        return self.collate_fn([self.dataset[i] for i in indices])


def _rows_at_once(dataset: Any, indices: Any) -> list[Any] | None:
    """The batch of a TensorDataset (or Subsets of one) by one gather a tensor.

    It is what stacking the single rows gives. None where that is not certain.
    """
    while type(dataset) is Subset:
        indices = [dataset.indices[i] for i in indices]
        dataset = dataset.dataset
    if type(dataset) is not TensorDataset or not indices:
        return None
    if any(type(i) is not int for i in indices):
        return None
    for t in dataset.tensors:
        if type(t) is not torch.Tensor or t.layout is not torch.strided or t.is_nested:
            return None
        if t.dim() == 0 or t.requires_grad or t.device.type != "cpu":
            return None
    where = torch.tensor(indices)
    return [t[where] for t in dataset.tensors]


class _DatasetKind:
    Map = 0
    Iterable = 1

    @staticmethod
    def create_fetcher(
        kind: int, dataset: Any, auto_collation: bool, collate_fn: Any, drop_last: bool
    ) -> _BaseDatasetFetcher:
        """The fetcher for a dataset of this kind."""
        fetcher = _MapDatasetFetcher if kind == _DatasetKind.Map else _IterableDatasetFetcher
        return fetcher(dataset, auto_collation, collate_fn, drop_last)
