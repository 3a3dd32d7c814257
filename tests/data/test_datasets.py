"""Datasets, samplers and collation."""

from __future__ import annotations

import collections
import warnings
from typing import Any

import numpy as np
import pytest

import flambeau as torch
from flambeau.utils import data


class Stream(data.IterableDataset):
    def __init__(self, n: int) -> None:
        self.n = n

    def __iter__(self) -> Any:
        return iter(range(self.n))

    def __len__(self) -> int:
        return self.n


def seeded(seed: int) -> Any:
    return torch.Generator().manual_seed(seed)


# The numbers are those of PyTorch 2.13 for the same seeds.


def test_random_split() -> None:
    torch.manual_seed(5)
    parts = data.random_split(range(10), [3, 7])
    assert [p.indices for p in parts] == [[1, 4, 9], [6, 3, 5, 0, 2, 8, 7]]
    parts = data.random_split(range(11), [0.5, 0.25, 0.25], seeded(2))
    assert [len(p) for p in parts] == [6, 3, 2]
    assert parts[0].indices == [3, 8, 10, 0, 1, 4]
    with pytest.raises(ValueError, match="Sum of input lengths"):
        data.random_split(range(3), [2])
    with pytest.warns(UserWarning, match="Length of split at index 1 is 0"):
        data.random_split(range(1), [0.5, 0.5])


def test_random_sampler() -> None:
    torch.manual_seed(5)
    assert list(data.RandomSampler(range(6))) == [1, 5, 0, 4, 3, 2]
    assert list(data.RandomSampler(range(6), generator=seeded(1))) == [1, 5, 2, 0, 3, 4]
    replaced = list(data.RandomSampler(range(6), True, 40, seeded(1)))
    assert len(replaced) == 40
    assert replaced[:6] == [1, 5, 0, 2, 1, 1]
    assert len(list(data.RandomSampler(range(6), False, 15))) == 15
    with pytest.raises(ValueError, match="positive integer value, but got num_samples=0"):
        data.RandomSampler([])
    with pytest.raises(TypeError, match="replacement should be a boolean value"):
        data.RandomSampler([1], 3)


def test_weighted_sampler() -> None:
    drawn = list(data.WeightedRandomSampler([0.0, 0.0, 1.0], 4, generator=seeded(0)))
    assert drawn == [2, 2, 2, 2]
    assert sorted(data.WeightedRandomSampler([1, 1, 1], 3, replacement=False)) == [0, 1, 2]
    with pytest.raises(ValueError, match="weights should be a 1d sequence"):
        data.WeightedRandomSampler([[1.0]], 1)


def test_batch_sampler() -> None:
    assert list(data.BatchSampler(range(5), 2, False)) == [[0, 1], [2, 3], [4]]
    assert list(data.BatchSampler(range(5), 2, True)) == [[0, 1], [2, 3]]
    assert len(data.BatchSampler(range(5), 2, False)) == 3
    with pytest.raises(ValueError, match="batch_size=0"):
        data.BatchSampler(range(5), 0, False)


@pytest.mark.parametrize("size", [1, 7, 8, 10])
@pytest.mark.parametrize("drop_last", [False, True])
def test_distributed_sampler(size: int, drop_last: bool) -> None:
    parts = [
        list(data.DistributedSampler(range(size), 3, rank, drop_last=drop_last))
        for rank in range(3)
    ]
    assert len({len(p) for p in parts}) == 1
    seen = {i for p in parts for i in p}
    if drop_last:
        assert len(seen) == sum(map(len, parts))
    else:
        assert seen == set(range(size))
    sampler = data.DistributedSampler(range(9), 3, 1, seed=4)
    first = list(sampler)
    sampler.set_epoch(1)
    assert list(sampler) != first
    with pytest.raises(ValueError, match="Invalid rank 3"):
        data.DistributedSampler(range(9), 3, 3)


def test_datasets() -> None:
    x, y = torch.arange(6.0).reshape(3, 2), torch.arange(3)
    rows = data.TensorDataset(x, y)
    assert len(rows) == 3
    assert rows[1][0].tolist() == [2.0, 3.0]
    with pytest.raises(AssertionError, match="Size mismatch between tensors"):
        data.TensorDataset(x, y[:2])
    joined = data.ConcatDataset([range(3), range(10, 15)])
    assert [joined[i] for i in range(-8, 8)] == [0, 1, 2, 10, 11, 12, 13, 14] * 2
    assert len(data.ConcatDataset([rows]) + rows) == 6
    assert list(Stream(2) + Stream(3)) == [0, 1, 0, 1, 2]
    assert len(data.ChainDataset([Stream(2), Stream(3)])) == 5
    stacked = data.StackDataset(a=range(3), b=data.Subset(range(9), [5, 6, 7]))
    assert stacked[1] == {"a": 1, "b": 6}
    assert stacked.__getitems__([0, 2]) == [{"a": 0, "b": 5}, {"a": 2, "b": 7}]
    with pytest.raises(NotImplementedError, match="must also override"):
        type("Mine", (data.Subset,), {"__getitem__": lambda s, i: i})(range(3), [0])


