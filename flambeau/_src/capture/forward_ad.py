"""Levels of `torch.autograd.forward_ad` in captured programs: entered and left by nodes.

Between them tensors with tangents are fake tensors like others. The level that a graph enters it
leaves, and no tensor of it leaves the graph: a graph that ends before begins anew at the level.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flambeau._src.autograd import dual_levels
from flambeau._src.capture.guards import Guard, Kind
from flambeau._src.capture.outcome import Unsupported
from flambeau._src.core import state
from flambeau._src.interp.levels import Dual, info

if TYPE_CHECKING:
    from flambeau._src.capture.session import Session

__all__ = ["HANDLERS", "check", "leave"]


def _given(names: tuple[str, ...], args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
    return [*args, *(kwargs[name] for name in names[len(args) :])]


def _open(s: Session) -> bool:
    """Whether the level that is active is one of the program's."""
    return any(level in s.dual_levels for level in state.thread.forward_ad)


def _ask(s: Session) -> int:
    """How many levels are active around the program, which is guarded."""
    outside = 0 if _open(s) else len(state.thread.forward_ad)
    s.guards.add(Guard(Kind.STATE, None, {"dual_levels": outside}, "", s.where()))
    return outside


def _refuse_outside(s: Session) -> None:
    if _ask(s):
        raise Unsupported("A level of forward differentiation is active outside.")


def _enter(s: Session, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    _ask(s)
    number = s.native(dual_levels.enter_dual_level)
    s.dual_levels[state.thread.forward_ad[-1]] = (s.step, s.stack())
    s.recorder.effect(dual_levels.enter_dual_level)
    return number


def _exit(s: Session, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    _refuse_outside(s)
    (level,) = _given(("level",), args, kwargs)
    s.native(dual_levels.exit_dual_level, level)
    s.recorder.effect(dual_levels.exit_dual_level, level)


def _recorded(fn: Any, *names: str) -> Any:
    def call(s: Session, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        _refuse_outside(s)
        return s.recorder.call(fn, fn, tuple(_given(names, args, kwargs)), {})

    return call


#: Functions of the library by name.
HANDLERS = {
    "enter_dual_level": _enter,
    "exit_dual_level": _exit,
    "make_dual": _recorded(dual_levels.make_dual, "tensor", "tangent", "level"),
    "unpack_dual": _recorded(dual_levels.unpack_dual, "tensor", "level"),
}


def leave(s: Session) -> None:
    """The capture ends, and a level that it has not left."""
    if _open(s):
        dual_levels.exit_dual_level(None)


def check(s: Session, outputs: list[Any], limit: Unsupported | None) -> None:
    """Refuse to end the graph inside of a level, or to give out tensors of one; `limit`: why it
    ends."""
    for level, (step, stack) in s.dual_levels.items():
        if level.alive:
            refusal = limit or Unsupported("A level of forward differentiation is left open.")
        elif any(isinstance(i := info(t), Dual) and i.level is level for t in outputs):
            refusal = Unsupported(
                "A tensor that was given a tangent leaves the graph.",
                "Return its primal, which unpack_dual gives.",
            )
        else:
            continue
        again = Unsupported(refusal.reason, refusal.remedy)
        again.step, again.stack, again.where = step, refusal.stack or stack, refusal.where
        again.where = again.where or stack[-1]
        raise again
