"""The CUDA device: not in this build. Questions are answered; work is refused with the reason."""

from __future__ import annotations

import contextlib
import importlib
from collections import OrderedDict
from typing import Any, NoReturn

import flambeau as torch
from flambeau._src.ops.legacy import types_for as _types_for
from flambeau._src.util.errors import (
    AcceleratorError,
    CudaError,
    DeferredCudaCallError,
    OutOfMemoryError,
)

#: A generator for each device: there are none.
default_generators: tuple[Any, ...] = ()
has_half = True
has_magma = False
globals().update(_types_for("cuda"))


def __getattr__(name: str) -> Any:
    if name == "amp":
        return importlib.import_module("flambeau.cuda.amp")
    raise AttributeError(f"module '{__name__}' has no attribute '{name}'")


def is_available() -> bool:
    """False."""
    return False


def device_count() -> int:
    """0."""
    return 0


def is_initialized() -> bool:
    """False."""
    return False


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """False."""
    return False


def is_tf32_supported() -> bool:
    """False."""
    return False


def _is_in_bad_fork() -> bool:
    return False


def _refuse(*args: Any, **kwargs: Any) -> NoReturn:
    raise AssertionError("Torch not compiled with CUDA enabled")


def _nothing(*args: Any, **kwargs: Any) -> None:
    """Harmless without a device: seeds, caches, statistics."""
    return None


manual_seed = manual_seed_all = seed = seed_all = empty_cache = _nothing
reset_peak_memory_stats = reset_max_memory_allocated = reset_max_memory_cached = _nothing
reset_accumulated_memory_stats = _nothing
init = _lazy_init = current_device = set_device = synchronize = current_stream = default_stream = (
    _refuse
)
get_device_name = get_device_properties = get_device_capability = mem_get_info = _refuse
get_rng_state = set_rng_state = initial_seed = ipc_collect = can_device_access_peer = _refuse
get_sync_debug_mode = set_sync_debug_mode = current_blas_handle = set_stream = _refuse


def memory_allocated(device: Any = None) -> int:
    """0."""
    return 0


max_memory_allocated = memory_reserved = max_memory_reserved = memory_allocated
memory_cached = max_memory_cached = memory_allocated


def memory_stats(device: Any = None) -> dict[str, Any]:
    """{}: nothing was allocated."""
    return OrderedDict()


def get_rng_state_all() -> list[Any]:
    """[]: there is no device."""
    return []


def set_rng_state_all(states: Any) -> None:
    """Nothing to set; AssertionError where there are states."""
    if list(states):
        _refuse()


def get_arch_list() -> list[str]:
    """[]: kernels were built for no device."""
    return []


def get_gencode_flags() -> str:
    """'': kernels were built for no device."""
    return ""


class device(contextlib.AbstractContextManager[None]):
    """`with device(d):` d is the current device. Only "none" (None, -1) can be entered here."""

    def __init__(self, device: Any) -> None:
        self.idx = (
            torch._utils._get_device_index(device, optional=True) if device is not None else -1
        )

    def __enter__(self) -> None:
        """Enter; RuntimeError where a device is meant."""
        if self.idx >= 0:
            raise RuntimeError("PyTorch was compiled without CUDA support")

    def __exit__(self, *exc: object) -> None:
        """Nothing."""


class device_of(device):
    """`with device_of(t):` t's device is the current one; nothing for tensors of the CPU."""

    def __init__(self, obj: Any) -> None:
        super().__init__(obj.get_device() if obj.is_cuda else -1)


class Stream:
    """A queue of work on a device: none can be made here."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise RuntimeError("torch.cuda.Stream requires CUDA support")


class ExternalStream(Stream):
    """A queue that another library made: none can be wrapped here."""


class Event:
    """A moment of a stream: none can be made here."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise RuntimeError("Tried to instantiate dummy base class Event")


class CUDAGraph:
    """Captured launches: none can be made here."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise RuntimeError("Tried to instantiate dummy base class CUDAGraph")


class graph(contextlib.AbstractContextManager[None]):
    """`with graph(g):` launches are captured: a CUDAGraph cannot be made
    here, so none can be given."""

    def __init__(self, cuda_graph: CUDAGraph, **_: Any) -> None:
        _refuse()

    def __exit__(self, *exc: object) -> None:
        """Nothing."""


class StreamContext(contextlib.AbstractContextManager[None]):
    """`with StreamContext(s):` s is the current stream; nothing for None."""

    def __init__(self, stream: Any) -> None:
        self.stream = stream

    def __exit__(self, *exc: object) -> None:
        """Nothing."""


def stream(stream: Any) -> StreamContext:
    """A context in which the stream is in use."""
    return StreamContext(stream)


def is_current_stream_capturing() -> bool:
    """False: nothing is captured."""
    return False
