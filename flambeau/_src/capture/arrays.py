"""NumPy in captured code: arrays are tensors inside, its functions programs of tensors.

The programs stand in `flambeau/_numpy`; they are interpreted in place of NumPy's functions. What
meets constants alone is NumPy's own business. Inside, an array is an instance of `_numpy.ndarray`
over a fake tensor; where it leaves, an ndarray over the bytes of the tensor that the graph made.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from flambeau._src.capture import marks
from flambeau._src.capture.guards import Kind
from flambeau._src.capture.outcome import Unsupported
from flambeau._src.capture.sizes import numbers
from flambeau._src.capture.source import AppliedSource, Source, applied
from flambeau._src.capture.values.constant import is_plain
from flambeau._src.core.interchange import share_array
from flambeau._src.core.slots import SLOTS, slot
from flambeau._src.core.tensor import Tensor

if TYPE_CHECKING:
    from flambeau._src.capture.heap import Heap
    from flambeau._src.capture.session import Session

__all__ = [
    "MARK", "as_number", "as_numbers", "call", "class_of", "enter", "fact", "has_scalar",
    "holds", "is_array", "is_constant", "is_inside", "is_numpy", "left", "method_name",
    "of_tensor", "tensor_over",
]  # fmt: skip

_DEPTH = 8


def _library() -> Any:
    """The module `flambeau._numpy`, which is loaded when an array is first met."""
    return slot("numpy")()


@applied
def tensor_over(array: Any) -> Tensor:
    """A tensor over the bytes of an array, as `torch.from_numpy` gives it."""
    return share_array(array, warn=False)


def is_array(kind: type) -> bool:
    """Whether it is the class of NumPy's arrays."""
    return kind.__name__ == "ndarray" and kind.__module__ == "numpy"


def is_numpy(fn: Any) -> bool:
    """Whether a callable is NumPy's."""
    if type(fn).__module__ in ("numpy", "numpy.random.mtrand"):
        return True
    module = getattr(fn, "__module__", None)
    if type(fn) is types.BuiltinFunctionType and module is None:
        return is_numpy(type(fn.__self__))
    return isinstance(module, str) and module.partition(".")[0] == "numpy"


def is_constant(value: Any) -> bool:
    """Whether it is a scalar or dtype of NumPy's: these never change."""
    if type(value).__module__.partition(".")[0] != "numpy":
        return False
    return hasattr(value, "itemsize") and not is_array(type(value))


def has_scalar(value: Any, depth: int = 0) -> bool:
    """Whether there is a scalar of NumPy's in a value."""
    kind = type(value)
    if kind is tuple or kind is list:
        return depth < _DEPTH and any(has_scalar(v, depth + 1) for v in value)
    if kind is slice:
        return has_scalar((value.start, value.stop, value.step), depth)
    if kind is dict:
        return depth < _DEPTH and any(has_scalar(v, depth + 1) for v in value.values())
    return kind.__module__ == "numpy" and is_constant(value) and hasattr(value, "item")


def as_numbers(
    s: Session, target: Any, run: Callable[..., Any], args: Any, kwargs: Any
) -> tuple[Any, Any]:
    """Arguments with Python's numbers for NumPy's scalars, as operators take them; functions that
    make tensors of them look at their dtypes, which are then said."""
    looks = getattr(target, "__name__", "") in _LOOKING and kwargs.get("dtype") is None
    if looks and len(args) < 2 and not holds((args, kwargs)):
        made = s.native(run, *map(numbers, args), **{k: numbers(v) for k, v in kwargs.items()})
        kwargs = {**kwargs, "dtype": made.dtype}
    return _numbered(args), _numbered(kwargs)


_LOOKING = frozenset(("tensor", "as_tensor", "asarray"))


def as_number(value: Any) -> Any:
    """A scalar of NumPy's as the number that operators take it for."""
    return value.item() if type(value).__module__ == "numpy" and has_scalar(value) else value


def _numbered(value: Any) -> Any:
    kind = type(value)
    if kind is tuple or kind is list:
        return kind([_numbered(v) for v in value])
    if kind is slice:
        return slice(*map(_numbered, (value.start, value.stop, value.step)))
    if kind is dict:
        return {k: _numbered(v) for k, v in value.items()}
    return value.item() if has_scalar(value) else value


def is_inside(value: Any) -> bool:
    """Whether an inside value stands for an array or for a scalar that the program computed."""
    return hasattr(type(value), MARK)


MARK = "_stands_for_numpy"  # on the classes of `flambeau._numpy`: "ndarray" or "generic"


def _is_scalar(value: Any) -> bool:
    return getattr(type(value), MARK) == "generic"  # type: ignore[no-any-return]


def holds(value: Any, depth: int = 0) -> bool:
    """Whether there is an array or tensor in a value."""
    if isinstance(value, Tensor) or is_inside(value):
        return True
    if depth > _DEPTH or not isinstance(value, (tuple, list, dict)):
        return False
    items = value.values() if isinstance(value, dict) else value
    return any(holds(v, depth + 1) for v in items)


# ---- in and out ----


