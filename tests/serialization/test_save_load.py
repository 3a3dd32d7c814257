"""`save` and `load` by themselves: options, refusals, damage, sharing, large files."""

from __future__ import annotations

import copy
import io
import os
import pickle
import zipfile
from collections import Counter, OrderedDict
from pathlib import Path
from typing import Any

import pytest

import flambeau as torch
from flambeau import _weights_only_unpickler
from flambeau._checkpoint import archive as archives


def round_trip(obj: Any, save: dict[str, Any] | None = None, **load: Any) -> Any:
    file = io.BytesIO()
    torch.save(obj, file, **(save or {}))
    file.seek(0)
    return torch.load(file, **load)


@pytest.mark.parametrize("protocol", [1, 2, 3, 4, 5])
def test_pickle_protocols(protocol: int) -> None:
    state = {"x": torch.arange(3), "m": torch.nn.Linear(1, 1), "d": torch.float32}
    read = round_trip(state, {"pickle_protocol": protocol}, weights_only=False)
    assert read["x"].tolist() == [0, 1, 2]
    assert isinstance(read["m"], torch.nn.Linear)
    assert read["d"] is torch.float32


def test_sharing_is_kept() -> None:
    x = torch.arange(6.0)
    a, b, c = round_trip([x, x[2:], x.view(2, 3).t()])
    a[3] = 9
    assert b.tolist() == [2, 9, 4, 5]
    assert c.tolist() == [[0, 9], [1, 4], [2, 5]]
    one = torch.nn.Parameter(x)
    tied = round_trip({"a": one, "b": one})
    assert tied["a"] is tied["b"]


def test_subclass_and_attributes() -> None:
    class Named(torch.Tensor):
        pass

    globals()["Named"] = Named
    Named.__qualname__ = "Named"
    x = torch.ones(2).as_subclass(Named)
    x.label = "here"
    with pytest.raises(pickle.UnpicklingError, match="Named"):
        round_trip(x)
    with torch.serialization.safe_globals([Named]):
        read = round_trip(x)
    assert type(read) is Named
    assert read.label == "here"
    p = torch.nn.Parameter(torch.ones(2))
    p.note = [1]
    assert round_trip(p).note == [1]


class Custom:
    def __init__(self) -> None:
        self.value = 3


class Evil:
    def __reduce__(self) -> Any:
        return os.system, ("true",)


def test_refusals_say_what_to_do() -> None:
    with pytest.raises(pickle.UnpicklingError) as caught:
        round_trip(Custom())
    text = str(caught.value)
    assert "Weights only load failed. This file can still be loaded" in text
    name = f"{Custom.__module__}.Custom"
    assert f"torch.serialization.add_safe_globals([{name}])" in text
    with pytest.raises(pickle.UnpicklingError, match="whose module posix is blocked"):
        round_trip(Evil())
    assert round_trip(Custom(), weights_only=False).value == 3


def test_safe_globals() -> None:
    serialization = torch.serialization
    serialization.add_safe_globals([Custom])
    try:
        assert round_trip(Custom()).value == 3
        assert serialization.get_safe_globals() == [Custom]
    finally:
        serialization.clear_safe_globals()
    file = io.BytesIO()
    torch.save([Custom(), torch.ones(1)], file)
    file.seek(0)
    assert serialization.get_unsafe_globals_in_checkpoint(file) == [f"{Custom.__module__}.Custom"]


def test_what_a_pickle_may_not_do() -> None:
    load = _weights_only_unpickler.load
    for program, text in [
        (b"\x80\x02ccollections\nOrderedDict\n)R}\x8c", "Unsupported operand 140"),
        (b"\x80\x02ctorch._utils\n_rebuild_tensor\n}b.", "Can only build Tensor"),
        (b"\x80\x02K\x01)R.", "unrecognized function 1"),
        (b"\x80\x02ccollections\nOrderedDict\nK\x01a.", "Can only append to lists"),
        (b"\x80\x02K\x01Q.", "unsupported persistent id"),
        (b"\x80\x02csys\nexit\n.", "whose module sys is blocked"),
        (b"\x80\x02cbuiltins\neval\n.", r"add_safe_globals\(\[eval\]\)"),
    ]:
        with pytest.raises(pickle.UnpicklingError, match=text):
            load(io.BytesIO(program))


def test_geometry_beyond_the_storage_is_refused() -> None:
    storage = torch.storage.TypedStorage(wrap_storage=torch.UntypedStorage(8), dtype=torch.float32)
    rebuild = torch._utils._rebuild_tensor
    assert rebuild(storage, 0, (2,), (1,)).shape == (2,)
    for offset, size, stride in [
        (0, (3,), (1,)),
        (1, (2,), (1,)),
        (0, (2,), (2,)),
        (-1, (1,), (1,)),
    ]:
        with pytest.raises(RuntimeError, match="out of bounds"):
            rebuild(storage, offset, size, stride)


