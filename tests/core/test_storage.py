"""Storage cells: what happens to the bytes is seen through every alias that is alive."""

from __future__ import annotations

import copy
import ctypes
import gc
import io
import multiprocessing
import os
import pickle
import sys
from pathlib import Path

import pytest

import flambeau as torch
from flambeau import UntypedStorage

DTYPES = [
    "uint8", "int8", "int16", "int32", "int64", "uint16", "uint32", "uint64", "float16", "bfloat16",
    "float32", "float64", "float8_e5m2", "float8_e4m3fn", "complex32", "complex64", "complex128",
    "bool",
]  # fmt: skip
each_dtype = pytest.mark.parametrize("dtype", DTYPES)


def ones_and_zeros(dtype: str, n: int = 8) -> torch.Tensor:
    """0, 1, 0, 1, … in a dtype: numbers that all of them have."""
    return (torch.arange(n) % 2).to(getattr(torch, dtype))


class Aliases:
    """Three live aliases of one cell: the tensor, a view of a part, and a detached view across."""

    def __init__(self, dtype: str = "float32") -> None:
        self.whole = ones_and_zeros(dtype)
        self.part = self.whole[2:6]
        self.across = self.whole.detach().view(2, 4).t()

    @property
    def cell(self) -> UntypedStorage:
        return self.whole.untyped_storage()

    def all(self) -> list[torch.Tensor]:
        return [self.whole, self.part, self.across]

    def agree(self) -> bool:
        """Whether the three show the same bytes."""
        flat = self.whole.tolist()
        return (
            all(t.untyped_storage() is self.cell for t in self.all())
            and self.part.tolist() == flat[2:6]
            and self.across.t().reshape(-1).tolist() == flat
        )


@each_dtype
def test_aliases_share_cell_bytes_and_version(dtype: str) -> None:
    a = Aliases(dtype)
    version = a.whole._version
    a.part.copy_(ones_and_zeros(dtype, 5)[1:])
    assert a.agree() and a.whole.tolist()[2:6] == a.part.tolist()
    a.across[0, 0] = 1
    assert a.agree() and a.whole[0].item() == 1
    assert {t._version - version for t in a.all()} == {2}


@each_dtype
def test_resize_to_nothing_and_back(dtype: str) -> None:
    a = Aliases(dtype)
    kept = [t.tolist() for t in a.all()]
    nbytes, saved = a.cell.nbytes(), a.cell.clone()
    a.cell.resize_(0)
    assert [t.data_ptr() for t in a.all()] == [0, 0, 0]
    assert [tuple(t.shape) for t in a.all()] == [(8,), (4,), (4, 2)]
    a.cell.resize_(nbytes)
    a.cell.copy_(saved)
    assert a.agree() and [t.tolist() for t in a.all()] == kept
    assert a.part.data_ptr() == a.whole.data_ptr() + 2 * a.whole.element_size()


def test_bytes_that_are_gone_are_not_read() -> None:
    a = Aliases()
    a.cell.resize_(0)
    for t in a.all():
        with pytest.raises(RuntimeError):
            t.sum()
        with pytest.raises(RuntimeError):
            t.add_(1)
        with pytest.raises(RuntimeError):
            t + t
        with pytest.raises(RuntimeError):
            t.tolist()


@each_dtype
def test_growing_keeps_what_was_there(dtype: str) -> None:
    a = Aliases(dtype)
    kept = [t.tolist() for t in a.all()]
    a.whole.resize_(4096)
    assert [t.tolist() for t in (a.part, a.across)] == kept[1:]
    assert a.whole[:8].tolist() == kept[0] and a.part.untyped_storage() is a.cell
    a.whole.resize_(2, 2)
    assert tuple(a.whole.shape) == (2, 2) and a.whole.stride() == (2, 1)
    assert a.cell.nbytes() == 4096 * a.part.element_size()


