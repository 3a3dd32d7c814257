"""Products with Jacobians and Hessians of functions, and the matrices themselves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import flambeau as torch
from flambeau import Tensor
from flambeau._src.autograd import transforms

__all__ = ["hessian", "hvp", "jacobian", "jvp", "vhp", "vjp"]

_STRICT = "This is not allowed in strict mode"


def _as_tuple(inp: Any, arg_name: str, fn_name: str) -> tuple[bool, tuple[Tensor, ...]]:
    """Whether inp was a tuple, and it as one."""
    is_tuple = isinstance(inp, tuple)
    items = inp if is_tuple else (inp,)
    for i, item in enumerate(items):
        if not isinstance(item, Tensor):
            if is_tuple:
                raise TypeError(
                    f"The {arg_name} given to {fn_name} must be either a Tensor or a tuple of "
                    f"Tensors but the value at index {i} has type {type(item)}."
                )
            raise TypeError(
                f"The {arg_name} given to {fn_name} must be either a Tensor or a tuple of Tensors "
                f"but the given {arg_name} has type {type(item)}."
            )
    return is_tuple, items


def _unpacked(values: Sequence[Any], is_tuple: bool) -> Any:
    return tuple(values) if is_tuple else values[0]


def _prepared(
    inputs: Sequence[Tensor], create_graph: bool, need_graph: bool = True
) -> tuple[Tensor, ...]:
    """Inputs of which gradients can be taken, apart from the user's own."""
    result = []
    for x in inputs:
        if create_graph and x.requires_grad:
            result.append(x.view_as(x))
        else:
            result.append(x.detach().requires_grad_(need_graph))
    return tuple(result)


def _finished(values: Any, create_graph: bool) -> Any:
    """Results without history, unless create_graph."""
    if create_graph:
        return values
    if isinstance(values, tuple):
        return tuple(_finished(v, False) for v in values)
    return values.detach()


def _check_v(v: Sequence[Tensor], other: Sequence[Tensor], is_tuple: bool) -> None:
    if len(other) != len(v):
        if is_tuple:
            raise RuntimeError(
                f"v is a tuple of invalid length: should be {len(other)} but got {len(v)}."
            )
        raise RuntimeError("The given v should contain a single Tensor.")
    for i, (a, b) in enumerate(zip(v, other, strict=True)):
        if a.size() != b.size():
            where = f"Entry {i} in " if is_tuple else ""
            raise RuntimeError(
                f"{where}v has invalid size: should be {b.size()} but got {a.size()}."
            )


def _check_depends(values: Sequence[Any], what: str, strict: bool) -> None:
    """In strict mode all values must have a history."""
    if not strict:
        return
    for i, value in enumerate(values):
        if value is None:
            raise RuntimeError(
                f"The output of the user-provided function is independent of input {i}. {_STRICT}."
            )
        if value.requires_grad:
            continue
        if what == "hessian":
            raise RuntimeError(
                f"The hessian of the user-provided function with respect to input {i} is "
                f"independent of the input. {_STRICT}. You should ensure that your function is "
                "thrice differentiable and that the hessian depends on the inputs."
            )
        if what == "jacobian":
            raise RuntimeError(
                "While computing the hessian, found that the jacobian of the user-provided "
                f"function with respect to input {i} is independent of the input. {_STRICT}. You "
                "should ensure that your function is twice differentiable and that the jacobian "
                "depends on the inputs (this would be violated by a linear function for example)."
            )
        if what == "grad_inputs":
            raise RuntimeError(
                f"The gradient with respect to input {i} is independent of the inputs of the "
                f"user-provided function. {_STRICT}."
            )
        raise RuntimeError(
            f"Output {i} of the user-provided function does not require gradients. The outputs "
            "must be computed in a differentiable manner from the input when running in strict "
            "mode."
        )


