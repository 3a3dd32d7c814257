"""Checkpoints that PyTorch 2.13 wrote (record.py), and what it would read of ours."""

from __future__ import annotations

import io
import pickle
import pickletools
import struct
import zipfile
from pathlib import Path
from typing import Any

import pytest

import flambeau as torch
from flambeau._checkpoint.legacy import new_unpickler

FILES = Path(__file__).with_name("files")


def check_state(state: Any) -> None:
    """That a loaded state is the one that record.py made."""
    whole = state["whole"]
    assert whole.tolist() == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]
    for name in ("transposed", "strided"):
        assert state[name].untyped_storage() is whole.untyped_storage()
    assert state["transposed"].stride() == (1, 4)
    assert state["strided"].tolist() == [[4, 6], [8, 10]]
    assert state["strided"].storage_offset() == 4
    assert isinstance(state["parameter"], torch.nn.Parameter)
    assert state["recorded"].requires_grad
    assert state["empty"].shape == (0,)
    assert state["scalar"].item() == 2.5
    assert state["plain"][:6] == [1, 2.5, "text", None, True, (1, 2)]
    assert state["plain"][6:] == [{"k": 3}, b"bytes", 2**70, {1, 2}, 1j]
    assert state["dtype"] is torch.float16
    assert state["device"] == torch.device("cpu")
    assert state["size"] == torch.Size([1, 2])
    assert state["layout"] is torch.strided
    assert state["bool"].tolist() == [True, False]
    for name in "float64 float16 bfloat16 int64 int32 int16 int8 uint8".split():
        assert state[name].dtype is getattr(torch, name)
        assert state[name].tolist() == [1, 2, 3]
    for name in "complex64 complex128".split():
        assert state[name].tolist() == [1 + 2j, 3 - 1j]
    assert state._metadata == {"": {"version": 1}}


@pytest.mark.parametrize("name", ["zip.pt", "legacy.pt"])
@pytest.mark.parametrize("weights_only", [True, False])
def test_read(name: str, weights_only: bool) -> None:
    check_state(torch.load(FILES / name, weights_only=weights_only))
    with open(FILES / name, "rb") as file:
        check_state(torch.load(file, weights_only=weights_only))
    check_state(torch.load(io.BytesIO((FILES / name).read_bytes()), weights_only=weights_only))


def test_read_mapped() -> None:
    state = torch.load(str(FILES / "zip.pt"), mmap=True)
    check_state(state)
    # A private map: the change stays here.
    state["whole"].add_(1)
    check_state(torch.load(FILES / "zip.pt"))


def test_read_dtypes_without_typed_storage() -> None:
    state = torch.load(FILES / "new_dtypes.pt")
    assert state["t"].dtype is torch.uint16
    assert state["f"].dtype is torch.float8_e5m2
    assert state["t"].to(torch.int64).tolist()[2] == [8, 9, 10, 11]
    assert state["f"].float().tolist()[1] == [4, 5, 6, 7]


def test_read_module_and_optimizer() -> None:
    with pytest.raises(Exception, match=r"Unsupported global: GLOBAL torch\.nn\.modules\.linear"):
        torch.load(FILES / "module.pt")
    module = torch.load(FILES / "module.pt", weights_only=False)
    assert isinstance(module, torch.nn.Linear)
    assert module(torch.ones(1, 2)).shape == (1, 1)
    with torch.serialization.safe_globals([torch.nn.Linear, (set, "builtins.set")]):
        assert isinstance(torch.load(FILES / "module.pt"), torch.nn.Linear)
    optimizer = torch.optim.AdamW(module.parameters())
    optimizer.load_state_dict(torch.load(FILES / "optimizer.pt"))
    assert optimizer.param_groups[0]["lr"] == 0.1
    assert optimizer.state[module.weight]["step"].item() == 1


def ours(weights: Any, **options: Any) -> bytes:
    file = io.BytesIO()
    torch.save(weights, file, **options)
    return file.getvalue()


def globals_of(pickled: bytes) -> set[str]:
    return {arg for op, arg, _ in pickletools.genops(pickled) if op.name == "GLOBAL"}


def test_written_names_are_those_of_torch() -> None:
    linear = torch.nn.Linear(2, 1)
    state = linear.state_dict()
    state["more"] = [torch.float16, torch.device("cpu"), torch.Size([1]), torch.strided]
    state["p"] = torch.nn.Parameter(torch.ones(2, dtype=torch.bfloat16))
    state["u"] = torch.ones(2).to(torch.uint16)
    # Text that looks like a name in the pickle stays what it is.
    state["text"] = "cflambeau._utils\n_rebuild_tensor_v2\n"
    archive = zipfile.ZipFile(io.BytesIO(ours(state)))
    pickled = archive.read("archive/data.pkl")
    assert globals_of(pickled) == {
        "collections OrderedDict",
        "torch._utils _rebuild_tensor_v2",
        "torch._utils _rebuild_tensor_v3",
        "torch._utils _rebuild_parameter",
        "torch FloatStorage",
        "torch BFloat16Storage",
        "torch.storage UntypedStorage",
        "torch float16",
        "torch uint16",
        "torch device",
        "torch Size",
        "torch.serialization _get_layout",
    }
    assert torch.load(io.BytesIO(ours(state)))["text"] == state["text"]
    whole = zipfile.ZipFile(io.BytesIO(ours(linear))).read("archive/data.pkl")
    assert "torch.nn.modules.linear Linear" in globals_of(whole)
    assert all("flambeau" not in name for name in globals_of(whole))


def test_written_archive(tmp_path: Path) -> None:
    path = tmp_path / "name.pt"
    torch.save({"a": torch.ones(3), "b": torch.ones(300)}, path)
    data = path.read_bytes()
    archive = zipfile.ZipFile(path)
    assert archive.testzip() is None
    names = archive.namelist()
    assert names[:6] == [
        "name/data.pkl",
        "name/.format_version",
        "name/.storage_alignment",
        "name/byteorder",
        "name/data/0",
        "name/data/1",
    ]
    assert names[6:] == ["name/version", "name/.data/serialization_id"]
    assert archive.read("name/version") == b"3\n"
    assert archive.read("name/byteorder") == b"little"
    assert len(archive.read("name/.data/serialization_id")) == 40
    for entry in archive.infolist():
        assert entry.compress_type == zipfile.ZIP_STORED
        name_size, extra_size = struct.unpack_from("<2H", data, entry.header_offset + 26)
        assert (entry.header_offset + 30 + name_size + extra_size) % 64 == 0


def test_written_legacy_file() -> None:
    data = ours([torch.ones(2), "text"], _use_new_zipfile_serialization=False)
    found = []
    file = io.BytesIO(data)
    for _ in range(4):
        found += [arg for op, arg, _ in pickletools.genops(file) if op.name == "GLOBAL"]
    assert found == ["torch._utils _rebuild_tensor_v2", "torch FloatStorage",
                     "collections OrderedDict"]  # fmt: skip
    assert torch.load(io.BytesIO(data))[0].tolist() == [1, 1]


def test_plain_pickle_of_torch() -> None:
    """A pickle names torch; the unpickler of checkpoints finds flambeau by it."""
    file = io.BytesIO((FILES / "pickle.pkl").read_bytes())
    read = new_unpickler(pickle, file, lambda pid: None, {}).load()
    assert read.tolist() == [[4, 5, 6, 7], [8, 9, 10, 11]]
