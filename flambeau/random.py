"""The random numbers of the CPU: seeds and states, and a context that puts them back."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Generator, Iterable

import flambeau as torch
from flambeau._src.core.generator import (
    get_rng_state,
    initial_seed,
    manual_seed,
    seed,
    set_rng_state,
)

__all__ = [
    "fork_rng",
    "get_rng_state",
    "initial_seed",
    "manual_seed",
    "seed",
    "set_rng_state",
    "thread_safe_generator",
]


def thread_safe_generator() -> torch.Generator | None:
    """The generator of a data loader's worker thread; None elsewhere: the default one."""
    return None


@contextlib.contextmanager
def fork_rng(
    devices: Iterable[torch.device | str | int] | None = None,
    enabled: bool = True,
    _caller: str = "fork_rng",
    _devices_kw: str = "devices",
    device_type: str = "cuda",
) -> Generator[None]:
    """Random numbers drawn inside do not change those drawn after.

    Args:
        devices: whose states are kept besides the CPU's (default: all there are).
        enabled: False does nothing.
        device_type: of the devices.
    """
    if device_type == "meta":
        yield
        return
    where = torch.device(device_type).type
    module = getattr(torch, where, None)
    if module is None:
        raise RuntimeError(
            f"torch has no module of `{where}`, you should register a module by "
            "`torch._register_device_module`."
        )
    if not enabled:
        yield
        return
    if devices is None:
        count = module.device_count()
        if count > 1:
            warnings.warn(
                f"{where.upper()} reports that you have {count} available devices, and you have "
                f"used {_caller} without explicitly specifying which devices are being used. All "
                f"of them are remembered; set the {_devices_kw} keyword argument of {_caller} to "
                "avoid it.",
                stacklevel=3,
            )
        kept = list(range(count))
    else:
        kept = list(devices)  # type: ignore[arg-type]
    states = get_rng_state(), [module.get_rng_state(d) for d in kept]
    try:
        yield
    finally:
        set_rng_state(states[0])
        for device, state in zip(kept, states[1], strict=True):
            module.set_rng_state(state, device)
