"""Hooks of tensors and nodes, and the handles that take them away again."""

from __future__ import annotations

import itertools
import warnings
import weakref
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from flambeau._src import _native
from flambeau._src.core import dtype as dt
from flambeau._src.core import state
from flambeau._src.core.slots import fill
from flambeau._src.core.tensor import Tensor
from flambeau._src.ops.call import overridable

Hook = Callable[..., Any]
_ids = itertools.count()


class RemovableHandle:
    """What registering a hook returns: `remove()` takes the hook away again.

    Args:
        hooks_dict: the table of hooks, held weakly; the hook's key in it is `handle.id`.
        extra_dict: further tables (one or a list) that may have an entry of that key.
    """

    id: int

    def __init__(self, hooks_dict: Any, *, extra_dict: Any = None) -> None:
        self.hooks_dict_ref = weakref.ref(hooks_dict)
        self.id = next(_ids)
        extra = [extra_dict] if isinstance(extra_dict, dict) else extra_dict
        self.extra_dict_ref = tuple(weakref.ref(d) for d in extra or ())

    def remove(self) -> None:
        """Take the hook away; nothing happens if it is gone already."""
        for reference in (self.hooks_dict_ref, *self.extra_dict_ref):
            table = reference()
            if table is not None:
                table.pop(self.id, None)

    def __getstate__(self) -> tuple[Any, ...]:
        if not self.extra_dict_ref:
            return self.hooks_dict_ref(), self.id
        return self.hooks_dict_ref(), self.id, tuple(ref() for ref in self.extra_dict_ref)

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        # A table that did not survive is replaced by one that nobody sees.
        table = OrderedDict() if state[0] is None else state[0]
        self.hooks_dict_ref = weakref.ref(table)
        self.id = state[1]
        extra = state[2] if len(state) > 2 else ()
        self.extra_dict_ref = tuple(weakref.ref(OrderedDict() if d is None else d) for d in extra)

    def __enter__(self) -> RemovableHandle:
        return self

    def __exit__(self, *exc: object) -> None:
        self.remove()


RemovableHandle.__module__ = "flambeau.utils.hooks"


class LeafHooks:
    """What a leaf carries beside its gradient; stands in `Tensor._autograd`.

    hooks            on the gradient that arrives, summed
    post_accumulate  called with the tensor once `.grad` is written
    accumulator      weak reference to its AccumulateGrad node, None while nobody asked for one
    """

    __slots__ = ("hooks", "post_accumulate", "accumulator", "grad_dtype", "retains")

    def __init__(self) -> None:
        self.hooks: OrderedDict[int, Hook] | None = None
        self.post_accumulate: OrderedDict[int, Hook] | None = None
        self.accumulator: Any = None
        self.grad_dtype: Any = False  # False: the tensor's own
        self.retains = False


class NodeHooks:
    """Hooks of a node: on the gradients of its outputs (`tensor_pre`, by output number), before
    and after it runs, and the tensors that retain their gradient."""

    __slots__ = ("tensor_pre", "pre", "post", "retained")

    def __init__(self) -> None:
        self.tensor_pre: dict[int, OrderedDict[int, Hook]] = {}
        self.pre: OrderedDict[int, Hook] = OrderedDict()
        self.post: OrderedDict[int, Hook] = OrderedDict()
        self.retained: dict[int, Any] = {}  # output number -> weak reference to the tensor

    def on_tensors(self, grads: list[Any]) -> None:
        """The tensors' own hooks, which may replace gradients; then those that retain theirs."""
        for nr, hooks in self.tensor_pre.items():
            if grads[nr] is not None:
                grads[nr] = run_tensor_hooks(hooks, grads[nr])
        for nr, ref in self.retained.items():
            t = ref()
            if t is not None and grads[nr] is not None:
                keep_grad(t, grads[nr])

    def before(self, grads: list[Any]) -> list[Any]:
        """The node's pre-hooks, on all gradients at once."""
        for hook in list(self.pre.values()):
            result = call_user(hook, tuple(grads))
            if result is not None:
                grads = _replaced(hook, grads, result)
        return grads

    def after(self, node: Any, results: tuple[Any, ...], grads: tuple[Any, ...]) -> tuple[Any, ...]:
        """The node's hooks: results and gradients as tuples, results may be replaced."""
        slots = input_slots(node)
        shown = tuple([None if i is None else results[i] for i in slots]) if slots else results
        for hook in list(self.post.values()):
            result = call_user(hook, shown, grads)
            if result is not None:
                shown = tuple(_replaced(hook, list(shown), result))
        if not slots:
            return shown
        return tuple([g for i, g in zip(slots, shown, strict=True) if i is not None])


