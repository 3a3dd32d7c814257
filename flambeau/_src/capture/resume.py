"""Breaks: the replacement runs the instruction itself, and the rest as a function of its own.

A resume function is the code of the function with another beginning: it puts the stack and the
variables back and jumps to where the program goes on. Its exception table is the original's, so
`try`, `with` and `for` around the break go on as if nothing had been. It is captured when it runs.

The call of it stands before the replacement's `RESUME`: a frame that is there has not begun for
CPython, so tracebacks, `sys._getframe` and `stacklevel` see one frame, with the function's name.
"""

from __future__ import annotations

import dis
import types
from types import CodeType
from typing import TYPE_CHECKING, Any

from flambeau._src.capture.bytecode import (
    ExceptionEntry,
    Instruction,
    Positions,
    Program,
    assemble,
    make,
)
from flambeau._src.capture.bytecode.decode import decode
from flambeau._src.capture.emit import Emission, begin, finish
from flambeau._src.capture.interpreter import NULL, Frame
from flambeau._src.capture.outcome import Unsupported
from flambeau._src.capture.scopes import NULL_FIRST
from flambeau._src.capture.source import LocalSource

if TYPE_CHECKING:
    from flambeau._src.capture.session import Session

__all__ = ["broken", "in_loop"]

Code = list[Instruction]
_STACK = "___stack_"
_FIRST = "___first"
_FIXED = ("PUSH_EXC_INFO", "POP_EXCEPT", "RERAISE", "WITH_EXCEPT_START", "CHECK_EXC_MATCH")
_ENDS = ("RETURN_VALUE", "RETURN_CONST", "RAISE_VARARGS", "RERAISE")
_JUMPS = ("POP_JUMP", "JUMP_IF")


def in_loop(frame: Frame) -> bool:
    """Whether the instruction at the break may be reached again in this frame."""
    steps = frame.prepared.steps
    index = frame.prepared.index
    at = frame.at
    for i in range(at, len(steps)):
        ins = steps[i][1]
        if ins.target is not None and index[id(ins.target)] <= at:
            return True
    return False


def broken(session: Session, frame: Frame, emission: Emission) -> tuple[CodeType, list[CodeType]]:
    """The replacement, with the instruction at the break, and the codes of what follows."""
    return _Break(session, frame, emission).code()