@each_dtype
def test_set_repoints_one_tensor_and_no_other(dtype: str) -> None:
    a, b = Aliases(dtype), ones_and_zeros(dtype, 3)
    kept = [t.tolist() for t in (a.part, a.across)]
    cell = a.cell
    a.whole.set_(b)
    assert a.whole.untyped_storage() is b.untyped_storage() and a.whole.tolist() == b.tolist()
    assert a.part.untyped_storage() is cell and [t.tolist() for t in (a.part, a.across)] == kept
    a.whole.set_(cell, 1, (2, 2), (3, 1))
    flat = ones_and_zeros(dtype).tolist()
    assert a.whole.tolist() == [[flat[1], flat[2]], [flat[4], flat[5]]]
    a.whole.set_()
    assert a.whole.numel() == 0 and a.part.tolist() == kept[0]


def test_detach_shares_the_version_and_data_does_not() -> None:
    t = torch.ones(4, requires_grad=True)
    detached, data = t.detach(), t.data
    assert not detached.requires_grad and not data.requires_grad
    detached.add_(1)
    assert (t._version, detached._version, data._version) == (1, 1, 0)
    data.add_(1)
    assert (t._version, detached._version, data._version) == (1, 1, 1)
    assert t.tolist() == detached.tolist() == data.tolist() == [3.0] * 4
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        u = torch.ones(2, requires_grad=True)
        y = u.exp()
        y.detach().add_(1)
        y.sum().backward()
    u = torch.ones(2, requires_grad=True)
    y = u.exp()
    y.data.add_(1)
    y.sum().backward()


def test_assigning_data_keeps_identity_and_version() -> None:
    t, other = torch.ones(2), torch.zeros(3)
    view = t[:1]
    t.add_(1)
    t.data = other
    assert t.tolist() == [0, 0, 0] and t._version == 1 and other._version == 0
    other.add_(1)
    assert t.tolist() == [1, 1, 1] and t._version == 1 and view.tolist() == [2.0]
    t.requires_grad_()
    with pytest.raises(RuntimeError, match="must be floating point or complex"):
        t.data = torch.arange(2)
    with pytest.raises(TypeError, match="Variable data has to be a tensor, but got int"):
        t.data = 3


@each_dtype
def test_view_of_another_dtype(dtype: str) -> None:
    a = Aliases(dtype)
    as_bytes = a.whole.view(torch.uint8)
    assert as_bytes.untyped_storage() is a.cell
    as_bytes.zero_()
    assert a.agree() and set(map(complex, a.whole.tolist())) == {0j}
    assert as_bytes.view(a.whole.dtype).shape == a.whole.shape
    assert a.whole._version == as_bytes._version == a.part._version


def test_as_strided_overlaps_within_the_cell() -> None:
    a = Aliases()
    windows = a.whole.as_strided((6, 3), (1, 1))
    a.whole[3] = 7
    assert [r for r in range(6) if 7 in windows[r].tolist()] == [1, 2, 3] and a.agree()
    with pytest.raises(RuntimeError, match="out of bounds for storage of size 32"):
        a.part.as_strided((9,), (1,), 0)


@each_dtype
def test_share_memory_moves_all_aliases(dtype: str) -> None:
    a = Aliases(dtype)
    kept, before = [t.tolist() for t in a.all()], a.whole.data_ptr()
    assert not a.part.is_shared()
    assert a.part.share_memory_() is a.part
    assert all(t.is_shared() for t in a.all()) and a.whole.data_ptr() != before
    assert a.agree() and [t.tolist() for t in a.all()] == kept
    a.part.zero_()
    assert a.agree()
    with pytest.raises(RuntimeError, match="not resizable"):
        a.cell.resize_(0)


def test_shared_memory_is_seen_by_a_forked_child() -> None:
    a = Aliases()
    a.whole.share_memory_()
    context = multiprocessing.get_context("fork")

    def child() -> None:
        a.part.fill_(5)
        os._exit(0)

    process = context.Process(target=child)
    process.start()
    process.join(30)
    assert a.whole.tolist() == [0, 1, 5, 5, 5, 5, 0, 1] and a.agree()


