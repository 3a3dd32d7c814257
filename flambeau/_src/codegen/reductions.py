"""Reductions and scans: accumulators, their updates, and how lanes come together.

The state of a reduction is one or two C arrays indexed by the unroll position u. Float sums have
three levels: ``a`` runs over one block of the row, is added to ``b`` at its end, and ``b`` to
``c`` after 64 blocks, so that the error grows with the block, not with the row. Where there are
few elements (``fine`` in the C) ``b`` is their sum and ``c`` what its additions lost (Knuth's
two-sum): the result is as if summed in twice the precision. That is what differences of nearly
equal sums in second gradients and small norms need, and where rounding a few terms shows most.
"""

from __future__ import annotations

from collections.abc import Callable

from .body import Body
from .fragments import C_TYPES, Text, lanes_of, scalar_of

__all__ = ["COMBINERS", "Reduction", "Scan"]

_INF = {"f32": "__builtin_inff()", "f64": "__builtin_inf()"}


def _least(short: str) -> str:
    c, size, kind = C_TYPES[short]
    if kind == "f":
        return "-" + _INF[short]
    if kind == "u":
        return "0"
    return f"({c})(-0x{'7f' + 'ff' * (size - 1)}{'ll' if size == 8 else ''} - 1)"


def _most(short: str) -> str:
    c, size, kind = C_TYPES[short]
    if kind == "f":
        return _INF[short]
    digits = ("7f" if kind == "i" else "ff") + "ff" * (size - 1)
    return f"({c})0x{digits}{'ull' if size == 8 else ''}"


def _identity(name: str, short: str) -> str:
    if name in ("fmax", "fmin"):
        return '__builtin_nanf("")' if short == "f32" else '__builtin_nan("")'
    if name in ("max", "argmax", "cummax", "cummax_index"):
        return _least(short)
    if name in ("min", "argmin", "cummin", "cummin_index"):
        return _most(short)
    if name == "logcumsumexp":
        return "-" + _INF[short]
    return "1" if name in ("prod", "cumprod") else "0"


def _pick(name: str, new: str, old: str, floating: bool) -> str:
    """The mask of lanes where ``new`` replaces ``old``."""
    sign = ">" if "max" in name else "<"
    if name in ("fmax", "fmin"):
        return f"({new} {sign}= {old}) | ({old} != {old})"
    return f"({new} {sign} {old})" + (f" | ({new} != {new})" if floating else "")


def _combiner(name: str) -> Callable[[Text, str], str]:
    """All lanes of the result hold the reduction over the lanes of x."""

    def piece(text: Text, vector: str) -> str:
        w = lanes_of(vector)
        floating = C_TYPES[scalar_of(vector)][2] == "f"
        steps, s = [], w // 2
        while s:
            steps.append(f"y = $(shuffle_xor)(x, {s});")
            if name in ("sum", "prod"):
                steps.append(f"x = x {'+' if name == 'sum' else '*'} y;")
            else:
                steps.append(f"x = $(sel)({_pick(name, 'y', 'x', floating)}, y, x);")
            s //= 2
        return text.fill(
            f"static inline $F all_{name}_$F($F x) {{ $F y; {' '.join(steps)} return x; }}", vector
        )

    return piece


def _better(name: str) -> Callable[[Text, str], str]:
    """Takes (y, j) into (x, i): the extreme; among equals, and among NaNs, the first position."""

    def piece(text: Text, vector: str) -> str:
        w, short = lanes_of(vector), scalar_of(vector)
        size, kind = C_TYPES[short][1:]
        i = text.type("i64", w)
        choose = text.use("sel", i)
        sign = ">" if name == "argmax" else "<"
        better, tie = f"y {sign} x", "y == x"
        if kind == "f":
            better = f"({better}) | ((y != y) & (x == x))"
            tie = f"({tie}) | ((y != y) & (x != x))"
        wide, narrow = "(M)({})", "($I)m"
        if size != 8:
            wide, narrow = "__builtin_convertvector(($I)({}), M)", "__builtin_convertvector(m, $I)"
        wide = wide.replace("M", i)
        return text.fill(
            f"static inline void better_{name}_$F($F *px, {i} *pi, $F y, {i} j) {{\n"
            f"    $F x = *px; {i} i = *pi;\n"
            f"    {i} m = {wide.format(better)} | ({wide.format(tie)} & ({i})(j < i));\n"
            f"    *px = $(sel)({narrow}, y, x); *pi = {choose}(m, j, i);\n}}",
            vector,
        )

    return piece


