"""`OptimizedModule` and the older names of `compile`, by the place that programs know."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flambeau._src.compiler.api import Disabled, Recipe, compile, disable
from flambeau._src.compiler.stance import set_stance
from flambeau.nn.modules._compiled import OptimizedModule

__all__ = [
    "DisableContext", "OptimizedModule", "Recipe", "disable", "innermost_fn", "is_dynamo_supported",
    "is_inductor_supported", "optimize", "run", "set_stance",
]  # fmt: skip

DisableContext = Disabled


def optimize(
    backend: Any = "inductor", *, nopython: bool = False, disable: bool = False,
    dynamic: bool | None = None, **settings: Any,
) -> Callable[[Any], Any]:  # fmt: skip
    """`compile` as a decorator, under its older name; `nopython` is `fullgraph`."""
    return compile(  # type: ignore[no-any-return]
        None, backend=backend, fullgraph=nopython, disable=disable, dynamic=dynamic
    )


def run(fn: Any = None) -> Any:
    """`fn` with the compiled code there is, and none made anew."""
    return set_stance("eager_on_recompile")(fn)


def innermost_fn(fn: Any) -> Any:
    """The function inside all wrappers of `compile` and `disable`."""
    while hasattr(fn, "_torchdynamo_orig_callable"):
        fn = fn._torchdynamo_orig_callable
    return fn


def is_dynamo_supported() -> bool:
    """Whether `compile` works here: it does on every Python that flambeau runs on."""
    return True


is_inductor_supported = is_dynamo_supported
