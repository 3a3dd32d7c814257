"""Products of vectors and matrices, and linear algebra."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import flambeau as torch
from flambeau._numpy import facts
from flambeau._numpy.array import ndarray, tensor_of, wrapped

__all__ = ["FUNCTIONS", "LINEAR"]


def _pair(a: Any, b: Any) -> tuple[Any, Any]:
    x, y = tensor_of(a), tensor_of(b)
    dtype = facts.promoted(x.dtype, y.dtype)
    return x.to(dtype), y.to(dtype)


def matmul(a: Any, b: Any, **kwargs: Any) -> Any:
    """The matrix product of the last two dimensions."""
    x, y = _pair(a, b)
    if not x.dim() or not y.dim():
        raise ValueError("matmul: Input operand does not have enough dimensions")
    return wrapped(torch.matmul(x, y))


def dot(a: Any, b: Any, out: Any = None) -> Any:
    """The sum over the last axis of a and the last but one of b."""
    x, y = _pair(a, b)
    if not x.dim() or not y.dim():
        return wrapped(x * y)
    if x.dim() <= 2 and y.dim() <= 2:
        return wrapped(torch.matmul(x, y))
    return ndarray(torch.tensordot(x, y, ([-1], [-2 if y.dim() > 1 else 0])))


def inner(a: Any, b: Any) -> Any:
    """The sum over the last axes."""
    x, y = _pair(a, b)
    return wrapped(torch.inner(x, y))


def vdot(a: Any, b: Any) -> Any:
    """The dot product of all elements, of the first conjugated."""
    x, y = _pair(a, b)
    return wrapped(torch.dot(x.reshape(-1).conj_physical(), y.reshape(-1)))


def outer(a: Any, b: Any, out: Any = None) -> Any:
    """All products of an element of a and one of b."""
    x, y = _pair(a, b)
    return ndarray(torch.outer(x.reshape(-1), y.reshape(-1)))


def tensordot(a: Any, b: Any, axes: Any = 2) -> Any:
    """The sum over several axes."""
    x, y = _pair(a, b)
    if isinstance(axes, (tuple, list)):
        axes = [[n] if isinstance(n, int) else list(n) for n in axes]
    return wrapped(torch.tensordot(x, y, axes))


def einsum(subscripts: Any, *operands: Any, **kwargs: Any) -> Any:
    """Sums of products in Einstein's notation."""
    made = [tensor_of(x) for x in operands]
    dtype = facts.promoted(*[t.dtype for t in made])
    return wrapped(torch.einsum(subscripts, *[t.to(dtype) for t in made]))


def kron(a: Any, b: Any) -> Any:
    """The Kronecker product."""
    return ndarray(torch.kron(*_pair(a, b)))


def cross(a: Any, b: Any, **kwargs: Any) -> Any:
    """The vector product."""
    if kwargs:
        facts.refuse("numpy.cross is called with axes.")
    x, y = _pair(a, b)
    if x.shape[-1] != 3 or y.shape[-1] != 3:
        facts.refuse("numpy.cross is called with vectors of two elements.")
    return ndarray(torch.linalg.cross(*torch.broadcast_tensors(x, y)))


def trace(a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1, **kwargs: Any) -> Any:
    """The sum along the diagonal."""
    return wrapped(torch.diagonal(tensor_of(a), offset, axis1, axis2).sum(-1))


def _floats(a: Any) -> Any:
    t = tensor_of(a)
    return t if t.is_floating_point() or t.is_complex() else t.to(torch.float64)


def norm(x: Any, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Any:
    """A vector's or a matrix's norm."""
    t = _floats(x)
    if axis is None and (ord is None or (t.dim() == 1 and ord == 2)):
        found = torch.sqrt((t * t.conj()).real.sum() if t.is_complex() else (t * t).sum())
        return wrapped(found.reshape([1] * t.dim()) if keepdims else found)
    return wrapped(torch.linalg.norm(t, ord, axis, keepdims))


def _of_one(function: Callable[..., Any]) -> Callable[..., Any]:
    def of_one(a: Any) -> Any:
        return wrapped(function(_floats(a)))

    return of_one


def solve(a: Any, b: Any) -> Any:
    """x with `a @ x == b`."""
    x, y = _floats(a), _floats(b)
    dtype = facts.promoted(x.dtype, y.dtype)
    return ndarray(torch.linalg.solve(x.to(dtype), y.to(dtype)))


def matrix_power(a: Any, n: int) -> Any:
    """A square matrix multiplied with itself."""
    return ndarray(torch.linalg.matrix_power(tensor_of(a), n))


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "matmul": matmul, "dot": dot, "inner": inner, "vdot": vdot, "outer": outer,
    "tensordot": tensordot, "einsum": einsum, "kron": kron, "cross": cross, "trace": trace,
}  # fmt: skip
LINEAR: dict[str, Callable[..., Any]] = {
    "norm": norm, "solve": solve, "matrix_power": matrix_power, "inv": _of_one(torch.linalg.inv),
    "det": _of_one(torch.linalg.det), "cholesky": _of_one(torch.linalg.cholesky),
    "pinv": _of_one(torch.linalg.pinv), "eigvalsh": _of_one(torch.linalg.eigvalsh),
}  # fmt: skip


def _reflected(a: Any, b: Any) -> Any:
    return matmul(b, a)


for _name, _function in {
    "__matmul__": matmul, "__rmatmul__": _reflected, "dot": dot, "trace": trace,
}.items():  # fmt: skip
    setattr(ndarray, _name, _function)
