"""The checks themselves, the same code under either runtime.

Each check runs the callable on fresh inputs and returns a JSON-able outcome
`{"out": tree}` or `{"err": [type, message]}`; the recorder stores it, the replayer compares.
"""

from __future__ import annotations

import operator
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np

from tests.oracle import wire

Outcome = dict[str, Any]
CHECKS = (
    "forward", "strides", "strides_other", "grad", "grad2", "method", "alias", "operator",
    "inplace", "inplace_grad", "out", "errors", "error_text", "program",
)  # fmt: skip
INFORMATIVE = ("strides_other", "error_text", "data_dependent")  # shown, never required
OUT_FORMS = ("exact", "strided", "empty", "wrong_shape", "wrong_dtype")


@dataclass
class Case:
    """One sample under one runtime."""

    rt: ModuleType
    reader: wire.InputReader
    pack: wire.Pack
    number: int  # of the sample: seeds its cotangents

    def load(self, *, grad: bool, wide: bool = False) -> wire.Inputs:
        """Fresh inputs, and the generator at the seed that the recording used."""
        inputs = self.reader.load(grad=grad, wide=wide)
        self.rt.manual_seed(42)
        return inputs

    def encode(self, value: Any, inputs: wire.Inputs) -> wire.Node:
        """Tree of results, buffers into the pack."""
        return wire.encode_output(self.rt, value, self.pack, inputs.tensors)

    def mutations(self, inputs: wire.Inputs) -> list[Any]:
        """`[storage, dtype, buffer]` of every storage that the call has written to."""
        return [
            [i, inputs.dtypes[i], self.pack.add(bytes(inputs.memory[i]))] for i in inputs.mutated()
        ]


def failure(error: BaseException) -> Outcome:
    """An exception as an outcome."""
    return {"err": [type(error).__name__, str(error)]}


def leaves(tree: Any, rt: ModuleType) -> list[Any]:
    """Tensors of a result, in order."""
    if isinstance(tree, rt.Tensor):
        return [tree]
    if isinstance(tree, (tuple, list)):
        return [leaf for item in tree for leaf in leaves(item, rt)]
    if isinstance(tree, dict):
        return [leaf for item in tree.values() for leaf in leaves(item, rt)]
    return []


def cotangent(rt: ModuleType, like: Any, seed: int) -> Any:
    """Multiples of 1/64 in [-2, 2): exact in every floating dtype, the same in both runtimes."""
    random = np.random.RandomState(seed)
    shape = tuple(like.shape)
    values = random.randint(-128, 128, shape).astype(np.float64) / 64
    if like.dtype.is_complex:
        values = values + 1j * random.randint(-128, 128, shape) / 64
    flat = np.ascontiguousarray(values).reshape(-1)
    if flat.size == 0:
        return rt.empty(shape, dtype=like.dtype)
    kind = "complex128" if like.dtype.is_complex else "float64"
    whole = wire.over_memory(rt, bytearray(flat.tobytes()), kind, flat.size)
    return whole.reshape(shape).to(like.dtype)


# -- forward and gradients ------------------------------------------------------------------------


def forward(case: Case, fn: Callable[..., Any], *, wide: bool = False) -> Outcome:
    """Result of the plain call with `requires_grad` as the sample asks, and what it wrote to."""
    inputs = case.load(grad=True, wide=wide)
    try:
        out = fn(*inputs.args, **inputs.kwargs)
    except Exception as error:
        return failure(error)
    written = case.mutations(inputs)
    outcome = {"out": case.encode(out, inputs)}
    return outcome | {"mut": written} if written else outcome


def _differentiable(case: Case, tree: Any) -> list[Any]:
    return [leaf for leaf in leaves(tree, case.rt) if leaf.requires_grad]


def gradients(
    case: Case, fn: Callable[..., Any], *, second: bool, wide: bool = False, clone: bool = False
) -> dict[str, Outcome]:
    """`grad`: vector-Jacobian products with seeded cotangents for all inputs at once.
    `grad2`: the same of those products, for inputs and cotangents.

    `clone`: call on a clone of the first argument (the in-place form on a non-leaf).
    """
    rt = case.rt
    inputs = case.load(grad=True, wide=wide)
    sources = [t for t in inputs.tensors if t.requires_grad]
    if not sources:
        return {}
    args = inputs.args
    try:
        if clone:
            args = [args[0].clone(), *args[1:]]
            rt.manual_seed(42)
        outs = _differentiable(case, fn(*args, **inputs.kwargs))
    except Exception as error:
        return {"grad": failure(error)} if clone else {}
    if not outs:
        return {}
    seed = 1000 * case.number
    dots = [cotangent(rt, out, seed + i) for i, out in enumerate(outs)]
    try:
        if second:
            for dot in dots:
                dot.requires_grad_()
        first = rt.autograd.grad(outs, sources, dots, create_graph=second, allow_unused=True)
    except Exception as error:
        return {"grad": failure(error)}
    results = {"grad": {"out": case.encode(list(first), inputs)}}
    again = [g for g in first if g is not None and g.requires_grad]
    if not second or not again:
        return results
    dots2 = [cotangent(rt, g, seed + 500 + i) for i, g in enumerate(again)]
    try:
        grads = rt.autograd.grad(again, [*sources, *dots], dots2, allow_unused=True)
    except Exception as error:
        return results | {"grad2": failure(error)}
    return results | {"grad2": {"out": case.encode(list(grads), inputs)}}


