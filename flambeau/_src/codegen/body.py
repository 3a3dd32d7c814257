"""Scalar operations of the kernel IR as statements over vectors.

One C variable a value. A bool is a *mask*, an integer vector of zeros and ones-complements; its
element size follows the comparison that made it and is converted where another is needed.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from flambeau._src.ir.kernel import DTYPES, Kernel

from .fragments import C_TYPES, Text, mask_type

__all__ = ["Body", "literal"]

_INFIX = {"add": "+", "sub": "-", "mul": "*", "div": "/", "and": "&", "or": "|", "xor": "^"}
_COMPARE = {"lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!="}
_MASK_COMPARE = {
    "eq": "~({a} ^ {b})", "ne": "{a} ^ {b}", "lt": "~{a} & {b}", "le": "~{a} | {b}",
    "gt": "{a} & ~{b}", "ge": "{a} | ~{b}",
}  # fmt: skip


def literal(v: int | float | bool, short: str) -> str:
    """A Python number as a C constant of the scalar type ``short``."""
    if C_TYPES[short][2] != "f":
        v = int(v)
        bits = 8 * C_TYPES[short][1]
        v &= (1 << bits) - 1
        if short.startswith("i") and v >> (bits - 1):
            v -= 1 << bits
        if v == -(1 << 63):
            return "(-0x7fffffffffffffffLL - 1)"
        return f"{v}{'ull' if short == 'u64' else 'll' if short == 'i64' else ''}"
    suffix = "f" if short == "f32" else ""
    v = float(v)
    if math.isnan(v):
        return f'__builtin_nan{suffix}("")'
    if math.isinf(v):
        return f"{'-' if v < 0 else ''}__builtin_inf{suffix}()"
    if short == "f32" and abs(v) > 3.4028235677973366e38:
        return f"{'-' if v < 0 else ''}__builtin_inff()"
    if v == int(v) and abs(v) < 1e6:
        return f"{'-' if math.copysign(1, v) < 0 else ''}{abs(v):.1f}{suffix}"
    return f"{v.hex()}{suffix}" if short == "f64" else f"(float){v.hex()}"


class Body:
    """Prints the values of a kernel, in the order asked for, as C statements.

    ``lines`` collects them; ``name[v]`` is the C expression of a value already printed.
    """

    def __init__(self, kernel: Kernel, text: Text, lanes: int) -> None:
        self.kernel, self.text, self.lanes = kernel, text, lanes
        self.lines: list[str] = []
        self.name: dict[int, str] = {}
        self.mask_size: dict[int, int] = {}
        self._converted: dict[tuple[int, int], str] = {}
        self.indent = "    "

    # ---- scopes

    def scope(self) -> tuple[dict[int, str], dict[tuple[int, int], str]]:
        """What is printed so far; give it back to :meth:`leave` at the end of a C block."""
        return dict(self.name), dict(self._converted)

    def leave(self, saved: tuple[dict[int, str], dict[tuple[int, int], str]]) -> None:
        self.name, self._converted = dict(saved[0]), dict(saved[1])

    def put(self, line: str) -> None:
        self.lines.append(self.indent + line)

    # ---- types

    def short(self, v: int) -> str:
        """The scalar type of a value that is not bool."""
        return DTYPES[self.kernel.insts[v].dtype].short

    def vector(self, v: int) -> str:
        return self.text.type(self.short(v), self.lanes)

    def mask(self, size: int) -> str:
        self.text.type(f"i{8 * size}", self.lanes)
        return mask_type(size, self.lanes)

    def type_of(self, v: int) -> str:
        """The C type of the variable of a printed value."""
        if self.kernel.insts[v].dtype == "bool":
            return self.mask(self.mask_size[v])
        return self.vector(v)

    def as_mask(self, v: int, size: int) -> str:
        """The mask ``v`` with elements of ``size`` bytes."""
        if self.mask_size[v] == size:
            return self.name[v]
        known = self._converted.get((v, size))
        if known is None:
            known = self._converted[v, size] = f"{self.name[v].replace('[u]', '_u')}_{8 * size}"
            t = self.mask(size)
            self.put(f"const {t} {known} = __builtin_convertvector({self.name[v]}, {t});")
        return known

    def call(self, piece: str, v: int, *args: str) -> str:
        return f"{self.text.use(piece, self.vector(v))}({', '.join(args)})"

    # ---- memory

    def storage(self, dtype: str) -> str:
        return self.text.type(DTYPES[dtype].short, self.lanes)

    def load(self, dtype: str, address: str) -> str:
        """A vector at ``address`` as a value of the compute type (bool: a 1-byte mask)."""
        raw = f"*(const {self.storage(dtype)}_u *)({address})"
        d = DTYPES[dtype]
        if d.kind == "b":
            return f"({self.mask(1)})({raw} != 0)"
        if d.compute == d.name:
            return raw
        vector = self.text.type(DTYPES[d.compute].short, self.lanes)
        return f"{self.text.use('load_' + dtype, vector)}({raw})"

    def stored(self, v: int, dtype: str) -> str:
        """The value ``v`` as the vector that lies in memory."""
        d = DTYPES[dtype]
        if d.kind == "b":
            return f"({self.storage(dtype)})({self.as_mask(v, 1)} & 1)"
        if d.compute == d.name:
            return self.name[v]
        return f"{self.text.use('store_' + dtype, self.vector(v))}({self.name[v]})"

    def is_raw_copy(self, out: int) -> bool:
        """Whether output ``out`` is an input of the same dtype, which keeps every bit."""
        inst = self.kernel.insts[self.kernel.outs[out]]
        return (
            inst.op == "load"
            and isinstance(inst.attr, int)
            and self.kernel.in_dtypes[inst.attr] == self.kernel.out_dtypes[out]
        )

    # ---- statements

    def define(self, v: int, expression: str, size: int | None = None) -> None:
        """Makes the variable of ``v``; ``size`` is the element size of a mask."""
        if size is not None:
            self.mask_size[v] = size
        self.put(f"const {self.type_of(v)} v{v} = {expression};")
        self.name[v] = f"v{v}"

    def value(self, v: int) -> None:
        """Prints the value ``v`` from its arguments (not for loads, reductions and scans)."""
        inst = self.kernel.insts[v]
        if inst.dtype == "bool":
            self.define(v, *self._bool(v))
        else:
            self.define(v, self._number(v))

    def _bool(self, v: int) -> tuple[str, int]:
        inst = self.kernel.insts[v]
        args = inst.args
        types = [self.kernel.insts[a].dtype for a in args]
        if inst.op == "const":
            return f"({self.mask(1)}){{}} {'==' if inst.attr else '!='} 0", 1
        if inst.op == "param":
            slot = f"((const long long *)params)[{inst.attr}]"
            return f"({self.mask(1)}){{}} - (signed char)({slot} != 0)", 1
        if all(t == "bool" for t in types):
            size = max(self.mask_size[a] for a in args)
            names = [self.as_mask(a, size) for a in args]
            if inst.op == "not":
                return f"~{names[0]}", size
            if inst.op == "where":
                m, a, b = names
                return f"({m} & {a}) | (~{m} & {b})", size
            if inst.op in _MASK_COMPARE:
                return _MASK_COMPARE[inst.op].format(a=names[0], b=names[1]), size
            return f"{names[0]} {_INFIX[inst.op]} {names[1]}", size
        size = DTYPES[types[-1]].size
        m = self.mask(size)
        x = self.name[args[0]]
        if inst.op == "cast":
            return f"({m})({x} != 0)", size
        if inst.op == "signbit":
            return f"({m})(({m}){x} < 0)", size
        return f"({m})({x} {_COMPARE[inst.op]} {self.name[args[1]]})", size

    def _number(self, v: int) -> str:
        inst = self.kernel.insts[v]
        short = self.short(v)
        if inst.op == "const":
            return self.call("dup", v, literal(inst.attr, short))
        if inst.op == "param":
            kind = self.kernel.param_kinds[int(inst.attr)]
            slot = f"((const {'double' if kind == 'f' else 'long long'} *)params)[{inst.attr}]"
            return self.call("dup", v, f"({C_TYPES[short][0]}){slot}")
        if inst.op == "cast":
            return self._cast(v, inst.args[0])
        if inst.op == "where":
            c, a, b = inst.args
            m = self.as_mask(c, C_TYPES[short][1])
            return self.call("sel", v, m, self.name[a], self.name[b])
        if inst.op == "round_to":
            vector = self.vector(v)
            store = self.text.use(f"store_{inst.attr}", vector)
            load = self.text.use(f"load_{inst.attr}", vector)
            return f"{load}({store}({self.name[inst.args[0]]}))"
        names = [self.name[a] for a in inst.args]
        if inst.op in _INFIX:
            return f" {_INFIX[inst.op]} ".join(names)
        special = _SPECIAL.get(inst.op)
        if special is not None:
            return special(self, v, names)
        return self.call(inst.op, v, *names)

    def _cast(self, v: int, a: int) -> str:
        to, source = self.short(v), self.kernel.insts[a].dtype
        _, size, kind = C_TYPES[to]
        if source == "bool":
            m = self.as_mask(a, size)
            if kind == "f":
                one = self.call("dup", v, literal(1, to))
                return f"({self.vector(v)})({m} & ({self.mask(size)}){one})"
            return f"({self.vector(v)})({m} & 1)"
        x = self.name[a]
        if DTYPES[source].kind == "f" and kind != "f":
            # as C on x86-64: narrow integers are cut from int32, unsigned ones from int64
            if to == "u64":
                big = f"{x} >= {self.call('dup', a, '0x1p63')}"
                t = self.vector(v)
                low = f"({t})__builtin_convertvector({x}, {self.text.type('i64', self.lanes)})"
                high = low.replace(f"({x},", f"({x} - 0x1p63f,") + " ^ (1ull << 63)"
                wide = self.text.type("i64", self.lanes)
                big = f"__builtin_convertvector({big}, {wide})"
                return self.call("sel", v, big, high, low)
            between = "i32" if size < 4 else "i64" if to == "u32" else ""
            if between:
                x = f"__builtin_convertvector({x}, {self.text.type(between, self.lanes)})"
        return f"__builtin_convertvector({x}, {self.vector(v)})"


def _neg(b: Body, v: int, n: list[str]) -> str:
    return f"-{n[0]}"


def _not(b: Body, v: int, n: list[str]) -> str:
    return f"~{n[0]}"


def _abs(b: Body, v: int, n: list[str]) -> str:
    if C_TYPES[b.short(v)][2] == "f":
        return b.call("fabs", v, n[0])
    return b.call("sel", v, f"{n[0]} < 0", f"-{n[0]}", n[0])


def _extreme(sign: str) -> Callable[[Body, int, list[str]], str]:
    def make(b: Body, v: int, n: list[str]) -> str:
        nan = f" | ({n[0]} != {n[0]})" if C_TYPES[b.short(v)][2] == "f" else ""
        return b.call("sel", v, f"({n[0]} {sign} {n[1]}){nan}", n[0], n[1])

    return make


def _nan_loses(sign: str) -> Callable[[Body, int, list[str]], str]:
    def make(b: Body, v: int, n: list[str]) -> str:
        return b.call("sel", v, f"({n[0]} {sign} {n[1]}) | ({n[1]} != {n[1]})", n[0], n[1])

    return make


def _shl(b: Body, v: int, n: list[str]) -> str:
    bits = 8 * C_TYPES[b.short(v)][1]
    u = b.text.type(f"u{bits}", b.lanes)
    shifted = f"{n[0]} << ({n[1]} & {bits - 1})"
    return b.call("sel", v, f"({u}){n[1]} < {bits}", shifted, f"({b.vector(v)}){{}}")


def _shr(b: Body, v: int, n: list[str]) -> str:
    bits = 8 * C_TYPES[b.short(v)][1]
    u = b.text.type(f"u{bits}", b.lanes)
    fits = f"({u}){n[1]} < {bits}"
    if C_TYPES[b.short(v)][2] == "u":
        shifted = f"{n[0]} >> ({n[1]} & {bits - 1})"
        return b.call("sel", v, fits, shifted, f"({b.vector(v)}){{}}")
    most = b.call("dup", v, str(bits - 1))
    return f"{n[0]} >> {b.call('sel', v, fits, n[1], most)}"


_SPECIAL: dict[str, Callable[[Body, int, list[str]], str]] = {
    "neg": _neg,
    "not": _not,
    "abs": _abs,
    "max": _extreme(">"),
    "min": _extreme("<"),
    "fmax": _nan_loses(">="),
    "fmin": _nan_loses("<="),
    "shl": _shl,
    "shr": _shr,
}