class _Break:
    """The parts of one break."""

    def __init__(self, session: Session, frame: Frame, emission: Emission) -> None:
        self.session = session
        self.frame = frame
        self.emission = emission
        steps = frame.prepared.steps
        at = frame.at
        self.prefix: Code = []
        self.ins = steps[at][1]
        if at and steps[at - 1][1].opname == "KW_NAMES":
            self.prefix = [steps[at - 1][1]]
        elif self.ins.opname == "KW_NAMES":
            self.prefix = [self.ins]
            at += 1
            self.ins = steps[at][1]
        self.at = at
        if self.ins.opname in _FIXED or session.handled is not None:
            raise Unsupported(
                "The break is inside the handling of an exception, which cannot be taken up again."
            )
        flag = self.ins.flag
        #: the instruction pushes a callable with NULL or self: it is run as the plain load
        self.callable = self.ins.opname == "LOAD_METHOD" or (
            self.ins.opname in ("LOAD_GLOBAL", "LOAD_ATTR", "LOAD_SUPER_ATTR")
            and bool(flag[0] if isinstance(flag, tuple) else flag)
        )
        self.live = self._live_locals()
        self.bound = {n for n, _ in self.live}
        self.cells = frozenset(n for n, v in self.live if type(v) is types.CellType)
        self.arguments: list[str] = []
        self.resumes: list[CodeType] = []
        self.unseen: Code = []  # goes before `RESUME`

    def _live_locals(self) -> list[tuple[str, Any]]:
        """The variables that are bound, without free ones."""
        frame = self.frame
        names = frame.prepared.slots
        first = len(names) - len(frame.code.co_freevars)
        found = []
        for slot in range(first):
            value = frame.locals[slot]
            if value is not NULL:
                if names.count(names[slot]) > 1:
                    raise Unsupported("Two variables of one name are alive at the break.")
                found.append((names[slot], value))
        return found

    def code(self) -> tuple[CodeType, list[CodeType]]:
        """The replacement, and the resume codes."""
        frame, emission = self.frame, self.emission
        stack = list(frame.stack)
        moved = [(n, v) for n, v in self.live if not self._in_place(n, v)]
        values = [v for v in stack if v is not NULL] + [v for _, v in moved]
        emission.need(values)
        emission.rebuild.counter += 1  # names of this break differ from those of plain code
        body, names = emission.body(values)
        program = begin(frame)
        self.arguments = list(program.varnames)
        out = program.instructions
        out += body
        if len(values) == 1 and not names:  # the one value was left on the stack
            names = [emission.rebuild.temporary()]
            out += make.store_fast(names[0])
        where = iter(names)
        places: list[str | None] = [None if v is NULL else next(where) for v in stack]
        self._as_it_was(program, places, dict(zip([n for n, _ in moved], where, strict=True)))
        depth = self._depth()
        if self.ins.opname in _ENDS:
            if depth is not None:
                raise Unsupported("A raise inside a handler's range ends the graph.")
            out.append(self.ins.copy())
            return finish(program), []
        native = [*(x.copy() for x in self.prefix), self._native()]
        out += native
        used = self._operands(len(stack))
        below = [p is None for p in places[: len(stack) - used]]
        if self.ins.target is None:
            made = 1 if self.callable else self._results(used)
            out += self._tail(self.at + 1, below, made)
        else:
            taken = make.label()
            native[-1].target = taken[0]
            made, jumped = self._jump_results(used)
            out += self._tail(self.at + 1, below, made)
            goal = frame.prepared.index[id(self.ins.target)]
            out += taken + self._tail(goal, below, jumped)
        begins = next(i for i, x in enumerate(out) if x.opname == "RESUME")
        out[begins:begins] = make.jump(out[begins]) + self.unseen
        if depth is not None:
            self._protect(program, native[0], native[-1])
        return finish(program), self.resumes

    def _in_place(self, name: str, value: Any) -> bool:
        """Whether the variable is an argument that still is what it was."""
        plan = self.emission.rebuild.plan_of(value)
        return plan.kind == "source" and plan.extra == LocalSource(name)

    def _as_it_was(
        self, program: Program, places: list[str | None], locals_: dict[str, str]
    ) -> None:
        """Stack and variables as the instruction finds them in the function's own code, so that
        whoever looks at the frame, or waits for the end of an object, sees no difference."""
        out = program.instructions
        used = list(dict.fromkeys(x.argval for x in out if x.opname == "STORE_FAST"))
        for place in places:
            out += make.null() if place is None else make.load_fast(place)
        program.cellvars = sorted(self.cells)
        for name in self.arguments:
            if name not in self.bound:
                out += make.delete_fast(name)
        for name, place in locals_.items():
            if name in self.cells:
                out += make.make_cell(name)  # CPython asks whether that has been run
            out += make.load_fast(place) + make.store_fast(name)
        for name in used:
            out += make.delete_fast(name)

    def _native(self) -> Instruction:
        """The instruction at the break, as the replacement runs it."""
        native = self.ins.copy()
        if self.callable:
            native.arg = None
            if native.opname == "LOAD_METHOD":
                native.opname, native.flag = "LOAD_ATTR", None
            else:
                flag = native.flag
                native.flag = (False, *flag[1:]) if isinstance(flag, tuple) else False
        return native

    # ---- the stack around the instruction ----

    def _operands(self, size: int) -> int:
        """How many values of the stack the instruction looks at."""
        op, arg = self.ins.opname, self.ins.arg or 0
        fixed = _OPERANDS.get(op)
        if fixed is not None:
            return fixed
        if op == "CALL":
            return arg + 2
        if op == "CALL_KW":
            return arg + 3
        if op == "CALL_FUNCTION_EX":
            return 3 + (arg & 1)
        if op in ("BUILD_MAP",):
            return 2 * arg
        if op in ("BUILD_TUPLE", "BUILD_LIST", "BUILD_SET", "BUILD_STRING", "BUILD_SLICE"):
            return arg
        if op in ("LIST_EXTEND", "SET_UPDATE", "DICT_UPDATE", "LIST_APPEND", "SET_ADD"):
            return arg + 1
        if op in ("DICT_MERGE",):
            return arg + 1
        if op == "MAP_ADD":
            return arg + 2
        if op == "FORMAT_VALUE":
            return 2 if arg & 4 else 1
        raise Unsupported(f"No break is possible at {op}.")

    def _results(self, used: int) -> int:
        """How many values the instruction leaves in place of its operands."""
        effect = dis.stack_effect(dis.opmap[self.ins.opname], self._plain_argument())
        if self.ins.opname in ("CALL",):
            return 1
        return used + effect

    def _jump_results(self, used: int) -> tuple[int, int]:
        op = self.ins.opname
        if op.startswith("POP_JUMP"):
            return 0, 0
        if op.startswith("JUMP_IF"):
            return 0, 1
        raise Unsupported(f"No break is possible at {op}.")

    def _plain_argument(self) -> int | None:
        ins = self.ins
        if ins.arg is None:
            return None
        return ins.arg

    def _depth(self) -> int | None:
        """The stack depth of the handler around the instruction, None where there is none."""
        entry = self.frame.prepared.protected.get(self.at)
        return None if entry is None else entry[1]

    # ---- what follows ----

    def _tail(self, goal: int, below: list[bool], made: int) -> Code:
        """Call the function that goes on at `goal` with the stack and the variables. `below` says
        of what lies under the results whether it is NULL. Nothing is left in this frame."""
        frame = self.frame
        rebuild = self.emission.rebuild
        places = [rebuild.temporary() for _ in range(len(below) + made)]
        out: Code = []
        for name in reversed(places):
            out += make.store_fast(name)
        nulls = (*below, *[False] * made)
        values = [p for p, null in zip(places, nulls, strict=True) if not null]
        if self.callable:  # the value, and the NULL that was left out
            nulls = (*nulls[:-1], *((True, False) if NULL_FIRST else (False, True)))
        if self.ins.opname in ("STORE_FAST", "DELETE_FAST"):
            raise Unsupported(f"No break is possible at {self.ins.opname}.")
        plain = [n for n, _ in self.live if n not in self.cells]
        code, first = resume_code(self.session, frame, goal, nulls, tuple(plain), self.cells)
        self.resumes.append(code)
        rest = make.label()
        begin = rest[0]
        for name in code.co_freevars:
            rest += make.load_closure(name)
        if code.co_freevars:
            rest += make.build_tuple(len(code.co_freevars))
        rest += make.load_const(code)
        rest += make.make_function(make.CLOSURE if code.co_freevars else 0)
        rest += make.callable_on_top()
        if first is not None:
            empty = dict(self.live)[first] == types.CellType()
            rest += make.load_const(None) if empty else make.load_deref(first)
        for name in (*plain, *values):
            rest += make.load_fast(name)
        for name in (*self.bound, *values):
            rest += make.delete_fast(name)
        rest += make.call(code.co_argcount) + make.return_value()
        where = self.ins.where or Positions(frame.code.co_firstlineno)
        self.unseen += make.located(rest, where)
        return out + make.jump(begin)

    # ---- handlers around the break ----

    def _protect(self, program: Program, first: Instruction, last: Instruction) -> None:
        """Handlers around the break: the original code follows, entered through them alone."""
        frame = self.frame
        original = decode(frame.code)
        index = {id(x): i for i, x in enumerate(original.instructions)}
        entry = next(
            e for e in original.exceptions if index[id(e.start)] <= self.at <= index[id(e.end)]
        )
        program.varnames += [n for n in original.varnames if n not in program.varnames]
        program.cellvars += [n for n in original.cellvars if n not in program.cellvars]
        skip = {"COPY_FREE_VARS", "MAKE_CELL", "RETURN_GENERATOR"}
        start = next(i for i, x in enumerate(original.instructions) if x.opname not in skip)
        program.instructions += original.instructions[start:]
        program.exceptions = [
            ExceptionEntry(first, last, entry.target, entry.depth, entry.lasti),
            *original.exceptions,
        ]