def test_containers() -> None:
    values = {"c": Counter(a=2), "o": OrderedDict(a=1), "b": bytearray(b"xy"), "n": float("nan")}
    read = round_trip(values)
    assert read["c"] == Counter(a=2)
    assert type(read["o"]) is OrderedDict
    assert read["b"] == b"xy"
    assert read["n"] != read["n"]


def test_map_location() -> None:
    x = torch.ones(2)
    for where in ("cpu", torch.device("cpu"), {"cpu": "cpu"}, lambda storage, location: storage):
        assert round_trip(x, map_location=where).tolist() == [1, 1]
    seen = []
    round_trip(x, map_location=lambda storage, location: seen.append((type(storage), location)))
    assert seen == [(torch.UntypedStorage, "cpu")]
    meta = round_trip({"x": x}, map_location="meta")["x"]
    assert meta.device.type == "meta"
    assert meta.shape == (2,)
    with pytest.raises(RuntimeError, match="don't know how to restore data location"):
        round_trip(x, map_location="moon")


def test_cuda_tensors_without_cuda() -> None:
    if torch.cuda.is_available():
        pytest.skip("there is a CUDA device")
    with pytest.raises(RuntimeError, match=r"torch.cuda.is_available\(\) is False. If you are"):
        round_trip(torch.ones(2), map_location="cuda:0")


def test_mmap(tmp_path: Path) -> None:
    path = tmp_path / "x.pt"
    torch.save({"x": torch.arange(1000.0)}, path)
    assert torch.load(path, mmap=True)["x"][999].item() == 999
    with pytest.raises(ValueError, match="f must be a file path in order to use the mmap"):
        round_trip(torch.ones(1), mmap=True)
    torch.save(torch.ones(1), path, _use_new_zipfile_serialization=False)
    with pytest.raises(RuntimeError, match="mmap can only be used with files saved with"):
        torch.load(path, mmap=True)


def test_files(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match=r"Parent directory .*nowhere does not exist"):
        torch.save(1, tmp_path / "nowhere" / "x.pt")
    with pytest.raises(AttributeError, match="expected 'f' to be string, path, or a file-like"):
        torch.save(1, 3)
    with pytest.raises(FileNotFoundError):
        torch.load(tmp_path / "missing.pt")
    path = tmp_path / "x.pt"
    with open(path, "wb") as file:
        torch.save([torch.ones(2)], file)
    assert zipfile.ZipFile(path).namelist()[0] == "archive/data.pkl"

    class OnlyWrite:
        data = b""

        def write(self, data: Any) -> int:
            self.data += bytes(data)
            return len(data)

    stream = OnlyWrite()
    torch.save([torch.ones(2)], stream)
    assert torch.load(io.BytesIO(stream.data))[0].tolist() == [1, 1]
    # An archive that does not begin where the file begins.
    file = io.BytesIO(b"before" + stream.data)
    file.seek(6)
    assert torch.load(file)[0].tolist() == [1, 1]


def test_an_error_while_pickling_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "x.pt"
    torch.save(1, path)
    with pytest.raises((AttributeError, pickle.PicklingError), match="local object"):
        torch.save(lambda: 0, path)
    assert torch.load(path) == 1


