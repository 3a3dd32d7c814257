"""Programs taken out of Python, to be saved and run elsewhere."""

from __future__ import annotations

from flambeau._src.export.dims import Dim
from flambeau._src.export.program import ExportedProgram, default_decompositions, export
from flambeau._src.export.serialise import load, save
from flambeau._src.export.signature import (
    ExportGraphSignature,
    ModuleCallEntry,
    ModuleCallSignature,
)

__all__ = [
    "Dim", "ExportGraphSignature", "ExportedProgram", "ModuleCallEntry", "ModuleCallSignature",
    "default_decompositions", "export", "load", "save",
]  # fmt: skip
