"""From requests to C text for a machine. Compiles and loads nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from flambeau._src.codegen.target import GENERIC, V3, V4, Target
from flambeau._src.runtime.toolchain import cpu_features, host_isa

from .request import KernelRequest

if TYPE_CHECKING:
    from flambeau._src.ir.kernel import Kernel

__all__ = ["host_target", "kernel_of", "kernel_text"]


def host_target() -> Target:
    """The target of code for this processor."""
    return {"avx512": V4, "avx2": V3}.get(host_isa(cpu_features()), GENERIC)


def kernel_of(request: KernelRequest) -> Kernel:
    """The request's kernel IR."""
    from .lower import lower  # lazy: a kernel from the pack needs no lowering

    assert request.expr is not None  # else `kernel_text` prints what the kind names
    return lower(
        request.expr, request.kind.split("_")[0], request.in_dtypes, request.out_dtypes,
        request.n_params, request.param_kinds, request.compute_dtype,
    )  # fmt: skip


def kernel_text(requests: Sequence[KernelRequest], target: Target) -> str:
    """The C of several requests as one translation unit (needs the support library)."""
    from flambeau._src.codegen.cpp import print_kernels  # lazy: nor a code generator

    from .schedule import schedule  # lazy: nor a schedule

    kernels = [(r, kernel_of(r)) for r in requests if r.expr is not None]
    whole = [(r.symbol, r.kind, r.out_dtypes[0]) for r in requests if r.expr is None]
    return print_kernels([(r.symbol, k, schedule(k, r.kind)) for r, k in kernels], target, whole)
