"""`copy.copy` and `copy.deepcopy` of inside values."""

from __future__ import annotations

import copyreg
import re
import types
from typing import TYPE_CHECKING, Any

from flambeau._src.capture import attributes, library
from flambeau._src.capture.classes import check_end
from flambeau._src.capture.lookup import special
from flambeau._src.capture.natives import CONTAINERS
from flambeau._src.capture.outcome import Unsupported
from flambeau._src.capture.values.constant import ATOMS, is_plain, is_reference
from flambeau._src.core.tensor import Tensor
from flambeau._src.interp.fake import FakeTensor

if TYPE_CHECKING:
    from flambeau._src.capture.session import Session

__all__ = ["deep", "shallow"]

_SAME = (types.FunctionType, types.ModuleType)


def shallow(s: Session, args: Any, kwargs: Any) -> Any:
    """`copy.copy(value)`."""
    (value,) = args
    kind = type(value)
    if kind is FakeTensor:
        raise Unsupported("A tensor is copied by `copy.copy`.", "Use `clone` or `detach`.")
    same = kind in ATOMS or is_reference(value) or isinstance(value, (*_SAME, tuple, frozenset))
    method = special(kind, "__copy__")
    if same and method is None:
        return value
    if type(method) is types.FunctionType:
        return s.call(method, (value,), {})
    s.heap.check_bare(value)
    if kind in CONTAINERS and getattr(value, "__dict__", None):
        raise Unsupported(f"A {kind.__name__} with attributes is copied.")
    if kind in CONTAINERS:
        return s.native(value.copy) if hasattr(value, "copy") else value
    if method is not None:
        return _by_itself(kind, value)
    return _instance(s, value, kind, lambda v: v)


def _by_itself(kind: type, value: Any) -> Any:
    """What a native method that copies gives."""
    if kind in (re.Pattern, re.Match):
        return value
    raise Unsupported(f"A {kind.__name__} is copied by its own methods.")


def deep(s: Session, args: Any, kwargs: Any) -> Any:
    """`copy.deepcopy(value, memo)`."""
    if kwargs or len(args) > 2:
        raise Unsupported("`copy.deepcopy` is called with more than a value and a memo.")
    memo = args[1] if len(args) > 1 and args[1] is not None else s.memo()
    if not any(memo is m for m in s.memos):
        raise Unsupported("`copy.deepcopy` is given a memo, which is to hold addresses.")
    return _Deep(s, memo).copy(args[0])


class _Deep:
    """One deep copy; `memo` is the dict that methods of the user's are given."""

    def __init__(self, session: Session, memo: Any) -> None:
        self.session = session
        self.memo = memo

    def copy(self, value: Any) -> Any:
        """A copy of the value, and of all that it holds."""
        self.session.heap.check_bare(value)
        kind = type(value)
        if is_plain(value) or is_reference(value) or isinstance(value, _SAME):
            return value
        memo = self.memo
        if id(value) in memo:
            return memo[id(value)]
        made = self._make(value, kind)
        if made is not value:
            memo[id(value)] = made
            memo.setdefault(id(memo), []).append(value)  # alive as long as its id is a key
        return made

    def _make(self, value: Any, kind: type) -> Any:
        if kind is FakeTensor:
            return self._tensor(value)
        method = special(kind, "__deepcopy__")
        if type(method) is types.FunctionType:
            return self.session.call(method, (value, self.memo), {})
        if method is not None:
            return _by_itself(kind, value)
        if kind is list:
            made: Any = []
            self.memo[id(value)] = made
            made.extend([self.copy(v) for v in value])
            return made
        if kind is dict:
            made = {}
            self.memo[id(value)] = made
            for k, v in value.items():
                made[self.copy(k)] = self.copy(v)
            return made
        if kind is tuple:
            parts = [self.copy(v) for v in value]
            if id(value) in self.memo:  # one of them holds it
                return self.memo[id(value)]
            same = all(p is v for p, v in zip(parts, value, strict=True))
            return value if same else tuple(parts)
        if kind in (set, frozenset):
            return kind([self.copy(v) for v in value])
        if kind is types.MethodType:
            return types.MethodType(value.__func__, self.copy(value.__self__))
        return _instance(self.session, value, kind, self.copy, self.memo)

    def _tensor(self, t: Any) -> Any:
        if t.requires_grad:
            raise Unsupported("A tensor that requires gradients is copied by `deepcopy`.")
        info = self.session.tensors[id(t)]
        if (
            info.kind is not Tensor
            or info.attrs
            or (info.real is not None and (info.real.__dict__ or info.real.is_sparse))
        ):
            raise Unsupported("A tensor with attributes is copied by `deepcopy`.")
        if not _is_dense(t):
            raise Unsupported("A view of a part of a tensor is copied by `deepcopy`.")
        return self.session.recorder.method("clone", t)


def _is_dense(t: Any) -> bool:
    """Whether the strides are those of some order of the dimensions, without gaps."""
    expected = 1
    for stride, size in sorted(zip(t.stride(), t.shape, strict=True)):
        if size > 1 and stride != expected:
            return False
        expected *= size
    return True


def _instance(s: Session, value: Any, kind: type, copy: Any, memo: Any = None) -> Any:
    """A copy of an object with a `__dict__` or slots."""
    own = ("__reduce_ex__", "__reduce__", "__getstate__", "__setstate__", "__getnewargs__")
    base = object.__reduce_ex__, object.__reduce__, getattr(object, "__getstate__", None)
    changed = any(special(kind, n) not in (*base, None) for n in own)
    if type(special(kind, "__getattribute__")) is types.FunctionType:  # it is asked for these
        raise Unsupported(f"A {kind.__name__} is copied by its own methods.")
    plainly = changed and _is_dataclass_state(kind, own, base)
    changed = changed and not plainly
    native = special(kind, "__new__") is not object.__new__
    if changed or native or kind in copyreg.dispatch_table or library.is_module(value):
        raise Unsupported(f"A {kind.__name__} is copied by its own methods.")
    state: dict[str, Any] = {}
    slots: dict[str, Any] = {}
    known = s.heap.known(value)
    if hasattr(value, "__dict__"):
        state.update(s.heap.whole_dict(known) if known is not None else value.__dict__)
    for c in kind.__mro__:
        for name, slot in c.__dict__.items():
            if type(slot) is types.MemberDescriptorType and slot.__objclass__ is c:
                try:
                    slots[name] = s.get(value, name)
                except BaseException as raised:
                    if not isinstance(getattr(raised, "error", None), AttributeError):
                        raise
    check_end(kind)
    made = s.heap.made(object.__new__(kind))
    if memo is not None:
        memo[id(value)] = made
    for name, v in state.items():
        s.native(object.__setattr__, made, name, copy(v))
    put = attributes.generic_set if plainly else attributes.set_
    for name, v in slots.items():
        put(s, made, name, copy(v))
    return made


def _is_dataclass_state(kind: type, own: tuple[str, ...], base: tuple[Any, ...]) -> bool:
    """Whether all that is changed are the methods of a frozen dataclass with slots."""
    if "__dataclass_fields__" not in kind.__dict__:
        return False
    for name in own:
        method = special(kind, name)
        if method in (*base, None):
            continue
        if getattr(method, "__module__", "") != "dataclasses":
            return False
    return True
