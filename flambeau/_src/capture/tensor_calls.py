"""Tensor functions that are more than a node: state of the thread, facts, values of tensors."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from flambeau._src import _native
from flambeau._src.capture import arrays, backward, forward_ad, overriding, sizes, tensor_hooks
from flambeau._src.capture.outcome import Unsupported
from flambeau._src.capture.sizes import is_symbolic
from flambeau._src.capture.source import AttrSource, ModuleSource
from flambeau._src.core import checks, generator, state
from flambeau._src.core.tensor import Tensor
from flambeau._src.interp import autocast
from flambeau._src.ops.call import aten
from flambeau._src.ops.op import packet
from flambeau._src.ops.overload import overload_of
from flambeau._src.ops.storages import Resize

if TYPE_CHECKING:
    from flambeau._src.capture.session import Session

__all__ = ["CREATORS", "FUNCTIONS", "METHODS", "QUESTIONS", "SETTERS", "set_grad"]

#: Python functions of the library that make tensors of numbers.
CREATORS = frozenset(("tensor", "as_tensor", "asarray", "scalar_tensor", "sparse_coo_tensor"))
#: Python functions of the library without effects that answer about the program's settings.
QUESTIONS = frozenset(
    ("is_tensor", "is_storage", "get_default_dtype", "get_default_device", "promote_types")
    + ("can_cast", "result_type", "typename", "broadcast_shapes", "is_anomaly_enabled")
    + ("is_autocast_enabled", "is_autocast_cpu_enabled", "get_autocast_dtype", "_get_softmax_dim")
    + ("get_autocast_gpu_dtype", "get_autocast_cpu_dtype", "is_autocast_cache_enabled")
    + ("has_torch_function", "has_torch_function_unary", "has_torch_function_variadic")
    + ("get_enum", "is_available", "is_complex", "is_floating_point", "is_warn_always_enabled")
    + (
        "are_deterministic_algorithms_enabled",
        "_canonical_mask",
        "_none_or_dtype",
        "legacy_get_string",
    )
    + ("is_functorch_wrapped_tensor", "is_grad_enabled", "is_inference_mode_enabled", "is_built")
    + ("is_compiled", "current_device", "device_count", "is_initialized", "is_bf16_supported")
)


def set_grad(s: Session, on: bool) -> bool:
    """Recording on or off from here on; returns what it was."""
    s.recorder.effect(_native.set_grad, on)
    return _native.set_grad(on)


#: Functions that set what later operators do: run at once, and nodes of the graph.
_SETTERS = (
    "set_autocast_enabled",
    "set_autocast_dtype",
    "set_autocast_cache_enabled",
    "clear_autocast_cache",
    "autocast_increment_nesting",
    "autocast_decrement_nesting",
)
SETTERS = frozenset(getattr(autocast, name) for name in _SETTERS)


def _setter(name: str) -> Callable[..., Any]:
    fn = getattr(autocast, name)

    def set_(s: Session, args: Any, kwargs: Any) -> Any:
        s.recorder.effect(fn, *args)
        return s.native(fn, *args)

    return set_


def _item(s: Session, t: Any, args: Any, kwargs: Any) -> Any:
    guarded = sizes.held(s, s.tensors[id(t)]) if s.options.scalars else None
    if guarded is not None:
        return guarded
    with s.fake_mode:
        try:
            found = s.native(t.item)
        except Unsupported:
            raise Unsupported(
                "`.item()` gives a value of a tensor to Python.",
                "Keep it a tensor; torch functions take 0-dim tensors for numbers.",
            ) from None
    if is_symbolic(found):
        s.recorder.read(t, found)
    return found


def _tolist(s: Session, t: Any, args: Any, kwargs: Any) -> Any:
    if s.options.scalars and all(type(n) is int for n in t.shape):
        if not t.dim():
            return _item(s, t, (), {})
        parts = s.recorder.method("unbind", t) if t.shape[0] else ()
        return [_tolist(s, part, (), {}) for part in parts]
    with s.fake_mode:
        try:
            return s.native(t.tolist)
        except Unsupported:
            raise Unsupported("`.tolist()` gives values of a tensor to Python.") from None


def _requires_grad_(s: Session, t: Any, args: Any, kwargs: Any) -> Any:
    on = args[0] if args else kwargs.get("requires_grad", True)
    if t.requires_grad == on:
        return t
    if s.tensors[id(t)].real is not None:
        raise Unsupported("`requires_grad` of an outside tensor is changed.")
    made = s.recorder.call("requires_grad_", type(t).requires_grad_, (t, *args), kwargs)
    s.leaves[id(t)] = (s.step, s.stack())
    return made


def _resizing(name: str) -> Callable[..., Any]:
    """`resize_`, `resize_as_` within the bytes that a tensor of the program has: other extents over
    them. A tensor without bytes says what they are, and what is wrong with the arguments."""

    def resize(s: Session, t: Any, args: Any, kwargs: Any) -> Any:
        with s.fake_mode:
            probe = aten.empty((0,), dtype=t.dtype, device=t.device)
            made = s.native(getattr(Tensor, name), probe, *args, **kwargs)
            s.native(Resize.check_recorded, t)
        if s.tensors[id(t)].real is not None:
            raise Unsupported("A tensor from outside is resized.", "Resize a clone of it.")
        if tuple(t.shape) == tuple(made.shape) and kwargs.get("memory_format") is None:
            return t
        have = t.untyped_storage().nbytes() // t.element_size() - t.storage_offset()
        if math.prod(made.shape) > have:
            raise Unsupported("A tensor is resized beyond its bytes.", "Make a new one.")
        where = made.shape, made.stride(), t.storage_offset()
        return s.recorder.method("as_strided_", t, *where)

    return resize


def _refuse(what: str, remedy: str = "") -> Callable[..., Any]:
    def refuse(s: Session, t: Any, args: Any, kwargs: Any) -> Any:
        raise Unsupported(what, remedy)

    return refuse


#: Methods of tensors by name: handlers of (session, tensor, arguments, keywords).
METHODS: dict[str, Callable[..., Any]] = {
    "item": _item,
    "__int__": _item,
    "__float__": _item,
    "__bool__": _item,
    "__index__": _item,
    "tolist": _tolist,
    "numpy": arrays.numpy_of,
    "__array__": _refuse("A tensor becomes a NumPy array.", "Call its `numpy()`."),
    "requires_grad_": _requires_grad_,
    "backward": backward.backward,
    **tensor_hooks.METHODS,
    "data_ptr": _refuse("The address of a tensor is asked for."),
    "storage": _refuse("The storage of a tensor is asked for."),
    "untyped_storage": _refuse("The storage of a tensor is asked for."),
    "__repr__": _refuse("A tensor is made into text."),
    "__str__": _refuse("A tensor is made into text."),
    "__format__": _refuse("A tensor is made into text."),
    "__reduce_ex__": _refuse("A tensor is pickled or copied."),
    "__deepcopy__": _refuse("A tensor is copied by `deepcopy`.", "Use `clone`."),
    "share_memory_": _refuse("A tensor moves to shared memory."),
    "set_": _refuse("The storage of a tensor is replaced."),
    "resize_": _resizing("resize_"),
    "resize_as_": _resizing("resize_as_"),
    "dlpack": _refuse("A tensor is exported."),
    "__dlpack__": _refuse("A tensor is exported."),
}


def _manual_seed(s: Session, args: Any, kwargs: Any) -> Any:
    """A step of the program, in its place among the operators that draw."""
    (seed,) = args or kwargs.values()
    if isinstance(seed, Tensor):
        seed = _item(s, seed, (), {})
    if not is_symbolic(seed):
        if not isinstance(seed, (int, float)):
            raise Unsupported("The seed of random numbers is neither a number nor a tensor.")
        seed = int(seed)
        s.native(generator.Generator().manual_seed, seed)  # its range
    s.recorder.effect(generator.manual_seed, s.recorder.argument(seed))
    module = ModuleSource(generator.__name__)
    return s.heap.enter(generator.default_generator, AttrSource(module, "default_generator"))


def _get_rng_state(s: Session, args: Any, kwargs: Any) -> Any:
    return s.recorder.call(generator.get_rng_state, aten._rng_state, (), {})


def _set_rng_state(s: Session, args: Any, kwargs: Any) -> Any:
    (state_,) = args or kwargs.values()
    if not isinstance(state_, Tensor):
        raise Unsupported("The state of random numbers that is set is no tensor.")
    s.recorder.effect(generator.set_rng_state, s.recorder.argument(state_))


def _is_tensor(s: Session, args: Any, kwargs: Any) -> Any:
    return isinstance(args[0], Tensor)


def _assert(s: Session, args: Any, kwargs: Any) -> Any:
    """`torch._assert`: of tensors checked when the graph runs."""
    condition, message = args if len(args) > 1 else (*args, *kwargs.values())
    if isinstance(condition, Tensor):
        overload = overload_of(next(op for op in packet("_assert_async").ops if op.overload))
        s.recorder.effect(overload, s.recorder.argument(condition), message)
    elif not s.truth(condition):
        s.raise_(AssertionError(message))


def _has_say(s: Session, args: Any, kwargs: Any) -> Any:
    """Whether the class of an argument (or of an item of the one that is a tuple) has a say."""
    return bool(overriding.overriding(s, args, kwargs))


def _checking(fn: Callable[..., Any]) -> Callable[..., Any]:
    """What is checked of numbers is known from there on, or asserted when the program runs."""

    def check(s: Session, args: Any, kwargs: Any) -> Any:
        if args and isinstance(args[0], Tensor):
            raise Unsupported("A condition that is a tensor is checked.")
        return s.native(fn, *args, **kwargs)

    return check


def _device_of_generator(s: Session, args: Any, kwargs: Any) -> Any:
    """`generator.device`, which never changes."""
    source = s.heap.source_of(args[0])
    if source is None:
        raise Unsupported("A random number generator is made in the function.", "Make it outside.")
    return s.heap.enter(args[0].device, AttrSource(source, "device"))


_CHECKS = (
    checks._check, checks._check_index, checks._check_value, checks._check_type,
    checks._check_not_implemented, checks._check_is_size,
)  # fmt: skip

#: Python functions of the library by name.
FUNCTIONS: dict[str, Callable[..., Any]] = (
    {
        "is_tensor": _is_tensor,
        "_assert": _assert,
        "manual_seed": _manual_seed,
        "get_rng_state": _get_rng_state,
        "set_rng_state": _set_rng_state,
        "from_numpy": arrays.from_numpy,
        "device": _device_of_generator,
        "is_grad_enabled": lambda s, a, k: state.get_grad(),
        "has_torch_function": _has_say,
        "has_torch_function_unary": _has_say,
        "has_torch_function_variadic": _has_say,
        "_is_available": lambda s, a, k: autocast._is_available(*a),
    }
    | {name: _setter(name) for name in _SETTERS}
    | {fn.__name__: _checking(fn) for fn in _CHECKS}
    | forward_ad.HANDLERS
)
