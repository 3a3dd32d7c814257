"""Calling a module that has hooks, and the hooks that all modules share."""

from __future__ import annotations

import functools
import warnings
import weakref
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from flambeau import Tensor
from flambeau.utils.hooks import BackwardHook, RemovableHandle

global_forward_pre_hooks: OrderedDict[int, Callable[..., Any]] = OrderedDict()
global_forward_hooks: OrderedDict[int, Callable[..., Any]] = OrderedDict()
global_forward_hooks_with_kwargs: OrderedDict[int, bool] = OrderedDict()
global_forward_hooks_always_called: OrderedDict[int, bool] = OrderedDict()
global_backward_pre_hooks: OrderedDict[int, Callable[..., Any]] = OrderedDict()
global_backward_hooks: OrderedDict[int, Callable[..., Any]] = OrderedDict()
global_buffer_registration_hooks: OrderedDict[int, Callable[..., Any]] = OrderedDict()
global_module_registration_hooks: OrderedDict[int, Callable[..., Any]] = OrderedDict()
global_parameter_registration_hooks: OrderedDict[int, Callable[..., Any]] = OrderedDict()

# Not empty once any hook of a call was registered globally: the plain call looks only here. A
# module has a list of its own (`_hooked`). The hooked call empties both when the hooks are gone.
any_global: list[bool] = []
# The kind of the global backward hooks: None (there are none), True (full) or False.
global_backward_kind: dict[str, bool | None] = {"full": None}

_MIXED_GLOBAL = (
    "Cannot use both regular backward hooks and full backward hooks as a "
    "global Module hook. Please use only one of them."
)


class _WrappedHook:
    """A hook bound weakly to a module, which it gets as its first argument."""

    def __init__(self, hook: Callable[..., Any], module: Any = None) -> None:
        self.hook = hook
        functools.update_wrapper(self, hook)
        self.with_module = module is not None
        if module is not None:
            self.module = weakref.ref(module)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if not self.with_module:
            return self.hook(*args, **kwargs)
        module = self.module()
        if module is None:
            raise RuntimeError("You are trying to call the hook of a dead Module!")
        return self.hook(module, *args, **kwargs)

    def __getstate__(self) -> dict[str, Any]:
        state: dict[str, Any] = {"hook": self.hook, "with_module": self.with_module}
        if self.with_module:
            state["module"] = self.module()
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.hook = state["hook"]
        self.with_module = state["with_module"]
        if self.with_module:
            if state["module"] is None:
                raise RuntimeError("You are trying to revive the hook of a dead Module!")
            self.module = weakref.ref(state["module"])


def _add(
    table: OrderedDict[int, Any], hook: Callable[..., Any], extra: Any = None
) -> RemovableHandle:
    handle = RemovableHandle(table, extra_dict=extra)
    table[handle.id] = hook
    return handle


def register_module_buffer_registration_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Call ``hook(module, name, buffer) -> None or buffer`` at every `register_buffer`."""
    return _add(global_buffer_registration_hooks, hook)


def register_module_module_registration_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Call ``hook(module, name, submodule) -> None or submodule`` at every registration."""
    return _add(global_module_registration_hooks, hook)


def register_module_parameter_registration_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Call ``hook(module, name, param) -> None or param`` at every `register_parameter`."""
    return _add(global_parameter_registration_hooks, hook)


def register_module_forward_pre_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Call ``hook(module, args) -> None or new args`` before the forward of every module."""
    any_global.append(True)
    return _add(global_forward_pre_hooks, hook)


def register_module_forward_hook(
    hook: Callable[..., Any], *, with_kwargs: bool = False, always_call: bool = False
) -> RemovableHandle:
    """Call ``hook(module, args, output) -> None or new output`` after every module's forward.

    With `with_kwargs` the hook also gets the keyword arguments, after the positional ones; with
    `always_call` it also runs when forward raised.
    """
    any_global.append(True)
    extra = [global_forward_hooks_with_kwargs, global_forward_hooks_always_called]
    handle = _add(global_forward_hooks, hook, extra)
    if with_kwargs:
        global_forward_hooks_with_kwargs[handle.id] = True
    if always_call:
        global_forward_hooks_always_called[handle.id] = True
    return handle


def register_module_backward_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """The deprecated global backward hook; see `register_module_full_backward_hook`."""
    if global_backward_kind["full"] is True:
        raise RuntimeError(_MIXED_GLOBAL)
    global_backward_kind["full"] = False
    any_global.append(True)
    return _add(global_backward_hooks, hook)


