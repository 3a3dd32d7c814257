"""Autocast: matrix products and convolutions in a 16-bit type, losses and decompositions in f32.

The layer casts the arguments of the operators that the tables name, and goes on beneath. The cast
of a leaf weight is kept until the outermost region ends.
"""

from __future__ import annotations

import weakref
from typing import Any

from flambeau._src import _native
from flambeau._src.core import dtype as dt
from flambeau._src.core import state
from flambeau._src.core.tensor import Tensor
from flambeau._src.ops.call import LAYERS, aten, below
from flambeau._src.ops.op import Op

__all__ = ["Region", "region"]

# The operators that torch's CPU autocast names; all overloads but out= and in-place forms.
CPU_LOWER = frozenset(
    "_addmm_activation _convolution _native_multi_head_attention addbmm addmm baddbmm bmm conv1d "
    "conv2d conv3d conv_tbc conv_transpose1d conv_transpose2d conv_transpose3d linalg_vecdot "
    "linear matmul mkldnn_rnn_layer mm prelu scaled_dot_product_attention".split()
)
CPU_PROMOTE = frozenset("cat stack index_copy".split())
CPU_FP32 = frozenset(
    "_grid_sampler_2d_cpu_fallback _lu_with_info adaptive_avg_pool3d adaptive_max_pool3d "
    "avg_pool3d binary_cross_entropy binary_cross_entropy_with_logits cdist cholesky "
    "cholesky_inverse cholesky_solve cosine_embedding_loss cross_entropy_loss ctc_loss "
    "fake_quantize_per_tensor_affine fft_fft fft_fft2 fft_fftn fft_hfft fft_ifft fft_ifft2 "
    "fft_ifftn fft_ihfft fft_irfft fft_irfft2 fft_irfftn fft_rfft fft_rfft2 fft_rfftn "
    "fractional_max_pool2d fractional_max_pool3d geqrf grid_sampler grid_sampler_2d "
    "grid_sampler_3d hinge_embedding_loss huber_loss inverse kl_div l1_loss linalg_cholesky "
    "linalg_cholesky_ex linalg_cond linalg_eig linalg_eigh linalg_eigvals linalg_eigvalsh "
    "linalg_householder_product linalg_inv linalg_inv_ex linalg_lstsq linalg_matrix_rank linalg_qr "
    "linalg_solve linalg_svd linalg_svdvals linalg_tensorinv linalg_tensorsolve lu_solve "
    "margin_ranking_loss max_pool3d max_unpool2d max_unpool3d mse_loss multi_margin_loss "
    "multilabel_margin_loss multilabel_margin_loss_forward nanquantile nll_loss nll_loss2d orgqr "
    "ormqr pinverse poisson_nll_loss polar prod qr quantile reflection_pad1d reflection_pad2d "
    "replication_pad1d replication_pad2d replication_pad3d smooth_l1_loss soft_margin_loss stft "
    "svd trace triangular_solve triplet_margin_loss view_as_complex".split()
)
LOWER_DTYPES = {"cpu": dt.bfloat16, "cuda": dt.float16}


_NO_CASTS: dict[str, dt.dtype] = {}


class Region:
    """The thread's settings: per device type whether casts are made and to what; the kept casts."""

    __slots__ = ("enabled", "dtypes", "cache_enabled", "nesting", "cache")

    def __init__(self) -> None:
        self.enabled: dict[str, bool] = {}
        self.dtypes: dict[str, dt.dtype] = {}
        self.cache_enabled = True
        self.nesting = 0
        self.cache: dict[tuple[int, int], tuple[Any, Tensor]] = {}

    def dtype_of(self, device_type: str) -> dt.dtype:
        """The lower precision of a device type."""
        return self.dtypes.get(device_type) or initial_dtype(device_type)


def initial_dtype(device_type: str) -> dt.dtype:
    """The lower precision of a device type where nobody set another."""
    return LOWER_DTYPES.get(device_type, dt.bfloat16)


def region() -> Region:
    """This thread's settings."""
    found = state.thread.autocast.get("region")
    if found is None:
        found = state.thread.autocast["region"] = Region()
    return found


def set_enabled(device_type: str, on: bool) -> None:
    """Casts on or off for tensors of a device type."""
    r = region()
    r.enabled[device_type] = bool(on)
    state.activate(state.AUTOCAST, any(r.enabled.values()))


def _policy(op: Op, device_type: str) -> str | None:
    if op.variant != "functional" or op.namespace != "aten":
        return None
    if device_type == "cpu":
        name = op.name
        return (
            "lower"
            if name in CPU_LOWER
            else "fp32"
            if name in CPU_FP32
            else "promote"
            if name in CPU_PROMOTE
            else None
        )
    return op.decl.autocast


def _eligible(t: Tensor, device_type: str) -> bool:
    return t.dtype.is_floating_point and t.dtype is not dt.float64 and t.device.type == device_type