def enter(heap: Heap, value: Any, source: Source) -> Any:
    """The inside form of an outside array."""
    try:
        tensor = tensor_over(value)
    except (TypeError, ValueError) as error:
        raise Unsupported(f"An array enters that has no tensor: {error}") from None
    if not value.flags.writeable:
        raise Unsupported("An array that may not be written enters the function.")
    heap.guard(Kind.TYPE, source, type(value))
    heap.distinct.append(source)
    made = of_tensor(heap.session, heap.enter(tensor, AppliedSource(source, tensor_over.__name__)))
    heap.session.dropped.append(tensor)
    heap.arrays[id(made)] = source
    heap.know_only(value, made, source)
    return made


def of_tensor(s: Session, tensor: Any, name: str = "ndarray") -> Any:
    """An inside array over a fake tensor."""
    return s.heap.made(getattr(_library(), name)(tensor))


def class_of(value: Any) -> type:
    """NumPy's class of an inside array or scalar."""
    found: type = _library().class_of(value)
    return found


def left(s: Session, value: Any) -> tuple[Any, list[Any], Any]:
    """(source, parts, function to call) for an array that leaves; one of source and function."""
    source = s.heap.arrays.get(id(value))
    if source is not None:
        return source, [], None
    return None, [value.tensor, _is_scalar(value)], _library().leave


def method_name(method: types.MethodType) -> str:
    """What NumPy calls a method of an inside array."""
    for base in type(method.__self__).__mro__:
        for name, value in base.__dict__.items():
            if value is method.__func__:
                return name
    raise Unsupported("A method of an array is made in the function.")


# ---- calls ----


def fact(s: Session, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What NumPy itself knows of dtypes and constants."""
    try:
        return fn(*map(numbers, args), **kwargs)
    except NotImplementedError as refusal:
        raise Unsupported(str(refusal), "Write it with tensors.") from None
    except Exception as error:
        return s.raise_(error)


def call(s: Session, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A call of a function or class of NumPy's."""
    name = getattr(fn, "__name__", type(fn).__name__)
    home = getattr(fn, "__module__", None) or type(fn).__module__
    owner = getattr(fn, "__self__", None)
    if home.startswith("numpy.random") or type(owner).__module__.startswith("numpy.random"):
        raise Unsupported(
            f"numpy.random.{name} draws a random number.",
            "Draw it outside of the compiled function, or with torch.",
        )
    ours = _library()
    replacement = _replacement(ours, fn)
    meets = holds(args) or holds(kwargs)
    if replacement is not None and (meets or fn in ours.CREATORS):
        return s.call(replacement, args, kwargs)
    if meets:
        raise Unsupported(f"numpy.{name} has no program of tensors.", "Write it with tensors.")
    if replacement is None and fn not in ours.PLAIN:
        raise Unsupported(f"numpy.{name} is called, of which nothing is known.")
    found = s.native(fn, *map(numbers, args), **{k: numbers(v) for k, v in kwargs.items()})
    if is_array(type(found)):
        return s.call(ours.REPLACEMENTS[ours.ARRAY], (found.tolist(), found.dtype), {})
    plain = is_constant(found) or is_plain(found)
    return found if plain else s.heap.made(found)


def _replacement(ours: Any, fn: Any) -> Any:
    try:
        return ours.REPLACEMENTS.get(fn)
    except TypeError:  # has no hash
        return None


def unwrapped(args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Arguments with the tensors of arrays in their places."""
    return tuple(v.tensor if is_inside(v) else v for v in args)


def _wrapping(s: Session) -> bool:
    """Whether `wrap_numpy` asks: gradients go through its arrays."""
    frame = s.frame
    while frame is not None and frame.code.co_filename != marks.__file__:
        frame = frame.parent
    return frame is not None


def numpy_of(s: Session, t: Any, args: Any, kwargs: Any) -> Any:
    """`tensor.numpy()`."""
    if not s.options.numpy or "numpy" not in SLOTS:
        raise Unsupported("A tensor becomes a NumPy array.", "Keep it a tensor.")
    if kwargs.get("force") or (args and args[0]):
        t = s.call_method(t, "detach")
    elif t.requires_grad and not _wrapping(s):
        return s.raise_(
            RuntimeError(
                "Can't call numpy() on Tensor that requires grad. Use tensor.detach().numpy() "
                "instead."
            )
        )
    return of_tensor(s, t)


def from_numpy(s: Session, args: Any, kwargs: Any) -> Any:
    """`torch.from_numpy(array)`."""
    (value,) = args
    if not is_inside(value) or (_is_scalar(value) and not _wrapping(s)):
        kind = class_of(value) if is_inside(value) else type(value)
        home = "" if kind.__module__ == "builtins" else f"{kind.__module__}."
        name = f"{home}{kind.__qualname__}"
        return s.raise_(TypeError(f"expected np.ndarray (got {name})"))
    return value.tensor


def made_of(s: Session, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`torch.tensor`, `as_tensor` and their kind on an array."""
    t = unwrapped(args)[0]
    if fn.__name__ == "tensor":
        t = s.call_method(t, "clone")
        wants = kwargs.pop("requires_grad", False)
        if wants or len(args) > 1:
            raise Unsupported("torch.tensor of an array is called with requires_grad=.")
    if fn.__name__ in ("tensor", "as_tensor", "asarray"):
        rest = {k: v for k, v in kwargs.items() if v is not None}
        if len(args) > 1:
            rest["dtype"] = args[1]
        return s.call(s.get(t, "to"), (), rest) if rest else t
    raise Unsupported(f"torch.{fn.__name__} is given an array of NumPy's.")