def _gradients(
    outputs: Sequence[Tensor], inputs: Sequence[Tensor], grads: Sequence[Any] | None = None,
    create_graph: bool = False, retain_graph: bool | None = None,
) -> tuple[Any, ...]:  # fmt: skip
    """autograd.grad that leaves out outputs without history."""
    grads = (None,) * len(outputs) if grads is None else grads
    kept = [
        (o, g) for o, g in zip(outputs, grads, strict=True) if o is not None and o.requires_grad
    ]
    if not kept:
        return (None,) * len(inputs)
    return torch.autograd.grad(
        [o for o, _ in kept], inputs, [g for _, g in kept], allow_unused=True,
        create_graph=create_graph, retain_graph=retain_graph,
    )  # fmt: skip


_STAGES = {
    "back": "The output of the user-provided function is independent of input "
            "{i}. " + _STRICT + ".",
    "back_trick": "The gradient with respect to the input is independent of entry {i} in the "
                  "grad_outputs "
    "when using the double backward trick to compute forward mode gradients. " + _STRICT + ".",
    "double_back": "The jacobian of the user-provided function is independent of input "
                   "{i}. " + _STRICT + ".",
    "double_back_trick": "The hessian of the user-provided function is independent of entry {i} in "
                         "the "
    "grad_jacobian. " + _STRICT + " as it prevents from using the double backward trick to replace "
    "forward mode AD.",
}  # fmt: skip
_LATER = {
    "back": "The jacobian of the user-provided function is independent of input {i}. " + _STRICT
    + " when create_graph=True.",
    "back_trick": "The gradient with respect to the input is independent of entry {i} in the "
                  "grad_outputs "
    "when using the double backward trick to compute forward mode gradients. " + _STRICT + ".",
    "double_back": "The hessian of the user-provided function is independent of input "
                   "{i}. " + _STRICT
    + " when create_graph=True.",
    "double_back_trick": "The hessian of the user-provided function is independent of input {i}. "
    + _STRICT + " when create_graph=True.",
}  # fmt: skip


def _filled(
    grads: Sequence[Any], refs: Sequence[Tensor], strict: bool, create_graph: bool, stage: str
) -> tuple[Tensor, ...]:
    """Zeros for missing gradients; in strict mode those are errors."""
    result = []
    for i, g in enumerate(grads):
        if g is None:
            if strict:
                raise RuntimeError(_STAGES[stage].format(i=i))
            g = torch.zeros_like(refs[i])
        elif strict and create_graph and not g.requires_grad:
            raise RuntimeError(_LATER[stage].format(i=i))
        result.append(g)
    return tuple(result)


def _vector(v: Any, refs: Sequence[Tensor], is_tuple: bool, fn_name: str, what: str) -> Any:
    """v checked, or None when refs are a single number."""
    if v is not None:
        _, v = _as_tuple(v, "v", fn_name)
        v = _prepared(v, False, False)
        _check_v(v, refs, is_tuple)
        return v
    if len(refs) != 1 or refs[0].nelement() != 1:
        raise RuntimeError(
            f"The vector v can only be None if {what} a single Tensor with a single element."
        )
    return None


def vjp(
    func: Callable[..., Any],
    inputs: Any,
    v: Any = None,
    create_graph: bool = False,
    strict: bool = False,
) -> tuple[Any, Any]:
    """func's outputs and the product of v with its Jacobian.

    Args:
        func: from tensors to a tensor or a tuple of tensors.
        inputs: a tensor or a tuple.
        v: of the shape of the outputs; may be left out when that is one number.
        create_graph: make the results differentiable.
        strict: raise when an output does not depend on an input, instead of zeros.
    """
    with torch.enable_grad():
        is_tuple, ins = _as_tuple(inputs, "inputs", "vjp")
        ins = _prepared(ins, create_graph)
        outputs = func(*ins)
        is_out_tuple, outs = _as_tuple(outputs, "outputs of the user-provided function", "vjp")
        _check_depends(outs, "outputs", strict)
        vector = _vector(v, outs, is_out_tuple, "vjp", "the user-provided function returns")
    with torch.set_grad_enabled(create_graph or torch.is_grad_enabled()):
        found = _gradients(outs, ins, vector, create_graph=create_graph)
        products = _filled(found, ins, strict, create_graph, "back")
    return (
        _unpacked(_finished(outs, create_graph), is_out_tuple),
        _unpacked(_finished(products, create_graph), is_tuple),
    )