def _cast(t: Tensor, to: dt.dtype, device_type: str, r: Region) -> Tensor:
    if t.dtype is to or not _eligible(t, device_type):
        return t
    keep = (
        r.cache_enabled and to is r.dtype_of(device_type) and t.dtype is dt.float32
        and t.requires_grad and t.is_leaf and t._base is None
    )  # fmt: skip
    if keep:
        found = r.cache.get((id(t), to.code))
        if found is not None and found[0]() is t:
            return found[1]
    made = aten._to_copy(t, dtype=to)
    if keep:
        r.cache[(id(t), to.code)] = (weakref.ref(t), made)
    return made


def _cast_all(args: tuple[Any, ...], to: dt.dtype, device_type: str, r: Region) -> tuple[Any, ...]:
    """The arguments cast; the last first, which is the order in which torch casts them."""
    out = list(args)
    for i in range(len(args) - 1, -1, -1):
        v = args[i]
        if isinstance(v, Tensor):
            out[i] = _cast(v, to, device_type, r)
        elif isinstance(v, (list, tuple)) and any(isinstance(x, Tensor) for x in v):
            out[i] = [_cast(x, to, device_type, r) if isinstance(x, Tensor) else x for x in v]
    return tuple(out)


def _widest(args: tuple[Any, ...], device_type: str, low: dt.dtype) -> dt.dtype:
    found = low
    for v in args:
        for t in v if isinstance(v, (list, tuple)) else (v,):
            if isinstance(t, Tensor) and t.dtype.is_floating_point and t.device.type == device_type:
                if t.dtype is dt.float64:
                    continue
                if t.dtype is dt.float32 or found is dt.float32:
                    found = dt.float32
                elif t.dtype is not low:
                    raise RuntimeError("Unexpected floating ScalarType in at::autocast::prioritize")
    return found


def _device_type(args: tuple[Any, ...]) -> str | None:
    for v in args:
        for t in v if isinstance(v, (list, tuple)) else (v,):
            if isinstance(t, Tensor):
                return str(t.device.type)
    return None


def autocast_layer(op: Op, args: tuple[Any, ...]) -> Any:
    """Cast what the tables say, then go on beneath."""
    r = region()
    device_type = _device_type(args)
    if device_type is None or not r.enabled.get(device_type):
        return below(state.AUTOCAST, op, args)
    cast = op.__dict__.get("autocast_to", _NO_CASTS).get(device_type)
    if cast is not None:  # a user's operator
        with state.Suspended(state.AUTOCAST):
            args = _cast_all(args, cast, device_type, r)
        return below(state.AUTOCAST, op, args)
    policy = _policy(op, device_type)
    if policy is None:
        return below(state.AUTOCAST, op, args)
    low = r.dtype_of(device_type)
    to = (
        low
        if policy == "lower"
        else dt.float32
        if policy == "fp32"
        else _widest(args, device_type, low)
    )
    with state.Suspended(state.AUTOCAST):
        args = _cast_all(args, to, device_type, r)
    return below(state.AUTOCAST, op, args)


LAYERS[state.AUTOCAST] = autocast_layer


# ---- torch's functions for the settings ----


def is_autocast_enabled(device_type: str = "cuda") -> bool:
    """Whether casts are made for tensors of a device type (default: cuda)."""
    return region().enabled.get(device_type, False)


def set_autocast_enabled(*args: Any) -> None:
    """`(device_type, on)`; with one argument, cuda is meant."""
    device_type, on = args if len(args) == 2 else ("cuda", args[0])
    set_enabled(device_type, on)


def get_autocast_dtype(device_type: str) -> dt.dtype:
    """The lower precision of a device type."""
    return region().dtype_of(device_type)


def set_autocast_dtype(device_type: str, dtype: dt.dtype) -> None:
    """Choose the lower precision of a device type."""
    region().dtypes[device_type] = dtype


def is_autocast_cache_enabled() -> bool:
    """Whether casts of leaf weights are kept."""
    return region().cache_enabled


def set_autocast_cache_enabled(on: bool) -> None:
    """Keep casts of leaf weights, or not."""
    region().cache_enabled = bool(on)


def clear_autocast_cache() -> None:
    """Drop the kept casts."""
    region().cache.clear()


def autocast_increment_nesting() -> int:
    """One region deeper; returns the depth."""
    r = region()
    r.nesting += 1
    return r.nesting


def autocast_decrement_nesting() -> int:
    """One region less deep; returns the depth."""
    r = region()
    r.nesting -= 1
    return r.nesting


def is_autocast_cpu_enabled() -> bool:
    """Whether casts are made for CPU tensors."""
    return is_autocast_enabled("cpu")


def get_autocast_cpu_dtype() -> dt.dtype:
    """The lower precision of CPU tensors."""
    return get_autocast_dtype("cpu")


def get_autocast_gpu_dtype() -> dt.dtype:
    """The lower precision of CUDA tensors."""
    return get_autocast_dtype("cuda")


def _is_available(device_type: str) -> bool:
    return _native.device(device_type).type in (
        "cpu",
        "cuda",
        "xpu",
        "mps",
        "hpu",
        "mtia",
        "xla",
        "ipu",
        "privateuseone",
        "maia",
    )