Pair = collections.namedtuple("Pair", "a b")


def test_default_collate() -> None:
    collate = data.default_collate
    assert collate([1, 2]).dtype is torch.int64
    assert collate([1.5]).dtype is torch.float64
    assert collate([True]).dtype is torch.bool
    assert collate(["a", "b"]) == ["a", "b"]
    assert collate([np.float32(1)]).dtype is torch.float32
    assert collate([np.ones(2), np.zeros(2)]).tolist() == [[1, 1], [0, 0]]
    assert collate([(1, 2.0), (3, 4.0)])[0].tolist() == [1, 3]
    pair = collate([Pair(1, 2.0), Pair(3, 4.0)])
    assert isinstance(pair, Pair)
    assert pair.b.tolist() == [2.0, 4.0]
    batch = collate([collections.OrderedDict(a=1), collections.OrderedDict(a=2)])
    assert isinstance(batch, collections.OrderedDict)
    assert batch["a"].tolist() == [1, 2]
    assert collate([torch.ones(2), torch.zeros(2)]).shape == (2, 2)
    with pytest.raises(RuntimeError, match="each element in list of batch should be of equal size"):
        collate([[1], [1, 2]])
    with pytest.raises(TypeError, match=r"must contain tensors.*found <class 'object'>"):
        collate([object()])
    with pytest.raises(TypeError, match="found <U1"):
        collate([np.array(["a"])])


def test_collate_table_can_be_extended() -> None:
    class Word:
        pass

    table = {Word: lambda batch, *, collate_fn_map: len(batch)}
    from flambeau.utils.data._utils.collate import collate

    assert collate([{"w": Word()}, {"w": Word()}], collate_fn_map=table) == {"w": 2}


def test_default_convert() -> None:
    converted = data.default_convert({"a": np.ones(2), "b": [np.float64(1), "s"], "c": (1,)})
    assert converted["a"].dtype is torch.float64
    assert isinstance(converted["b"][0], torch.Tensor)
    assert converted["b"][1] == "s"
    assert converted["c"] == [1]


def test_single_process_loader() -> None:
    torch.manual_seed(5)
    loader = data.DataLoader(range(7), 3, shuffle=True)
    assert len(loader) == 3
    first = [b.tolist() for b in loader]
    # The seed of the workers and that of the order are both drawn from the global generator.
    assert first == [[0, 3, 6], [2, 1, 4], [5]]
    assert torch.rand(()).item() == pytest.approx(0.9201034307479858)
    assert [b.tolist() for b in data.DataLoader(range(4), sampler=[3, 1])] == [[3], [1]]
    assert [b.tolist() for b in data.DataLoader(range(9), batch_sampler=[[1, 2], [8]])] == [
        [1, 2],
        [8],
    ]
    assert list(data.DataLoader(["a"], batch_size=None)) == ["a"]
    assert [b.tolist() for b in data.DataLoader(Stream(5), 2, drop_last=True)] == [[0, 1], [2, 3]]


def test_rows_are_gathered_at_once() -> None:
    x = torch.arange(20.0).reshape(10, 2)
    loader = data.DataLoader(data.Subset(data.TensorDataset(x, x[:, 0]), [5, 3, 1]), 2)
    batches = list(loader)
    assert isinstance(batches[0], list)
    assert batches[0][0].tolist() == [[10, 11], [6, 7]]
    assert batches[1][1].tolist() == [2]


def test_length_of_stream_is_checked() -> None:
    class Liar(Stream):
        def __len__(self) -> int:
            return 1

    loader = data.DataLoader(Liar(3))
    assert len(loader) == 1
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        list(loader)
    assert "was reported to be 1" in str(caught[0].message)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"num_workers": -1}, "num_workers option should be non-negative"),
        ({"timeout": -1}, "timeout option should be non-negative"),
        ({"prefetch_factor": 2}, "prefetch_factor option could only be specified"),
        ({"persistent_workers": True}, "persistent_workers option needs num_workers > 0"),
        ({"shuffle": True, "sampler": [1]}, "sampler option is mutually exclusive with shuffle"),
        ({"batch_size": 2, "batch_sampler": [[1]]}, "batch_sampler option is mutually exclusive"),
        ({"batch_size": None, "drop_last": True}, "batch_size=None option disables"),
        ({"multiprocessing_context": "fork"}, "can only be used with multi-process loading"),
        ({"num_workers": 1, "multiprocessing_context": "x"}, "should specify a valid start method"),
    ],
)
def test_options_that_exclude_each_other(options: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text.replace("(", r"\(").replace(")", r"\)")):
        data.DataLoader(range(3), **options)


def test_options_of_streams() -> None:
    for options in ({"shuffle": True}, {"sampler": [1]}, {"batch_sampler": [[1]]}):
        with pytest.raises(ValueError, match="DataLoader with IterableDataset: expected unspec"):
            data.DataLoader(Stream(3), **options)
    loader = data.DataLoader(range(3))
    with pytest.raises(ValueError, match="batch_size attribute should not be set after"):
        loader.batch_size = 3