def term_norms(case: Case, fn: Callable[..., Any]) -> list[float | None]:
    """For each gradient that is a sum because its input was broadcast: the 2-norm of the terms (the
    largest of the tensor's elements). Their roundings are what the sum's last digits are made of,
    however small the sum. Computed in 64 bits from inputs that were spread beforehand.
    """
    inputs = case.load(grad=True, wide=True)
    sources = [t for t in inputs.tensors if t.requires_grad]
    none: list[float | None] = [None for _ in sources]
    plain = fn(*inputs.args, **inputs.kwargs)
    if not case.rt.is_tensor(plain):
        return none
    shape = plain.shape
    fits = [tuple(np.broadcast_shapes(t.shape, shape)) == tuple(shape) for t in sources]
    if all(t.shape == shape for t in sources) or not all(fits):
        return none
    spread = {id(t): t.detach().expand(shape).clone().requires_grad_() for t in sources}
    args = [spread.get(id(a), a) for a in inputs.args]
    out = fn(*args, **{key: spread.get(id(a), a) for key, a in inputs.kwargs.items()})
    leaves = [spread[id(t)] for t in sources]
    dot = cotangent(case.rt, out, 1000 * case.number)
    terms = case.rt.autograd.grad(out, leaves, dot, allow_unused=True)
    return [
        None if g is None or t.shape == shape or not t.numel() else
        float(g.abs().square().sum_to_size(t.shape).sqrt().max())
        for g, t in zip(terms, sources, strict=True)
    ]  # fmt: skip


# -- variants -------------------------------------------------------------------------------------


def inplace(case: Case, fn: Callable[..., Any], *, wide: bool = False) -> Outcome:
    """The in-place form, not recorded, straight on the sample's own layout."""
    inputs = case.load(grad=False, wide=wide)
    try:
        out = fn(*inputs.args, **inputs.kwargs)
    except Exception as error:
        return failure(error)
    outcome = {"out": case.encode(out, inputs), "mut": case.mutations(inputs)}
    if case.rt.is_tensor(inputs.args[0]):
        outcome["self"] = case.encode(inputs.args[0], inputs)
    return outcome


def out_forms(case: Case, fn: Callable[..., Any]) -> dict[str, Outcome]:
    """`out=` into: same geometry; spread strides; nothing (0,); a wrong shape; int64/bool."""
    inputs = case.load(grad=False)
    try:
        expected = fn(*inputs.args, **inputs.kwargs)
    except Exception:
        return {}
    single = case.rt.is_tensor(expected)
    wanted = [expected] if single else expected
    if not isinstance(wanted, (list, tuple)) or not all(map(case.rt.is_tensor, wanted)):
        return {}
    return {form: _out_form(case, fn, wanted, single, form) for form in OUT_FORMS}


def _out_form(
    case: Case, fn: Callable[..., Any], wanted: list[Any], single: bool, form: str
) -> Outcome:
    rt = case.rt
    inputs = case.load(grad=False)
    try:
        targets = [_target(rt, like, form) for like in wanted]
        rt.manual_seed(42)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            given = targets[0] if single else tuple(targets)
            result = fn(*inputs.args, **inputs.kwargs, out=given)
    except Exception as error:
        return failure(error)
    returned = [result] if rt.is_tensor(result) else list(result or ())
    same = len(returned) == len(targets) and all(
        a is b for a, b in zip(returned, targets, strict=True)
    )
    return {"out": [case.encode(t, inputs) for t in targets], "same": same}


def _target(rt: ModuleType, like: Any, form: str) -> Any:
    shape, dtype = tuple(like.shape), like.dtype
    if form == "empty":
        return rt.empty((0,), dtype=dtype)
    if form == "wrong_shape":
        return rt.ones((*shape, 2), dtype=dtype)
    if form == "wrong_dtype":
        wrong = rt.float64 if dtype in (rt.int64, rt.bool) else rt.int64
        return rt.ones(shape, dtype=wrong)
    if form == "strided":
        wide = tuple(size * 2 for size in reversed(shape))
        base = rt.ones(wide, dtype=dtype)
        return base.permute(*reversed(range(len(shape))))[
            tuple(slice(None, None, 2) for _ in shape)
        ] if shape else rt.ones((3,), dtype=dtype)[1]  # fmt: skip
    target = rt.empty_strided(shape, tuple(like.stride()), dtype=dtype)
    return target.fill_(1)


def call_error(case: Case, fn: Callable[..., Any]) -> Outcome:
    """Outcome of a call that ought to raise; `{"err": …, "bases": …}`."""
    try:
        inputs = case.reader.load(grad=True, owned=True)
    except Exception as error:
        return {"out": None, "why": f"inputs could not be built: {error}"}
    try:
        fn(*inputs.args, **inputs.kwargs)
    except Exception as error:
        return failure(error) | {"bases": [base.__name__ for base in type(error).__mro__]}
    return {"out": None, "why": "no error"}


OPERATORS = {
    name: getattr(operator, name)
    for name in ("add", "sub", "mul", "pow", "matmul", "getitem", "eq", "ne", "lt", "le", "gt",
                 "ge", "truediv", "iadd", "isub", "imul", "ipow")
}  # fmt: skip
