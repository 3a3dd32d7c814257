"""`Module`: the base of everything that holds parameters, buffers and other modules."""

from __future__ import annotations

import inspect
import warnings
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

import flambeau as torch
from flambeau import Tensor
from flambeau.utils.hooks import RemovableHandle

from ..parameter import Buffer, Parameter
from . import _calling, _conversion, _mutation, _state
from ._calling import (
    register_module_backward_hook,
    register_module_buffer_registration_hook,
    register_module_forward_hook,
    register_module_forward_pre_hook,
    register_module_full_backward_hook,
    register_module_full_backward_pre_hook,
    register_module_module_registration_hook,
    register_module_parameter_registration_hook,
)
from ._state import _IncompatibleKeys

__all__ = [
    "register_module_forward_pre_hook",
    "register_module_forward_hook",
    "register_module_full_backward_pre_hook",
    "register_module_backward_hook",
    "register_module_full_backward_hook",
    "register_module_buffer_registration_hook",
    "register_module_module_registration_hook",
    "register_module_parameter_registration_hook",
    "Module",
]

# What frameworks built on this module reach for besides the public names.
_WrappedHook = _calling._WrappedHook
_global_backward_hooks = _calling.global_backward_hooks
_global_backward_pre_hooks = _calling.global_backward_pre_hooks
_global_forward_hooks = _calling.global_forward_hooks
_global_forward_hooks_always_called = _calling.global_forward_hooks_always_called
_global_forward_hooks_with_kwargs = _calling.global_forward_hooks_with_kwargs
_global_forward_pre_hooks = _calling.global_forward_pre_hooks
_global_buffer_registration_hooks = _calling.global_buffer_registration_hooks
_global_module_registration_hooks = _calling.global_module_registration_hooks
_global_parameter_registration_hooks = _calling.global_parameter_registration_hooks
_has_any_global_hook = _calling.has_any_global_hook
_EXTRA_STATE_KEY_SUFFIX = _state.EXTRA_STATE
for _definition in (_IncompatibleKeys, _WrappedHook, *_calling.REGISTER_FUNCTIONS):
    _definition.__module__ = __name__  # where pickles and readers look for them

_any_global = _calling.any_global
_clock = _mutation.clock
_Table = _mutation.Table

_MIXED_HOOKS = (
    "Cannot use both regular backward hooks and full backward hooks on a "
    "single Module. Please use only one of them."
)


def _addindent(s_: str, numSpaces: int) -> str:
    """All lines but the first moved right."""
    return s_.replace("\n", "\n" + " " * numSpaces)


def _check_name(kind: str, name: Any) -> None:
    if not isinstance(name, str):
        raise TypeError(f"{kind} name should be a string. Got {torch.typename(name)}")
    if "." in name:
        got = f", got: {name}" if kind == "module" else ""
        raise KeyError(f'{kind} name can\'t contain "."{got}')
    if name == "":
        raise KeyError(f'{kind} name can\'t be empty string ""')


def _forward_unimplemented(self: Any, *input: Any) -> None:
    """What a call computes; every subclass defines it. Call the module, not this: hooks."""
    raise NotImplementedError(
        f'Module [{type(self).__name__}] is missing the required "forward" function'
    )


