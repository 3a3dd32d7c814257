"""Mixed precision under its older name: `flambeau.amp` with the device given."""

from __future__ import annotations

from typing import Any

import flambeau as torch

__all__ = ["GradScaler", "autocast", "custom_bwd", "custom_fwd"]


class autocast(torch.amp.autocast):
    """`torch.amp.autocast("cuda", …)`."""

    def __init__(
        self, enabled: bool = True, dtype: Any = torch.float16, cache_enabled: bool = True
    ) -> None:
        super().__init__("cuda", enabled=enabled, dtype=dtype, cache_enabled=cache_enabled)


class GradScaler(torch.amp.GradScaler):
    """`torch.amp.GradScaler("cuda", …)`."""

    def __init__(self, init_scale: float = 65536.0, *args: Any, **kwargs: Any) -> None:
        super().__init__("cuda", init_scale, *args, **kwargs)


def custom_fwd(fwd: Any = None, *, cast_inputs: Any = None) -> Any:
    """`torch.amp.custom_fwd` for CUDA."""
    return torch.amp.custom_fwd(fwd, cast_inputs=cast_inputs, device_type="cuda")


def custom_bwd(bwd: Any) -> Any:
    """`torch.amp.custom_bwd` for CUDA."""
    return torch.amp.custom_bwd(bwd, device_type="cuda")
