"""What is done with a module of the database: the same code under either runtime.

A case's arguments are `(constructor args, constructor kwargs, forward args, forward kwargs)`. The
module is made under seed 0, converted to the case's dtype, and called under seed 42.
"""

from __future__ import annotations

import copy
import pickle
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

from tests.oracle import checks, objects, wire

Outcome = checks.Outcome


@dataclass
class Sample:
    """One module input of the database under one runtime."""

    rt: ModuleType
    name: str  # nn.Linear
    dtype: str
    training: bool
    reader: wire.InputReader
    pack: wire.Pack
    number: int
    calls: bool = True  # the database says how to call it
    inputs: wire.Inputs = field(init=False)

    def make(self) -> Any:
        """The module, and fresh inputs for its call in `inputs`."""
        self.rt.manual_seed(0)
        self.inputs = self.reader.load()
        args, kwargs = self.inputs.args[:2]
        module = objects.public(self.rt, self.name)(*args, **kwargs)
        module.to(getattr(self.rt, self.dtype))
        return module.train(self.training)

    def call(self, module: Any) -> Any:
        """Its result, from seed 42."""
        args, kwargs = self.inputs.args[2:]
        self.rt.manual_seed(42)
        return module(*args, **kwargs)

    def widened(self) -> Any:
        """The same module and inputs with every float in 64 bits. A lazy one is called first: its
        parameters are drawn in its own dtype."""
        module = self.make()
        if "Lazy" in self.name:
            self.call(module)
        wide = wire.WIDER.get(self.dtype, self.dtype)
        module.to(getattr(self.rt, wide))
        self.inputs = self.reader.load(wide=True)
        return module

    def encode(self, value: Any, *given: Any) -> wire.Node:
        """Tree of results."""
        return wire.encode_output(self.rt, value, self.pack, list(given))

    def state(self, module: Any) -> wire.Node:
        """Its state dictionary; a parameter that has no shape yet is named as such."""
        return self.encode({key: self._known(value) for key, value in module.state_dict().items()})

    def _known(self, value: Any) -> Any:
        lazy = self.rt.nn.parameter.is_lazy(value)
        return type(value).__name__ if lazy else value


def run(sample: Sample) -> dict[str, Outcome]:
    """Every check: `{"out": tree}` or `{"err": [type, text]}`."""
    try:
        module = sample.make()
    except Exception as error:
        return {"init": checks.failure(error)}
    found = {"init": {"out": sample.state(module)}, "repr": {"out": sample.encode(repr(module))}}
    found["attributes"] = {"out": attributes(sample, module)}
    found["load"] = loading(sample, module)
    if not sample.calls:
        return found
    results = called(sample, module)
    found |= results
    if "out" in results["forward"]:
        found["pickle"] = pickled(sample)
    return found


def attributes(sample: Sample, module: Any) -> wire.Node:
    """Public attributes of the instance, and what is registered under which name."""
    plain = {k: v for k, v in sorted(vars(module).items()) if not k.startswith("_")}
    plain["parameters"] = [[n, bool(p.requires_grad)] for n, p in module.named_parameters()]
    plain["buffers"] = [n for n, _ in module.named_buffers()]
    plain["modules"] = [[n, type(m).__name__] for n, m in module.named_modules()]
    plain["extra_repr"] = module.extra_repr()
    return objects.described(sample.rt, plain)


def loading(sample: Sample, module: Any) -> Outcome:
    """What `load_state_dict` says of its own state and of one that does not fit."""
    said = [repr(module.load_state_dict(module.state_dict()))]
    try:
        said.append(repr(module.load_state_dict({"nothing": sample.rt.ones(1)})))
    except Exception as error:
        said += checks.failure(error)["err"]
    return {"out": sample.encode(said)}


def called(sample: Sample, module: Any, target: Any = None) -> dict[str, Outcome]:
    """Result, gradients of inputs and parameters, state after it, and how far the generator is.

    `target`: what is called instead of the module (its compiled form)."""
    rt = sample.rt
    try:
        out = sample.call(target or module)
    except Exception as error:
        return {"forward": checks.failure(error)}
    given = sample.inputs.tensors
    found = {"rng": {"out": sample.encode(rt.rand(2))}}
    found["forward"] = {"out": sample.encode(out, *given)}
    written = sample.inputs.mutated()
    found["writes"] = {"out": sample.encode(written)}
    sources = [t for t in given if t.requires_grad] + list(module.parameters())
    sources = list({id(t): t for t in sources if t.requires_grad}.values())
    grown = [leaf for leaf in checks.leaves(out, rt) if leaf.requires_grad]
    if sources and grown:
        seed = 1000 * sample.number
        dots = [checks.cotangent(rt, leaf, seed + i) for i, leaf in enumerate(grown)]
        try:
            grads = rt.autograd.grad(grown, sources, dots, allow_unused=True)
            found["grad"] = {"out": sample.encode(list(grads))}
        except Exception as error:
            found["grad"] = checks.failure(error)
    found["state"] = {"out": sample.state(module)}
    return found


def draws(sample: Sample) -> bool:
    """Whether the call takes random numbers: then no wider run is a reference."""
    module = sample.make()
    if "Lazy" in sample.name:
        sample.call(module)  # draws its parameters
    sample.rt.manual_seed(42)
    before = sample.rt.get_rng_state()
    sample.call(module)
    return not sample.rt.equal(before, sample.rt.get_rng_state())


def pickled(sample: Sample) -> Outcome:
    """Whether a pickled and a copied module are the module: type, text, keys, results."""
    rt, said = sample.rt, []
    module = sample.make()
    for again in (lambda m: pickle.loads(pickle.dumps(m)), copy.deepcopy):
        try:
            other = again(module)
            here, there = module.state_dict(), other.state_dict()
            said += [type(other) is type(module), repr(other) == repr(module), list(there)]
            said.append(other.training)
            if "Lazy" not in sample.name:
                said.append(all(rt.equal(here[key], there[key]) for key in here))
                first, second = (checks.leaves(sample.call(m), rt) for m in (module, other))
                said.append([rt.equal(a, b) or bool((a != a).any())
                             for a, b in zip(first, second, strict=True)])  # fmt: skip
        except Exception as error:
            said += checks.failure(error)["err"]
    return {"out": sample.encode(said)}


def error(sample: Sample, on_construction: bool) -> Outcome:
    """Outcome of an input that ought to raise, where it ought to."""
    try:
        module = sample.make()
    except Exception as problem:
        where = [] if on_construction else ["raised by the constructor"]
        return checks.failure(problem) | {"bases": [*_bases(problem), *where]}
    if on_construction:
        return {"out": None, "why": "the constructor raises nothing"}
    try:
        sample.call(module)
    except Exception as problem:
        return checks.failure(problem) | {"bases": _bases(problem)}
    return {"out": None, "why": "no error"}


def _bases(problem: BaseException) -> list[str]:
    return [base.__name__ for base in type(problem).__mro__]
