"""Pieces of C that map to one or two instructions, per instruction set with a portable form."""

from __future__ import annotations

from collections.abc import Callable

from .fragments import C_TYPES, Text, lanes_of, scalar_of

__all__ = ["PRIMITIVES"]

_CHARS = "(char __attribute__((vector_size({}))))"
_PIECE = "static inline $F {name}_$F({args}) {{ {body} }}"


def _bytes(vector: str) -> int:
    return C_TYPES[scalar_of(vector)][1] * lanes_of(vector)


def dup(text: Text, vector: str) -> str:
    """All lanes the same; an explicit list, so that -0.0 stays."""
    lanes = ", ".join(["x"] * lanes_of(vector))
    return text.fill(f"static inline $F dup_$F($S x) {{ return ($F){{{lanes}}}; }}", vector)


def iota(text: Text, vector: str) -> str:
    """0, 1, 2, ..."""
    lanes = ", ".join(map(str, range(lanes_of(vector))))
    return text.fill(f"static inline $F iota_$F(void) {{ return ($F){{{lanes}}}; }}", vector)


def sel(text: Text, vector: str) -> str:
    """m ? a : b by lane; the mask is all ones or all zeros in a lane."""
    return text.fill(
        "static inline $F sel_$F($I m, $F a, $F b) { return ($F)((m & ($I)a) | (~m & ($I)b)); }",
        vector,
    )


def _x86(vector: str, isa: str, names: tuple[str, str, str]) -> str:
    """The builtin of the vector's size, '' where the instruction set has none of that size."""
    n = _bytes(vector)
    suffix = {"f32": "ps", "f64": "pd"}.get(scalar_of(vector), "")
    if not suffix or isa == "generic":
        return ""
    if n == 64 and isa == "avx512":
        return names[0].format(suffix)
    return names[1].format(suffix) if n == 32 else names[2].format(suffix) if n == 16 else ""


def _lanewise(call: str) -> str:
    return f"$F r; for (int i = 0; i < $W; i++) r[i] = {call}; return r;"


def _f(vector: str, name: str) -> str:
    return f"__builtin_{name}" + ("f" if scalar_of(vector) == "f32" else "")


_HAS_FMA = "#if defined(__FMA__) || defined(__aarch64__)"


def _without_fma(text: Text, vector: str) -> str:
    """In double for float: the product is exact there. For double as two operations."""
    if scalar_of(vector) == "f64":
        return "return a * b + c;"
    wide = text.type("f64", lanes_of(vector))
    cast = "__builtin_convertvector({}, {})"
    a, b, c = (cast.format(v, wide) for v in "abc")
    return f"return {cast.format(f'{a} * {b} + {c}', vector)};"


def fma(text: Text, vector: str) -> str:
    """a * b + c rounded once where the machine can, twice where it cannot."""
    isa = text.target.isa
    loop = _lanewise(_f(vector, "fma") + "(a[i], b[i], c[i])")
    call = _x86(
        vector,
        isa,
        (
            "__builtin_ia32_vfmadd{0}512_mask(a, b, c, -1, 4)",
            "__builtin_ia32_vfmadd{0}256(a, b, c)",
            "__builtin_ia32_vfmadd{0}(a, b, c)",
        ),
    )
    if call:
        body = f"return {call};"
    elif isa == "generic":
        body = f"\n{_HAS_FMA}\n{loop}\n#else\n{_without_fma(text, vector)}\n#endif\n"
    else:
        body = loop
    clang = "return __builtin_elementwise_fma(a, b, c);"
    return text.fill(
        "#ifdef __clang__\n"
        + _PIECE.format(name="fma", args="$F a, $F b, $F c", body=clang)
        + "\n#else\n"
        + _PIECE.format(name="fma", args="$F a, $F b, $F c", body=body)
        + "\n#endif",
        vector,
    )


def sqrt(text: Text, vector: str) -> str:
    """Correctly rounded square root."""
    call = _x86(
        vector,
        text.target.isa,
        (
            "__builtin_ia32_sqrt{0}512_mask(x, x, -1, 4)",
            "__builtin_ia32_sqrt{0}256(x)",
            "__builtin_ia32_sqrt{0}(x)",
        ),
    )
    body = f"return {call};" if call else _lanewise(_f(vector, "sqrt") + "(x[i])")
    return text.fill(
        "#ifdef __clang__\n"
        + _PIECE.format(name="sqrt", args="$F x", body="return __builtin_elementwise_sqrt(x);")
        + "\n#else\n"
        + _PIECE.format(name="sqrt", args="$F x", body=body)
        + "\n#endif",
        vector,
    )


def _rounding(name: str, mode: int, scalar: str, clang: str) -> Callable[[Text, str], str]:
    def piece(text: Text, vector: str) -> str:
        call = _x86(
            vector,
            text.target.isa,
            (
                f"__builtin_ia32_rndscale{{0}}_mask(x, {mode}, x, -1, 4)",
                f"__builtin_ia32_round{{0}}256(x, {mode})",
                f"__builtin_ia32_round{{0}}(x, {mode})",
            ),
        )
        body = f"return {call};" if call else _lanewise(_f(vector, scalar) + "(x[i])")
        return text.fill(
            "#ifdef __clang__\n"
            + _PIECE.format(
                name=name, args="$F x", body=f"return __builtin_elementwise_{clang}(x);"
            )
            + "\n#else\n"
            + _PIECE.format(name=name, args="$F x", body=body)
            + "\n#endif",
            vector,
        )

    return piece