#: Operands of instructions by name; those that depend on the argument stand in `_operands`.
_OPERANDS = {
    "POP_TOP": 1,
    "UNARY_NOT": 1,
    "UNARY_NEGATIVE": 1,
    "UNARY_INVERT": 1,
    "UNARY_POSITIVE": 1,
    "TO_BOOL": 1,
    "GET_ITER": 1,
    "GET_LEN": 1,
    "BINARY_OP": 2,
    "BINARY_SUBSCR": 2,
    "BINARY_SLICE": 3,
    "STORE_SUBSCR": 3,
    "STORE_SLICE": 4,
    "DELETE_SUBSCR": 2,
    "COMPARE_OP": 2,
    "IS_OP": 2,
    "CONTAINS_OP": 2,
    "LOAD_ATTR": 1,
    "LOAD_METHOD": 1,
    "LOAD_SUPER_ATTR": 3,
    "STORE_ATTR": 2,
    "DELETE_ATTR": 1,
    "LOAD_GLOBAL": 0,
    "LOAD_NAME": 0,
    "LOAD_CONST": 0,
    "STORE_GLOBAL": 1,
    "DELETE_GLOBAL": 0,
    "IMPORT_NAME": 2,
    "IMPORT_FROM": 1,
    "UNPACK_SEQUENCE": 1,
    "UNPACK_EX": 1,
    "BEFORE_WITH": 1,
    "LOAD_BUILD_CLASS": 0,
    "CONVERT_VALUE": 1,
    "FORMAT_SIMPLE": 1,
    "FORMAT_WITH_SPEC": 2,
    "POP_JUMP_IF_TRUE": 1,
    "POP_JUMP_IF_FALSE": 1,
    "POP_JUMP_IF_NONE": 1,
    "POP_JUMP_IF_NOT_NONE": 1,
    "JUMP_IF_TRUE_OR_POP": 1,
    "JUMP_IF_FALSE_OR_POP": 1,
    "MATCH_CLASS": 3,
    "MATCH_KEYS": 2,
    "MATCH_MAPPING": 1,
    "MATCH_SEQUENCE": 1,
    "CALL_INTRINSIC_1": 1,
}


