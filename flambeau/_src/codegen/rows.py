"""Row kernels: a row is read in as many passes as its reductions require.

Two loops are printed. ``along``: a vector holds consecutive elements of one row. ``across``: a
vector holds the same element of consecutive rows, which is what inputs contiguous along
dimension 1 want. Values of a row are vectors in both, with equal lanes in the first, so that the
same statements serve both. ``row_driver`` (``staging.py``) chooses.
"""

from __future__ import annotations

from flambeau._src.ir.kernel import DTYPES, Kernel, Schedule

from .body import Body
from .fragments import Text
from .reductions import Reduction, Scan

__all__ = ["print_row_kernel"]

# Rows side by side in one block of ``across``, in vectors (the C's NU).
_ABREAST = 16
# Elements of a row taken at a time when the rows fill only one vector.
_FEW = 4
# Elements of each row taken at a time, so that what is summed stays in registers in between.
_DEEP = 4
# A pass that costs less than this is unrolled by 4, with as many accumulators.
_CHEAP = 12


class _Rows:
    def __init__(self, symbol: str, kernel: Kernel, schedule: Schedule, text: Text, lanes: int):
        self.symbol, self.kernel, self.schedule = symbol, kernel, schedule
        self.text, self.lanes = text, lanes
        self.n_out = len(kernel.out_dtypes)
        self.n = self.n_out + len(kernel.in_dtypes)
        self.dtypes = (*kernel.out_dtypes, *kernel.in_dtypes)
        self.body = Body(kernel, text, lanes)
        self.slots = {v: i for i, v in enumerate(schedule.kept)}
        self.plan: list[list[int]] = []
        for p in range(schedule.n_passes):
            self.plan.append(self._plan(p))
        self.across = False

    def _plan(self, p: int) -> list[int]:
        """The element values that pass ``p`` makes or reads, in order."""
        k, s = self.kernel, self.schedule
        todo = [i.args[0] for i in k.insts if i.op == "reduce" and s.stage[i.args[0]] == p]
        if p == s.n_passes - 1:
            todo += [v for v, row in zip(k.outs, k.row_outs) if not row]
        need: set[int] = set()
        while todo:
            v = todo.pop()
            if v in need or s.level[v] != 2:
                continue
            need.add(v)
            if not (v in self.slots and any(v in plan for plan in self.plan)):
                todo.extend(k.insts[v].args)
        return sorted(need)

    # ---- parts of both loops

    def spread(self, a: int, condition: str, pointer: str) -> str:
        """A statement: where ``condition``, the one value at ``pointer`` fills a vector in ``buf``,
        to which the pointer then goes."""
        d = DTYPES[self.dtypes[a]]
        vector = self.body.storage(self.dtypes[a])
        self.text.scalar(d.short)
        return (
            f"if ({condition}) {{ const {vector} one = {self.text.use('dup', vector)}("
            f"*(const {d.short}_u *){pointer}); {pointer} = buf + {a} * BUFFER;"
            f" *({vector} *){pointer} = one; }}"
        )

    def reductions(self, p: int) -> list[Reduction]:
        k, s = self.kernel, self.schedule
        return [
            Reduction(self.body, v)
            for v, i in enumerate(k.insts)
            if i.op == "reduce" and s.stage[i.args[0]] == p
        ]

    def scans(self, p: int) -> list[Scan]:
        return [Scan(self.body, v) for v in self.plan[p] if self.kernel.insts[v].op == "scan"]

    def needs_index(self, p: int) -> bool:
        k = self.kernel
        used = any(k.insts[v].op == "index" for v in self.plan[p])
        return (
            used
            or any(r.position for r in self.reductions(p))
            or any(s.position for s in self.scans(p))
        )

    def uniforms(self) -> None:
        b = self.body
        for v, inst in enumerate(self.kernel.insts):
            if self.schedule.level[v] == 0:
                if inst.op == "count":
                    c = DTYPES[inst.dtype].c
                    b.define(v, b.call("dup", v, f"({c})n0"))
                else:
                    b.value(v)

    def elements(self, p: int, address: list[str], kept: str, index: str) -> None:
        """The statements of one vector of elements; stores and updates come after."""
        b, k = self.body, self.kernel
        scans = {s.v: s for s in self.scans(p)}
        for v in self.plan[p]:
            inst = k.insts[v]
            t = b.type_of(v) if inst.dtype != "bool" else ""
            if v in self.slots and p > self.first_pass(v):
                where = kept.format(self.slots[v], DTYPES[inst.dtype].size)
                b.define(v, f"*(const {t} *)({where})")
            elif inst.op == "load":
                a = int(inst.attr)
                size = 1 if inst.dtype == "bool" else None
                b.define(v, b.load(k.in_dtypes[a], address[self.n_out + a]), size)
            elif inst.op == "index":
                b.define(v, index)
            elif inst.op == "scan":
                (scans[v].across if self.across else scans[v].along)(index)
            else:
                b.value(v)
            if v in self.slots and p == self.first_pass(v):
                where = kept.format(self.slots[v], DTYPES[inst.dtype].size)
                b.put(f"*({t} *)({where}) = v{v};")

    def first_pass(self, v: int) -> int:
        return next(p for p, plan in enumerate(self.plan) if v in plan)

    def stores(self, address: list[str]) -> None:
        """Stores of the full-size outputs, after everything was loaded."""
        b, k = self.body, self.kernel
        lines = []
        for o, v in enumerate(k.outs):
            if k.row_outs[o]:
                continue
            t = b.storage(k.out_dtypes[o])
            value = b.stored(v, k.out_dtypes[o])
            if b.is_raw_copy(o):
                a = self.n_out + int(k.insts[v].attr)
                value = f"*(const {t}_u *)({address[a]})"
            b.put(f"const {t} out{o} = {value};")
            lines.append(f"*({t}_u *)({address[o]}) = out{o};")
        for line in lines:
            b.put(line)

    def row_values(self, after: int) -> list[int]:
        """Values of a row, other than reductions, that can be made after ``after`` passes."""
        return [
            v
            for v, i in enumerate(self.kernel.insts)
            if self.schedule.level[v] == 1 and i.op != "reduce" and self.schedule.stage[v] == after
        ]

    def row_loads(self) -> dict[int, int]:
        """The values that are read once a row, and the operands that they are read from."""
        insts = self.kernel.insts
        return {v: self.n_out + int(i.attr) for v, i in enumerate(insts) if i.op == "load_row"}


