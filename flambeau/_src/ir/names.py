"""Names: unique ones for values, and the public ones of functions, modules and types.

Printed programs say ``torch.add`` whatever the package is called where they were made, so that a
graph's text (and its hash) does not depend on it; `public_root` is what ``torch`` then stands for.
"""

from __future__ import annotations

import builtins
import keyword
import sys
from types import MethodType, ModuleType
from typing import Any

__all__ = [
    "Namespace",
    "is_public",
    "public_root",
    "qualified_name",
    "snake_case",
    "type_repr",
]

#: Names that generated code gives a meaning of its own.
RESERVED = frozenset(
    {"NoneType", "device", "flambeau", "fx_pytree", "inf", "nan", "pytree", "torch"}
)
_BUILTIN_NAMES = frozenset(dir(builtins))

# Where the functions without a module of their own are looked for, the preferred place first.
_HOMES = (
    "",
    "nn.functional",
    "_C._nn",
    "linalg",
    "fft",
    "special",
    "sparse",
    "autograd",
    "_C",
    "_C._linalg",
    "_C._fft",
    "_C._special",
)


class Namespace:
    """Names already given. A name asked for again gets a number: ``add``, ``add_1``, ``add_2``."""

    __slots__ = ("_by_object", "_highest", "_used_names")

    def __init__(self) -> None:
        self._used_names: set[str] = set()
        self._highest: dict[str, int] = {}
        self._by_object: dict[int, tuple[Any, str]] = {}

    def create_name(self, candidate: str, obj: Any = None) -> str:
        """A free identifier like `candidate`. The same `obj` always gets the same name."""
        if obj is not None:
            known = self._by_object.get(id(obj))
            if known is not None:
                return known[1]
        if not (candidate.isascii() and candidate.isidentifier()):
            candidate = _identifier(candidate)
        base, number = _split_number(candidate)
        if candidate in self._used_names or self._illegal(candidate, obj):
            number = max(number, self._highest.get(base, 0))
            while True:
                number += 1
                name = f"{base}_{number}"
                if name not in self._used_names:
                    break
        else:
            name = candidate
        self._used_names.add(name)
        if number > self._highest.get(base, 0):
            self._highest[base] = number
        if obj is not None:
            self._by_object[id(obj)] = (obj, name)
        return name

    def associate_name_with_obj(self, name: str, obj: Any) -> None:
        """Make `name` the name of `obj`."""
        self._used_names.add(name)
        self._by_object[id(obj)] = (obj, name)

    def rename_object(self, obj: Any, name: str) -> None:
        """Give `obj` another name."""
        self.associate_name_with_obj(name, obj)

    def _illegal(self, name: str, obj: Any) -> bool:
        if keyword.iskeyword(name):
            return True
        if name in _BUILTIN_NAMES:
            return getattr(builtins, name) is not obj
        return name in RESERVED


def _identifier(text: str) -> str:
    """`text` with each run of other characters made one underscore."""
    out: list[str] = []
    legal = True
    for c in text:
        before, legal = legal, c.isascii() and (c.isalnum() or c == "_")
        if legal:
            out.append(c)
        elif before:
            out.append("_")
    name = "".join(out)
    if not name:
        return "_unnamed"
    return f"_{name}" if name[0].isdigit() else name


def _split_number(name: str) -> tuple[str, int]:
    """``add_3`` is ``("add", 3)``; a name without a number has number 0."""
    base, underscore, digits = name.rpartition("_")
    if underscore and base and digits.isdigit():
        return base, int(digits)
    return name, 0


def snake_case(text: str) -> str:
    """``LayerNorm`` as ``layer_norm``: an underscore wherever a capital follows a small letter."""
    out: list[str] = []
    for previous, c in zip(" " + text, text, strict=False):
        if c.isupper() and previous.islower():
            out.append("_")
        out.append(c.lower())
    return "".join(out)


# ---- public names --------------------------------------------------------------------------------


def public_root() -> ModuleType:
    """The package whose functions a graph calls: what ``torch`` means in printed code."""
    return sys.modules["flambeau"]


