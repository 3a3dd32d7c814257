"""Function transforms: gradients, Jacobians and vectorisation of functions, freely nested."""

from __future__ import annotations

from flambeau._functorch.batch_norm import replace_all_batch_norm_modules_
from flambeau._functorch.functional_call import functional_call, stack_module_state
from flambeau._src.autograd.transforms import (
    grad,
    grad_and_value,
    hessian,
    jacfwd,
    jacrev,
    jvp,
    linearize,
    vjp,
    vmap,
)
from flambeau._src.interp.functionalize import functionalize

__all__ = [
    "functional_call",
    "functionalize",
    "grad",
    "grad_and_value",
    "hessian",
    "jacfwd",
    "jacrev",
    "jvp",
    "linearize",
    "replace_all_batch_norm_modules_",
    "stack_module_state",
    "vjp",
    "vmap",
]
