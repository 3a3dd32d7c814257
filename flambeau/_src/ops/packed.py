"""Which kernels the prebuilt pack holds: those of the common operators on small tensors."""

from __future__ import annotations

from typing import Any

from flambeau._src.core import dtype as dt
from flambeau._src.core.slots import SLOTS, fill
from flambeau._src.ops import kinds
from flambeau._src.ops.call import aten


def kernel_requests() -> list[tuple[Any, ...]]:
    """The kernels that are built with the package: what calling the common operators on small
    tensors asks for. Each is (name, expr, kind, inputs, outputs, number of parameters, their
    kinds)."""
    found: dict[Any, tuple[Any, ...]] = {}

    def collect(name: str, expr: Any, kind: str, ins: Any, outs: Any, kinds: Any, key: Any) -> None:
        found.setdefault(
            (name, kind, ins, outs, len(kinds)),
            (name, expr, kind, ins, outs, len(kinds), kinds or None),
        )

    def nothing(*args: Any) -> None:
        return None

    before = {k: SLOTS[k] for k in ("kernel_address", "evaluate")}
    fill("kernel_address", collect)
    fill("evaluate", nothing)
    try:
        for d in (dt.float32, dt.float64, dt.bfloat16):
            _call_all(d)
        for d in (dt.int64, dt.int32, dt.bool_, dt.uint8):
            _call_exact(d)
        _call_casts()
    finally:
        for k, f in before.items():
            fill(k, f)
        kinds.forget_kernels()
    return list(found.values())


_FLOATS = (
    "exp log log1p expm1 sqrt rsqrt sin cos tanh sigmoid erf relu gelu silu neg abs floor round "
    "reciprocal isnan isfinite sign"
).split()
_PAIRS = "add sub mul div maximum minimum pow eq ne lt le gt ge".split()
_REDUCED = "sum mean amax amin logsumexp".split()


def _quietly(function: Any, *args: Any, **kwargs: Any) -> None:
    try:
        function(*args, **kwargs)
    except (RuntimeError, TypeError, NotImplementedError, AttributeError):
        return


_WINDOWS = ([1, 1], [1, 1], [1, 1], False, [0, 0], 1)  # of three by three, zeros around


def _call_all(d: Any) -> None:
    """The common operators in one floating dtype."""
    x, y, m = (aten.ones((4, 4), dtype=d) for _ in range(3))
    images, window = aten.ones((1, 4, 8, 8), dtype=d), aten.ones((4, 4, 3, 3), dtype=d)
    heads, rows = aten.ones((1, 2, 64, 32), dtype=d), aten.ones((1, 2, 64), dtype=d)
    for name in _FLOATS:
        _quietly(getattr(aten, name), x)
    _call_pairs(x, y)
    for name in _REDUCED:
        _quietly(getattr(aten, name), x, [1])
    for call in (
        lambda: aten.sum(x),
        lambda: aten.max(x, 1),
        lambda: aten.argmax(x, 1),
        lambda: aten.var_mean(x, [1], correction=0),
        lambda: aten._softmax(x, 1, False),
        lambda: aten._log_softmax(x, 1, False),
        lambda: aten.cumsum(x, 1),
        lambda: aten._softmax_backward_data(x, y, 1, d),
        lambda: aten._log_softmax_backward_data(x, y, 1, d),
        lambda: aten.native_layer_norm(x, [4], y[0], m[0], 1e-5),
        lambda: aten.native_layer_norm(x, [4], y[0], None, 1e-5),
        lambda: aten.native_layer_norm(x, [4], None, None, 1e-5),
        lambda: aten.native_layer_norm_backward(
            x, y, [4], m[:, :1], m[:, 1:2], y[0], m[0], [True, True, True]
        ),
        lambda: aten._scaled_dot_product_flash_attention_for_cpu(heads, heads, heads),
        lambda: aten.convolution(images, window, None, *_WINDOWS),
        lambda: aten.convolution_backward(
            images, images, window, None, *_WINDOWS, [True, True, False]
        ),
        lambda: aten.native_batch_norm(
            images, y[0], m[0], aten.zeros_like(y[0]), aten.ones_like(y[0]), True, 0.1, 1e-5
        ),
        lambda: aten.native_batch_norm_backward(
            images, images, y[0], None, None, y[0], m[0], True, 1e-5, [True, True, True]
        ),
        lambda: aten._scaled_dot_product_flash_attention_for_cpu_backward(
            heads, heads, heads, heads, heads, rows, 0.0, False
        ),
        lambda: aten.threshold_backward(x, y, 0),
        lambda: aten.tanh_backward(x, y),
        lambda: aten.sigmoid_backward(x, y),
        lambda: aten.gelu_backward(x, y),
        lambda: aten.gelu(x, approximate="tanh"),
        lambda: aten.gelu_backward(x, y, approximate="tanh"),
        lambda: aten.silu_backward(x, y),
        lambda: aten.where(x > 0, x, y),
        lambda: aten.masked_fill(x, x > 0, 0.0),
        lambda: aten.clamp(x, 0.0, 1.0),
        lambda: aten.clamp(x, min=0.0),
        lambda: aten.addcmul(x, y, m),
        lambda: aten.addcdiv(x, y, m),
        lambda: aten.lerp(x, y, 0.5),
        lambda: aten.pow(x, 2),
        lambda: aten.pow(x, 3),
        lambda: aten.rsub(x, 1.0),
    ):
        _quietly(call)


def _call_pairs(x: Any, y: Any) -> None:
    for name in _PAIRS:
        _quietly(getattr(aten, name), x, y)
        _quietly(getattr(aten, name), x, 2.0 if x.dtype.is_floating_point else 2)


def _call_exact(d: Any) -> None:
    """The common operators on integers and truth values."""
    x, y = (aten.ones((4, 4), dtype=d) for _ in range(2))
    _call_pairs(x, y)
    for call in (
        lambda: aten.sum(x),
        lambda: aten.sum(x, [1]),
        lambda: aten.any(x),
        lambda: aten.all(x),
        lambda: aten.bitwise_and(x, y),
        lambda: aten.bitwise_or(x, y),
        lambda: aten.bitwise_not(x),
        lambda: aten.logical_not(x),
        lambda: aten.logical_and(x, y),
        lambda: aten.max(x, 1),
        lambda: aten.argmax(x, 1),
        lambda: aten.cumsum(x, 1),
        lambda: aten.where(x > 0, x, y),
    ):
        _quietly(call)


def _call_casts() -> None:
    """Copies between the common dtypes."""
    names = (
        dt.float32,
        dt.float64,
        dt.bfloat16,
        dt.float16,
        dt.int64,
        dt.int32,
        dt.uint8,
        dt.bool_,
    )
    for a in names:
        x = aten.ones((4, 4), dtype=a)
        for b in names:
            _quietly(aten._to_copy, x, dtype=b)