def resume_code(
    session: Session,
    frame: Frame,
    goal: int,
    nulls: tuple[bool, ...],
    plain: tuple[str, ...],
    cells: frozenset[str],
) -> tuple[CodeType, str | None]:
    """The code that goes on at an instruction, with this stack and these variables; made once.

    `super()` looks at the first argument of its frame: if that is in a cell, its name comes too,
    and what it holds is the first argument.
    """
    table = session.options.resumes
    origin, shift = table.get(frame.code, (frame.code, 0))
    first = goal - shift
    key = (origin, first, nulls, plain, cells)
    made = table.get(key)
    if made is not None:
        return made  # type: ignore[no-any-return]
    program = decode(origin)
    goal_ins = program.instructions[first]
    values = [f"{_STACK}{i}" for i, null in enumerate(nulls) if not null]
    body = list(program.instructions)
    while body[0].opname in ("COPY_FREE_VARS", "MAKE_CELL"):
        del body[0]
    # Cells that exist come as free variables; those of comprehensions are still to be made.
    own = [n for n in program.cellvars if n in cells or n in frame.code.co_freevars]
    program.freevars = sorted({*program.freevars, *own})
    program.cellvars = [n for n in program.cellvars if n not in own]
    names = [n for n in program.varnames if n not in plain and n not in own]
    first_name = program.varnames[0] if program.argcount else None
    if first_name not in cells or "__class__" not in program.freevars:
        first_name = None
    given = [*([] if first_name is None else [_FIRST]), *plain, *values]
    program.varnames = [*given, *names]
    program.argcount, program.posonlyargcount = len(given), 0
    program.kwonlyargcount = 0
    program.flags &= ~(4 | 8)
    line = goal_ins.where.line if goal_ins.where is not None else program.firstlineno
    program.qualname = f"{program.qualname}.<resume at {line}, {session.options.next_name()}>"
    head = make.begin([], program.freevars)
    for i, null in enumerate(nulls):
        head += make.null() if null else make.load_fast(f"{_STACK}{i}")
    for name in values:
        head += make.delete_fast(name)
    head += make.jump(goal_ins)
    for x in body:
        if x.argval in own and x.flag == "cell":
            x.flag = "free"
    place = goal_ins.where or Positions(program.firstlineno)
    program.instructions = [*make.located(head, place), *body]
    code = assemble(program)
    table[key] = made = code, first_name
    table[code] = (origin, _shift(code, origin))
    return made


def _shift(code: CodeType, origin: CodeType) -> int:
    """How many instructions further an instruction of the original stands in the resume code."""
    mine, theirs = decode(code).instructions, decode(origin).instructions
    return len(mine) - len(theirs)
