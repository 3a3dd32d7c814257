"""Strings made and taken apart."""

from __future__ import annotations

import re
import string
import textwrap
import types

import flambeau as torch
from tests.capture.comparing import program


def x():
    return torch.randn(3, 4)


class Named:
    def __init__(self, name):
        self.name = name

    def __repr__(self):
        return f"Named({self.name!r})"

    def __str__(self):
        return self.name


@program(lambda: (x(), 3, 2.5, "s"), graphs=1)
def formats(a, n, f, s):
    width = 8
    return (
        a + n,
        f"{n:>5}|{f:.3f}|{s!r}|{n:#x}|{f:e}|{n:+d}|{1000000:,}|{f:{width}.{n}f}",
        f"{n=} {f!s:>6} {{}} {'nested' + str(n)}",
        f"{a.shape} {a.dtype} {tuple(a.shape)!r}",
    )


@program(lambda: (x(), Named("k"), [Named("p")]), graphs=1)
def formats_objects(a, obj, items):
    return a + 1, f"{obj} {obj!r}", str(items), repr({"k": obj}), f"{[obj]}", str(None), str(1.0)


@program(lambda: (x(), 5, "w"), graphs=1)
def percent(a, n, s):
    return a + n, "%d-%s" % (n, s), "%05.1f" % 2.25, "%(k)s" % {"k": s}, "%r %%" % s, "%x" % 255


@program(lambda: (x(), {"k": 1}), graphs=1)
def format_method(a, table):
    return (
        a + 1,
        "{} {}".format(1, "p"),
        "{1}{0}".format("a", "b"),
        "{k}".format(k=2),
        "{0[k]}".format(table),
        "{:>4}".format(7),
        "{!r}".format("q"),
        "{k}".format_map(table),
    )


@program(lambda: (x(), "  The quick, brown fox  "), graphs=1)
def string_methods(a, s):
    t = s.strip()
    return (
        a + len(t),
        [t.lower(), t.upper(), t.title(), t.swapcase(), t.split(), t.split(","), t.partition(" ")],
        [t.find("q"), t.rfind("o"), t.count("o"), t.startswith("The"), t.endswith(("x", "y"))],
        [t.replace("quick", "slow"), t.center(30, "*"), t.zfill(30), t[::-1], t[4:9], "qu" in t],
        ["-".join("abc"), "a\nb".splitlines(), "abc".isalpha(), "12".isdigit(), "a b".isspace()],
        ["x".ljust(3, ".") + "x".rjust(3), "aXbX".rsplit("X", 1), "abc".removeprefix("a")],
        [
            "abc".translate(str.maketrans("a", "z")),
            "é".encode(),
            "ß".casefold(),
            "a" * 3,
            "a" < "b",
        ],
    )


@program(lambda: (x(), "layer.3.weight"), graphs=1)
def regular_expressions(a, name):
    m = re.match(r"(\w+)\.(\d+)\.(?P<kind>\w+)", name)
    n = int(m.group(2))
    return (
        a * n,
        m.groups(),
        m["kind"],
        m.span(2),
        re.sub(r"\d+", "N", name),
        re.findall(r"[a-z]+", name),
        bool(re.search("z", name)),
        re.split(r"\.", name),
    )


PATTERN = re.compile(r"(\d+)")


@program(lambda: (x(), "k12v34"), graphs=1)
def compiled_expressions(a, text):
    total = sum(int(m.group(1)) for m in PATTERN.finditer(text))
    return a * total, PATTERN.sub(lambda m: str(int(m[1]) + 1), text), PATTERN.pattern


@program(lambda: (x(), ["p", "q"]), graphs=1)
def names_chosen(a, names):
    table = {f"layer_{n}": a * i for i, n in enumerate(names)}
    picked = [v for k, v in table.items() if k.endswith("q")]
    return picked[0] + 1, sorted(table)


@program(lambda: (x(),), graphs=1)
def string_module(a):
    return a + 1, string.ascii_lowercase[:3], string.digits, textwrap.dedent("  a\n  b")


@program(lambda: (x(), [1, 2, 3]), graphs=1)
def joins(a, items):
    return (
        a + 1,
        ", ".join(map(str, items)),
        "".join(sorted("cab")),
        " ".join(f"{i:02d}" for i in items),
    )


class Holder:
    def __init__(self, held):
        self.held = held

    def __repr__(self):
        return f"Holder({self.held})"


# The text of a tensor shows its values, which only running tells.


@program(lambda: (torch.ones(2),), breaks=1)
def representation(a):
    return repr(a + 1)


@program(lambda: (torch.ones(2),), breaks=None)
def texts_of_tensors(a):
    b = a + 1
    return str(b), f"{b}", f"{b!r:>40}", "%s" % b, "%s %d" % (b, 3), "{}".format(b), ascii([b])


@program(lambda: (torch.ones(2),), breaks=None)
def text_by_methods(a):
    b = a + 1
    return b.__repr__(), b.__str__(), b.__format__(""), torch.Tensor.__repr__(b)


@program(lambda: (torch.ones(2),), breaks=None)
def text_of_what_holds_tensors(a):
    b = a + 1
    return repr(Holder(b)), str({"k": (b, [b])}), str(ValueError(b)), repr(slice(b))


@program(lambda: (torch.ones(2),), breaks=None)
def text_of_results(a):
    found = a.max(0)
    shown = types.MappingProxyType({"k": a + 1})
    return repr(found), f"{[found]}", str(shown), repr(torch.aminmax(a * 2))


@program(lambda: (torch.ones(2),), breaks=None)
def text_of_namespaces(a):
    made = types.SimpleNamespace(u=a + 1, v=2)
    made.w = a * 2
    return repr(made), made, repr(types.SimpleNamespace(k=1))


@program(lambda: (torch.ones(2),), breaks=None)
def numbers_of_tensors_in_text(a):
    return f"{(a + 1)[0]:.3f}", format(a.sum(), ".1f"), "{:.2e}".format(a.mean())