def _along(r: _Rows) -> None:
    """One row at a time."""
    b, k, s = r.body, r.kernel, r.schedule
    r.across = False
    saved = b.scope()
    b.indent = ""
    b.put(f"static void {r.symbol}_along({_ARGUMENTS}) {{")
    b.indent = "    "
    r.uniforms()
    b.put(f"char *p[{r.n}], *q[{r.n}]; i64 step[{r.n}];")
    b.put("const int direct = row_direct(k, st), fine = n0 <= FINE_ALONG;")
    b.put("for (i64 row = 0; row < n1; row++) {")
    b.indent = " " * 8
    b.put(" ".join(f"q[{a}] = ptr[{a}] + row * st[{r.n + a}];" for a in range(r.n)))
    once = r.row_loads()
    for a in range(r.n_out, r.n):
        b.put(f"char *one{a} = q[{a}];")
        b.put(r.spread(a, "1" if a in once.values() else f"!st[{a}]", f"one{a}"))
    for v in r.row_values(0):
        if v in once:
            b.define(v, b.load(r.dtypes[once[v]], f"one{once[v]}"))
        else:
            b.value(v)
    for p in range(s.n_passes):
        _along_pass(r, p)
    for o, v in enumerate(k.outs):
        if k.row_outs[o]:
            t = b.storage(k.out_dtypes[o])
            b.put(f"const {t} out{o} = {b.stored(v, k.out_dtypes[o])};")
            b.put(f"*({t[: t.index('x')]}_u *)q[{o}] = out{o}[0];")
    b.indent = "    "
    b.put("}")
    b.indent = ""
    b.put("}")
    b.leave(saved)


