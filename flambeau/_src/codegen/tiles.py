"""A product in registers: the inside of attention and convolution."""

from __future__ import annotations

from .fragments import Text

__all__ = ["TILE_ROWS", "tile"]

# Rows of the largest tile: two vectors each, what comes in beside them, and no register spilt.
TILE_ROWS = {"avx512": 12, "avx2": 6, "generic": 6}

# What the running index k, and the row m, do to the two sides.
_FORMS = {
    "dense": ("a[{0} * am]", "b += bk"),
    "spread_b": ("a[{0} * am]", "b = base + *++at"),
    "spread_a": ("a[at[{0}]]", "b += bk"),
}
_TILE = """
/* c[m][0..2W) (+)= the sum over k < n of a * b[0..2W), m < %(rows)d */
static inline __attribute__((always_inline)) void %(name)s(part_$F *c, i64 cm, const part_$F *a,
        i64 am, i64 ak, const part_$F *b, i64 bk, const i64 *at, i64 n, int add) {
    $F %(zeros)s;
    const part_$F *base = b;
    if (%(first)s) b = base + *at;
    for (; n > 0; n--, a += ak, %(next)s) {
        const $F l = *(const $F_u *)b, r = *(const $F_u *)(b + $W); $F x;
        %(steps)s
    }
    if (add) { %(take)s }
    %(put)s
}"""


def tile(text: Text, vector: str, rows: int, form: str = "dense") -> str:
    """The C name of the routine for so many rows: two vectors each, over one running index k.

    a is at m * am + k * ak, b at k * bk. 'spread_b': b is at at[k] (which has one element more
    than are used); 'spread_a': a is at at[m] + k * ak.
    """
    name = f"tile{rows}_{form}_{vector}"
    fma, dup, lanes, each = text.use("fma", vector), text.use("dup", vector), "$W", range(rows)
    text.once(f"part {vector}", text.fill("typedef $S part_$F __attribute__((may_alias));", vector))
    factor, following = _FORMS[form]
    left, right = "*($F_u *)(c + {0} * cm)", f"*($F_u *)(c + {{0}} * cm + {lanes})"
    pieces = {
        "name": name,
        "rows": rows,
        "next": following,
        "first": int(form == "spread_b"),
        "zeros": ", ".join(f"l{m} = {{0}}, r{m} = {{0}}" for m in each),
        "steps": "\n        ".join(
            f"x = {dup}({factor.format(m)}); l{m} = {fma}(x, l, l{m}); r{m} = {fma}(x, r, r{m});"
            for m in each
        ),
        "take": " ".join(f"l{m} += {left.format(m)}; r{m} += {right.format(m)};" for m in each),
        "put": " ".join(f"{left.format(m)} = l{m}; {right.format(m)} = r{m};" for m in each),
    }
    text.once(name, text.fill(_TILE % pieces, vector))
    return name
