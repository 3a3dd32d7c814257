"""Kernel IR to C: header-free text with GCC vector extensions (GCC and Clang both read it).

``print_kernels`` gives one translation unit of any number of kernels; each becomes a function of
the loop ABI (``docs/engine.md``) and needs the library of ``staging.support_text`` loaded with
its symbols global, or linked in. Nothing is compiled here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from flambeau._src.ir.kernel import DTYPES, Kernel, Schedule

from .body import Body
from .fragments import C_TYPES, Text
from .primitives import PRIMITIVES
from .reductions import COMBINERS
from .rows import print_row_kernel
from .scalarmath import SCALAR_MATH
from .staging import DECLARATIONS
from .storage import STORAGE
from .target import Target
from .vecmath32 import MATH32
from .vecmath64 import MATH64

__all__ = ["print_kernels"]


def _by_precision(name: str) -> Callable[[Text, str], str]:
    """Our polynomials where there are some for the type, else the library."""

    def piece(text: Text, vector: str) -> str:
        ours = MATH32 if vector.startswith("f32") else MATH64 if vector.startswith("f64") else {}
        return (ours.get(name) or SCALAR_MATH[name])(text, vector)

    return piece


def _logaddexp(text: Text, vector: str) -> str:
    """log(exp(a) + exp(b)); equal infinities stay."""
    return text.fill(
        "static inline $F logaddexp_$F($F a, $F b) {\n"
        "    $F m = $(sel)((a > b) | (a != a), a, b), n = $(sel)((a > b) | (a != a), b, a);\n"
        "    $F y = m + $(log1p)($(exp)(n - m));\n"
        "    return $(sel)((m == n) & (m - m != 0), m, y);\n}",
        vector,
    )


LIBRARY: dict[str, Callable[[Text, str], str]] = {
    **PRIMITIVES,
    **STORAGE,
    **COMBINERS,
    **SCALAR_MATH,
    "logaddexp": _logaddexp,
    **{name: _by_precision(name) for name in (*MATH32, *MATH64)},
}


def print_kernels(
    kernels: Iterable[tuple[str, Kernel, Schedule]], target: Target,
    whole: Iterable[tuple[str, str, str]] = (),
) -> str:  # fmt: skip
    """C for ``(symbol, kernel, schedule)`` each, for the machine ``target``; and for what has a
    text of its own (``attention.py``, ``channels.py``, ``convolution.py``), ``(symbol, kind,
    dtype)`` each."""
    text = Text(target, LIBRARY)
    text.parts.append(DECLARATIONS)
    for symbol, kernel, schedule in kernels:
        text.parts.append(f"/* {kernel} */".replace("\n", "\n * "))
        if kernel.kind == "map":
            _print_map(symbol, kernel, schedule, text)
        else:
            print_row_kernel(symbol, kernel, schedule, text, _lanes(schedule, target))
    for symbol, kind, dtype in whole:
        from . import attention, channels, convolution  # lazy: texts that few processes print

        short = {"float32": "f32", "float64": "f64"}[dtype]
        lanes = target.vector_bytes // C_TYPES[short][1]
        vector = text.type(short, lanes)
        if kind in attention.KINDS:
            attention.print_attention(text, symbol, kind, vector)
        elif kind in channels.KINDS:
            channels.print_channels(text, symbol, kind)
        else:
            convolution.print_convolution(text, symbol, kind, vector)
    return str(text)


def _lanes(schedule: Schedule, target: Target) -> int:
    return max(2, target.vector_bytes // schedule.lane_size)


def _uniforms(body: Body, schedule: Schedule) -> None:
    """Constants, parameters and what follows from them alone, before the loops."""
    for v, inst in enumerate(body.kernel.insts):
        if schedule.level[v] == 0 and inst.op != "count":
            body.value(v)


def _stream_store(body: Body, out: int, address: str, value: str) -> str | None:
    """A store past the caches, where the target has one of this size."""
    dtype = body.kernel.out_dtypes[out]
    n = DTYPES[dtype].size * body.lanes
    isa = body.text.target.isa
    builtin = {64: "__builtin_ia32_movntdq512", 32: "__builtin_ia32_movntdq256"}.get(n)
    if builtin is None or isa == "generic" or (n == 64 and isa != "avx512"):
        return None
    q = body.text.type("i64", n // 8)
    body.text.once(
        f"stream {n}",
        f"#ifdef __clang__\n#define stream_{n}(p, v) __builtin_nontemporal_store(v, p)\n#else\n"
        f"#define stream_{n}(p, v) {builtin}(p, v)\n#endif",
    )
    return f"stream_{n}(({q} *)({address}), ({q})({value}));"


def _loop(symbol: str, body: Body, schedule: Schedule, stream: bool) -> bool:
    """One vector loop of a map kernel; False when it was to stream and cannot."""
    kernel = body.kernel
    n_out = len(kernel.out_dtypes)
    n = n_out + len(kernel.in_dtypes)
    start = len(body.lines)
    saved = body.scope()
    body.indent = ""
    body.put(
        f"static void {symbol}_{'stream' if stream else 'loop'}"
        "(char *const *p, const i64 *step, i64 nv, const void *params) {"
    )
    body.indent = "    "
    _uniforms(body, schedule)
    body.put(" ".join(f"char *p{a} = p[{a}]; const i64 s{a} = step[{a}];" for a in range(n)))
    body.put("for (; nv > 0; nv--) {")
    body.indent = "        "
    for v, inst in enumerate(kernel.insts):
        if schedule.level[v] == 0:
            continue
        if inst.op == "load":
            a = int(inst.attr)
            size = 1 if inst.dtype == "bool" else None
            body.define(v, body.load(kernel.in_dtypes[a], f"p{n_out + a}"), size)
        else:
            body.value(v)
    stores = []
    for o, v in enumerate(kernel.outs):
        dtype = kernel.out_dtypes[o]
        t = body.storage(dtype)
        if body.is_raw_copy(o):
            a = n_out + int(kernel.insts[v].attr)
            value = f"*(const {t}_u *)p{a}"
        else:
            value = body.stored(v, dtype)
        body.put(f"const {t} out{o} = {value};")
        store = _stream_store(body, o, f"p{o}", f"out{o}") if stream else None
        if stream and store is None:
            del body.lines[start:]
            body.leave(saved)
            return False
        stores.append(store or f"*({t}_u *)p{o} = out{o};")
    for store in stores:
        body.put(store)
    body.put(" ".join(f"p{a} += s{a};" for a in range(n)))
    body.indent = "    "
    body.put("}")
    if stream:
        body.put("__builtin_ia32_sfence();")
    body.indent = ""
    body.put("}")
    body.leave(saved)
    return True


def _print_map(symbol: str, kernel: Kernel, schedule: Schedule, text: Text) -> None:
    lanes = _lanes(schedule, text.target)
    body = Body(kernel, text, lanes)
    _loop(symbol, body, schedule, stream=False)
    streams = len(kernel.outs) == 1 and schedule.cost <= 8
    streams = streams and _loop(symbol, body, schedule, stream=True)
    dtypes = (*kernel.out_dtypes, *kernel.in_dtypes)
    sizes = ", ".join(str(DTYPES[d].size) for d in dtypes)
    stream = f"{symbol}_stream" if streams else "0"
    body.lines.append(
        f"void {symbol}(char **ptr, const i64 *strides, i64 n0, i64 n1, const void *params) {{\n"
        f"    static const unsigned char size[] = {{{sizes}}};\n"
        f"    static const struct map k = {{{symbol}_loop, {stream}, size, {len(dtypes)},"
        f" {len(kernel.outs)}, {lanes}}};\n"
        "    map_driver(&k, ptr, strides, n0, n1, params);\n}"
    )
    text.parts.append("\n".join(body.lines))
