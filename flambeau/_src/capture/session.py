"""One attempt at a capture: what the interpreter, the values and the emission share."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from flambeau._src.capture import forward_ad, modes, sizes
from flambeau._src.capture.guards import Guard, GuardLog, Kind
from flambeau._src.capture.heap import Heap
from flambeau._src.capture.natives import STRUCTURAL
from flambeau._src.capture.outcome import CaptureOptions, NeedsValue, Raised, Unsupported
from flambeau._src.capture.recorder import Recorder
from flambeau._src.capture.scalars import FixedScalars
from flambeau._src.capture.values.modules import Modules
from flambeau._src.capture.values.tensors import TensorInfo
from flambeau._src.interp.fake import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensorMode,
    UnsupportedFakeTensorException,
    UnsupportedOperatorException,
)
from flambeau._src.ir.shape_env import GuardOnDataDependentSymNode, ShapeEnv

if TYPE_CHECKING:
    from flambeau._src.capture.interpreter import Frame

__all__ = ["Protocol", "Session", "limit_of"]

#: Functions that give items on without a look at them; `STRUCTURAL` are methods that do.
_MOVING = (iter, next, len, zip, enumerate, reversed, list, tuple)
_MOVES = STRUCTURAL | {
    *("__getitem__", "__setitem__", "__delitem__", "getitem", "setitem", "delitem"),
    *("get", "setdefault"),
}
#: What protocols raise where nothing is wrong: hardly ever seen by `except`.
_ASKING = (StopIteration, AttributeError, GeneratorExit)
#: What the extension says where it is asked for the values of a fake tensor.
_NO_BYTES = "has no bytes ("
_FAKE_LIMITS = (
    GuardOnDataDependentSymNode,
    DataDependentOutputException,
    DynamicOutputShapeException,
    UnsupportedFakeTensorException,
    UnsupportedOperatorException,
)


class _Log(GuardLog):
    """A log that leaves to the module guard what the module guard covers."""

    def __init__(self, modules: Modules) -> None:
        super().__init__()
        self._modules = modules

    def add(self, guard: Guard) -> None:
        if not self._modules.add_guard(guard):
            super().add(guard)


@dataclass(frozen=True)
class Protocol:
    """What the parts of the evaluator call of each other; each takes the session first."""

    call: Callable[..., Any]  # a function, its arguments (a tuple) and keywords (a dict)
    call_method: Callable[..., Any]  # an object, a name, arguments
    inline: Callable[..., Any]  # a Python function, its arguments and keywords
    run_pure: Callable[..., Any]  # a native function, its arguments and keywords
    get: Callable[..., Any]  # an object, the name of an attribute
    binary: Callable[..., Any]  # an operator's text, two values
    truth: Callable[..., Any]  # a value
    get_item: Callable[..., Any]  # a container, a key


class Session:
    """The state of one attempt. A second attempt starts with a new one."""

    def __init__(self, options: CaptureOptions, protocol: Protocol) -> None:
        self.options = options
        self.modes = modes.settings()  # as the call begins
        self.call = partial(protocol.call, self)
        self.call_method = partial(protocol.call_method, self)
        self.inline = partial(protocol.inline, self)
        self.run_pure = partial(protocol.run_pure, self)
        self.get = partial(protocol.get, self)
        self.binary = partial(protocol.binary, self)
        self.truth = partial(protocol.truth, self)
        self.get_item = partial(protocol.get_item, self)
        self.modules = Modules(self)
        self.guards: GuardLog = _Log(self.modules)
        self.shape_env = ShapeEnv(
            allow_scalar_outputs=options.scalars, allow_dynamic_output_shape_ops=options.shapes
        )
        self.fake_mode = FakeTensorMode(
            allow_non_fake_inputs=True, shape_env=self.shape_env, static_shapes=True
        )
        self.sized: list[tuple[Any, Any]] = []  # (source, fake form) of tensors with symbolic sizes
        self.breaks_are_errors: list[bool] = []  # what the program says, innermost last
        self.numbers: dict[Any, Any] = {}  # symbolic ints that came from outside, by source
        self.heap = Heap(self)
        self.tensors: dict[int, TensorInfo] = {}
        self.tensor_sources: list[Any] = []
        self.dropped: list[Any] = []  # tensors of rehearsals, kept so that no id is used again
        self.recorder = Recorder(self)
        self.memos: list[dict[int, Any]] = []  # of deep copies, by inside addresses
        self.fixed = False  # what enters has sizes that are numbers
        self.pending_kinds: dict[int, Any] = {}  # classes of results, and what these are made of
        self.classes: list[Any] = []  # that the program made
        self.hooks: list[Any] = []  # handles of hooks that the program registered on tensors
        self.retained: list[Any] = []  # tensors of the program that are to retain their gradients
        self.scalars: list[Any] = []  # of NumPy's that are no constants
        self.fixed_scalars = False  # they are constants: an earlier attempt needed more of them
        self.read_inputs = False  # the numbers that inputs hold are guarded, not left open
        self.inputs_read = False  # there is one that was left open
        self.hooks_break = False  # such hooks end the graph: an earlier attempt could not keep them
        self.frame: Frame | None = None  # the innermost one that runs
        self.handled: BaseException | None = None  # the exception that is being handled
        self.above = sys.exception()  # what those who call are handling
        self.is_alone = False  # guarded: they handle none
        # Tensors made here that were told to require gradients: the instruction that did it, where.
        self.leaves: dict[int, tuple[int, tuple[Any, ...]]] = {}
        # Levels of forward differentiation that the program entered: the instruction, where.
        self.dual_levels: dict[Any, tuple[int, tuple[Any, ...]]] = {}
        self.forward_mode = 0  # how many transforms that push tangents forward are being captured
        self.loops: dict[int, Any] = {}  # iterators of the outermost frame's loops
        self.raised: dict[int, tuple[Any, Any]] = {}  # what the outermost frame caught, and where
        self.passed: dict[int, tuple[Any, int]] = {}  # what left an inlined instruction; the step
        self.scopes: dict[int, Any] = {}  # globals dicts that were read, by identity
        self.arguments: set[int] = set()  # the outermost frame's, by identity
        self.depth = 0
        self.longest = options.longest
        self.moves = 0  # jumps, calls, objects that entered
        self.step = 0  # instructions of the outermost frame that were run

    def where(self) -> tuple[str, int, str] | None:
        """The user's (file, line, function)."""
        frame = self.frame
        return None if frame is None else frame.where()

    def stack(self) -> tuple[tuple[str, int, str], ...]:
        """The frames, outermost first."""
        frames = []
        frame = self.frame
        while frame is not None:
            frames.append(frame.where())
            frame = frame.parent
        return tuple(reversed(frames))

    def close(self) -> None:
        """Let go of the program's objects: what a capture has met must not live on by it."""
        forward_ad.leave(self)
        self.heap.forget()
        self.modules.read.clear()
        self.tensors.clear()
        self.raised.clear()
        self.hooks.clear()
        self.retained.clear()
        self.passed.clear()
        self.loops.clear()
        self.scopes.clear()
        self.tensor_sources, self.sized, self.dropped, self.scalars = [], [], [], []
        self.frame = self.handled = self.above = None

    def went_on(self, n: int = 1) -> None:
        """Count jumps, calls, items or objects; the graph ends where there were too many."""
        before = self.moves
        self.moves = before + n
        if before < self.longest <= self.moves:
            raise Unsupported(f"More than {self.longest} jumps, calls and objects are met.")

    def memo(self) -> dict[int, Any]:
        """A new memo for a deep copy."""
        self.memos.append({})
        return self.memos[-1]

    def native(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Call what is no part of the capture; what it raises is raised in the program."""
        opaque = self.heap.opaque
        if opaque:
            moves = any(fn is f for f in _MOVING) or getattr(fn, "__name__", None) in _MOVES
            for value in (*args, *kwargs.values(), getattr(fn, "__self__", None)):
                if id(value) in opaque or (not moves and _holds(value, opaque)):
                    if self.scalars:
                        raise FixedScalars
                    raise Unsupported(
                        "Native code meets an object from outside whose state cannot be guarded.",
                        "Read what is needed of it before.",
                    )
        try:
            found = fn(*args, **kwargs)
            return sizes.bounded(self, found) if type(found) in sizes.SYMBOLIC else found
        except _FAKE_LIMITS as limit:
            raise limit_of(limit) from None
        except Exception as error:
            if isinstance(error, (BufferError, RuntimeError)) and _NO_BYTES in str(error):
                raise Unsupported(
                    f"Values of a tensor are read by {getattr(fn, '__name__', 'native code')}.",
                    "Call it outside of the compiled function, or accept the break.",
                ) from None
            error.__traceback__ = None
            raise Raised(self.chain(error)) from None

    def raise_(self, error: BaseException) -> Any:
        """Raise in the program."""
        raise Raised(self.chain(error))

    def chain(self, error: BaseException) -> BaseException:
        """Note what was being handled when the error was raised, as Python does."""
        handled = self.handled
        if handled is None:
            if self.above is not None and not isinstance(error, _ASKING):
                self.alone()
            return error
        if handled is error:
            return error
        inner: BaseException | None = handled
        seen: set[int] = set()
        while inner is not None and id(inner) not in seen:  # no cycle comes of it
            seen.add(id(inner))
            if inner.__context__ is error:
                if self.heap.known(inner) is not None:
                    raise Unsupported("An exception from outside loses its context.")
                inner.__context__ = None
            inner = inner.__context__
        error.__context__ = handled
        return error

    def alone(self) -> None:
        """Guard that those who call handle no exception: it would be seen."""
        if self.above is not None:
            raise Unsupported("An exception is raised, or asked for, while a caller handles one.")
        if not self.is_alone:
            self.is_alone = True
            self.guards.add(Guard(Kind.STATE, None, {"handled": None}, "", self.where()))


def _holds(value: Any, objects: dict[int, Any]) -> bool:
    """Whether an item is one of the objects."""
    if issubclass(type(value), dict):
        return any(id(v) in objects for kv in dict.items(value) for v in kv)
    kinds = (list, tuple, set, frozenset)
    return issubclass(type(value), kinds) and any(id(v) in objects for v in value)


def limit_of(limit: BaseException) -> Unsupported:
    """Why the graph ends where a fake tensor has no answer."""
    name = str(getattr(limit, "func", ""))
    if isinstance(limit, GuardOnDataDependentSymNode):
        return NeedsValue(
            str(limit).splitlines()[0],
            "Say what holds of the number with torch._check, or branch with torch.cond.",
        )
    if isinstance(limit, DataDependentOutputException):
        if "_local_scalar_dense" in name:
            return Unsupported(
                "A value of a tensor is needed as a Python number or truth value.",
                "Keep it a tensor (torch.where, masks), or use torch.cond for a branch.",
            )
        return Unsupported(f"The result of {name} depends on values of tensors.")
    if isinstance(limit, DynamicOutputShapeException):
        return Unsupported(
            f"The shape of {name}'s result depends on values of tensors.",
            "Use an operator whose result has a fixed shape, such as torch.where with three "
            "arguments.",
        )
    if isinstance(limit, UnsupportedOperatorException):
        return Unsupported(f"{name} does not say what geometry its result has.")
    return Unsupported(str(limit))
