"""Parameters that are functions of other parameters.

Parametrising `module.weight` with f keeps the free tensor in
``module.parametrizations.weight.original`` and makes ``module.weight`` a property that computes
f(original) at every access.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from copy import deepcopy
from typing import Any

import flambeau as torch
from flambeau import Tensor
from flambeau import __future__ as future
from flambeau.nn.modules.container import Module, ModuleDict, ModuleList
from flambeau.nn.parameter import Parameter

__all__ = [
    "cached",
    "ParametrizationList",
    "register_parametrization",
    "is_parametrized",
    "remove_parametrizations",
    "type_before_parametrizations",
    "transfer_parametrizations_and_params",
]


class _Cache:
    """How many `cached` blocks are entered, and what was computed inside."""

    def __init__(self) -> None:
        self.depth = 0
        self.values: dict[tuple[int, str], Tensor | None] = {}


_cache = _Cache()


@contextmanager
def cached() -> Iterator[None]:
    """Inside, each parametrised tensor is computed once, at its first access."""
    _cache.depth += 1
    try:
        yield
    finally:
        _cache.depth -= 1
        if _cache.depth == 0:
            _cache.values = {}


def _register_parameter_or_buffer(module: Module, name: str, X: Tensor) -> None:
    if isinstance(X, Parameter):
        module.register_parameter(name, X)
    else:
        module.register_buffer(name, X)


def _maybe_set(dest: Tensor, src: Tensor) -> None:
    """Give an existing tensor the memory of another."""
    swap = future.get_swap_module_params_on_conversion() or (
        type(dest) not in (Tensor, Parameter) and hasattr(dest, "__tensor_flatten__")
    )
    if not swap:
        dest.set_(src)
        return
    if isinstance(dest, Parameter) and not isinstance(src, Parameter):
        src = Parameter(src, requires_grad=dest.requires_grad)
    torch.utils.swap_tensors(dest, src)


def _check_kept(what: str, names: tuple[str, str], old: Any, new: Any) -> None:
    """A parametrisation may change neither dtype nor shape."""
    for attribute in ("dtype", "shape"):
        before, after = getattr(old, attribute), getattr(new, attribute)
        if before != after:
            raise ValueError(
                what.format(attribute)
                + f"{names[0].format(attribute)}: {before}\n{names[1].format(attribute)}: {after}"
            )


class _Kept:
    """Dtype and shape of a tensor that may be overwritten."""

    def __init__(self, tensor: Tensor) -> None:
        self.dtype = tensor.dtype
        self.shape = tensor.shape


class ParametrizationList(ModuleList):
    """The parametrisations of one tensor, applied in order, and the free tensors behind them.

    Attributes:
        original: the free tensor; or original0, original1, ... if the first parametrisation's
            `right_inverse` gives several.
        unsafe: whether dtype and shape may change.
    """

    original: Tensor
    unsafe: bool

    def __init__(self, modules: Sequence[Module], original: Tensor, unsafe: bool = False) -> None:
        if len(modules) == 0:
            raise ValueError("ParametrizationList requires one or more modules.")
        super().__init__(modules)
        self.unsafe = unsafe
        kept = _Kept(original)
        with torch.no_grad():
            new: Any = original
            for module in reversed(list(self)):
                if hasattr(module, "right_inverse"):
                    with suppress(NotImplementedError):  # as if there were none
                        new = module.right_inverse(new)
        if not isinstance(new, (Tensor, Sequence)):
            raise ValueError(
                "'right_inverse' must return a Tensor or a Sequence of tensors (list, tuple...). "
                f"Got {type(new).__name__}"
            )
        self.is_tensor = isinstance(new, Tensor)
        self.ntensors = 1 if self.is_tensor else len(new)
        if self.is_tensor:
            self._keep_one(original, new)
        else:
            self._keep_several(original, new)
        if not self.unsafe:
            Z = self()
            if not isinstance(Z, Tensor):
                raise ValueError(f"A parametrization must return a tensor. Got {type(Z).__name__}.")
            _check_kept(
                "Registering a parametrization may not change the {} of the tensor, unless"
                " `unsafe` flag is enabled.\n",
                ("unparametrized {}", "parametrized {}"),
                kept,
                Z,
            )

    def _keep_one(self, original: Tensor, new: Tensor) -> None:
        for attribute in ("dtype", "device"):
            before, after = getattr(original, attribute), getattr(new, attribute)
            if before != after:
                raise ValueError(
                    "When `right_inverse` outputs one tensor, it may not change the"
                    f" {attribute}.\noriginal.{attribute}: {before}\n"
                    f"right_inverse(original).{attribute}: {after}"
                )
        # The parameter stays the same object: an optimiser may hold it.
        with torch.no_grad():
            _maybe_set(original, new)
        _register_parameter_or_buffer(self, "original", original)

    def _keep_several(self, original: Tensor, new: Sequence[Any]) -> None:
        for i, originali in enumerate(new):
            if not isinstance(originali, Tensor):
                raise ValueError(
                    "'right_inverse' must return a Tensor or a Sequence of tensors "
                    "(list, tuple...). "
                    f"Got element {i} of the sequence with type {type(originali).__name__}."
                )
            if isinstance(original, Parameter):
                originali = Parameter(originali, original.requires_grad)
            originali.requires_grad_(original.requires_grad)
            _register_parameter_or_buffer(self, f"original{i}", originali)

    def right_inverse(self, value: Tensor) -> None:
        """Set the free tensors so that the parametrised one becomes `value`."""
        with torch.no_grad():
            new: Any = value
            for module in reversed(list(self)):
                if not hasattr(module, "right_inverse"):
                    raise RuntimeError(
                        f"parametrization {type(module).__name__} does not implement right_inverse."
                    )
                new = module.right_inverse(new)
            if self.is_tensor:
                if not isinstance(new, Tensor):
                    raise ValueError(
                        f"`right_inverse` should return a tensor. Got {type(new).__name__}"
                    )
                if new.dtype != self.original.dtype:
                    raise ValueError(
                        f"The tensor returned by `right_inverse` has dtype {new.dtype} "
                        f"while `original` has dtype {self.original.dtype}"
                    )
                _maybe_set(self.original, new)
                return
            if not isinstance(new, Sequence):
                raise ValueError(
                    f"'right_inverse' must return a sequence of tensors. Got {type(new).__name__}."
                )
            if len(new) != self.ntensors:
                raise ValueError(
                    "'right_inverse' must return a sequence of tensors of length "
                    f"{self.ntensors}. Got a sequence of length {len(new)}."
                )
            for i, tensor in enumerate(new):
                original_i = getattr(self, f"original{i}")
                if not isinstance(tensor, Tensor):
                    raise ValueError(
                        f"`right_inverse` must return a sequence of tensors. "
                        f"Got element {i} of type {type(tensor).__name__}"
                    )
                if original_i.dtype != tensor.dtype:
                    raise ValueError(
                        f"Tensor {i} returned by `right_inverse` has dtype {tensor.dtype} "
                        f"while `original{i}` has dtype {original_i.dtype}"
                    )
                _maybe_set(original_i, tensor)

    def forward(self) -> Tensor:
        first, *others = self._modules.values()
        if self.is_tensor:
            x = first(self.original)  # type: ignore[misc]
        else:
            x = first(*(getattr(self, f"original{i}") for i in range(self.ntensors)))  # type: ignore[misc]
        for parametrization in others:
            x = parametrization(x)  # type: ignore[misc]
        return x


def _no_state(self: Any) -> Any:
    raise RuntimeError(
        "Serialization of parametrized modules is only "
        "supported through state_dict(). See:\n"
        "https://pytorch.org/tutorials/beginner/saving_loading_models.html"
        "#saving-loading-a-general-checkpoint-for-inference-and-or-resuming-training"
    )


def _deepcopy(self: Any, memo: dict[int, Any]) -> Any:
    # copy.deepcopy would ask for the state.
    if id(self) in memo:
        return memo[id(self)]
    replica = self.__new__(self.__class__)
    memo[id(self)] = replica
    replica.__dict__ = copy.deepcopy(self.__dict__, memo)
    for name in ("_parameters", "_buffers", "_modules"):
        replica.__dict__[name] = type(self.__dict__[name])(replica.__dict__[name])
    if hasattr(self, "__slots__"):
        for slot in self.__slots__:
            if hasattr(self, slot):
                setattr(replica, slot, deepcopy(getattr(self, slot), memo))
    return replica


def _inject_new_class(module: Module) -> None:
    """Give the module a class of its own, which the properties go to."""
    cls = module.__class__
    names: dict[str, Any] = {"__getstate__": _no_state}
    if not hasattr(cls, "__deepcopy__"):
        names["__deepcopy__"] = _deepcopy
    module.__class__ = type(f"Parametrized{cls.__name__}", (cls,), names)


def _inject_property(module: Module, tensor_name: str) -> None:
    assert not hasattr(module, tensor_name)

    def read(self: Any) -> Tensor:
        parametrization = self.parametrizations[tensor_name]
        if not _cache.depth:
            return parametrization()
        key = (id(module), tensor_name)
        value = _cache.values.get(key)
        if value is None:
            value = _cache.values[key] = parametrization()
        return value

    def write(self: Any, value: Tensor) -> None:
        self.parametrizations[tensor_name].right_inverse(value)

    setattr(module.__class__, tensor_name, property(read, write))


def _check_another(module: Module, tensor_name: str, parametrization: Any) -> None:
    """A further parametrisation must keep dtype and shape, and so must its inverse."""
    Y = getattr(module, tensor_name)
    X = parametrization(Y)
    place = f"module.{tensor_name}"
    if not isinstance(X, Tensor):
        raise ValueError(f"A parametrization must return a tensor. Got {type(X).__name__}.")
    _check_kept(
        "Registering a parametrization may not change the {} of the tensor, unless the `unsafe`"
        " flag is enabled.\n",
        (place + ".{}", f"parametrization({place}).{{}}"),
        Y,
        X,
    )
    if not hasattr(parametrization, "right_inverse"):
        return
    try:
        Z = parametrization.right_inverse(X)
    except NotImplementedError:
        return
    if not isinstance(Z, Tensor):
        raise ValueError(
            f"parametrization.right_inverse must return a tensor. Got: {type(Z).__name__}"
        )
    _check_kept(
        f"The tensor returned by parametrization.right_inverse must have the same {{}} as {place},"
        " unless the `unsafe` flag is enabled.\n",
        (place + ".{}", "returned {}"),
        Y,
        Z,
    )


def register_parametrization(
    module: Module, tensor_name: str, parametrization: Module, *, unsafe: bool = False
) -> Module:
    """Make a parameter or buffer the output of `parametrization`; several are chained.

    Args:
        parametrization: a module; its `right_inverse`, if any, is used to initialise the free
            tensor and for assignments, and may return several tensors.
        unsafe: dtype and shape may change.
    """
    parametrization.train(module.training)
    if is_parametrized(module, tensor_name):
        if not unsafe:
            _check_another(module, tensor_name, parametrization)
        chain: Any = module.parametrizations[tensor_name]  # type: ignore[index]
        chain.append(parametrization)
        chain.unsafe |= unsafe
    elif tensor_name in module._buffers or tensor_name in module._parameters:
        original = getattr(module, tensor_name)
        # Built first: if it raises, the module is as it was.
        parametrizations = ParametrizationList([parametrization], original, unsafe=unsafe)
        delattr(module, tensor_name)
        if not is_parametrized(module):
            _inject_new_class(module)
            module.parametrizations = ModuleDict()
        _inject_property(module, tensor_name)
        module.parametrizations[tensor_name] = parametrizations  # type: ignore[index]
    else:
        raise ValueError(
            f"Module '{module}' does not have a parameter, a buffer, or a "
            f"parametrized element with name '{tensor_name}'"
        )
    return module


def is_parametrized(module: Module, tensor_name: str | None = None) -> bool:
    """Whether the module has a parametrised tensor (of that name)."""
    parametrizations = getattr(module, "parametrizations", None)
    if parametrizations is None or not isinstance(parametrizations, ModuleDict):
        return False
    if tensor_name is None:
        return len(parametrizations) > 0
    return tensor_name in parametrizations


def remove_parametrizations(
    module: Module, tensor_name: str, leave_parametrized: bool = True
) -> Module:
    """Make the tensor an ordinary one again.

    Args:
        leave_parametrized: with its present value; otherwise the free tensor takes its place.
    """
    if not is_parametrized(module, tensor_name):
        raise ValueError(f"Module {module} does not have a parametrization on {tensor_name}")
    chain: Any = module.parametrizations[tensor_name]  # type: ignore[index]
    if chain.is_tensor:
        original = chain.original
        if leave_parametrized:
            with torch.no_grad():
                value = getattr(module, tensor_name)
                # The free tensor takes the value: an optimiser may hold it.
                if type(original) is Tensor:
                    original.set_(value)
                else:
                    try:
                        original.set_(value)
                    except RuntimeError as error:
                        raise RuntimeError(_NO_SET) from error
    elif leave_parametrized:
        value = getattr(module, tensor_name)
        original = Parameter(value) if value.requires_grad else value
    else:
        raise ValueError(
            "Cannot leave unparametrized (`leave_parametrized=False`) a tensor "
            "that is parametrized in terms of a sequence of tensors."
        )
    delattr(module.__class__, tensor_name)
    del module.parametrizations[tensor_name]  # type: ignore[operator]
    _register_parameter_or_buffer(module, tensor_name, original)
    if not is_parametrized(module):
        delattr(module, "parametrizations")
        module.__class__ = module.__class__.__bases__[0]
    return module


_NO_SET = (
    "Calling remove_parametrizations() with leave_parametrized=True "
    "for a parameter that is an instance of a tensor subclass requires "
    "set_() to be implemented correctly for the tensor subclass."
    "Alternatively, one can opt into the swap_tensors path"
    "Either set leave_parametrized=False or provide a working implementation"
    "for set_() in the tensor subclass or set "
    "future.set_swap_module_params_on_conversion(True)."
)


def type_before_parametrizations(module: Module) -> type:
    """The module's class without the one that parametrising gave it."""
    return module.__class__.__bases__[0] if is_parametrized(module) else type(module)


def transfer_parametrizations_and_params(
    from_module: Module, to_module: Module, tensor_name: str | None = None
) -> Module:
    """Copy parametrisations, and the parameters behind them, to another module."""
    if not is_parametrized(from_module):
        return to_module
    source: Any = from_module.parametrizations
    names = source if tensor_name is None else [tensor_name]
    assert isinstance(source, ModuleDict)
    for name in names:
        # A tensor to parametrise, if the module has none of that name.
        if not hasattr(to_module, name):
            setattr(to_module, name, Parameter(getattr(from_module, name)))
        for parametrization in source[name]:
            register_parametrization(to_module, name, parametrization)
        target: Any = to_module.parametrizations[name]  # type: ignore[index]
        if hasattr(source[name], "original"):
            target.original = source[name].original
        else:
            num = 0
            while hasattr(source[name], f"original{num}"):
                setattr(target, f"original{num}", getattr(source[name], f"original{num}"))
                num += 1
    return to_module
