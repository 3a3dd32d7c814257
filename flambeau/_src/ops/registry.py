"""What the families declare, known before they are imported.

A family is a module of this folder. Importing one enters its operators into `PACKETS`; that all are
known by name without it is the work of the *index*, a file beside this one that is derived from the
declarations: nobody writes it by hand. It is read when flambeau is imported. Where it is missing,
or a file of this folder has changed since, all families are imported instead, and the index is
written anew where Python may keep bytecode (the build writes it always: `keep`).

What the index says:
    sources     size and hash of each file of this folder
    packets     the arguments of each `Packet`: name, kind, public places, families
    functions   top-level functions that are Python on every path (`FUNCTIONS` of a family, or its
                `functions()`), each with its family
    methods     families with methods of that sort (`METHODS`, `OPERATORS`)
"""

from __future__ import annotations

import marshal
import os
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from importlib import import_module
from types import ModuleType
from typing import Any

from flambeau._src.ops.op import PACKETS, Op, Packet, resolve_lazy
from flambeau._src.util.sources import are_current, set_time, stamps

_FOLDER = os.path.dirname(os.path.abspath(__file__))
INDEX = os.path.join(_FOLDER, "declared.index")
_VERSION = 4  # of marshal's format: the newest that every Python from 3.11 on reads


def _sources() -> list[str]:
    return sorted(e.name for e in os.scandir(_FOLDER) if e.name.endswith(".py"))


def family(name: str) -> ModuleType:
    """The module of a family, imported when it is not."""
    return import_module(f"{__package__}.{name}")


def read() -> dict[str, Any] | None:
    """What the index says; None where there is none for the files as they are."""
    try:
        with open(INDEX, "rb") as file:
            found: dict[str, Any] = marshal.loads(file.read())
        current = are_current(INDEX, _FOLDER, _sources(), found["sources"])
    except (OSError, EOFError, ValueError, TypeError, KeyError):
        return None
    return found if current else None


def derive() -> dict[str, Any]:
    """What the index has to say: all families are imported."""
    sources = stamps(_FOLDER, _sources())
    names = [s.removesuffix(".py") for s in sources if s not in ("__init__.py", "registry.py")]
    families = {name: family(name) for name in names}
    functions: dict[str, str] = {}
    for name, module in families.items():
        make = getattr(module, "functions", None)
        functions.update(
            dict.fromkeys(make() if make is not None else getattr(module, "FUNCTIONS", ()), name)
        )
    return {
        "sources": sources,
        "packets": [
            (p.namespace, p.name, p.kind, p.public, p.aliases, _homes(p))
            for p in PACKETS.values()
            if all(op.decl.__module__.startswith(f"{__package__}.") for op in p.ops)
        ],
        "functions": functions,
        "methods": [
            name
            for name, module in families.items()
            if getattr(module, "METHODS", ()) or getattr(module, "OPERATORS", ())
        ],
    }


def _homes(p: Packet) -> tuple[str, ...]:
    modules = dict.fromkeys(op.decl.__module__ for op in p.ops)
    return tuple(m.rpartition(".")[2] for m in modules)


def write(index: dict[str, Any], since: int) -> None:
    """Keep the index, derived from the files as they were at `since` (nanoseconds)."""
    beside = f"{INDEX}.{os.getpid()}.tmp"
    with open(beside, "wb") as file:
        file.write(marshal.dumps(index, _VERSION))
    set_time(beside, since)
    os.replace(beside, INDEX)


def keep() -> None:
    """Write the index where it is not current (the build's part)."""
    if read() is None:
        since = time.time_ns()
        write(derive(), since)


def _known() -> dict[str, Any]:
    """The index, kept for next time where Python may keep bytecode too."""
    found = read()
    if found is not None:
        for row in found["packets"]:
            PACKETS[row[:2]] = Packet(*row)
        return found
    since = time.time_ns()
    made = derive()
    if not sys.dont_write_bytecode:
        with suppress(OSError):  # the package lies where this user may not write
            write(made, since)
    return made


_INDEX = _known()
#: Top-level functions that are Python on every path, each with its family.
FUNCTIONS: dict[str, str] = _INDEX["functions"]


def function(name: str) -> Any:
    """One of `FUNCTIONS`: the thing itself."""
    home = family(FUNCTIONS[name])
    make = getattr(home, "functions", None)
    return (make() if make is not None else home.FUNCTIONS)[name]


def _merged(attribute: str) -> dict[str, Any]:
    return {
        name: value
        for home in _INDEX["methods"]
        for name, value in getattr(family(home), attribute, {}).items()
    }


def tensor_methods() -> dict[str, Any]:
    """Methods and properties of Tensor that are Python on every path, from all families."""
    return _merged("METHODS")


def operator_methods() -> dict[str, Any]:
    """Methods that serve Python's operators but are not operators of the table."""
    return _merged("OPERATORS")


def all_ops() -> Iterator[Op]:
    """Every functional overload that is declared."""
    for p in PACKETS.values():
        yield from resolve_lazy(p)
