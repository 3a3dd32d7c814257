"""What the package `functorch` offers: the functions of `torch.func`, with a word about these."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any

import flambeau as torch
from flambeau._functorch import make_functional as _stateless

_GUIDE = "https://pytorch.org/docs/main/func.migrating.html"


def _deprecated(name: str, fn: Callable[..., Any], successor: str) -> Callable[..., Any]:
    @functools.wraps(fn)
    def call(*args: Any, **kwargs: Any) -> Any:
        warnings.warn(
            "We've integrated functorch into PyTorch. As the final step of the integration, "
            f"`functorch.{name}` is deprecated as of PyTorch 2.0 and will be deleted in a future "
            f"version of PyTorch >= 2.3. Please use `torch.{successor}` instead; see the PyTorch "
            f"2.0 release notes and/or the `torch.func` migration guide for more details {_GUIDE}",
            FutureWarning,
            stacklevel=2,
        )
        return fn(*args, **kwargs)

    return call


def _of_func(name: str) -> Callable[..., Any]:
    return _deprecated(name, getattr(torch.func, name), f"func.{name}")


vmap = _deprecated("vmap", torch.func.vmap, "vmap")
grad, grad_and_value, vjp, jvp = map(_of_func, ("grad", "grad_and_value", "vjp", "jvp"))
jacrev, jacfwd, hessian = map(_of_func, ("jacrev", "jacfwd", "hessian"))
functionalize = _of_func("functionalize")
make_functional, make_functional_with_buffers = (
    _deprecated(name, getattr(_stateless, name), "func.functional_call")
    for name in ("make_functional", "make_functional_with_buffers")
)
combine_state_for_ensemble = _deprecated(
    "combine_state_for_ensemble", _stateless.combine_state_for_ensemble, "func.stack_module_state"
)