def call_user(function: Callable[..., Any], *args: Any) -> Any:
    """Call what the user wrote from inside a backward: with the layers that the caller had."""
    before = state.set_suspended(state.thread.user_suspended)
    try:
        return function(*args)
    finally:
        state.set_suspended(before)


def _hook_name(hook: Any) -> str:
    return getattr(hook, "__name__", None) or "<unknown>"


def _replaced(hook: Hook, old: list[Any], new: Any) -> list[Any]:
    """What a node's hook returned, in the place of old."""
    if not isinstance(new, tuple):
        raise TypeError(f"expected tuple, but hook returned '{type(new).__name__}'")
    values = list(new)
    if len(values) != len(old):
        raise RuntimeError(
            f"hook '{_hook_name(hook)}' has returned an incorrect number of values (got "
            f"{len(values)}, but expected {len(old)})"
        )
    for before, after in zip(old, values, strict=True):
        if before is None:
            if after is not None:
                raise RuntimeError("can't replace a None gradient with a non-None value")
        elif after is not None:
            check_hook_result(before, after, hook)
    return values


def keep_grad(t: Tensor, g: Tensor) -> None:
    """retain_grad: g is added to what the tensor has."""
    if t._grad is None:
        from flambeau._src.core.layout import contiguous_format  # lazy: few retain gradients

        options = {} if g._bits & state.DISPATCH else {"memory_format": contiguous_format}
        t.grad = (g if g.requires_grad else g.detach()).clone(**options)
    else:
        t.grad = t._grad + g


def run_tensor_hooks(hooks: OrderedDict[int, Hook], g: Any) -> Any:
    """g after all hooks of its tensor."""
    for hook in list(hooks.values()):
        result = call_user(hook, g)
        if result is not None:
            check_hook_result(g, result, hook)
            g = result
    return g


def check_hook_result(before: Tensor, after: Any, hook: Hook) -> None:
    """A hook may only return something of the gradient's kind."""
    if not isinstance(after, Tensor):
        raise TypeError(f"expected Variable, but hook returned '{type(after).__name__}'")
    if after.dtype is not before.dtype or after.device.type != before.device.type:
        raise RuntimeError(
            f"hook '{_hook_name(hook)}' has changed the type of value (was {before.type()} got "
            f"{after.type()})"
        )
    if after.shape != before.shape:
        raise RuntimeError(f"hook '{_hook_name(hook)}' has changed the size of value")


def node_hooks(node: Any) -> NodeHooks:
    """The node's hooks, made when missing."""
    found: NodeHooks | None = node.hooks
    if found is None:
        found = node.hooks = NodeHooks()
    return found


def leaf_hooks(t: Tensor) -> LeafHooks:
    """The leaf's hooks, made when missing."""
    found: LeafHooks | None = t._autograd
    if found is None:
        found = t._autograd = LeafHooks()
    return found


# ---- methods of tensors ----


def _table(t: Tensor, make: bool) -> OrderedDict[int, Hook] | None:
    """The hooks of t's gradient: those of its place in the graph, or the leaf's."""
    node = t.grad_fn
    if node is None:
        if not make and t._autograd is None:
            return None
        leaf = leaf_hooks(t)
        if leaf.hooks is None and make:
            leaf.hooks = OrderedDict()
        return leaf.hooks
    if not make and node.hooks is None:
        return None
    tables = node_hooks(node).tensor_pre
    found = tables.get(t.output_nr)
    if found is None and make:
        found = tables[t.output_nr] = OrderedDict()
    return found