def fabs(text: Text, vector: str) -> str:
    size = C_TYPES[scalar_of(vector)][1]
    top = "0x7fffffff" if size == 4 else "0x7fffffffffffffffLL"
    return text.fill(f"static inline $F fabs_$F($F x) {{ return ($F)(($I)x & {top}); }}", vector)


def copysign(text: Text, vector: str) -> str:
    size = C_TYPES[scalar_of(vector)][1]
    top = "0x7fffffff" if size == 4 else "0x7fffffffffffffffLL"
    return text.fill(
        "static inline $F copysign_$F($F x, $F s) "
        f"{{ return ($F)((($I)x & {top}) | (($I)s & ~{top})); }}",
        vector,
    )


def any_lane(text: Text, vector: str) -> str:
    """Whether a mask (an integer vector) has any lane set."""
    n = _bytes(vector)
    if n == 64 and text.target.isa == "avx512":
        q = text.type("i64", 8)
        fast = f"return __builtin_ia32_ptestmq512(({q})m, ({q})m, -1) != 0;"
    elif n == 32 and text.target.isa != "generic":
        fast = f"return __builtin_ia32_pmovmskb256({_CHARS.format(32)}m) != 0;"
    elif n == 16 and text.target.isa != "generic":
        fast = f"return __builtin_ia32_pmovmskb128({_CHARS.format(16)}m) != 0;"
    else:
        fast = ""
    slow = "long long r = 0; for (int i = 0; i < $W; i++) r |= m[i]; return r != 0;"
    body = f"\n#ifndef __clang__\n{fast}\n#endif\n{slow}\n" if fast else f" {slow} "
    return text.fill(f"static inline int any_lane_$F($I m) {{{body}}}", vector)


def ldexp(text: Text, vector: str) -> str:
    """x * 2**n for integral n, rounded once also where the result is subnormal."""
    bits, bias = (23, 127) if scalar_of(vector) == "f32" else (52, 1023)
    n = _bytes(vector)
    magic, at = ("0x1.8p23f", "0x4b400000") if bits == 23 else ("0x1.8p52", "0x4338000000000000ll")
    portable = (
        f"$I k = ($I)(n + {magic}) - {at}; $I h = k >> 1;"
        f" return x * ($F)((h + {bias}) << {bits}) * ($F)((k - h + {bias}) << {bits});"
    )
    if text.target.isa == "avx512" and n == 64:
        suffix = "ps" if bits == 23 else "pd"
        body = (
            f"\n#ifndef __clang__\nreturn __builtin_ia32_scalef{suffix}512_mask(x, n, x, -1, 4);"
            f"\n#else\n{portable}\n#endif\n"
        )
    else:
        body = f" {portable} "
    return text.fill(f"static inline $F ldexp_$F($F x, $F n) {{{body}}}", vector)


def shuffle_xor(text: Text, vector: str) -> str:
    """Lane i gets lane i ^ s (s a power of two below the lanes)."""
    m = text.type(f"i{8 * C_TYPES[scalar_of(vector)][1]}", lanes_of(vector))
    iota_name = text.use("iota", m)
    return text.fill(
        "#ifdef __clang__\nstatic inline $F shuffle_xor_$F($F x, int s) "
        "{ $F r; for (int i = 0; i < $W; i++) r[i] = x[i ^ s]; return r; }\n#else\n"
        "static inline __attribute__((always_inline)) $F shuffle_xor_$F($F x, const int s) "
        f"{{ return __builtin_shuffle(x, {iota_name}() ^ ({C_TYPES[scalar_of(m)][0]})s); }}"
        "\n#endif",
        vector,
    )


def pick(text: Text, vector: str) -> str:
    """One of eight constants a lane, by the low three bits of ``i``: a shuffle of a register."""
    lanes, named = lanes_of(vector), ", ".join("abcdefgh")
    args = ", ".join(f"$S {v}" for v in "abcdefgh")
    slow = f"const $S t[8] = {{{named}}}; $F r;"
    slow += " for (int l = 0; l < $W; l++) r[l] = t[i[l] & 7]; return r;"
    if lanes == 4:
        fast = "return __builtin_shuffle(($F){a, b, c, d}, ($F){e, f, g, h}, i);"
    elif lanes in (8, 16) and text.target.isa != "generic":
        fast = f"return __builtin_shuffle(($F){{{', '.join([named] * (lanes // 8))}}}, i);"
    else:
        return text.fill(f"static inline $F pick_$F($I i, {args}) {{ {slow} }}", vector)
    body = f"\n#ifdef __clang__\n{slow}\n#else\n{fast}\n#endif\n"
    return text.fill(f"static inline $F pick_$F($I i, {args}) {{{body}}}", vector)


PRIMITIVES: dict[str, Callable[[Text, str], str]] = {
    "dup": dup,
    "iota": iota,
    "sel": sel,
    "fma": fma,
    "sqrt": sqrt,
    "floor": _rounding("floor", 9, "floor", "floor"),
    "ceil": _rounding("ceil", 10, "ceil", "ceil"),
    "trunc": _rounding("trunc", 11, "trunc", "trunc"),
    "round": _rounding("round", 8, "nearbyint", "roundeven"),
    "fabs": fabs,
    "copysign": copysign,
    "any_lane": any_lane,
    "ldexp": ldexp,
    "pick": pick,
    "shuffle_xor": shuffle_xor,
}