def register_module_full_backward_pre_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Call ``hook(module, grad_output) -> None or new grad_output`` before every backward."""
    any_global.append(True)
    return _add(global_backward_pre_hooks, hook)


def register_module_full_backward_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Call ``hook(module, grad_input, grad_output) -> None or new grad_input`` in every backward.

    It runs when the gradients with respect to the module's inputs are known.
    """
    if global_backward_kind["full"] is False:
        raise RuntimeError(_MIXED_GLOBAL)
    global_backward_kind["full"] = True
    any_global.append(True)
    return _add(global_backward_hooks, hook)


REGISTER_FUNCTIONS = (
    register_module_buffer_registration_hook,
    register_module_module_registration_hook,
    register_module_parameter_registration_hook,
    register_module_forward_pre_hook,
    register_module_forward_hook,
    register_module_backward_hook,
    register_module_full_backward_pre_hook,
    register_module_full_backward_hook,
)


def has_any_global_hook() -> bool:
    """Whether a hook that takes part in calls is registered for all modules."""
    return bool(
        global_backward_pre_hooks
        or global_backward_hooks
        or global_forward_hooks
        or global_forward_pre_hooks
    )


def backward_hooks_of(module: Any) -> tuple[list[Any], list[Any]]:
    """The (full, non-full) backward hooks that apply to a module."""
    full: list[Any] = []
    partial: list[Any] = []
    kind = global_backward_kind["full"]
    if kind is not None:
        (full if kind else partial).extend(global_backward_hooks.values())
    kind = module._is_full_backward_hook
    if kind is not None:
        (full if kind else partial).extend(module._backward_hooks.values())
    return full, partial


def backward_pre_hooks_of(module: Any) -> list[Any]:
    """The backward pre-hooks that apply to a module."""
    return [*global_backward_pre_hooks.values(), *module._backward_pre_hooks.values()]


class _Run:
    """One call on its way: what the `always_call` hooks get if it raises."""

    __slots__ = ("args", "done", "kwargs", "result")

    def __init__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.args = args
        self.kwargs = kwargs
        self.result: Any = None
        self.done: set[int] = set()

    def call(self, module: Any, forward: Any) -> Any:
        """Everything in order: pre-hooks, forward between backward hooks, hooks."""
        pre_backward = backward_pre_hooks_of(module)
        full, partial = backward_hooks_of(module)
        self.pre_hooks(module)
        bracket = None
        if full or pre_backward:
            bracket = BackwardHook(module, full, pre_backward)
            self.args = bracket.setup_input_hook(self.args)
        self.result = forward(*self.args, **self.kwargs)
        self.hooks(module)
        if bracket is not None:
            if not isinstance(self.result, (Tensor, tuple)):
                warnings.warn(
                    "For backward hooks to be called,"
                    " module output should be a Tensor or a tuple of Tensors"
                    f" but received {type(self.result)}",
                    stacklevel=2,
                )
            self.result = bracket.setup_output_hook(self.result)
        if partial:
            _attach_partial(module, partial, self.args, self.result)
        return self.result

    def pre_hooks(self, module: Any) -> None:
        with_kwargs = module._forward_pre_hooks_with_kwargs
        hooks = (*global_forward_pre_hooks.items(), *module._forward_pre_hooks.items())
        for hook_id, hook in hooks:
            if hook_id in with_kwargs:
                changed = hook(module, self.args, self.kwargs)
                if changed is None:
                    continue
                if not (isinstance(changed, tuple) and len(changed) == 2):
                    raise RuntimeError(
                        "forward pre-hook must return None or a tuple "
                        f"of (new_args, new_kwargs), but got {changed}."
                    )
                self.args, self.kwargs = changed
            else:
                changed = hook(module, self.args)
                if changed is not None:
                    self.args = changed if isinstance(changed, tuple) else (changed,)

    def hooks(self, module: Any) -> None:
        hooks = (*global_forward_hooks.items(), *module._forward_hooks.items())
        own_kwargs = module._forward_hooks_with_kwargs
        for hook_id, hook in hooks:
            self.done.add(hook_id)
            with_kwargs = hook_id in own_kwargs or hook_id in global_forward_hooks_with_kwargs
            self.hook(module, hook, with_kwargs)

    def hook(self, module: Any, hook: Callable[..., Any], with_kwargs: bool) -> None:
        if with_kwargs:
            changed = hook(module, self.args, self.kwargs, self.result)
        else:
            changed = hook(module, self.args, self.result)
        if changed is not None:
            self.result = changed

    def always_called(self, module: Any) -> None:
        """After an exception: the `always_call` hooks not yet run, their errors as warnings."""
        tables = (
            (
                "global module",
                global_forward_hooks,
                global_forward_hooks_always_called,
                global_forward_hooks_with_kwargs,
            ),
            (
                "module",
                module._forward_hooks,
                module._forward_hooks_always_called,
                module._forward_hooks_with_kwargs,
            ),
        )
        for what, hooks, always, with_kwargs in tables:
            for hook_id, hook in hooks.items():
                if hook_id not in always or hook_id in self.done:
                    continue
                try:
                    self.hook(module, hook, hook_id in with_kwargs)
                except Exception as error:
                    warnings.warn(
                        f"{what} forward hook with ``always_call=True`` raised an exception that"
                        f" was silenced as another error was raised in forward: {error}",
                        stacklevel=2,
                    )