class Module:
    """The base class of all neural network modules.

    A subclass calls ``super().__init__()``, assigns parameters, buffers and other modules as
    attributes, which registers them, and defines `forward`. Calling the module runs its hooks and
    forward.

    Attributes:
        training: whether the module is in training mode (`train`, `eval`).
    """

    dump_patches: bool = False
    # The version of the layout of the state dict; kept in its metadata.
    _version: int = 1
    # A subclass with further bases sets it so that __init__ passes its arguments on to them.
    call_super_init: bool = False
    _compiled_call_impl: Callable[..., Any] | None = None

    training: bool
    _parameters: dict[str, Parameter | None]
    _buffers: dict[str, Tensor | None]
    _modules: dict[str, Module | None]
    _non_persistent_buffers_set: set[str]
    _is_full_backward_hook: bool | None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if not self.call_super_init and (args or kwargs):
            name = type(self).__name__
            if kwargs:
                raise TypeError(
                    f"{name}.__init__() got an unexpected keyword argument '{next(iter(kwargs))}'"
                )
            raise TypeError(
                f"{name}.__init__() takes 1 positional argument but {len(args) + 1} were given"
            )
        # Straight into __dict__: __setattr__ would look for names to register.
        d = self.__dict__
        d["training"] = True
        d["_parameters"] = _Table()
        d["_buffers"] = _Table()
        d["_non_persistent_buffers_set"] = set()
        d["_backward_pre_hooks"] = OrderedDict()
        d["_backward_hooks"] = OrderedDict()
        d["_is_full_backward_hook"] = None
        d["_forward_hooks"] = OrderedDict()
        d["_forward_hooks_with_kwargs"] = OrderedDict()
        d["_forward_hooks_always_called"] = OrderedDict()
        d["_forward_pre_hooks"] = OrderedDict()
        d["_forward_pre_hooks_with_kwargs"] = OrderedDict()
        d["_state_dict_hooks"] = OrderedDict()
        d["_state_dict_pre_hooks"] = OrderedDict()
        d["_load_state_dict_pre_hooks"] = OrderedDict()
        d["_load_state_dict_post_hooks"] = OrderedDict()
        d["_modules"] = _Table()
        # Not empty: a call has hooks to look at. A list, so that shallow copies share it as they
        # share the tables of hooks.
        d["_hooked"] = []
        d["_stamp"] = _clock[0]
        if self.call_super_init:
            super().__init__(*args, **kwargs)

    forward: Callable[..., Any] = _forward_unimplemented

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the hooks and `forward`."""
        if self._hooked or _any_global:
            return self._wrapped_call_impl(*args, **kwargs)
        if kwargs:
            return self.forward(*args, **kwargs)
        return self.forward(*args)

    def _wrapped_call_impl(self, *args: Any, **kwargs: Any) -> Any:
        if self._compiled_call_impl is not None:
            return self._compiled_call_impl(*args, **kwargs)
        return self._call_impl(*args, **kwargs)

    def _call_impl(self, *args: Any, **kwargs: Any) -> Any:
        return _calling.call_with_hooks(self, self.forward, args, kwargs)

    # The call under a tracer; here a call is a call.
    _slow_forward = _call_impl

    # --- registration -------------------------------------------------------------------------

    def register_buffer(self, name: str, tensor: Tensor | None, persistent: bool = True) -> None:
        """Add a tensor that is state but no parameter, such as a running mean.

        Args:
            name: the attribute.
            tensor: its value, or None: no value, ignored by `to` and `state_dict`.
            persistent: whether `state_dict` contains it.
        """
        if "_buffers" not in self.__dict__:
            raise AttributeError("cannot assign buffer before Module.__init__() call")
        _check_name("buffer", name)
        if hasattr(self, name) and name not in self._buffers:
            raise KeyError(f"attribute '{name}' already exists")
        if tensor is not None and not (
            isinstance(tensor, Tensor) or hasattr(tensor, "__torch_function__")
        ):
            raise TypeError(
                f"cannot assign '{torch.typename(tensor)}' object to buffer '{name}' "
                "(torch Tensor or None required)"
            )
        for hook in _global_buffer_registration_hooks.values():
            replaced = hook(self, name, tensor)
            if replaced is not None:
                tensor = replaced
        self._buffers[name] = tensor
        if persistent:
            self._non_persistent_buffers_set.discard(name)
        else:
            self._non_persistent_buffers_set.add(name)

    def register_parameter(self, name: str, param: Parameter | None) -> None:
        """Add a parameter (or None: the name without a parameter)."""
        if "_parameters" not in self.__dict__:
            raise AttributeError("cannot assign parameter before Module.__init__() call")
        _check_name("parameter", name)
        if hasattr(self, name) and name not in self._parameters:
            raise KeyError(f"attribute '{name}' already exists")
        if param is not None:
            if not isinstance(param, Parameter):
                raise TypeError(
                    f"cannot assign '{torch.typename(param)}' object to parameter '{name}' "
                    "(torch.nn.Parameter or None required)"
                )
            if param.grad_fn:
                raise ValueError(
                    f"Cannot assign non-leaf Tensor to parameter '{name}'. Model "
                    f"parameters must be created explicitly. To express '{name}' "
                    "as a function of another Tensor, compute the value in "
                    "the forward() method."
                )
            for hook in _global_parameter_registration_hooks.values():
                replaced = hook(self, name, param)
                if replaced is not None:
                    param = replaced
        self._parameters[name] = param

    def add_module(self, name: str, module: Module | None) -> None:
        """Add a child module."""
        if not isinstance(module, Module) and module is not None:
            raise TypeError(f"{torch.typename(module)} is not a Module subclass")
        if not isinstance(name, str):
            raise TypeError(f"module name should be a string. Got {torch.typename(name)}")
        if hasattr(self, name) and name not in self._modules:
            raise KeyError(f"attribute '{name}' already exists")
        _check_name("module", name)
        self._modules[name] = _run_registration_hooks(self, name, module)

    def register_module(self, name: str, module: Module | None) -> None:
        """The same as `add_module`."""
        self.add_module(name, module)

    def __setattr__(self, name: str, value: Any) -> None:
        d = self.__dict__
        if not isinstance(value, (Tensor, Module)):
            parameters = d.get("_parameters")
            if parameters is None or not (
                name in parameters or name in d["_modules"] or name in d["_buffers"]
            ):
                super().__setattr__(name, value)
                _clock[0] = d["_stamp"] = _clock[0] + 1
                return
        if not _register(self, name, value):
            super().__setattr__(name, value)
        _clock[0] = d["_stamp"] = _clock[0] + 1

    def __getattr__(self, name: str) -> Any:
        # Only asked when the ordinary lookup has failed.
        d = self.__dict__
        try:
            table = d["_parameters"]
            if name in table:
                return table[name]
            table = d["_modules"]
            if name in table:
                return table[name]
            table = d["_buffers"]
            if name in table:
                return table[name]
        except KeyError:  # before Module.__init__
            if name == "_hooked":
                name = "_backward_hooks"  # what PyTorch finds missing first
        raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")

    def __delattr__(self, name: str) -> None:
        if name in self._parameters:
            del self._parameters[name]
        elif name in self._buffers:
            del self._buffers[name]
            self._non_persistent_buffers_set.discard(name)
        elif name in self._modules:
            del self._modules[name]
        else:
            super().__delattr__(name)
        _clock[0] = self.__dict__["_stamp"] = _clock[0] + 1

    def __dir__(self) -> list[str]:
        names = {*dir(self.__class__), *self.__dict__}
        names.update(self._parameters, self._modules, self._buffers)
        names -= {"_hooked", "_stamp"}
        return sorted(n for n in names if not n[0].isdigit())

    # --- finding ------------------------------------------------------------------------------

    def get_submodule(self, target: str) -> Module:
        """The module at a dotted path; "" is the module itself."""
        module: Any = self
        if target == "":
            return module
        for item in target.split("."):
            if not hasattr(module, item):
                raise AttributeError(module._get_name() + " has no attribute `" + item + "`")
            module = getattr(module, item)
            if not isinstance(module, Module):
                raise AttributeError("`" + item + "` is not an nn.Module")
        return module

    def set_submodule(self, target: str, module: Module, strict: bool = False) -> None:
        """Put a module at a dotted path; with `strict` the path must exist already."""
        if target == "":
            raise ValueError("Cannot set the submodule without a target name!")
        if not isinstance(module, Module):
            raise ValueError(f"`module` is not an nn.Module, found {type(module)}")
        path, _, name = target.rpartition(".")
        parent = self.get_submodule(path)
        if strict and not hasattr(parent, name):
            raise AttributeError(parent._get_name() + " has no attribute `" + name + "`")
        if hasattr(parent, name) and not isinstance(getattr(parent, name), Module):
            raise AttributeError("`" + name + "` is not an nn.Module")
        setattr(parent, name, module)

    def get_parameter(self, target: str) -> Parameter:
        """The parameter at a dotted path."""
        path, _, name = target.rpartition(".")
        module = self.get_submodule(path)
        if not hasattr(module, name):
            raise AttributeError(module._get_name() + " has no attribute `" + name + "`")
        param = getattr(module, name)
        if not isinstance(param, Parameter):
            raise AttributeError("`" + name + "` is not an nn.Parameter")
        return param

    def get_buffer(self, target: str) -> Tensor:
        """The buffer at a dotted path."""
        path, _, name = target.rpartition(".")
        module = self.get_submodule(path)
        if not hasattr(module, name):
            raise AttributeError(module._get_name() + " has no attribute `" + name + "`")
        buffer = getattr(module, name)
        if name not in module._buffers:
            raise AttributeError("`" + name + "` is not a buffer")
        return buffer

    # --- converting ---------------------------------------------------------------------------

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Any:
        if recurse:
            for module in self.children():
                module._apply(fn)
        _conversion.apply_to_tensors(self, fn)
        return self

    def apply(self, fn: Callable[[Module], None]) -> Any:
        """Call fn with every module below, then with this one (as to initialise)."""
        for module in self.children():
            module.apply(fn)
        fn(self)
        return self

    def cuda(self, device: Any = None) -> Any:
        """Move all parameters and buffers to a CUDA device, in place."""
        return self._apply(lambda t: t.cuda(device))

    def ipu(self, device: Any = None) -> Any:
        """Move all parameters and buffers to an IPU, in place."""
        return self._apply(lambda t: t.ipu(device))

    def xpu(self, device: Any = None) -> Any:
        """Move all parameters and buffers to an XPU, in place."""
        return self._apply(lambda t: t.xpu(device))

    def mtia(self, device: Any = None) -> Any:
        """Move all parameters and buffers to an MTIA device, in place."""
        return self._apply(lambda t: t.mtia(device))

    def cpu(self) -> Any:
        """Move all parameters and buffers to the CPU, in place."""
        return self._apply(lambda t: t.cpu())

    def type(self, dst_type: Any) -> Any:
        """Cast all parameters and buffers, integers included, in place."""
        return self._apply(lambda t: t.type(dst_type))

    def float(self) -> Any:
        """Cast floating parameters and buffers to float32, in place."""
        return self._apply(lambda t: t.float() if t.is_floating_point() else t)

    def double(self) -> Any:
        """Cast floating parameters and buffers to float64, in place."""
        return self._apply(lambda t: t.double() if t.is_floating_point() else t)

    def half(self) -> Any:
        """Cast floating parameters and buffers to float16, in place."""
        return self._apply(lambda t: t.half() if t.is_floating_point() else t)

    def bfloat16(self) -> Any:
        """Cast floating parameters and buffers to bfloat16, in place."""
        return self._apply(lambda t: t.bfloat16() if t.is_floating_point() else t)

    def to_empty(self, *, device: Any, recurse: bool = True) -> Any:
        """Give all parameters and buffers uninitialised memory on a device, in place."""
        return self._apply(lambda t: torch.empty_like(t, device=device), recurse=recurse)

    def to(self, *args: Any, **kwargs: Any) -> Any:
        """Move or cast all parameters and buffers, in place; returns the module.

        Forms: ``to(device, dtype, non_blocking)``, ``to(dtype, non_blocking)``,
        ``to(tensor, non_blocking)``, ``to(memory_format=...)``. Integers keep their dtype.
        """
        device, dtype, non_blocking, memory_format = _conversion.parse_to(*args, **kwargs)
        if dtype is not None:
            if not (dtype.is_floating_point or dtype.is_complex):
                raise TypeError(
                    "nn.Module.to only accepts floating point or complex "
                    f"dtypes, but got desired dtype={dtype}"
                )
            if dtype.is_complex:
                warnings.warn(
                    "Complex modules are a new feature under active development whose design may "
                    "change, and some modules might not work as expected when using complex "
                    "tensors as parameters or buffers. Please file an issue at "
                    "https://github.com/pytorch/pytorch/issues/new?template=bug-report.yml if a "
                    "complex module does not work as expected.",
                    stacklevel=2,
                )
        return self._apply(_conversion.converter(device, dtype, non_blocking, memory_format))

    def share_memory(self) -> Any:
        """Move all parameters and buffers to shared memory, in place."""
        return self._apply(lambda t: t.share_memory_())

    # --- hooks --------------------------------------------------------------------------------

    def _add_hook(
        self, table: OrderedDict[int, Any], hook: Any, prepend: bool = False, extra: Any = None
    ) -> RemovableHandle:
        handle = RemovableHandle(table, extra_dict=extra)
        table[handle.id] = hook
        if prepend:
            table.move_to_end(handle.id, last=False)
        _clock[0] = self.__dict__["_stamp"] = _clock[0] + 1
        return handle

    def register_full_backward_pre_hook(
        self, hook: Callable[..., Any], prepend: bool = False
    ) -> RemovableHandle:
        """Call ``hook(module, grad_output) -> None or new grad_output`` before its backward."""
        self._hooked.append(True)
        return self._add_hook(self._backward_pre_hooks, hook, prepend)

    def register_backward_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """The deprecated backward hook; use `register_full_backward_hook`."""
        if self._is_full_backward_hook is True:
            raise RuntimeError(_MIXED_HOOKS)
        self._is_full_backward_hook = False
        self._hooked.append(True)
        return self._add_hook(self._backward_hooks, hook)

    def register_full_backward_hook(
        self, hook: Callable[..., Any], prepend: bool = False
    ) -> RemovableHandle:
        """Call ``hook(module, grad_input, grad_output)`` when the input gradients are known.

        It may return new input gradients. Inputs and outputs may not be modified in place.
        """
        if self._is_full_backward_hook is False:
            raise RuntimeError(_MIXED_HOOKS)
        self._is_full_backward_hook = True
        self._hooked.append(True)
        return self._add_hook(self._backward_hooks, hook, prepend)

    def _get_backward_hooks(self) -> tuple[list[Any], list[Any]]:
        return _calling.backward_hooks_of(self)

    def _get_backward_pre_hooks(self) -> list[Any]:
        return _calling.backward_pre_hooks_of(self)

    def _maybe_warn_non_full_backward_hook(self, inputs: Any, result: Any, grad_fn: Any) -> None:
        _calling.warn_partial_hook(inputs, result, grad_fn)

    def register_forward_pre_hook(
        self, hook: Callable[..., Any], *, prepend: bool = False, with_kwargs: bool = False
    ) -> RemovableHandle:
        """Call ``hook(module, args) -> None or new args`` before `forward`.

        With `with_kwargs`: ``hook(module, args, kwargs) -> None or (new args, new kwargs)``.
        """
        self._hooked.append(True)
        extra = self._forward_pre_hooks_with_kwargs
        handle = self._add_hook(self._forward_pre_hooks, hook, prepend, extra)
        if with_kwargs:
            extra[handle.id] = True
        return handle

    def register_forward_hook(
        self,
        hook: Callable[..., Any],
        *,
        prepend: bool = False,
        with_kwargs: bool = False,
        always_call: bool = False,
    ) -> RemovableHandle:
        """Call ``hook(module, args, output) -> None or new output`` after `forward`.

        With `with_kwargs`: ``hook(module, args, kwargs, output)``. With `always_call` it also runs
        when forward raised.
        """
        self._hooked.append(True)
        extra = [self._forward_hooks_with_kwargs, self._forward_hooks_always_called]
        handle = self._add_hook(self._forward_hooks, hook, prepend, extra)
        if with_kwargs:
            self._forward_hooks_with_kwargs[handle.id] = True
        if always_call:
            self._forward_hooks_always_called[handle.id] = True
        return handle

    # --- state --------------------------------------------------------------------------------

    def __getstate__(self) -> dict[str, Any]:
        state = self.__dict__.copy()
        state.pop("_compiled_call_impl", None)
        state.pop("_stamp", None)
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        d = self.__dict__
        d.update(state)
        # What checkpoints of older versions, and of PyTorch, do not have.
        for name in _HOOK_TABLES:
            if name not in d:
                d[name] = OrderedDict()
        d.setdefault("_non_persistent_buffers_set", set())
        d.setdefault("_is_full_backward_hook", None)
        for name in ("_parameters", "_buffers", "_modules"):
            if name in d and type(d[name]) is not _Table:
                d[name] = _Table(d[name])
        if "_hooked" not in d:
            d["_hooked"] = [True]
        _clock[0] = d["_stamp"] = _clock[0] + 1

    def get_extra_state(self) -> Any:
        """What `state_dict` keeps besides tensors; override it together with `set_extra_state`."""
        raise RuntimeError(_EXTRA_STATE_NOT_OVERRIDDEN.format("get"))

    def set_extra_state(self, state: Any) -> None:
        """Take back what `get_extra_state` returned."""
        raise RuntimeError(_EXTRA_STATE_NOT_OVERRIDDEN.format("set"))

    def _register_state_dict_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """``hook(module, state_dict, prefix, local_metadata)``; what it returns replaces it."""
        if getattr(hook, "_from_public_api", False):
            raise RuntimeError(
                "Cannot register the same function as the state dict post hook that was "
                "previously registered via register_state_dict_post_hook"
            )
        return self._add_hook(self._state_dict_hooks, hook)

    def register_state_dict_post_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Call ``hook(module, state_dict, prefix, local_metadata) -> None`` after `state_dict`."""
        hook._from_public_api = True  # type: ignore[attr-defined]
        return self._add_hook(self._state_dict_hooks, hook)

    def register_state_dict_pre_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Call ``hook(module, prefix, keep_vars)`` before `state_dict`."""
        return self._add_hook(self._state_dict_pre_hooks, hook)

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        extra = type(self).get_extra_state is not Module.get_extra_state
        _state.save_own(self, destination, prefix, keep_vars, extra)

    T_destination = TypeVar("T_destination", bound=dict[str, Any])

    def state_dict(
        self, *args: Any, destination: Any = None, prefix: str = "", keep_vars: bool = False
    ) -> Any:
        """An ordered dict of all parameters and persistent buffers, by dotted name.

        Args:
            destination: a dict to fill instead of a new one.
            prefix: put before every name.
            keep_vars: the tensors themselves, not detached.
        """
        if args:
            warnings.warn(
                "Positional args are being deprecated, use kwargs instead. Refer to "
                "https://pytorch.org/docs/main/generated/torch.nn.Module.html"
                "#torch.nn.Module.state_dict for details.",
                FutureWarning,
                stacklevel=2,
            )
            if destination is None:
                destination = args[0]
            if len(args) > 1 and prefix == "":
                prefix = args[1]
            if len(args) > 2 and keep_vars is False:
                keep_vars = args[2]
        return _state.save(self, destination, prefix, keep_vars)

    def _register_load_state_dict_pre_hook(
        self, hook: Callable[..., Any], with_module: bool = False
    ) -> RemovableHandle:
        wrapped = _WrappedHook(hook, self if with_module else None)
        return self._add_hook(self._load_state_dict_pre_hooks, wrapped)

    def register_load_state_dict_pre_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Call ``hook(module, state_dict, prefix, local_metadata, strict, missing_keys,
        unexpected_keys, error_msgs)`` before the module's own entries are loaded."""
        return self._register_load_state_dict_pre_hook(hook, with_module=True)

    def register_load_state_dict_post_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Call ``hook(module, incompatible_keys)`` after loading; it may edit the two lists."""
        return self._add_hook(self._load_state_dict_post_hooks, hook)

    def _load_from_state_dict(
        self,
        state_dict: Mapping[str, Any],
        prefix: str,
        local_metadata: dict[str, Any],
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        """Load this module's own entries, below `prefix`; problems are added to the lists."""
        extra = type(self).set_extra_state is not Module.set_extra_state
        _state.load_own(
            self,
            state_dict,
            prefix,
            local_metadata,
            strict,
            missing_keys,
            unexpected_keys,
            error_msgs,
            extra,
        )

    def load_state_dict(
        self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False
    ) -> _IncompatibleKeys:
        """Copy parameters and buffers from a state dict into this module and all below it.

        Args:
            state_dict: by dotted name.
            strict: raise when the names do not match exactly.
            assign: make the given tensors the parameters instead of copying their values.

        Returns:
            A named tuple ``(missing_keys, unexpected_keys)``.

        Raises:
            RuntimeError: listing missing and unexpected keys and mismatched sizes.
        """
        return _state.load(self, state_dict, strict, assign)

    # --- iterating ----------------------------------------------------------------------------

    def _named_members(
        self,
        get_members_fn: Callable[[Any], Any],
        prefix: str = "",
        recurse: bool = True,
        remove_duplicate: bool = True,
    ) -> Iterator[tuple[str, Any]]:
        seen = set()
        modules: Any = [(prefix, self)]
        if recurse:
            modules = self.named_modules(prefix=prefix, remove_duplicate=remove_duplicate)
        for path, module in modules:
            for key, value in get_members_fn(module):
                if value is None or value in seen:
                    continue
                if remove_duplicate:
                    seen.add(value)
                yield (f"{path}.{key}" if path else key), value

    def parameters(self, recurse: bool = True) -> Iterator[Parameter]:
        """All parameters, each once."""
        for _, param in self.named_parameters(recurse=recurse):
            yield param

    def named_parameters(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Parameter]]:
        """All parameters with their dotted names."""
        yield from self._named_members(
            lambda module: module._parameters.items(),
            prefix=prefix,
            recurse=recurse,
            remove_duplicate=remove_duplicate,
        )

    def buffers(self, recurse: bool = True) -> Iterator[Tensor]:
        """All buffers, each once."""
        for _, buffer in self.named_buffers(recurse=recurse):
            yield buffer

    def named_buffers(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Tensor]]:
        """All buffers with their dotted names."""
        yield from self._named_members(
            lambda module: module._buffers.items(),
            prefix=prefix,
            recurse=recurse,
            remove_duplicate=remove_duplicate,
        )

    def children(self) -> Iterator[Module]:
        """The direct children, each once."""
        for _, module in self.named_children():
            yield module

    def named_children(self) -> Iterator[tuple[str, Module]]:
        """The direct children with their names, each once."""
        seen = set()
        for name, module in self._modules.items():
            if module is not None and module not in seen:
                seen.add(module)
                yield name, module

    def modules(self, remove_duplicate: bool = True) -> Iterator[Module]:
        """This module and all below it, each once."""
        for _, module in self.named_modules(remove_duplicate=remove_duplicate):
            yield module

    def named_modules(
        self, memo: set[Module] | None = None, prefix: str = "", remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Module]]:
        """This module and all below it with their dotted names, parents first.

        Args:
            memo: modules not to visit again.
            prefix: put before every name.
            remove_duplicate: visit a module that occurs twice only once.
        """
        if memo is None:
            memo = set()
        if self in memo:
            return
        if remove_duplicate:
            memo.add(self)
        yield prefix, self
        for name, module in self._modules.items():
            if module is not None:
                below = f"{prefix}.{name}" if prefix else name
                yield from module.named_modules(memo, below, remove_duplicate)

    # --- training -----------------------------------------------------------------------------

    def train(self, mode: bool = True) -> Any:
        """Set training mode (or, with False, evaluation mode) here and in all modules below."""
        if not isinstance(mode, bool):
            raise ValueError("training mode is expected to be boolean")
        self.training = mode
        for module in self.children():
            module.train(mode)
        return self

    def eval(self) -> Any:
        """Set evaluation mode here and in all modules below."""
        return self.train(False)

    def requires_grad_(self, requires_grad: bool = True) -> Any:
        """Set `requires_grad` of all parameters, in place (False freezes the module)."""
        for param in self.parameters():
            param.requires_grad_(requires_grad)
        _clock[0] = self.__dict__["_stamp"] = _clock[0] + 1
        return self

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Drop the gradients of all parameters, or with `set_to_none=False` fill them with 0."""
        if getattr(self, "_is_replica", False):
            warnings.warn(
                "Calling .zero_grad() from a module created with nn.DataParallel() has no effect. "
                "The parameters are copied (in a differentiable manner) from the original module. "
                "This means they are not leaf nodes in autograd and so don't accumulate "
                "gradients. If you need gradients in your forward method, consider using "
                "autograd.grad instead.",
                stacklevel=2,
            )
        for param in self.parameters():
            grad = param.grad
            if grad is None:
                continue
            if set_to_none:
                param.grad = None
                continue
            if grad.grad_fn is not None:
                grad.detach_()
            else:
                grad.requires_grad_(False)
            grad.zero_()

    # --- printing and the rest ----------------------------------------------------------------

    def _get_name(self) -> str:
        return self.__class__.__name__

    def extra_repr(self) -> str:
        """What the printed form says of the module itself, on one or more lines."""
        return ""

    def __repr__(self) -> str:
        extra = self.extra_repr()
        lines = extra.split("\n") if extra else []
        own = len(lines)
        for key, module in self._modules.items():
            lines.append(f"({key}): " + _addindent(repr(module), 2))
        if not lines:
            body = ""
        elif own == len(lines) == 1:
            body = lines[0]
        else:
            body = "\n  " + "\n  ".join(lines) + "\n"
        return f"{self._get_name()}({body})"

    def _replicate_for_data_parallel(self) -> Any:
        """A shallow copy with tables of its own, for one device."""
        replica = self.__new__(type(self))
        d = replica.__dict__ = self.__dict__.copy()
        d["_parameters"] = _Table()  # replicas have no parameters of their own
        d["_buffers"] = self._buffers.copy()
        d["_modules"] = self._modules.copy()
        d["_is_replica"] = True
        return replica

    def compile(self, *args: Any, **kwargs: Any) -> None:
        """Compile this module's call, in place; the arguments are those of the compiler."""
        self._compiled_call_impl = torch.compile(self._call_impl, *args, **kwargs)
        self._hooked.append(True)


