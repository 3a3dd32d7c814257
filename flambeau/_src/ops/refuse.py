"""What a call is told that fits no overload: the TypeError, in torch's words.

Torch shows one Python signature for an overload and its `out=` form together, in its own order, and
leaves out overloads for numbers where the one for tensors takes numbers too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flambeau._src import _native
from flambeau._src.core.size import Size
from flambeau._src.core.tensor import Tensor
from flambeau._src.ops.op import Op, Packet, resolve_lazy
from flambeau._src.ops.schema import Arg

Convert = Callable[[Any, Arg, bool], bool]  # (value, argument, numbers) → whether it is taken
_HEAP = 1 << 9  # Py_TPFLAGS_HEAPTYPE: such a type's C name is its bare name
_TYPES = {
    "Scalar": "Number", "ScalarType": "torch.dtype", "Layout": "torch.layout",
    "Device": "torch.device", "MemoryFormat": "torch.memory_format",
    "Generator": "torch.Generator",
}  # fmt: skip
_CORE: dict[str, type] = {t.__name__: t for t in (_native.dtype, _native.device, Size)}
#: Options that a factory takes beside its schema's.
_REQUIRES_GRAD = Arg("requires_grad", "bool", default=False, kwarg_only=True)


def type_text(a: Arg) -> str:
    """An argument's type as messages show it."""
    base = a.type if a.is_list and a.type == "Scalar" else _TYPES.get(a.type, a.type)
    return f"tuple of {base}s" if a.is_list else base


def shown(a: Arg, i: int) -> str:
    """The name under which users give it."""
    return "input" if a.name == "self" and i == 0 and a.is_tensor else a.name


class Parameter:
    """One parameter of a Python signature."""

    def __init__(self, arg: Arg, name: str) -> None:
        self.arg = arg
        self.name = name

    @property
    def required(self) -> bool:
        return not self.arg.has_default

    def __str__(self) -> str:
        text = f"{type_text(self.arg)} {self.name}"
        return text if self.required else f"{text} = {self._default()}"

    def _default(self) -> str:
        value = self.arg.default if self.arg.has_default else None
        if isinstance(value, list):
            if len(set(value)) == 1:
                return str(value[0])
            return f"({','.join(map(str, value))})" if value else "None"
        return f'"{value}"' if self.arg.type == "str" and value is not None else str(value)


class Signature:
    """One way of calling a function or method."""

    def __init__(self, op: Op, method: bool) -> None:
        args = list(op.schema.args)
        parameters = [Parameter(a, shown(a, i)) for i, a in enumerate(args)]
        if method:
            del parameters[0]
        elif op.out_op is not None:
            many = len(op.decl.out_args) > 1
            out = Arg("out", "Tensor", is_list=many, default=None, kwarg_only=True)
            parameters.append(Parameter(out, "out"))
        if op.decl.kind in ("factory", "like"):
            parameters.append(Parameter(_REQUIRES_GRAD, "requires_grad"))
        self.op = op
        self.positional = [p for p in parameters if not p.arg.kwarg_only]
        self.keywords = [p for p in parameters if p.arg.kwarg_only]
        self.numbers = op.decl.numbers

    @property
    def parameters(self) -> list[Parameter]:
        return [*self.positional, *self.keywords]

    def __str__(self) -> str:
        return f"({', '.join(self.parts())})"

    def parts(self) -> list[str]:
        """The parameters as they are listed, with the star."""
        star = ["*"] if self.keywords else []
        return [*map(str, self.positional), *star, *map(str, self.keywords)]

    def plausible(self, count: int) -> bool:
        """Whether so many arguments could be meant for it."""
        return sum(p.required for p in self.parameters) <= count <= len(self.parameters)

    def within(self, other: Signature) -> bool:
        """Whether the other one only adds keywords that may be left out (`generator=`)."""
        mine, its = set(self.parts()), set(other.parts())
        return mine < its and not any(p.required for p in other.parameters if str(p) not in mine)

    def narrower(self, other: Signature) -> bool:
        """Whether it takes numbers where the other takes tensors, and else the same."""
        if len(self.parameters) != len(other.parameters):
            return False
        pairs = [
            (type_text(a.arg), type_text(b.arg))
            for a, b in zip(self.parameters, other.parameters, strict=True)
        ]
        return any(a != b for a, b in pairs) and all(
            a == b or (a, b) == ("Number", "Tensor") for a, b in pairs
        )