def jvp(
    func: Callable[..., Any],
    inputs: Any,
    v: Any = None,
    create_graph: bool = False,
    strict: bool = False,
) -> tuple[Any, Any]:
    """func's outputs and the product of its Jacobian with v, by two backwards.

    Args as `vjp`; v has the shape of the inputs.
    """
    with torch.enable_grad():
        is_tuple, ins = _as_tuple(inputs, "inputs", "jvp")
        ins = _prepared(ins, create_graph)
        vector = _vector(v, ins, is_tuple, "jvp", "the input to the user-provided function is")
        outputs = func(*ins)
        is_out_tuple, outs = _as_tuple(outputs, "outputs of the user-provided function", "jvp")
        _check_depends(outs, "outputs", strict)
        # The gradient is linear in what comes in: its gradient by that is the product wanted.
        seeds = tuple(torch.zeros_like(o, requires_grad=True) for o in outs)
        grads = _gradients(outs, ins, seeds, create_graph=True)
        _check_depends(grads, "grad_inputs", strict)
    if create_graph:
        with torch.enable_grad():
            found = _gradients(grads, seeds, vector, create_graph=create_graph)
            products = _filled(found, outs, strict, create_graph, "back_trick")
    else:
        found = _gradients(grads, seeds, vector)
        products = _filled(found, outs, strict, create_graph, "back_trick")
    return (
        _unpacked(_finished(outs, create_graph), is_out_tuple),
        _unpacked(_finished(products, create_graph), is_out_tuple),
    )


