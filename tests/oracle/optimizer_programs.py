"""What is done with an optimiser of the database: the same code under either runtime.

A case's arguments are `(parameters, constructor kwargs, gradients)`, gradients a list for each
step. What else is done is its variant: "plain"; "groups" (two groups, the second with a smaller
rate); "closure" (a quadratic through autograd); "sparse" (sparse gradients); "differentiable".
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

from tests.oracle import checks, wire

Outcome = checks.Outcome
Step = Callable[[], Any]


@dataclass
class Sample:
    """One optimiser input of the database under one runtime."""

    rt: ModuleType
    name: str  # Adam
    variant: str
    reader: wire.InputReader
    pack: wire.Pack
    parameters: list[Any] = field(default_factory=list)
    gradients: list[Any] = field(default_factory=list)
    leaves: list[Any] = field(default_factory=list)

    def make(self, *, wide: bool = False, **changed: Any) -> Any:
        """The optimiser over fresh parameters."""
        rt = self.rt
        self.parameters, kwargs, self.gradients = self.reader.load(wide=wide).args
        kwargs = kwargs | changed
        rt.manual_seed(42)
        self.leaves = self.parameters
        if self.variant == "differentiable":
            self.leaves = [p.detach().clone().requires_grad_() for p in self.parameters]
            self.parameters = [leaf.clone() for leaf in self.leaves]
            for parameter in self.parameters:
                parameter.retain_grad()
            self.gradients = [[g.requires_grad_() for g in step] for step in self.gradients]
        given: Any = self.parameters
        if self.variant == "groups":
            rate = {"lr": float(kwargs["lr"]) / 4} if "lr" in kwargs else {"lr": 0.004}
            given = [{"params": given[:1]}, {"params": given[1:], **rate}]
        return getattr(rt.optim, self.name)(given, **kwargs)

    def give(self, step: int) -> None:
        """The gradients of a step."""
        for parameter, gradient in zip(self.parameters, self.gradients[step], strict=True):
            if self.variant == "sparse":
                rows = gradient.abs().sum(1).nonzero().reshape(1, -1)
                gradient = self.rt.sparse_coo_tensor(rows, gradient[rows[0]], gradient.shape)
            elif self.variant != "differentiable":
                gradient = gradient.clone()  # a step may write to it
            parameter.grad = gradient

    def closure(self, optimizer: Any) -> Callable[[], Any]:
        """A quadratic whose coefficients are the first step's gradients."""

        def value() -> Any:
            optimizer.zero_grad()
            terms = zip(self.parameters, self.gradients[0], strict=True)
            loss = sum(((p * (1 + g * g) - g) ** 2).sum() for p, g in terms)
            loss.backward()  # type: ignore[union-attr]
            return loss

        return value

    def encode(self, value: Any) -> wire.Node:
        """Tree of results."""
        return wire.encode_output(self.rt, value, self.pack, [])


def bare(optimizer: Any) -> Callable[[], Any]:
    """A step as a function of its own, as one writes it to have it compiled."""

    def step() -> Any:
        return optimizer.step()

    return step


def run(sample: Sample, *, wide: bool = False, **changed: Any) -> dict[str, Outcome]:
    """Every check: `{"out": tree}` or `{"err": [type, text]}`."""
    try:
        optimizer = sample.make(wide=wide, **changed)
    except Exception as error:
        return {"init": checks.failure(error)}
    found: dict[str, Outcome] = {}
    if not wide:
        found["init"] = {"out": described(sample, optimizer)}
        found["repr"] = {"out": sample.encode(repr(optimizer))}
    found |= stepped(sample, optimizer, optimizer.step)
    if "out" in found["steps"] and not wide and sample.variant != "differentiable":
        found["load"] = loading(sample, optimizer)
    return found


def described(sample: Sample, optimizer: Any) -> wire.Node:
    """Defaults, groups and the empty state, without values of parameters."""
    groups = [{k: v for k, v in g.items() if k != "params"} for g in optimizer.param_groups]
    sizes = [len(group["params"]) for group in optimizer.param_groups]
    return sample.encode([optimizer.defaults, groups, sizes, optimizer.state_dict()])


