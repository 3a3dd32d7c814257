"""Joint graphs of functions of tensors that are made of others.

A tensor of a user's class with `__torch_dispatch__` and `__tensor_flatten__` is taken apart: its
parts are the sources of the graph, and what the function returns is taken apart likewise. In
between the function runs on instances of the class over the traced parts, with autograd around
them, so the gradients are those of the whole tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from flambeau._src.autograd import engine
from flambeau._src.autograd.api import edge_of
from flambeau._src.compiler.joint import (
    Joint,
    JointTrace,
    MadeOfOthers,
    Output,
    Unsupported,
    check_inputs,
    is_made_of_others,
    trace_joint,
)
from flambeau._src.core import state
from flambeau._src.core.tensor import Tensor
from flambeau._src.interp import functionalize as fz
from flambeau._src.ir.node import Node

__all__ = ["Layout", "Made", "taken_apart", "traced"]


@dataclass(frozen=True)
class Made:
    """How a tensor is made of others, which are given by number."""

    kind: Any
    names: tuple[str, ...]
    parts: tuple[int | Made, ...]
    context: Any
    shape: Any
    stride: Any

    def make(self, values: Sequence[Any]) -> Any:
        """The tensor."""
        parts = [values[p] if isinstance(p, int) else p.make(values) for p in self.parts]
        inner = dict(zip(self.names, parts, strict=True))
        return self.kind.__tensor_unflatten__(inner, self.context, self.shape, self.stride)

    def count(self) -> int:
        """Of how many tensors it is made."""
        return sum(1 if isinstance(p, int) else p.count() for p in self.parts)


def taken_apart(t: Any, found: list[Any]) -> int | Made:
    """Add the tensors that it is made of; how it is made of them, by their numbers there."""
    if not is_made_of_others(t):
        found.append(t)
        return len(found) - 1
    names, context = t.__tensor_flatten__()
    parts = tuple([taken_apart(getattr(t, n), found) for n in names])
    return Made(type(t), tuple(names), parts, context, t.shape, t.stride())


@dataclass(frozen=True)
class _Same:
    """A result that is an input of the call."""

    place: int


@dataclass
class Layout:
    """How the call's tensors are made of what the graph takes and gives.

    inputs      of sources
    outputs     leaves of the result: of the joint's results
    wanted      inputs of the call that want gradients; `gradients`: of the graph's (None: none)
    carrying    leaves of the result that carry gradients; `tangents`: of the graph's
    """

    inputs: list[int | Made]
    outputs: list[int | Made | _Same] = field(default_factory=list)
    wanted: list[int] = field(default_factory=list)
    gradients: list[int | Made | None] = field(default_factory=list)
    carrying: list[int] = field(default_factory=list)
    tangents: list[int | Made] = field(default_factory=list)

    def sources(self, inputs: Sequence[Any]) -> list[Any]:
        """What the graph takes."""
        found: list[Any] = []
        with state.Suspended(state.FUNCTION):
            for t in inputs:
                taken_apart(t, found)
        return found

    def results(self, values: list[Any], inputs: Sequence[Any]) -> list[Any]:
        """The leaves of what the function returns."""
        return [inputs[m.place] if isinstance(m, _Same) else _made(m, values) for m in self.outputs]

    def tangents_of(self, grads: Sequence[Any]) -> list[Any]:
        """The tangents of the graph, None for zeros.

        Raises:
            RuntimeError: a gradient is made otherwise than the output that it is for.
        """
        found: list[Any] = []
        for g, m in zip(grads, self.tangents, strict=True):
            if g is None:
                found += [None] * (m.count() if isinstance(m, Made) else 1)
                continue
            parts: list[Any] = []
            got = taken_apart(g, parts)
            if isinstance(m, Made) != isinstance(got, Made) or (
                isinstance(m, Made) and (got.kind, got.context) != (m.kind, m.context)  # type: ignore[union-attr]
            ):
                raise RuntimeError(
                    "During the backward, we encountered a tensor subclass where we guessed its "
                    "metadata incorrectly."
                )
            found += parts
        return found

    def gradients_of(self, found: list[Any]) -> list[Any]:
        """Gradients of the inputs that want one."""
        return [None if m is None else _made(m, found) for m in self.gradients]


def _made(m: int | Made, values: Sequence[Any]) -> Any:
    return values[m] if isinstance(m, int) else m.make(values)


class _Trace(JointTrace):
    def __init__(self, fn: Callable[..., Any], inputs: Sequence[Any], decompositions: Any) -> None:
        flat: list[Any] = []
        with state.Suspended(state.FUNCTION):
            self.layout = Layout([taken_apart(t, flat) for t in inputs])
        self.called_with = list(inputs)
        parts = {i for m in self.layout.inputs if isinstance(m, Made) for i in _numbers(m)}
        if any(isinstance(flat[i], Tensor) and flat[i].requires_grad for i in parts):
            raise Unsupported("a part of a tensor of a user's class requires gradients")
        check_inputs(flat)
        super().__init__(fn, flat, decompositions)
        self.wholes: dict[int, Any] = {}  # by place among the call's tensors
        self.leaves_out: list[Any] = []

    def _present(self, fakes: list[Any]) -> list[Any]:
        given = super()._present(fakes)
        out = []
        for i, (t, m) in enumerate(zip(self.called_with, self.layout.inputs, strict=True)):
            made = _made(m, given)
            if isinstance(m, Made):
                self.wholes[i] = made
                if t.requires_grad and state.get_grad():
                    made.requires_grad_(True)
            out.append(made)
        return out

    def _results(self, flat: list[Any]) -> list[Output]:
        self.leaves_out = flat
        parts: list[Any] = []
        for v in flat:
            same = next((i for i, w in self.wholes.items() if w is v), None)
            self.layout.outputs.append(taken_apart(v, parts) if same is None else _Same(same))
        return super()._results([fz.wrap(v) if isinstance(v, Tensor) else v for v in parts])

    def _backward(self, carrying: list[int]) -> tuple[list[Node], list[Node | None]]:
        layout, tracer = self.layout, self.tracer
        roots = [
            (i, v) for i, v in enumerate(self.leaves_out)
            if isinstance(v, Tensor) and v.requires_grad and v.grad_fn is not None
        ]  # fmt: skip
        wanted = [
            (i, self.wholes[i] if isinstance(m, Made) else self.leaves.get(m))
            for i, m in enumerate(layout.inputs)
            if isinstance(self.called_with[i], Tensor)
            and self.called_with[i].requires_grad and state.get_grad()
        ]  # fmt: skip
        if not roots:
            return [], []
        tangents: list[Node] = []
        given = []
        for i, root in roots:
            parts: list[Any] = []
            made = taken_apart(root, parts)
            values = []
            for part in parts:
                value = self._fake(fz.unwrap(fz.wrap(part)))
                node = tracer.graph.placeholder(f"tangents_{len(tangents) + 1}")
                tracer.track(value, node)
                tangents.append(node)
                values.append(fz.wrap(value))
            layout.carrying.append(i)
            layout.tangents.append(made)
            given.append(_made(made, values))
        found = engine.run(
            [edge_of(t) for _, t in roots], given, inputs=[edge_of(t) for _, t in wanted],
            accumulate=False,
        )  # fmt: skip
        gradients: list[Any] = []
        for (i, _), g in zip(wanted, found, strict=True):
            layout.wanted.append(i)
            layout.gradients.append(None if g is None else taken_apart(g, gradients))
        return tangents, [self._node(fz.wrap(g), None) for g in gradients]


def _numbers(m: Made) -> list[int]:
    return [n for p in m.parts for n in ([p] if isinstance(p, int) else _numbers(p))]


def joint_of_whole(fn: Callable[..., Any], inputs: Sequence[Any], decompositions: Any) -> Joint:
    """The joint graph of `fn(*inputs)`, some of which, or of its results, are made of others."""
    trace = _Trace(fn, inputs, decompositions)
    joint = trace.run()
    written = [trace.sources[i] for i, _ in joint.written]
    if joint.reshaped or any(t.requires_grad and not t.is_leaf for t in written):
        raise Unsupported("a program of tensors of users' classes writes its inputs")
    joint.layout = trace.layout
    joint.carrying, joint.wanted, joint.spent = [], [], []
    return joint


def traced(fn: Callable[..., Any], inputs: Sequence[Any], decompositions: Any = None) -> Joint:
    """The joint graph of `fn(*inputs)`: `trace_joint`, of whatever classes the tensors are."""
    if not any(map(is_made_of_others, inputs)):
        try:
            return trace_joint(fn, inputs, decompositions)
        except MadeOfOthers:
            pass
    return joint_of_whole(fn, inputs, decompositions)