def canonical_module(module: str) -> str:
    """``flambeau.nn.functional`` as ``torch.nn.functional``; other modules as they are."""
    head, dot, rest = module.partition(".")
    module = f"torch{dot}{rest}" if head == "flambeau" else module
    return module.replace("torch._ops.", "torch.ops.", 1)


def _is_private(module: str) -> bool:
    return module.startswith(("torch._src", "flambeau._src"))


def _find_home(func: Any, name: str) -> str | None:
    """The first public place where `func` is called `name`."""
    for home in _HOMES:
        place: Any = sys.modules.get("flambeau")
        for part in filter(None, home.split(".")):
            # vars, not getattr: looking for a name must not load a lazy module.
            place = vars(place).get(part) if isinstance(place, ModuleType) else None
        if place is not None and getattr(place, "__dict__", {}).get(name) is func:
            return f"torch.{home}" if home else "torch"
    return None


def _short_name(func: Any, name: str) -> str | None:
    """`linalg_solve` as `torch.linalg.solve`: its home below `_C` may not be loaded."""
    for home in ("linalg", "fft", "special"):
        short = name.removeprefix(f"{home}_")
        place = vars(sys.modules["flambeau"]).get(home)
        if short != name and getattr(place, "__dict__", {}).get(short) is func:
            return f"torch.{home}.{short}"
    return None


def _tensor_method(func: Any, name: str) -> bool:
    owner = getattr(func, "__objclass__", None)
    if owner is not None and owner.__name__ in ("TensorBase", "Tensor"):
        return True
    root = sys.modules.get("flambeau")
    tensor = None if root is None else vars(root).get("Tensor")
    return isinstance(tensor, type) and getattr(tensor, name, None) is func


def qualified_name(func: Any) -> str:
    """The dotted name by which printed code and ``print(graph)`` call `func`.

    Raises RuntimeError for an object that has no name.
    """
    name: str | None = getattr(func, "__name__", None)
    if name is None:
        raise RuntimeError(f"cannot find a name for {func!r}")
    if getattr(builtins, name, None) is func:
        return name
    if not isinstance(func, type) and _tensor_method(func, name):
        return f"torch.Tensor.{name}"
    module = getattr(func, "__module__", None)
    if module is None or _is_private(module):
        home = _find_home(func, name)
        if home is not None:
            return f"{home}.{name}"
        if (short := _short_name(func, name)) is not None:
            return short
        if module is None:
            raise RuntimeError(
                f"cannot find module for {func!r}: it has no __module__ and no public name"
            )
    module = canonical_module(module)
    if module == "_operator":
        module = "operator"
    if module == "builtins" and "." in getattr(func, "__qualname__", ""):
        return str(func.__qualname__)
    return f"{module}.{name}"


def is_public(obj: Any) -> bool:
    """Whether printed code can reach `obj` through ``torch``."""
    if isinstance(obj, MethodType):
        return False  # its module has the class, not the method
    if "<locals>" in getattr(obj, "__qualname__", ""):
        home = sys.modules.get(getattr(obj, "__module__", None) or "")
        if not hasattr(home, obj.__name__):  # it would be a stand-in for that one
            return False
    module = getattr(obj, "__module__", None)
    if module is not None and not _is_private(module):
        return canonical_module(module).partition(".")[0] == "torch"
    name = getattr(obj, "__name__", None)
    # A method of Tensor has no module either; torch prints it as a global of its own.
    if name is None or _tensor_method(obj, name):
        return False
    return _find_home(obj, name) is not None


def type_repr(obj: Any) -> str:
    """A type as an annotation prints it: ``int``, ``torch.Tensor``, ``typing.List[int]``."""
    if isinstance(obj, type) and not hasattr(obj, "__origin__"):
        if obj.__module__ == "builtins":
            return obj.__qualname__
        return f"{canonical_module(obj.__module__)}.{obj.__qualname__}"
    if obj is ...:
        return "..."
    if isinstance(obj, str):
        return repr(obj)
    if callable(obj) and hasattr(obj, "__name__") and not hasattr(obj, "__args__"):
        return str(obj.__name__)
    return repr(obj)
