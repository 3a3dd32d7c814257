"""Context managers that also decorate functions, generators and (deprecated) classes."""

from __future__ import annotations

import functools
import inspect
import sys
import warnings
from collections.abc import Callable, Generator
from typing import Any

__all__ = ["context_decorator", "_DecoratorContextManager", "_NoParamDecoratorContextManager"]


def _wrap_generator(make: Callable[[], Any], function: Callable[..., Any]) -> Callable[..., Any]:
    """Run a generator function's body, and only its body, under the context."""

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
        generator = function(*args, **kwargs)
        # The caller's code between two items must not run under the context: it is entered
        # anew for each step.
        try:
            with make():
                item = generator.send(None)
            while True:
                try:
                    request = yield item
                except GeneratorExit:
                    with make():
                        generator.close()
                    raise
                except BaseException:
                    with make():
                        item = generator.throw(*sys.exc_info())
                else:
                    with make():
                        item = generator.send(request)
        except StopIteration as stop:
            return stop.value

    return wrapper


def context_decorator(ctx: Any, func: Any) -> Any:
    """func, every call of which runs under a context manager.

    Args:
        ctx: a context manager that can be entered many times, or a callable that makes one.
        func: a function, a generator function, or (deprecated) a class.
    """
    if callable(ctx) and hasattr(ctx, "__enter__"):
        raise AssertionError(
            f"Passed in {ctx} is both callable and also a valid context manager (has __enter__), "
            "making it ambiguous which interface to use.  If you intended to pass a context "
            "manager factory, rewrite your call as context_decorator(lambda: ctx()); if you "
            "intended to pass a context manager directly, rewrite your call as "
            "context_decorator(lambda: ctx)"
        )
    make = ctx if callable(ctx) else lambda: ctx
    if inspect.isclass(func):
        raise RuntimeError(
            "Cannot decorate classes; it is ambiguous whether or not only the constructor or all "
            "methods should have the context manager applied; additionally, decorating a class at "
            "definition-site will prevent use of the identifier as a conventional type.  To "
            "specify which methods to decorate, decorate each of them individually."
        )
    if inspect.isgeneratorfunction(func):
        return _wrap_generator(make, func)

    @functools.wraps(func)
    def decorate_context(*args: Any, **kwargs: Any) -> Any:
        with make():
            return func(*args, **kwargs)

    return decorate_context


class _DecoratorContextManager:
    """Base of context managers that decorate too: a subclass gives `__enter__` and `__exit__`, and
    `clone` where it has arguments."""

    def __call__(self, orig_func: Any) -> Any:
        if inspect.isclass(orig_func):
            warnings.warn(
                "Decorating classes is deprecated and will be disabled in future versions. You "
                "should only decorate functions or methods. To preserve the current behavior of "
                "class decoration, you can directly decorate the `__init__` method and nothing "
                "else.",
                FutureWarning,
                stacklevel=2,
            )
            func: Any = lambda *args, **kwargs: orig_func(*args, **kwargs)  # noqa: E731
        else:
            func = orig_func
        return context_decorator(self.clone, func)

    def __enter__(self) -> Any:
        raise NotImplementedError

    def __exit__(self, exc_type: Any, exc_value: Any, traceback: Any) -> Any:
        raise NotImplementedError

    def clone(self) -> Any:
        """A fresh one, entered for one call of the decorated function."""
        return self.__class__()


class _NoParamDecoratorContextManager(_DecoratorContextManager):
    """One without arguments: `@no_grad` works like `@no_grad()`."""

    def __new__(cls, orig_func: Any = None) -> Any:
        if orig_func is None:
            return super().__new__(cls)
        return cls()(orig_func)
