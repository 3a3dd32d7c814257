"""`Optimizer`: parameter groups, per-parameter state, hooks, and the state dict."""

from __future__ import annotations

import functools
import itertools
import warnings
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Hashable, Iterable
from copy import deepcopy
from typing import Any, TypeAlias, overload

import flambeau as torch
from flambeau.utils.hooks import RemovableHandle

# Custom optimizers import these helpers from here, so that is where they are found.
from ._stepping import (  # noqa: F401
    _default_to_fused_or_foreach,
    _device_dtype_check_for_fused,
    _get_capturable_supported_devices,
    _get_foreach_kernels_supported_devices,
    _get_fused_kernels_supported_devices,
    _get_scalar_dtype,
    _get_value,
    _group_tensors_by_device_and_dtype,
    _stack_if_compiling,
    _to_scalar,
    _use_grad_for_differentiable,
    _view_as_real,
)

__all__ = [
    "Optimizer",
    "register_optimizer_step_pre_hook",
    "register_optimizer_step_post_hook",
]

StateDict: TypeAlias = dict[str, Any]
ParamsT: TypeAlias = (
    "Iterable[torch.Tensor] | Iterable[dict[str, Any]] | Iterable[tuple[str, torch.Tensor]]"
)
OptimizerPreHook: TypeAlias = Callable[..., "tuple[tuple[Any, ...], dict[str, Any]] | None"]
OptimizerPostHook: TypeAlias = Callable[..., None]

_global_optimizer_pre_hooks: OrderedDict[int, OptimizerPreHook] = OrderedDict()
_global_optimizer_post_hooks: OrderedDict[int, OptimizerPostHook] = OrderedDict()

_HOOK_TABLES = (
    "_optimizer_step_pre_hooks",
    "_optimizer_step_post_hooks",
    "_optimizer_state_dict_pre_hooks",
    "_optimizer_state_dict_post_hooks",
    "_optimizer_load_state_dict_pre_hooks",
    "_optimizer_load_state_dict_post_hooks",
)


class _RequiredParameter:
    """The type of `required`, the default of an option that every group has to give."""

    def __repr__(self) -> str:
        return "<required parameter>"


required = _RequiredParameter()


def _register(
    table: OrderedDict[int, Any], hook: Callable[..., Any], prepend: bool = False
) -> RemovableHandle:
    handle = RemovableHandle(table)
    table[handle.id] = hook
    if prepend:
        table.move_to_end(handle.id, last=False)
    return handle


def register_optimizer_step_pre_hook(hook: OptimizerPreHook) -> RemovableHandle:
    """Call ``hook(optimizer, args, kwargs)`` before every step of every optimizer.

    It may return a pair ``(args, kwargs)`` that the step is to be called with. The handle's
    ``remove()`` takes the hook away again.
    """
    return _register(_global_optimizer_pre_hooks, hook)


def register_optimizer_step_post_hook(hook: OptimizerPostHook) -> RemovableHandle:
    """Call ``hook(optimizer, args, kwargs)`` after every step of every optimizer."""
    return _register(_global_optimizer_post_hooks, hook)