@each_dtype
def test_numpy_is_one_more_alias(dtype: str) -> None:
    numpy = pytest.importorskip("numpy")
    a = Aliases(dtype)
    if dtype in ("bfloat16", "float8_e5m2", "float8_e4m3fn", "complex32"):
        with pytest.raises(TypeError, match="Got unsupported ScalarType"):
            a.whole.numpy()
        return
    array = a.across.numpy()
    assert array.ctypes.data == a.whole.data_ptr() and array.strides == tuple(
        s * a.whole.element_size() for s in a.across.stride()
    )
    array[0, 0] = 1
    assert a.agree() and a.whole[0].item() == 1
    back = torch.from_numpy(array)
    assert back.dtype is a.whole.dtype and back.stride() == a.across.stride()
    back[1, 0] = 0
    assert a.agree() and a.whole[1].item() == 0 and array[1, 0] == 0
    with pytest.raises(RuntimeError, match="not resizable"):
        a.cell.resize_(0)
    own = numpy.arange(3)
    t = torch.as_tensor(own)
    del own
    gc.collect()
    assert t.tolist() == [0, 1, 2]


@each_dtype
def test_dlpack_is_one_more_alias(dtype: str) -> None:
    a = Aliases(dtype)
    other = torch.from_dlpack(a.across)
    assert other.data_ptr() == a.whole.data_ptr() and other.dtype is a.whole.dtype
    assert other.stride() == a.across.stride() and other.shape == a.across.shape
    other[0, 0] = 1
    assert a.agree() and a.whole[0].item() == 1
    assert a.whole._version == other._version - 1, "a version of its own, as in torch"
    copied = torch.from_dlpack(a.part, copy=True)
    assert copied.data_ptr() != a.part.data_ptr() and copied.tolist() == a.part.tolist()
    address = a.whole.data_ptr()
    del a
    gc.collect()
    assert other.data_ptr() == address and other[0, 0].item() == 1


def test_dlpack_with_numpy() -> None:
    numpy = pytest.importorskip("numpy")
    a = Aliases()
    array = numpy.from_dlpack(a.across)
    a.whole[0] = 9
    assert array[0, 0] == 9 and array.strides == (4, 16)
    t = torch.from_dlpack(array)
    t[0, 0] = 8
    assert a.agree() and a.whole[0].item() == 8
    capsule = torch.to_dlpack(a.whole)
    torch.from_dlpack(capsule)
    with pytest.raises(RuntimeError, match="can be consumed only once"):
        torch.from_dlpack(capsule)
    with pytest.raises(BufferError, match="require gradient"):
        torch.ones(2, requires_grad=True).__dlpack__()
    assert tuple(map(int, a.whole.__dlpack_device__())) == (1, 0)


def test_unused_capsules_free_the_bytes() -> None:
    t = torch.ones(4)
    cell = t.untyped_storage()
    before = sys.getrefcount(cell)
    capsules = [torch.to_dlpack(t), t.__dlpack__(max_version=(1, 0))]
    assert sys.getrefcount(cell) == before + 2
    del capsules
    assert sys.getrefcount(cell) == before


def test_indexing_and_slices_of_bytes() -> None:
    a = Aliases("int32")
    cell = a.cell
    assert len(cell) == cell.nbytes() == 32 and cell[4] == 1 and cell[-4] == 1
    part = cell[8:16]
    part.fill_(1)
    assert a.agree() and a.whole.tolist()[2:4] == [0x01010101] * 2
    cell[0] = 255
    cell[4:8] = 0
    assert a.whole.tolist()[:2] == [255, 0]
    for bad, error, message in (
        (32, IndexError, "index 32 out of range for storage of size 32"),
        ("a", TypeError, "can't index a torch.UntypedStorage with str"),
        (slice(0, 4, 2), RuntimeError, "step of 2, but only a step of 1"),
    ):
        with pytest.raises(error, match=message):
            cell[bad]
    with pytest.raises(RuntimeError, match="can only set storage content with a int types"):
        cell[0] = 1.5


def test_making_and_copying_storages() -> None:
    assert UntypedStorage().nbytes() == 0 and UntypedStorage(4, device="meta").device.type == "meta"
    assert UntypedStorage([1, 2, 300]).tolist() == [1, 2, 44]
    with pytest.raises(NotImplementedError, match="Not available for 'meta' device type"):
        UntypedStorage(4, device="meta")[0]
    with pytest.raises(RuntimeError, match="self was 3 bytes but src was 2 bytes"):
        UntypedStorage(3).copy_(UntypedStorage(2))
    cell = UntypedStorage([1, 2, 3, 4])
    for other in (
        cell.clone(),
        copy.copy(cell),
        copy.deepcopy(cell),
        pickle.loads(pickle.dumps(cell)),
    ):
        assert other is not cell and other.tolist() == [1, 2, 3, 4]
    cell.byteswap(torch.int16)
    assert cell.tolist() == [2, 1, 4, 3]
    assert UntypedStorage.from_buffer(b"\0\1", "big", dtype=torch.int16).tolist() == [1, 0]