_HOOK_TABLES = (
    "_forward_pre_hooks",
    "_forward_pre_hooks_with_kwargs",
    "_forward_hooks",
    "_forward_hooks_with_kwargs",
    "_forward_hooks_always_called",
    "_state_dict_hooks",
    "_state_dict_pre_hooks",
    "_load_state_dict_pre_hooks",
    "_load_state_dict_post_hooks",
    "_backward_pre_hooks",
    "_backward_hooks",
)
_EXTRA_STATE_NOT_OVERRIDDEN = (
    "Reached a code path in Module.{}_extra_state() that should never be called. "
    "Please file an issue at "
    "https://github.com/pytorch/pytorch/issues/new?template=bug-report.yml to report this bug."
)


def _run_registration_hooks(parent: Module, name: str, module: Module | None) -> Any:
    for hook in _global_module_registration_hooks.values():
        replaced = hook(parent, name, module)
        if replaced is not None:
            module = replaced
    return module


def _remove_from(module: Module, name: str, *tables: str) -> None:
    d = module.__dict__
    for table in tables:
        if name in d[table]:
            if table == "_non_persistent_buffers_set":
                d[table].discard(name)
            else:
                del d[table][name]
    d.pop(name, None)


def _assign_buffer(module: Module, name: str, value: Any) -> None:
    if value is not None and not (
        isinstance(value, Tensor) or hasattr(value, "__torch_function__")
    ):
        raise TypeError(
            f"cannot assign '{torch.typename(value)}' as buffer '{name}' "
            "(torch.nn.Buffer, torch.Tensor or None expected)"
        )
    if isinstance(value, Buffer):
        persistent = value.persistent
    else:
        persistent = name not in module._non_persistent_buffers_set
    register = module.register_buffer
    if (
        getattr(register, "__func__", None) is Module.register_buffer
        or "persistent" in inspect.signature(register).parameters
    ):
        register(name, value, persistent)
        return
    if not persistent:  # an override from before the argument existed
        raise RuntimeError(
            "Registering a non-persistent buffer on a Module subclass that implements "
            "register_buffer() without the persistent argument is not allowed."
        )
    register(name, value)