def _along_pass(r: _Rows, p: int) -> None:
    b, s = r.body, r.schedule
    reductions, scans = r.reductions(p), r.scans(p)
    unroll = 4 if not scans and s.pass_cost[p] + 2 * len(reductions) < _CHEAP and reductions else 1
    for x in reductions:
        x.declare(str(unroll), str(unroll))
    for y in scans:
        y.declare(str(unroll), str(unroll))
    last = p == s.n_passes - 1
    b.put("for (i64 j = 0, m, block = 0; j < n0; j += m, block++) {")
    b.indent = " " * 12
    _along_segment(r)
    masks = {1 if x.boolean else DTYPES[r.kernel.insts[x.arg].dtype].size for x in reductions}
    for size in sorted(masks):
        t = b.mask(size)
        iota = b.text.use("iota", t)
        tail = f"({DTYPES[f'int{8 * size}'].c})m"
        b.put(f"const {t} live{size} = m < {r.lanes} ? ({t})({iota}() < {tail}) : ~({t}){{}};")
    if r.needs_index(p):
        i = b.text.type("i64", r.lanes)
        b.put(f"{i} at = {b.text.use('iota', i)}() + j;")
    if s.kept:
        b.put("i64 kj = j;")
    kept = "kept + {0} * slot + kj * {1}"
    if unroll > 1:
        fine = any(x.blocked for x in reductions)
        b.put(f"for (; {'!fine && ' if fine else ''}nv >= {unroll}; nv -= {unroll}) {{")
        b.indent = " " * 16
        b.put(f"#pragma GCC unroll {unroll}")
        b.put(f"for (int u = 0; u < {unroll}; u++) {{")
        b.indent = " " * 20
        _along_vector(r, p, last, reductions, "", kept)
        b.indent = " " * 16
        b.put("}")
        b.indent = " " * 12
        b.put("}")
    b.put("for (; nv > 0; nv--) {")
    b.indent = " " * 16
    b.put("enum { u = 0 };")
    _along_vector(r, p, last, reductions, "live", kept)
    b.indent = " " * 12
    b.put("}")
    if last and any(not row for row in r.kernel.row_outs):
        b.put(f"if (!direct || m < {r.lanes}) row_flush(k, q, st, j, m, p);")
    for x in reductions:
        x.fold(str(unroll), "block", "j + m < n0")
    b.indent = " " * 8
    b.put("}")
    for x in reductions:
        x.join(unroll)
    for v in r.row_values(p + 1):
        b.value(v)


def _along_segment(r: _Rows) -> None:
    """Sets m, nv and each operand's pointer and step for the next part of the row."""
    b = r.body
    b.put("m = n0 - j;")
    full = [a for a in range(r.n) if a >= r.n_out or not r.kernel.row_outs[a]]
    b.put("".join(f"char *p{a}; i64 s{a};" for a in full))
    b.put(f"if (direct && m >= {r.lanes}) {{")
    b.put(f"    m -= m % {r.lanes}; if (m > {r.lanes} * RUN) m = {r.lanes} * RUN;")
    for a in full:
        size = DTYPES[r.dtypes[a]].size
        if a < r.n_out:
            b.put(f"    p{a} = q[{a}] + j * {size}; s{a} = {r.lanes * size};")
        else:
            b.put(f"    p{a} = one{a} + j * st[{a}]; s{a} = {r.lanes} * st[{a}];")
    b.put("} else {")
    b.put("    m = row_segment(k, q, st, j, n0, buf, p, step);")
    b.put("    " + " ".join(f"p{a} = p[{a}]; s{a} = step[{a}];" for a in full))
    b.put("}")
    b.put(f"i64 nv = (m + {r.lanes - 1}) / {r.lanes};")


def _along_vector(
    r: _Rows, p: int, last: bool, reductions: list[Reduction], live: str, kept: str
) -> None:
    b = r.body
    saved = b.scope()
    address = [f"p{a}" for a in range(r.n)]
    r.elements(p, address, kept, "at")
    for x in reductions:
        x.update(live, "at", bool(live))
    if last:
        r.stores(address)
        if r.schedule.n_passes > 1:
            # all is in the cache by now: memory can bring the next row meanwhile
            insts = [i for i in r.kernel.insts if i.op == "load"]
            for a in sorted({r.n_out + int(i.attr) for i in insts}):
                b.put(f"__builtin_prefetch(p{a} + st[{r.n + a}]);")
    b.put(
        " ".join(f"p{a} += s{a};" for a in range(r.n) if a >= r.n_out or not r.kernel.row_outs[a])
    )
    if r.needs_index(p):
        b.put(f"at += {r.lanes};")
    if r.schedule.kept:
        b.put(f"kj += {r.lanes};")
    b.leave(saved)


