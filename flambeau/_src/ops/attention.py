"""Attention and Einstein sums."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from flambeau._src import _native
from flambeau._src.core import dtype as dt
from flambeau._src.core import layout
from flambeau._src.core.slots import slot
from flambeau._src.core.tensor import Tensor
from flambeau._src.ops.call import aten
from flambeau._src.ops.kinds import Composite, Opaque, TensorSpec, cast, pack_params


def check_attention(
    q: Tensor, k: Tensor, v: Tensor, mask: Any, dropout_p: float, is_causal: bool
) -> None:
    if not (q.dtype is k.dtype is v.dtype):
        raise RuntimeError(
            "Expected query, key, and value to have the same dtype, but got query.dtype: "
            f"{dt.c_name(q.dtype)} key.dtype: {dt.c_name(k.dtype)} and value.dtype: "
            f"{dt.c_name(v.dtype)} instead."
        )
    if min(t.dim() for t in (q, k, v)) < 2:
        raise RuntimeError(
            "Expected query, key, and value to all be  at least 2 dimensional, but got query.dim: "
            f"{q.dim()}, key.dim: {k.dim()} and value.dim: {v.dim()} instead."
        )
    if mask is not None:
        if (
            mask.dtype is not dt.bool_
            and mask.dtype is not q.dtype
            and mask.dtype is not dt.float32
        ):
            raise RuntimeError(
                "Expected attn_mask dtype to be bool or float or to match query dtype, but got "
                f"attn_mask.dtype: {dt.c_name(mask.dtype)} and  query.dtype: {dt.c_name(q.dtype)} "
                "instead."
            )
        if is_causal:
            raise RuntimeError(
                "_scaled_dot_product_attention: Explicit attn_mask should not be set when "
                "is_causal=True"
            )


class ScaledDotProductAttention(Composite):
    """softmax(scale q kᵀ + mask) v (Vaswani et al. 2017).

    Shapes: q (…, L, E), k (…, S, E), v (…, S, Ev).
    """

    schema = (
        "scaled_dot_product_attention(Tensor query, Tensor key, Tensor value, Tensor? "
        "attn_mask=None, float dropout_p=0.0, bool is_causal=False, *, float? scale=None, bool "
        "enable_gqa=False) -> Tensor"
    )
    public = "nn"
    autocast = "lower"

    def decompose(
        q: Tensor,
        k: Tensor,
        v: Tensor,
        mask: Any,
        dropout_p: float,
        is_causal: bool,
        scale: Any,
        enable_gqa: bool,
    ) -> Tensor:
        check_attention(q, k, v, mask, dropout_p, is_causal)
        if mask is not None and mask.dtype is dt.bool_:
            zero = aten.zeros((), dtype=q.dtype, device=q.device)
            mask = aten.where(
                mask, zero, aten.full((), float("-inf"), dtype=q.dtype, device=q.device)
            )
        if _fits(q, k, v, mask, dropout_p, enable_gqa):
            return aten._scaled_dot_product_flash_attention_for_cpu(
                q, k, v, dropout_p, is_causal, attn_mask=mask, scale=scale
            )[0]
        return aten._scaled_dot_product_attention_math(
            q, k, v, mask, dropout_p, is_causal, None, scale=scale, enable_gqa=enable_gqa
        )[0]


def _fits(q: Tensor, k: Tensor, v: Tensor, mask: Any, dropout_p: float, gqa: bool) -> bool:
    """What the fused CPU kernel takes."""
    if (
        dropout_p
        or gqa
        or any(t.dim() != 4 for t in (q, k, v))
        or any(not t.numel() for t in (q, k, v))
    ):
        return False
    if not (q.shape[-1] == k.shape[-1] == v.shape[-1]) or q.dtype not in (
        dt.float32,
        dt.float64,
        dt.bfloat16,
        dt.float16,
    ):
        return False
    if q.shape[:2] != k.shape[:2] or k.shape[:3] != v.shape[:3]:
        return False
    if any(t.stride()[-1] != 1 for t in (q, k, v)):
        return False
    if mask is None:
        return True
    if mask.requires_grad or mask.dtype not in (q.dtype, dt.float32) or mask.dim() not in (2, 4):
        return False
    tail = tuple(mask.shape[-2:])
    if tail[0] not in (1, q.shape[2]) or tail[1] not in (1, k.shape[2]):
        return False
    return mask.dim() == 2 or (
        mask.shape[0] in (1, q.shape[0]) and mask.shape[1] in (1, q.shape[1])
    )


class AttentionMath(Composite):
    """Attention out of its parts; also gives the weights."""

    schema = (
        "_scaled_dot_product_attention_math(Tensor query, Tensor key, Tensor value, Tensor? "
        "attn_mask=None, float dropout_p=0.0, bool is_causal=False, Tensor? dropout_mask=None, *, "
        "float? scale=None, bool enable_gqa=False) -> (Tensor, Tensor)"
    )
    public = "function"

    def decompose(
        q: Tensor,
        k: Tensor,
        v: Tensor,
        mask: Any,
        dropout_p: float,
        is_causal: bool,
        dropout_mask: Any,
        scale: Any,
        enable_gqa: bool,
    ) -> Any:
        kind = q.dtype
        if kind in (dt.float16, dt.bfloat16):
            q, k, v = q.to(dt.float32), k.to(dt.float32), v.to(dt.float32)
            mask = mask.to(dt.float32) if mask is not None and mask.dtype is not dt.bool_ else mask
        negative = scale is not None and scale < 0
        if scale is None:
            root = math.sqrt(1.0 / math.sqrt(q.shape[-1])) if q.shape[-1] else 1.0
        else:
            root = math.sqrt(abs(scale))
        if enable_gqa:
            n = q.shape[-3]
            if k.shape[-3] != n:
                k = k.repeat_interleave(n // k.shape[-3], -3)
                v = v.repeat_interleave(n // v.shape[-3], -3)
        q = q * (-root if negative else root)
        if is_causal:
            rows, cols = q.shape[-2], k.shape[-2]
            causal = aten.ones((rows, cols), dtype=dt.bool_, device=q.device).tril()
            zero = aten.zeros((), dtype=q.dtype, device=q.device)
            mask = aten.where(
                causal, zero, aten.full((), float("-inf"), dtype=q.dtype, device=q.device)
            )
        scores = aten.matmul(q, k.transpose(-2, -1) * root)
        if mask is not None:
            if mask.dtype is dt.bool_:
                zero = aten.zeros((), dtype=q.dtype, device=q.device)
                mask = aten.where(
                    mask, zero, aten.full((), float("-inf"), dtype=q.dtype, device=q.device)
                )
            scores = scores + mask
        weights = aten._safe_softmax(scores, -1) if mask is not None else aten.softmax(scores, -1)
        if dropout_p > 0:
            if dropout_mask is not None:
                weights = weights.masked_fill(dropout_mask.logical_not(), 0.0)
                return aten.matmul(weights, v * (1.0 / (1.0 - dropout_p))).to(kind), weights.to(
                    kind
                )
            weights = aten.dropout(weights, dropout_p, True)
        return aten.matmul(weights, v).to(kind), weights.to(kind)


_FEW_PRODUCTS = 1 << 16


def lined(t: Tensor) -> Tensor:
    """t with the elements of a row side by side: a copy where they are not."""
    if t.stride()[-1] == 1:
        return t
    made = _native.empty(t.shape, t.dtype, t.device)
    slot("copy_into")(made, t)
    return made


def like_in(t: Tensor, dtype: dt.dtype) -> Tensor:
    """t itself, or as much room in another dtype, laid out alike."""
    return t if t.dtype is dtype else _native.empty(t.shape, dtype, t.device, t.stride())


def _working(kind: dt.dtype, q: Tensor, k: Tensor) -> dt.dtype:
    """What attention is computed in: double where that costs little, since the exponential of a
    rounded score is off by the score times an ulp."""
    few = q.numel() * k.shape[2] <= _FEW_PRODUCTS
    return dt.float64 if kind is dt.float32 and few else kind


class FlashAttentionCpu(Opaque):
    """Attention whose weights are never kept: the output and the log-sum-exp of the scores."""

    schema = (
        "_scaled_dot_product_flash_attention_for_cpu(Tensor query, Tensor key, Tensor value, float "
        "dropout_p=0.0, bool is_causal=False, *, Tensor? attn_mask=None, float? scale=None) -> "
        "(Tensor output, Tensor logsumexp)"
    )
    public = "function"
    differentiable = (0,)
    node_name = "ScaledDotProductFlashAttentionForCpu"

    def samples(s: Any) -> Iterator[Any]:
        yield s.sample(s.tensor((2, 2, 3, 4)), s.tensor((2, 2, 5, 4)), s.tensor((2, 2, 5, 4)))
        yield s.sample(
            s.tensor((1, 2, 4, 8)), s.tensor((1, 2, 4, 8)), s.tensor((1, 2, 4, 8)), 0.0, True
        )

    def meta(
        q: Tensor, k: Tensor, v: Tensor, dropout_p: float, is_causal: bool, mask: Any, scale: Any
    ) -> Any:
        n, h, rows, _ = q.shape
        kind = dt.float32 if q.dtype in (dt.bfloat16, dt.float16) else q.dtype
        stride = (
            layout.strides_like(q, layout.preserve_format) if q.shape[-1] == v.shape[-1] else None
        )
        lse = (rows * h, 1, h)
        return TensorSpec((n, h, rows, v.shape[-1]), q.dtype, q.device, stride), TensorSpec(
            (n, h, rows), kind, q.device, lse
        )

    def kernel(
        outs: Any,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        dropout_p: float,
        is_causal: bool,
        mask: Any,
        scale: Any,
    ) -> None:
        wide, copy = _working(outs[1].dtype, q, k), slot("copy_into")
        q, k, v = cast(q, wide), cast(k, wide), cast(v, wide)
        into = [like_in(o, wide) for o in outs]
        if mask is None and weighted(into[0], into[1], q, k, v, is_causal, scale):
            for o, t in zip(outs, into, strict=True):
                if o is not t:
                    copy(o, t)
            return
        p, lse = attention_weights(q, k, mask, is_causal, scale)
        copy(outs[0], aten.matmul(p, v))
        copy(outs[1], lse)

    def vjp(
        b: Any,
        g: Any,
        q: Any,
        k: Any,
        v: Any,
        dropout_p: float,
        is_causal: bool,
        mask: Any,
        scale: Any,
    ) -> Any:
        got = aten._scaled_dot_product_flash_attention_for_cpu_backward(
            g[0], q, k, v, b.outs[0], b.outs[1], dropout_p, is_causal, attn_mask=mask, scale=scale
        )
        return tuple(got) if mask is None else (*got, None)

    def decompose(
        q: Tensor, k: Tensor, v: Tensor, dropout_p: float, is_causal: bool, mask: Any, scale: Any
    ) -> Any:
        p, lse = attention_weights(q, k, mask, is_causal, scale)
        return aten.matmul(p, v), lse


def attention_weights(
    q: Tensor, k: Tensor, mask: Any, is_causal: bool, scale: Any
) -> tuple[Tensor, Tensor]:
    scale = 1.0 / math.sqrt(q.shape[-1]) if scale is None else scale
    scores = aten.matmul(q * scale, k.transpose(-2, -1))
    if is_causal:
        rows, cols = scores.shape[-2:]
        keep = aten.ones((rows, cols), dtype=dt.bool_, device=q.device).tril()
        scores = scores.masked_fill(~keep, float("-inf"))
    if mask is not None:
        scores = scores + cast_like(mask, scores)
    lse = aten.logsumexp(scores, [-1], True)
    p = aten.softmax(scores, -1)
    if mask is not None:
        p = aten.where(lse == float("-inf"), aten.zeros((), dtype=p.dtype), p)
    return p, lse.squeeze(-1)


def _heads(t: Tensor, cost: int) -> Tensor:
    """The first element of each head of t (N, H, L, E), `cost` times over: what the loops see."""
    n, h, *_ = t.stride()
    return _native.alias(Tensor, t, (*t.shape[:2], cost), (n, h, 0), t.storage_offset())


def _walk(
    kind: str, outs: tuple[Tensor, ...], ins: tuple[Tensor, ...], sizes: tuple[int, ...],
    places: tuple[int, ...], causal: bool, scale: Any,
) -> bool:  # fmt: skip
    """Run a kernel of `codegen/attention.py`; False where there is none for these tensors."""
    every = (*outs, *ins)
    work = outs[0].dtype
    if work not in (dt.float32, dt.float64) or any(t.dtype is not work for t in every):
        return False
    if not all(t.numel() for t in every) or any(t.dim() == 4 and t.stride()[3] != 1 for t in every):
        return False
    names = tuple((work.name,) * len(side) for side in (ins, outs))
    address = slot("kernel_address")(f"{kind}_{work.name}", None, kind, *names, (), None)
    if address is None:
        return False
    rows, columns, width = sizes
    scale = 1.0 / math.sqrt(width) if scale is None else scale
    numbers = [rows, columns, width, causal, *places, scale]
    cost = rows * columns
    _native.run_rows(
        address, tuple(_heads(t, 1) for t in outs), tuple(_heads(t, cost) for t in ins), 2,
        pack_params(numbers, [False] * (len(numbers) - 1) + [True]),
    )  # fmt: skip
    return True


def _row(t: Tensor) -> int:
    """Elements from one row of t (N, H, L, …) to the next."""
    step: int = t.stride()[2]
    return step


def weighted(
    out: Tensor, lse: Tensor, q: Tensor, k: Tensor, v: Tensor, is_causal: bool, scale: Any
) -> bool:
    """Attention without a mask into `out` and `lse`; False where that is left to its parts."""
    ins = q, k, v = lined(q), lined(k), lined(v)
    places = (*map(_row, (q, k, v, out, lse)), 0, 0, 0, 0)
    sizes = (q.shape[2], k.shape[2], q.shape[3])
    return _walk("attention", (out, lse), ins, sizes, places, is_causal, scale)


def slopes(outs: Any, ins: Any, is_causal: bool, scale: Any) -> bool:
    """The gradients for query, key and value from (g, q, k, v, out, lse) of such attention."""
    *ins, lse = (*map(lined, ins[:5]), ins[5])
    g, q, k, v, out = ins
    places = (*map(_row, (q, k, v, out, lse, g, *outs)),)
    sizes = (q.shape[2], k.shape[2], q.shape[3])
    return _walk("attention_backward", tuple(outs), (*ins, lse), sizes, places, is_causal, scale)


def cast_like(t: Tensor, like: Tensor) -> Tensor:
    return t if t.dtype is like.dtype else t.to(like.dtype)


class FlashAttentionCpuBackward(Opaque):
    """Gradients of attention for query, key and value (not differentiable again, as in torch)."""

    schema = (
        "_scaled_dot_product_flash_attention_for_cpu_backward(Tensor grad_out, Tensor query, "
        "Tensor key, Tensor value, Tensor out, Tensor logsumexp, float dropout_p, bool is_causal, "
        "*, Tensor? attn_mask=None, float? scale=None) -> (Tensor grad_query, Tensor grad_key, "
        "Tensor grad_value)"
    )
    public = "function"
    no_formula = True

    def meta(g: Tensor, q: Tensor, k: Tensor, v: Tensor, *rest: Any) -> Any:
        specs = []
        for t in (q, k, v):
            _, h, rows, e = t.shape
            specs.append(TensorSpec(t.shape, t.dtype, t.device, (rows * h * e, e, h * e, 1)))
        return tuple(specs)

    def kernel(
        outs: Any,
        g: Tensor,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        out: Tensor,
        lse: Tensor,
        dropout_p: float,
        is_causal: bool,
        mask: Any,
        scale: Any,
    ) -> None:
        wide = _working(lse.dtype, q, k)
        g, q, k, v, out = (cast(t, wide) for t in (g, q, k, v, out))
        into = [like_in(o, wide) for o in outs]
        done = mask is None
        if done and wide is not lse.dtype:  # what the forward rounded is made anew
            out, lse = like_in(out, wide), _native.empty(lse.shape, wide, lse.device)
            done = weighted(out, lse, q, k, v, is_causal, scale)
        if not done or not slopes(into, (g, q, k, v, out, lse), is_causal, scale):
            into = list(gradients(g, q, k, v, out, mask, is_causal, scale))
        for o, t in zip(outs, into, strict=True):
            if o is not t:
                slot("copy_into")(o, t)

    def decompose(
        g: Tensor,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        out: Tensor,
        lse: Tensor,
        dropout_p: float,
        is_causal: bool,
        mask: Any,
        scale: Any,
    ) -> Any:
        return gradients(g, q, k, v, None, mask, is_causal, scale)


def gradients(
    g: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Any, mask: Any, is_causal: bool, scale: Any
) -> tuple[Tensor, Tensor, Tensor]:
    s = 1.0 / math.sqrt(q.shape[-1]) if scale is None else scale
    p, _ = attention_weights(q, k, mask, is_causal, scale)
    gv = aten.matmul(p.transpose(-2, -1), g)
    gp = aten.matmul(g, v.transpose(-2, -1))
    delta = (g * out).sum(-1, True) if out is not None else (gp * p).sum(-1, True)
    gs = p * (gp - delta)
    return aten.matmul(gs, k) * s, aten.matmul(gs.transpose(-2, -1), q) * s, gv