def _arg_combiner(name: str) -> Callable[[Text, str], str]:
    """The position of the extreme over lanes."""

    def piece(text: Text, vector: str) -> str:
        w = lanes_of(vector)
        i = text.type("i64", w)
        shuffle = text.use("shuffle_xor", i)
        steps, s = [], w // 2
        while s:
            steps.append(f"$(better_{name})(&x, &i, $(shuffle_xor)(x, {s}), {shuffle}(i, {s}));")
            s //= 2
        body = "\n    ".join(steps)
        return text.fill(
            f"static inline {i} all_{name}_$F($F x, {i} i) {{\n    {body}\n    return i;\n}}",
            vector,
        )

    return piece


def _two_sum(text: Text, vector: str) -> str:
    """Adds a to the sum b, and what that addition lost to c; not inlined, so that long rows do not
    pay for it in registers, nor each of its uses in compile time."""
    return text.fill(
        "static __attribute__((noinline, cold)) void two_sum_$F($F *b, $F *c, $F a) {\n"
        "    $F s = *b + a, t = s - *b;\n"
        "    *c = *c + ((*b - (s - t)) + (a - t)); *b = s;\n}",
        vector,
    )


def _whole(text: Text, vector: str) -> str:
    """The sum b and what it lost as one number; infinite sums have lost NaN."""
    return text.fill(
        "static inline $F whole_$F($F b, $F c) { $F s = b + c; return $(sel)(c == c, s, b); }",
        vector,
    )


def _all_fine(text: Text, vector: str) -> str:
    """The lanes of (b, c) together, in all lanes of the result; not inlined, as few rows ask."""
    steps, s = [], lanes_of(vector) // 2
    while s:
        steps.append(f"y = $(shuffle_xor)(b, {s}); z = $(shuffle_xor)(c, {s});")
        steps.append("c = c + z; $(two_sum)(&b, &c, y);")
        s //= 2
    body = "\n    ".join(steps)
    return text.fill(
        "static __attribute__((noinline)) $F all_fine_$F($F b, $F c) {\n"
        f"    $F y, z;\n    {body}\n    return $(whole)(b, c);\n}}",
        vector,
    )


COMBINERS: dict[str, Callable[[Text, str], str]] = {
    "two_sum": _two_sum,
    "whole": _whole,
    "all_fine": _all_fine,
    **{f"all_{n}": _combiner(n) for n in ("sum", "prod", "max", "min", "fmax", "fmin")},
    **{f"all_{n}": _arg_combiner(n) for n in ("argmax", "argmin")},
    **{f"better_{n}": _better(n) for n in ("argmax", "argmin")},
}