def test_damage_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "x.pt"
    torch.save(torch.arange(1000), path)
    data = bytearray(path.read_bytes())
    cut = tmp_path / "cut.pt"
    cut.write_bytes(data[: len(data) // 2])
    with pytest.raises(RuntimeError, match="PytorchStreamReader failed reading zip archive"):
        torch.load(cut)
    where = data.find((500).to_bytes(8, "little"))
    data[where] ^= 1
    path.write_bytes(data)
    with pytest.raises(RuntimeError, match="checksum does not agree"):
        torch.load(path)
    (tmp_path / "text.pt").write_text("hello, this is no checkpoint")
    with pytest.raises((RuntimeError, pickle.UnpicklingError, EOFError)):
        torch.load(tmp_path / "text.pt")


def test_compressed_archive(tmp_path: Path) -> None:
    path, packed = tmp_path / "x.pt", tmp_path / "packed.pt"
    torch.save(torch.arange(1000), path)
    with zipfile.ZipFile(path) as source, zipfile.ZipFile(packed, "w", 8) as target:
        for name in source.namelist():
            target.writestr(name, source.read(name))
    assert torch.load(packed).tolist() == list(range(1000))
    assert torch.load(packed, mmap=True)[999].item() == 999


def test_large_archives(monkeypatch: Any) -> None:
    """The 64-bit form, with the limit put down to where a test can reach it."""
    monkeypatch.setattr(archives, "_MAX32", 5000)
    monkeypatch.setattr(archives, "_MAX16", 4)
    file = io.BytesIO()
    writer = archives.ZipWriter(file.write, "r")
    parts = {f"data/{i}": bytes([i]) * 1000 * i for i in range(8)}
    for name, part in parts.items():
        writer.add(name, part)
    writer.finish()
    file.seek(0)
    reader = archives.ZipReader(file)
    assert {name: reader.read(name) for name in reader.names()} == parts


def test_skip_data(tmp_path: Path) -> None:
    path = tmp_path / "x.pt"
    with torch.serialization.skip_data():
        torch.save({"x": torch.ones(100)}, path)
    assert torch.load(path)["x"].tolist() == [0.0] * 100


def test_byte_order(tmp_path: Path) -> None:
    path, big = tmp_path / "x.pt", tmp_path / "big.pt"
    torch.save(torch.tensor([1, 256], dtype=torch.int16), path)
    with zipfile.ZipFile(path) as source, zipfile.ZipFile(big, "w") as target:
        for name in source.namelist():
            data = source.read(name)
            if name.endswith("byteorder"):
                data = b"big"
            if name.endswith("data/0"):
                data = bytes([0, 1, 1, 0])
            target.writestr(name, data)
    assert torch.load(big).tolist() == [1, 256]


def test_options() -> None:
    serialization = torch.serialization
    serialization.set_crc32_options(False)
    try:
        assert round_trip(torch.ones(2)).tolist() == [1, 1]
    finally:
        serialization.set_crc32_options(True)
    with pytest.raises(RuntimeError, match="explicit pickle_module is specified"):
        round_trip(1, pickle_module=pickle, weights_only=True)
    with pytest.warns(UserWarning, match="pickle_load_args only works"):
        round_trip(1, encoding="ascii")
    with pytest.raises(ValueError, match="expected mmap"):
        serialization.set_default_mmap_options(77)


def test_environment_overrides(monkeypatch: Any) -> None:
    monkeypatch.setenv("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", "1")
    with pytest.warns(UserWarning, match="forcing weights_only=False"):
        assert round_trip(Custom()).value == 3
    monkeypatch.setenv("TORCH_FORCE_WEIGHTS_ONLY_LOAD", "1")
    with pytest.raises(RuntimeError, match="but both were set"):
        round_trip(1)


def test_storages_and_plain_pickles() -> None:
    x = torch.arange(4.0)
    assert pickle.loads(pickle.dumps(x)).tolist() == [0, 1, 2, 3]
    storage = x.untyped_storage()
    assert pickle.loads(pickle.dumps(storage)).tolist() == storage.tolist()
    copied = copy.deepcopy(storage)
    copied[0] = 9
    assert storage[0] == 0
    part = storage[4:8]
    assert part.nbytes() == 4
    part.fill_(0)
    assert x.tolist() == [0, 0, 2, 3]
    typed = x._typed_storage()
    assert isinstance(typed, torch.FloatStorage)
    assert not isinstance(typed, torch.LongStorage)
    assert typed.tolist() == [0, 0, 2, 3]
    assert typed.double().dtype is torch.float64
    typed[1] = 7
    assert x[1].item() == 7
    assert len(torch.FloatStorage(3)) == 3
    assert torch.LongStorage([1, 2]).tolist() == [1, 2]


def test_storage_from_file(tmp_path: Path) -> None:
    path = tmp_path / "bytes"
    path.write_bytes(bytes(range(16)))
    private = torch.UntypedStorage.from_file(str(path), shared=False, nbytes=16)
    private[0] = 99
    assert path.read_bytes()[0] == 0
    shared = torch.UntypedStorage.from_file(str(path), shared=True, nbytes=16)
    shared[0] = 7
    assert path.read_bytes()[0] == 7
    with pytest.raises(RuntimeError, match="smaller than the required"):
        torch.UntypedStorage.from_file(str(path), shared=False, nbytes=17)
    with pytest.raises(RuntimeError, match="unable to open file"):
        torch.UntypedStorage.from_file(str(tmp_path / "none"), shared=False, nbytes=1)


def test_share_memory() -> None:
    x = torch.arange(4.0)
    view, alias = x[1:], x.detach()
    x.share_memory_()
    assert x.is_shared()
    assert view.is_shared()
    pid = os.fork()
    if pid == 0:
        view[0] = 42
        os._exit(0)
    os.waitpid(pid, 0)
    assert alias.tolist() == [0, 42, 2, 3]
