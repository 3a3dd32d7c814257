"""Imports in functions: of modules that are there already."""

from __future__ import annotations

import importlib.util
import sys
from typing import TYPE_CHECKING

from flambeau._src.capture import attributes
from flambeau._src.capture.bytecode.program import Instruction
from flambeau._src.capture.interpreter import Frame, opcode
from flambeau._src.capture.outcome import Raised, Unsupported

if TYPE_CHECKING:
    from flambeau._src.capture.session import Session


@opcode("IMPORT_NAME")
def import_name(s: Session, f: Frame, i: Instruction) -> None:
    """`import a.b`."""
    fromlist = f.stack.pop()
    level = f.stack.pop()
    name: str = i.argval
    if level:
        package = f.globals.get("__package__") or ""
        name = importlib.util.resolve_name("." * level + name, package)
    module = sys.modules.get(name)
    if module is None:
        raise Unsupported(
            f"The module {name} is imported for the first time.",
            "Import it at the top of the file.",
        )
    if not fromlist and not level:
        module = sys.modules[name.partition(".")[0]]
    for wanted in fromlist or ():
        if hasattr(module, "__path__") and wanted not in module.__dict__:
            raise Unsupported(f"{wanted} of the package {name} may be imported for the first time.")
    f.stack.append(module)


@opcode("IMPORT_FROM")
def import_from(s: Session, f: Frame, i: Instruction) -> None:
    """`from module import name`."""
    module = f.stack[-1]
    try:
        value = attributes.get(s, module, i.argval)
    except Raised as raised:
        if not isinstance(raised.error, AttributeError):
            raise
        found = sys.modules.get(f"{module.__name__}.{i.argval}")
        if found is None:
            text = f"cannot import name {i.argval!r} from {module.__name__!r}"
            s.raise_(ImportError(text))
        value = found
    f.stack.append(value)


@opcode("IMPORT_STAR")
def import_star(s: Session, f: Frame, i: Instruction) -> None:
    """Only at module level."""
    raise Unsupported("`from m import *` is run.")