def register_hook(self: Tensor, hook: Hook) -> RemovableHandle:
    """Call ``hook(grad) -> Tensor or None`` whenever a gradient of this tensor was computed.

    What the hook returns takes the gradient's place. It must not change its argument.

    Raises:
        RuntimeError: the tensor does not require gradients.
    """
    if not self.requires_grad:
        raise RuntimeError("cannot register a hook on a tensor that doesn't require gradient")
    table = _table(self, True)
    handle = RemovableHandle(table)
    table[handle.id] = hook  # type: ignore[index]
    return handle


def register_post_accumulate_grad_hook(self: Tensor, hook: Hook) -> RemovableHandle:
    """Call ``hook(tensor)`` each time that backward has written this leaf's ``.grad``.

    Raises:
        RuntimeError: the tensor does not require gradients, or is no leaf.
    """
    if not self.requires_grad:
        raise RuntimeError("cannot register a hook on a tensor that doesn't require gradient")
    if self.grad_fn is not None:
        raise RuntimeError("post accumulate grad hooks cannot be registered on non-leaf tensors")
    leaf = leaf_hooks(self)
    if leaf.post_accumulate is None:
        leaf.post_accumulate = OrderedDict()
    handle = RemovableHandle(leaf.post_accumulate)
    leaf.post_accumulate[handle.id] = hook
    return handle


def retain_grad(self: Tensor) -> None:
    """Have backward keep this tensor's gradient in ``.grad``; nothing for a leaf.

    Raises:
        RuntimeError: the tensor does not require gradients.
    """
    if any(level.kind != "dual" for level in state.thread.functorch):
        raise RuntimeError(
            "You are attempting to call Tensor.retain_grad() inside of a function being "
            "transformed by a functorch transform. This is unsupported, please attempt to use the "
            "functorch transforms (e.g. grad, vjp, jacrev, jacfwd, hessian) or call "
            "retain_grad() outside of a function being transformed instead."
        )
    if not self.requires_grad:
        raise RuntimeError("can't retain_grad on Tensor that has requires_grad=False")
    node = self.grad_fn
    if node is not None:
        node_hooks(node).retained[self.output_nr] = weakref.ref(self)
        leaf_hooks(self).retains = True


def retains_grad(self: Tensor) -> bool:
    """Whether `retain_grad` was called on this non-leaf."""
    return self._autograd is not None and self._autograd.retains and self.grad_fn is not None


def move_retained(t: Tensor, old: Any, old_nr: int) -> None:
    """t was changed in place: its retained gradient is that of its new history."""
    if old is not None and old.hooks is not None:
        ref = old.hooks.retained.get(old_nr)
        if ref is not None and ref() is t and t.grad_fn is not None:
            del old.hooks.retained[old_nr]
            node_hooks(t.grad_fn).retained[t.output_nr] = ref


def _get_backward_hooks(self: Tensor) -> Any:
    return _table(self, False)


def _set_backward_hooks(self: Tensor, hooks: Any) -> None:
    node = self.grad_fn
    if node is None:
        if hooks is not None or self._autograd is not None:
            leaf_hooks(self).hooks = hooks
    elif hooks is None:
        if node.hooks is not None:
            node.hooks.tensor_pre.pop(self.output_nr, None)
    else:
        node_hooks(node).tensor_pre[self.output_nr] = hooks


def _get_post_hooks(self: Tensor) -> Any:
    return None if self._autograd is None else self._autograd.post_accumulate


def _set_post_hooks(self: Tensor, hooks: Any) -> None:
    if hooks is not None or self._autograd is not None:
        leaf_hooks(self).post_accumulate = hooks


# ---- methods of nodes ----


class AccumulateGrad(_native.Node):
    """The end of the way: what writes a leaf's `.grad`. Only made when somebody asks for it; in
    the graph the leaf itself stands at the end of its edges."""

    __slots__ = ("variable",)

    variable: Tensor
    decl = None

    def backward(self, node: Any, grads: tuple[Any, ...]) -> tuple[Any, ...]:
        """Autograd's protocol; the engine does it without coming here."""
        raise RuntimeError("AccumulateGrad runs in the engine only")


