"""What the inputs and outputs of an exported graph are."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = [
    "ConstantArgument", "ExportGraphSignature", "InputKind", "InputSpec", "ModuleCallEntry",
    "ModuleCallSignature", "OutputKind", "OutputSpec", "SymIntArgument",
    "TensorArgument",
]  # fmt: skip

_HOME = "flambeau.export.graph_signature"


@dataclass
class TensorArgument:
    """A tensor: the node that stands for it."""

    name: str


@dataclass
class SymIntArgument:
    """An int that varies: the node that stands for it."""

    name: str


@dataclass
class ConstantArgument:
    """A value that is fixed in the program."""

    name: str
    value: int | float | bool | str | None


class InputKind(enum.Enum):
    """What an input is."""

    USER_INPUT = 1
    PARAMETER = 2
    BUFFER = 3
    CONSTANT_TENSOR = 4
    CUSTOM_OBJ = 5
    TOKEN = 6


class OutputKind(enum.Enum):
    """What an output is; mutations are new values of inputs."""

    USER_OUTPUT = 1
    LOSS_OUTPUT = 2
    BUFFER_MUTATION = 3
    PARAMETER_MUTATION = 4
    GRADIENT_TO_PARAMETER = 5
    GRADIENT_TO_USER_INPUT = 6
    USER_INPUT_MUTATION = 7
    TOKEN = 8


@dataclass
class InputSpec:
    """One input: `target` is its name in the module (None for the user's)."""

    kind: InputKind
    arg: Any
    target: str | None
    persistent: bool | None = None

    def __str__(self) -> str:
        text = f"{self.arg.name}: {self.kind.name}"
        text += "" if self.target is None else f" target={self.target!r}"
        return text + ("" if self.persistent is None else f" persistent={self.persistent}")


@dataclass
class OutputSpec:
    """One output: `target` is what it is a new value of (None for the user's)."""

    kind: OutputKind
    arg: Any
    target: str | None

    def __str__(self) -> str:
        text = f"{self.arg.name}: {self.kind.name}"
        return text + ("" if self.target is None else f" target={self.target!r}")


@dataclass
class ExportGraphSignature:
    """All inputs and outputs in their order."""

    input_specs: list[InputSpec]
    output_specs: list[OutputSpec]

    def _targets(self, kind: InputKind) -> tuple[str, ...]:
        return tuple(s.target for s in self.input_specs if s.kind is kind and s.target is not None)

    def _by_name(self, kind: InputKind) -> Mapping[str, str]:
        return {s.arg.name: s.target or "" for s in self.input_specs if s.kind is kind}

    def _mutations(self, kind: OutputKind) -> Mapping[str, str]:
        return {s.arg.name: s.target or "" for s in self.output_specs if s.kind is kind}

    @property
    def parameters(self) -> tuple[str, ...]:
        """Names of parameters in the module."""
        return self._targets(InputKind.PARAMETER)

    @property
    def buffers(self) -> tuple[str, ...]:
        """Names of buffers in the module."""
        return self._targets(InputKind.BUFFER)

    @property
    def non_persistent_buffers(self) -> tuple[str, ...]:
        """Buffers that are not in the state dict."""
        chosen = (s for s in self.input_specs if s.kind is InputKind.BUFFER and not s.persistent)
        return tuple(s.target or "" for s in chosen)

    @property
    def lifted_tensor_constants(self) -> tuple[str, ...]:
        """Names of other tensors of the module."""
        return self._targets(InputKind.CONSTANT_TENSOR)

    @property
    def user_inputs(self) -> tuple[Any, ...]:
        """Names of the user's tensors, values of constants."""
        own = (s.arg for s in self.input_specs if s.kind is InputKind.USER_INPUT)
        return tuple(a.value if isinstance(a, ConstantArgument) else a.name for a in own)

    @property
    def user_outputs(self) -> tuple[Any, ...]:
        """Names of tensors, values of constants."""
        own = (s.arg for s in self.output_specs if s.kind is OutputKind.USER_OUTPUT)
        return tuple(a.value if isinstance(a, ConstantArgument) else a.name for a in own)

    @property
    def inputs_to_parameters(self) -> Mapping[str, str]:
        """Placeholder → parameter."""
        return self._by_name(InputKind.PARAMETER)

    @property
    def inputs_to_buffers(self) -> Mapping[str, str]:
        """Placeholder → buffer."""
        return self._by_name(InputKind.BUFFER)

    @property
    def inputs_to_lifted_tensor_constants(self) -> Mapping[str, str]:
        """Placeholder → other tensor of the module."""
        return self._by_name(InputKind.CONSTANT_TENSOR)

    @property
    def buffers_to_mutate(self) -> Mapping[str, str]:
        """Output → buffer that it is the new value of."""
        return self._mutations(OutputKind.BUFFER_MUTATION)

    @property
    def user_inputs_to_mutate(self) -> Mapping[str, str]:
        """Output → user's input that it is the new value of."""
        return self._mutations(OutputKind.USER_INPUT_MUTATION)

    def __str__(self) -> str:
        inputs = "".join(f"{s}\n" for s in self.input_specs)
        outputs = "".join(f"{s}\n" for s in self.output_specs)
        return f"\n# inputs\n{inputs}\n# outputs\n{outputs}"


@dataclass
class ModuleCallSignature:
    """How a module is called: structures of its arguments and result."""

    inputs: list[Any]
    outputs: list[Any]
    in_spec: Any
    out_spec: Any
    forward_arg_names: list[str] | None = None


@dataclass
class ModuleCallEntry:
    """One module of the program."""

    fqn: str
    signature: ModuleCallSignature | None = field(default=None)


# Dataclasses look their module up while they are made; the public one is not there yet.
_type: Any
for _type in (
    TensorArgument, SymIntArgument, ConstantArgument, InputKind, OutputKind, InputSpec, OutputSpec,
    ExportGraphSignature,
):  # fmt: skip
    _type.__module__ = _HOME
for _type in (ModuleCallSignature, ModuleCallEntry):
    _type.__module__ = "flambeau.export.exported_program"
