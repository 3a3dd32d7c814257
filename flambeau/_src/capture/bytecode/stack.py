"""How deep the stack is: a walk over all paths, the handlers of exceptions included."""

from __future__ import annotations

import dis
from functools import cache

from flambeau._src.capture.bytecode.opcodes import (
    ENDS,
    INVERTED,
    JUMPS,
    VERSION,
    has_argument,
    number_of,
)
from flambeau._src.capture.bytecode.program import Instruction, Program

__all__ = ["depths", "effect", "stack_size"]

# The names of conditional jumps of 3.11 have a direction; both change the stack alike.
_SPELLED = {name: name.replace("_IF", "_FORWARD_IF") for name in INVERTED if VERSION < (3, 12)}


@cache
def _effect(name: str, arg: int | None, jump: bool) -> int:
    if name == "LOAD_CLOSURE":
        return 1
    number = number_of(_SPELLED.get(name, name))
    if name == "RETURN_GENERATOR":  # what the first send gives it
        return 1
    if name == "CALL" and VERSION < (3, 12):  # with its PRECALL
        return -1 - (arg or 0)
    if not has_argument(number):
        arg = None
    elif arg is None:
        arg = 0  # a name or a constant: any has the same effect
    return dis.stack_effect(number, arg, jump=jump)


def effect(x: Instruction, jump: bool = False) -> int:
    """By how much the instruction changes the stack's depth (if it jumps, with `jump`)."""
    name = x.opname
    if name in JUMPS:
        return _effect(name, 0, jump)
    if name == "LOAD_GLOBAL":
        return 1 + bool(x.flag)
    if name == "LOAD_ATTR":
        return int(bool(x.flag))
    if name == "LOAD_SUPER_ATTR":
        return -2 + bool(x.flag[0])
    return _effect(name, x.arg, False)


def depths(program: Program) -> dict[Instruction, int]:
    """The depth before each instruction that can be reached.

    Raises ValueError where two paths disagree or pop what is not there.
    """
    listed = program.instructions
    place = {x: i for i, x in enumerate(listed)}
    found: dict[Instruction, int] = {}
    handlers = sorted(
        (
            (place[e.start], place[e.end], e.target, e.depth + e.lasti + 1)
            for e in program.exceptions
        ),
        key=lambda h: h[0],
    )
    waiting: list[tuple[int, int]] = [(0, 0)] if listed else []
    waiting += [(place[target], depth) for _, _, target, depth in handlers]
    while waiting:
        at, depth = waiting.pop()
        while True:
            if at >= len(listed):
                raise ValueError("the last instruction runs into nothing")
            x = listed[at]
            known = found.get(x)
            if known is not None:
                if known != depth:
                    raise ValueError(f"{x!r} at {at} is reached with depths {known} and {depth}")
                break
            found[x] = depth
            if x.target is not None:
                goal = place.get(x.target)
                if goal is None:
                    raise ValueError(f"{x!r} at {at} jumps out of the program")
                waiting.append((goal, _checked(depth + effect(x, True), x, at)))
            if x.opname in ENDS:
                break
            depth = _checked(depth + effect(x), x, at)
            at += 1
    return found


def _checked(depth: int, x: Instruction, at: int) -> int:
    if depth < 0:
        raise ValueError(f"{x!r} at {at} pops from an empty stack")
    return depth


def stack_size(program: Program, before: dict[Instruction, int] | None = None) -> int:
    """The room that the program's stack needs."""
    size = 1
    for x, depth in (depths(program) if before is None else before).items():
        after = depth + effect(x)
        if x.target is not None:
            after = max(after, depth + effect(x, True))
        size = max(size, depth, after)
    return size
