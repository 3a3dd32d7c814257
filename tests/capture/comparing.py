"""A program run eager and captured, and everything that a user could tell them apart by."""

from __future__ import annotations

import collections
import contextlib
import io
import types
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy

import flambeau as torch
from flambeau._src.capture import frames
from flambeau._src.capture.frame import capture
from flambeau._src.capture.outcome import Captured, CaptureOptions, Skip


@dataclass
class Program:
    """A function, how to make its arguments, and how it must be captured.

    `breaks`: how many breaks in all (None: any number); `graphs`: how many graphs. `rounding`: how
    far values may be off, relative to the largest, where the captured form rounds elsewhere.
    """

    function: Callable[..., Any]
    arguments: Callable[[], Any]
    breaks: int | None
    graphs: int | None
    rounding: float = 0.0

    @property
    def name(self) -> str:
        """Where it is."""
        return f"{self.function.__module__.rpartition('.')[2]}.{self.function.__name__}"


PROGRAMS: list[Program] = []


def program(
    arguments: Callable[[], Any],
    breaks: int | None = 0,
    graphs: int | None = None,
    rounding: float = 0.0,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a program. `arguments` gives a tuple, or (tuple, dict)."""

    def note(function: Callable[..., Any]) -> Callable[..., Any]:
        PROGRAMS.append(Program(function, arguments, breaks, graphs, rounding))
        return function

    return note


@dataclass
class Report:
    """What the captures of one run gave."""

    captured: list[Captured] = field(default_factory=list)
    skipped: list[Skip] = field(default_factory=list)

    @property
    def breaks(self) -> list[Any]:
        """All breaks, those of a loop's rounds once."""
        found = [b for c in self.captured for b in c.breaks] + [
            b for s in self.skipped for b in s.breaks
        ]
        return list({(b.where, b.reason): b for b in found}.values())

    @property
    def graphs(self) -> int:
        """How many graphs were made."""
        return sum(c.region is not None for c in self.captured)


class Callback:
    """Captures every call of a function of the given files."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.report = Report()
        self.options = CaptureOptions(keep_empty=True, repeats="pure")

    def __call__(
        self, code: Any, variables: Any, globals_: Any, builtins: Any, function: Any
    ) -> Any:
        if code.co_filename != self.file or getattr(function, "_torchdynamo_disable", False):
            return None
        found = capture(code, variables, globals_, builtins, function, self.options)
        if isinstance(found, Skip):
            self.report.skipped.append(found)
            return None
        self.report.captured.append(found)
        globals_.update(found.new_globals)
        for resume in found.resumes:
            frames.goes_on(resume)
        if found.region is not None:
            module = torch.fx.GraphModule(found.region.attributes, found.region.graph)
            globals_[found.region.name] = torch.fx.Interpreter(module).run
        return found.code


@dataclass
class Outcome:
    """What a run left behind."""

    value: Any = None
    error: BaseException | None = None
    printed: str = ""
    arguments: Any = None
    grads: list[Any] = field(default_factory=list)
    grad_mode: bool = True
    random: Any = None


def _run(program: Program, callback: Callback | None, compiled: Any = None) -> Outcome:
    torch.manual_seed(7)
    made = program.arguments()
    args, kwargs = made if _has_keywords(made) else (made, {})
    out = Outcome(arguments=(args, kwargs))
    text = io.StringIO()
    torch.manual_seed(11)
    fn = compiled or program.function
    with contextlib.redirect_stdout(text), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            if callback is None:
                out.value = fn(*args, **kwargs)
            else:
                out.value = frames.run_with(callback, fn, args, kwargs)
        except Exception as error:
            out.error = error
    out.printed = text.getvalue()
    out.grad_mode = torch.is_grad_enabled()
    torch.set_grad_enabled(True)
    out.random = torch.get_rng_state()
    out.grads = _gradients(out.value, (args, kwargs))
    return out


def _has_keywords(made: Any) -> bool:
    return len(made) == 2 and isinstance(made[0], tuple) and isinstance(made[1], dict)


def _tensors(value: Any, found: list[Any], seen: set[int]) -> list[Any]:
    if id(value) in seen:
        return found
    seen.add(id(value))
    if isinstance(value, torch.Tensor):
        found.append(value)
    elif isinstance(value, torch.nn.Module):
        found += list(value.parameters()) + list(value.buffers())
    elif isinstance(value, (list, tuple, set, frozenset)):
        for v in value:
            _tensors(v, found, seen)
    elif isinstance(value, dict):
        for v in value.values():
            _tensors(v, found, seen)
    elif hasattr(value, "__dict__") and not isinstance(value, (type, types.ModuleType)):
        for v in vars(value).values():
            _tensors(v, found, seen)
    return found


def _gradients(value: Any, given: Any) -> list[Any]:
    outs = [
        t
        for t in _tensors(value, [], set())
        if t.requires_grad and t.grad_fn is not None and t.is_floating_point()
    ]
    if outs:
        total = sum((t * torch.arange(1.0, t.numel() + 1).reshape(t.shape)).sum() for t in outs)
        total.backward()
    return [t.grad for t in _tensors(given, [], set())]


def differences(a: Any, b: Any, path: str = "value", seen: Any = None) -> list[str]:
    """How b differs from a, as paths and texts."""
    seen = {"rounding": 0.0} if seen is None else seen
    if id(a) in seen:
        same = seen[id(a)][1] is b
        return [] if same else [f"{path}: shared in one and not in the other"]
    if isinstance(a, torch.nn.Module) and isinstance(b, torch.nn.Module):
        return differences(dict(a.state_dict()), dict(b.state_dict()), path, seen)
    if type(a) is not type(b):
        return [f"{path}: {type(a)} became {type(b)}"]
    if isinstance(a, torch.Tensor):
        seen[id(a)] = (a, b)
        return _tensor_differences(a, b, path, seen["rounding"])
    if a is b or isinstance(a, (type, types.BuiltinFunctionType, types.CodeType)):
        return [] if a is b else [f"{path}: {a} became {b}"]
    if isinstance(a, (list, tuple)):
        if not isinstance(a, tuple):
            seen[id(a)] = (a, b)
        if len(a) != len(b):
            return [f"{path}: length {len(a)} became {len(b)}: {a} / {b}"]
        out = [
            d
            for i, (x, y) in enumerate(zip(a, b, strict=True))
            for d in differences(x, y, f"{path}[{i}]", seen)
        ]
        return out + _attributes(a, b, path, seen)
    if isinstance(a, dict):
        seen[id(a)] = (a, b)
        if [_key(k) for k in a] != [_key(k) for k in b]:
            return [f"{path}: keys {list(a)} became {list(b)}"]
        out = [
            d
            for k, m in zip(a, b, strict=True)  # a class may have an `items` of its own
            for d in differences(
                dict.__getitem__(a, k), dict.__getitem__(b, m), f"{path}[{k!r}]", seen
            )
        ]
        return out + _attributes(a, b, path, seen)
    if isinstance(a, types.FunctionType):
        seen[id(a)] = (a, b)
        same = a.__code__ is b.__code__ and a.__qualname__ == b.__qualname__
        return [] if same else [f"{path}: {a} became {b}"]
    if isinstance(a, float) and a != a:
        return [] if b != b else [f"{path}: nan became {b}"]
    if isinstance(a, (set, frozenset)) and any(type(v).__hash__ is object.__hash__ for v in a):
        same = sorted(type(v).__name__ for v in a) == sorted(type(v).__name__ for v in b)
        return [] if same else [f"{path}: {a} became {b}"]
    if isinstance(a, collections.deque):
        return differences([a.maxlen, *a], [b.maxlen, *b], path, seen)
    if isinstance(a, numpy.ndarray):
        same = a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
        return [] if same else [f"{path}: {a} became {b}"]
    if isinstance(a, types.GeneratorType) or hasattr(type(a), "__next__"):
        return differences(list(a), list(b), f"list({path})", seen)
    if isinstance(a, BaseException):
        return differences(a.args, b.args, f"{path}.args", seen)
    if hasattr(a, "__dict__") or hasattr(a, "__slots__"):
        seen[id(a)] = (a, b)
        return _attributes(a, b, path, seen)
    try:
        same = bool(a == b)
    except Exception:
        same = a is b
    return [] if same else [f"{path}: {a!r} became {b!r}"]


def _key(key: Any) -> Any:
    return type(key) if isinstance(key, torch.Tensor) or hasattr(key, "__dict__") else key


def _attributes(a: Any, b: Any, path: str, seen: Any) -> list[str]:
    own = dict(getattr(a, "__dict__", {}))
    other = dict(getattr(b, "__dict__", {}))
    for name in getattr(type(a), "__slots__", ()):
        if isinstance(name, str) and hasattr(a, name):
            own[name] = getattr(a, name)
        if isinstance(name, str) and hasattr(b, name):
            other[name] = getattr(b, name)
    if list(own) != list(other):
        return [f"{path}: attributes {list(own)} became {list(other)}"]
    return [d for k in own for d in differences(own[k], other[k], f"{path}.{k}", seen)]


def _near(a: Any, b: Any, rounding: float) -> Any:
    if not rounding or not a.is_floating_point():
        return a == b
    return (a - b).abs() <= rounding * a.abs().max()


def _tensor_differences(a: Any, b: Any, path: str, rounding: float) -> list[str]:
    facts = ("shape", "dtype", "device", "requires_grad", "is_leaf")
    out = [
        f"{path}.{f}: {getattr(a, f)} became {getattr(b, f)}"
        for f in facts
        if getattr(a, f) != getattr(b, f)
    ]
    if a.stride() != b.stride():
        out.append(f"{path}: strides {a.stride()} became {b.stride()}")
    a, b = a.detach(), b.detach()
    if not out and not bool(((a == b) | ((a != a) & (b != b)) | _near(a, b, rounding)).all()):
        out.append(f"{path}: {a} became {b}")
    return out


def compare(program: Program) -> tuple[list[str], Report]:
    """Run a program both ways; what differs, and what the captures gave."""
    callback = Callback(program.function.__code__.co_filename)
    return _compared(_run(program, None), _run(program, callback), program), callback.report


def compare_compiled(program: Program, backend: str) -> list[str]:
    """Run a program plainly and through `torch.compile`, twice: the first call captures, the
    second finds what the first compiled. What differs, and what was run eager for an error."""
    torch._dynamo.reset()
    compiled = torch.compile(program.function, backend=backend)
    out = []
    for call in ("first", "second"):
        found = _compared(_run(program, None), _run(program, None, compiled), program)
        out += [f"{call} call: {d}" for d in found]
    compiler = compiled.compiler()
    for entry in [*compiler.entries, *compiler.skipped]:
        out += [f"contained: {note}" for note in entry.contained]
    return out


def _compared(eager: Outcome, captured: Outcome, program: Program) -> list[str]:
    def compared(name: str) -> list[str]:
        seen = {"rounding": program.rounding}
        return differences(getattr(eager, name), getattr(captured, name), name, seen)

    out = compared("value") + compared("arguments") + compared("grads")
    out += differences(eager.random, captured.random, "random state")
    if eager.printed != captured.printed:
        out.append(f"printed {eager.printed!r} became {captured.printed!r}")
    if eager.grad_mode != captured.grad_mode:
        out.append("the grad mode is left another")
    if type(eager.error) is not type(captured.error) or str(eager.error) != str(captured.error):
        out.append(f"raised {eager.error!r} became {captured.error!r}")
    return out
