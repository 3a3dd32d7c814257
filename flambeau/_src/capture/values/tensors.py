"""Tensors: a fake tensor inside, a node of the graph once it is used."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from flambeau._src.capture import sizes, wrappers
from flambeau._src.capture.guards import Kind, TensorFacts
from flambeau._src.capture.outcome import NotReady, Unsupported
from flambeau._src.capture.source import Source
from flambeau._src.core import state
from flambeau._src.interp.fake import FakeTensor
from flambeau._src.ir.node import Node

if TYPE_CHECKING:
    from flambeau._src.capture.heap import Heap

__all__ = ["TensorInfo", "enter", "facts", "is_tensor", "placeholder_name"]


class TensorInfo:
    """What is known of a fake tensor: its node, and the outside tensor that it stands for.

    `meta`: its geometry as it came in, or was made; `kind` is its class.
    """

    __slots__ = ("attrs", "fake", "kind", "made_of", "meta", "node", "read", "real", "source")

    def __init__(self, fake: Any, kind: type, real: Any = None, source: Any = None) -> None:
        self.fake = fake
        self.kind = kind
        self.made_of: Any = None  # an instance of a class with `__torch_dispatch__`
        self.real = real
        self.source: Source | None = source
        self.node: Node | None = None
        self.attrs: dict[str, Any] = {}  # what the program set or read, and what was there
        self.read: dict[str, Any] = {}
        self.meta = (tuple(fake.shape), fake.stride(), fake.dtype, fake.requires_grad)


def is_tensor(value: Any) -> bool:
    """Whether an inside value is a tensor."""
    return type(value) is FakeTensor


def facts(t: Any) -> TensorFacts:
    """What a guard checks of a tensor."""
    return TensorFacts(
        type(t),
        t.dtype,
        t.device,
        t.requires_grad,
        tuple(t.shape),
        t.stride(),
        t.grad_fn is None,
        t._bits,
        t.is_conj() if t.dtype.is_complex else False,
        t.is_neg() if t.dtype.is_complex else False,
    )


def enter(heap: Heap, value: Any, source: Source) -> Any:
    """The fake form of an outside tensor."""
    with state.Suspended(state.FUNCTION):
        return _enter(heap, value, source)


def _enter(heap: Heap, value: Any, source: Source) -> Any:
    session = heap.session
    kind = type(value)
    if isinstance(value, FakeTensor):
        raise Unsupported("A fake tensor was passed in.", "Pass tensors that have values.")
    if wrappers.is_made_of(kind):
        return _enter_whole(heap, value, source)
    if wrappers.dispatches(kind):
        raise Unsupported(
            f"{kind.__name__} has `__torch_dispatch__`, and cannot be taken apart.",
            "Give it `__tensor_flatten__` and `__tensor_unflatten__`.",
        )
    if hasattr(kind, "materialize"):
        raise NotReady(f"A {kind.__name__} is met, which has no shape yet.")
    if value._bits & ~state.RECORD & (state.DISPATCH | state.FUNCTORCH | state.GEOMETRY):
        raise Unsupported("The tensor belongs to a transform or mode that is active outside.")
    if value.is_sparse:
        raise Unsupported("A sparse tensor enters the function.")
    dims = sizes.policy(session, value, source)
    found = facts(value)
    if dims is None:
        fake = session.fake_mode.from_tensor(value)
    else:
        fake = session.fake_mode.from_tensor(
            value, source=source, static_shapes=False, symbolic_context=dims
        )
        found = sizes.loosened(found, fake)
        session.sized.append((source, fake))
    heap.guard(Kind.TENSOR, source, found)
    heap.know(value, fake, source)
    session.tensors[id(fake)] = TensorInfo(fake, kind, value, source)
    session.tensor_sources.append(source)
    return fake


def _enter_whole(heap: Heap, value: Any, source: Source) -> Any:
    """The fake form of a tensor that is made of others."""
    session = heap.session
    heap.guard(Kind.TENSOR, source, facts(value))
    made = wrappers.enter_parts(heap, value, source)
    fake = wrappers.whole(session, made)
    session.pending_kinds.pop(id(fake))
    heap.know(value, fake, source)
    info = session.tensors[id(fake)] = TensorInfo(fake, type(value), value, source)
    info.made_of = made
    session.tensor_sources.append(source)
    return fake


_WORDS = re.compile(r"[^0-9a-zA-Z]+")


def placeholder_name(source: Source) -> str:
    """The name of a graph's input: its path in words, as `l_self_modules_fc_parameters_weight_`."""
    text = _WORDS.sub("_", source.text().replace(".__dict__", "").replace("tensor_over", "")).strip(
        "_"
    )
    return text[0].lower() + text[1:] + "_"