class Reduction:
    """One reduction of a row kernel: prints its state's life. ``v`` is its value's number."""

    def __init__(self, body: Body, v: int) -> None:
        inst = body.kernel.insts[v]
        self.body, self.v, self.name = body, v, str(inst.attr)
        self.arg = inst.args[0]
        self.factors: tuple[int, ...] = ()
        if self.name == "dot":
            self.name, self.factors = "sum", body.kernel.insts[self.arg].args
        self.boolean = self.name in ("any", "all")
        self.position = self.name.startswith("arg")
        if self.boolean:
            self.type = ""
            self.short = ""
        else:
            self.short = body.short(self.arg)
            self.type = body.vector(self.arg)
        self.blocked = self.name == "sum" and self.short in ("f32", "f64")

    def declare(self, count: str, used: str) -> None:
        """The state arrays of ``count`` positions, the first ``used`` of them set."""
        b, v = self.body, self.v
        if self.boolean:
            b.mask_size[v] = 1
            t, start = b.mask(1), "0" if self.name == "any" else "-1"
            b.put(f"{t} a{v}[{count}];")
            b.put(
                f"for (int u = 0; u < {used}; u++) a{v}[u] = ({t}){{}} + {start};".replace(
                    f"({t}){{}} + -1", f"~({t}){{}}"
                )
            )
            return
        start = f"{b.text.use('dup', self.type)}({_identity(self.name, self.short)})"
        extra = f", b{v}[{count}], c{v}[{count}]" if self.blocked else ""
        b.put(f"{self.type} a{v}[{count}]{extra};")
        also = f" = b{v}[u] = c{v}[u]" if self.blocked else ""
        b.put(f"for (int u = 0; u < {used}; u++) a{v}[u]{also} = {start};")
        if self.position:
            i = b.text.type("i64", b.lanes)
            b.put(f"{i} i{v}[{count}];")
            b.put(f"for (int u = 0; u < {used}; u++) i{v}[u] = ({i}){{}};")

    def update(self, live: str, index: str, fine: bool = True, state: str = "") -> None:
        """Takes one vector in. ``live`` prefixes the masks of lanes that count ('' for all);
        ``fine`` is false in loops that rows of few elements never enter; ``state`` names a variable
        that stands for that of position u."""
        b, v = self.body, self.v
        a = state or f"a{v}[u]"
        if self.boolean:
            x = b.as_mask(self.arg, 1)
            if live:
                x = f"({x} & {live}1)" if self.name == "any" else f"({x} | ~{live}1)"
            b.put(f"{a} = {a} {'|' if self.name == 'any' else '&'} {x};")
            return
        x = b.name[self.arg]
        size = C_TYPES[self.short][1]
        if live and not self.position:
            if self.name == "sum":
                mask = b.mask(size)
                x = f"({self.type})(({mask}){x} & {live}{size})"
            else:
                other = f"{b.text.use('dup', self.type)}({_identity(self.name, self.short)})"
                x = f"{b.text.use('sel', self.type)}({live}{size}, {x}, {other})"
            b.put(f"const {self.type} x{v} = {x};")
            x = f"x{v}"
        floating = C_TYPES[self.short][2] == "f"
        plain = f"{a} = {a} + {x};"
        if self.factors and not live:
            left, right = (b.name[f] for f in self.factors)
            plain = f"{a} = {b.text.use('fma', self.type)}({left}, {right}, {a});"
        if self.blocked and fine:
            b.put(f"if (fine) {{ {self._take(x, live)} }} else {plain}")
        elif self.blocked:
            b.put(plain)
        elif self.name in ("sum", "prod"):
            b.put(f"{a} = {a} {'+' if self.name == 'sum' else '*'} {x};")
        elif not self.position:
            pick = _pick(self.name, x, a, floating)
            b.put(f"{a} = {b.text.use('sel', self.type)}({pick}, {x}, {a});")
        else:
            self._update_position(a, x, live, index, size, floating)

    def _take(self, x: str, live: str) -> str:
        """Adds x to a fine sum, and what rounding the product x lost, where it is one."""
        b, v = self.body, self.v
        add = f"{b.text.use('two_sum', self.type)}(&b{v}[u], &c{v}[u], {x});"
        if not self.factors:
            return add
        left, right = (b.name[f] for f in self.factors)
        lost = f"{b.text.use('fma', self.type)}({left}, {right}, -{b.name[self.arg]})"
        if live:
            size = C_TYPES[self.short][1]
            lost = f"({self.type})(({b.mask(size)}){lost} & {live}{size})"
        return f"{add} c{v}[u] = c{v}[u] + {lost};"

    def _update_position(
        self, a: str, x: str, live: str, index: str, size: int, floating: bool
    ) -> None:
        b, v = self.body, self.v
        sign = "<=" if self.name == "argmax" else ">="
        # not (x <= a): x is greater or one of them is NaN; once a is NaN it stays
        pick = f"~({x} {sign} {a}) & ({a} == {a})" if floating else f"~({x} {sign} {a})"
        mask = b.mask(size)
        b.put(f"const {mask} m{v} = ({mask})({pick}){f' & {live}{size}' if live else ''};")
        b.put(f"{a} = {b.text.use('sel', self.type)}(m{v}, {x}, {a});")
        i = b.text.type("i64", b.lanes)
        wide = f"m{v}" if size == 8 else f"__builtin_convertvector(m{v}, {i})"
        b.put(f"i{v}[u] = {b.text.use('sel', i)}({wide}, {index}, i{v}[u]);")

    def fold(self, used: str, block: str, more: str) -> None:
        """At the end of block number ``block`` of the row, when the row goes on (``more``)."""
        if not self.blocked:
            return
        v = self.v
        zero = f"({self.type}){{}}"
        self.body.put(f"if ({more} && !fine) {{")
        self.body.put(
            f"    for (int u = 0; u < {used}; u++) {{ b{v}[u] += a{v}[u]; a{v}[u] = {zero}; }}"
        )
        self.body.put(
            f"    if (({block} & 63) == 63) for (int u = 0; u < {used}; u++)"
            f" {{ c{v}[u] += b{v}[u]; b{v}[u] = {zero}; }} }}"
        )

    def finish(self, used: str) -> None:
        """After the last block, for :meth:`result`: a fine sum takes back what it lost."""
        if self.blocked:
            v = self.v
            whole = self.body.text.use("whole", self.type)
            self.body.put(
                f"if (fine) for (int u = 0; u < {used}; u++)"
                f" {{ b{v}[u] = {whole}(b{v}[u], c{v}[u]); c{v}[u] = ({self.type}){{}}; }}"
            )

    def result(self, u: str) -> str:
        """The state of position ``u`` as the value of its own lanes."""
        v = self.v
        if self.position:
            return f"i{v}[{u}]"
        return f"(a{v}[{u}] + (b{v}[{u}] + c{v}[{u}]))" if self.blocked else f"a{v}[{u}]"

    def join(self, unroll: int) -> None:
        """Brings the positions together, then the lanes: defines the value of the row."""
        b, v = self.body, self.v
        if self.boolean:
            op = "|" if self.name == "any" else "&"
            t = f" {op} ".join(f"a{v}[{u}]" for u in range(unroll))
            any_lane = b.text.use("any_lane", b.mask(1))
            test = f"{any_lane}({t})" if self.name == "any" else f"!{any_lane}(~({t}))"
            b.define(v, f"({b.mask(1)}){{}} - (signed char)({test})", 1)
            return
        every = b.text.use(f"all_{self.name}", self.type)
        if self.position:
            self._join_positions(unroll, every)
            return
        self._total(unroll)
        fine = b.text.use("all_fine", self.type) if self.blocked else ""
        either = f"fine ? {fine}(b{v}[0], c{v}[0]) : " if fine else ""
        b.define(v, f"{either}{every}(t{v})")

    def _total(self, unroll: int) -> None:
        """The variable t: the positions together."""
        b, v = self.body, self.v
        b.put(f"{self.type} t{v} = {self.result('0')};")
        floating = C_TYPES[self.short][2] == "f"
        for u in range(1, unroll):
            other = self.result(str(u))
            if self.name in ("sum", "prod"):
                b.put(f"t{v} = t{v} {'+' if self.name == 'sum' else '*'} {other};")
            else:
                pick = _pick(self.name, other, f"t{v}", floating)
                b.put(f"t{v} = {b.text.use('sel', self.type)}({pick}, {other}, t{v});")

    def share(self, unroll: int) -> None:
        """Brings the positions together and gives each the result; lanes stay apart."""
        b, v = self.body, self.v
        if self.boolean:
            op = "|" if self.name == "any" else "&"
            b.put(
                f"const {b.mask(1)} t{v} = {f' {op} '.join(f'a{v}[{u}]' for u in range(unroll))};"
            )
            b.put(f"for (int u = 0; u < {unroll}; u++) a{v}[u] = t{v};")
        elif self.position:
            better = b.text.use(f"better_{self.name}", self.type)
            for u in range(1, unroll):
                b.put(f"{better}(&a{v}[0], &i{v}[0], a{v}[{u}], i{v}[{u}]);")
            b.put(f"for (int u = 1; u < {unroll}; u++) {{ a{v}[u] = a{v}[0]; i{v}[u] = i{v}[0]; }}")
        else:
            self._total(unroll)
            rest = f" b{v}[u] = c{v}[u] = ({self.type}){{}};" if self.blocked else ""
            b.put(f"for (int u = 0; u < {unroll}; u++) {{ a{v}[u] = t{v};{rest} }}")

    def _join_positions(self, unroll: int, every: str) -> None:
        b, v = self.body, self.v
        better = b.text.use(f"better_{self.name}", self.type)
        for u in range(1, unroll):
            b.put(f"{better}(&a{v}[0], &i{v}[0], a{v}[{u}], i{v}[{u}]);")
        b.define(v, f"{every}(a{v}[0], i{v}[0])")


