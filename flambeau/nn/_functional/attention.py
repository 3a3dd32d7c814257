"""Multi-head attention on packed projections (Vaswani et al. 2017)."""

from __future__ import annotations

import math
import warnings
from typing import Any, NamedTuple

import flambeau as torch
from flambeau import Tensor, _nn

from .activation import softmax
from .dropout import dropout
from .overridable import overridable


def _none_or_dtype(input: Tensor | None) -> Any:
    if input is None:
        return None
    if isinstance(input, Tensor):
        return input.dtype
    raise RuntimeError("input to _none_or_dtype() must be None or torch.Tensor")


def _in_projection_packed(
    q: Tensor, k: Tensor, v: Tensor, w: Tensor, b: Tensor | None = None
) -> list[Tensor]:
    """Project q, k, v (..., E) with the rows of w (3E, E); equal inputs share a product."""
    E = q.size(-1)
    if k is not v:
        w_q, w_k, w_v = w.chunk(3)
        b_q, b_k, b_v = (None, None, None) if b is None else b.chunk(3)
        return [_nn.linear(q, w_q, b_q), _nn.linear(k, w_k, b_k), _nn.linear(v, w_v, b_v)]
    if q is k:
        packed = _nn.linear(q, w, b)
        parts = packed.unflatten(-1, (3, E)).unsqueeze(0).transpose(0, -2).squeeze(-2).contiguous()
        return [parts[0], parts[1], parts[2]]
    w_q, w_kv = w.split([E, E * 2])
    b_q, b_kv = (None, None) if b is None else b.split([E, E * 2])
    q_proj = _nn.linear(q, w_q, b_q)
    packed = _nn.linear(k, w_kv, b_kv)
    parts = packed.unflatten(-1, (2, E)).unsqueeze(0).transpose(0, -2).squeeze(-2).contiguous()
    return [q_proj, parts[0], parts[1]]


