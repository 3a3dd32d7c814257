"""The capture of a frame: interpret it, and write the code that replaces it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from types import CodeType
from typing import Any

from flambeau._src.capture import arithmetic, attributes, calls, modes, opcodes, resume
from flambeau._src.capture.emit import Emission
from flambeau._src.capture.guards import Guard, Kind
from flambeau._src.capture.interpreter import (
    NULL,
    RETURNED,
    Frame,
    Pending,
    prepare,
    unwind,
)
from flambeau._src.capture.outcome import (
    Captured,
    CaptureOptions,
    Forbidden,
    GraphBreak,
    InternalError,
    NeedsValue,
    NotReady,
    Raised,
    Region,
    Round,
    Skip,
    TooLate,
    Unsupported,
)
from flambeau._src.capture.scalars import FixedScalars
from flambeau._src.capture.session import Protocol, Session
from flambeau._src.capture.sizes import add_guards
from flambeau._src.capture.source import LocalSource
from flambeau._src.capture.strings import printable
from flambeau._src.capture.tables import PREPARED

__all__ = ["capture"]

_GENERATOR = 0x0020
_GENERATORS = 0x0020 | 0x0080 | 0x0200
_BROKEN = -3
_ATTEMPTS = 8
_PROTOCOL = Protocol(
    calls.call,
    calls.call_method,
    calls.inline,
    calls.run_pure,
    attributes.get,
    arithmetic.binary,
    arithmetic.truth,
    arithmetic.get_item,
)


def capture(
    code: CodeType,
    arguments: Mapping[str, Any],
    globals_: dict[str, Any],
    builtins: Any,
    function: Any,
    options: CaptureOptions,
) -> Captured | Skip:
    """Replacement code for a call of `code` with these arguments.

    `arguments` are the bound arguments and free variables by name, cells dereferenced. Nothing
    outside is changed, whatever comes of it. Raises InternalError where the capture itself fails.
    """
    if code.co_flags & _GENERATORS:
        return _generator(code, options)
    assert opcodes is not None
    before = modes.settings()
    stop: int | None = None
    limit: Unsupported | None = None
    hooks_break = read_inputs = fixed_scalars = False
    for _ in range(_ATTEMPTS):
        try:
            session = Session(options, _PROTOCOL)
            session.hooks_break, session.read_inputs = hooks_break, read_inputs
            session.fixed_scalars = fixed_scalars
            frame = _outer_frame(session, code, arguments, globals_, function)
        except RecursionError:
            return Skip("The capture needs more stack than there is.", True, None)
        except Exception as error:
            where = (code.co_filename, code.co_firstlineno, code.co_qualname)
            raise InternalError(f"{type(error).__name__}: {error}", where) from error
        try:
            return _attempt(session, frame, code, stop, limit)
        except Unsupported as found:
            found.__traceback__ = found.__context__ = None  # they hold the program's objects
            if isinstance(found, FixedScalars):
                fixed_scalars, stop, limit = True, None, None
                continue
            if isinstance(found, TooLate) and not hooks_break:
                hooks_break, stop, limit = True, None, None
                continue
            if isinstance(found, NeedsValue) and session.inputs_read:
                read_inputs, stop, limit = True, None, None
                continue
            if isinstance(found, NotReady):
                return Skip(found.reason, False, _where(found, frame), alone=True)
            found.error = session.breaks_are_errors[-1] if session.breaks_are_errors else None
            if found.whole:
                return Skip(found.reason, True, _where(found, frame), _breaks(found, frame))
            step = session.step if found.step is None else found.step
            if limit is not None and (stop is None or step >= stop):
                # The state at the break itself cannot leave the graph: nothing can be gained here.
                where = _where(found, frame)
                return Skip(f"{limit.reason} {found.reason}", True, where, _breaks(limit, frame))
            if stop is None and step == 0:
                return Skip(found.reason, True, _where(found, frame), _breaks(found, frame))
            stop, limit = step, found
            if found.where is None and found.step is None:
                found.where, found.stack = frame.where(), (frame.where(),)
        except Forbidden:
            raise
        except Raised as raised:
            raise InternalError(
                f"An exception of the program escaped: {raised.error!r}", frame.where()
            ) from raised
        except RecursionError:
            return Skip("The capture needs more stack than there is.", True, None)
        except Exception as error:
            raise InternalError(f"{type(error).__name__}: {error}", frame.where()) from error
        finally:
            before.put()
            session.close()
    return Skip("The breaks of the function do not settle.", True, None)


def _generator(code: CodeType, options: CaptureOptions) -> Skip:
    reason = "A generator or coroutine is captured where it is used."
    if not options.fullgraph or not code.co_flags & _GENERATOR:
        return Skip(reason, True)
    where = (code.co_filename, code.co_firstlineno, code.co_qualname)
    remedy = "Compile the function that iterates over it."
    return Skip(reason, True, where, (GraphBreak(reason, remedy, where, (where,)),))


def _where(limit: Unsupported, frame: Frame) -> tuple[str, int, str]:
    return limit.where or frame.where()


def _breaks(limit: Unsupported, frame: Frame) -> tuple[GraphBreak, ...]:
    where = _where(limit, frame)
    stack = limit.stack or (where,)
    return (GraphBreak(limit.reason, limit.remedy, where, stack, limit.error),)


def _outer_frame(
    session: Session,
    code: CodeType,
    arguments: Mapping[str, Any],
    globals_: dict[str, Any],
    function: Any,
) -> Frame:
    prepared = prepare(code, PREPARED)
    slots: list[Any] = [NULL] * len(prepared.slots)
    session.arguments = {id(v) for v in arguments.values()}
    free = len(slots) - len(code.co_freevars)
    for i, name in enumerate(code.co_varnames):
        if name in arguments and i < free:
            slots[i] = Pending(arguments[name], LocalSource(name))
    cells = getattr(function, "__closure__", None) or ()
    for i, (name, cell) in enumerate(zip(code.co_freevars, cells, strict=True)):
        slots[free + i] = session.heap.enter_cell(cell, LocalSource(name, True))
    frame = Frame(prepared, slots, globals_, None)
    frame.function = function
    return frame


def _attempt(
    session: Session, frame: Frame, own: CodeType, stop: int | None, limit: Unsupported | None
) -> Captured | Skip:
    session.guards.add(Guard(Kind.STATE, None, modes.snapshot()))  # as the call begins
    how = _run(session, frame, -1 if stop is None else stop)
    options = session.options
    session.frame = frame
    if len(session.heap.distinct) > 1:
        _distinct(session, session.heap.distinct)
    if len(session.tensor_sources) > 1:
        _distinct(session, session.tensor_sources)
    if how == RETURNED:
        if not options.keep_empty and not _calls(session):
            return _captured(session, None, own, [], [])
        emission = Emission(session, frame, _own_cells(frame))
        code = emission.returning(frame.result)
        empty = emission.region is None or emission.region.is_arithmetic()
        if empty and not options.keep_empty:
            code = own  # `frame.code` may be another one that is equal
        return _captured(session, emission.region, code, [], [])
    assert limit is not None
    if limit.where is None:  # further back than where it was seen
        frame.at += 1
        limit.where, limit.stack = frame.where(), (frame.where(),)
        frame.at -= 1
    (reason,) = _breaks(limit, frame)
    emission = Emission(session, frame, _own_cells(frame), limit)
    code, resumes = resume.broken(session, frame, emission)
    breaks = [] if isinstance(limit, Round) else [reason]
    return _captured(session, emission.region, code, breaks, resumes)


def _calls(session: Session) -> bool:
    """Whether the graph does anything."""
    return any(n.op in ("call_function", "call_method") for n in session.recorder.graph.nodes)


def _distinct(session: Session, sources: list[Any]) -> None:
    modules = session.modules
    loose = tuple(s for s in dict.fromkeys(sources) if not modules.owns(s))
    if len(loose) > 1:
        session.guards.add(Guard(Kind.NOT_SAME, loose[0], loose))


def _captured(
    session: Session,
    region: Region | None,
    code: CodeType,
    breaks: list[GraphBreak],
    resumes: list[CodeType],
) -> Captured:
    return Captured(
        code,
        region,
        session.guards,
        {},
        breaks,
        resumes,
        session.recorder.operators,
        partial(add_guards, session.shape_env, session.sized, session.guards),
    )


def _own_cells(frame: Frame) -> dict[int, str]:
    code = frame.code
    first = len(frame.locals) - len(code.co_freevars)
    return {id(frame.locals[first + i]): name for i, name in enumerate(code.co_freevars)}


def _run(session: Session, frame: Frame, stop: int) -> int:
    """Interpret the outermost frame; _BROKEN before the instruction number `stop`."""
    session.frame = frame
    session.depth = 1
    steps = frame.prepared.steps
    while True:
        if session.step == stop:
            return _BROKEN
        at = frame.at
        handler, ins = steps[at]
        frame.at = at + 1
        try:
            goal = handler(session, frame, ins)
        except Raised as raised:
            session.frame = frame
            session.depth = 1
            error = raised.error
            if at not in frame.prepared.protected:
                raise Unsupported(_leaving(error), "Handle it inside the function.") from None
        else:
            if goal is not None:
                if goal == RETURNED:
                    return goal
                frame.at = goal
            session.step += 1
            continue
        session.step += 1
        unwind(session, frame, at, error)


def _leaving(error: BaseException) -> str:
    text = f": {error}" if printable(error) and str(error) else ""
    return f"The program raises {type(error).__name__}{text}, and does not handle it."
