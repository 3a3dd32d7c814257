"""The interpreter: frames of inside values, run one instruction at a time.

A handler takes (session, frame, instruction) and returns None to go on, or the index of the next
instruction. RETURNED and YIELDED leave the loop.
"""

from __future__ import annotations

from collections.abc import Callable
from types import CodeType
from typing import TYPE_CHECKING, Any

from flambeau._src.capture.bytecode import decode
from flambeau._src.capture.bytecode.program import Instruction, Program
from flambeau._src.capture.bytecode.variables import Slots
from flambeau._src.capture.outcome import Raised, Unsupported
from flambeau._src.capture.recorder import trace_text

if TYPE_CHECKING:
    from flambeau._src.capture.session import Session

__all__ = [
    "LOOP_PREFIX",
    "NULL",
    "RETURNED",
    "YIELDED",
    "Frame",
    "Handling",
    "Pending",
    "Prepared",
    "opcode",
    "prepare",
    "run",
]

RETURNED = -1
YIELDED = -2
#: How the argument of a resume function begins that is the iterator of a loop: it is not read.
LOOP_PREFIX = "___loop_"
_DEPTH = 200  # of inlined calls; deeper ones are left to run as they are

Handler = Callable[["Session", "Frame", Instruction], int | None]
HANDLERS: dict[str, Handler] = {}


class _Null:
    """What CPython pushes beside a callable that is no method."""

    def __repr__(self) -> str:
        return "NULL"


NULL = _Null()


class Handling:
    """On the stack where an exception is being handled: it, and what was handled before."""

    __slots__ = ("before", "error", "over")

    def __init__(self, before: BaseException | None, error: BaseException) -> None:
        self.before = before
        self.error = error
        self.over = False  # put back; copies may be left


class Pending:
    """An argument of the outermost frame that nothing has read yet."""

    __slots__ = ("real", "source")

    def __init__(self, real: Any, source: Any) -> None:
        self.real = real
        self.source = source


def opcode(*names: str) -> Callable[[Handler], Handler]:
    """Register the handler of these opcodes."""

    def note(handler: Handler) -> Handler:
        for name in names:
            HANDLERS[name] = handler
        return handler

    return note


_MOST_PREPARED = 10_000


class Prepared:
    """A code object ready to be interpreted."""

    __slots__ = ("code", "index", "program", "protected", "slots", "steps")

    def __init__(self, code: CodeType) -> None:
        self.code = code
        self.program: Program = decode(code)
        program = self.program
        #: names of the variables by slot: locals, other cells, free variables
        self.slots: list[str] = Slots(program.varnames, program.cellvars, program.freevars).names
        instructions = program.instructions
        self.steps: list[tuple[Handler, Instruction]] = [
            (HANDLERS.get(x.opname, _unknown), x) for x in instructions
        ]
        self.index = {id(x): i for i, x in enumerate(instructions)}
        #: (handler's index, depth, lasti) of each instruction in a try block
        self.protected: dict[int, tuple[int, int, bool]] = {}
        index = self.index
        for e in self.program.exceptions:
            entry = (index[id(e.target)], e.depth, e.lasti)
            for i in range(index[id(e.start)], index[id(e.end)] + 1):
                self.protected.setdefault(i, entry)


def _unknown(session: Session, frame: Frame, ins: Instruction) -> int | None:
    raise Unsupported(f"The instruction {ins.opname} is not captured.")


def prepare(code: CodeType, known: dict[int, Prepared]) -> Prepared:
    """The prepared form of a code object, made once; it keeps the code, and with it its id. (Codes
    of one text are equal, but not one: what goes on after a break may be in a loop or not.)"""
    found = known.get(id(code))
    if found is None:
        if len(known) >= _MOST_PREPARED:
            known.clear()
        found = known[id(code)] = Prepared(code)
    return found


class Frame:
    """A call that is being interpreted."""

    __slots__ = (
        "at",
        "function",
        "globals",
        "kwnames",
        "locals",
        "parent",
        "prepared",
        "result",
        "scope",
        "stack",
    )

    def __init__(
        self, prepared: Prepared, locals_: list[Any], globals_: dict[str, Any], parent: Any
    ) -> None:
        self.prepared = prepared
        self.at = 0
        self.stack: list[Any] = []
        self.locals = locals_  # by slot, as CPython numbers them; a cell's slot holds the cell
        self.globals = globals_
        self.scope: Any = None
        self.function: Any = None
        self.kwnames: tuple[str, ...] = ()
        self.result: Any = None
        self.parent: Frame | None = parent

    @property
    def code(self) -> CodeType:
        """The code object."""
        return self.prepared.code

    def where(self) -> tuple[str, int, str]:
        """(file, line, function) of the current instruction."""
        code = self.prepared.code
        steps = self.prepared.steps
        at = max(0, min(self.at - 1, len(steps) - 1))
        where = steps[at][1].where
        line = where.line if where is not None and where.line is not None else code.co_firstlineno
        return code.co_filename, line, code.co_qualname.partition(".<resume at ")[0]

    def trace_text(self) -> str:
        """The place as text, for nodes; the user's own frame if the library's is innermost."""
        texts = []
        frame: Frame | None = self
        while frame is not None:
            texts.append(trace_text(*frame.where()))
            frame = frame.parent
        return "\n".join(reversed(texts))

    def goto(self, ins: Instruction) -> int:
        """The index of a jump's target."""
        return self.prepared.index[id(ins.target)]


def run(session: Session, frame: Frame) -> int:
    """Interpret until the frame returns or yields. Raises Raised for an uncaught exception."""
    if session.depth > _DEPTH:
        raise Unsupported("The calls are nested too deeply to be inlined.", "Recurse less deeply.")
    session.went_on()
    session.depth += 1
    outer, session.frame = session.frame, frame
    steps = frame.prepared.steps
    try:
        while True:
            at = frame.at
            handler, ins = steps[at]
            frame.at = at + 1
            try:
                goal = handler(session, frame, ins)
            except Raised as raised:
                error = raised.error
                session.passed.setdefault(id(error), (error, session.step))
                if at not in frame.prepared.protected:
                    raise
            except Unsupported as limit:
                if limit.where is None:
                    limit.where, limit.stack = frame.where(), session.stack()
                raise
            else:
                if goal is not None:
                    if goal < 0:
                        return goal
                    frame.at = goal
                continue
            unwind(session, frame, at, error)
    finally:
        session.frame = outer
        session.depth -= 1


def unwind(session: Session, frame: Frame, at: int, error: BaseException) -> None:
    """Go to the handler of an exception that was raised at an instruction."""
    if frame.parent is None:
        where = frame.prepared.steps[at][1].where
        session.raised.setdefault(id(error), (error, where))
    target, depth, lasti = frame.prepared.protected[at]
    del frame.stack[depth:]
    if lasti:
        frame.stack.append(at)
    frame.stack.append(error)
    frame.at = target
