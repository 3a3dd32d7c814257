"""A batch split over the devices of one process."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any

import flambeau as torch
from flambeau.nn.modules.module import Module

from .parallel_apply import parallel_apply
from .replicate import replicate
from .scatter_gather import gather, scatter_kwargs

__all__ = ["DataParallel", "data_parallel"]


def _all_devices() -> list[int]:
    return list(range(torch.cuda.device_count())) if torch.cuda.is_available() else []


def _index(device: Any) -> int:
    if isinstance(device, int):
        return device
    device = torch.device(device)
    return torch.cuda.current_device() if device.index is None else device.index


class DataParallel(Module):
    """Splits the batch over CUDA devices, runs a replica on each and joins the outputs.

    Without a CUDA device the module is simply called. One process for each device
    (DistributedDataParallel) is faster.

    Args:
        module: its parameters must be on device_ids[0].
        device_ids: CUDA devices; all by default.
        output_device: where the outputs come together; device_ids[0] by default.
        dim: the dimension of the batch.
    """

    def __init__(
        self,
        module: Any,
        device_ids: Sequence[Any] | None = None,
        output_device: Any = None,
        dim: int = 0,
    ) -> None:
        super().__init__()
        if not torch.cuda.is_available():
            self.module = module
            self.device_ids: list[int] = []
            return
        if device_ids is None:
            device_ids = _all_devices()
        if len(device_ids) == 0:
            raise RuntimeError("no available devices were found")
        if output_device is None:
            output_device = device_ids[0]
        self.dim = dim
        self.module = module
        self.device_ids = [_index(device) for device in device_ids]
        self.output_device = _index(output_device)
        self.src_device_obj = torch.device("cuda", self.device_ids[0])
        if len(self.device_ids) == 1:
            self.module.to(self.src_device_obj)

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        if not self.device_ids:
            return self.module(*inputs, **kwargs)
        for t in chain(self.module.parameters(), self.module.buffers()):
            if t.device != self.src_device_obj:
                raise RuntimeError(
                    "module must have its parameters and buffers "
                    f"on device {self.src_device_obj} (device_ids[0]) but found one of "
                    f"them on device: {t.device}"
                )
        args, named = scatter_kwargs(inputs, kwargs, self.device_ids, self.dim)
        if not args and not named:  # called without arguments
            args, named = ((),), ({},)
        if len(self.device_ids) == 1:
            return self.module(*args[0], **named[0])
        devices = self.device_ids[: len(args)]
        replicas = replicate(self.module, devices, not torch.is_grad_enabled())
        outputs = parallel_apply(replicas, args, named, devices)
        return gather(outputs, self.output_device, dim=self.dim)


def data_parallel(
    module: Any,
    inputs: Any,
    device_ids: Sequence[Any] | None = None,
    output_device: Any = None,
    dim: int = 0,
    module_kwargs: Any = None,
) -> Any:
    """The functional form of `DataParallel`."""
    if not isinstance(inputs, tuple):
        inputs = (inputs,) if inputs is not None else ()
    if device_ids is None:
        device_ids = _all_devices()
        if not device_ids:
            return module(*inputs, **(module_kwargs or {}))
    if len(device_ids) == 0:
        raise RuntimeError("no available devices were found")
    parallel = DataParallel(module, device_ids, output_device, dim)
    return parallel(*inputs, **(module_kwargs or {}))
