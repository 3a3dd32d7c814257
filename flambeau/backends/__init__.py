"""What the numeric back ends can do. flambeau on the CPU has BLAS through
NumPy and kernels of its own."""

from __future__ import annotations

from contextlib import contextmanager
from typing import Any


class _Backend:
    """Switches of one back end: kept and reported."""

    def __init__(self, name: str, available: bool, **flags: Any) -> None:
        self.__name__ = f"flambeau.backends.{name}"
        self._available = available
        self.__dict__.update(flags)

    def is_available(self) -> bool:
        return self._available

    def is_built(self) -> bool:
        return self._available

    def version(self) -> int | None:
        return None

    def set_flags(self, **flags: Any) -> tuple[Any, ...]:
        before = tuple(self.__dict__.get(k) for k in flags)
        self.__dict__.update({k.lstrip("_"): v for k, v in flags.items() if v is not None})
        return before

    @contextmanager
    def flags(self, **flags: Any) -> Any:
        before = {k: self.__dict__.get(k) for k in flags}
        self.__dict__.update(flags)
        try:
            yield
        finally:
            self.__dict__.update(before)


class _CpuBackend(_Backend):
    def get_cpu_capability(self) -> str:
        return "AVX512"


cudnn = _Backend(
    "cudnn",
    False,
    enabled=True,
    deterministic=False,
    benchmark=False,
    allow_tf32=True,
    benchmark_limit=10,
)
cuda = _Backend("cuda", False, matmul=_Backend("cuda.matmul", False, allow_tf32=False,
                allow_fp16_reduced_precision_reduction=True,
                allow_bf16_reduced_precision_reduction=True))  # fmt: skip
mps = _Backend("mps", False)
mkl = _Backend("mkl", False)
mkldnn = _Backend("mkldnn", False, enabled=True, deterministic=False, allow_tf32=True)
openmp = _Backend("openmp", False)
opt_einsum = _Backend("opt_einsum", False, enabled=False, strategy=None)
cpu = _CpuBackend("cpu", True)
quantized = _Backend("quantized", False, engine="none", supported_engines=["none"])
xnnpack = _Backend("xnnpack", False, enabled=False)
nnpack = _Backend("nnpack", False)
cuda.flash_sdp_enabled = lambda: True  # type: ignore[attr-defined]
cuda.math_sdp_enabled = lambda: True  # type: ignore[attr-defined]
cuda.mem_efficient_sdp_enabled = lambda: True  # type: ignore[attr-defined]