def signatures(packet: Packet, method: bool) -> list[Signature]:
    """The Python signatures of a packet: by their text, but wider ones before narrower ones."""
    found = [
        Signature(op, method)
        for op in resolve_lazy(packet)
        if not (op.decl.numbers and op.overload.startswith("Scalar") and len(packet.ops) > 1)
    ]
    found = [s for s in found if not any(s.within(t) for t in found)]
    waiting, ordered = sorted(found, key=_text_order), []
    while waiting:
        first = next(s for s in waiting if not any(s.narrower(t) for t in waiting))
        waiting.remove(first)
        ordered.append(first)
    return ordered


def _text_order(s: Signature) -> str:
    """Torch sorts by the C++ text: numbers are `Scalar`, ints `int64_t`, lists `SymIntArrayRef`."""
    text = ", ".join(s.parts()).replace("Number", "Scalar").replace("torch.dtype", "ScalarType")
    return text.replace("tuple of ints", "SymIntArrayRef")


# -- whether values fit ----------------------------------------------------------------------------


def _fits(value: Any, p: Parameter, convert: Convert, numbers: bool) -> bool:
    """Whether a value looks like what a parameter takes; lists are judged by their first item."""
    a = p.arg
    if value is None:
        return a.optional or (a.has_default and a.default in (None, []))
    if a.is_list and isinstance(value, (tuple, list)) and a.type in ("int", "Tensor"):
        if not value or a.type == "Tensor":
            return True
        return convert((value[0],), a, numbers)
    return convert(value, a, numbers)


