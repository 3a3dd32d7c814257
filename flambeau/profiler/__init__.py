"""Profiling. flambeau records no profile yet: programs that profile run, and
their profiles are empty."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable
from typing import Any

from flambeau.autograd import profiler as _profiler
from flambeau.autograd.profiler import EventList, record_function

__all__ = [
    "ProfilerAction",
    "ProfilerActivity",
    "kineto_available",
    "profile",
    "record_function",
    "schedule",
    "supported_activities",
    "tensorboard_trace_handler",
]


class ProfilerActivity(enum.Enum):
    """What is watched."""

    CPU = 0
    XPU = 1
    MTIA = 2
    CUDA = 3
    HPU = 4
    PrivateUse1 = 5


class ProfilerAction(enum.Enum):
    """What is done at a step."""

    NONE = 0
    WARMUP = 1
    RECORD = 2
    RECORD_AND_SAVE = 3


def kineto_available() -> bool:
    """False: torch's library for device traces is not here."""
    return False


def supported_activities() -> set[ProfilerActivity]:
    """What can be watched: nothing yet."""
    return set()


def schedule(
    *,
    wait: int,
    warmup: int,
    active: int,
    repeat: int = 0,
    skip_first: int = 0,
    skip_first_wait: int = 0,
    acc_events: bool = False,
) -> Callable[[int], ProfilerAction]:
    """What is done at each step: `wait` steps nothing, `warmup`, then `active` recorded; again.

    Args:
        repeat: how many such rounds; 0 for ever.
        skip_first: steps before the first round.
        skip_first_wait: 1 leaves the waiting out of the first round.
    """
    if wait < 0 or warmup < 0 or active <= 0 or repeat < 0 or skip_first < 0:
        raise AssertionError("Invalid profiler schedule arguments")
    length = wait + warmup + active

    def action(step: int) -> ProfilerAction:
        if step < 0:
            raise AssertionError(f"Step must be non-negative. Got {step}.")
        step -= skip_first
        if step < 0:
            return ProfilerAction.NONE
        if skip_first_wait:
            step += wait
        if repeat and step // length >= repeat:
            return ProfilerAction.NONE
        at = step % length
        if at < wait:
            return ProfilerAction.NONE
        if at < wait + warmup:
            return ProfilerAction.WARMUP
        return ProfilerAction.RECORD_AND_SAVE if at == length - 1 else ProfilerAction.RECORD

    return action


def tensorboard_trace_handler(
    dir_name: str, worker_name: str | None = None, use_gzip: bool = False
) -> Callable[[Any], None]:
    """What to do with a profile that is ready: nothing, since it is empty."""
    return lambda profiler: None


class profile(_profiler.profile):
    """`with profile(schedule=…, on_trace_ready=…) as p:` with `p.step()` after each step.

    Steps are counted and on_trace_ready is called when the schedule says so; the profile is empty.
    """

    def __init__(
        self,
        *,
        activities: Iterable[ProfilerActivity] | None = None,
        schedule: Callable[[int], ProfilerAction] | None = None,
        on_trace_ready: Callable[[Any], Any] | None = None,
        **options: Any,
    ) -> None:
        super().__init__()
        self.activities = set(activities or ())
        self.schedule = schedule or (lambda step: ProfilerAction.RECORD)
        self.on_trace_ready = on_trace_ready
        self.step_num = 0
        self.current_action = self.schedule(0)

    def __enter__(self) -> Any:
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()

    def start(self) -> None:
        """Begin."""
        super().__enter__()

    def stop(self) -> None:
        """End; what was being recorded is ready."""
        if self.on_trace_ready and self.current_action.value >= ProfilerAction.RECORD.value:
            self.on_trace_ready(self)

    def step(self) -> None:
        """Say that a step is done."""
        if self.on_trace_ready and self.current_action is ProfilerAction.RECORD_AND_SAVE:
            self.on_trace_ready(self)
        self.step_num += 1
        self.current_action = self.schedule(self.step_num)

    def events(self) -> EventList:
        """The events: none."""
        return EventList()

    def add_metadata(self, key: str, value: str) -> None:
        """Nothing: no profile is written."""

    add_metadata_json = add_metadata

    def export_stacks(self, path: str, metric: str = "self_cpu_time_total") -> None:
        """Write the stacks: an empty file."""
        with open(path, "w"):
            pass
