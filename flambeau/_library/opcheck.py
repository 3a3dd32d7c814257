"""`opcheck`: whether an operator's registrations agree with each other on sample arguments."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import flambeau as torch
from flambeau._library.custom_ops import CustomOpDef
from flambeau._src.interp.fake import FakeTensorMode
from flambeau._src.ops.overload import OpOverload, OpOverloadPacket
from flambeau.utils import _pytree as pytree

__all__ = ["OpCheckError", "opcheck"]

_ALL = ("test_schema", "test_autograd_registration", "test_faketensor", "test_aot_dispatch_dynamic")


class OpCheckError(Exception):
    """A registration does not agree with what the operator does."""


def opcheck(
    op: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any] | None = None,
    *,
    test_utils: str | Sequence[str] = _ALL,
    raise_exception: bool = True,
    atol: float | None = None,
    rtol: float | None = None,
) -> dict[str, Any]:
    """Check an operator on sample arguments; returns "SUCCESS" or the error, by check.

    test_schema: writes and aliases are those that the schema names. test_autograd_registration:
    gradients flow where they should. test_faketensor: the fake run gives the geometry of the real
    one. test_aot_dispatch_dynamic: compiled, it gives the same results and gradients. OpCheckError
    at the first that fails, unless `raise_exception` is False.
    """
    func = (
        op._opoverload
        if isinstance(op, CustomOpDef)
        else op.default
        if isinstance(op, OpOverloadPacket)
        else op
    )
    if not isinstance(func, OpOverload):
        raise ValueError(
            "opcheck(op, ...): op must be instance of torch._ops.OpOverload or CustomOpDef, got "
            f"{type(op)}"
        )
    wanted = (test_utils,) if isinstance(test_utils, str) else tuple(test_utils)
    unknown = set(wanted) - set(_CHECKS)
    if unknown:
        raise ValueError(
            f"opcheck(op, ..., test_utils={test_utils}): expected test_utils to be subset of "
            f"{_ALL}, but got {unknown}"
        )
    results: dict[str, Any] = {}
    for name in wanted:
        try:
            _CHECKS[name](func, args, kwargs or {}, atol, rtol)
            results[name] = "SUCCESS"
        except Exception as error:
            if raise_exception:
                raise OpCheckError(
                    f"opcheck(op, ...): {name} failed with {error} (scroll up for stack trace)"
                ) from error
            results[name] = error
    return results


def _copied(tree: Any) -> Any:
    def copy(t: Any) -> Any:
        made = t.detach().clone()
        return made.requires_grad_(t.requires_grad)

    return pytree.tree_map_only(torch.Tensor, copy, tree)


def _tensors(tree: Any) -> list[torch.Tensor]:
    return [v for v in pytree.tree_leaves(tree) if isinstance(v, torch.Tensor)]


def _schema(func: OpOverload, args: Any, kwargs: Any, atol: Any, rtol: Any) -> None:
    given = _copied((args, kwargs))
    before = _copied(given)
    with torch.no_grad():
        out = func(*given[0], **given[1])
    schema = func._schema
    names = [a.name for a in schema.arguments]
    places = [*zip(names, given[0], strict=False), *given[1].items()]
    olds = [*zip(names, before[0], strict=False), *before[1].items()]
    writes = {a.name for a in schema.arguments if a.is_write}
    for (name, new), (_, old) in zip(places, olds, strict=True):
        changed = any(
            not torch.equal(a, b) for a, b in zip(_tensors(new), _tensors(old), strict=True)
        )
        if changed and name not in writes:
            raise RuntimeError(f"Argument {name} is not defined as mutable but was mutated")
    cells = {id(t.untyped_storage()) for t in _tensors(given)}
    aliasing = any(r.alias_info for r in schema.returns)
    if not aliasing and any(id(t.untyped_storage()) in cells for t in _tensors(out)):
        raise RuntimeError("Argument is not defined to alias output but was aliasing")


def _autograd(func: OpOverload, args: Any, kwargs: Any, atol: Any, rtol: Any) -> None:
    given = _copied((args, kwargs))
    if not any(t.requires_grad for t in _tensors(given)):
        return
    out = func(*given[0], **given[1])
    if not any(t.requires_grad for t in _tensors(out)):
        raise AssertionError(
            f"{func} was given inputs that require gradients, but none of its outputs does: no "
            "autograd formula is registered"
        )


def _faketensor(func: OpOverload, args: Any, kwargs: Any, atol: Any, rtol: Any) -> None:
    given = _copied((args, kwargs))
    mode = FakeTensorMode()
    fake_args, fake_kwargs = pytree.tree_map_only(torch.Tensor, mode.from_tensor, given)
    with mode, torch.no_grad():
        fakes = _tensors(func(*fake_args, **fake_kwargs))
    with torch.no_grad():
        reals = _tensors(func(*given[0], **given[1]))
    if len(fakes) != len(reals):
        raise AssertionError(f"the fake run gives {len(fakes)} tensors, the real one {len(reals)}")
    for f, r in zip(fakes, reals, strict=True):
        for what, a, b in (
            ("shape", f.shape, r.shape),
            ("dtype", f.dtype, r.dtype),
            ("strides", f.stride(), r.stride()),
        ):
            if a != b:
                raise AssertionError(f"{what} of the fake run {a}, of the real one {b}")


def _compiled(func: OpOverload, args: Any, kwargs: Any, atol: Any, rtol: Any) -> None:
    from flambeau._functorch.aot_autograd import aot_function  # lazy: the compiler is heavy

    def run(wrap: Any) -> list[torch.Tensor]:
        given = _copied((args, kwargs))
        outs = _tensors(wrap(lambda a, k: func(*a, **k))(*given))
        grown = [t for t in outs if t.requires_grad]
        leaves = [t for t in _tensors(given) if t.requires_grad]
        grads = (
            torch.autograd.grad(
                grown, leaves, [torch.ones_like(t) for t in grown], allow_unused=True
            )
            if grown and leaves
            else ()
        )
        return [*outs, *[g for g in grads if g is not None], *_tensors(given)]

    options = {k: v for k, v in (("atol", atol), ("rtol", rtol)) if v is not None}
    for a, b in zip(run(lambda f: f), run(lambda f: aot_function(f, _run_as_is)), strict=True):
        if not torch.allclose(a, b, equal_nan=True, **options):
            raise AssertionError(
                "the compiled operator gives other values than the operator itself"
            )


def _run_as_is(module: Any, inputs: Any) -> Any:
    return module


_CHECKS: dict[str, Callable[..., None]] = {
    "test_schema": _schema, "test_autograd_registration": _autograd, "test_faketensor": _faketensor,
    "test_aot_dispatch_dynamic": _compiled, "test_aot_dispatch_static": _compiled,
}  # fmt: skip
