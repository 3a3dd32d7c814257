"""Functions with a gradient of the user's own."""

from __future__ import annotations

import functools
import inspect
import itertools
import warnings
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from flambeau import Tensor
from flambeau._src.autograd import custom, hooks
from flambeau._src.autograd.graph import Node
from flambeau._src.autograd.saved import SavedTensor
from flambeau._src.core.slots import fill
from flambeau._src.core.state import thread

__all__ = [
    "BackwardCFunction",
    "Function",
    "FunctionCtx",
    "FunctionMeta",
    "InplaceFunction",
    "NestedIOFunction",
    "once_differentiable",
]

AUTOGRAD_FUNCTION_COUNTER = itertools.count()


class FunctionCtx:
    """What forward leaves for backward: saved tensors, marks, and any attribute of the user's."""

    def save_for_backward(self, *tensors: Tensor | None) -> None:
        """Keep tensors (or None) for backward, which finds them in ``ctx.saved_tensors``.

        Only inputs and outputs of forward, and intermediate results, once a call of forward.
        In-place changes of them are noticed.
        """
        self.to_save = tensors

    def save_for_forward(self, *tensors: Tensor | None) -> None:
        """Keep tensors (or None) for ``jvp``."""
        for tensor in tensors:
            if tensor is not None and not isinstance(tensor, Tensor):
                raise AssertionError(
                    "save_for_forward expects all arguments to be tensors; you should save "
                    "non-tensors as attributes on ctx."
                )
        self.saved_for_forward = tensors

    def mark_dirty(self, *args: Tensor) -> None:
        """Say which inputs forward changed in place; they must be among its outputs."""
        self.dirty_tensors = args

    def mark_shared_storage(self, *pairs: Any) -> None:
        """Deprecated: sharing is noticed."""
        warnings.warn(
            "mark_shared_storage is deprecated. Tensors with shared storages are automatically "
            "tracked. Note that calls to `set_()` are not tracked",
            FutureWarning,
            stacklevel=2,
        )

    def mark_non_differentiable(self, *args: Tensor) -> None:
        """Say which outputs carry no gradient; backward still gets one for each, of zeros."""
        self.non_differentiable = args

    def set_materialize_grads(self, value: bool) -> None:
        """Whether backward gets zeros (default) or None for an output without a gradient."""
        self.materialize_grads = value


_ContextMethodMixin = FunctionCtx


class _HookMixin:
    @staticmethod
    def _register_hook(backward_hooks: Any, hook: Callable[..., Any]) -> Any:
        if backward_hooks is None:
            backward_hooks = OrderedDict()
        handle = hooks.RemovableHandle(backward_hooks)
        backward_hooks[handle.id] = hook
        return backward_hooks, handle


class BackwardCFunction(Node, FunctionCtx, _HookMixin):
    """The node of a custom Function, which is its ``ctx`` too."""

    _materialize = True
    dirty_tensors: Any = None  # the marks are gone once the node is made
    non_differentiable: Any = None
    to_save: Any = None
    saved_for_forward: Any = None
    is_variable_input: tuple[bool, ...] = ()
    input_geometry: tuple[Any, ...] = ()
    output_geometry: tuple[Any, ...] = ()
    _forward_cls: Any = None
    _default_backward: Any = None
    _default_vjp: Any = None

    def __repr__(self) -> str:
        return object.__repr__(self)

    @property
    def materialize_grads(self) -> Any:
        """What `set_materialize_grads` sets; not to be read, as in torch."""
        raise AttributeError(
            "attribute 'materialize_grads' of 'torch._C._FunctionBase' objects is not readable"
        )

    @materialize_grads.setter
    def materialize_grads(self, value: bool) -> None:
        self._materialize = value

    @property
    def saved_tensors(self) -> tuple[Any, ...]:
        """What `save_for_backward` kept."""
        return tuple(self.unpack() or ())

    @property
    def saved_variables(self) -> tuple[Any, ...]:
        """Deprecated name of `saved_tensors`."""
        warnings.warn(
            "'saved_variables' is deprecated; use 'saved_tensors'", DeprecationWarning, stacklevel=2
        )
        return self.saved_tensors

    @property
    def _raw_saved_tensors(self) -> tuple[Any, ...]:
        return tuple(SavedTensor(s, self) for s in self.args or ())

    def apply(self, *args: Any) -> Any:
        """Run the class's backward."""
        return custom.user_backward(self)(self, *args)

    def apply_jvp(self, *args: Any) -> Any:
        """Run the class's jvp."""
        return self._forward_cls.jvp(self, *args)

    def maybe_clear_saved_tensors(self) -> None:
        """Drop what was saved."""
        self.release()


class FunctionMeta(type):
    """Makes, for each Function, the class of its nodes."""

    def __init__(cls, name: str, bases: Any, attrs: Any) -> None:
        backward_fn: Any = type(
            name + "Backward",
            (BackwardCFunction,),
            {"_forward_cls": cls, "__module__": BackwardCFunction.__module__},
        )
        backward_fn._autograd_function_id = next(AUTOGRAD_FUNCTION_COUNTER)
        cls._backward_cls = backward_fn
        cls._has_setup: bool | None = None
        super().__init__(name, bases, attrs)