def _in_projection(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    w_q: Tensor,
    w_k: Tensor,
    w_v: Tensor,
    b_q: Tensor | None = None,
    b_k: Tensor | None = None,
    b_v: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Project q, k, v, whose sizes may differ, each with its own weight (Eq, E...)."""
    Eq, Ek, Ev = q.size(-1), k.size(-1), v.size(-1)
    checks: tuple[tuple[str, Any, Any], ...] = (
        ("query weights", w_q, (Eq, Eq)),
        ("key weights", w_k, (Eq, Ek)),
        ("value weights", w_v, (Eq, Ev)),
        ("query bias", b_q, (Eq,)),
        ("key bias", b_k, (Eq,)),
        ("value bias", b_v, (Eq,)),
    )
    for what, tensor, shape in checks:
        if tensor is not None and tensor.shape != shape:
            raise AssertionError(f"expecting {what} shape of {shape}, but got {tensor.shape}")
    return _nn.linear(q, w_q, b_q), _nn.linear(k, w_k, b_k), _nn.linear(v, w_v, b_v)


def _mha_shape_check(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    key_padding_mask: Tensor | None,
    attn_mask: Tensor | None,
    num_heads: int,
) -> bool:
    """Whether there is a batch dimension; raises when the inputs disagree on it."""
    n = query.dim()
    if n not in (2, 3):
        raise AssertionError(
            "query should be unbatched 2D or batched 3D tensor "
            f"but received {query.dim()}-D query tensor"
        )
    given = f"For {'batched' if n == 3 else 'unbatched'} ({n}-D) `query`, expected"
    if key.dim() != n or value.dim() != n:
        raise AssertionError(
            f"{given} `key` and `value` to be {n}-D"
            f" but found {key.dim()}-D and {value.dim()}-D tensors respectively"
        )
    if key_padding_mask is not None and key_padding_mask.dim() != n - 1:
        raise AssertionError(
            f"{given} `key_padding_mask` to be `None` or {n - 1}-D"
            f" but found {key_padding_mask.dim()}-D tensor instead"
        )
    if attn_mask is not None:
        if attn_mask.dim() not in (2, 3):
            raise AssertionError(
                f"{given} `attn_mask` to be `None`, 2-D or 3-D"
                f" but found {attn_mask.dim()}-D tensor instead"
            )
        if n == 2 and attn_mask.dim() == 3:
            expected = (num_heads, query.shape[0], key.shape[0])
            if attn_mask.shape != expected:
                raise AssertionError(
                    f"Expected `attn_mask` shape to be {expected} but got {attn_mask.shape}"
                )
    return n == 3


def _canonical_mask(
    mask: Tensor | None,
    mask_name: str,
    other_type: Any,
    other_name: str,
    target_type: Any,
    check_other: bool = True,
) -> Tensor | None:
    """A mask to be added: a boolean one becomes 0 and -inf."""
    if mask is None:
        return None
    floating = torch.is_floating_point(mask)
    if mask.dtype != torch.bool and not floating:
        raise AssertionError(f"only bool and floating types of {mask_name} are supported")
    if check_other and other_type is not None and mask.dtype != other_type:
        warnings.warn(
            f"Support for mismatched {mask_name} and {other_name} "
            "is deprecated. Use same type for both instead.",
            stacklevel=4,
        )
    if floating:
        return mask
    return torch.zeros_like(mask, dtype=target_type).masked_fill_(mask, float("-inf"))


def _check_key_padding_mask(key_padding_mask: Tensor, src_len: int, bsz: int) -> None:
    for dim, size in enumerate((bsz, src_len)):
        if key_padding_mask.size(dim) != size:
            raise AssertionError(
                f"Expected key_padded_mask.shape[{dim}] to be {size}, "
                f"but got {key_padding_mask.size(dim)}"
            )


class _Masks(NamedTuple):
    attn: Tensor | None
    padding: Tensor | None

    def padded(self) -> _Masks:
        """One more key, which is always visible."""
        attn = None if self.attn is None else _nn.pad(self.attn, (0, 1))
        padding = None if self.padding is None else _nn.pad(self.padding, (0, 1))
        return _Masks(attn, padding)

    def merged(self, bsz: int, num_heads: int, src_len: int) -> Tensor | None:
        """Both masks as one, to be added to (bsz * heads, tgt, src) scores."""
        padding = self.padding
        if padding is None:
            return self.attn
        _check_key_padding_mask(padding, src_len, bsz)
        padding = padding.view(bsz, 1, 1, src_len).expand(-1, num_heads, -1, -1)
        padding = padding.reshape(bsz * num_heads, 1, src_len)
        return padding if self.attn is None else self.attn + padding


def _with_batch_and_head(mask: Tensor, tgt_len: int, src_len: int, bsz_heads: int) -> Tensor:
    if mask.dim() == 2:
        if mask.shape != (tgt_len, src_len):
            raise RuntimeError(
                f"The shape of the 2D attn_mask is {mask.shape}, "
                f"but should be {(tgt_len, src_len)}."
            )
        return mask.unsqueeze(0)
    if mask.dim() != 3:
        raise RuntimeError(f"attn_mask's dimension {mask.dim()} is not supported")
    expected = (bsz_heads, tgt_len, src_len)
    if mask.shape != expected:
        raise RuntimeError(
            f"The shape of the 3D attn_mask is {mask.shape}, but should be {expected}."
        )
    return mask


def _heads(x: Tensor, static: Tensor | None, name: str, bsz_heads: int, head_dim: int) -> Tensor:
    """(len, bsz, E) as (bsz * heads, len, head_dim), or the given `static_k` / `static_v`."""
    if static is None:
        return x.view(x.shape[0], bsz_heads, head_dim).transpose(0, 1)
    for dim, size in ((0, bsz_heads), (2, head_dim)):
        if static.size(dim) != size:
            raise AssertionError(
                f"expecting {name}.size({dim}) of {size}, but got {static.size(dim)}"
            )
    return static


def _attend_with_weights(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, dropout_p: float
) -> tuple[Tensor, Tensor]:
    scaled = q * math.sqrt(1.0 / float(q.shape[-1]))
    if mask is not None:
        scores = torch.baddbmm(mask, scaled, k.transpose(-2, -1))
    else:
        scores = torch.bmm(scaled, k.transpose(-2, -1))
    weights = softmax(scores, dim=-1)
    if dropout_p > 0.0:
        weights = dropout(weights, p=dropout_p)
    return torch.bmm(weights, v), weights


def _project_inputs(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    packed: tuple[Any, Any],
    separate: tuple[Any, Any, Any] | None,
) -> Any:
    weight, bias = packed
    if separate is None:
        if weight is None:
            raise AssertionError("use_separate_proj_weight is False but in_proj_weight is None")
        return _in_projection_packed(query, key, value, weight, bias)
    for name, w in zip("qkv", separate, strict=True):
        if w is None:
            raise AssertionError(f"use_separate_proj_weight is True but {name}_proj_weight is None")
    biases = (None, None, None) if bias is None else bias.chunk(3)
    return _in_projection(query, key, value, *separate, *biases)


def _check_shapes(
    query: Tensor, key: Tensor, value: Tensor, expected: int, num_heads: int, separate: bool
) -> None:
    embed_dim = query.shape[-1]
    if embed_dim != expected:
        raise AssertionError(
            f"was expecting embedding dimension of {expected}, but got {embed_dim}"
        )
    if embed_dim // num_heads * num_heads != embed_dim:
        raise AssertionError(f"embed_dim {embed_dim} not divisible by num_heads {num_heads}")
    if separate:
        if key.shape[:2] != value.shape[:2]:
            raise AssertionError(
                f"key's sequence and batch dims {key.shape[:2]} do not match value's"
                f" {value.shape[:2]}"
            )
    elif key.shape != value.shape:
        raise AssertionError(f"key shape {key.shape} does not match value shape {value.shape}")


@overridable(
    "query",
    "key",
    "value",
    "in_proj_weight",
    "in_proj_bias",
    "bias_k",
    "bias_v",
    "out_proj_weight",
    "out_proj_bias",
)
def multi_head_attention_forward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    embed_dim_to_check: int,
    num_heads: int,
    in_proj_weight: Tensor | None,
    in_proj_bias: Tensor | None,
    bias_k: Tensor | None,
    bias_v: Tensor | None,
    add_zero_attn: bool,
    dropout_p: float,
    out_proj_weight: Tensor,
    out_proj_bias: Tensor | None,
    training: bool = True,
    key_padding_mask: Tensor | None = None,
    need_weights: bool = True,
    attn_mask: Tensor | None = None,
    use_separate_proj_weight: bool = False,
    q_proj_weight: Tensor | None = None,
    k_proj_weight: Tensor | None = None,
    v_proj_weight: Tensor | None = None,
    static_k: Tensor | None = None,
    static_v: Tensor | None = None,
    average_attn_weights: bool = True,
    is_causal: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """Project, attend in `num_heads` heads, project back.

    Args:
        query: (tgt, batch, E) or (tgt, E); key and value: (src, batch, E).
        in_proj_weight: (3E, E), or the three separate weights.
        bias_k, bias_v: one more key and value (1, 1, E), the same for all samples.
        add_zero_attn: one more key and value of zeros.
        key_padding_mask: (batch, src); True (or -inf) is not looked at.
        attn_mask: (tgt, src) or (batch * heads, tgt, src), likewise.
        is_causal: a hint that `attn_mask` is causal.

    Returns:
        The output (tgt, batch, E), and with `need_weights` the attention weights
        (batch, tgt, src), or (batch, heads, tgt, src) if they are not averaged.
    """
    batched = _mha_shape_check(query, key, value, key_padding_mask, attn_mask, num_heads)
    if not batched:
        query, key, value = query.unsqueeze(1), key.unsqueeze(1), value.unsqueeze(1)
        if key_padding_mask is not None:
            key_padding_mask = key_padding_mask.unsqueeze(0)
    tgt_len, bsz, _ = query.shape
    key_padding_mask = _canonical_mask(
        key_padding_mask, "key_padding_mask", _none_or_dtype(attn_mask), "attn_mask", query.dtype
    )
    if is_causal and attn_mask is None:
        raise RuntimeError(
            "Need attn_mask if specifying the is_causal hint. "
            "You may use the Transformer module method "
            "`generate_square_subsequent_mask` to create this mask."
        )
    if is_causal and key_padding_mask is None and not need_weights:
        attn_mask = None  # the fused attention makes the causal mask itself
    else:
        attn_mask = _canonical_mask(
            attn_mask, "attn_mask", None, "", query.dtype, check_other=False
        )
        is_causal = is_causal and key_padding_mask is None
    _check_shapes(query, key, value, embed_dim_to_check, num_heads, use_separate_proj_weight)
    separate = None
    if use_separate_proj_weight:
        separate = (q_proj_weight, k_proj_weight, v_proj_weight)
    q, k, v = _project_inputs(query, key, value, (in_proj_weight, in_proj_bias), separate)
    if attn_mask is not None:
        attn_mask = _with_batch_and_head(attn_mask, tgt_len, key.shape[0], bsz * num_heads)
    masks = _Masks(attn_mask, key_padding_mask)
    if bias_k is not None and bias_v is not None:
        if static_k is not None:
            raise AssertionError("bias cannot be added to static key.")
        if static_v is not None:
            raise AssertionError("bias cannot be added to static value.")
        k = torch.cat([k, bias_k.repeat(1, bsz, 1)])
        v = torch.cat([v, bias_v.repeat(1, bsz, 1)])
        masks = masks.padded()
    return _attend(
        (q, k, v),
        (static_k, static_v),
        masks,
        (tgt_len, bsz, num_heads, batched),
        add_zero_attn,
        dropout_p if training else 0.0,
        (out_proj_weight, out_proj_bias),
        (need_weights, average_attn_weights),
        is_causal,
    )


def _attend(
    qkv: tuple[Tensor, Tensor, Tensor],
    static: tuple[Tensor | None, Tensor | None],
    masks: _Masks,
    sizes: tuple[int, int, int, bool],
    add_zero_attn: bool,
    dropout_p: float,
    out_proj: tuple[Tensor, Tensor | None],
    weights_wanted: tuple[bool, bool],
    is_causal: bool,
) -> tuple[Tensor, Tensor | None]:
    """Attention of the projected (len, batch, E) tensors and the output projection."""
    tgt_len, bsz, num_heads, batched = sizes
    embed_dim = qkv[0].shape[-1]
    head_dim = embed_dim // num_heads
    q = _heads(qkv[0], None, "", bsz * num_heads, head_dim)
    k = _heads(qkv[1], static[0], "static_k", bsz * num_heads, head_dim)
    v = _heads(qkv[2], static[1], "static_v", bsz * num_heads, head_dim)
    if add_zero_attn:
        shape = (bsz * num_heads, 1, head_dim)
        k = torch.cat([k, torch.zeros(shape, dtype=k.dtype, device=k.device)], dim=1)
        v = torch.cat([v, torch.zeros(shape, dtype=v.dtype, device=v.device)], dim=1)
        masks = masks.padded()
    src_len = k.size(1)
    mask = masks.merged(bsz, num_heads, src_len)
    need_weights, average = weights_wanted
    if need_weights:
        out, weights = _attend_with_weights(q, k, v, mask, dropout_p)
        out = out.transpose(0, 1).contiguous().view(tgt_len * bsz, embed_dim)
        out = _nn.linear(out, *out_proj)
        out = out.view(tgt_len, bsz, out.size(1))
        weights = weights.view(bsz, num_heads, tgt_len, src_len)
        if average:
            weights = weights.mean(dim=1)
        if batched:
            return out, weights
        return out.squeeze(1), weights.squeeze(0)
    if mask is not None:
        if mask.size(0) == 1 and mask.dim() == 3:
            mask = mask.unsqueeze(0)
        else:
            mask = mask.view(bsz, num_heads, -1, src_len)
    q = q.view(bsz, num_heads, tgt_len, head_dim)
    k = k.view(bsz, num_heads, src_len, head_dim)
    v = v.view(bsz, num_heads, src_len, head_dim)
    out = _nn.scaled_dot_product_attention(q, k, v, mask, dropout_p, is_causal)
    out = out.permute(2, 0, 1, 3).contiguous().view(bsz * tgt_len, embed_dim)
    out = _nn.linear(out, *out_proj)
    out = out.view(tgt_len, bsz, out.size(1))
    return (out if batched else out.squeeze(1)), None
