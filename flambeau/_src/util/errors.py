"""PyTorch's exception types, with the base classes and public homes that user code relies on.

``except torch.OutOfMemoryError`` must catch what ``except RuntimeError`` catches, and a traceback
must show the public name; so each class says its public module itself.
"""

__all__ = [
    "AcceleratorError",
    "CudaError",
    "DeferredCudaCallError",
    "DistBackendError",
    "DistError",
    "DistNetworkError",
    "DistStoreError",
    "FatalError",
    "JITException",
    "LinAlgError",
    "OutOfMemoryError",
    "QueueEmptyError",
]


class AcceleratorError(RuntimeError):
    """A device reported a failure of its own (a launch, a copy, a synchronisation)."""

    __module__ = "flambeau"
    #: The device library's error number, 0 where it gave none.
    error_code: int = 0


class OutOfMemoryError(RuntimeError):
    """An allocator could not provide the bytes that an operator asked for."""

    __module__ = "flambeau"


class FatalError(Exception):
    """A failure after which the process's state can no longer be trusted."""

    __module__ = "flambeau"


class JITException(Exception):
    """Raised by a scripted function (public name: ``flambeau.jit.Error``)."""

    __module__ = "flambeau.jit"
    __qualname__ = "Error"


class LinAlgError(RuntimeError):
    """A factorisation did not exist or did not converge (``flambeau.linalg.LinAlgError``)."""

    __module__ = "flambeau._C"
    __qualname__ = "_LinAlgError"


LinAlgError.__name__ = "_LinAlgError"  # as torch's says of itself


class CudaError(RuntimeError):
    """The CUDA runtime returned a non-zero code. Argument: that code, or a message."""

    __module__ = "flambeau.cuda"


class DeferredCudaCallError(Exception):
    """A call queued before CUDA was initialised failed when it was finally made."""

    __module__ = "flambeau.cuda"


class DistError(RuntimeError):
    """Root of the errors of ``flambeau.distributed``."""

    __module__ = "flambeau.distributed"


class DistBackendError(DistError):
    """A collective failed in its backend."""

    __module__ = "flambeau.distributed"


class DistNetworkError(DistError):
    """A connection between ranks failed."""

    __module__ = "flambeau.distributed"


class DistStoreError(DistError):
    """The rendezvous store failed or timed out."""

    __module__ = "flambeau.distributed"


class QueueEmptyError(DistStoreError):
    """A non-blocking pop found its store queue empty."""

    __module__ = "flambeau.distributed"