def _across(r: _Rows) -> None:
    """As many rows as there are lanes, times ``nu``, side by side.

    With ``few`` rows, one vector of them, the positions u are ``nu`` successive elements instead,
    so that one sum need not wait for the other; they are joined at the end of a pass.
    """
    b, k, s = r.body, r.kernel, r.schedule
    r.across = True
    saved = b.scope()
    b.indent = ""
    b.put(f"static void {r.symbol}_across({_ARGUMENTS}) {{")
    b.indent = "    "
    r.uniforms()
    for v in range(len(k.insts)):
        if s.level[v] == 1 and k.insts[v].dtype != "bool":
            b.put(f"{b.vector(v)} r{v}[{_ABREAST}];")
    scans = any(i.op == "scan" for i in k.insts)
    b.put("const int fine = n0 <= FINE_ACROSS;")
    b.put(f"const int few = {0 if scans else 'row_few(k, st, n0, n1)'};")
    b.put(f"i64 nu; const i64 most = row_abreast(k, n0, {s.n_passes}), ks = few ? 1 : most;")
    for a, d in enumerate(r.dtypes):
        if a >= r.n_out:
            b.put(f"char *end{a} = ptr[{a}] + (n0 - 1) * st[{a}] + n1 * {DTYPES[d].size};")
    b.put(f"const i64 groups = (n1 + {r.lanes - 1}) / {r.lanes};")
    b.put(f"for (i64 row = 0; row < n1; row += nu * {r.lanes}) {{")
    b.indent = " " * 8
    b.put(f"nu = groups - row / {r.lanes} < most ? groups - row / {r.lanes} : most;")
    b.put(f"if (few) nu = {_FEW};")
    for a, d in enumerate(r.dtypes):
        beside = f"st[{r.n + a}] ? {r.lanes * DTYPES[d].size} : 0"
        b.put(
            f"char *q{a} = ptr[{a}] + row * st[{r.n + a}];"
            f" const i64 e{a} = few ? st[{a}] : {beside};"
        )
    _across_loads(r)
    for p in range(s.n_passes):
        _across_pass(r, p)
    _across_outputs(r)
    b.indent = "    "
    b.put("}")
    b.indent = ""
    b.put("}")
    b.leave(saved)


def _across_loads(r: _Rows) -> None:
    """What is read once a row (`few` is 0 where there is such an operand), and what follows."""
    b, once = r.body, r.row_loads()
    for v, a in once.items():
        size = DTYPES[r.dtypes[a]].size
        b.put(f"char *p{a} = q{a};")
        b.put(r.spread(a, f"!e{a}", f"p{a}"))
        b.put(
            f"else p{a} = row_at(p{a}, (nu - 1) * e{a} + {r.lanes * size}, end{a},"
            f" buf + {a} * BUFFER);"
        )
        load = b.load(r.dtypes[a], f"p{a} + u * e{a}")
        b.put(f"for (int u = 0; u < nu; u++) r{v}[u] = {load};")
        b.name[v] = f"r{v}[u]"
    _across_rows(r, [], [v for v in r.row_values(0) if v not in once])