AccumulateGrad.__module__ = "torch.autograd.graph"


def accumulator(t: Tensor) -> Any:
    """The AccumulateGrad node of a leaf: the same one as long as somebody holds it."""
    leaf = leaf_hooks(t)
    node = None if leaf.accumulator is None else leaf.accumulator()
    if node is None:
        node = _native.node(AccumulateGrad, None, ())
        node.variable = t
        leaf.accumulator = weakref.ref(node)
    return node


def next_functions(self: Any) -> tuple[tuple[Any, int], ...]:
    """The nodes that the gradients go to, with the number of the output they belong to."""
    found: list[tuple[Any, int]] = []
    for i, (target, nr) in enumerate(self.edges):
        if isinstance(target, Tensor):
            # From now on the graph holds the node, with the hooks that somebody may give it.
            target = accumulator(target)
            self._set_edge(i, target, 0)
        found.append((target, nr if target is not None else 0))
    slots = input_slots(self)
    if slots is None:
        return tuple(found)
    return tuple([(None, 0) if i is None else found[i] for i in slots])


_NO_EDGE = frozenset(("index", "indices", "mask", "condition"))  # arguments that carry no gradient


def input_slots(node: Any) -> list[int | None] | None:
    """For each place in the operator's signature where a tensor may stand, the number of its edge,
    None where a number or nothing stood; None for nodes whose edges are all there is to show."""
    inner = node
    if type(node).__name__ == "CopySlices" and node.ctx is not None:
        inner = node.ctx[0]
    op, args = inner.op, inner.args
    if getattr(op, "schema", None) is None or args is None:
        return None
    slots: list[int | None] = []
    number = 0
    for i in op.schema.tensor_positions:
        v = args[i] if i < len(args) else None
        if op.schema.args[i].name in _NO_EDGE:
            items = v if isinstance(v, (tuple, list)) else (v,)
            number += sum(isinstance(x, (Tensor, _native.Saved)) for x in items)
        elif isinstance(v, (tuple, list)):
            slots.extend(range(number, number + len(v)))
            number += len(v)
        elif isinstance(v, (Tensor, _native.Saved)):
            slots.append(number)
            number += 1
        else:
            slots.append(None)
    return slots if len(slots) != number or number != len(node.edges) else None


def node_name(self: Any) -> str:
    """'AddBackward0'."""
    return type(self).__name__


AccumulateGrad.name = lambda self: "torch::autograd::AccumulateGrad"  # type: ignore[attr-defined]


def node_repr(self: Any) -> str:
    return f"<{type(self).__name__} object at {hex(id(self))}>"


def node_register_hook(self: Any, fn: Hook) -> RemovableHandle:
    """Call ``fn(grad_inputs, grad_outputs)`` after the node has run; what it returns takes the
    place of grad_inputs."""
    table = node_hooks(self).post
    handle = RemovableHandle(table)
    table[handle.id] = fn
    return handle


def node_register_prehook(self: Any, fn: Hook) -> RemovableHandle:
    """Call ``fn(grad_outputs)`` before the node runs; what it returns takes their place."""
    table = node_hooks(self).pre
    handle = RemovableHandle(table)
    table[handle.id] = fn
    return handle


def node_metadata(self: Any) -> dict[Any, Any]:
    """A dictionary of the user's, kept with the node."""
    found: dict[Any, Any] = self.__dict__.setdefault("_metadata", {})
    return found


def _get_grad_dtype(self: Tensor) -> Any:
    if not self.is_leaf:
        raise RuntimeError("grad_dtype can only be accessed on leaf tensors.")
    given = False if self._autograd is None else self._autograd.grad_dtype
    return self.dtype if given is False else given


def _set_grad_dtype(self: Tensor, value: Any) -> None:
    if not self.is_leaf:
        raise RuntimeError("grad_dtype can only be set on leaf tensors.")
    if value is not None and not isinstance(value, _native.dtype):
        raise TypeError(f"grad_dtype must be a torch.dtype or None, but got {type(value).__name__}")
    if self._grad is not None and value is not None and self._grad.dtype is not value:
        raise RuntimeError(
            f"Cannot set grad_dtype to '{dt.scalar_name(value)}' because there is already a "
            f"gradient with dtype '{dt.c_name(self._grad.dtype)}'. Please clear the gradient "
            "(.grad = None) before changing grad_dtype, or ensure the new grad_dtype matches the "
            "existing gradient's dtype."
        )
    leaf_hooks(self).grad_dtype = value


