"""DLPack: tensors to and from other libraries, without copies (https://dmlc.github.io/dlpack)."""

from __future__ import annotations

import enum
from typing import Any

from flambeau._src import _native
from flambeau._src.core import dtype as dt
from flambeau._src.core.tensor import Tensor


class DLDeviceType(enum.IntEnum):
    """The kinds of devices, by the numbers of the specification."""

    kDLCPU = (1,)
    kDLCUDA = (2,)
    kDLCUDAHost = (3,)
    kDLOpenCL = (4,)
    kDLVulkan = (7,)
    kDLMetal = (8,)
    kDLVPI = (9,)
    kDLROCM = (10,)
    kDLROCMHost = (11,)
    kDLExtDev = (12,)
    kDLCUDAManaged = (13,)
    kDLOneAPI = (14,)
    kDLWebGPU = (15,)
    kDLHexagon = (16,)
    kDLMAIA = (17,)


_KINDS = {
    "cpu": DLDeviceType.kDLCPU, "cuda": DLDeviceType.kDLCUDA, "xpu": DLDeviceType.kDLOneAPI,
    "maia": DLDeviceType.kDLMAIA, "privateuse1": DLDeviceType.kDLExtDev,
}  # fmt: skip
_DEVICES = {int(kind): name for name, kind in _KINDS.items()}


def to_dlpack(tensor: Tensor, /) -> Any:
    """A capsule that shares tensor's bytes, to be taken once by another library's from_dlpack."""
    return _capsule(tensor, versioned=False, copied=False)


def _capsule(t: Tensor, *, versioned: bool, copied: bool) -> Any:
    kind = _KINDS.get(t.device.type)
    if kind is None:
        raise BufferError(f"Cannot pack tensors on {t.device}")
    return _native.to_dlpack(t, int(kind), t.device.index or 0, versioned, copied)


def __dlpack__(
    self: Tensor, *, stream: Any = -1, max_version: tuple[int, int] | None = None,
    dl_device: tuple[Any, int] | None = None, copy: bool | None = None,
) -> Any:  # fmt: skip
    """A capsule over this tensor's bytes.

    Args:
        stream: of the consumer, on a device that has streams.
        max_version: the highest protocol that the consumer reads; from (1, 0) on a versioned
            capsule.
        dl_device: where the consumer wants the bytes.
        copy: True always copies, False never.

    Raises:
        BufferError: it requires gradients, is a lazy conjugate, or is not strided.
    """
    if self.requires_grad:
        raise BufferError("Can't export tensors that require gradient, use tensor.detach()")
    if self._conj_flag:
        raise BufferError("Can't export tensors with the conjugate bit set")
    if stream is not None and type(stream) is not int:
        raise TypeError("stream must be ``int`` or ``none``")
    if self.device.type == "cpu":
        assert stream is None or stream == -1, "stream should be None on cpu."
    t = self.resolve_neg()
    copied = False
    if dl_device is not None:
        where = _device(int(dl_device[0]), dl_device[1])
        if where.type != t.device.type:
            if copy is False:
                raise BufferError(f"cannot move {t.device} tensor to {where} without copying")
            t, copied = t.to(where), True
    if copy and not copied:
        t, copied = t.clone(), True
    return _capsule(t, versioned=max_version is not None and max_version[0] >= 1, copied=copied)


def _device(kind: int, index: int) -> Any:
    name = _DEVICES.get(kind)
    if name is None:
        raise ValueError(f"Unknown DLPack device type {kind}")
    return _native.device(name) if name == "cpu" else _native.device(name, index)


def __dlpack_device__(self: Tensor) -> tuple[DLDeviceType, int]:
    """(kind, index) of the device, in the numbers of the specification."""
    kind = _KINDS.get(self.device.type)
    if kind is None:
        raise ValueError(f"Unknown device type {self.device.type} for Dlpack")
    return kind, self.device.index or 0


def from_dlpack(ext_tensor: Any, *, device: Any = None, copy: bool | None = None) -> Tensor:
    """A tensor over the bytes of another library's array (or of a DLPack capsule).

    Args:
        ext_tensor: what has `__dlpack__`, or a capsule, which is used up.
        device: where the tensor is to be; None: where the array is.
        copy: True always copies, False never.
    """
    copied = None
    if hasattr(ext_tensor, "__dlpack__"):
        wants: dict[str, Any] = {"max_version": (1, 0)}
        if copy is not None:
            wants["copy"] = copy
        kind = ext_tensor.__dlpack_device__()
        if device is not None:
            where = _native.device(device) if isinstance(device, str) else device
            if where.type not in _KINDS:
                raise ValueError(f"Unknown device type {where.type} for Dlpack")
            wants["dl_device"] = _KINDS[where.type], where.index or 0
        if kind[0] in (DLDeviceType.kDLCUDA, DLDeviceType.kDLROCM):
            wants["stream"] = 1
        try:
            capsule = ext_tensor.__dlpack__(**wants)
        except TypeError:
            # A library from before version 1 of the protocol.
            for name in ("max_version", "copy", "dl_device"):
                wants.pop(name, None)
            copied = copy
            capsule = ext_tensor.__dlpack__(**wants)
    else:
        capsule = ext_tensor
    t = _of_capsule(capsule)
    return t.clone() if copied else t


def _of_capsule(capsule: Any) -> Tensor:
    if type(capsule).__name__ != "PyCapsule":
        capsule = None
    address, code, shape, strides, kind, index, _readonly, owner = _native.from_dlpack(capsule)
    if code < 0:
        raise RuntimeError("from_dlpack: the array's dtype is not one of torch's")
    found = dt.BY_CODE[code]
    if strides is None:
        made, step = [], 1
        for n in reversed(shape):
            made.append(step)
            step *= max(n, 1)
        strides = tuple(reversed(made))
    if any(s < 0 for n, s in zip(shape, strides, strict=True) if n > 1):
        raise ValueError("from_dlpack: negative strides are not supported, copy the array first")
    strides = tuple(max(s, 0) for s in strides)
    last = 0 if 0 in shape else 1 + sum((n - 1) * s for n, s in zip(shape, strides, strict=True))
    where = _device(kind, index)
    if where.type != "cpu":
        raise RuntimeError(f"from_dlpack: there is no {where.type} device in this build")
    storage = _native.UntypedStorage.from_pointer(address, last * found.itemsize, owner, False)
    return _native.wrap(Tensor, storage, found, shape, strides, 0)


METHODS: dict[str, Any] = {"__dlpack__": __dlpack__, "__dlpack_device__": __dlpack_device__}
FUNCTIONS: dict[str, Any] = {"to_dlpack": to_dlpack, "from_dlpack": from_dlpack}
