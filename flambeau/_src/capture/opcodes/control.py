"""Jumps, loops, returns."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flambeau._src.capture import arithmetic, iteration
from flambeau._src.capture.bytecode.program import Instruction
from flambeau._src.capture.generators import Generator
from flambeau._src.capture.interpreter import RETURNED, YIELDED, Frame, Pending, opcode
from flambeau._src.capture.outcome import Raised, Round, Unsupported

if TYPE_CHECKING:
    from flambeau._src.capture.session import Session


@opcode("RETURN_VALUE")
def return_value(s: Session, f: Frame, i: Instruction) -> int:
    """Leave the frame with the top."""
    f.result = f.stack.pop()
    return RETURNED


@opcode("RETURN_CONST")
def return_const(s: Session, f: Frame, i: Instruction) -> int:
    """Leave the frame with a constant."""
    f.result = i.argval
    return RETURNED


@opcode("JUMP_FORWARD", "JUMP_BACKWARD", "JUMP_BACKWARD_NO_INTERRUPT")
def jump(s: Session, f: Frame, i: Instruction) -> int:
    """Go there."""
    s.went_on()
    return f.goto(i)


@opcode("POP_JUMP_IF_TRUE")
def pop_jump_if_true(s: Session, f: Frame, i: Instruction) -> int | None:
    """Go there if the top is true."""
    s.went_on()
    return f.goto(i) if arithmetic.truth(s, f.stack.pop()) else None


@opcode("POP_JUMP_IF_FALSE")
def pop_jump_if_false(s: Session, f: Frame, i: Instruction) -> int | None:
    """Go there if the top is false."""
    s.went_on()
    return None if arithmetic.truth(s, f.stack.pop()) else f.goto(i)


@opcode("POP_JUMP_IF_NONE")
def pop_jump_if_none(s: Session, f: Frame, i: Instruction) -> int | None:
    """Go there if the top is None."""
    return f.goto(i) if f.stack.pop() is None else None


@opcode("POP_JUMP_IF_NOT_NONE")
def pop_jump_if_not_none(s: Session, f: Frame, i: Instruction) -> int | None:
    """Go there if the top is not None."""
    return None if f.stack.pop() is None else f.goto(i)


@opcode("JUMP_IF_TRUE_OR_POP", "JUMP_IF_FALSE_OR_POP")
def jump_or_pop(s: Session, f: Frame, i: Instruction) -> int | None:
    """Keep the top and go there, or drop it (3.11)."""
    if arithmetic.truth(s, f.stack[-1]) is (i.opname == "JUMP_IF_TRUE_OR_POP"):
        return f.goto(i)
    f.stack.pop()
    return None


@opcode("GET_ITER")
def get_iter(s: Session, f: Frame, i: Instruction) -> None:
    """`iter(top)`."""
    f.stack[-1] = iteration.iterator(s, f.stack[-1])


@opcode("FOR_ITER")
def for_iter(s: Session, f: Frame, i: Instruction) -> int | None:
    """The next item, or out of the loop."""
    s.went_on()
    it = f.stack[-1]
    if type(it) is Pending:
        raise Round
    if f.parent is None:
        s.loops[id(it)] = it
    try:
        f.stack.append(iteration.next_(s, it))
    except Raised as raised:
        if not isinstance(raised.error, StopIteration):
            raise
        f.stack.pop()
        goal = f.goto(i)
        steps = f.prepared.steps
        if steps[goal][1].opname == "END_FOR":  # for other ways out
            goal += 1
            if steps[goal][1].opname == "POP_TOP" and _two_step_end():
                goal += 1
        return goal
    return None


def _two_step_end() -> bool:
    return iteration.END_FOR_KEEPS_ITERATOR


@opcode("RETURN_GENERATOR")
def return_generator(s: Session, f: Frame, i: Instruction) -> int:
    """Leave the frame with a generator that goes on after this instruction."""
    f.result = Generator(s, f)
    return RETURNED


@opcode("YIELD_VALUE")
def yield_value(s: Session, f: Frame, i: Instruction) -> int:
    """Suspend the frame with the top."""
    f.result = f.stack.pop()
    return YIELDED


@opcode("GET_YIELD_FROM_ITER")
def get_yield_from_iter(s: Session, f: Frame, i: Instruction) -> None:
    """The iterator of `yield from`."""
    if type(f.stack[-1]) is not Generator:
        f.stack[-1] = iteration.iterator(s, f.stack[-1])


@opcode("SEND")
def send(s: Session, f: Frame, i: Instruction) -> int | None:
    """Give the top to the iterator below: its item replaces the top, or its result at the end."""
    value = f.stack.pop()
    receiver = f.stack[-1]
    try:
        if type(receiver) is Generator:
            item = receiver.resume(value)
        elif value is None:
            item = iteration.next_(s, receiver)
        else:
            raise Unsupported("A value is sent to an iterator that is no generator.")
    except Raised as raised:
        if not isinstance(raised.error, StopIteration):
            raise
        if i.target is None or f.prepared.steps[f.goto(i)][1].opname != "END_SEND":
            f.stack.pop()  # 3.11: the iterator goes with it
        f.stack.append(raised.error.value)
        return f.goto(i)
    f.stack.append(item)
    return None


@opcode("GET_AWAITABLE", "GET_AITER", "GET_ANEXT", "BEFORE_ASYNC_WITH", "END_ASYNC_FOR")
def asynchronous(s: Session, f: Frame, i: Instruction) -> None:
    """Coroutines are not captured."""
    raise Unsupported("The function is asynchronous.", "Compile what it awaits.")
