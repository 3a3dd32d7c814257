"""Text: f-strings, methods, formats."""

from __future__ import annotations

import flambeau as torch
from tests.capture.comparing import program


def x():
    return torch.randn(3, 4)


class Named:
    def __init__(self, n):
        self.n = n

    def __repr__(self):
        return f"Named({self.n!r})"

    def __format__(self, spec):
        return f"<{spec}:{self.n}>"


@program(lambda: (x(), 3, "name"), graphs=1)
def f_strings(a, n, s):
    t = f"{n:>5} {s!r} {n + 1} {a.shape} {a.dtype} {[1, 'x']} {n:{n}} {1.5:.3f} {s=}"
    return a + len(t), t


@program(lambda: (x(), "a,b,c"), graphs=1)
def methods(a, s):
    parts = s.split(",")
    return (a + len(parts), "-".join(parts), s.upper(), s.replace("a", "z"), s.startswith("a"),
            "{} {k}".format(1, k=2), "%d %s" % (3, "x"), s[::-1], "b" in s, s.index("b"), s * 2,
            s.encode(), b"xy".decode(), " t ".strip(), s.partition(","), "x".join(p for p in parts))  # fmt: skip


@program(lambda: (x(),), graphs=1)
def own_text(a):
    v = Named("k")
    return a + 1, f"{v}", f"{v!r:>12}", str(v), repr([v]), f"{v!s}"


@program(lambda: (x(), {"layer1": 1, "layer2": 2}), graphs=1)
def names_as_keys(a, table):
    for i in range(1, 3):
        a = a + table[f"layer{i}"]
    return a
