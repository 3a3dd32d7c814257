"""The exceptions of `compile`, public as ``torch._dynamo.exc``: names, bases and texts as there."""

from __future__ import annotations

import enum
from typing import Any

__all__ = [
    "BackendCompilerFailed",
    "FailOnRecompileLimitHit",
    "InternalTorchDynamoError",
    "InvalidBackend",
    "RecompileError",
    "ResetRequired",
    "ShortenTraceback",
    "SkipFrame",
    "TorchDynamoException",
    "TorchRuntimeError",
    "UncapturedHigherOrderOpError",
    "Unsupported",
    "UserError",
    "UserErrorType",
]

_HOME = "flambeau._dynamo.exc"


class TorchDynamoException(RuntimeError):
    """Root of what `compile` raises."""

    __module__ = _HOME


class InternalTorchDynamoError(TorchDynamoException):
    """A stage of our own failed: a fault of this library, not of the program."""

    __module__ = _HOME


class SkipFrame(TorchDynamoException):
    """The function is to be run as it is."""

    __module__ = _HOME


class ShortenTraceback(TorchDynamoException):
    """An error whose traceback is shown from the first frame that says something."""

    __module__ = _HOME

    def __init__(self, *args: Any, first_useful_frame: Any = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.first_useful_frame = first_useful_frame


class BackendCompilerFailed(ShortenTraceback):
    """A back end raised while it compiled a graph; `inner_exception` is what it raised."""

    __module__ = _HOME

    def __init__(
        self, backend_fn: Any, inner_exception: Exception, first_useful_frame: Any = None
    ) -> None:
        self.backend_name = getattr(backend_fn, "__name__", "?")
        self.inner_exception = inner_exception
        kind = type(inner_exception).__name__
        super().__init__(
            f"backend={self.backend_name!r} raised:\n{kind}: {inner_exception}",
            first_useful_frame=first_useful_frame,
        )


class InvalidBackend(TorchDynamoException):
    """No back end of that name is known."""

    __module__ = _HOME

    def __init__(self, name: str) -> None:
        super().__init__(
            f"Invalid backend: {name!r}, see `torch._dynamo.list_backends()` "
            "for available backends."
        )


class ResetRequired(TorchDynamoException):
    """What was compiled must be forgotten first."""

    __module__ = _HOME

    def __init__(self) -> None:
        super().__init__(
            "\nMust call `torch._dynamo.reset()` before changing backends.  Detected two calls to\n"
            "`torch.compile()` with a different backend compiler arguments.\n"
        )


class RecompileError(TorchDynamoException):
    """A guard failed where `config.error_on_recompile` forbids to compile again."""

    __module__ = _HOME


class FailOnRecompileLimitHit(Exception):
    """The recompile limit was hit where eager is no way out."""

    __module__ = _HOME


class TorchRuntimeError(TorchDynamoException):
    """An operator of the program failed when it was run on fake tensors."""

    __module__ = _HOME

    def __init__(self, msg: str, real_stack: Any = None) -> None:
        super().__init__(msg)
        self.msg = msg
        self.real_stack = [] if real_stack is None else real_stack


class UncapturedHigherOrderOpError(TorchRuntimeError):
    """The body of a higher-order operator could not be captured whole."""

    __module__ = _HOME


class Unsupported(TorchDynamoException):
    """A graph break where none is allowed: reason, remedy and the user's line."""

    __module__ = _HOME

    def __init__(
        self, msg: str, gb_type: str = "", skip_frame: bool = False, *,
        case_name: str | None = None, real_stack: Any = None,
    ) -> None:  # fmt: skip
        super().__init__(msg)
        self.msg, self.gb_type, self.skip_frame = msg, gb_type, skip_frame
        self.case_name = case_name
        self.real_stack = [] if real_stack is None else real_stack
        self.category = "unimplemented"
        self.logged = False


class UserErrorType(enum.Enum):
    """What kind of mistake a `UserError` reports."""

    DYNAMIC_CONTROL_FLOW = 1
    ANTI_PATTERN = 2
    STANDARD_LIBRARY = 3
    CONSTRAINT_VIOLATION = 4
    DYNAMIC_DIM = 5
    INVALID_INPUT = 6
    INVALID_OUTPUT = 7
    UNSUPPORTED_ALIASED_MUTATED_DYNAMIC_INPUTS = 8


class UserError(TorchDynamoException):
    """The program asked for something that cannot be meant."""

    __module__ = _HOME

    def __init__(self, error_type: UserErrorType, msg: str, case_name: str | None = None) -> None:
        super().__init__(msg)
        self.error_type, self.msg, self.message = error_type, msg, msg
        self.case_name = case_name


for _type in (UserErrorType,):
    _type.__module__ = _HOME