def _across_pass(r: _Rows, p: int) -> None:
    b, s = r.body, r.schedule
    reductions, scans = r.reductions(p), r.scans(p)
    for x in reductions:
        x.declare(str(_ABREAST), "nu")
    for y in scans:
        y.declare(str(_ABREAST), "nu")
    last = p == s.n_passes - 1
    b.put("for (i64 block = 0, j = 0; j < n0; block++) {")
    b.indent = " " * 12
    b.put("const i64 end = j + RUN < n0 ? j + RUN : n0;")
    if s.n_passes == 1 and _is_deep(r, reductions, scans):
        _across_deep(r, reductions)
    b.put(f"for (i64 now; j < end; j += few ? {_FEW} : 1) {{")
    b.indent = " " * 16
    b.put("now = few && end - j < nu ? end - j : nu;")
    outs = range(r.n_out)
    used = {
        r.n_out + int(r.kernel.insts[v].attr) for v in r.plan[p] if r.kernel.insts[v].op == "load"
    }
    if last:
        used |= {o for o in outs if not r.kernel.row_outs[o]}
    for a in sorted(used):
        size = DTYPES[r.dtypes[a]].size
        if a < r.n_out:
            b.put(f"char *p{a} = q{a} + j * st[{a}];")
        else:
            b.put(f"char *p{a} = q{a} + j * st[{a}];")
            b.put(r.spread(a, f"!e{a}", f"p{a}"))
            b.put(
                f"else p{a} = row_at(p{a}, (now - 1) * e{a} + {r.lanes * size}, end{a},"
                f" buf + {a} * BUFFER);"
            )
    if r.needs_index(p):
        i = b.text.type("i64", r.lanes)
        b.put(f"{i} at = {b.text.use('dup', i)}(j);")
    b.put("for (int u = 0; u < now; u++) {")
    b.indent = " " * 20
    saved = b.scope()
    address = [f"p{a} + u * e{a}" for a in range(r.n)]
    r.elements(p, address, f"kept + {{0}} * slot + (j * ks + u) * {r.lanes} * {{1}}", "at")
    for x in reductions:
        x.update("", "at")
    if last:
        r.stores(address)
    if r.needs_index(p):
        b.put("at += few;")
    b.leave(saved)
    for n in (16, 12):
        b.indent = " " * n
        b.put("}")
    for x in reductions:
        x.fold("nu", "block", "j < n0")
    b.indent = " " * 8
    b.put("}")
    for x in reductions:
        x.finish("nu")
    if reductions and not any(i.op == "scan" for i in r.kernel.insts):
        b.put("if (few) {")
        b.indent = " " * 12
        for x in reductions:
            x.share(_FEW)
        b.indent = " " * 8
        b.put("}")
    _across_rows(r, reductions, r.row_values(p + 1))


def _is_deep(r: _Rows, reductions: list[Reduction], scans: list[Scan]) -> bool:
    """Whether a pass only reduces numbers."""
    if not reductions or scans or r.needs_index(0) or not all(r.kernel.row_outs):
        return False
    return not any(x.boolean for x in reductions)


def _across_deep(r: _Rows, reductions: list[Reduction]) -> None:
    """Several elements of each row before the next vector of rows, in their order."""
    b, insts = r.body, r.kernel.insts
    saved = b.scope()
    b.put(f"if (!fine && !few && row + nu * {r.lanes} <= n1)")
    b.put(f"for (; j + {_DEEP} <= end; j += {_DEEP}) {{")
    b.indent = " " * 16
    address = [""] * r.n
    for a in sorted({r.n_out + int(insts[v].attr) for v in r.plan[0] if insts[v].op == "load"}):
        d = DTYPES[r.dtypes[a]]
        vector = b.storage(r.dtypes[a])
        r.text.scalar(d.short)
        one = f"{r.text.use('dup', vector)}(*(const {d.short}_u *)(p{a} + i * st[{a}]))"
        b.put(f"char *p{a} = q{a} + j * st[{a}], *to{a} = buf + {a} * BUFFER; i64 w{a} = st[{a}];")
        b.put(
            f"if (!e{a}) {{ for (int i = 0; i < {_DEEP}; i++)"
            f" *({vector} *)(to{a} + 64 * i) = {one}; p{a} = to{a}; w{a} = 64; }}"
        )
        address[a] = f"p{a} + u * e{a} + i * w{a}"
    b.put("for (int u = 0; u < nu; u++) {")
    b.indent = " " * 20
    for x in reductions:
        b.put(f"{x.type} A{x.v} = a{x.v}[u];")
    b.put(f"#pragma GCC unroll {_DEEP}")
    b.put(f"for (int i = 0; i < {_DEEP}; i++) {{")
    b.indent = " " * 24
    r.elements(0, address, "", "")
    for x in reductions:
        x.update("", "", False, f"A{x.v}")
    b.indent = " " * 20
    b.put("}")
    b.put(" ".join(f"a{x.v}[u] = A{x.v};" for x in reductions))
    for n in (16, 12):
        b.indent = " " * n
        b.put("}")
    b.leave(saved)


