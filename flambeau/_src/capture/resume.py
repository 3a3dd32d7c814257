"""Breaks: the replacement runs the instruction itself, and the rest as a function of its own.

A resume function is the code of the function with another beginning: it puts the stack and the
variables back and jumps to where the program goes on. Its exception table is the original's, so
`try`, `with` and `for` around the break go on as if nothing had been. It is captured when it runs.

What the instruction itself raises in a `try` goes to another resume function, which begins with
the handler. In a loop the resume functions do not call each other, round in round: each returns
what is to be called next (`going_on.py`), and an iterator that comes from outside is advanced
by the replacement code, so that a round is captured once.

The calls of them stand before the replacement's `RESUME`: a frame that is there has not begun for
CPython, so tracebacks, `sys._getframe` and `stacklevel` see one frame, with the function's name.
"""

from __future__ import annotations

import dis
import types
from types import CodeType
from typing import TYPE_CHECKING, Any

from flambeau._src.capture import frames
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
from flambeau._src.capture.going_on import Again
from flambeau._src.capture.interpreter import LOOP_PREFIX, NULL, Frame, Handling, Pending, prepare
from flambeau._src.capture.iteration import END_FOR_KEEPS_ITERATOR
from flambeau._src.capture.outcome import Unsupported
from flambeau._src.capture.scopes import NULL_FIRST
from flambeau._src.capture.source import LocalSource
from flambeau._src.capture.tables import PREPARED

if TYPE_CHECKING:
    from flambeau._src.capture.session import Session

__all__ = ["broken"]

Code = list[Instruction]
_STACK = "___stack_"
_FIRST = "___first"
_ENDS = ("RAISE_VARARGS", "RERAISE")
#: Kinds of places of the stack: a value, NULL, an exception that is being handled (with what was
#: handled before), the iterator of a loop that comes from outside.
_VALUE, _NULL, _HANDLING, _LOOP = range(4)


class _Place:
    """A place of the stack, and the variable that holds what belongs there."""

    __slots__ = ("kind", "name")

    def __init__(self, kind: int, name: str = "") -> None:
        self.kind = kind
        self.name = name

    def push(self) -> Code:
        """Code that puts it on the stack."""
        if self.kind == _NULL:
            return make.null()
        out = make.load_fast(self.name)
        if self.kind == _HANDLING:
            out += [Instruction("PUSH_EXC_INFO"), *make.pop_top()]
        return out

    def pop(self) -> Code:
        """Code that takes it from the stack (NULL too: the variable is unbound then)."""
        if self.kind == _HANDLING:
            return [Instruction("POP_EXCEPT")]
        return make.store_fast(self.name)