def stepped(sample: Sample, optimizer: Any, step: Callable[..., Any]) -> dict[str, Outcome]:
    """Parameters after each step, what a step returned, and the state in the end."""
    values, said = [], []
    try:
        for number in range(len(sample.gradients)):
            if sample.variant == "closure":
                said.append(step(sample.closure(optimizer)))
            else:
                sample.give(number)
                said.append(step())
            values.append(flat(sample.rt, sample.parameters))
    except Exception as error:
        return {"steps": checks.failure(error)}
    found = {"steps": {"out": sample.encode(values)}, "returned": {"out": sample.encode(said)}}
    found["state"] = {"out": sample.encode(kept(sample, optimizer))}
    if sample.variant == "differentiable":
        found["grad"] = differentiated(sample)
    return found


def kept(sample: Sample, optimizer: Any) -> Any:
    """The state dictionary; a loss that is kept as a number has the digits of its dtype."""
    rt, state = sample.rt, optimizer.state_dict()
    dtype = sample.parameters[0].dtype
    state["state"] = {
        number: {k: rt.tensor(v, dtype=dtype) if k == "prev_loss" else v for k, v in of.items()}
        for number, of in state["state"].items()
    }
    return state


def flat(rt: ModuleType, tensors: list[Any]) -> Any:
    """All values in one vector: an optimiser's parameters are one, in pieces."""
    return rt.cat([tensor.detach().reshape(-1) for tensor in tensors])


def differentiated(sample: Sample) -> Outcome:
    """Gradients of the last parameters with respect to the first, and to all gradients."""
    rt, ends = sample.rt, sample.parameters
    sources = [*sample.leaves, *(g for step in sample.gradients for g in step)]
    dots = [checks.cotangent(rt, end, number) for number, end in enumerate(ends)]
    try:
        grads = rt.autograd.grad(ends, sources, dots, allow_unused=True)
        known = [rt.zeros_like(s) if g is None else g for g, s in zip(grads, sources, strict=True)]
        count = len(ends)
        parts = [known[at : at + count] for at in range(0, len(known), count)]
        return {"out": sample.encode([flat(rt, part) for part in parts])}
    except Exception as error:
        return checks.failure(error)


def loading(sample: Sample, optimizer: Any) -> Outcome:
    """Whether another optimiser goes on from a saved state as this one does; what is said of a
    state that does not fit."""
    rt = sample.rt
    here, saved = [p.detach().clone() for p in sample.parameters], io.BytesIO()
    rt.save(optimizer.state_dict(), saved)
    saved.seek(0)
    try:
        ends = []
        for state in (optimizer.state_dict(), rt.load(saved, weights_only=True)):
            other = sample.make()
            for parameter, value in zip(sample.parameters, here, strict=True):
                parameter.data.copy_(value)
            other.load_state_dict(state)
            ends.append(stepped(sample, other, other.step)["steps"])
        said: list[Any] = ["out" in ends[0] and ends[0] == ends[1]]
    except Exception as error:
        said = checks.failure(error)["err"]
    try:
        optimizer.load_state_dict({"state": {}, "param_groups": []})
    except Exception as error:
        said += checks.failure(error)["err"]
    return {"out": sample.encode(said)}


def error(rt: ModuleType, name: str, reader: wire.InputReader, on_construction: bool) -> Outcome:
    """Outcome of an input that ought to raise, or to warn."""
    try:
        parameters, kwargs = reader.load(owned=True).args
    except Exception as problem:
        return {"out": None, "why": f"inputs could not be built: {problem}"}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            optimizer = getattr(rt.optim, name)(parameters, **kwargs)
        if not on_construction:
            optimizer.step()
    except (Exception, UserWarning) as problem:
        bases = [base.__name__ for base in type(problem).__mro__]
        return checks.failure(problem) | {"bases": bases}
    return {"out": None, "why": "no error"}
