"""Tensors that a Module registers by itself when they are assigned to it."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import flambeau as torch
from flambeau import Tensor
from flambeau._src import _native
from flambeau.overrides import _disabled_torch_function_impl

__all__ = [
    "Parameter",
    "UninitializedParameter",
    "is_lazy",
    "Buffer",
    "UninitializedBuffer",
    "UninitializedTensorMixin",
]


class _ParameterMeta(type(Tensor)):
    # A tensor subclass given to Parameter() stays of its own class and is only marked.
    def __instancecheck__(self, instance: Any) -> bool:
        if type.__instancecheck__(self, instance):
            return True
        return (
            self is Parameter
            and isinstance(instance, Tensor)
            and getattr(instance, "_is_param", False) is True
        )


class Parameter(Tensor, metaclass=_ParameterMeta):
    """A leaf tensor that is a parameter of the module it is assigned to.

    Args:
        data: the values, any shape; shared, not copied. Default: an empty tensor.
        requires_grad: whether gradients are wanted (also inside `no_grad`). Default: True.

    A tensor subclass keeps its class: the result is then ``data.detach()``, marked as a parameter.
    """

    def __new__(cls, data: Tensor | None = None, requires_grad: bool = True) -> Any:
        if data is None:
            data = torch.empty(0)
        kind = type(data)
        if kind is Tensor or kind is Parameter:
            return Tensor._make_subclass(cls, data, requires_grad)
        marked = data.detach().requires_grad_(requires_grad)
        if type(marked) is not kind:
            raise RuntimeError(
                f"Creating a Parameter from an instance of type {kind.__name__} "
                "requires that detach() returns an instance of the same type, but return "
                f"type {type(marked).__name__} was found instead. To use the type as a "
                "Parameter, please correct the detach() semantics defined by "
                "its __torch_dispatch__() implementation."
            )
        marked._is_param = True
        return marked

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        if id(self) in memo:
            return memo[id(self)]
        values = self.data.clone(memory_format=torch.preserve_format)
        result = type(self)(values, self.requires_grad)
        memo[id(self)] = result
        return result

    def __repr__(self) -> str:
        return "Parameter containing:\n" + super().__repr__()

    def __reduce_ex__(self, proto: int) -> tuple[Any, ...]:
        # The rebuild functions are torch's: a checkpoint names them.
        state = torch._utils._get_obj_state(self)
        hooks: OrderedDict[int, Any] = OrderedDict()  # hooks of a tensor are not saved
        if not state:
            return torch._utils._rebuild_parameter, (self.data, self.requires_grad, hooks)
        args = (self.data, self.requires_grad, hooks, state)
        return torch._utils._rebuild_parameter_with_state, args

    __torch_function__ = _disabled_torch_function_impl


# What may be asked of a tensor without a shape; all else raises.
_ALLOWED_METHODS = frozenset(
    "__hash__ size copy_ is_complex is_floating_point half float double char short int long cuda"
    " cpu to get_device _has_compatible_shallow_copy_type".split()
)
#: Of these the ones that give a tensor: they work on what stands in for the values.
_CONVERSIONS = frozenset("half float double char short int long cuda cpu to".split())
_PROPERTY_ACCESS = frozenset(("__get__", "__set__", "__delete__"))


class UninitializedTensorMixin:
    """What a tensor without a shape can do: wait for `materialize`."""

    def materialize(
        self, shape: tuple[int, ...], device: Any = None, dtype: torch.dtype | None = None
    ) -> None:
        """Become an ordinary parameter or buffer with uninitialised values of this shape."""
        if device is None:
            device = self.data.device
        if dtype is None:
            dtype = self.data.dtype
        self.data = torch.empty(shape, device=device, dtype=dtype)
        self.__class__ = self.cls_to_become
        own = type(self) is not Tensor  # which layers the class asks for: a plain tensor none
        self._bits = _native.layer_bits(type(self)) if own else 0

    @property
    def shape(self) -> Any:
        raise RuntimeError(
            "Can't access the shape of an uninitialized parameter or buffer. This error usually "
            "happens in `load_state_dict` when trying to load an uninitialized parameter into an "
            "initialized one. Call `forward` to initialize the parameters before accessing their "
            "attributes."
        )

    def share_memory_(self) -> Any:
        raise RuntimeError(
            "Can't share memory on an uninitialized parameter or buffer. Call `forward` to "
            "initialize the parameters before calling `module.share_memory()`."
        )

    def __repr__(self) -> str:
        return f"<{self.__class__.__name__}>"

    def __reduce_ex__(self, proto: int) -> tuple[Any, ...]:
        return self.__class__, (self.requires_grad,)

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        name = getattr(func, "__name__", "")
        if name in _CONVERSIONS:
            data = args[0].data
            made = func(data, *args[1:], **(kwargs or {}))
            if made is data or (made.dtype == data.dtype and made.device == data.device):
                return args[0]
            # A parameter's is plain, and goes into its `data`; a buffer is replaced.
            return made if issubclass(cls, Parameter) else Tensor._make_subclass(cls, made, False)
        if name in _ALLOWED_METHODS or name in _PROPERTY_ACCESS:
            return super().__torch_function__(func, types, args, kwargs or {})
        raise ValueError(
            f"Attempted to use an uninitialized parameter in {func}. "
            "This error happens when you are using a `LazyModule` or "
            f"explicitly manipulating `torch.nn.parameter.{cls.__name__}` "
            "objects. When using LazyModules Call `forward` with a dummy batch "
            "to initialize the parameters before calling torch functions"
        )


def is_lazy(param: Any) -> bool:
    """Whether the tensor still waits for its shape."""
    return isinstance(param, UninitializedTensorMixin)


class UninitializedParameter(UninitializedTensorMixin, Parameter):
    """A parameter whose shape is not known yet; `materialize` makes it a Parameter."""

    cls_to_become = Parameter

    def __new__(cls, requires_grad: bool = True, device: Any = None, dtype: Any = None) -> Any:
        data = torch.empty(0, device=device, dtype=dtype)
        return Tensor._make_subclass(cls, data, requires_grad)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        if id(self) in memo:
            return memo[id(self)]
        result = type(self)(self.requires_grad, self.data.device, self.data.dtype)
        memo[id(self)] = result
        return result


class _BufferMeta(type(Tensor)):
    def __instancecheck__(self, instance: Any) -> bool:
        if type.__instancecheck__(self, instance):
            return True
        return (
            self is Buffer
            and isinstance(instance, Tensor)
            and getattr(instance, "_is_buffer", False) is True
        )


class Buffer(Tensor, metaclass=_BufferMeta):
    """A tensor that a module keeps with its state but does not train.

    Args:
        data: the values; shared, not copied.
        persistent: whether `state_dict` contains it. Default: True.
    """

    def __new__(cls, data: Tensor | None = None, *, persistent: bool = True) -> Any:
        if data is None:
            data = torch.empty(0)
        buffer = data.detach().requires_grad_(data.requires_grad)
        buffer.persistent = persistent
        buffer._is_buffer = True
        return buffer

    __torch_function__ = _disabled_torch_function_impl


class UninitializedBuffer(UninitializedTensorMixin, Tensor):
    """A buffer whose shape is not known yet; `materialize` makes it a tensor."""

    cls_to_become = Tensor

    def __new__(
        cls,
        requires_grad: bool = False,
        device: Any = None,
        dtype: Any = None,
        persistent: bool = True,
    ) -> Any:
        data = torch.empty(0, device=device, dtype=dtype)
        result = Tensor._make_subclass(cls, data, requires_grad)
        result.persistent = persistent
        result._is_buffer = True
        return result
