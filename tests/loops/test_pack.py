"""The pack, the disk cache and what happens without a compiler."""

import ctypes
import subprocess
import sys
import time

import numpy as np
import pytest

from flambeau._src.codegen.target import V3
from flambeau._src.loops import pack as pack_module
from flambeau._src.loops.compile import KernelLoader, host_target
from flambeau._src.loops.pack import build_pack, open_pack
from flambeau._src.loops.request import KernelRequest
from flambeau._src.runtime.toolchain import CompileError, Settings, Toolchain, ToolchainMissing

from .calling import _ABI
from .test_rows import softmax

F = ("float32",)
REQUESTS = [
    KernelRequest("add.Tensor", lambda k, x, y, a: x + a * y, "map", F * 2, F, 1),
    KernelRequest("exp", lambda k, x: k.exp(x), "map", F, F),
    KernelRequest("softmax", softmax, "row", F, F),
    KernelRequest("sum", lambda k, x: k.sum(x), "row", ("bool",), ("int64",)),
]


def settings(tmp_path, **kw):
    return Settings(cache_dir=str(tmp_path), **{"command": (), "flags": (), "cache": True, **kw})


def call_exp(address):
    x = np.linspace(-3, 3, 37, dtype=np.float32)
    y = np.empty_like(x)
    p = (ctypes.c_void_p * 2)(y.ctypes.data, x.ctypes.data)
    _ABI(address)(p, (ctypes.c_longlong * 4)(4, 4, 0, 0), x.size, 1, None)
    np.testing.assert_allclose(y, np.exp(x), rtol=3e-7)


def test_symbol():
    assert REQUESTS[0].symbol == "add_Tensor__float32_float32__float32__p1"
    assert REQUESTS[1].symbol == "exp__float32__float32"
    assert REQUESTS[2].symbol == "softmax__float32__float32__row"


def test_pack(tmp_path, monkeypatch):
    tools = Toolchain(settings(tmp_path))
    sizes = build_pack(REQUESTS, tmp_path, [host_target()], toolchain=tools)
    assert 0 < sizes[host_target().name] < 300_000
    library = open_pack(tools, tmp_path)
    for r in REQUESTS:
        assert library.address(r.symbol)
    call_exp(library.address("exp__float32__float32"))
    with pytest.raises(AttributeError):
        library.address("log__float32__float32")
    loader = KernelLoader(tools, "pack")
    monkeypatch.setattr(pack_module, "_HERE", tmp_path)
    loader._pack, loader._pack_tried = library, True
    call_exp(loader.address(REQUESTS[1]))
    missing = KernelRequest("log", lambda k, x: k.log(x), "map", F, F)
    with pytest.raises(ToolchainMissing, match="log__float32__float32"):
        loader.address(missing)


def test_pack_of_changed_sources_is_not_used(tmp_path):
    tools = Toolchain(settings(tmp_path))
    build_pack(REQUESTS[:1], tmp_path, [host_target()], toolchain=tools)
    assert open_pack(tools, tmp_path) is not None
    manifest = tmp_path / "pack.json"
    text = manifest.read_text()
    manifest.write_text(text.replace('"loops/lower.py": [\n   ', '"loops/lower.py": [\n   1'))
    assert manifest.read_text() != text
    assert open_pack(Toolchain(settings(tmp_path)), tmp_path) is None


def test_narrower_pack_runs(tmp_path):
    if host_target().vector_bytes < V3.vector_bytes:
        pytest.skip("not an AVX2 machine")
    tools = Toolchain(settings(tmp_path))
    build_pack(REQUESTS, tmp_path, [V3], toolchain=tools)
    call_exp(open_pack(tools, tmp_path).address("exp__float32__float32"))


def test_disk_cache(tmp_path):
    first = KernelLoader(Toolchain(settings(tmp_path)))
    first._pack_tried = True
    call_exp(first.address(REQUESTS[1]))
    files = sorted((tmp_path / "kernels").iterdir())
    assert [f.suffix for f in files] == [".so", ".so"]  # the kernel and what all kernels call
    stamps = [f.stat().st_mtime_ns for f in files]
    second = KernelLoader(Toolchain(settings(tmp_path)))
    second._pack_tried = True
    start = time.perf_counter()
    call_exp(second.address(REQUESTS[1]))
    assert time.perf_counter() - start < 0.05
    assert [f.stat().st_mtime_ns for f in sorted((tmp_path / "kernels").iterdir())] == stamps


def test_without_cache_nothing_is_left(tmp_path):
    loader = KernelLoader(Toolchain(settings(tmp_path, cache=False)))
    loader._pack_tried = True
    call_exp(loader.address(REQUESTS[1]))
    assert list(tmp_path.iterdir()) == []


def test_no_compiler(tmp_path):
    tools = Toolchain(settings(tmp_path, command=("no-such-compiler",)))
    assert not tools.available()
    loader = KernelLoader(tools)
    loader._pack_tried = True
    with pytest.raises(ToolchainMissing, match=r"no-such-compiler.*Install gcc or clang"):
        loader.address(REQUESTS[1])


def test_numpy_only():
    with pytest.raises(ToolchainMissing, match="NumPy"):
        KernelLoader(sources="numpy").address(REQUESTS[1])


def test_refused_text_is_shown(tmp_path):
    with pytest.raises(CompileError, match=r"(?s)failed on .*error"):
        Toolchain(settings(tmp_path)).build("int f( {")
    assert not list((tmp_path / "kernels").glob("*.so"))


def test_concurrent_processes(tmp_path):
    program = (
        "from flambeau._src.runtime.toolchain import *\n"
        f"t = Toolchain(Settings(cache_dir={str(tmp_path)!r}))\n"
        "print(t.load('int f(void) { return 3; }', ['f'])['f'] > 0)"
    )
    running = [
        subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) for _ in range(3)
    ]
    assert [p.communicate()[0].strip() for p in running] == [b"True"] * 3
    assert len(list((tmp_path / "kernels").iterdir())) == 1
