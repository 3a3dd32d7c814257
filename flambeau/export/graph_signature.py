"""What inputs and outputs of an exported graph are."""

from __future__ import annotations

from flambeau._src.export.signature import (
    ConstantArgument,
    ExportGraphSignature,
    InputKind,
    InputSpec,
    OutputKind,
    OutputSpec,
    SymIntArgument,
    TensorArgument,
)

__all__ = [
    "ConstantArgument", "ExportGraphSignature", "InputKind", "InputSpec", "OutputKind",
    "OutputSpec", "SymIntArgument", "TensorArgument",
]  # fmt: skip
