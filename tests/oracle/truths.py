"""Results to more digits than float64 has, for entries whose float64 gradients nearly cancel.

torch's float64 is then itself off by more than the bound against it. Written from the formulas
alone, with mpmath (which torch's environment has); a second derivative is the central difference of
the first, whose error at this step and precision is 1e-40.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mpmath
import numpy as np

from tests.oracle import checks

DIGITS = 60
STEP = mpmath.mpf(10) ** -20

Arrays = list[np.ndarray]
_exact = np.frompyfunc(mpmath.mpf, 1, 1)
_exp = np.frompyfunc(mpmath.exp, 1, 1)


def exact(tensor: Any) -> np.ndarray:
    """The same numbers as Python objects of any precision."""
    return np.asarray(_exact(tensor.detach().double().numpy()), dtype=object)


def summed_to(array: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """What broadcasting `shape` has spread, added up again."""
    while array.ndim > len(shape):
        array = array.sum(axis=0)
    for axis, size in enumerate(shape):
        if size == 1 and array.shape[axis] != 1:
            array = array.sum(axis=axis, keepdims=True)
    return array


def attention(
    dot: np.ndarray | None, kept: np.ndarray, scale: Any, at: Arrays
) -> tuple[np.ndarray, Arrays]:
    """softmax(scale q kᵀ + bias) · kept · v, and its gradients for `at` = q, k, v[, bias].

    q: (…, L, E), k: (…, S, E), v: (…, S, F), bias, kept: (…, L, S), dot: (…, L, F). `kept` is what
    dropout multiplies by.
    """
    q, k, v, *bias = at
    scores = scale * np.matmul(q, k.swapaxes(-1, -2))
    if bias:
        scores = scores + bias[0]
    weights = _exp(scores - scores.max(axis=-1, keepdims=True))
    weights = weights / weights.sum(axis=-1, keepdims=True)
    used = weights * kept
    out = np.matmul(used, v)
    if dot is None:
        return out, []
    slope = np.matmul(dot, v.swapaxes(-1, -2)) * kept
    slope = weights * (slope - (weights * slope).sum(axis=-1, keepdims=True))
    grads = [
        scale * np.matmul(slope, k),
        scale * np.matmul(slope.swapaxes(-1, -2), q),
        np.matmul(used.swapaxes(-1, -2), dot),
        *[slope for _ in bias],
    ]
    return out, [summed_to(g, x.shape) for g, x in zip(grads, at, strict=True)]


def _dropout(case: checks.Case, fn: Callable[..., Any]) -> np.ndarray:
    """What dropout multiplies the weights by: read off the answer for equal weights and values
    that are an identity, which draws the same numbers."""
    inputs = case.load(grad=False)
    q, k, v = inputs.args
    eye = case.rt.eye(k.shape[-2], dtype=v.dtype).expand(*v.shape[:-1], k.shape[-2])
    seen = fn(q * 0, k * 0, eye, *inputs.args[3:], **inputs.kwargs)
    rate = inputs.kwargs.get("dropout_p", 0.0)
    return np.asarray(_exact((seen != 0).double().numpy()), dtype=object) / (1 - mpmath.mpf(rate))


def _attention(case: checks.Case, fn: Callable[..., Any]) -> dict[str, Arrays]:
    """Both gradients of scaled_dot_product_attention; nothing for forms that no sample has."""
    inputs = case.load(grad=True)
    named = dict(inputs.kwargs)
    bias, causal = named.pop("attn_mask", None), named.pop("is_causal", False)
    named.pop("dropout_p", None)
    sources = [t for t in inputs.tensors if t.requires_grad]
    given = [*inputs.args, *([] if bias is None else [bias])]
    if named or (causal and bias is not None) or [id(t) for t in sources] != [id(t) for t in given]:
        return {}
    at = [exact(t) for t in sources]
    kept = _dropout(case, fn)
    if causal:
        at.append(_exact(np.triu(np.full(kept.shape[-2:], -np.inf), 1)))
    scale = 1 / mpmath.sqrt(at[0].shape[-1])
    out = fn(*inputs.args, **inputs.kwargs)
    seed = 1000 * case.number
    dot = exact(checks.cotangent(case.rt, out, seed))
    along = [exact(checks.cotangent(case.rt, t, seed + 500 + i)) for i, t in enumerate(sources)]
    along += [np.zeros_like(a) for a in at[len(along) :]]
    value, grads = attention(dot, kept, scale, at)
    ends = [
        attention(dot, kept, scale, [a + sign * STEP * u for a, u in zip(at, along, strict=True)])
        for sign in (1, -1)
    ]
    (up, ups), (down, downs) = ends
    count = len(sources)
    again = [(a - b) / (2 * STEP) for a, b in zip(ups[:count], downs[:count], strict=True)]
    return {
        "forward": [value],
        "grad": grads[:count],
        "grad2": [*again, (up - down) / (2 * STEP)],
    }


TRUTHS = {"nn.functional.scaled_dot_product_attention": _attention}


def find(label: str, case: checks.Case, fn: Callable[..., Any]) -> dict[str, Any]:
    """`check → outcome` in float64, as a reference of less precise dtypes is recorded."""
    if label not in TRUTHS:
        return {}
    with mpmath.workdps(DIGITS):
        found = TRUTHS[label](case, fn)
        rounded = {
            check: [case.rt.from_numpy(np.array(a.astype(np.float64))) for a in arrays]
            for check, arrays in found.items()
        }
    outcomes = {check: [case.encode(t, case.load(grad=False)) for t in tensors]
                for check, tensors in rounded.items()}  # fmt: skip
    return {
        check: {"out": nodes[0] if check == "forward" else nodes}
        for check, nodes in outcomes.items()
    }
