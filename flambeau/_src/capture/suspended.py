"""Generators that have begun and leave the graph: made again where they are suspended.

The code is the generator's with another beginning, as of a resume function: it puts the stack and
the variables back and yields once, under the handlers of the `yield` that it stands for; what it is
sent or thrown then goes on behind that one. Whoever makes it takes the first item away.
"""

from __future__ import annotations

import types
from types import CodeType
from typing import Any

from flambeau._src.capture.bytecode import ExceptionEntry, Instruction, assemble, make
from flambeau._src.capture.bytecode.decode import decode
from flambeau._src.capture.interpreter import NULL, Frame, Handling, Pending
from flambeau._src.capture.outcome import Unsupported

__all__ = ["parts"]

_STACK = "___stack_"


def parts(frame: Frame, table: dict[Any, Any]) -> tuple[CodeType, list[Any], list[Any]]:
    """The code, the values that it is called with, and its cells. `table` keeps codes."""
    names = frame.prepared.slots
    plain, cells, values = [], {}, []
    for name, value in zip(names, frame.locals, strict=True):
        if value is NULL:
            continue
        if names.count(name) > 1 or type(value) is Pending:
            raise Unsupported("A generator has two variables of one name.")
        if type(value) is types.CellType:
            cells[name] = value
        else:
            plain.append(name)
            values.append(value)
    kinds = tuple([_kind(v) for v in frame.stack])
    for kind, value in zip(kinds, frame.stack, strict=True):
        if kind != "null":
            values.append(value.error if kind == "handling" else value)
    key = (id(frame.code), "suspended", frame.at, kinds, tuple(plain), frozenset(cells))
    known = table.get(key)
    if known is None:
        made = _code(frame.code, frame.at, kinds, plain, set(cells))
        known = table[key] = made, frame.code  # alive as long as its id is a key
    code = known[0]
    return code, values, [cells[n] for n in code.co_freevars]


def _kind(value: Any) -> str:
    if value is NULL:
        return "null"
    if type(value) is Handling:
        if value.over:
            raise Unsupported("A generator is suspended behind a handler that is over.")
        return "handling"
    return "value"


def _code(
    code: CodeType, at: int, kinds: tuple[str, ...], plain: list[str], cells: set[str]
) -> CodeType:
    program = decode(code)
    listed = program.instructions
    yields, resumes, goal = listed[at - 1 : at + 2]
    if yields.opname != "YIELD_VALUE" or resumes.opname != "RESUME":
        raise Unsupported("A generator is suspended where it does not yield.")
    stack = [f"{_STACK}{i}" for i in range(len(kinds))]
    given = [*plain, *[n for n, kind in zip(stack, kinds, strict=True) if kind != "null"]]
    program.freevars = sorted({*program.freevars, *cells})
    program.cellvars = [n for n in program.cellvars if n not in cells]
    program.varnames = [*given, *[n for n in program.varnames if n not in (*given, *cells)]]
    program.argcount, program.posonlyargcount, program.kwonlyargcount = len(given), 0, 0
    program.flags &= ~(4 | 8)
    begin = next(i for i, x in enumerate(listed) if x.opname == "RETURN_GENERATOR")
    until = next(i for i, x in enumerate(listed) if x.opname == "RESUME") + 1
    head = make.copy_free_vars(len(program.freevars)) if program.freevars else []
    head += [x.copy() for x in listed[begin:until]]
    for name, kind in zip(stack, kinds, strict=True):
        head += make.null() if kind == "null" else make.load_fast(name)
        if kind == "handling":
            head += [Instruction("PUSH_EXC_INFO"), *make.pop_top()]
    for name in given[len(plain) :]:
        head += make.delete_fast(name)
    again = [yields.copy(), resumes.copy()]
    head += make.load_const(None) + again + make.jump(goal)
    for x in listed:
        if x.argval in cells and x.flag == "cell":
            x.flag = "free"
    place = {id(x): i for i, x in enumerate(listed)}
    for e in program.exceptions:
        if place[id(e.start)] <= at - 1 <= place[id(e.end)]:
            entry = ExceptionEntry(again[0], again[1], e.target, e.depth, e.lasti)
            program.exceptions.insert(0, entry)
            break
    body = [x for x in listed if x.opname not in ("COPY_FREE_VARS", "MAKE_CELL")]
    program.instructions = [*make.located(head, yields.where), *body]
    return assemble(program)
