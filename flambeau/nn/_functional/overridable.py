"""`__torch_function__` for functions written in Python: a decorator for those called rarely.

The hot ones ask `has_torch_function_unary` themselves and save a frame.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from flambeau.overrides import handle_torch_function, has_torch_function


def overridable(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Offer the call to `__torch_function__` of the arguments with these names.

    The override gets arguments without a default positionally and all others by keyword.
    """

    def decorate(fn: Callable[..., Any]) -> Callable[..., Any]:
        code = fn.__code__
        parameters = code.co_varnames[: code.co_argcount]
        required = code.co_argcount - len(fn.__defaults__ or ())
        places = [(parameters.index(n) if n in parameters else 99, n) for n in names]

        @functools.wraps(fn)
        def call(*args: Any, **kwargs: Any) -> Any:
            count = len(args)
            relevant = tuple(args[i] if i < count else kwargs.get(n) for i, n in places)
            if not has_torch_function(relevant):
                return fn(*args, **kwargs)
            given = dict(zip(parameters, args, strict=False))
            given.update(kwargs)
            defaults = dict(zip(parameters[required:], fn.__defaults__ or (), strict=True))
            everything = {**defaults, **(fn.__kwdefaults__ or {}), **given}
            positional = [everything.pop(n) for n in parameters[:required] if n in everything]
            return handle_torch_function(call, relevant, *positional, **everything)

        return call

    return decorate