def _in_loop(frame: Frame) -> bool:
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
        flag = self.ins.flag
        #: the instruction pushes a callable with NULL or self: it is run as the plain load
        self.callable = self.ins.opname == "LOAD_METHOD" or (
            self.ins.opname in ("LOAD_GLOBAL", "LOAD_ATTR", "LOAD_SUPER_ATTR")
            and bool(flag[0] if isinstance(flag, tuple) else flag)
        )
        self.looped = bool(_origin(session, frame.code)[2])
        self.inside_loop = _in_loop(frame)
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
        stack = [_place(self.session, v) for v in frame.stack]
        moved = [(n, v) for n, v in self.live if not self._in_place(n, v)]
        values = [v for p, v in stack if p.kind != _NULL] + [v for _, v in moved]
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
        places = [place for place, _ in stack]
        for place in places:
            if place.kind != _NULL:
                place.name = next(where)
        self._as_it_was(program, places, dict(zip([n for n, _ in moved], where, strict=True)))
        native = [*(x.copy() for x in self.prefix), self._native()]
        out += native
        below = places[: len(places) - self._operands()]
        made = [_Place(_VALUE) for _ in range(self._results())]
        if self.ins.opname == "FOR_ITER":
            self._loop(out, native[-1], below)
        elif self.ins.target is not None:
            taken = make.label()
            native[-1].target = taken[0]
            out += self._tail(self.at + 1, below)
            goal = frame.prepared.index[id(self.ins.target)]
            kept = [_Place(_VALUE)] if self.ins.opname.startswith("JUMP_IF") else []
            out += taken + self._tail(goal, [*below, *kept])
        elif self.ins.opname not in _ENDS:
            out += self._tail(self.at + 1, [*below, *made], self.callable)
        entry = frame.prepared.protected.get(self.at)
        if entry is not None:  # what the instruction raises: the handler is a resume function too
            goal, depth, lasti = entry
            given = [_Place(_VALUE) for _ in range(1 + lasti)]
            out += (handler := make.label() + self._tail(goal, [*places[:depth], *given]))
            entries = ExceptionEntry(native[0], native[-1], handler[0], depth, lasti)
            program.exceptions.append(entries)
        emission.protect(program)
        begins = next(i for i, x in enumerate(out) if x.opname == "RESUME")
        if self.unseen:
            out[begins:begins] = make.jump(out[begins]) + self.unseen
        return finish(program), self.resumes

    def _in_place(self, name: str, value: Any) -> bool:
        """Whether the variable is an argument that still is what it was."""
        plan = self.emission.rebuild.plan_of(value)
        return plan.kind == "source" and plan.extra == LocalSource(name)

    def _as_it_was(self, program: Program, places: list[_Place], locals_: dict[str, str]) -> None:
        """Stack and variables as the instruction finds them in the function's own code, so that
        whoever looks at the frame, or waits for the end of an object, sees no difference."""
        out = program.instructions
        used = list(dict.fromkeys(x.argval for x in out if x.opname == "STORE_FAST"))
        for place in places:
            out += place.push()
        program.cellvars = sorted(self.cells)
        for name in self.arguments:
            if name not in self.bound:
                out += make.delete_fast(name)
        for name, place_of in locals_.items():
            if name in self.cells:
                out += make.make_cell(name)  # CPython asks whether that has been run
            out += make.load_fast(place_of) + make.store_fast(name)
        handled = {p.name for p in places if p.kind == _HANDLING}  # given on in the end
        for name in used:
            if name not in handled:
                out += make.delete_fast(name)

    def _native(self) -> Instruction:
        """The instruction at the break, as the replacement runs it."""
        native = self.ins.copy()
        if native.opname == "RERAISE":
            native.arg = native.argval = 0  # where it was raised first is not in this code
        if self.callable:
            native.arg = None
            if native.opname == "LOAD_METHOD":
                native.opname, native.flag = "LOAD_ATTR", None
            else:
                flag = native.flag
                native.flag = (False, *flag[1:]) if isinstance(flag, tuple) else False
        return native

    # ---- the stack around the instruction ----

    def _operands(self) -> int:
        """How many values of the stack the instruction takes."""
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
        if op == "BUILD_MAP":
            return 2 * arg
        if op in ("BUILD_TUPLE", "BUILD_LIST", "BUILD_SET", "BUILD_STRING", "BUILD_SLICE"):
            return arg
        if op == "RAISE_VARARGS":
            return arg
        if op in ("LIST_EXTEND", "SET_UPDATE", "DICT_UPDATE", "LIST_APPEND", "SET_ADD"):
            return arg + 1
        if op in ("DICT_MERGE", "BUILD_CONST_KEY_MAP"):
            return arg + 1
        if op == "MAP_ADD":
            return arg + 2
        if op == "FORMAT_VALUE":
            return 2 if arg & 4 else 1
        raise Unsupported(f"No break is possible at {op}.")

    def _results(self) -> int:
        """How many values the instruction leaves in place of its operands."""
        ins = self.ins
        if self.callable or ins.opname == "CALL":
            return 1
        if ins.target is not None or ins.opname in _ENDS:
            return 0
        return self._operands() + dis.stack_effect(dis.opmap[ins.opname], ins.arg)

    # ---- what follows ----

    def _loop(self, out: Code, native: Instruction, below: list[_Place]) -> None:
        """FOR_ITER: the next round, or what follows the loop."""
        frame = self.frame
        out += self._tail(self.at + 1, [*below, _Place(_LOOP), _Place(_VALUE)])
        goal = frame.prepared.index[id(self.ins.target)]
        steps = frame.prepared.steps
        end = make.label()
        if steps[goal][1].opname == "END_FOR":
            end = [Instruction("END_FOR")]
            goal += 1
            if END_FOR_KEEPS_ITERATOR:
                end += make.pop_top()
                goal += 1
        native.target = end[0]
        out += end + self._tail(goal, below)

    def _tail(self, goal: int, stack: list[_Place], is_callable: bool = False) -> Code:
        """Call the function that goes on at `goal` with what is on the stack, and the variables.
        `is_callable`: the top is to be a callable beside NULL. Nothing is left in this frame."""
        rebuild = self.emission.rebuild
        places = [_Place(p.kind, p.name) for p in stack]
        for place in places:
            if place.kind != _HANDLING:
                place.name = rebuild.temporary()
        out: Code = []
        for place in reversed(places):
            out += place.pop()
        if is_callable:  # NULL was left out
            places.insert(len(places) - NULL_FIRST, _Place(_NULL))
        if self.ins.opname in ("STORE_FAST", "DELETE_FAST"):
            raise Unsupported(f"No break is possible at {self.ins.opname}.")
        plain = [n for n, _ in self.live if n not in self.cells]
        kinds = tuple([p.kind for p in places])
        looped = self.looped or self.inside_loop
        key = (kinds, tuple(plain), self.cells, looped)
        code, first = resume_code(self.session, self.frame, goal, *key)
        self.resumes.append(code)
        rest = make.label()
        begin = rest[0]
        if self.looped:  # whoever runs the loop calls it
            rest += make.as_callable(make.load_const(Again))
        rest += self._function(code)
        if not self.looped:
            rest += make.callable_on_top()
        if first is not None:
            empty = dict(self.live)[first] == types.CellType()
            rest += make.load_const(None) if empty else make.load_deref(first)
        values = [p.name for p in places if p.kind != _NULL]
        for name in (*plain, *values):
            rest += make.load_fast(name)
        for name in dict.fromkeys((*self.bound, *values)):
            rest += make.delete_fast(name)
        if self.looped:
            rest += make.build_tuple(code.co_argcount) + make.call(2)
        else:
            rest += make.call(code.co_argcount)
            rest += self._rounds() if looped else []
        where = self.ins.where or Positions(self.frame.code.co_firstlineno)
        self.unseen += make.located(rest + make.return_value(), where)
        return out + make.jump(begin)

    def _function(self, code: CodeType) -> Code:
        out: Code = []
        for name in code.co_freevars:
            out += make.load_closure(name)
        if code.co_freevars:
            out += make.build_tuple(len(code.co_freevars))
        out += make.load_const(code)
        out += make.make_function(make.CLOSURE if code.co_freevars else 0)
        if isinstance(frames.FRONT, frames.Wrapper):  # without the hook only what is wrapped
            return make.as_callable(make.load_const(frames.FRONT.prepare)) + out + make.call(1)
        return out

    def _rounds(self) -> Code:
        """Call what the result on the stack asks for, until there is one that asks for nothing."""
        name = self.emission.rebuild.temporary()
        begin, end = make.label(), make.label()
        out = begin + make.store_fast(name)
        out += make.as_callable(make.load_const(type)) + make.load_fast(name) + make.call(1)
        out += make.load_const(Again) + make.compare("is") + make.pop_jump_if_false(end)
        out += make.as_callable(make.load_fast(name) + make.load_attr("function"))
        out += make.load_fast(name) + make.load_attr("args") + make.delete_fast(name)
        out += make.call_function_ex()
        return out + make.jump(begin[0]) + end + make.load_fast(name)


