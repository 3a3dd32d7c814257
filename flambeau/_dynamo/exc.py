"""The exceptions of `compile`."""

from flambeau._src.compiler.errors import (  # noqa: F401
    BackendCompilerFailed,
    FailOnRecompileLimitHit,
    InternalTorchDynamoError,
    InvalidBackend,
    RecompileError,
    ResetRequired,
    ShortenTraceback,
    SkipFrame,
    TorchDynamoException,
    TorchRuntimeError,
    UncapturedHigherOrderOpError,
    Unsupported,
    UserError,
    UserErrorType,
)
