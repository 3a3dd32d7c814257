"""`functorch`, which `torch.func` has replaced: its names, each with a word about its successor."""

import torch
from torch._functorch.deprecated import (
    combine_state_for_ensemble,
    functionalize,
    grad,
    grad_and_value,
    hessian,
    jacfwd,
    jacrev,
    jvp,
    make_functional,
    make_functional_with_buffers,
    vjp,
    vmap,
)
from torch._functorch.make_functional import FunctionalModule, FunctionalModuleWithBuffers
from torch.fx.experimental.proxy_tensor import make_fx

__version__ = torch.__version__
