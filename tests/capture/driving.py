"""The smallest driver: capture a function, and run its graph node by node."""

from __future__ import annotations

import types
from collections.abc import Callable
from inspect import signature
from typing import Any

import flambeau as torch
from flambeau._src.capture.frame import capture
from flambeau._src.capture.outcome import Captured, CaptureOptions, Skip


class Result:
    """What a capture gave, and the function that it made."""

    def __init__(self, captured: Captured | Skip, function: Callable[..., Any] | None) -> None:
        self.captured = captured
        self.function = function

    @property
    def graph(self) -> Any:
        """The graph."""
        assert isinstance(self.captured, Captured), self.captured
        assert self.captured.region is not None
        return self.captured.region.graph


def capture_call(
    fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], options: CaptureOptions
) -> Result:
    """Capture a function (or a bound method) for a call."""
    if isinstance(fn, types.MethodType):
        args = (fn.__self__, *args)
        fn = fn.__func__
    bound = signature(fn, follow_wrapped=False).bind(*args, **kwargs)
    bound.apply_defaults()
    arguments = dict(bound.arguments)
    cells = fn.__closure__ or ()
    for name, cell in zip(fn.__code__.co_freevars, cells, strict=True):
        try:
            arguments[name] = cell.cell_contents
        except ValueError:
            continue
    found = capture(
        fn.__code__, arguments, fn.__globals__, fn.__globals__["__builtins__"], fn, options
    )
    if isinstance(found, Skip):
        return Result(found, None)
    fn.__globals__.update(found.new_globals)
    if found.region is not None:
        module = torch.fx.GraphModule(found.region.attributes, found.region.graph)
        fn.__globals__[found.region.name] = torch.fx.Interpreter(module).run
    made = types.FunctionType(
        found.code, fn.__globals__, fn.__name__, fn.__defaults__, fn.__closure__
    )
    made.__kwdefaults__ = fn.__kwdefaults__
    return Result(found, made)


def run(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> tuple[Any, Result]:
    """Capture a call, and make it."""
    result = capture_call(fn, args, kwargs, CaptureOptions(keep_empty=True))
    if isinstance(fn, types.MethodType):
        args = (fn.__self__, *args)
        fn = fn.__func__
    return (result.function or fn)(*args, **kwargs), result