def _across_rows(r: _Rows, reductions: list[Reduction], values: list[int]) -> None:
    """Values of the rows, from finished reductions on."""
    b = r.body
    if not reductions and not values:
        return
    loop = any(not x.boolean for x in reductions) or values
    for x in reductions:
        if x.boolean:
            b.mask_size[x.v] = 1
            b.name[x.v] = f"a{x.v}[u]"
    if not loop:
        return
    booleans = [v for v in values if r.kernel.insts[v].dtype == "bool"]
    sizes: dict[int, int] = {}
    start = len(b.lines)
    b.put("for (int u = 0; u < nu; u++) {")
    b.indent = " " * 12
    saved = b.scope()
    for x in reductions:
        if not x.boolean:
            b.put(f"r{x.v}[u] = {x.result('u')};")
            b.name[x.v] = f"r{x.v}[u]"
    for v in values:
        b.value(v)
        if v in booleans:
            sizes[v] = b.mask_size[v]
            b.put(f"k{v}[u] = v{v};")
        else:
            b.put(f"r{v}[u] = v{v};")
    b.leave(saved)
    b.indent = " " * 8
    b.put("}")
    for v, size in sizes.items():
        b.lines.insert(start, f"{b.indent}{b.mask(size)} k{v}[{_ABREAST}];")
    for x in reductions:
        if not x.boolean:
            b.name[x.v] = f"r{x.v}[u]"
    for v in values:
        b.name[v] = f"k{v}[u]" if v in sizes else f"r{v}[u]"


def _across_outputs(r: _Rows) -> None:
    b, k = r.body, r.kernel
    rows = [o for o, row in enumerate(k.row_outs) if row]
    if not rows:
        return
    b.put("for (int u = 0; u < (few ? 1 : nu); u++) {")
    b.indent = " " * 12
    b.put(f"const i64 left = n1 - row - u * {r.lanes};")
    saved = b.scope()
    for o in rows:
        t = b.storage(k.out_dtypes[o])
        b.put(f"const {t} out{o} = {b.stored(k.outs[o], k.out_dtypes[o])};")
        b.put(
            f"row_put(q{o} + u * {r.lanes} * st[{r.n + o}], st[{r.n + o}], (const char *)&out{o},"
            f" left < {r.lanes} ? left : {r.lanes}, {DTYPES[k.out_dtypes[o]].size});"
        )
    b.leave(saved)
    b.indent = " " * 8
    b.put("}")


_ARGUMENTS = (
    "const struct rows *k, char *const *ptr, const i64 *st, i64 n0, i64 n1, const void *params,"
    " char *kept, i64 slot, char *buf"
)


def print_row_kernel(
    symbol: str, kernel: Kernel, schedule: Schedule, text: Text, lanes: int
) -> None:
    """Adds the C of a row kernel to ``text``."""
    r = _Rows(symbol, kernel, schedule, text, lanes)
    for o, d in enumerate(kernel.out_dtypes):
        if kernel.row_outs[o]:
            text.type(DTYPES[d].short, lanes)
            text.scalar(DTYPES[d].short)
    if "along" in schedule.loops:
        _along(r)
    if "across" in schedule.loops:
        _across(r)
    along, across = (f"{symbol}_{w}" if w in schedule.loops else "0" for w in ("along", "across"))
    sizes = ", ".join(str(DTYPES[d].size) for d in r.dtypes)
    per_row = ", ".join(str(int(x)) for x in kernel.row_outs) + ", 0" * len(kernel.in_dtypes)
    keep = max((DTYPES[kernel.insts[v].dtype].size for v in schedule.kept), default=0)
    r.body.lines.append(
        f"void {symbol}(char **ptr, const i64 *strides, i64 n0, i64 n1, const void *params) {{\n"
        f"    static const unsigned char size[] = {{{sizes}}}, per_row[] = {{{per_row}}};\n"
        f"    static const struct rows k = {{{along}, {across}, size, per_row,"
        f" {r.n}, {r.n_out}, {lanes}, {len(schedule.kept)}, {keep}, {schedule.n_passes}}};\n"
        "    row_driver(&k, ptr, strides, n0, n1, params);\n}"
    )
    text.parts.append("\n".join(r.body.lines))