def call_with_hooks(
    module: Any, forward: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Run a module's forward inside the global hooks and its own."""
    if not has_any_global_hook():
        any_global.clear()
        if not (
            module._forward_hooks
            or module._forward_pre_hooks
            or module._backward_hooks
            or module._backward_pre_hooks
        ):
            if module._compiled_call_impl is None:
                module._hooked.clear()
            return forward(*args, **kwargs)
    run = _Run(args, kwargs)
    try:
        return run.call(module, forward)
    except Exception:
        run.always_called(module)
        raise


def _first_tensor(value: Any) -> Any:
    while not isinstance(value, Tensor):
        if isinstance(value, dict):
            value = next(v for v in value.values() if isinstance(v, Tensor))
        else:
            value = value[0]
    return value


def _attach_partial(module: Any, hooks: list[Any], args: tuple[Any, ...], result: Any) -> None:
    """Non-full hooks hang on the last autograd node only, and so may miss gradients."""
    grad_fn = _first_tensor(result).grad_fn
    if grad_fn is None:
        return
    for hook in hooks:
        grad_fn.register_hook(_WrappedHook(hook, module))
    module._maybe_warn_non_full_backward_hook(args, result, grad_fn)


_PARTIAL_WARNINGS = {
    "output type": "on a Module that does not return a single Tensor or a tuple of Tensors",
    "input type": ("on a Module that does not take as input a single Tensor or a tuple of Tensors"),
    "output nodes": "when outputs are generated by different autograd Nodes",
    "input nodes": "when the forward contains multiple autograd Nodes",
}


def _warn_partial(case: str) -> None:
    what, kind = case.split()
    hooks = "non-full backward hooks" if kind == "type" else "a non-full backward hook"
    grads = "grad_output" if what == "output" else "grad_input"
    of = "of the " if kind == "type" else ""
    if case == "output nodes":
        of = ""
    warnings.warn(
        f"Using {hooks} {_PARTIAL_WARNINGS[case]} is deprecated and will be removed in future"
        f" versions. This hook will be missing some {of}{grads}. Please use"
        " register_full_backward_hook to get the documented behavior.",
        FutureWarning,
        stacklevel=3,
    )


def warn_partial_hook(inputs: Any, result: Any, grad_fn: Any) -> None:
    """Say what a non-full backward hook will not see."""
    results = (result,) if isinstance(result, Tensor) else result
    if not (isinstance(results, tuple) and all(isinstance(r, Tensor) for r in results)):
        _warn_partial("output type")
        return
    arguments = (inputs,) if isinstance(inputs, Tensor) else inputs
    if not (isinstance(arguments, tuple) and all(isinstance(i, Tensor) for i in arguments)):
        _warn_partial("input type")
        return
    nodes_out = {r.grad_fn for r in results if r.grad_fn is not None}
    if len(nodes_out) == 0 or (len(nodes_out) == 1 and grad_fn not in nodes_out):
        return
    if len(nodes_out) > 1:
        _warn_partial("output nodes")
        return
    nodes_in = {i.grad_fn for i in arguments if i.grad_fn is not None}
    nodes_next = {edge[0] for edge in grad_fn.next_functions}
    if nodes_in != nodes_next:
        _warn_partial("input nodes")
