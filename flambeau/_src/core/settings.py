"""Settings of the process that programs change and ask for."""

from __future__ import annotations

from typing import Any

from flambeau._src import _native
from flambeau._src.core import state


class _Settings:
    """What is set; one for the process."""

    matmul_precision = "highest"
    warn_always = False
    interop_threads = 0
    flush_denormal = False


def get_float32_matmul_precision() -> str:
    """How exact matrix products of float32 are: 'highest', 'high' or 'medium'."""
    return _Settings.matmul_precision


def set_float32_matmul_precision(precision: str) -> None:
    """Allow faster, less exact matrix products of float32 where a device has them.

    Args:
        precision: 'highest' (float32 throughout), 'high' (three bfloat16 or one TF32 product), or
            'medium' (bfloat16). The CPU computes in float32 whatever is set.
    """
    if precision in ("highest", "high", "medium"):
        _Settings.matmul_precision = precision
        return
    import warnings  # lazy: rarely needed

    warnings.warn(
        f"{precision} is not one of 'highest', 'high', or 'medium'; the current"
        "setFloat32MatmulPrecision call has no effect.",
        UserWarning,
        stacklevel=2,
    )


def is_warn_always_enabled() -> bool:
    """Whether warnings that come once a process come every time."""
    return _Settings.warn_always


def set_warn_always(b: bool, /) -> None:
    """Whether warnings that come once a process come every time."""
    _Settings.warn_always = bool(b)


_MODES = {"default": 0, "warn": 1, "error": 2}


def set_deterministic_debug_mode(debug_mode: Any) -> None:
    """'default' (0), 'warn' (1) or 'error' (2): what operators that may differ between runs do."""
    if isinstance(debug_mode, str):
        if debug_mode not in _MODES:
            raise RuntimeError(
                "invalid value of debug_mode, expected one of `default`, `warn`, `error`, but got "
                f"{debug_mode}"
            )
        debug_mode = _MODES[debug_mode]
    if not isinstance(debug_mode, int):
        raise TypeError(f"debug_mode must be str or int, but got {type(debug_mode)}")
    if debug_mode not in (0, 1, 2):
        raise RuntimeError(
            f"invalid value of debug_mode, expected 0, 1, or 2, but got {debug_mode}"
        )
    state.process.deterministic = (debug_mode > 0, debug_mode == 1)


def get_num_interop_threads() -> int:
    """Threads for operators side by side: what was set, else as many as for one operator."""
    return _Settings.interop_threads or _native.get_num_threads()


def set_num_interop_threads(n: int, /) -> None:
    """Kept and reported: operators run one after the other."""
    if not isinstance(n, int) or isinstance(n, bool):
        raise TypeError(f"set_num_interop_threads expects an int, but got {type(n).__name__}")
    if n <= 0:
        raise RuntimeError("set_num_interop_threads expects a positive integer")
    _Settings.interop_threads = n


def set_flush_denormal(mode: bool, /) -> bool:
    """Whether the smallest floats count as zero.

    Returns whether the processor can: it is not changed.
    """
    if not isinstance(mode, bool):
        raise TypeError(f"flush_denormal expects a bool, but got {type(mode).__name__}")
    _Settings.flush_denormal = mode
    return not mode


def compiled_with_cxx11_abi() -> bool:
    """True; there is no C++ here."""
    return True


FUNCTIONS: dict[str, Any] = {
    f.__name__: f
    for f in (
        get_float32_matmul_precision, set_float32_matmul_precision, is_warn_always_enabled,
        set_warn_always, set_deterministic_debug_mode, get_num_interop_threads,
        set_num_interop_threads, set_flush_denormal, compiled_with_cxx11_abi,
    )
}  # fmt: skip
