"""Attributes of tensors: facts of their geometry, views as nodes, `grad`, methods."""

from __future__ import annotations

import copy
import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from flambeau._src.capture import overriding, wrappers
from flambeau._src.capture.lookup import MISSING
from flambeau._src.capture.outcome import Unsupported
from flambeau._src.capture.source import AppliedSource, AttrSource, applied
from flambeau._src.core import state
from flambeau._src.core.tensor import Tensor
from flambeau._src.interp.fake import FakeTensor

if TYPE_CHECKING:
    from flambeau._src.capture.session import Session
    from flambeau._src.capture.values.tensors import TensorInfo

__all__ = ["get", "own", "set_"]

_FACTS = frozenset(
    ("shape", "dtype", "device", "ndim", "requires_grad", "is_leaf", "layout", "is_cuda", "is_cpu")
    + (
        "is_sparse",
        "is_meta",
        "is_mkldnn",
        "is_quantized",
        "is_mps",
        "is_xpu",
        "itemsize",
        "nbytes",
    )
    + ("is_nested", "is_sparse_csr", "names", "output_nr", "is_vulkan", "is_ipu", "is_mtia")
)
_VIEWS = frozenset(("data", "T", "mT", "H", "mH", "real", "imag"))


def get(s: Session, t: Any, name: str) -> Any:
    """`t.name`."""
    kind = s.tensors[id(t)].kind
    if kind is not Tensor:
        found = overriding.own_attribute(s, t, s.tensors[id(t)], name)
        if found is MISSING:
            found = overriding.property_of(s, t, kind, name)
        if found is not MISSING:
            return found
    if name in _FACTS:
        return s.native(getattr, t, name)
    if name == "data" and name in s.tensors[id(t)].attrs:
        return s.recorder.method("detach", s.tensors[id(t)].attrs[name])
    if name in _VIEWS:
        return s.recorder.call(getattr, getattr, (t, name), {})
    info = s.tensors[id(t)]
    if name in info.attrs:
        return info.attrs[name]
    if name == "grad":
        return _grad(s, t, info)
    if name == "__class__":
        return info.kind
    if name == "retains_grad":
        return _retains(s, t, info)
    if name == "grad_fn":
        if t.grad_fn is None:
            return None
        raise Unsupported("`grad_fn` of a tensor is read.", "Look at it outside of the function.")
    found = getattr(Tensor, name, MISSING)
    if found is not MISSING:
        if callable(found):
            return types.MethodType(found, t)
        raise Unsupported(f"The attribute {name} of a tensor is read.")
    if info.real is None and info.made_of is not None and name in info.made_of.__dict__:
        return wrappers.attribute(s, t, info, name)
    if info.real is not None and info.source is not None:
        own = getattr(info.real, "__dict__", {})
        if name in own:
            value = s.heap.enter(own[name], AttrSource(info.source, name))
            info.attrs[name] = info.read[name] = value
            return value
        if hasattr(info.kind, name):
            value = getattr(info.kind, name)
            if type(value) in (bool, int, str, type(None)):
                return value
            raise Unsupported(f"The attribute {name} of a {info.kind.__name__} is read.")
    text = f"'{info.kind.__name__}' object has no attribute '{name}'"
    return s.raise_(AttributeError(text))


def _reader(name: str) -> Callable[[Tensor], Any]:
    def read(t: Tensor) -> Any:
        with state.Suspended(state.FUNCTION):
            return getattr(t, name)

    read.__name__ = f"own_{name}"
    return applied(read)


#: Properties of outside tensors, read without asking their classes.
_READERS = {
    name: _reader(name)
    for name in ("grad", "retains_grad", "_backward_hooks", "_post_accumulate_grad_hooks")
}


def own(s: Session, info: TensorInfo, name: str) -> Any:
    """A property of an outside tensor: who looks whether it has changed must not ask the class."""
    assert info.source is not None
    read = _READERS[name]
    asks = overriding.has_say(info.kind)
    source = AppliedSource(info.source, read.__name__) if asks else AttrSource(info.source, name)
    return s.heap.enter(read(info.real), source)


def _retains(s: Session, t: Any, info: Any) -> Any:
    if any(h.tensor is t and h.method == "retain_grad" for h in s.hooks):
        return True
    if any(x is t for x in s.retained):
        return True
    if info.real is None:
        return False
    return own(s, info, "retains_grad")


def _grad(s: Session, t: Any, info: Any) -> Any:
    if info.real is None:
        if t.grad is None:
            return None
        raise Unsupported("The gradient of an inner tensor is read.")
    value = own(s, info, "grad")
    info.attrs["grad"] = info.read["grad"] = value
    return value


def _replace_data(s: Session, t: Any, info: TensorInfo, value: Any) -> None:
    """`t.data = value` of a tensor from outside: from here on the graph's node of t is that of the
    value, whose bytes t gets once the graph has run. One that requires gradients has no node then.
    """
    as_before = info.meta[:3] == (tuple(value.shape), value.stride(), value.dtype)
    plain = info.made_of is None and not overriding.has_say(info.kind)
    plain = plain and s.tensors[id(value)].made_of is None
    if info.real is None or not plain or not as_before or not t.is_leaf:
        raise Unsupported(
            "`data` of a tensor is set.", "Use an in-place method, such as `copy_`, instead."
        )
    if s.recorder.current.parent is not None:
        raise Unsupported("A function given to an operator sets `data` of a tensor.")
    plain_value = s.recorder.method("detach", value)
    s.native(setattr, t, "data", plain_value)
    info = s.tensors[id(t)] = copy.copy(info)  # the placeholder stays the other one's
    info.node = None if t.requires_grad else s.recorder.node_of(plain_value)
    info.attrs["data"] = plain_value


def set_(s: Session, t: Any, name: str, value: Any) -> None:
    """`t.name = value`."""
    info = s.tensors[id(t)]
    if info.kind is not Tensor:
        if overriding.hidden(s, t, name) or overriding.hidden(s, t, "__setattr__"):
            raise Unsupported(f"{name} of a {info.kind.__name__}, whose class has it, is set.")
        if overriding.property_of(s, t, info.kind, name, value) is not MISSING:
            return
    if name == "grad":
        if value is not None and type(value) is not type(t):
            text = (
                f"assigned grad expected to be a Tensor or None but got grad of type "
                f"{type(value).__name__}"
            )
            s.raise_(TypeError(text))
        info.attrs["grad"] = value
        return
    if name == "data" and type(value) is FakeTensor:
        _replace_data(s, t, info, value)
        return
    if name == "requires_grad" and info.real is None and t.is_leaf:
        s.recorder.method("requires_grad_", t, value)
        s.leaves[id(t)] = (s.step, s.stack())
        return
    if name in _FACTS or name in _VIEWS or hasattr(Tensor, name):
        raise Unsupported(
            f"`{name}` of a tensor is set.", "Use an in-place method, such as `copy_`, instead."
        )
    info.attrs[name] = value
