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

if TYPE_CHECKING:
    from flambeau._src.capture.session import Session

__all__ = ["broken", "in_loop"]

Code = list[Instruction]
_STACK = "___stack_"
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
        values = [v for v in stack if v is not NULL] + [v for _, v in self.live]
        emission.need(values)
        emission.rebuild.counter += 1  # names of this break differ from those of plain code
        body, names = emission.body(values)
        program = begin(frame)
        out = program.instructions
        out += body
        if len(values) == 1 and not names:  # the one value was left on the stack
            names = [emission.rebuild.temporary()]
            out += make.store_fast(names[0])
        where = iter(names)
        places: list[str | None] = [None if v is NULL else next(where) for v in stack]
        locals_ = dict(zip([n for n, _ in self.live], where, strict=True))
        if self.ins.opname in _ENDS:
            self._native_end(out, places)
            self._guarded(program, out, places, locals_, frozenset())
            return finish(program), []
        depth = self._depth()
        used = self._operands(len(stack))
        below = places[: len(stack) - used]
        kept = self._kept(below, depth)
        start = len(out)
        for place in kept:
            assert place is not None
            out += make.load_fast(place)
        out += self._push(places[len(stack) - used :])
        native = [*(x.copy() for x in self.prefix), self._native()]
        out += native
        if self.ins.target is None:
            made = 1 if self.callable else self._results(used)
            out += self._tail(self.at + 1, below, kept, made, locals_)
        else:
            taken = make.label()
            native[-1].target = taken[0]
            made, jumped = self._jump_results(used)
            out += self._tail(self.at + 1, below, kept, made, locals_)
            goal = frame.prepared.index[id(self.ins.target)]
            out += taken + self._tail(goal, below, kept, jumped, locals_)
        if depth is not None:
            self._protect(program, native[0], native[-1], locals_, start)
        out = program.instructions
        begins = next(i for i, x in enumerate(out) if x.opname == "RESUME")
        out[begins:begins] = make.jump(out[begins]) + self.unseen
        return finish(program), self.resumes

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

    def _push(self, places: list[str | None]) -> Code:
        out: Code = []
        for place in places:
            out += make.null() if place is None else make.load_fast(place)
        return out

    def _depth(self) -> int | None:
        """The stack depth of the handler around the instruction, None where there is none."""
        entry = self.frame.prepared.protected.get(self.at)
        return None if entry is None else entry[1]

    def _kept(self, below: list[str | None], depth: int | None) -> list[str | None]:
        if depth is None:
            return []
        kept = below[:depth]
        if None in kept or len(kept) < depth:
            raise Unsupported("The break is in an expression with a handler of its own.")
        return kept

    # ---- what follows ----

    def _tail(
        self,
        goal: int,
        below: list[str | None],
        kept: list[str | None],
        made: int,
        locals_: dict[str, str],
    ) -> Code:
        """Call the function that goes on at `goal` with the stack and the variables."""
        frame = self.frame
        rebuild = self.emission.rebuild
        results = [rebuild.temporary() for _ in range(made)]
        out: Code = []
        for name in reversed(results):
            out += make.store_fast(name)
        for _ in kept:
            out += make.pop_top()
        cells = self._cells()
        plain = [n for n in locals_ if n not in cells]
        nulls = tuple(p is None for p in (*below, *results))
        if self.callable:  # the value, and the NULL that was left out
            nulls = (*nulls[:-1], *((True, False) if NULL_FIRST else (False, True)))
        if self.ins.opname in ("STORE_FAST", "DELETE_FAST"):
            raise Unsupported(f"No break is possible at {self.ins.opname}.")
        code = resume_code(self.session, frame, goal, nulls, tuple(plain), cells)
        self.resumes.append(code)
        load = make.load_const(code)
        if code.co_freevars:
            closure: Code = []
            for name in code.co_freevars:
                if name in locals_:
                    closure += make.load_fast(locals_[name])
                else:
                    closure += make.load_closure(name)
            closure += make.build_tuple(len(code.co_freevars))
            function = closure + load + make.make_function(make.CLOSURE)
        else:
            function = load + make.make_function()
        rest = function + make.callable_on_top()
        arguments = [
            *[p for p in (*below, *results) if p is not None],
            *[locals_[n] for n in plain],
        ]
        for name in arguments:
            rest += make.load_fast(name)
        begin = make.label()
        rest += make.call(len(arguments)) + make.return_value()
        self.unseen += make.located(
            begin + rest, self.ins.where or Positions(frame.code.co_firstlineno)
        )
        return out + make.jump(begin[0])

    def _cells(self) -> frozenset[str]:
        return frozenset(n for n, v in self.live if type(v) is types.CellType)

    # ---- instructions that end the function, and handlers around the break ----

    def _native_end(self, out: Code, places: list[str | None]) -> None:
        op = self.ins.opname
        used = {"RETURN_VALUE": 1, "RETURN_CONST": 0, "RERAISE": 1}.get(op, self.ins.arg or 0)
        out += self._push(places[len(places) - used :])
        self.end_start = self.ins.copy()
        out.append(self.end_start)

    def _guarded(
        self,
        program: Program,
        out: Code,
        places: list[str | None],
        locals_: dict[str, str],
        cells: frozenset[str],
    ) -> None:
        if self._depth() is not None:
            raise Unsupported("A raise inside a handler's range ends the graph.")

    def _protect(
        self,
        program: Program,
        first: Instruction,
        last: Instruction,
        locals_: dict[str, str],
        at: int,
    ) -> None:
        """Handlers around the break: the original code follows, entered through them alone."""
        frame = self.frame
        if self._cells():
            raise Unsupported("A break in a handler's range, with variables in cells.")
        original = decode(frame.code)
        index = {id(x): i for i, x in enumerate(original.instructions)}
        entry = next(
            e for e in original.exceptions if index[id(e.start)] <= self.at <= index[id(e.end)]
        )
        out = program.instructions
        restore: Code = []
        for name in self._bound_before(program):
            restore += make.delete_fast(name)
        for name, place in locals_.items():
            if place != name:
                restore += make.load_fast(place) + make.store_fast(name)
        program.instructions = out = [*out[:at], *restore, *out[at:]]
        program.varnames += [n for n in original.varnames if n not in program.varnames]
        skip = {"COPY_FREE_VARS", "MAKE_CELL", "RETURN_GENERATOR"}
        start = next(i for i, x in enumerate(original.instructions) if x.opname not in skip)
        out += original.instructions[start:]
        program.exceptions = [
            ExceptionEntry(first, last, entry.target, entry.depth, entry.lasti),
            *original.exceptions,
        ]

    def _bound_before(self, program: Program) -> list[str]:
        """Arguments that the function has unbound: the handler must find them so."""
        live = {n for n, _ in self.live}
        return [n for n in program.varnames if n not in live and not n.startswith("___")]


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
) -> CodeType:
    """The code that goes on at an instruction, with this stack and these variables; made once."""
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
    program.varnames = [*values, *plain, *names]
    program.argcount, program.posonlyargcount = len(values) + len(plain), 0
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
    table[key] = code
    table[code] = (origin, _shift(code, origin))
    return code


def _shift(code: CodeType, origin: CodeType) -> int:
    """How many instructions further an instruction of the original stands in the resume code."""
    mine, theirs = decode(code).instructions, decode(origin).instructions
    return len(mine) - len(theirs)
