"""Loss scaling: gradients are computed of a large multiple of the loss and divided afterwards."""

from __future__ import annotations

import enum
import warnings
from collections.abc import Iterable
from typing import Any

import flambeau as torch

__all__ = ["GradScaler", "OptState"]


class OptState(enum.Enum):
    """Where an optimizer stands since the last update."""

    READY = 0
    UNSCALED = 1
    STEPPED = 2


def _fresh_state() -> dict[str, Any]:
    return {"stage": OptState.READY, "found_inf_per_device": {}}


class GradScaler:
    """Scales losses, unscales gradients, skips steps whose gradients are not finite.

    The scale starts at `init_scale`, grows by `growth_factor` after `growth_interval` steps in a
    row without an infinity or NaN, and shrinks by `backoff_factor` after one.
    """

    def __init__(
        self,
        device: str = "cuda",
        init_scale: float = 2.0**16,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        enabled: bool = True,
    ) -> None:
        self._device = device
        self._enabled = enabled
        if device == "cuda" and enabled and not _cuda_available():
            warnings.warn(
                "torch.cuda.amp.GradScaler is enabled, but CUDA is not available.  Disabling.",
                stacklevel=2,
            )
            self._enabled = False
        if self._enabled:
            if growth_factor <= 1.0:
                raise AssertionError("The growth factor must be > 1.0.")
            if backoff_factor >= 1.0:
                raise AssertionError("The backoff factor must be < 1.0.")
            self._init_scale = init_scale
            self._scale: torch.Tensor | None = None
            self._growth_factor = growth_factor
            self._backoff_factor = backoff_factor
            self._growth_interval = growth_interval
            self._init_growth_tracker = 0
            self._growth_tracker: torch.Tensor | None = None
            self._per_optimizer_states: dict[int, dict[str, Any]] = {}

    def _state(self, optimizer: Any) -> dict[str, Any]:
        return self._per_optimizer_states.setdefault(id(optimizer), _fresh_state())

    def _check_scale_growth_tracker(self, funcname: str) -> tuple[torch.Tensor, torch.Tensor]:
        hint = (
            "This may indicate your script did not use scaler.scale(loss or outputs) earlier in "
            "the iteration."
        )
        if self._scale is None:
            raise AssertionError(f"Attempted {funcname} but _scale is None.  {hint}")
        if self._growth_tracker is None:
            raise AssertionError(f"Attempted {funcname} but _growth_tracker is None.  {hint}")
        return self._scale, self._growth_tracker

    def _lazy_init_scale_growth_tracker(self, dev: Any) -> None:
        self._scale = torch.full((), self._init_scale, dtype=torch.float32, device=dev)
        self._growth_tracker = torch.full(
            (), self._init_growth_tracker, dtype=torch.int32, device=dev
        )

    def scale(self, outputs: Any) -> Any:
        """A tensor, or an iterable of them, times the scale."""
        if not self._enabled:
            return outputs
        if isinstance(outputs, torch.Tensor):
            if self._scale is None:
                self._lazy_init_scale_growth_tracker(outputs.device)
            return outputs * self._scale.to(device=outputs.device)  # type: ignore[union-attr]
        if isinstance(outputs, Iterable):
            items = [self.scale(v) for v in outputs]
            return type(outputs)(items) if isinstance(outputs, (list, tuple)) else items
        raise ValueError("outputs must be a Tensor or an iterable of Tensors")

    def _unscale_grads_(
        self, optimizer: Any, inv_scale: torch.Tensor, found_inf: torch.Tensor, allow_fp16: bool
    ) -> dict[Any, torch.Tensor]:
        """Divides the gradients; says by device whether any was not finite (1.0) or not (0.0)."""
        found: dict[Any, torch.Tensor] = {}
        with torch.no_grad():
            for group in optimizer.param_groups:
                for param in group["params"]:
                    if param.grad is None:
                        continue
                    if not allow_fp16 and param.grad.dtype is torch.float16:
                        raise ValueError("Attempting to unscale FP16 gradients.")
                    grad = param.grad
                    seen = found.setdefault(grad.device, found_inf.to(grad.device).clone())
                    bad = (~torch.isfinite(grad)).any().to(torch.float32)
                    seen.copy_(torch.maximum(seen, bad))
                    grad.mul_(inv_scale.to(grad.device))
        return found

    def unscale_(self, optimizer: Any) -> None:
        """Divide the optimizer's gradients by the scale now, to clip them for instance.

        RuntimeError when it was done already since the last update, or after the step.
        """
        if not self._enabled:
            return
        self._check_scale_growth_tracker("unscale_")
        state = self._state(optimizer)
        if state["stage"] is OptState.UNSCALED:
            raise RuntimeError(
                "unscale_() has already been called on this optimizer since the last update()."
            )
        if state["stage"] is OptState.STEPPED:
            raise RuntimeError("unscale_() is being called after step().")
        # In float64: the reciprocal of a float32 scale need not be one.
        inv_scale = self._scale.double().reciprocal().float()  # type: ignore[union-attr]
        found_inf = torch.full((), 0.0, dtype=torch.float32, device=self._scale.device)  # type: ignore[union-attr]
        state["found_inf_per_device"] = self._unscale_grads_(optimizer, inv_scale, found_inf, False)
        state["stage"] = OptState.UNSCALED

    def step(self, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        """Unscale if that was not done, and step unless a gradient is not finite."""
        if not self._enabled:
            return optimizer.step(*args, **kwargs)
        if "closure" in kwargs:
            raise RuntimeError("Closure use is not currently supported if GradScaler is enabled.")
        self._check_scale_growth_tracker("step")
        state = self._state(optimizer)
        if state["stage"] is OptState.STEPPED:
            raise RuntimeError("step() has already been called since the last update().")
        if state["stage"] is OptState.READY:
            self.unscale_(optimizer)
        if not state["found_inf_per_device"]:
            raise AssertionError("No inf checks were recorded for this optimizer.")
        result = None
        if not sum(v.item() for v in state["found_inf_per_device"].values()):
            result = optimizer.step(*args, **kwargs)
        state["stage"] = OptState.STEPPED
        return result

    def update(self, new_scale: Any = None) -> None:
        """Grow or shrink the scale (or set it), and begin the next iteration."""
        if not self._enabled:
            return
        scale, tracker = self._check_scale_growth_tracker("update")
        if new_scale is not None:
            with torch.no_grad():
                if isinstance(new_scale, float):
                    scale.fill_(new_scale)
                else:
                    if new_scale.numel() != 1 or new_scale.requires_grad:
                        raise AssertionError(
                            "new_scale should be a float or a 1-element torch.cuda.FloatTensor or "
                            "torch.FloatTensor with requires_grad=False."
                        )
                    scale.copy_(new_scale)
        else:
            found = [
                v
                for state in self._per_optimizer_states.values()
                for v in state["found_inf_per_device"].values()
            ]
            if not found:
                raise AssertionError("No inf checks were recorded prior to update.")
            self._move(scale, tracker, any(v.item() for v in found))
        self._per_optimizer_states = {}

    def _move(self, scale: torch.Tensor, tracker: torch.Tensor, overflow: bool) -> None:
        with torch.no_grad():
            if overflow:
                scale.mul_(self._backoff_factor)
                tracker.fill_(0)
                return
            run = int(tracker.item()) + 1
            if run == self._growth_interval:
                grown = scale * self._growth_factor
                if bool(torch.isfinite(grown)):
                    scale.copy_(grown)
                run = 0
            tracker.fill_(run)

    def _get_scale_async(self) -> torch.Tensor | None:
        return self._scale

    def get_scale(self) -> float:
        """The scale as a number (1.0 when disabled)."""
        if not self._enabled:
            return 1.0
        return self._init_scale if self._scale is None else float(self._scale.item())

    def get_growth_factor(self) -> float:
        """By what the scale grows."""
        return self._growth_factor

    def set_growth_factor(self, new_factor: float) -> None:
        """Choose by what the scale grows."""
        self._growth_factor = new_factor

    def get_backoff_factor(self) -> float:
        """By what the scale shrinks."""
        return self._backoff_factor

    def set_backoff_factor(self, new_factor: float) -> None:
        """Choose by what the scale shrinks."""
        self._backoff_factor = new_factor

    def get_growth_interval(self) -> int:
        """After how many good steps in a row the scale grows."""
        return self._growth_interval

    def set_growth_interval(self, new_interval: int) -> None:
        """Choose after how many good steps in a row the scale grows."""
        self._growth_interval = new_interval

    def _get_growth_tracker(self) -> int:
        if not self._enabled:
            return 0
        if self._growth_tracker is None:
            return self._init_growth_tracker
        return int(self._growth_tracker.item())

    def is_enabled(self) -> bool:
        """Whether the scaler does anything."""
        return self._enabled

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint keeps; empty when disabled."""
        if not self._enabled:
            return {}
        return {
            "scale": self.get_scale(),
            "growth_factor": self._growth_factor,
            "backoff_factor": self._backoff_factor,
            "growth_interval": self._growth_interval,
            "_growth_tracker": self._get_growth_tracker(),
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over a state. RuntimeError for that of a disabled scaler."""
        if not self._enabled:
            return
        if not state_dict:
            raise RuntimeError(
                "The source state dict is empty, possibly because it was saved from a disabled "
                "instance of GradScaler."
            )
        self._init_scale = state_dict["scale"]
        if self._scale is not None:
            self._scale.fill_(state_dict["scale"])
        self._growth_factor = state_dict["growth_factor"]
        self._backoff_factor = state_dict["backoff_factor"]
        self._growth_interval = state_dict["growth_interval"]
        self._init_growth_tracker = state_dict["_growth_tracker"]
        if self._growth_tracker is not None:
            self._growth_tracker.fill_(state_dict["_growth_tracker"])

    def __getstate__(self) -> dict[str, Any]:
        state = self.__dict__.copy()
        if self._enabled:
            if self._per_optimizer_states:
                raise AssertionError(
                    "A GradScaler instance may only be pickled at the beginning of an iteration, "
                    "or at the end after scaler.update()."
                )
            state["_init_scale"] = self.get_scale()
            state["_init_growth_tracker"] = self._get_growth_tracker()
            state["_scale"] = state["_growth_tracker"] = None
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)


def _cuda_available() -> bool:
    cuda = getattr(torch, "cuda", None)
    return cuda is not None and cuda.is_available()