def _basis(tensors: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """For each tensor, stacked: the unit vectors of all tensors together, seen by this one."""
    total = sum(t.numel() for t in tensors)
    result, at = [], 0
    for t in tensors:
        block = torch.zeros(total, t.numel(), dtype=t.dtype, device=t.device)
        block.diagonal(-at).fill_(1)
        at += t.numel()
        result.append(block.view(total, *t.shape))
    return tuple(result)


def _forward_jacobian(func: Callable[..., Any], inputs: Any) -> Any:
    is_tuple, ins = _as_tuple(inputs, "inputs", "jacobian")
    ad = torch.autograd.forward_ad
    info: list[Any] = []

    def column(tangents: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        with ad.dual_level():
            duals = tuple(ad.make_dual(x, t.view_as(x)) for x, t in zip(ins, tangents, strict=True))
            info[:] = _as_tuple(func(*duals), "outputs", "jacobian")
            found = []
            for dual in info[1]:
                primal, tangent = ad.unpack_dual(dual)
                found.append(torch.zeros_like(primal) if tangent is None else tangent)
            info[1] = tuple(ad.unpack_dual(d)[0] for d in info[1])
            return tuple(found)

    columns = torch.vmap(column)(_basis(ins))
    is_out_tuple, outs = info
    sizes = [x.numel() for x in ins]
    rows = []
    for block, o in zip(columns, outs, strict=True):
        parts = block.split(sizes, 0)
        rows.append(
            tuple(
                p.permute(*range(1, p.dim()), 0).reshape(*o.shape, *x.shape)
                for p, x in zip(parts, ins, strict=True)
            )
        )
    return _unpacked([_unpacked(r, is_tuple) for r in rows], is_out_tuple)


def jacobian(
    func: Callable[..., Any], inputs: Any, create_graph: bool = False, strict: bool = False,
    vectorize: bool = False, strategy: str = "reverse-mode",
) -> Any:  # fmt: skip
    """func's Jacobian: for output o and input x a tensor of shape (*o.shape, *x.shape).

    Args:
        func, inputs, create_graph, strict: as in `vjp`.
        vectorize: all rows (or columns) in one go, by `vmap`.
        strategy: "reverse-mode", or "forward-mode" (with vectorize).

    Returns:
        a tensor, or tuples of them where inputs or outputs are tuples (outputs outside).
    """
    if strategy not in ("forward-mode", "reverse-mode"):
        raise AssertionError(
            'Expected strategy to be either "forward-mode" or "reverse-mode". Hint: If your '
            'function has more outputs than inputs, "forward-mode" tends to be more performant. '
            'Otherwise, prefer to use "reverse-mode".'
        )
    if strategy == "forward-mode":
        if create_graph:
            raise NotImplementedError(
                "torch.autograd.functional.jacobian: `create_graph=True` and "
                '`strategy="forward-mode"` '
                "are not supported together (yet). Please either set `create_graph=False` or "
                '`strategy="reverse-mode"`.'
            )
        if strict:
            raise RuntimeError(
                'torch.autograd.functional.jacobian: `strict=True` and `strategy="forward-mode"` '
                "are "
                "not supported together (yet). Please either set `strict=False` or "
                '`strategy="reverse-mode"`.'
            )
        if vectorize:
            return _forward_jacobian(func, inputs)
        raise NotImplementedError(
            "Computing Jacobian using forward-AD or forward-over-reverse Hessian is"
            "only implemented for `vectorize=True`."
        )
    with torch.enable_grad():
        is_tuple, ins = _as_tuple(inputs, "inputs", "jacobian")
        ins = _prepared(ins, create_graph)
        outputs = func(*ins)
        is_out_tuple, outs = _as_tuple(outputs, "outputs of the user-provided function", "jacobian")
        _check_depends(outs, "outputs", strict)
        if vectorize:
            if strict:
                raise RuntimeError(
                    "torch.autograd.functional.jacobian: `strict=True` and `vectorized=True` are "
                    "not supported together. Please either set `strict=False` or `vectorize=False`."
                )
            return _finished(
                _batched_rows(outs, ins, create_graph, is_tuple, is_out_tuple), create_graph
            )
        rows = [_rows(o, ins, i, create_graph, strict) for i, o in enumerate(outs)]
    rows = [_finished(r, create_graph) for r in rows]
    return _unpacked([_unpacked(r, is_tuple) for r in rows], is_out_tuple)


def _rows(
    o: Tensor, ins: Sequence[Tensor], i: int, create_graph: bool, strict: bool
) -> tuple[Tensor, ...]:
    """The Jacobians of one output, a row a backward."""
    found: list[list[Tensor]] = [[] for _ in ins]
    flat = o.reshape(-1)
    for j in range(o.nelement()):
        grads = _gradients((flat[j],), ins, retain_graph=True, create_graph=create_graph)
        for at, (g, x) in enumerate(zip(grads, ins, strict=True)):
            if g is None:
                if strict:
                    raise RuntimeError(
                        f"Output {i} of the user-provided function is independent of input {at}. "
                        f"{_STRICT}."
                    )
                g = torch.zeros_like(x)
            elif strict and create_graph and not g.requires_grad:
                raise RuntimeError(
                    "The jacobian of the user-provided function is independent of input "
                    f"{at}. {_STRICT} when create_graph=True."
                )
            found[at].append(g)
    return tuple(
        torch.stack(r).view(o.size() + x.size()) if r else x.new_zeros(o.size() + x.size())
        for r, x in zip(found, ins, strict=True)
    )


def _batched_rows(
    outs: Sequence[Tensor],
    ins: Sequence[Tensor],
    create_graph: bool,
    is_tuple: bool,
    is_out_tuple: bool,
) -> Any:
    sizes = [o.numel() for o in outs]
    seeds = _basis(outs)

    def row(grads: Any) -> tuple[Tensor, ...]:
        found = list(_gradients(outs, ins, grads, create_graph=create_graph, retain_graph=True))
        for at, g in enumerate(found):
            if g is None:
                found[at] = torch.zeros_like(ins[at])
        return tuple(found)

    blocks = torch.vmap(row)(seeds)
    per_input = [block.split(sizes, 0) for block in blocks]
    rows = []
    for k, o in enumerate(outs):
        rows.append(
            _unpacked(
                [
                    parts[k].reshape(*o.shape, *x.shape)
                    for parts, x in zip(per_input, ins, strict=True)
                ],
                is_tuple,
            )
        )
    return _unpacked(rows, is_out_tuple)


def _check_scalar(outputs: Any, name: str) -> None:
    is_out_tuple, outs = _as_tuple(outputs, "outputs of the user-provided function", name)
    if is_out_tuple:
        raise RuntimeError(f"The function given to {name} should return a single Tensor")
    if outs[0].nelement() != 1:
        raise RuntimeError(
            f"The Tensor returned by the function given to {name} should contain a single element"
        )


def hessian(
    func: Callable[..., Any], inputs: Any, create_graph: bool = False, strict: bool = False,
    vectorize: bool = False, outer_jacobian_strategy: str = "reverse-mode",
) -> Any:  # fmt: skip
    """The second derivatives of a function of one number: for inputs x, y a tensor of shape
    (*x.shape, *y.shape). Arguments as `jacobian`."""
    is_tuple, ins = _as_tuple(inputs, "inputs", "hessian")
    if outer_jacobian_strategy not in ("forward-mode", "reverse-mode"):
        raise AssertionError('Expected strategy to be either "forward-mode" or "reverse-mode".')

    def number(*args: Any) -> Tensor:
        out = func(*args)
        is_out_tuple, outs = _as_tuple(out, "outputs of the user-provided function", "hessian")
        _check_depends(outs, "outputs", strict)
        if is_out_tuple:
            raise RuntimeError("The function given to hessian should return a single Tensor")
        if out.nelement() != 1:
            raise RuntimeError(
                "The Tensor returned by the function given to hessian should contain a single "
                "element"
            )
        return out.squeeze()

    def gradient(*args: Tensor) -> tuple[Tensor, ...]:
        if outer_jacobian_strategy == "forward-mode":
            places = tuple(range(len(args)))
            forward: tuple[Tensor, ...] = transforms.grad(number, places)(*args)
            return forward
        found = jacobian(number, args, create_graph=True)
        _check_depends(found, "jacobian", strict)
        return found

    result = jacobian(
        gradient, ins, create_graph=create_graph, strict=strict, vectorize=vectorize,
        strategy=outer_jacobian_strategy,
    )  # fmt: skip
    return result if is_tuple else result[0][0]


def vhp(
    func: Callable[..., Any],
    inputs: Any,
    v: Any = None,
    create_graph: bool = False,
    strict: bool = False,
) -> tuple[Any, Any]:
    """The function's value, and the product of v with its Hessian. Arguments as `vjp`; v has the
    shape of the inputs."""
    with torch.enable_grad():
        is_tuple, ins = _as_tuple(inputs, "inputs", "vhp")
        ins = _prepared(ins, create_graph)
        vector = _vector(v, ins, is_tuple, "vhp", "the input to the user-provided function is")
        outputs = func(*ins)
        _check_scalar(outputs, "vhp")
        grads = _gradients((outputs,), ins, create_graph=True)
        _check_depends(grads, "jacobian", strict)
    with torch.set_grad_enabled(create_graph or torch.is_grad_enabled()):
        found = _gradients(grads, ins, vector, create_graph=create_graph)
        products = _filled(found, ins, strict, create_graph, "double_back")
    return _finished(outputs, create_graph), _unpacked(_finished(products, create_graph), is_tuple)


def hvp(
    func: Callable[..., Any],
    inputs: Any,
    v: Any = None,
    create_graph: bool = False,
    strict: bool = False,
) -> tuple[Any, Any]:
    """The function's value, and the product of its Hessian with v, by two backwards (slower than
    `vhp`, which is the same for symmetric Hessians)."""
    with torch.enable_grad():
        is_tuple, ins = _as_tuple(inputs, "inputs", "hvp")
        ins = _prepared(ins, create_graph)
        vector = _vector(v, ins, is_tuple, "hvp", "the input to the user-provided function is")
        outputs = func(*ins)
        _check_scalar(outputs, "hvp")
        grads = _gradients((outputs,), ins, create_graph=True)
        _check_depends(grads, "jacobian", strict)
        seeds = tuple(torch.zeros_like(x, requires_grad=True) for x in ins)
        second = _gradients(grads, ins, seeds, create_graph=True)
        _check_depends(second, "hessian", strict)
    with torch.set_grad_enabled(create_graph or torch.is_grad_enabled()):
        found = _gradients(second, seeds, vector, create_graph=create_graph)
        products = _filled(found, ins, strict, create_graph, "double_back_trick")
    return _finished(outputs, create_graph), _unpacked(_finished(products, create_graph), is_tuple)