def _place(session: Session, value: Any) -> tuple[_Place, Any]:
    """The place of a value of the stack, and what its variable holds."""
    if value is NULL:
        return _Place(_NULL), value
    if type(value) is Handling:
        if value.over:  # a copy of what has been put back
            return _Place(_VALUE), None
        return _Place(_HANDLING), value.error
    if type(value) is Pending or id(value) in session.loops:
        return _Place(_LOOP), value
    return _Place(_VALUE), value


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
    "CALL_INTRINSIC_2": 2,
    "LIST_TO_TUPLE": 1,
    "FOR_ITER": 1,
    "WITH_EXCEPT_START": 0,
    "CHECK_EXC_MATCH": 2,
    "CHECK_EG_MATCH": 2,
    "PREP_RERAISE_STAR": 2,
    "RERAISE": 1,
}


def resume_code(
    session: Session,
    frame: Frame,
    goal: int,
    kinds: tuple[int, ...],
    plain: tuple[str, ...],
    cells: frozenset[str],
    looped: bool,
) -> tuple[CodeType, str | None]:
    """The code that goes on at an instruction, with this stack and these variables; made once.

    `super()` looks at the first argument of its frame: if that is in a cell, its name comes too,
    and what it holds is the first argument.
    """
    table = session.options.resumes
    origin, shift, _ = _origin(session, frame.code)
    first = goal - shift
    key = (id(origin), first, kinds, plain, cells, looped)  # codes of one text are equal
    known = table.get(key)
    if known is not None:
        return known[:2]  # type: ignore[no-any-return]
    program = decode(origin)
    goal_ins = program.instructions[first]
    prefixes = {_LOOP: LOOP_PREFIX}
    stack = [f"{prefixes.get(kind, _STACK)}{i}" for i, kind in enumerate(kinds)]
    if goal_ins.opname == "STORE_FAST":  # only moved: not read yet
        stack[-1] = f"{LOOP_PREFIX}{len(stack) - 1}"
    values = [name for name, kind in zip(stack, kinds, strict=True) if kind != _NULL]
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
    for name, kind in zip(stack, kinds, strict=True):
        head += _Place(kind, name).push()
    for name in values:
        head += make.delete_fast(name)
    head += make.jump(goal_ins)
    for x in body:
        if x.argval in own and x.flag == "cell":
            x.flag = "free"
    place = goal_ins.where or Positions(program.firstlineno)
    program.instructions = [*make.located(head, place), *body]
    code = assemble(program)
    table[key] = code, first_name, origin
    table[id(code)] = origin, _shift(code, origin), looped, code
    return code, first_name


def _origin(session: Session, code: CodeType) -> tuple[CodeType, int, bool]:
    """The user's code that a resume function is of, how far instructions are shifted, and whether
    it runs in a loop; of other code itself."""
    found: tuple[Any, ...] = session.options.resumes.get(id(code), (code, 0, False))
    return found[0], found[1], found[2]


def _shift(code: CodeType, origin: CodeType) -> int:
    """How many instructions further an instruction of the original stands in the resume code."""
    mine, theirs = prepare(code, PREPARED).steps, prepare(origin, PREPARED).steps
    return len(mine) - len(theirs)
