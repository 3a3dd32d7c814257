"""Tensors of classes with `__torch_dispatch__` that are made of others.

Such a tensor is a fake tensor of its outer geometry, as all tensors are here; `TensorInfo.made_of`
holds an instance of the class over fake tensors, on which the operators run: the class's handler is
run as it is, not interpreted. The graph holds operators of the whole tensors, and is given them
whole; whoever differentiates it ahead of time takes them apart (`compiler/`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flambeau._src.capture.guards import Kind
from flambeau._src.capture.outcome import Unsupported
from flambeau._src.capture.source import AttrSource, Source
from flambeau._src.capture.values.constant import ATOMS
from flambeau._src.core import state
from flambeau._src.core.tensor import Tensor
from flambeau._src.interp.fake import FakeTensor
from flambeau._src.ops.call import aten
from flambeau._src.util import pytree

if TYPE_CHECKING:
    from flambeau._src.capture.heap import Heap
    from flambeau._src.capture.session import Session
    from flambeau._src.capture.values.tensors import TensorInfo

__all__ = ["attribute", "dispatches", "enter_parts", "is_made_of", "make", "run", "whole"]


def dispatches(kind: type) -> bool:
    """Whether a class of tensors has a `__torch_dispatch__` of its own."""
    return any("__torch_dispatch__" in base.__dict__ for base in kind.__mro__ if base is not Tensor)


def is_made_of(kind: type) -> bool:
    """Whether its tensors can be taken apart, and made again of their parts."""
    names = ("__tensor_flatten__", "__tensor_unflatten__")
    return kind is not FakeTensor and dispatches(kind) and all(hasattr(kind, n) for n in names)


class _Context:
    """A predicate: the tensor is made of the same parts, with the same constants."""

    def __init__(self, names: list[str], context: Any) -> None:
        self.names, self.context = names, context

    def __call__(self, t: Any) -> bool:
        with state.Suspended(state.FUNCTION):
            names, context = t.__tensor_flatten__()
        return list(names) == self.names and bool(context == self.context)

    def __repr__(self) -> str:
        return f"made_of({self.names}, {self.context!r})"


def enter_parts(heap: Heap, value: Any, source: Source) -> Any:
    """An instance over the inside forms of its parts."""
    names, context = value.__tensor_flatten__()
    heap.guard(Kind.PYTHON, source, _Context(list(names), context))
    session = heap.session
    before, session.fixed = session.fixed, True
    try:
        parts = {n: heap.enter(getattr(value, n), AttrSource(source, n)) for n in names}
    finally:
        session.fixed = before
    inner = {n: _inner(session, p) for n, p in parts.items()}
    made = type(value).__tensor_unflatten__(inner, context, value.shape, value.stride())
    if value.requires_grad:
        made.requires_grad_(True)
    return made


def _inner(s: Session, part: Any) -> Any:
    info = s.tensors[id(part)]
    return part if info.made_of is None else info.made_of


def whole(s: Session, made: Any) -> Any:
    """The fake tensor that stands for an instance that an operator gave."""
    for info in s.tensors.values():
        if info.made_of is made:
            return info.fake
    kind = type(made)
    with state.Suspended(state.FUNCTION), s.fake_mode:
        fake = aten.empty_strided(made.shape, made.stride(), dtype=made.dtype, device=made.device)
        if made.requires_grad:
            fake.requires_grad_(True)
    s.dropped.append(made)
    s.pending_kinds[id(fake)] = (kind, made)
    return fake


def run(s: Session, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call a function on instances; what it gives stands for them again. None of them among the
    arguments: the function is called as it is."""

    def inner(v: Any) -> Any:
        return _inner(s, v) if type(v) is FakeTensor and id(v) in s.tensors else v

    def outer(v: Any) -> Any:
        return whole(s, v) if isinstance(v, Tensor) and is_made_of(type(v)) else v

    leaves, spec = pytree.tree_flatten((args, kwargs))
    given = [inner(v) for v in leaves]
    apart = [(v, g, g._version) for v, g in zip(leaves, given, strict=True) if g is not v]
    args, kwargs = pytree.tree_unflatten(given, spec)
    with state.Suspended(state.FUNCTION_MODE | state.FUNCTION):
        out = s.native(fn, *args, **kwargs)
    for fake, made, version in apart:
        if made._version != version:
            fake._bump_version()
    return pytree.tree_map(outer, out)


def among(s: Session, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether some argument is such a tensor."""
    for v in (*args, *kwargs.values()):
        for x in v if type(v) in (list, tuple) else (v,):
            if type(x) is FakeTensor:
                info = s.tensors.get(id(x))
                if info is not None and info.made_of is not None:
                    return True
    return False


def make(s: Session, cls: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`cls(*args, **kwargs)`."""
    if not is_made_of(cls):
        raise Unsupported(f"A {cls.__name__} is made in the function.", "Make it outside.")
    return s.recorder.call(cls, cls, args, kwargs, True)


def attribute(s: Session, t: Any, info: TensorInfo, name: str) -> Any:
    """What a tensor that the program made has under the name."""
    value = info.made_of.__dict__[name]
    if type(value) in ATOMS:
        return value
    if isinstance(value, Tensor) and is_made_of(type(value)):
        value = whole(s, value)
    if type(value) is not FakeTensor:
        raise Unsupported(f"The attribute {name} of a {info.kind.__name__} is read.")
    if id(value) not in s.tensors:
        recorder = s.recorder
        recorder.give(recorder.node(getattr, (recorder.node_of(t), name), {}, value), value)
    return value
