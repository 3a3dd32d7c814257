"""The configuration: one immutable record, read from the environment once, at import.

``config`` is the record. Nothing may change it: a part that must be adjustable while the program
runs (thread counts, for instance) takes its first value from here and then keeps its own state.
Every use of ``os.environ`` is in this file, and ``tests/layers`` enforces it.

Variables whose meaning is "at the time of the call" (``RANK``, ``MASTER_ADDR``: programs set them
themselves) are read through `live`.
"""

import os
from collections.abc import Mapping
from typing import NamedTuple

__all__ = ["Config", "child_environment", "config", "live", "parse_bool", "read_config"]

_FALSE = frozenset({"", "0", "false", "off", "no", "n", "f"})


class Config(NamedTuple):
    """What the environment asked for. Change nothing; derive a variant with ``_replace``."""

    #: Directory of compiled kernels and other caches; made by whoever writes first.
    cache_dir: str
    #: Whether compiled kernels are kept on disk (``FLAMBEAU_CACHE``).
    cache: bool
    #: Command line of the C compiler, e.g. ``("gcc",)``; empty means "look for gcc, clang, cc".
    cc: tuple[str, ...]
    #: Extra compiler flags (``FLAMBEAU_CFLAGS``).
    cflags: tuple[str, ...]
    #: Threads for one operator; 0 means "as many as the process may use".
    num_threads: int
    #: Where eager kernels may come from: ``auto`` (pack, then compile), ``pack``, ``numpy``.
    kernels: str
    #: Whether the C fast path and the frame hook may be used (``FLAMBEAU_NATIVE``).
    native: bool
    #: Whether ``compile`` does anything (``FLAMBEAU_COMPILE``; ``TORCH_COMPILE_DISABLE=1``).
    compile: bool
    #: Bytes that the host caching allocator may keep; -1 means its own default.
    host_cache_bytes: int
    #: Verify every artefact between the stages of the compiler.
    verify: bool
    #: ``FLAMBEAU_LOG`` (or ``TORCH_LOGS``): ``""``, ``"info"``, or ``"capture=debug,loops=info"``.
    log: str
    #: Root of downloaded hub files (``TORCH_HOME``, else under ``XDG_CACHE_HOME``).
    torch_home: str
    #: ``TORCH_FORCE_WEIGHTS_ONLY_LOAD`` and its opposite, as the checkpoint reader wants them.
    force_weights_only: bool
    force_no_weights_only: bool
    #: Whether kernels print the text that they compile (``FLAMBEAU_PRINT_KERNELS``).
    print_kernels: bool


def parse_bool(text: str) -> bool:
    """True unless `text` is empty or one of 0, false, off, no (any case)."""
    return text.strip().lower() not in _FALSE


def read_config(env: Mapping[str, str]) -> Config:
    """The configuration that the variables in `env` ask for.

    Raises ValueError, naming the variable, for a value that cannot be understood.
    """
    user_cache = env.get("XDG_CACHE_HOME") or os.path.join(_home(env), ".cache")
    kernels = env.get("FLAMBEAU_KERNELS", "auto").strip().lower()
    if kernels not in ("auto", "pack", "numpy"):
        raise ValueError(f"FLAMBEAU_KERNELS must be auto, pack or numpy, got {kernels!r}")
    log = env.get("FLAMBEAU_LOG", env.get("TORCH_LOGS", ""))
    return Config(
        cache_dir=env.get("FLAMBEAU_CACHE_DIR") or os.path.join(user_cache, "flambeau"),
        cache=_flag(env, "FLAMBEAU_CACHE", True),
        cc=tuple((env.get("FLAMBEAU_CC") or env.get("CC") or "").split()),
        cflags=tuple(env.get("FLAMBEAU_CFLAGS", "").split()),
        num_threads=_threads(env),
        kernels=kernels,
        native=_flag(env, "FLAMBEAU_NATIVE", True),
        compile=_flag(env, "FLAMBEAU_COMPILE", True)
        and not _flag(env, "TORCH_COMPILE_DISABLE", False),
        host_cache_bytes=_integer(env, "FLAMBEAU_HOST_CACHE_BYTES", -1),
        verify=_flag(env, "FLAMBEAU_VERIFY", False),
        log=log,
        torch_home=env.get("TORCH_HOME") or os.path.join(user_cache, "torch"),
        force_weights_only=_flag(env, "TORCH_FORCE_WEIGHTS_ONLY_LOAD", False),
        force_no_weights_only=_flag(env, "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", False),
        print_kernels=_flag(env, "FLAMBEAU_PRINT_KERNELS", False),
    )


def live(name: str, default: str | None = None) -> str | None:
    """The variable `name` now, for those that a program may set before it calls us."""
    return os.environ.get(name, default)


def child_environment(**changes: str | None) -> dict[str, str]:
    """A copy of the environment for a child process, with `changes` (None removes)."""
    env = dict(os.environ)
    for name, value in changes.items():
        if value is None:
            env.pop(name, None)
        else:
            env[name] = value
    return env


def _home(env: Mapping[str, str]) -> str:
    return env.get("HOME") or os.path.expanduser("~")


def _flag(env: Mapping[str, str], name: str, default: bool) -> bool:
    text = env.get(name)
    return default if text is None else parse_bool(text)


def _integer(env: Mapping[str, str], name: str, default: int) -> int:
    text = env.get(name, "").strip()
    if not text:
        return default
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"{name} must be an integer, got {text!r}") from None


def _threads(env: Mapping[str, str]) -> int:
    """FLAMBEAU_NUM_THREADS, else the first level of OMP_NUM_THREADS ("4,2" means 4), else 0."""
    count = _integer(env, "FLAMBEAU_NUM_THREADS", 0)
    if count == 0:
        first = env.get("OMP_NUM_THREADS", "").split(",")[0].strip()
        # OpenMP ignores a malformed value, and so do we: the variable is not ours to judge.
        count = int(first) if first.isdigit() else 0
    return max(count, 0)


config: Config = read_config(os.environ)
