"""Modes and defaults of the thread and the process, as STATE guards compare them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from flambeau._src import _native
from flambeau._src.core import state
from flambeau._src.interp import autocast

__all__ = ["Settings", "differing", "frozen", "in_c", "settings", "snapshot"]


def _autocast_settings(kept: Mapping[str, Any] | None = None) -> tuple[Any, ...]:
    """What differs from the initial settings; `kept`: what a thread keeps of autocast."""
    region = (state.thread.autocast if kept is None else kept).get("region")
    if region is None or not (region.enabled or region.dtypes or not region.cache_enabled):
        return ()  # at every call of compiled code
    out: list[Any] = []
    for device in sorted({*region.enabled, *region.dtypes}):
        on, to = bool(region.enabled.get(device)), region.dtype_of(device)
        if on or to is not autocast.initial_dtype(device):
            out.append((device, on, to))
    return tuple(out) if region.cache_enabled else (*out, "no cache")


_READ: dict[str, Callable[[], Any]] = {
    "grad": _native.get_grad,
    "inference": _native.get_inference,
    "active": _native.get_active,
    "suspended": _native.get_suspended,
    "autocast": _autocast_settings,
    "default_dtype": lambda: state.process.default_dtype,
    "default_device": lambda: state.process.default_device,
    "devices": lambda: tuple(state.thread.devices),  # `with torch.device(...)`
    "deterministic": lambda: state.process.deterministic,
    "handled": sys.exception,  # asked for only where a program would see it
    "dual_levels": lambda: len(state.thread.forward_ad),  # the same
}
_ASKED = ("handled", "dual_levels")
_ALWAYS = tuple(name for name in _READ if name not in _ASKED)
_IN_STATE = ("grad", "inference", "active", "suspended")  # of the thread's record in C


def snapshot() -> dict[str, Any]:
    """What is now, for a STATE guard."""
    return {name: _READ[name]() for name in _ALWAYS}


def frozen(want: Mapping[str, Any]) -> dict[str, Any]:
    """A copy that later changes of the thread's settings do not reach; what it lacks, as it is now.

    Raises ValueError for a name that nothing is known of.
    """
    for name in want:
        if name not in _READ:
            raise ValueError(f"no guard on the state {name!r}")
    out = snapshot() | dict(want)
    if isinstance(out.get("autocast"), Mapping):
        out["autocast"] = _autocast_settings(out["autocast"])
    return out


def in_c(want: Mapping[str, Any]) -> tuple[Any, ...]:
    """What the checker in C compares: numbers of its own, and (owner, name, value) of others."""
    settings: list[tuple[Any, Any, Any]] = []
    for name, value in want.items():
        if name in ("autocast", "devices", *_ASKED):
            settings.append((_READ[name], None, value))  # called
        elif name not in _IN_STATE:
            settings.append((state.process, name, value))
    return (*(int(want[name]) for name in _IN_STATE), tuple(settings))


def differing(want: Mapping[str, Any]) -> list[str]:
    """What is not as `want` says, in words."""
    out = []
    for name, was in want.items():
        now = _READ[name]()
        if type(was) is not type(now) or was != now:
            out.append(f"{name} was {was!r}, now {now!r}")
    return out


# ---- what a program sets and leaves --------------------------------------------------------------


@dataclass(frozen=True)
class Settings:
    """The modes of a thread that captured programs may change; `casts` are kept by autocast, and
    None where they stay as they are."""

    grad: bool
    active: int
    autocast: tuple[Any, ...]
    casts: dict[Any, Any] | None = field(default=None, compare=False)
    unasked: int = 0  # the bit of `__torch_function__` where classes of tensors are not asked

    def put(self) -> None:
        """Make them the thread's."""
        _native.set_grad(self.grad)
        if self.casts is not None or self.autocast != _autocast():
            r = autocast.region()
            enabled, dtypes, r.cache_enabled, r.nesting = self.autocast
            r.enabled, r.dtypes = dict(enabled), dict(dtypes)
            if self.casts is not None:
                r.cache = dict(self.casts)
        _native.set_active(self.active)
        _native.set_suspended(_native.get_suspended() & ~state.FUNCTION | self.unasked)


def _autocast() -> tuple[Any, ...]:
    r = autocast.region()
    return (tuple(r.enabled.items()), tuple(r.dtypes.items()), r.cache_enabled, r.nesting)


def settings(casts: bool = True) -> Settings:
    """The thread's modes as they are now, with what autocast keeps or without."""
    kept = dict(autocast.region().cache) if casts else None
    unasked = _native.get_suspended() & state.FUNCTION
    return Settings(bool(_native.get_grad()), _native.get_active(), _autocast(), kept, unasked)
