"""Batching rules that do not follow from an operator's kind."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flambeau._src.core import layout
from flambeau._src.core.tensor import Tensor
from flambeau._src.interp.levels import info
from flambeau._src.interp.vmap import (
    INPLACE,
    KINDS,
    TABLE,
    Batch,
    BatchRule,
    fallback,
    loop,
    pointwise,
    refuse_inplace,
)
from flambeau._src.ops.call import aten, dispatch
from flambeau._src.ops.kinds import wrap_dim
from flambeau._src.ops.op import Op

Args = tuple[Any, ...]


def rule(*names: str) -> Callable[[BatchRule], BatchRule]:
    """Enter a rule for the operators of these names."""

    def enter(function: BatchRule) -> BatchRule:
        for name in names:
            TABLE[name] = function
        return function

    return enter


def shifted(d: Any, n: int) -> Any:
    """Logical dimension or dimensions, as physical ones."""
    if isinstance(d, (tuple, list)):
        return tuple([wrap_dim(x, n) + 1 for x in d])
    return wrap_dim(d, n) + 1


# ---- dimensions that are named ----

# Operator → the arguments that are dimensions. All tensors are repeated to the whole batch; the
# number of logical dimensions is that of the first tensor.
SHIFT: dict[str, tuple[str, ...]] = {
    "cumsum": ("dim",), "cumprod": ("dim",), "logcumsumexp": ("dim",), "cummax": ("dim",),
    "cummin": ("dim",), "sort": ("dim",), "topk": ("dim",), "kthvalue": ("dim",), "mode": ("dim",),
    "median": ("dim",), "nanmedian": ("dim",), "_softmax": ("dim",), "_log_softmax": ("dim",),
    "_softmax_backward_data": ("dim",), "_log_softmax_backward_data": ("dim",), "gather": ("dim",),
    "scatter": ("dim",), "scatter_add": ("dim",), "scatter_reduce": ("dim",), "flip": ("dims",),
    "rot90": ("dims",), "unsafe_split": ("dim",), "unsafe_split_with_sizes": ("dim",),
    "split": ("dim",), "split_with_sizes": ("dim",), "unbind": ("dim",), "select_scatter": ("dim",),
    "slice_scatter": ("dim",), "diagonal_scatter": ("dim1", "dim2"), "count_nonzero": ("dim",),
    "select": ("dim",), "slice": ("dim",), "transpose": ("dim0", "dim1"),
    "diagonal": ("dim1", "dim2"),
    "unfold": ("dimension",), "narrow_copy": ("dim",), "transpose_copy": ("dim0", "dim1"),
    "select_copy": ("dim",), "slice_copy": ("dim",), "diagonal_copy": ("dim1", "dim2"),
    "unfold_copy": ("dimension",), "linalg_cross": ("dim",), "glu": ("dim",), "renorm": (),
    "trace": (), "tril": (), "triu": (), "detach": (), "alias": (), "lift_fresh": (),
    "view_as_real": (),
    "view_as_complex": (), "view_as_real_copy": (), "view_as_complex_copy": (), "alias_copy": (),
    "_conj": (), "_conj_physical": (), "_neg_view": (), "pixel_shuffle": (), "pixel_unshuffle": (),
    "constant_pad_nd": (), "matrix_exp": (), "linalg_inv_ex": (), "linalg_det": (),
    "_linalg_det": (),
    "linalg_cholesky_ex": (), "linalg_qr": (), "linalg_eigh": (), "_linalg_eigh": (),
    "_linalg_svd": (),
    "linalg_eig": (), "linalg_lu_factor_ex": (), "_linalg_slogdet": (), "linalg_slogdet": (),
    "linalg_svd": (), "_linalg_solve_ex": (), "linalg_solve_triangular": (), "cholesky_solve": (),
    "cholesky_inverse": (), "linalg_householder_product": (), "linalg_matrix_exp": (),
    "linalg_pinv": (), "linalg_lstsq": (), "linalg_lu": (),
    "linalg_lu_solve": (), "_fft_c2c": ("dim",), "_fft_r2c": ("dim",),
    "_fft_c2r": ("dim",), "lift_fresh_copy": (),
}  # fmt: skip
_LEAST = {"trace": 2, "tril": 2, "triu": 2}
del SHIFT["renorm"], SHIFT["trace"]


def shift(b: Batch, op: Op, args: Args) -> Any:
    """Named dimensions moved by one, all tensors over the whole batch; where no dimension is named
    all of them are one."""
    if op.base.name in _OF_ALL and all(a.name != "dim" or v is None for a, v in _named(op, args)):
        return _of_all(b, op, args)
    first = next(v for v in args if isinstance(v, Tensor))
    n = first.dim()
    dims = SHIFT[op.base.name]
    new = []
    for a, v in zip(op.schema.args, args, strict=True):
        if isinstance(v, Tensor):
            v = b.full(v)
            if v is not args[0] and op.base.name.endswith("_scatter"):
                v = aten.clone(v, memory_format=layout.contiguous_format)  # it is written into
            if n == 0 and dims:
                v = aten.unsqueeze(v, 1)
        elif a.name in dims and v is not None:
            v = shifted(v, n)
        new.append(v)
    result = dispatch(op, tuple(new))
    if n == 0 and dims and op.base.name not in ("select", "unbind", "split"):
        result = _squeezed(result)
    return args[0] if op.variant == "inplace" else b.wrap(result)


def _named(op: Op, args: Args) -> Any:
    return zip(op.schema.args, args, strict=True)


#: What takes one dimension, or all elements.
_OF_ALL = frozenset(("median", "nanmedian", "count_nonzero"))


def _of_all(b: Batch, op: Op, args: Args) -> Any:
    found = getattr(aten, op.base.name)(aten.reshape(b.front(args[0]), (b.size, -1)), 1)
    return b.wrap(found[0] if isinstance(found, tuple) else found)


def _squeezed(result: Any) -> Any:
    if isinstance(result, tuple):
        return tuple([_squeezed(r) for r in result])
    return aten.squeeze(result, 1) if isinstance(result, Tensor) else result


for _name in SHIFT:
    TABLE[_name] = shift


# ---- views ----


@rule("view", "_unsafe_view", "view_copy")
def view(b: Batch, op: Op, args: Args) -> Any:
    v = b.front(args[0])
    if op.base.overload == "dtype":
        return b.wrap(dispatch(op, (v, args[1])))
    size = [*args[1]]
    if -1 in size:  # the batch may be empty
        known = 1
        for s in size:
            known *= s if s != -1 else 1
        if known:
            size[size.index(-1)] = args[0].numel() // known
    if op.base.name == "view":
        return b.wrap(aten.view(v, (b.size, *size)))
    return b.wrap(aten.reshape(v, (b.size, *size)))


@rule("_reshape_alias", "_reshape_alias_copy")
def reshape_alias(b: Batch, op: Op, args: Args) -> Any:
    return b.wrap(aten.reshape(b.front(args[0]), (b.size, *args[1])))


@rule("expand", "expand_copy")
def expand(b: Batch, op: Op, args: Args) -> Any:
    size, n = args[1], args[0].dim()
    v = b.front(args[0])
    v = aten.view(v, (v.shape[0], *[1] * (len(size) - n), *v.shape[1:]))
    return b.wrap(dispatch(op, (v, (b.size, *size), *args[2:])))


@rule("permute", "permute_copy")
def permute(b: Batch, op: Op, args: Args) -> Any:
    n = args[0].dim()
    return b.wrap(dispatch(op, (b.front(args[0]), (0, *shifted(args[1], n)))))


@rule("t", "t_copy")
def t(b: Batch, op: Op, args: Args) -> Any:
    n = args[0].dim()
    if n > 2:
        raise RuntimeError(f"t() expects a tensor with <= 2 dimensions, but self is {n}D")
    v = b.front(args[0])
    return b.wrap(aten.transpose(v, 1, 2) if n == 2 else aten.alias(v))


@rule("unsqueeze", "unsqueeze_copy")
def unsqueeze(b: Batch, op: Op, args: Args) -> Any:
    return b.wrap(aten.unsqueeze(b.front(args[0]), wrap_dim(args[1], args[0].dim() + 1) + 1))


@rule("squeeze", "squeeze_copy")
def squeeze(b: Batch, op: Op, args: Args) -> Any:
    x = args[0]
    n = x.dim()
    given = tuple(range(n)) if len(args) == 1 else args[1]
    given = (given,) if isinstance(given, int) else given
    dims = [wrap_dim(d, n) + 1 for d in given if n]
    return b.wrap(aten.squeeze(b.front(x), tuple(d for d in dims if x.shape[d - 1] == 1)))


@rule("as_strided", "as_strided_copy")
def as_strided(b: Batch, op: Op, args: Args) -> Any:
    v = b.front(args[0])
    offset = args[3] if args[3] is not None else v.storage_offset()
    return b.wrap(dispatch(op, (v, (b.size, *args[1]), (v.stride(0), *args[2]), offset)))


@rule("select_backward", "slice_backward", "diagonal_backward", "unfold_backward")
def view_backward(b: Batch, op: Op, args: Args) -> Any:
    g, sizes = args[0], args[1]
    n = len(sizes)
    new: list[Any] = [b.front(g), (b.size, *sizes)]
    for a, v in zip(op.schema.args[2:], args[2:], strict=True):
        new.append(wrap_dim(v, n) + 1 if a.name in ("dim", "dim1", "dim2") else v)
    return b.wrap(dispatch(op, tuple(new)))


# ---- copies and joins ----


@rule("clone", "_to_copy", "contiguous")
def clone(b: Batch, op: Op, args: Args) -> Any:
    new = list(args)
    new[0] = b.front(args[0])
    for i, a in enumerate(op.schema.args):
        if a.name == "memory_format" and new[i] not in (None, layout.preserve_format):
            new[i] = layout.contiguous_format
    return b.wrap(dispatch(op, tuple(new)))


@rule("copy", "fill", "zero")
def write(b: Batch, op: Op, args: Args) -> Any:
    refuse_inplace(b, op, args)
    n = args[0].dim()
    new = tuple([b.padded(v, n) if isinstance(v, Tensor) else v for v in args])
    if op.base.name == "fill" and len(args) > 1 and isinstance(args[1], Tensor):
        if not b.has(args[1]) and op.variant == "inplace":
            dispatch(op, (new[0], args[1]))
            return args[0]
        source = aten.expand(b.padded(args[1], n), b.full(args[0]).shape)
        if op.variant == "inplace":
            aten.copy_(new[0], source)
            return args[0]
        return b.wrap(aten.copy(b.full(args[0]), source))
    if op.variant == "inplace":
        dispatch(op, new)
        return args[0]
    return b.wrap(dispatch(op, (b.full(args[0]), *new[1:])))


@rule("masked_fill")
def masked_fill(b: Batch, op: Op, args: Args) -> Any:
    x, mask, value = args
    if not b.has(value):
        return pointwise(b, op, args)
    refuse_inplace(b, op, args)
    n = max(x.dim(), mask.dim())
    fill = aten._to_copy(b.padded(value, n), dtype=x.dtype)
    result = aten.where(b.padded(mask, n), fill, b.padded(x, n))
    if op.variant == "inplace":
        aten.copy_(b.front(x), result)
        return x
    return b.wrap(result)


@rule("cat", "stack")
def join(b: Batch, op: Op, args: Args) -> Any:
    tensors = list(args[0])
    n = max(x.dim() for x in tensors) + (op.base.name == "stack")
    if op.base.name == "cat":
        kept = [x for x in tensors if x.dim() == n or tuple(x.shape) != (0,)]
        tensors = kept or tensors
    whole = [b.full(x) for x in tensors]
    return b.wrap(dispatch(op, (whole, shifted(args[1], n), *args[2:])))


@rule("repeat")
def repeat(b: Batch, op: Op, args: Args) -> Any:
    v = b.padded(args[0], len(args[1]))
    return b.wrap(dispatch(op, (v, (1, *args[1]))))


@rule("roll")
def roll(b: Batch, op: Op, args: Args) -> Any:
    x, shifts, dims = args
    v = b.front(x)
    if not dims:
        flat = aten.reshape(v, (b.size, -1))
        return b.wrap(aten.reshape(aten.roll(flat, shifts, (1,)), v.shape))
    return b.wrap(dispatch(op, (v, shifts, shifted(dims, x.dim()))))


@rule("diag_embed")
def diag_embed(b: Batch, op: Op, args: Args) -> Any:
    x, offset, d1, d2 = args
    n = x.dim() + 1
    return b.wrap(dispatch(op, (b.front(x), offset, wrap_dim(d1, n) + 1, wrap_dim(d2, n) + 1)))


@rule("trace")
def trace(b: Batch, op: Op, args: Args) -> Any:
    if args[0].dim() != 2:
        raise RuntimeError(f"trace: expected a matrix, but got tensor with dim {args[0].dim()}")
    return b.wrap(aten.sum(aten.diagonal(b.front(args[0]), 0, 1, 2), 1))


@rule("_linalg_check_errors")
def check_errors(b: Batch, op: Op, args: Args) -> Any:
    codes, name, _ = args
    return dispatch(op, (b.full(codes), name, False))


# ---- matrix products ----


@rule("mm", "bmm")
def mm(b: Batch, op: Op, args: Args) -> Any:
    x, y = args
    if not b.has(y) and op.base.name == "mm":
        v = b.front(x)
        flat = aten.mm(aten.reshape(v, (b.size * x.shape[0], x.shape[1])), y)
        return b.wrap(aten._unsafe_view(flat, (b.size, x.shape[0], y.shape[1])))
    return b.wrap(aten.matmul(b.front(x), b.front(y)))


@rule("mv")
def mv(b: Batch, op: Op, args: Args) -> Any:
    x, y = args
    if not b.has(x):  # many vectors: one product of matrices
        i = info(y)
        return b.wrap(aten.mm(x, aten.movedim(i.value, i.dim, -1)), 1)
    if not b.has(y):
        flat = aten.mv(aten.reshape(b.front(x), (b.size * x.shape[0], x.shape[1])), y)
        return b.wrap(aten._unsafe_view(flat, (b.size, x.shape[0])))
    return b.wrap(aten.squeeze(aten.matmul(b.front(x), aten.unsqueeze(b.front(y), -1)), -1))


@rule("dot")
def dot(b: Batch, op: Op, args: Args) -> Any:
    x, y = args
    if not b.has(x) or not b.has(y):  # many vectors with one: a product with a matrix
        batched, single = (x, y) if b.has(x) else (y, x)
        return b.wrap(aten.mv(b.front(batched), single))
    column, row = aten.unsqueeze(b.front(y), -1), aten.unsqueeze(b.front(x), -2)
    return b.wrap(aten.squeeze(aten.squeeze(aten.matmul(row, column), -1), -1))


@rule("addmv", "addr")
def add_product(b: Batch, op: Op, args: Args) -> Any:
    """What is added, and the product of a matrix or vector with a vector."""
    x, first, second, beta, alpha = args
    left, right = b.full(first), aten.unsqueeze(b.full(second), -1)
    if op.base.name == "addmv":
        product = aten.squeeze(aten.bmm(left, right), -1)
    else:
        product = aten.mul(aten.unsqueeze(left, -1), aten.transpose(right, 1, 2))
    if alpha != 1:
        product = aten.mul(product, alpha)
    if beta != 0:
        added = b.padded(x, first.dim() if op.base.name == "addr" else 1)
        product = aten.add(product, aten.mul(added, beta) if beta != 1 else added)
    return b.wrap(product)


@rule("addmm", "baddbmm")
def addmm(b: Batch, op: Op, args: Args) -> Any:
    c, x, y, beta, alpha = args
    if op.base.name == "addmm" and not b.has(c) and not b.has(y) and c.dim() <= 1:
        v = b.front(x)
        rows = aten.reshape(v, (b.size * x.shape[0], x.shape[1]))
        flat = aten.addmm(c, rows, y, beta=beta, alpha=alpha)
        return b.wrap(aten.reshape(flat, (b.size, x.shape[0], y.shape[1])))
    product = aten.matmul(b.front(x), b.front(y))
    product = product if alpha == 1 else product * alpha
    c = b.padded(c, x.dim())
    return b.wrap(product + (c if beta == 1 else c * beta))


# ---- windows: the batch joins another dimension ----


def folded(b: Batch, v: Any) -> Any:
    """The batch and the first logical dimension as one."""
    whole = b.full(v)
    return aten.reshape(whole, (b.size * whole.shape[1], *whole.shape[2:]))


def unfolded(b: Batch, result: Any) -> Any:
    """Results of folded arguments, batched."""
    if isinstance(result, tuple):
        return tuple([unfolded(b, r) for r in result])
    if not isinstance(result, Tensor):
        return result
    return b.wrap(aten.reshape(result, (b.size, result.shape[0] // b.size, *result.shape[1:])))


@rule(
    "max_pool2d_with_indices", "max_pool2d_with_indices_backward", "max_pool3d_with_indices",
    "max_pool3d_with_indices_backward", "avg_pool2d", "avg_pool2d_backward", "avg_pool3d",
    "avg_pool3d_backward", "_adaptive_avg_pool2d", "_adaptive_avg_pool2d_backward",
    "_adaptive_avg_pool3d", "_adaptive_avg_pool3d_backward", "adaptive_max_pool2d",
    "adaptive_max_pool2d_backward", "reflection_pad1d", "reflection_pad1d_backward",
    "reflection_pad2d", "reflection_pad2d_backward", "reflection_pad3d",
    "reflection_pad3d_backward", "replication_pad1d", "replication_pad1d_backward",
    "replication_pad2d", "replication_pad2d_backward", "replication_pad3d",
    "replication_pad3d_backward", "channel_shuffle", "upsample_nearest1d", "upsample_nearest2d",
    "upsample_nearest3d", "upsample_linear1d", "upsample_bilinear2d", "upsample_bicubic2d",
    "upsample_trilinear3d", "grid_sampler_2d", "grid_sampler_3d", "im2col", "col2im",
    "_scaled_dot_product_flash_attention_for_cpu",
    "_scaled_dot_product_flash_attention_for_cpu_backward",
)  # fmt: skip
def fold(b: Batch, op: Op, args: Args) -> Any:
    """Operators that treat the elements of their first dimension one by one."""
    new = tuple([folded(b, v) if isinstance(v, Tensor) else v for v in args])
    return unfolded(b, dispatch(op, new))


@rule("convolution")
def convolution(b: Batch, op: Op, args: Args) -> Any:
    x, w, bias, *rest = args
    if not b.has(w) and not b.has(bias):
        return unfolded(b, dispatch(op, (folded(b, x), w, bias, *rest)))
    x2, w2, bias2, groups = _grouped(b, x, w, bias, rest[-1])
    out = dispatch(op, (x2, w2, bias2, *rest[:-1], groups))
    return _ungrouped(b, out)


def _grouped(b: Batch, x: Any, w: Any, bias: Any, groups: int) -> tuple[Any, Any, Any, int]:
    """The batch as groups of channels: (N, B*C, …), (B*O, C/g, …), (B*O)."""
    return _channels(b, x), folded(b, w), None if bias is None else folded(b, bias), groups * b.size


def _channels(b: Batch, x: Any) -> Any:
    """(B, N, C, …) as (N, B*C, …)."""
    v = aten.transpose(b.full(x), 0, 1)
    return aten.reshape(v, (v.shape[0], b.size * v.shape[2], *v.shape[3:]))


def _ungrouped(b: Batch, out: Tensor) -> Any:
    return b.wrap(aten.reshape(out, (out.shape[0], b.size, -1, *out.shape[2:])), 1)


@rule("convolution_backward")
def convolution_backward(b: Batch, op: Op, args: Args) -> Any:
    g, x, w, bias_sizes, *rest = args
    groups, mask = rest[-2], rest[-1]
    sizes = None if bias_sizes is None else [s * b.size for s in bias_sizes]
    gx, gw, gb = dispatch(
        op,
        (_channels(b, g), _channels(b, x), folded(b, w), sizes, *rest[:-2], groups * b.size, mask),
    )
    return (
        _ungrouped(b, gx) if isinstance(gx, Tensor) else gx,
        unfolded(b, gw) if isinstance(gw, Tensor) else gw,
        unfolded(b, gb) if isinstance(gb, Tensor) else gb,
    )


# ---- normalisation ----


@rule("native_layer_norm")
def layer_norm(b: Batch, op: Op, args: Args) -> Any:
    x, shape, w, bias, eps = args
    if not b.has(w) and not b.has(bias):
        return b.wrap(dispatch(op, (b.front(x), shape, w, bias, eps)))
    out, mean, rstd = dispatch(op, (b.full(x), shape, None, None, eps))
    out = out if w is None else out * b.padded(w, x.dim())
    out = out if bias is None else out + b.padded(bias, x.dim())
    return b.wrap((out, mean, rstd))


@rule("native_layer_norm_backward")
def layer_norm_backward(b: Batch, op: Op, args: Args) -> Any:
    g, x, shape, mean, rstd, w, bias, mask = args
    gv, xv, mv_, rv = b.full(g), b.full(x), b.full(mean), b.full(rstd)
    n, k = x.dim(), len(shape)
    scaled = gv if w is None else gv * b.padded(w, n)
    gx = gw = gb = None
    if mask[0]:
        gx = dispatch(op, (scaled, xv, shape, mv_, rv, None, None, [True, False, False]))[0]
    over = tuple(range(1, 1 + n - k))
    if mask[1] and w is not None:
        each = gv * (xv - mv_) * rv
        gw = aten.sum(each, over) if over else each
    if mask[2] and bias is not None:
        gb = aten.sum(gv, over) if over else gv
    return tuple(None if v is None else b.wrap(v) for v in (gx, gw, gb))


@rule("native_group_norm")
def group_norm(b: Batch, op: Op, args: Args) -> Any:
    x, w, bias, n, c, hxw, groups, eps = args
    out, mean, rstd = dispatch(op, (folded(b, x), None, None, n * b.size, c, hxw, groups, eps))
    shape = (b.size, n, *x.shape[1:])
    out = aten.reshape(out, shape)
    channel = (c, *[1] * (x.dim() - 2))
    for v, combine in ((w, aten.mul), (bias, aten.add)):
        if v is not None:
            lead = (b.size, 1) if b.has(v) else ()
            out = combine(out, aten.reshape(b.front(v), (*lead, *channel)))
    return b.wrap(
        (out, aten.reshape(mean, (b.size, n, groups)), aten.reshape(rstd, (b.size, n, groups)))
    )


def _merged(v: Tensor) -> Tensor:
    """(B, N, …) as (B N, …)."""
    return aten.reshape(v, (v.shape[0] * v.shape[1], *v.shape[2:]))


@rule("native_group_norm_backward")
def group_norm_backward(b: Batch, op: Op, args: Args) -> Any:
    g, x, mean, rstd, w, n, c, hxw, groups, mask = args
    gv, xv = b.full(g), b.full(x)
    rank = x.dim()
    channel = (c, *[1] * (rank - 2))
    scaled = gv
    if w is not None:
        scaled = gv * aten.reshape(b.front(w), (*((b.size, 1) if b.has(w) else ()), *channel))
    gx = gw = gb = None
    if mask[0]:
        gx = dispatch(
            op,
            (
                _merged(scaled), _merged(xv), folded(b, mean), folded(b, rstd), None, n * b.size,
                c, hxw, groups, [True, False, False],
            ),
        )[0]  # fmt: skip
        gx = aten.reshape(gx, xv.shape)
    if mask[1]:
        spread = (b.size, n, groups, 1, 1)
        parts = aten.reshape(xv, (b.size, n, groups, c // groups, -1))
        hat = (parts - aten.reshape(b.full(mean), spread)) * aten.reshape(b.full(rstd), spread)
        each = aten.reshape(gv, (b.size, n, c, -1)) * aten.reshape(hat, (b.size, n, c, -1))
        gw = aten.sum(each, (1, 3))
    if mask[2]:
        gb = aten.sum(aten.reshape(gv, (b.size, n, c, -1)), (1, 3))
    return tuple(None if v is None else b.wrap(v) for v in (gx, gw, gb))


@rule("native_batch_norm")
def batch_norm(b: Batch, op: Op, args: Args) -> Any:
    x, w, bias, mean, var, training, momentum, eps = args
    if training and mean is not None and not b.has(mean):
        raise RuntimeError(
            "Batch norm got a batched tensor as input while the running_mean or running_var, which "
            "will be updated in place, were not batched.\nIf you are using a module and do not "
            "need eval mode, please set `track_running_stats` to be False.If you are using a "
            "prebuilt module and do not need eval mode, please see the functorch website for "
            "resources on how to patch your module to work with vmap"
        )
    flat = [None if v is None else folded(b, v) for v in (w, bias, mean, var)]
    out, save, inv = dispatch(op, (_channels(b, x), *flat, training, momentum, eps))
    if training and mean is not None:
        for old, new in ((mean, flat[2]), (var, flat[3])):
            aten.copy_(b.front(old), aten.reshape(new, (b.size, -1)))
    each = [unfolded(b, v) if v.numel() else v for v in (save, inv)]
    return _ungrouped(b, out), each[0], each[1]


@rule("native_batch_norm_backward")
def batch_norm_backward(b: Batch, op: Op, args: Args) -> Any:
    g, x, w, mean, var, save, inv, train, eps, mask = args
    flat = [
        None if v is None else folded(b, v) if v.numel() else v for v in (w, mean, var, save, inv)
    ]
    gx, gw, gb = dispatch(op, (_channels(b, g), _channels(b, x), *flat, train, eps, mask))
    return (
        None if gx is None else _ungrouped(b, gx),
        None if gw is None else unfolded(b, gw),
        None if gb is None else unfolded(b, gb),
    )


# ---- indices ----


@rule("embedding")
def embedding(b: Batch, op: Op, args: Args) -> Any:
    w, indices, *rest = args
    if not b.has(w):
        return b.wrap(dispatch(op, (w, b.front(indices), *rest)))
    if rest[0] >= 0:
        return loop(b, op, args)
    rows = w.shape[0]
    return b.wrap(dispatch(op, (folded(b, w), _offset(b, indices, rows), *rest)))


def _offset(b: Batch, indices: Any, rows: int) -> Tensor:
    """Indices into the rows of all elements of the batch, one after the other."""
    v = b.full(indices)
    start = aten.arange(b.size, device=v.device) * rows
    return v + aten.reshape(start, (b.size, *[1] * (v.dim() - 1)))


@rule("embedding_dense_backward")
def embedding_backward(b: Batch, op: Op, args: Args) -> Any:
    g, indices, rows, padding, by_freq = args
    if padding >= 0 or by_freq:
        return loop(b, op, args)
    out = dispatch(op, (b.full(g), _offset(b, indices, rows), rows * b.size, padding, by_freq))
    return unfolded(b, out)


@rule("index_select", "index_add", "index_copy", "index_fill")
def index_along(b: Batch, op: Op, args: Args) -> Any:
    x, dim, index, *rest = args
    if b.has(index) or x.dim() == 0:
        return loop(b, op, args)
    if op.variant == "inplace":
        refuse_inplace(b, op, args)
    d = shifted(dim, x.dim())
    rest = [b.full(v) if isinstance(v, Tensor) and v.dim() else b.front(v) for v in rest]
    if any(isinstance(v, Tensor) and v.dim() == 1 and op.base.name == "index_fill" for v in rest):
        return loop(b, op, args)
    result = dispatch(op, (b.full(x), d, index, *rest))
    return args[0] if op.variant == "inplace" else b.wrap(result)


def _advanced(indices: Any) -> tuple[list[int], bool]:
    """Where tensors stand among the indices, and whether side by side."""
    places = [i for i, v in enumerate(indices) if v is not None]
    return places, places[-1] - places[0] + 1 == len(places)


def _refuse_masks(b: Batch, indices: Any) -> None:
    if any(v is not None and v.dtype.name in ("bool", "uint8") and b.has(v) for v in indices):
        raise RuntimeError(
            "vmap: We do not support batching operators that can support dynamic shape. Attempting "
            "to batch over indexing with a boolean mask."
        )


def _plain_masks(indices: Any) -> list[Any]:
    """Masks that are not batched, as indices."""
    new: list[Any] = []
    for v in indices:
        if v is not None and v.dtype.name in ("bool", "uint8"):
            new.extend(aten.unbind(aten.nonzero(v), 1))
        else:
            new.append(v)
    return new


def _batched_indices(b: Batch, indices: list[Any], rank: int) -> list[Any]:
    """Indices of rank logical dimensions, with the batch in front of batched ones."""
    new = []
    for v in indices:
        if v is not None and b.has(v):
            v = b.padded(v, rank)
        new.append(v)
    return new


@rule("index", "_unsafe_index")
def index(b: Batch, op: Op, args: Args) -> Any:
    x, indices = args
    _refuse_masks(b, indices)
    indices = _plain_masks(indices)
    places, together = _advanced(indices)
    rank = max(indices[i].dim() for i in places)
    if not any(b.has(v) for v in indices if v is not None):
        out = dispatch(op, (b.front(x), [None, *indices]))
        return b.wrap(out, 0 if together else rank)
    inner = _batched_indices(b, indices, rank)
    if not b.has(x):
        out = dispatch(op, (x, inner))
        return b.wrap(out, places[0] if together else 0)
    first = aten.reshape(aten.arange(b.size, device=x.device), (b.size, *[1] * rank))
    out = dispatch(op, (b.front(x), [first, *inner]))
    if together and places[0]:  # dimensions of the indices: behind those before them
        p = places[0]
        order = [0, *range(1 + rank, 1 + rank + p), *range(1, 1 + rank)]
        out = aten.permute(out, [*order, *range(1 + rank + p, out.dim())])
    return b.wrap(out)


@rule("index_put", "_unsafe_index_put", "_index_put_impl")
def index_put(b: Batch, op: Op, args: Args) -> Any:
    x, indices, values, *rest = args
    refuse_inplace(b, op, args)
    _refuse_masks(b, indices)
    indices = _plain_masks(indices)
    places, together = _advanced(indices)
    shapes = [tuple(indices[i].shape) for i in places]
    spot = _broadcast(shapes)
    rank = len(spot)
    before = [x.shape[i] for i in range(places[0])] if together else []
    used = places if together else [i for i in range(x.dim()) if i in places]
    after = [
        x.shape[i] for i in range(x.dim()) if i not in used and (not together or i > places[0])
    ]
    if not together:
        before = []
    logical = [*before, *spot, *after]
    v = aten.expand(b.padded(values, len(logical)), (b.size, *logical))
    p = len(before)
    if p:
        order = [0, *range(1 + p, 1 + p + rank), *range(1, 1 + p), *range(1 + p + rank, v.dim())]
        v = aten.permute(v, order)
    first = aten.reshape(aten.arange(b.size, device=x.device), (b.size, *[1] * rank))
    inner = [None if i is None else i for i in _batched_indices(b, indices, rank)]
    result = dispatch(op, (b.full(x), [first, *inner], v, *rest))
    return args[0] if op.variant == "inplace" else b.wrap(result)


def _broadcast(shapes: list[tuple[int, ...]]) -> tuple[int, ...]:
    n = max(map(len, shapes))
    out = [1] * n
    for s in shapes:
        for i, k in enumerate(s, n - len(s)):
            out[i] = k if out[i] == 1 else out[i]
    return tuple(out)


INPLACE.update((shift, write, masked_fill, index_along, index_put))
KINDS.setdefault("factory", lambda b, op, args: dispatch(op, args))
_ = (fallback, info, pointwise)
