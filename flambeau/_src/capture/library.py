"""What is the library's own, and how its functions are treated: by the file that holds them."""

from __future__ import annotations

import os
import sys
from types import CodeType
from typing import Any

from flambeau._src.core.slots import SLOTS

__all__ = ["FACT", "LEAF", "PLAIN", "is_library", "is_library_file", "is_module"]
__all__ += ["is_module_table", "kind_of_code"]

_ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))) + os.sep

LEAF = "leaf"  # a call is one node of the graph
FACT = "fact"  # answered as it is called, on constants
PLAIN = "plain"  # interpreted, as the user's functions are

#: Files and folders whose functions are nodes; everything else of the library is interpreted.
_LEAVES = (
    "nn/functional.py",
    "nn/_functional/",
    "nn/_reduction.py",
    "functional.py",
    "_tensor.py",
    "_nn.py",
    "_src/",
    "linalg/",
    "fft/",
    "special/",
    "sparse/",
    "nested/",
    "overrides.py",
)
#: Files in folders of leaves that are programs: what the capture has programs run in place of
#: others, and what works on containers of any values.
_PROGRAMS = ("_src/capture/", "_src/core/size.py", "_src/util/pytree", "_src/compiler/told.py")
_MODULE_FILE = os.path.join(_ROOT, "nn", "modules", "module.py")
_known: dict[str, str | None] = {}


def kind_of_code(code: CodeType) -> str | None:
    """LEAF or PLAIN for the library's code, None for others'."""
    file = code.co_filename
    if file in _known:
        return _known[file]
    kind = None
    if file.startswith(_ROOT):
        rest = file[len(_ROOT) :].replace(os.sep, "/")
        leaf = rest.startswith(_LEAVES) and not rest.startswith(_PROGRAMS)
        kind = FACT if rest == "_numpy/facts.py" else LEAF if leaf else PLAIN
    _known[file] = kind
    return kind


def is_library_file(file: str) -> bool:
    """Whether the file of a code object is the library's."""
    return file.startswith(_ROOT)


def is_library(module_name: str | None) -> bool:
    """Whether a module of this name is the library's (under its own name or as torch)."""
    if not module_name:
        return False
    module = sys.modules.get(module_name)
    return (getattr(module, "__file__", None) or "").startswith(_ROOT)


def is_library_globals(globals_: dict[str, Any]) -> bool:
    """Whether a function with these globals is the library's."""
    return str(globals_.get("__file__") or "").startswith(_ROOT)


def is_module_code(code: CodeType) -> bool:
    """Whether the code is a method of the class of all modules."""
    return code.co_filename == _MODULE_FILE and code.co_qualname.startswith("Module.")


def is_module(value: Any) -> bool:
    """Whether the object is an nn.Module that counts its mutations."""
    if not any("_call_impl" in base.__dict__ for base in type(value).__mro__):
        return False  # asking any object for `__dict__` may make it one
    d = getattr(value, "__dict__", None)
    return isinstance(d, dict) and "_stamp" in d and "_parameters" in d and "_modules" in d


def is_module_table(kind: type) -> bool:
    """Whether it is the class of modules' tables, which count their changes (no module: none)."""
    filled = SLOTS.get("module_clock")
    return filled is not None and kind is filled()[1]