class _SingleLevelFunction(FunctionCtx, _HookMixin, metaclass=FunctionMeta):
    """A Function without the rules of transforms."""

    @staticmethod
    def forward(*args: Any, **kwargs: Any) -> Any:
        """The operation: ``forward(ctx, *args)``, or ``forward(*args)`` beside `setup_context`."""
        raise NotImplementedError(
            "You must implement the forward function for custom autograd.Function."
        )

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> Any:
        """Fill ctx after forward ran; for Functions that transforms can take apart."""
        raise NotImplementedError("setup_context is not implemented.")

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> Any:
        """Gradients of the inputs, one for each argument of forward, from those of the outputs."""
        raise NotImplementedError(
            "You must implement either the backward or vjp method for your custom "
            "autograd.Function to use it with backward mode AD."
        )

    vjp = backward

    @staticmethod
    def jvp(ctx: Any, *grad_inputs: Any) -> Any:
        """Tangents of the outputs from those of the inputs."""
        raise NotImplementedError(
            "You must implement the jvp function for custom autograd.Function to use it with "
            "forward mode AD."
        )

    @classmethod
    def apply(cls, *args: Any) -> Any:
        """Run it."""
        return custom.apply(cls, args, _is_setup_context_defined(cls.setup_context))


BackwardCFunction._default_backward = staticmethod(_SingleLevelFunction.backward)
BackwardCFunction._default_vjp = staticmethod(_SingleLevelFunction.vjp)


def _is_setup_context_defined(fn: Any) -> bool:
    return fn is not _SingleLevelFunction.setup_context


class Function(_SingleLevelFunction):
    """Base of operations with a gradient of their own: subclass it, give static `forward` and
    `backward`, and call ``MyFunction.apply(...)``.

    ``forward(ctx, *args)`` runs without recording; ``backward(ctx, *grad_outputs)`` returns one
    gradient an argument (None for arguments that are no tensors). With a static
    ``setup_context(ctx, inputs, output)``, forward takes no ctx, and the transforms of `torch.func`
    apply; ``vmap(info, in_dims, *args)`` or ``generate_vmap_rule = True`` then gives the batched
    form.
    """

    generate_vmap_rule = False

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        warnings.warn(
            f"{self.__class__} should not be instantiated. Methods on autograd functions are all "
            "static, so you should invoke them on the class itself. Instantiating an autograd "
            "function will raise an error in a future version of PyTorch.",
            DeprecationWarning,
            stacklevel=2,
        )

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise RuntimeError(
            "Legacy autograd function with non-static forward method is deprecated. Please use "
            "new-style autograd function with static forward method. (Example: "
            "https://pytorch.org/docs/stable/autograd.html#torch.autograd.Function)"
        )

    @staticmethod
    def vmap(info: Any, in_dims: Any, *args: Any) -> Any:
        """The batched form: ``(output, out_dims)`` from arguments with batch dimensions in_dims;
        ``info`` has ``batch_size`` and ``randomness``."""
        raise NotImplementedError(
            "To use autograd.Function with vmap, you must either override the vmap staticmethod or "
            "set generate_vmap_rule=True."
        )

    @classmethod
    def apply(cls, *args: Any, **kwargs: Any) -> Any:
        """Run it; the node that is recorded is its ctx."""
        has_setup = _is_setup_context_defined(cls.setup_context)
        if kwargs:
            if has_setup:
                args = _bound(cls.forward, args, kwargs)
            else:
                args = _bound(cls.forward, (None, *args), kwargs)[1:]
        elif has_setup:
            args = _bound(cls.forward, args, kwargs)
        if thread.functorch:
            if not has_setup and any(level.kind != "dual" for level in thread.functorch):
                raise RuntimeError(
                    "In order to use an autograd.Function with functorch transforms (vmap, grad, "
                    "jvp, jacrev, ...), it must override the setup_context staticmethod. For more "
                    "details, please see https://pytorch.org/docs/main/notes/extending.func.html"
                )
            from flambeau._src.autograd import transforms  # lazy: transforms are heavy

            return transforms.call_custom(cls, args, has_setup)
        return custom.apply(cls, args, has_setup)


def _make_function(name: str, methods: dict[str, Any]) -> Any:
    """A Function class of these static methods."""
    return FunctionMeta(name, (Function,), {k: staticmethod(v) for k, v in methods.items()})


fill("make_function", _make_function)
fill("default_function_vmap", lambda: Function.vmap)


def _bound(
    forward: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[Any, ...]:
    """The arguments as positions, forward's defaults filled in."""
    bound = _signature(forward).bind(*args, **kwargs)
    bound.apply_defaults()
    return bound.args


@functools.lru_cache(maxsize=256)
def _signature(forward: Callable[..., Any]) -> inspect.Signature:
    return inspect.signature(forward)


class _Once(Function):
    """Identity whose backward refuses: behind the results of a once differentiable backward."""

    @staticmethod
    def forward(ctx: Any, *args: Any) -> Any:
        return tuple(a.detach() if isinstance(a, Tensor) else a for a in args)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        raise RuntimeError(
            "trying to differentiate twice a function that was marked with @once_differentiable"
        )


def once_differentiable(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Mark a backward whose result cannot be differentiated again: trying it is an error."""

    @functools.wraps(fn)
    def wrapper(ctx: Any, *args: Any) -> Any:
        import flambeau as torch  # lazy: this module is loaded from the package itself

        with torch.no_grad():
            outputs = fn(ctx, *args)
        if not torch.is_grad_enabled():
            return outputs
        if not any(isinstance(a, Tensor) and a.requires_grad for a in args):
            return outputs
        single = not isinstance(outputs, tuple)
        marked = [
            o.detach().requires_grad_() if isinstance(o, Tensor) else o
            for o in ((outputs,) if single else outputs)
        ]
        marked = _Once.apply(*marked)
        return marked[0] if single else marked

    return wrapper


class InplaceFunction(Function):
    """Kept for programs that still derive from it."""

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()
        self.inplace = inplace


class NestedIOFunction(Function):
    """Kept by name: Functions of nested lists belong to a style that no longer runs."""
