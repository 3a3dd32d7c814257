"""The pieces of C that a kernel's text is put together from, each printed once and only if used.

A piece is asked for by name and vector type, e.g. ``text.use("exp", "f32x16")``, which returns
the C function's name (``exp_f32x16``) after making sure that the piece and what it needs stand
earlier in the text. In a template ``$F`` is the vector type, ``$I`` and ``$U`` the signed and
unsigned integer vectors of the same shape, ``$W`` the number of lanes, ``$S`` the scalar type,
and ``$(name)`` another piece of the same type.
"""

from __future__ import annotations

from collections.abc import Callable

from .target import Target

__all__ = ["C_TYPES", "Text", "lanes_of", "mask_type", "scalar_of"]

# short name of a vector's scalar -> (C type, size in bytes, compute kind)
C_TYPES: dict[str, tuple[str, int, str]] = {
    "f32": ("float", 4, "f"),
    "f64": ("double", 8, "f"),
    "i8": ("signed char", 1, "i"),
    "i16": ("short", 2, "i"),
    "i32": ("int", 4, "i"),
    "i64": ("long long", 8, "i"),
    "u8": ("unsigned char", 1, "u"),
    "u16": ("unsigned short", 2, "u"),
    "u32": ("unsigned int", 4, "u"),
    "u64": ("unsigned long long", 8, "u"),
}


def scalar_of(vector: str) -> str:
    """'f32' of 'f32x16'."""
    return vector.split("x")[0]


def lanes_of(vector: str) -> int:
    """16 of 'f32x16'."""
    return int(vector.split("x")[1])


def mask_type(size: int, lanes: int) -> str:
    """The vector type of a comparison of elements of ``size`` bytes."""
    return f"i{8 * size}x{lanes}"


class Text:
    """A text under construction: pieces in order, each at most once.

    ``library`` maps the name of a piece to a function ``(text, vector) -> C text``, which may
    itself call :meth:`use`.
    """

    def __init__(self, target: Target, library: dict[str, Callable[[Text, str], str]]) -> None:
        self.target = target
        self.library = library
        self.parts: list[str] = []
        self.libm = False
        self._done: set[str] = set()

    def type(self, scalar: str, lanes: int) -> str:
        """The vector type's name; ``<name>_u`` is the same for any address and any alias."""
        name = f"{scalar}x{lanes}"
        if name not in self._done:
            self._done.add(name)
            c, size, _ = C_TYPES[scalar]
            n = size * lanes
            self.parts.append(
                f"typedef {c} {name} __attribute__((vector_size({n})));\n"
                f"typedef {c} {name}_u __attribute__((vector_size({n}), aligned(1), may_alias));"
            )
        return name

    def use(self, piece: str, vector: str) -> str:
        """The C name of ``piece`` for ``vector``, its text added when it is new."""
        name = f"{piece}_{vector}"
        if name not in self._done:
            self._done.add(name)
            self.parts.append(self.library[piece](self, vector))
        return name

    def once(self, name: str, c: str) -> None:
        """Adds a piece that has no vector type."""
        if name not in self._done:
            self._done.add(name)
            self.parts.append(c)

    def scalar(self, short: str) -> None:
        """The type ``<short>_u``: one element at any address."""
        c = C_TYPES[short][0]
        self.once(
            f"scalar {short}", f"typedef {c} {short}_u __attribute__((aligned(1), may_alias));"
        )

    def prototype(self, name: str, c: str) -> None:
        """Declares a function of libm."""
        self.libm = True
        self.once("libm " + name, c)

    def fill(self, template: str, vector: str) -> str:
        """``template`` with its types and pieces named for ``vector``."""
        s, w = scalar_of(vector), lanes_of(vector)
        c, size, _ = C_TYPES[s]
        out, rest = [], template
        while (at := rest.find("$")) >= 0:
            out.append(rest[:at])
            mark, rest = rest[at + 1], rest[at + 2 :]
            if mark == "(":
                piece, rest = rest.split(")", 1)
                out.append(self.use(piece, vector))
            elif mark == "F":
                out.append(self.type(s, w))
            elif mark == "I":
                out.append(self.type(f"i{8 * size}", w))
            elif mark == "U":
                out.append(self.type(f"u{8 * size}", w))
            elif mark == "W":
                out.append(str(w))
            elif mark == "S":
                out.append(c)
            else:
                raise ValueError(f"unknown mark ${mark} in a template")
        return "".join(out) + rest

    def __str__(self) -> str:
        return "\n".join(self.parts) + "\n"
