"""Products of elementary reflections I - tau v vᴴ (Golub and Van Loan, "Matrix computations", 5.1):
what geqrf leaves of a QR factorisation, and what multiplies by it.

The i-th column of `input` below the diagonal is v_i, whose first i elements are 0 and whose next
one is 1.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from flambeau._src.core import dtype as dt
from flambeau._src.core import layout
from flambeau._src.core.interchange import array_of
from flambeau._src.core.slots import slot
from flambeau._src.core.tensor import Tensor
from flambeau._src.ops.call import aten
from flambeau._src.ops.factor import WIDE, check_implemented, columned, put
from flambeau._src.ops.kinds import Composite, Opaque, TensorSpec


def _steps(count: int, adjoint: bool) -> range:
    """The order in which the reflections of Q (of Qᴴ) meet what stands to their right."""
    return range(count) if adjoint else range(count - 1, -1, -1)


def _applied(a: Tensor, tau: Tensor, x: Tensor, adjoint: bool) -> Tensor:
    """Q X or Qᴴ X in terms of other operators."""
    for i in _steps(tau.shape[-1], adjoint):
        v, t = _vector(a, i), _scale(tau, i, adjoint)
        x = x - t * aten.matmul(v, aten.matmul(v.mH, x))
    return x


def _product(a: Tensor, tau: Tensor, c: Tensor, left: bool, adjoint: bool) -> Tensor:
    """The same from either side: C Q is (Qᴴ Cᴴ)ᴴ."""
    return _applied(a, tau, c, adjoint) if left else _applied(a, tau, c.mH, not adjoint).mH


def _scale(tau: Tensor, i: int, adjoint: bool) -> Tensor:
    t = aten.narrow(tau, -1, i, 1).unsqueeze(-1)
    return t.conj() if adjoint and tau.dtype.is_complex else t


def _identity(a: Tensor) -> Tensor:
    m, n = a.shape[-2:]
    return aten.eye(m, n, dtype=a.dtype, device=a.device).expand(a.shape)


def _by_columns(x: Tensor) -> Tensor:
    made: Tensor = aten.clone(x.mT, memory_format=layout.contiguous_format).mT
    return made


def _vector(a: Tensor, i: int) -> Tensor:
    """v_i as a column."""
    below = aten.narrow(aten.narrow(a, -1, i, 1), -2, i + 1, a.shape[-2] - i - 1)
    shape = [*a.shape[:-2], i, 1]
    one = a.new_ones([*a.shape[:-2], 1, 1])
    return aten.cat([a.new_zeros(shape), one, below], -2)


def _gradients(a: Any, tau: Any, x: Any, g: Any, adjoint: bool) -> tuple[Any, Any, Any]:
    """Gradients of a, tau and x from that of Q X (Qᴴ X), rounded once: the terms of a reflection's
    gradient cancel."""
    wide = WIDE.get(a.dtype)
    if wide is None:
        return _each(a, tau, x, g, adjoint)
    a_, tau_, x_ = _each(a.to(wide), tau.to(wide), x.to(wide), g.to(wide), adjoint)
    return a_.to(a.dtype), tau_.to(a.dtype), x_.to(a.dtype)


def _each(a: Any, tau: Any, x: Any, g: Any, adjoint: bool) -> tuple[Any, Any, Any]:
    """The same in one precision: every reflection's Y = X - t v (vᴴ X) is differentiated by
    itself."""
    mm = aten.matmul
    m, n, k = a.shape[-2], a.shape[-1], tau.shape[-1]
    done: list[tuple[int, Any, Any, Any]] = []
    for i in _steps(k, adjoint):
        v, t = _vector(a, i), _scale(tau, i, adjoint)
        done.append((i, v, t, x))
        x = x - t * mm(v, mm(v.mH, x))
    columns: list[Any] = [None] * k
    scales: list[Any] = [None] * k
    for i, v, t, y in reversed(done):
        w = mm(y.mH, v)
        gw = mm(g, w)
        scale = -mm(v.mH, gw)
        scales[i] = scale.conj() if adjoint and tau.dtype.is_complex else scale
        gv = -t.conj() * gw - t * mm(y, mm(g.mH, v))
        inner = aten.narrow(gv, -2, i + 1, m - i - 1)
        columns[i] = aten.cat([aten.zeros_like(aten.narrow(gv, -2, 0, i + 1)), inner], -2)
        g = g - t.conj() * mm(v, mm(v.mH, g))
    if not k:
        return aten.zeros_like(a), aten.zeros_like(tau), g
    columns += [aten.zeros_like(columns[0])] * (n - k)
    return aten.cat(columns, -1), aten.cat(scales, -2).squeeze(-1), g


def _check_tau(name: str, a: Tensor, tau: Tensor) -> None:
    if tau.dim() != a.dim() - 1:
        raise RuntimeError(
            f"{name}: Expected tau to have one dimension less than input, but got tau.ndim equal "
            f"to {tau.dim()} and input.ndim is equal to {a.dim()}"
        )
    _check_batch(name, "tau", tau.shape[:-1], a)


def _check_batch(name: str, what: str, batch: Sequence[int], a: Tensor) -> None:
    if tuple(batch) != tuple(a.shape[:-2]):
        raise RuntimeError(
            f"{name}: Expected batch dimensions of {what} to be equal to input.shape[:-2], but got "
            f"{list(batch)}"
        )


class Geqrf(Opaque):
    """R on and above the diagonal of `a`, below it and in tau the reflections whose product is Q
    with Q R = A. It has no gradient."""

    takes16 = False
    no_gradient = True
    schema = "geqrf(Tensor self) -> (Tensor a, Tensor tau)"
    out = "a"
    out_args = ("a", "tau")
    out_rows = True
    out_fresh = (0,)

    def meta(a: Tensor) -> Any:
        if a.dim() < 2:
            raise RuntimeError("torch.geqrf: input must have at least 2 dimensions.")
        check_implemented(a, "geqrf_cpu")
        *batch, m, n = a.shape
        return columned(a.shape, a), TensorSpec([*batch, min(m, n)], a.dtype, a.device)

    def kernel(outs: Any, a: Tensor) -> None:
        import numpy as np  # lazy: NumPy is heavy

        if a.numel():
            packed, tau = np.linalg.qr(array_of(a), "raw")
            put(outs[0], np.swapaxes(packed, -1, -2))
            put(outs[1], tau)

    def samples(s: Any) -> Iterator[Any]:
        for shape in ((4, 3), (2, 3, 4), (3, 0)):
            yield s.sample(s.tensor(shape))


class HouseholderProduct(Opaque):
    """The first n columns of the product of the reflections in `input` (..., m, n), tau (..., k);
    k ≤ n ≤ m."""

    takes16 = False
    schema = "linalg_householder_product(Tensor input, Tensor tau) -> Tensor"
    public = ""
    out = "out"
    out_rows = True
    out_fresh = (0,)
    saves_by = ("input", "tau")

    def meta(a: Tensor, tau: Tensor) -> TensorSpec:
        name = "torch.linalg.householder_product"
        if a.dim() < 2:
            raise RuntimeError(f"{name}: input must have at least 2 dimensions.")
        if a.shape[-2] < a.shape[-1]:
            raise RuntimeError(
                f"{name}: input.shape[-2] must be greater than or equal to input.shape[-1]"
            )
        if not tau.dim():
            raise IndexError("Dimension specified as -1 but tensor has no dimensions")
        if a.shape[-1] < tau.shape[-1]:
            raise RuntimeError(
                f"{name}: input.shape[-1] must be greater than or equal to tau.shape[-1]"
            )
        _check_tau(name, a, tau)
        if tau.dtype is not a.dtype:
            raise RuntimeError(
                f"{name}: tau dtype {dt.scalar_name(tau.dtype)} does not match input dtype "
                f"{dt.scalar_name(a.dtype)}"
            )
        check_implemented(a, "orgqr_cpu")
        return columned(a.shape, a)

    def kernel(out: Tensor, a: Tensor, tau: Tensor) -> None:
        slot("copy_into")(out, _applied(a, tau, _identity(a), False))

    def vjp(b: Any, g: Any, a: Any, tau: Any) -> Any:
        if not a.numel() or not tau.numel():
            return None, None
        # In Q's own layout, as a graph hands it on: the layout decides how products are rounded.
        return _gradients(a, tau, _identity(a), _by_columns(g), False)[:2]

    whole = True

    def decompose(a: Tensor, tau: Tensor) -> Tensor:
        HouseholderProduct.meta(a, tau)
        return _by_columns(_applied(a, tau, _identity(a), False))

    def samples(s: Any) -> Iterator[Any]:
        for shape, k in (((3, 3), 3), ((4, 3), 2), ((2, 4, 2), 2), ((3, 1), 1), ((3, 2), 0)):
            yield s.sample(s.tensor(shape), s.tensor((*shape[:-2], k)))

    def error_samples(s: Any) -> Iterator[Any]:
        yield s.error(
            RuntimeError, "greater than or equal to input.shape", s.tensor((2, 3)), s.tensor((2,))
        )


class Orgqr(Composite):
    """linalg.householder_product."""

    schema = "orgqr(Tensor self, Tensor input2) -> Tensor"
    out = "out"
    out_rows = True
    out_fresh = (0,)

    def decompose(a: Tensor, tau: Tensor) -> Tensor:
        return aten.linalg_householder_product(a, tau)


class Ormqr(Opaque):
    """Q times C (input3), C times Q when not `left`, or the same with Qᴴ when `transpose`; Q is the
    whole product of the reflections in input (..., m, k) and tau (input2)."""

    takes16 = False
    schema = (
        "ormqr(Tensor self, Tensor input2, Tensor input3, bool left=True, bool transpose=False) "
        "-> Tensor"
    )
    out = "out"
    out_rows = True
    out_fresh = (0,)
    saves_by = ("self", "input2", "input3")

    def meta(a: Tensor, tau: Tensor, c: Tensor, left: bool, transpose: bool) -> TensorSpec:
        name = "torch.ormqr"
        for what, t in (("input", a), ("other", c)):
            if t.dim() < 2:
                raise RuntimeError(f"{name}: {what} must have at least 2 dimensions.")
        side = -2 if left else -1
        if c.shape[side] < tau.shape[-1]:
            raise RuntimeError(
                f"{name}: other.shape[{side}] must be greater than or equal to tau.shape[-1]"
            )
        if c.shape[side] != a.shape[-2]:
            raise RuntimeError(f"{name}: other.shape[{side}] must be equal to input.shape[-2]")
        if tau.shape[-1] != min(c.shape[side], a.shape[-1]):
            raise RuntimeError(
                f"{name}: tau.shape[-1] must be equal to min(other.shape[{side}], input.shape[-1])"
            )
        _check_tau(name, a, tau)
        if c.dim() != a.dim():
            raise RuntimeError(
                f"{name}: Expected other to have the same number of dimensions as input, but got "
                f"other.ndim equal to {c.dim()} and input.ndim is equal to {a.dim()}"
            )
        _check_batch(name, "other", c.shape[:-2], a)
        for what, t in (("tau", tau), ("other", c)):
            if t.dtype is not a.dtype:
                raise RuntimeError(
                    f"{name}: Expected input and {what} to have the same dtype, but input has "
                    f"dtype{dt.scalar_name(a.dtype)} and {what} has dtype "
                    f"{dt.scalar_name(t.dtype)}"
                )
        check_implemented(a, "ormqr_cpu")
        return columned(c.shape, c)

    def kernel(out: Tensor, a: Tensor, tau: Tensor, c: Tensor, left: bool, adjoint: bool) -> None:
        slot("copy_into")(out, _product(a, tau, c, left, adjoint))

    whole = True

    def decompose(a: Tensor, tau: Tensor, c: Tensor, left: bool, adjoint: bool) -> Tensor:
        Ormqr.meta(a, tau, c, left, adjoint)
        return _by_columns(_product(a, tau, c, left, adjoint))

    def vjp(b: Any, g: Any, a: Any, tau: Any, c: Any, left: bool, adjoint: bool) -> Any:
        g = _by_columns(g)  # as above
        if not a.numel():
            return None, None, aten.ormqr(a, tau, g, left, not adjoint)
        if left:
            return _gradients(a, tau, c, g, adjoint)
        ga, gtau, gc = _gradients(a, tau, c.mH, g.mH, not adjoint)
        return ga, gtau, gc.mH

    def samples(s: Any) -> Iterator[Any]:
        for shape, other in (((3, 3), (3, 2)), ((4, 2), (4, 3)), ((2, 3, 1), (2, 3, 2))):
            tau = (*shape[:-2], min(shape[-2:]))
            for adjoint in (False, True):
                yield s.sample(s.tensor(shape), s.tensor(tau), s.tensor(other), True, adjoint)
            turned = (*other[:-2], other[-1], other[-2])
            yield s.sample(s.tensor(shape), s.tensor(tau), s.tensor(turned), False, False)