def check_grad(t: Tensor, g: Any) -> None:
    """Refuse what cannot be the gradient of t (slot 'check_grad': C asks
    when something differs)."""
    if not isinstance(g, Tensor):
        raise TypeError(
            f"assigned grad expected to be a Tensor or None but got grad of type {type(g).__name__}"
        )
    if g is t:
        raise RuntimeError("can't assign Variable as its own grad")
    want = t.dtype if t.grad_fn is not None or t._autograd is None else _get_grad_dtype(t)
    if want is not None and g.dtype is not want:
        raise RuntimeError(
            f"attempting to assign a gradient with dtype '{dt.c_name(g.dtype)}' to a tensor with "
            f"grad_dtype '{dt.scalar_name(want)}'. The gradient must match the tensor's grad_dtype "
            "(defaults to the tensor's dtype). You can set the tensor's grad_dtype attribute with "
            "a specific dtype, or None to allow any dtype. Set grad_dtype with caution. Diverging "
            "the dtypes of a tensor and its gradient may break downstream systems that assume they "
            "match."
        )
    if g.device.type != t.device.type:
        raise RuntimeError(
            f"attempting to assign a gradient with device type '{g.device.type}' to a tensor with "
            f"device type '{t.device.type}'. Please ensure that the gradient and the tensor are on "
            "the same device"
        )
    if g.shape != t.shape:
        raise RuntimeError(
            f"attempting to assign a gradient of size '{list(g.shape)}' to a tensor of size "
            f"'{list(t.shape)}'. Please ensure that the gradient and the tensor are the same size"
        )


def warn_nonleaf_grad(t: Tensor) -> None:
    """`.grad` of a tensor that backward does not fill was read (slot 'nonleaf_grad')."""
    if retains_grad(t):
        return
    warnings.warn(
        "The .grad attribute of a Tensor that is not a leaf Tensor is being accessed. Its .grad "
        "attribute won't be populated during autograd.backward(). If you indeed want the .grad "
        "field to be populated for a non-leaf Tensor, use .retain_grad() on the non-leaf Tensor. "
        "If you access the non-leaf Tensor by mistake, make sure you access the leaf Tensor "
        "instead.",
        UserWarning,
        stacklevel=2,
    )


fill("check_grad", check_grad)
fill("nonleaf_grad", warn_nonleaf_grad)
fill("move_retained", move_retained)

METHODS: dict[str, Any] = {
    "register_hook": overridable(register_hook),
    "register_post_accumulate_grad_hook": overridable(register_post_accumulate_grad_hook),
    "retain_grad": overridable(retain_grad),
    "retains_grad": property(retains_grad),
    "_backward_hooks": property(_get_backward_hooks, _set_backward_hooks),
    "_post_accumulate_grad_hooks": property(_get_post_hooks, _set_post_hooks),
    "grad_dtype": property(_get_grad_dtype, _set_grad_dtype),
}


def node_call(self: Any, *grads: Any) -> Any:
    """Run the node alone: gradients of its outputs in, of its inputs out."""
    if len(grads) != self.num_outputs:
        raise TypeError(f"expected {self.num_outputs} arguments, got {len(grads)} instead")
    results = tuple(self.op.backward(self, grads))
    slots = input_slots(self)
    if slots:
        results = tuple([None if i is None else results[i] for i in slots])
    return results[0] if len(results) == 1 else results


NODE_METHODS: dict[str, Any] = {
    "next_functions": property(next_functions),
    "name": node_name,
    "__repr__": node_repr,
    "register_hook": node_register_hook,
    "register_prehook": node_register_prehook,
    "metadata": property(node_metadata),
    "requires_grad": True,
    "__call__": node_call,
}
for _name, _value in NODE_METHODS.items():
    setattr(_native.Node, _name, _value)
