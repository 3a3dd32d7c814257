"""Generators of interpreted functions: iterators that native code can use too."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from flambeau._src.capture.interpreter import RETURNED, YIELDED, Frame, Handling, run, unwind
from flambeau._src.capture.lookup import special
from flambeau._src.capture.outcome import Raised, Unsupported

if TYPE_CHECKING:
    from flambeau._src.capture.session import Session

__all__ = ["Generator"]

_CLOSE_GIVES = sys.version_info >= (3, 13)


class Generator:
    """A suspended frame. Its methods are for native code; the interpreter calls `resume`."""

    __slots__ = ("call", "done", "frame", "running", "session", "started")

    def __init__(self, session: Session, frame: Frame) -> None:
        self.session = session
        self.frame = frame
        self.started = self.running = self.done = False
        self.call: Any = None  # (function, args, kwargs) that it is the result of

    def resume(self, value: Any = None) -> Any:
        """The next item. Raises Raised(StopIteration) at the end."""
        session = self.session
        self._enter()
        if self.done:
            self.running = False
            return session.raise_(StopIteration())
        if not self.started and value is not None:
            self.running = False
            session.raise_(TypeError("can't send non-None value to a just-started generator"))
        self.started = True
        self.frame.stack.append(value)
        return self._run()

    def throw_(self, error: Any, value: Any = None, trace: Any = None) -> Any:
        """Raise inside, where the frame is suspended; the next item, if it goes on."""
        session = self.session
        if isinstance(value, BaseException):
            error = value
        elif value is not None and isinstance(error, type):
            error = session.call(error, value if isinstance(value, tuple) else (value,), {})
        if isinstance(error, type) and issubclass(error, BaseException):
            kind = error
            error = session.call(kind, (), {})
            if not isinstance(error, BaseException):
                text = f"calling {kind!r} should have returned an instance of BaseException, not "
                error = TypeError(text + repr(type(error)))
        if not isinstance(error, BaseException):
            text = "exceptions must be classes or instances deriving from BaseException, not "
            session.raise_(TypeError(text + type(error).__name__))
        self._enter()
        if self.done or not self.started:
            self.running = False
            self.done = True
            raise Raised(error)
        frame = self.frame
        at = frame.at - 1
        if frame.prepared.steps[at][1].opname != "YIELD_VALUE":
            raise Unsupported("An exception is thrown into a generator.")
        self.started = True
        own = _handled(frame)
        if own is not None and error is not own and error.__context__ is None:
            if session.heap.known(error) is not None:
                self.running = False
                raise Unsupported("An exception from outside is thrown into a generator.")
            error.__context__ = own
        if _delegates(frame):
            try:
                item = self._throw_below(frame.stack[-1], error)
            except Raised as raised:
                stop = raised.error
                if not isinstance(stop, StopIteration) or stop is error:
                    error = stop
                else:  # the delegate has returned
                    _skip_delegate(frame, stop.value)
                    return self._run()
            else:
                self.running = False
                return item
        if at not in frame.prepared.protected:
            self.done, self.running = True, False
            raise Raised(error)
        unwind(session, frame, at, error)
        return self._run()

    def _throw_below(self, receiver: Any, error: BaseException) -> Any:
        """Throw into the iterator that the frame delegates to."""
        closing = isinstance(error, GeneratorExit)
        if type(receiver) is Generator:
            if closing:
                receiver.close_()
                raise Raised(error)
            return receiver.throw_(error)
        session = self.session
        name = "close" if closing else "throw"
        if special(type(receiver), name) is not None:
            found = session.call_method(receiver, name, *(() if closing else (error,)))
            if not closing:
                return found
        raise Raised(error)

    def close_(self) -> Any:
        """Raise GeneratorExit inside. What it returns then is the result from 3.13 on."""
        if self.done or not self.started:
            self.done = True
            return None
        try:
            self.throw_(GeneratorExit())
        except Raised as raised:
            error = raised.error
            if not isinstance(error, (GeneratorExit, StopIteration)):
                raise
            return error.value if _CLOSE_GIVES and isinstance(error, StopIteration) else None
        self.session.raise_(RuntimeError("generator ignored GeneratorExit"))

    def _enter(self) -> None:
        if self.running:
            self.session.raise_(ValueError("generator already executing"))
        self.running = True

    def _run(self) -> Any:
        session = self.session
        frame = self.frame
        frame.parent = session.frame
        handled = session.handled
        live = [v for v in frame.stack if type(v) is Handling and not v.over]
        if live:  # what it was handling itself, above what its caller handles now
            live[0].before = handled
            session.handled = live[-1].error
        try:
            how = run(session, frame)
        except Raised as raised:
            self.done = True
            if isinstance(raised.error, StopIteration):  # 3.11: the frame has no handler for it
                error = RuntimeError("generator raised StopIteration")
                error.__cause__ = error.__context__ = raised.error
                raise Raised(error) from None
            raise
        finally:
            self.running = False
            session.handled = handled
        if how == YIELDED:
            return frame.result
        assert how == RETURNED
        self.done = True
        result = frame.result
        return session.raise_(StopIteration() if result is None else StopIteration(result))

    # ---- for native code ----

    def __iter__(self) -> Generator:
        return self

    def __next__(self) -> Any:
        try:
            return self.resume()
        except Raised as raised:
            error = raised.error
        raise error


def _handled(frame: Frame) -> BaseException | None:
    """The exception that a suspended frame is handling."""
    live = [v.error for v in frame.stack if type(v) is Handling and not v.over]
    return live[-1] if live else None


def _skip_delegate(frame: Frame, value: Any) -> None:
    """Go behind the `yield from`, with its value."""
    steps = frame.prepared.steps
    at = frame.at
    while steps[at][1].opname != "SEND":  # the jump back is all that is between
        ins = steps[at][1]
        at = frame.goto(ins) if ins.target is not None else at + 1
    send = steps[at][1]
    goal = frame.goto(send)
    if steps[goal][1].opname == "END_SEND":
        frame.stack.append(value)
    else:  # 3.11: the iterator goes with it
        frame.stack[-1] = value
    frame.at = goal


def _delegates(frame: Frame) -> bool:
    """Whether the frame is suspended in a `yield from`."""
    steps = frame.prepared.steps
    at = frame.at
    while at < len(steps) and steps[at][1].opname in ("RESUME", "NOP"):
        at += 1
    return at < len(steps) and steps[at][1].opname == "JUMP_BACKWARD_NO_INTERRUPT"