def _register(module: Module, name: str, value: Any) -> bool:
    """`module.name = value` where value or name asks for registration; False if neither does."""
    d = module.__dict__
    parameters = d.get("_parameters")
    if isinstance(value, Parameter):
        if parameters is None:
            raise AttributeError("cannot assign parameters before Module.__init__() call")
        _remove_from(module, name, "_buffers", "_modules", "_non_persistent_buffers_set")
        module.register_parameter(name, value)
        return True
    if parameters is not None and name in parameters:
        if value is not None:
            raise TypeError(
                f"cannot assign '{torch.typename(value)}' as parameter '{name}' "
                "(torch.nn.Parameter or None expected)"
            )
        module.register_parameter(name, value)
        return True
    modules = d.get("_modules")
    if isinstance(value, Module):
        if modules is None:
            raise AttributeError("cannot assign module before Module.__init__() call")
        _remove_from(module, name, "_parameters", "_buffers", "_non_persistent_buffers_set")
        modules[name] = _run_registration_hooks(module, name, value)
        return True
    if modules is not None and name in modules:
        if value is not None:
            raise TypeError(
                f"cannot assign '{torch.typename(value)}' as child module '{name}' "
                "(torch.nn.Module or None expected)"
            )
        modules[name] = _run_registration_hooks(module, name, value)
        return True
    buffers = d.get("_buffers")
    if isinstance(value, Buffer) or (buffers is not None and name in buffers):
        _assign_buffer(module, name, value)
        return True
    return False