class Scan:
    """One scan of a row kernel."""

    def __init__(self, body: Body, v: int) -> None:
        inst = body.kernel.insts[v]
        self.body, self.v, self.name, self.arg = body, v, str(inst.attr), inst.args[0]
        self.short = body.short(self.arg)
        self.type = body.vector(self.arg)
        self.position = self.name.endswith("_index")

    def declare(self, count: str, used: str) -> None:
        """The carried state."""
        b, v = self.body, self.v
        start = f"{b.text.use('dup', self.type)}({_identity(self.name, self.short)})"
        b.put(f"{self.type} a{v}[{count}];")
        b.put(f"for (int u = 0; u < {used}; u++) a{v}[u] = {start};")
        if self.position:
            i = b.text.type("i64", b.lanes)
            b.put(f"{i} i{v}[{count}];")
            b.put(f"for (int u = 0; u < {used}; u++) i{v}[u] = ({i}){{}};")

    def _step(self, c: str, x: str) -> str:
        """The next state from the state ``c`` and ``x``, as an expression on scalars or vectors."""
        if self.name in ("cumsum", "cumprod"):
            return f"{c} {'+' if self.name == 'cumsum' else '*'} {x}"
        raise AssertionError(self.name)

    def across(self, index: str) -> None:
        """One element of each of the lanes' rows: defines the scan's value."""
        b, v = self.body, self.v
        x, a = b.name[self.arg], f"a{v}[u]"
        if self.name in ("cumsum", "cumprod"):
            b.put(f"{a} = {self._step(a, x)};")
        elif self.name == "logcumsumexp":
            b.put(f"{a} = {b.text.use('logaddexp', self.type)}({a}, {x});")
        else:
            sign = ">=" if "max" in self.name else "<="
            nan = f" | ({x} != {x})" if C_TYPES[self.short][2] == "f" else ""
            size = C_TYPES[self.short][1]
            mask = b.mask(size)
            b.put(f"const {mask} m{v} = ({mask})(({x} {sign} {a}){nan});")
            b.put(f"{a} = {b.text.use('sel', self.type)}(m{v}, {x}, {a});")
            if self.position:
                i = b.text.type("i64", b.lanes)
                wide = f"m{v}" if size == 8 else f"__builtin_convertvector(m{v}, {i})"
                b.put(f"i{v}[u] = {b.text.use('sel', i)}({wide}, {index}, i{v}[u]);")
        b.define(v, f"i{v}[u]" if self.position else a)

    def along(self, index: str) -> None:
        """The lanes are consecutive elements of one row: one lane after the other."""
        b, v = self.body, self.v
        x, w = b.name[self.arg], b.lanes
        t = b.vector(v)
        c = C_TYPES[self.short][0]
        b.put(f"{t} r{v}; {{")
        b.put(f"    {c} c = a{v}[0][0];")
        if self.name in ("cumsum", "cumprod"):
            step = f"c = {self._step('c', f'{x}[l]')}; r{v}[l] = c;"
        elif self.name == "logcumsumexp":
            dup, add = b.text.use("dup", self.type), b.text.use("logaddexp", self.type)
            step = f"c = {add}({dup}(c), {dup}({x}[l]))[0]; r{v}[l] = c;"
        else:
            sign = ">=" if "max" in self.name else "<="
            nan = f" || {x}[l] != {x}[l]" if C_TYPES[self.short][2] == "f" else ""
            take = f"c = {x}[l];" + (f" i = {index}[l];" if self.position else "")
            kept = "i" if self.position else "c"
            step = f"if ({x}[l] {sign} c{nan}) {{ {take} }} r{v}[l] = {kept};"
        if self.position:
            b.put(f"    long long i = i{v}[0][0];")
        b.put(f"    for (int l = 0; l < {w}; l++) {{ {step} }}")
        b.put(f"    a{v}[0][0] = c;" + (f" i{v}[0][0] = i;" if self.position else ""))
        b.put("}")
        b.define(v, f"r{v}")
