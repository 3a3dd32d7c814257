"""Pieces of C for elements as they lie in memory: 16-bit and 8-bit floats to and from float.

Conversions to a narrower format round to nearest, ties to even, once; NaN stays NaN.
"""

from __future__ import annotations

from collections.abc import Callable

from .fragments import Text, lanes_of

__all__ = ["STORAGE"]

_BF16 = {
    "load_bfloat16": """static inline $F load_bfloat16_$F(HALFWORDS b) {
    return ($F)(__builtin_convertvector(b, $U) << 16);
}""",
    "store_bfloat16": """static inline HALFWORDS store_bfloat16_$F($F x) {
    $U u = ($U)x;
    u = (u + 0x7fff + ((u >> 16) & 1)) >> 16;
    u = ($U)((($I)u & ($I)(x == x)) | (($I)(x != x) & 0x7fc0));
    return __builtin_convertvector(u, HALFWORDS);
}""",
}

# Without the instruction: a half is scaled by 2^112 as a float; subnormals come out by the
# multiplication. The other way, the addition of a large constant rounds the subnormals.
_F16 = {
    "load_float16": """static inline $F load_float16_$F(HALFWORDS b) {
    FAST_LOAD$U w = __builtin_convertvector(b, $U), m = (w & 0x7fff) << 13;
    $F f = ($F)m * 0x1p+112f;
    f = $(sel)(($I)((w & 0x7c00) == 0x7c00), ($F)(m | 0x7f800000), f);
    return ($F)(($U)f | ((w & 0x8000) << 16));
}""",
    "store_float16": """static inline HALFWORDS store_float16_$F($F x) {
    FAST_STORE$U u = ($U)x, s = (u >> 16) & 0x8000;
    $F a = ($F)(u & 0x7fffffff);
    $U v = ($U)a;
    $U normal = (v - 0x38000000 + 0xfff + ((v >> 13) & 1)) >> 13;
    $U tiny = ($U)(a + 0.5f) - 0x3f000000;
    $U h = ($U)$(sel)(a < 0x1p-14f, ($F)tiny, ($F)normal);
    h = ($U)$(sel)(a >= 65520.f, ($F)($U)((v & 0) + 0x7c00), ($F)h);
    h = ($U)$(sel)(x != x, ($F)($U)((v & 0) + 0x7e00), ($F)h);
    return __builtin_convertvector(h | s, HALFWORDS);
}""",
}

_F8 = {
    # e5m2 is the upper byte of a half
    "load_float8_e5m2": """static inline $F load_float8_e5m2_$F(BYTES b) {
    return $(load_float16)(__builtin_convertvector(b, HALFWORDS) << 8);
}""",
    "store_float8_e5m2": """static inline BYTES store_float8_e5m2_$F($F x) {
    $U u = ($U)x, s = (u >> 24) & 0x80, v = u & 0x7fffffff;
    $U normal = (v - 0x38000000 + 0xfffff + ((v >> 21) & 1)) >> 21;
    $U tiny = ($U)(($F)v + 0x1p+7f) - 0x43000000;
    $U h = ($U)$(sel)(($F)v < 0x1p-14f, ($F)tiny, ($F)normal);
    h = ($U)$(sel)(($F)v >= 61440.f, ($F)($U)((v & 0) + 0x7c), ($F)h);
    h = ($U)$(sel)(x != x, ($F)($U)((v & 0) + 0x7f), ($F)h);
    return __builtin_convertvector(h | s, BYTES);
}""",
    # e4m3fn has no infinity: what is too large becomes NaN (0x7f)
    "load_float8_e4m3fn": """static inline $F load_float8_e4m3fn_$F(BYTES b) {
    $U w = __builtin_convertvector(b, $U), m = (w & 0x7f) << 20;
    $F f = ($F)m * 0x1p+120f;
    f = $(sel)(($I)((w & 0x7f) == 0x7f), $(dup)(__builtin_nanf("")), f);
    return ($F)(($U)f | ((w & 0x80) << 24));
}""",
    "store_float8_e4m3fn": """static inline BYTES store_float8_e4m3fn_$F($F x) {
    $U u = ($U)x, s = (u >> 24) & 0x80, v = u & 0x7fffffff;
    $U normal = (v - 0x3c000000 + 0x7ffff + ((v >> 20) & 1)) >> 20;
    $U tiny = ($U)(($F)v + 0x1p+14f) - 0x46800000;
    $U h = ($U)$(sel)(($F)v < 0x1p-6f, ($F)tiny, ($F)normal);
    h = ($U)$(sel)((($F)v > 464.f) | (x != x), ($F)($U)((v & 0) + 0x7f), ($F)h);
    return __builtin_convertvector(h | s, BYTES);
}""",
}

_TEMPLATES = {**_BF16, **_F16, **_F8}


def _hardware(text: Text, vector: str, load: bool) -> str:
    """The half conversion by instruction where there is one for this many lanes."""
    w, isa = lanes_of(vector), text.target.isa
    if w == 16 and isa == "avx512":
        h = text.type("i16", 16)
        call = (
            f"__builtin_ia32_vcvtph2ps512_mask(({h})b, ($F){{}}, -1, 4)"
            if load
            else "__builtin_ia32_vcvtps2ph512_mask(x, 4, (H){}, -1)".replace("H", h)
        )
    elif w == 8 and isa != "generic":
        h = text.type("i16", 8)
        call = (
            f"__builtin_ia32_vcvtph2ps256(({h})b)"
            if load
            else ("__builtin_ia32_vcvtps2ph256(x, 4)")
        )
    else:
        return ""
    cast = "" if load else f"({text.type('u16', w)})"
    return f"\n#ifndef __clang__\n    return {cast}{call};\n#endif\n    "


def _template(name: str) -> Callable[[Text, str], str]:
    def piece(text: Text, vector: str) -> str:
        c = _TEMPLATES[name]
        w = lanes_of(vector)
        if "FAST" in c:
            c = c.replace("FAST_LOAD", _hardware(text, vector, True))
            c = c.replace("FAST_STORE", _hardware(text, vector, False))
        if "HALFWORDS" in c:
            c = c.replace("HALFWORDS", text.type("u16", w))
        if "BYTES" in c:
            c = c.replace("BYTES", text.type("u8", w))
        return text.fill(c, vector)

    return piece


STORAGE: dict[str, Callable[[Text, str], str]] = {n: _template(n) for n in _TEMPLATES}