def test_files_are_mapped(tmp_path: Path) -> None:
    path = tmp_path / "numbers"
    path.write_bytes(bytes(range(16)))
    private = UntypedStorage.from_file(str(path), shared=False, nbytes=8)
    a = torch.empty(0, dtype=torch.uint8).set_(private)
    b, c = a[4:], a.view(2, 4)
    b.fill_(7)
    assert a.tolist() == [0, 1, 2, 3, 7, 7, 7, 7] == c.reshape(-1).tolist()
    assert path.read_bytes()[4:8] == bytes([4, 5, 6, 7]) and not private.resizable()
    shared = UntypedStorage.from_file(str(path), shared=True, nbytes=32)
    torch.asarray(shared, dtype=torch.uint8)[20] = 9
    assert path.read_bytes()[20] == 9 and path.stat().st_size == 32
    t = torch.from_file(str(path), size=4, dtype=torch.int32)
    assert t.tolist()[0] == int.from_bytes(bytes(range(4)), sys.byteorder)


def test_asarray_of_a_slice_of_a_mapped_file(tmp_path: Path) -> None:
    """What the reader of safetensors does."""
    path = tmp_path / "weights"
    path.write_bytes(bytes(4) + torch.tensor([1.0, 2.0]).numpy().tobytes())
    storage = UntypedStorage.from_file(str(path), shared=False, nbytes=12)
    tensor = torch.asarray(storage[4:12], dtype=torch.uint8, device="cpu").view(dtype=torch.float32)
    del storage
    gc.collect()
    assert tensor.reshape([2]).tolist() == [1.0, 2.0]
    assert ctypes.c_float.from_address(tensor.data_ptr()).value == 1.0


def test_frombuffer_looks_at_the_buffer() -> None:
    buffer = bytearray(16)
    t = torch.frombuffer(buffer, dtype=torch.int32, offset=4, count=2)
    t[0] = 258
    assert buffer[4:8] == (258).to_bytes(4, sys.byteorder) and t.shape == (2,)
    with pytest.raises(BufferError):
        buffer.append(1)
    for options, message in (
        ({"count": 9}, "requested buffer length"),
        ({"offset": 16}, "must be non-negative and no greater than buffer length"),
        ({"offset": 3}, "must be a multiple of element size"),
        ({"count": 0}, "must not be 0"),
    ):
        with pytest.raises(ValueError, match=message):
            torch.frombuffer(buffer, dtype=torch.int32, **options)


@each_dtype
def test_copies_and_checkpoints_keep_sharing(dtype: str) -> None:
    a = Aliases(dtype)
    again = copy.deepcopy(a)
    assert again.agree() and again.cell is not a.cell
    # Plain pickle writes every tensor with bytes of its own, as torch's does.
    for copied in (again, pickle.loads(pickle.dumps(a))):
        assert [t.tolist() for t in copied.all()] == [t.tolist() for t in a.all()]
        assert copied.across.stride() == a.across.stride()
    file = io.BytesIO()
    torch.save(a.all(), file)
    file.seek(0)
    whole, part, across = torch.load(file)
    assert part.untyped_storage() is whole.untyped_storage() is across.untyped_storage()


def test_the_allocator_hands_out_what_it_has() -> None:
    native = torch._src._native
    native.empty_cache()
    made = native.memory_stats()["allocations"]
    address = torch.empty(1 << 20).data_ptr()
    again = torch.empty(1 << 20)
    assert again.data_ptr() == address
    stats = native.memory_stats()
    assert stats["allocations"] == made + 2 and stats["cached_bytes"] == 0
    live = stats["live_bytes"]
    del again
    after = native.memory_stats()
    assert live - after["live_bytes"] == after["cached_bytes"] == 1 << 22
    native.empty_cache()
    assert native.memory_stats()["cached_bytes"] == 0
