"""Copies of a module on other devices, whose gradients flow back to it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import flambeau as torch
from flambeau.nn.modules.module import Module

__all__ = ["replicate"]


def replicate(network: Module, devices: Sequence[Any], detach: bool = False) -> list[Any]:
    """A replica of the network for each device.

    Args:
        detach: gradients do not flow back (as for evaluation).
    """
    devices = [torch.device("cuda", d) if isinstance(d, int) else torch.device(d) for d in devices]
    modules = list(network.modules())
    replicas = []
    for device in devices:
        copies = {module: module._replicate_for_data_parallel() for module in modules}
        moved = {}
        for param in network.parameters():
            moved[param] = (param.detach() if detach else param).to(device)
        for buffer in network.buffers():
            moved[buffer] = buffer.detach().to(device)
        for module, copy in copies.items():
            copy._former_parameters = {}
            for key, child in module._modules.items():
                copy._modules[key] = None if child is None else copies[child]
            for key, param in module._parameters.items():
                # A plain attribute: a replica's tensors are no leaves.
                copy.__dict__[key] = None if param is None else moved[param]
                if param is not None:
                    copy._former_parameters[key] = moved[param]
            for key, buffer in module._buffers.items():
                copy._buffers[key] = None if buffer is None else moved[buffer]
        replicas.append(copies[network])
    return replicas
