"""Programs taken out of Python, to be saved and run elsewhere."""

from __future__ import annotations

from flambeau._src.export.dims import Dim, dims
from flambeau._src.export.program import ExportedProgram, default_decompositions, export
from flambeau._src.export.serialise import load, save
from flambeau._src.export.shapes import AdditionalInputs, ShapesCollection
from flambeau._src.export.signature import (
    ExportGraphSignature,
    ModuleCallEntry,
    ModuleCallSignature,
)
from flambeau.export import dynamic_shapes, exported_program, graph_signature

__all__ = [
    "AdditionalInputs", "Dim", "ExportGraphSignature", "ExportedProgram", "ModuleCallEntry",
    "ModuleCallSignature", "ShapesCollection", "default_decompositions", "dims", "dynamic_shapes",
    "export", "exported_program", "graph_signature", "load", "save",
]  # fmt: skip