class Refusal:
    """One call that fits nothing."""

    def __init__(
        self, name: str, given: list[Signature], args: tuple[Any, ...], kwargs: dict[str, Any],
        convert: Convert,
    ) -> None:  # fmt: skip
        self.name, self.signatures, self.args, self.kwargs = name, given, args, kwargs
        self.convert = convert

    def error(self) -> TypeError:
        """What to raise."""
        for s in self.signatures:
            if self.specific(s) is None:
                return TypeError(self._element(s))
        count = len(self.args) + len(self.kwargs)
        likely = [s for s in self.signatures if s.plausible(count)]
        if len(self.signatures) == 1 and not self.signatures[0].op.decl.old_form:
            likely = self.signatures
        if len(likely) == 1 and likely[0].parameters:
            return TypeError(f"{self.name}(){self.specific(likely[0])}")
        if not any(s.parameters for s in self.signatures):
            given = f"arguments ({len(self.args)} given)" if self.args else "keyword arguments"
            return TypeError(f"TensorBase.{self.name}() takes no {given}")
        return TypeError(self._overview())

    def specific(self, s: Signature) -> str | None:
        """The first thing that is wrong with the call under one signature, or None."""
        n, most = len(self.args), len(s.positional)
        if n > most and not self._sizes_one_by_one(s):
            least = sum(p.required for p in s.positional)
            if least != most:
                takes = f"from {least} to {most} positional arguments"
            else:
                takes = f"{most} positional argument{'' if most == 1 else 's'}"
            return f" takes {takes} but {n} {'was' if n == 1 else 'were'} given"
        left = dict(self.kwargs)
        for i, p in enumerate(s.parameters):
            if i < n and not p.arg.kwarg_only:
                value, where = self.args[i], f" (position {i + 1})"
                if self._sizes_one_by_one(s):
                    value = tuple(self.args)
            elif p.name in left or p.arg.name in left:
                value, where = left.pop(p.name if p.name in left else p.arg.name), ""
            elif p.required:
                missing = [q for q in s.positional[i:] if q.required and q.name not in left]
                names = ", ".join(f'"{q.name}"' for q in missing or [p])
                plural = "s" if len(missing) == 1 else ""
                return (
                    f" missing {len(missing or [p])} required positional argument{plural}: {names}"
                )
            else:
                continue
            if not _fits(value, p, self.convert, s.numbers and p.name != "out"):
                want, got = type_text(p.arg), f"not {type_name(value)}"
                if p.arg.is_list and isinstance(value, (tuple, list)):
                    got = f"but found element of type {type_name(value[0])} at pos 0"
                return f": argument '{p.name}'{where} must be {want}, {got}"
        for key in left:
            if any(key in (p.name, p.arg.name) for p in s.parameters):
                return f" got multiple values for argument '{key}'"
            return f" got an unexpected keyword argument '{key}'"
        return None

    def _sizes_one_by_one(self, s: Signature) -> bool:
        """x.view(2, 3): where sizes come last they may stand alone; the first one tells."""
        if not s.positional or len(s.positional) > 1:
            return False
        last = s.positional[-1].arg
        first = self.args[0] if self.args else None
        return last.is_list and last.type == "int" and isinstance(first, int)

    def _element(self, s: Signature) -> str:
        """What is wrong inside a list."""
        values = dict(zip((p.name for p in s.positional), self.args, strict=False))
        if self._sizes_one_by_one(s):
            values[s.positional[0].name] = self.args
        values |= self.kwargs
        for i, p in enumerate(s.parameters):
            value = values.get(p.name, values.get(p.arg.name))
            if not p.arg.is_list or not isinstance(value, (tuple, list)):
                continue
            for k, x in enumerate(value):
                if p.arg.type == "Tensor":
                    if not isinstance(x, Tensor):
                        got = type_name(x)
                        return f"expected Tensor as element {k} in argument {i}, but got {got}"
                elif not self.convert((x,), p.arg, False):
                    return (
                        f"{self.name}(): argument '{p.name}' failed to unpack the object at pos "
                        f'{k + 1} with error "type must be tuple of {p.arg.type}s,but got '
                        f'{type_name(x)}"'
                    )
        return f"{self.name}() got arguments that it does not take"

    def _overview(self) -> str:
        """Every signature, and what is wrong with those of the right length."""
        parts = [type_name(a) for a in self.args]
        parts += [f"{k}={type_name(v)}" for k, v in reversed(self.kwargs.items())]
        got = ", ".join(parts) + (", " if parts and not self.args else "")
        text = f"{self.name}() received an invalid combination of arguments - got ({got}), "
        if len(self.signatures) == 1:
            unknown = self._unknown(self.signatures[0])
            if unknown:
                what = "received an invalid combination of arguments"
                return f"{self.name}() {what} - got unrecognized keyword arguments: {unknown}"
            return f"{text}but expected {self.signatures[0]}"
        text += "but expected one of:\n"
        for s in self.signatures:
            text += f" * {s}\n{self._why(s)}"
        return text

    def _why(self, s: Signature) -> str:
        """A line on a signature that lists as many parameters (the star counted) as were given."""
        if len(s.parts()) != len(self.args) + len(self.kwargs):
            return ""
        wrong = self._unknown(s)
        if wrong:
            return f"      didn't match because some of the keywords were incorrect: {wrong}\n"
        slots: list[Parameter | None] = [*s.positional]
        slots += [None] * bool(s.keywords) + list(s.keywords)
        described = []
        for i in range(len(slots)):
            p = slots[i]
            if i < len(self.args):
                described.append(self._mark(self.args[i], p, s.numbers, ""))
            elif p is not None and p.name in self.kwargs:
                described.append(self._mark(self.kwargs[p.name], p, s.numbers, f"{p.name}="))
        return (
            "      didn't match because some of the arguments have invalid types: "
            f"({', '.join(described)})\n"
        )

    def _unknown(self, s: Signature) -> str:
        """Keywords that the listing does not know: it reads a default as the parameter's name."""
        known = {p.name for p in s.parameters if p.required}
        return ", ".join(k for k in reversed(self.kwargs) if k not in known)

    def _mark(self, value: Any, p: Parameter | None, numbers: bool, label: str) -> str:
        text = label + _described(value)
        fits = p is not None and _fits(value, p, self.convert, numbers) and value is not None
        return text if fits else f"!{text}!"


def type_name(value: Any) -> str:
    """A value's type as C names it: bare for classes, qualified for an extension's types."""
    t = type(value)
    if t.__name__ in _CORE and isinstance(value, _CORE[t.__name__]):
        return f"torch.{t.__name__}"
    if t.__flags__ & _HEAP or t.__module__ == "builtins" or isinstance(value, Tensor):
        return t.__name__
    return f"{t.__module__}.{t.__name__}"


def _described(value: Any) -> str:
    if isinstance(value, list):
        return f"list of [{', '.join(type_name(x) for x in value)}]"
    if isinstance(value, tuple):
        inside = ", ".join(type_name(x) for x in value)
        return f"tuple of ({inside},)" if len(value) == 1 else f"tuple of ({inside})"
    return type_name(value)
