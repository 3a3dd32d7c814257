"""Exported programs."""

from __future__ import annotations

from flambeau._src.export.program import ExportedProgram, default_decompositions
from flambeau._src.export.signature import ModuleCallEntry, ModuleCallSignature

__all__ = ["ExportedProgram", "ModuleCallEntry", "ModuleCallSignature", "default_decompositions"]