class Optimizer:
    """The base of all optimizers.

    Args:
        params: the tensors to optimize; or ``(name, tensor)`` pairs, all or none named; or dicts,
            each a group with the key ``"params"`` and the options in which it differs.
        defaults: the options of a group that does not give them.

    Attributes:
        param_groups: the groups, dicts that hold their parameters under ``"params"``.
        state: what the optimizer remembers of each parameter, by the parameter.
        defaults: as given.
    """

    def __init__(self, params: ParamsT, defaults: dict[str, Any]) -> None:
        self.defaults = defaults
        for table in _HOOK_TABLES:
            setattr(self, table, OrderedDict())
        self._patch_step_function()
        if isinstance(params, torch.Tensor):
            raise TypeError(
                "params argument given to the optimizer should be an iterable of Tensors or "
                f"dicts, but got {torch.typename(params)}"
            )
        self.state: defaultdict[torch.Tensor, Any] = defaultdict(dict)
        self.param_groups: list[dict[str, Any]] = []
        groups: list[Any] = list(params)
        if not groups:
            raise ValueError("optimizer got an empty parameter list")
        if not isinstance(groups[0], dict):
            groups = [{"params": groups}]
        for group in groups:
            self.add_param_group(group)
        self._warned_capturable_if_run_uncaptured = True

    def __getstate__(self) -> dict[str, Any]:
        # Hooks stay behind: they are functions of this process.
        return {name: getattr(self, name) for name in ("defaults", "state", "param_groups")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        for table in _HOOK_TABLES:
            self.__dict__.setdefault(table, OrderedDict())
        self._patch_step_function()
        self.defaults.setdefault("differentiable", False)

    def __repr__(self) -> str:
        lines = [f"{type(self).__name__} ("]
        for index, group in enumerate(self.param_groups):
            lines += [""] * bool(index) + [f"Parameter Group {index}"]
            lines += [f"    {key}: {group[key]}" for key in sorted(group) if key != "params"]
        return "\n".join([*lines, ")"])

    # The step.

    @overload
    def step(self, closure: None = None) -> None: ...

    @overload
    def step(self, closure: Callable[[], Any]) -> Any: ...

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update the parameters once; subclasses say how.

        Args:
            closure: computes the loss and its gradients again; its result is returned.
        """
        raise NotImplementedError(f"{type(self).__name__} does not define step()")

    @staticmethod
    def profile_hook_step(func: Callable[..., Any]) -> Callable[..., Any]:
        """`func`, a step method, with the hooks of the step run around it."""

        @functools.wraps(func)
        def step(*args: Any, **kwargs: Any) -> Any:
            self = args[0]
            for before in (
                *_global_optimizer_pre_hooks.values(),
                *self._optimizer_step_pre_hooks.values(),
            ):
                changed = before(self, args, kwargs)
                if changed is None:
                    continue
                if not (isinstance(changed, tuple) and len(changed) == 2):
                    raise RuntimeError(
                        f"{func} must return None or a tuple of (new_args, new_kwargs), "
                        f"but got {changed}."
                    )
                args, kwargs = changed
            result = func(*args, **kwargs)
            self._optimizer_step_code()
            for after in (
                *self._optimizer_step_post_hooks.values(),
                *_global_optimizer_post_hooks.values(),
            ):
                after(self, args, kwargs)
            return result

        return step

    def _optimizer_step_code(self) -> None:
        """Does nothing: a profiler may look at the optimizer here, after each step."""

    def _patch_step_function(self) -> None:
        # On the class, and when an instance is made: the step may have been given to the class
        # after its definition, and instances may be pickled or copied.
        cls = type(self)
        self._zero_grad_profile_name = f"Optimizer.zero_grad#{cls.__name__}.zero_grad"
        if not getattr(cls.step, "hooked", False):
            wrapped: Any = self.profile_hook_step(cls.step)
            wrapped.hooked = True
            cls.step = wrapped  # type: ignore[method-assign]

    def register_step_pre_hook(self, hook: OptimizerPreHook) -> RemovableHandle:
        """Call ``hook(optimizer, args, kwargs)`` before each step.

        It may return a pair ``(args, kwargs)`` that the step is to be called with.
        """
        return _register(self._optimizer_step_pre_hooks, hook)

    def register_step_post_hook(self, hook: OptimizerPostHook) -> RemovableHandle:
        """Call ``hook(optimizer, args, kwargs)`` after each step."""
        return _register(self._optimizer_step_post_hooks, hook)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget the gradients of all parameters.

        Args:
            set_to_none: drop them; otherwise they are kept, detached, and filled with zeros.
        """
        for group in self.param_groups:
            for p in group["params"]:
                grad = p.grad
                if grad is None:
                    continue
                if set_to_none:
                    p.grad = None
                    continue
                if grad.grad_fn is not None:
                    grad.detach_()
                else:
                    grad.requires_grad_(False)
                grad.zero_()

    # Groups.

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group: a dict with ``"params"`` and the options in which it differs.

        Raises:
            TypeError: where it is not a dict, or holds other things than tensors, or is a set.
            ValueError: for a tensor that is no leaf, one that another group has, or names that
                some have and others have not.
        """
        if not isinstance(param_group, dict):
            raise TypeError(f"param_group must be a dict, but got {type(param_group)}")
        _list_parameters(param_group)
        params = param_group["params"]
        for param in params:
            self._check_parameter(param)
        for name, default in self.defaults.items():
            if default is required and name not in param_group:
                raise ValueError(
                    "parameter group didn't specify a value of required optimization parameter "
                    f"{name}"
                )
            param_group.setdefault(name, default)
        if len(params) != len(set(params)):
            warnings.warn(
                "optimizer contains a parameter group with duplicate parameters; "
                "in future, this will cause an error; "
                "see github.com/pytorch/pytorch/issues/40967 for more information",
                stacklevel=3,
            )
        named = "param_names" in param_group
        if self.param_groups and ("param_names" in self.param_groups[0]) != named:
            raise ValueError(
                "all optimizer param groups should be with/without names. cannot add param group "
                f"{'with' if named else 'without'} names to the optimizer"
            )
        known = set(itertools.chain.from_iterable(g["params"] for g in self.param_groups))
        if not known.isdisjoint(params):
            raise ValueError("some parameters appear in more than one parameter group")
        self.param_groups.append(param_group)

    def _check_parameter(self, param: Any) -> None:
        if not isinstance(param, torch.Tensor):
            raise TypeError(
                "optimizer can only optimize Tensors, but one of the params is "
                + torch.typename(param)
            )
        if self.defaults.get("differentiable") or param.is_leaf or param.retains_grad:
            return
        raise ValueError("can't optimize a non-leaf Tensor")

    @staticmethod
    def _group_tensors_by_device_and_dtype(
        tensorlistlist: list[list[Any]], with_indices: bool = False
    ) -> dict[Any, Any]:
        """The same lists, split by (device, dtype) of the first list: see `_stepping`."""
        if torch.compiler.is_compiling():
            return {(None, None): (tensorlistlist, list(range(len(tensorlistlist[0]))))}
        return _group_tensors_by_device_and_dtype(tensorlistlist, with_indices)

    # The state dict.

    def state_dict(self) -> StateDict:
        """The optimizer's state without its parameters, for `load_state_dict`.

        ``"state"`` holds each parameter's state by a number; ``"param_groups"`` the groups'
        options, with those numbers (counted through all groups) in place of the parameters. The
        tensors are the optimizer's own, not copies.
        """
        for hook in self._optimizer_state_dict_pre_hooks.values():
            hook(self)
        number: dict[int, int] = {}
        groups = []
        first = 0
        for group in self.param_groups:
            params = group["params"]
            for index, param in enumerate(params, first):
                number.setdefault(id(param), index)
            first += len(params)
            packed = {key: value for key, value in group.items() if key != "params"}
            packed["params"] = [number[id(param)] for param in params]
            groups.append(packed)
        state = {
            (number[id(key)] if isinstance(key, torch.Tensor) else key): value
            for key, value in self.state.items()
        }
        result: StateDict = {"state": state, "param_groups": groups}
        for hook in self._optimizer_state_dict_post_hooks.values():
            result = _replaced(hook(self, result), result)
        return result

    def load_state_dict(self, state_dict: StateDict) -> None:
        """Take over a state that `state_dict` gave.

        Parameters are matched by their position. State tensors go to the device of their
        parameter and, where that is floating point, to its dtype; ``step`` only where the group
        is fused or capturable.

        Raises:
            ValueError: where the groups differ in number or size.
        """
        state_dict = state_dict.copy()
        for hook in self._optimizer_load_state_dict_pre_hooks.values():
            state_dict = _replaced(hook(self, state_dict), state_dict)
        saved_groups = deepcopy(state_dict["param_groups"])
        if len(self.param_groups) != len(saved_groups):
            raise ValueError("loaded state dict has a different number of parameter groups")
        param_of: dict[int, torch.Tensor] = {}
        for group, saved in zip(self.param_groups, saved_groups, strict=True):
            if len(group["params"]) != len(saved["params"]):
                raise ValueError(
                    "loaded state dict contains a parameter group "
                    "that doesn't match the size of optimizer's group"
                )
            param_of.update(zip(saved["params"], group["params"], strict=True))
        state: defaultdict[Any, Any] = defaultdict(dict)
        for key, value in state_dict["state"].items():
            if key in param_of:
                saved_of = state_dict["param_groups"]
                state[param_of[key]] = _fitted(param_of[key], value, key, saved_of)
            else:
                state[key] = value
        for group, saved in zip(self.param_groups, saved_groups, strict=True):
            saved["params"] = group["params"]
            if "param_names" in group:
                saved.setdefault("param_names", group["param_names"])
        self.__setstate__({"state": state, "param_groups": saved_groups})
        for hook in self._optimizer_load_state_dict_post_hooks.values():
            hook(self)

    @staticmethod
    def _process_value_according_to_param_policy(
        param: torch.Tensor,
        value: torch.Tensor,
        param_id: int,
        param_groups: list[dict[str, Any]],
        key: Hashable = None,
    ) -> torch.Tensor:
        """A loaded state tensor on the device and in the dtype where this parameter has it."""
        if key == "step":
            group = next((g for g in param_groups if param_id in g["params"]), {})
            if group.get("capturable", False) or group.get("fused", False):
                return value.to(dtype=torch.float32, device=param.device)
            return value
        if param.is_floating_point():
            return value.to(dtype=param.dtype, device=param.device)
        return value.to(device=param.device)

    def register_state_dict_pre_hook(
        self, hook: Callable[[Optimizer], None], prepend: bool = False
    ) -> RemovableHandle:
        """Call ``hook(optimizer)`` before `state_dict` gathers the state."""
        return _register(self._optimizer_state_dict_pre_hooks, hook, prepend)

    def register_state_dict_post_hook(
        self,
        hook: Callable[[Optimizer, StateDict], StateDict | None],
        prepend: bool = False,
    ) -> RemovableHandle:
        """Call ``hook(optimizer, state_dict)``; what it returns, if anything, is the result."""
        return _register(self._optimizer_state_dict_post_hooks, hook, prepend)

    def register_load_state_dict_pre_hook(
        self,
        hook: Callable[[Optimizer, StateDict], StateDict | None],
        prepend: bool = False,
    ) -> RemovableHandle:
        """Call ``hook(optimizer, state_dict)`` before loading, on a shallow copy of the dict.

        It may change the copy or return another dict to load.
        """
        return _register(self._optimizer_load_state_dict_pre_hooks, hook, prepend)

    def register_load_state_dict_post_hook(
        self, hook: Callable[[Optimizer], None], prepend: bool = False
    ) -> RemovableHandle:
        """Call ``hook(optimizer)`` after a state was loaded."""
        return _register(self._optimizer_load_state_dict_post_hooks, hook, prepend)


def _replaced(new: Any, old: Any) -> Any:
    return old if new is None else new


def _list_parameters(group: dict[str, Any]) -> None:
    """Make ``group["params"]`` a list of tensors, with the names, if any, in "param_names"."""
    params = group["params"]
    if isinstance(params, torch.Tensor):
        group["params"] = [params]
        return
    if isinstance(params, set):
        raise TypeError(
            "optimizer parameters need to be organized in ordered collections, but "
            "the ordering of tensors in sets will change between runs. "
            "Please use a list instead."
        )
    params = list(params)
    names = [item[0] for item in params if isinstance(item, tuple)]
    if names:
        if len(names) != len(params):
            raise ValueError(
                "all optimizer params should be with/without names. Some param names are missing"
            )
        params = [item[1] for item in params]
        group["params"], group["param_names"] = params, names
    group["params"] = params


def _fitted(
    param: torch.Tensor,
    value: Any,
    param_id: int,
    groups: list[dict[str, Any]],
    key: Hashable = None,
) -> Any:
    """`value` copied, with every tensor in it as the state of `param` has it."""
    if isinstance(value, torch.Tensor):
        return Optimizer._process_value_according_to_param_policy(
            param, value, param_id, groups, key
        )
    if isinstance(value, dict):
        return {k: _fitted(param, v, param_id, groups, k) for k, v in value.items()}
    # Strings are taken apart character by character by torch and come back as the generator's
    # repr; they are left whole here.
    if isinstance(value, Iterable) and not isinstance(value, (str, bytes)):
        rebuild: Any = type(value)
        return rebuild(_fitted(param, v, param_id, groups) for v in value)
    return value
