"""NumPy's OpenBLAS, called through its C interface: no copy, no NumPy call on the way."""

from __future__ import annotations

from typing import Any

from flambeau._src import _native

_library: list[Any] = []


def load() -> bool:
    """Give C the addresses of sgemm and dgemm. False when NumPy's BLAS is another library."""
    if _library:
        return _library[0] is not None
    import ctypes  # lazy: 2 ms, for the first matrix product

    import numpy  # lazy: NumPy is heavy

    for path in _candidates(numpy):
        try:
            lib = ctypes.CDLL(path)
        except OSError:
            continue
        for prefix, suffix in (("scipy_cblas_", "64_"), ("cblas_", "64_")):
            try:
                s = getattr(lib, f"{prefix}sgemm{suffix}")
                d = getattr(lib, f"{prefix}dgemm{suffix}")
            except AttributeError:
                continue
            _native.set_blas(
                ctypes.cast(s, ctypes.c_void_p).value, ctypes.cast(d, ctypes.c_void_p).value
            )
            _library.append(lib)
            set_threads(_native.get_num_threads())
            return True
    _library.append(None)
    return False


def _candidates(numpy: Any) -> list[str]:
    from pathlib import Path  # lazy: with NumPy

    root = Path(numpy.__file__).parent
    found = [*root.parent.glob("numpy.libs/*openblas*"), *root.glob(".libs/*openblas*")]
    return [str(p) for p in found]


def threads() -> int | None:
    """How many threads the matrix products use; None where BLAS is not loaded or does not say."""
    lib = _library[0] if _library else None
    for name in ("scipy_openblas_get_num_threads64_", "openblas_get_num_threads64_"):
        if lib is not None and hasattr(lib, name):
            return int(getattr(lib, name)())
    return None


def set_threads(n: int) -> None:
    """Threads of the matrix products."""
    lib = _library[0] if _library else None
    for name in ("scipy_openblas_set_num_threads64_", "openblas_set_num_threads64_"):
        if lib is not None and hasattr(lib, name):
            getattr(lib, name)(int(n))
            return
