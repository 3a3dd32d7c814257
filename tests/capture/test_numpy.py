"""NumPy in compiled code: the same values, dtypes and kinds as NumPy's own, in one graph."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import flambeau as torch
from flambeau._dynamo.testing import CompileCounterWithBackend

RNG = np.random.default_rng(0)
ARRAYS: dict[str, Any] = {
    "a": RNG.uniform(0.1, 0.9, (3, 4)),
    "b": RNG.uniform(0.1, 0.9, (3, 4)).astype(np.float32),
    "i": RNG.integers(1, 9, (3, 4)),
    "s": RNG.integers(1, 5, (3, 4)).astype(np.int16),
    "v": RNG.uniform(0.1, 0.9, 4),
    "m": RNG.uniform(0, 1, (3, 4)) > 0.5,
    "c": RNG.uniform(0, 1, (3, 4)) + 1j * RNG.uniform(0, 1, (3, 4)),
    "n": np.array([1.0, math.nan, -math.inf, 0.0]),
    "q": RNG.uniform(0, 1, (3, 3)),
    "h": RNG.uniform(0.1, 0.9, (3, 4)).astype(np.float16),
}

_ONE = (
    "sin cos tan arcsin arccos arctan sinh cosh tanh arcsinh arctanh exp exp2 expm1 log log2 log10 "
    "log1p sqrt cbrt square absolute abs fabs negative positive sign floor ceil trunc rint "
    "reciprocal isnan isinf isfinite signbit logical_not conjugate conj degrees radians rad2deg "
    "deg2rad"
).split()
_WHOLE = "sin exp sqrt square absolute negative sign floor rint logical_not isnan degrees".split()
_TWO = (
    "add subtract multiply divide true_divide floor_divide power float_power remainder mod fmod "
    "maximum minimum fmax fmin arctan2 hypot copysign nextafter logaddexp logaddexp2 equal "
    "not_equal less less_equal greater greater_equal logical_and logical_or logical_xor heaviside"
).split()
_BITS = "bitwise_and bitwise_or bitwise_xor left_shift right_shift gcd lcm".split()
_REDUCED = (
    "sum prod mean std var max min amax amin argmax argmin all any cumsum cumprod ptp median "
    "count_nonzero sort argsort nansum nanmean"
).split()
_METHODS = (
    "sum prod mean std var max min argmax argmin all any cumsum cumprod ravel flatten copy "
    "transpose argsort conj squeeze nonzero"
).split()

PROGRAMS = [
    *[f"np.{f}(a), np.{f}(b), np.{f}(h)" for f in _ONE],
    *[f"np.{f}(i), np.{f}(s), np.{f}(m.astype(int))" for f in _WHOLE],
    *[f"np.{f}(a, b), np.{f}(b, 2.5), np.{f}(2, b), np.{f}(b, s), np.{f}(a, v)" for f in _TWO],
    *[f"np.{f}(i, s), np.{f}(i, 3), np.{f}(s, 2)" for f in (*_BITS, "add", "floor_divide", "mod")],
    *[f"np.{f}(a), np.{f}(b, axis=0), np.{f}(i, axis=1), np.{f}(a, -1)" for f in _REDUCED],
    *[f"a.{f}(), b.{f}(), i.{f}()" for f in _METHODS],
    # operators
    "a + b, a - 1, 2 * b, a / i, i // 2, i % 3, b**2, 2.0**b, -a, abs(-b), +i, ~i, i & 1, i | s",
    "i ^ 3, i << 1, i >> 1, a < b, a <= 0.5, a == a, a != b, b > 0.3, i >= s, m & (a > 0.2), ~m",
    "a @ a.T, v @ a.T, a @ v, v @ v, divmod(i, 3)[0], divmod(i, 3)[1], 1 / i, 1 - b, 7 // i, s / s",
    "b * 2, b * 2.0, b * np.float64(2), b * np.float32(2), s + 1, s + np.int64(1), i * 1.5, m + 1",
    # items
    "a[0], a[0, 1], a[:, 1:3], a[..., 0], a[None], a[::2], a[-1, -1] * 2, a[0][1] + 1, a[[0, 2]]",
    "a[m], a[i % 3, 0], a[np.array([0, 1]), np.array([1, 2])], v[np.argsort(v)], a[0, ...], a[:0]",
    "a[1, 2].dtype, b[0, 0] + 1.5, type(a[0, 0]) is np.float64, isinstance(a[0, 0], np.floating)",
    # what it is
    "a.shape, a.ndim, a.size, a.dtype, b.dtype == np.float32, i.itemsize, a.nbytes, a.strides",
    "len(a)",
    "isinstance(a, np.ndarray), type(a) is np.ndarray, np.shape(a), np.ndim(a), np.size(a)",
    "np.size(a, 1)",
    "c.real, c.imag, a.real, np.real(c), np.imag(c), np.angle(c), np.abs(c), np.iscomplexobj(c)",
    "c.conj()",
    "a.T.shape, a.mT, hasattr(a, 'nothing'), a.tolist is not None, np.isscalar(a[0, 0])",
    "np.isscalar(a)",
    # shapes
    "a.reshape(4, 3), a.reshape((2, -1)), np.reshape(a, -1), np.ravel(a), a.swapaxes(0, 1)",
    "np.transpose(a), np.transpose(a, (1, 0)), np.moveaxis(a, 0, 1), np.swapaxes(a, 0, 1)",
    "a.transpose(1, 0)",
    "np.expand_dims(a, 0), np.expand_dims(a, (0, 3)), np.squeeze(a[None]), np.atleast_1d(v)",
    "np.atleast_2d(v)",
    "np.atleast_3d(v), np.broadcast_to(v, (3, 4)), np.flip(a), np.flip(a, 0), np.flipud(a)",
    "np.fliplr(a)",
    "np.roll(a, 1), np.roll(a, 1, axis=0), np.rot90(a), np.concatenate([a, b])",
    "np.concatenate((a, i), axis=1)",
    "np.concatenate([a, b], axis=None), np.stack([a, b]), np.stack([v, v], axis=1)",
    "np.hstack([a, b])",
    "np.vstack([a, v]), np.dstack([a, b]), np.column_stack([v, v]), np.append(v, 1.0)",
    "np.append(a, b, axis=0)",
    "np.split(v, 2), np.array_split(a, 2, axis=1), np.hsplit(a, 2), np.vsplit(a, 3)",
    "np.split(v, [1, 3])",
    "np.repeat(v, 2), np.repeat(a, 2, axis=0), np.tile(v, 2), np.tile(v, (2, 1)), v.repeat(3)",
    "np.pad(v, 1)",
    "np.pad(a, ((1, 0), (0, 2)), constant_values=3), np.broadcast_arrays(a, v)[1]",
    "np.meshgrid(v, v)[0]",
    # picked
    "np.where(a > 0.5, a, 0), np.where(m, b, 1.0), np.where(m, i, s), np.take(a, [0, 2])",
    "a.take([0, 1], axis=1)",
    "np.take_along_axis(a, np.argsort(a, axis=1), axis=1), np.clip(a, 0.2, 0.6), a.clip(0.3)",
    "np.clip(i, 2, None)",
    "np.clip(b, v, 1), a.clip(max=0.5), np.round(a, 2), a.round(), np.around(b, 1)",
    "np.nan_to_num(n), i.round()",
    "np.tril(a), np.triu(a, 1), np.diag(v), np.diag(a), np.diagonal(a), a.diagonal(1)",
    "np.trace(a), np.diagflat(v)",
    "np.nonzero(a > 0.5), np.flatnonzero(m), np.unique(i), np.bincount(i.ravel())",
    "np.unique(i, return_counts=True)[1]",
    "np.nansum(n), np.nanmean(n[:2]), np.nanargmax(n[:2]), np.isnan(n).any(), np.nancumsum(n[1:3])",
    # reductions with options
    "np.sum(a, axis=(0, 1)), a.sum(0, keepdims=True), b.sum(dtype=np.float64), s.sum(), m.sum()",
    "i.mean(), s.prod()",
    "a.std(ddof=1), np.var(b, axis=1, ddof=1), np.std(i), np.average(a, weights=a)",
    "np.average(a, axis=0, weights=[1, 2, 3])",
    "a.max(axis=1, keepdims=True), np.min(b), i.max(), np.argmax(a, axis=1), a.argmin(0)",
    "np.all(m, axis=0), m.any(1)",
    "np.median(a, axis=0), np.quantile(v, 0.3), np.percentile(a, [25, 75])",
    "np.percentile(a, 50, axis=1, keepdims=True)",
    "np.diff(v), np.diff(a, axis=0), np.searchsorted(np.sort(v), 0.5)",
    "np.digitize(v, np.array([0.2, 0.6])), np.sort(a, axis=0)",
    "np.cumsum(a), a.cumsum(1), np.cumprod(i, axis=0), np.isclose(a, a + 1e-9)",
    "np.count_nonzero(m, axis=1), np.ptp(a)",
    # products
    "np.dot(a, v), np.dot(v, v), a.dot(a.T), np.matmul(a, a.T), np.inner(a, b), np.outer(v, v)",
    "np.vdot(v, v)",
    "np.tensordot(a, a, axes=([1], [1])), np.einsum('ij,kj->ik', a, b), np.kron(v, v)",
    "np.cross(q, q[::-1])",
    "np.linalg.norm(a), np.linalg.norm(v, 1), np.linalg.norm(a, axis=1), np.linalg.det(q)",
    "np.linalg.inv(q)",
    "np.linalg.solve(q, q[0]), np.linalg.matrix_power(q, 2), np.linalg.norm(b), np.linalg.norm(i)",
    # made anew
    "np.zeros(3) + v[:3], np.ones((3, 4)) * a, np.full((2,), 3) + 1, np.full(2, 0.5)",
    "np.zeros_like(b), np.ones_like(i)",
    "np.full_like(a, 2), np.zeros_like(a, dtype=np.int32), np.empty_like(b).shape",
    "np.arange(4) * v, np.arange(1, 5, 2)",
    "np.arange(0.0, 1.0, 0.25), np.linspace(0, 1, 4) + v, np.linspace(0, 1, 4, endpoint=False)",
    "np.eye(3) @ q, np.identity(3)",
    "np.array([1, 2, 3, 4]) + v, np.array([a[0, 0], 1.0]), np.array([[1, 2], [3, 4]])",
    "np.asarray(a) is a, np.tri(3) * q",
    "np.array(a, dtype=np.float32), np.asarray([1, 2]), np.float32(a[0, 0]), np.eye(2, 3, 1)",
    "np.array(a) is a, np.copy(a)",
    "a.astype(np.float32), a.astype('int32'), i.astype(float), a.astype(bool)",
    "b.astype(np.float64).dtype, a.astype(complex)",
    # constants
    "np.pi * a, np.sqrt(2.0) * b, np.prod((2, 3)) + i, a / np.finfo(np.float32).eps",
    "np.log(10.0), np.e, a[np.newaxis].shape",
    "np.float32(3) * b, np.int64(2) * b, np.dtype('float32')",
    "np.result_type(np.int8, np.float32), np.issubdtype(a.dtype, np.floating)",
    "[x * 2 for x in v[:2]], sum(v[:3]), max(a.shape), {'k': a + 1}['k'], (lambda t: t + 1)(a)",
    "[r.sum() for r in a]",
    "torch.from_numpy(a) * 2, torch.as_tensor(b), torch.tensor(i)",
    "torch.from_numpy(a + 1).numpy() * 2, torch.asarray(v)",
    "t.numpy() + 1, torch.from_numpy(t.numpy() * b), t.detach().numpy().mean()",
    "(t * 2).numpy().max(axis=0)",
]  # fmt: skip


def same(x: Any, y: Any) -> str | None:
    """What tells two results apart."""
    if type(x) is not type(y):
        return f"{type(x)} and {type(y)}"
    if isinstance(x, torch.Tensor):
        x, y = x.numpy(), y.numpy()
    if isinstance(x, (tuple, list)):
        if len(x) != len(y):
            return "lengths"
        return next((d for d in map(same, x, y) if d), None)
    if isinstance(x, (np.ndarray, np.generic)):
        if x.dtype != y.dtype or x.shape != y.shape:
            return f"{x.dtype}{x.shape} and {y.dtype}{y.shape}"
        tolerance = {"e": 2e-3, "f": 2e-6, "F": 2e-6}.get(x.dtype.char, 1e-12)
        close = np.allclose(x, y, rtol=tolerance, atol=tolerance, equal_nan=True)
        return None if close else f"{x} and {y}"
    return None if x == y else f"{x} and {y}"


@pytest.mark.parametrize("text", PROGRAMS)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_program(text: str) -> None:
    torch._dynamo.reset()
    given = {**ARRAYS, "t": torch.from_numpy(ARRAYS["b"].copy())}
    source = f"def fn({', '.join(given)}):\n    return {text},"
    scope: dict[str, Any] = {"np": np, "torch": torch}
    exec(source, scope)
    fn = scope["fn"]
    expected = fn(*given.values())
    dynamic = {"capture_dynamic_output_shape_ops": True}
    with torch._dynamo.config.patch(dynamic):
        found = torch.compile(fn, backend="eager", fullgraph=True)(*given.values())
    for k, (x, y) in enumerate(zip(expected, found, strict=True)):
        assert not (why := same(x, y)), f"number {k}: {why}"


def _in_place(x: Any) -> Any:
    x += 1
    x[0] = 5
    x[1:] *= 2
    part = x[1:]
    part -= 1
    x.reshape(-1)[1] = 7
    np.add(x, 1, out=x)
    x.sort()
    return x, part.sum(), x[x > 2]


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_writes_are_seen_outside(backend: str) -> None:
    torch._dynamo.reset()
    counted = CompileCounterWithBackend(backend)
    compiled = torch.compile(_in_place, backend=counted)
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        for n in (4, 4, 5, 6):
            x, y = np.arange(float(n)), np.arange(float(n))
            found, expected = compiled(x), _in_place(y)
            assert found[0] is x and not same(found, expected) and not same(x, y)
    assert counted.frame_count == 2


def test_what_is_guarded() -> None:
    """Dtype and number of dimensions; sizes that change become symbols, strides are checked."""
    torch._dynamo.reset()
    counted = CompileCounterWithBackend("eager")
    compiled = torch.compile(lambda x, y: np.cos(x) + y, backend=counted)
    for x in (np.ones(3), np.ones(4), np.ones(7), np.ones(9)):
        assert not same(compiled(x, x), np.cos(x) + x)
    sizes = counted.frame_count
    assert not same(compiled(np.ones(9), np.zeros(9)), np.cos(np.ones(9)))  # two arrays now
    for x in (np.ones(3, "f4"), np.ones((2, 3)), np.ones((3, 4)).T, np.ones((6, 4))[::2]):
        assert not same(compiled(x, x), np.cos(x) + x)
    assert sizes == 2 and counted.frame_count >= 6


BREAKS = {
    "random numbers": (lambda x: x + np.random.rand(3) * 0, "numpy.random.rand draws"),
    "a generator": (lambda x: x + np.random.default_rng(0).random(3), "numpy.random"),
    "unknown": (lambda x: np.convolve(x, x), "numpy.convolve has no program of tensors"),
    "a method": (lambda x: x.tobytes(), "numpy.ndarray.tobytes has no program"),
    "an option": (lambda x: np.sum(x, where=x > 1), "called with where="),
    "objects": (lambda x: x.astype(object)[0], "object has no tensors|no program"),
    "a tensor": (lambda x: np.sin(torch.ones(3)), "A tensor is given"),
    "text": (lambda x: str(x), "made into text|Objects"),
}


@pytest.mark.parametrize("name", BREAKS)
def test_what_breaks_says_why(name: str) -> None:
    fn, reason = BREAKS[name]
    torch._dynamo.reset()
    x = np.arange(3.0)
    with pytest.raises(torch._dynamo.exc.Unsupported, match=reason):
        torch.compile(fn, backend="eager", fullgraph=True)(x)
    torch._dynamo.reset()
    assert not same(torch.compile(fn, backend="eager")(x), fn(x))


def test_errors_are_numpys_where_a_method_raises_them() -> None:
    torch._dynamo.reset()
    for fn in (lambda x: x.reshape(5), lambda x: x.nothing, lambda x: x.__iadd__(1j)):
        with pytest.raises((ValueError, AttributeError, TypeError)) as expected:
            fn(np.arange(3.0))
        with pytest.raises(expected.type):
            torch.compile(fn, backend="eager")(np.arange(3.0))


def test_it_can_be_switched_off() -> None:
    torch._dynamo.reset()
    with torch._dynamo.config.patch(trace_numpy=False):
        compiled = torch.compile(lambda x: np.sin(x), backend="eager", fullgraph=True)
        with pytest.raises(torch._dynamo.exc.Unsupported):
            compiled(np.ones(3))


def test_wrapped_functions_give_gradients() -> None:
    @torch.compiler.wrap_numpy
    def fn(x: Any, y: Any) -> Any:
        return np.sum(x[:, :, None] * y[:, None, :], axis=(-2, -1)), np.mean(x)

    torch._dynamo.reset()
    x, y = torch.ones(3, 4, requires_grad=True), torch.arange(12.0).reshape(3, 4)
    out, mean = torch.compile(fn, fullgraph=True)(x, y)
    (out.sum() + mean).backward()
    assert torch.allclose(out, fn(x.detach(), y)[0])
    assert torch.allclose(x.grad, y.sum(1, keepdim=True).expand(3, 4) + 1 / 12)


def test_a_break_between() -> None:
    def fn(x: Any, table: Any) -> Any:
        y = np.cos(x) * table["w"]
        table["w"] = y
        torch._dynamo.graph_break()
        return y.max() + x, table

    torch._dynamo.reset()
    x = np.arange(3.0)
    found = torch.compile(fn, backend="eager")(x, {"w": x + 1})
    expected = fn(x, {"w": x + 1})
    assert not same(found[0], expected[0]) and not same(found[1]["w"], expected[1]["w"])
