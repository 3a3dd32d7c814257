"""From a call to a kernel: public function → layers in their order → allocate and compute.

`LAYERS` is filled by interp/ (rank 4) and autograd through the composition root; a call that no
layer wants goes from C to the kernel and never comes here.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from flambeau._src import _native
from flambeau._src.core import dtype as dt
from flambeau._src.core import state
from flambeau._src.core.slots import fill, slot
from flambeau._src.core.tensor import Tensor
from flambeau._src.ops.bind import bind, rename, resolve, takes
from flambeau._src.ops.op import PACKETS, Declaration, Op, Packet, TensorSpec, resolve_lazy
from flambeau._src.ops.refuse import Refusal, signatures

call_bits = _native.call_bits
LAYERS: dict[int, Callable[[Op, tuple[Any, ...]], Any]] = {}
_PUBLIC = state.FUNCTION | state.FUNCTION_MODE | state.PROFILE
_BELOW = ~_PUBLIC
ALL = (1 << 13) - 1
_NONE: dict[str, Any] = {}


def call_packet(
    packet: Packet,
    function: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    fills: bool = False,
) -> Any:
    """A public function's slow path. `function` is what modes and subclasses are shown."""
    bits = call_bits(args, kwargs, 0)
    if bits & _PUBLIC:
        return slot("function_layer")(function, args, kwargs)
    given = kwargs
    if "out" in kwargs or "requires_grad" in kwargs:
        kwargs = dict(kwargs)
    out = kwargs.pop("out", None) if "out" in kwargs else None
    wants = False
    if "requires_grad" in kwargs and packet.makes_tensors:
        wants = kwargs.pop("requires_grad")
        if wants is not None and type(wants) is not bool:
            raise refusal(packet, function, args, given)
    try:
        op, bound = resolve(packet, args, kwargs)
    except TypeError:
        values = (*args, *kwargs.values(), out)
        if not slot("overloaded_args")(values):
            raise refusal(packet, function, args, given) from None
        # An argument that is no tensor has a __torch_function__.
        return slot("function_layer")(
            function, args, kwargs if out is None else {**kwargs, "out": out}
        )
    if out is not None and op.out_op is None and isinstance(out, (tuple, list)):
        try:  # an overload of its own, into as many tensors as there are results
            op, bound = resolve(packet, args, given)
        except TypeError:
            raise refusal(packet, function, args, given) from None
    elif out is not None:
        outs = tuple(out) if isinstance(out, (tuple, list)) else (out,)
        many = len(op.decl.out_args)
        if op.out_op is None or not all(isinstance(o, Tensor) for o in outs):
            raise refusal(packet, function, args, given)
        if isinstance(out, Tensor) != (many == 1):
            raise refusal(packet, function, args, given)
        if len(outs) != many:
            raise TypeError(f"expected tuple of {many} elements but got {len(outs)}")
        return repeatable(function, op.out_op, args, given, bound + outs, bits, named)
    if fills and bits:
        bound = with_options(op, bound)
    if wants:
        return requiring(named(op, dispatch(op, bound)))
    return repeatable(function, op, args, kwargs, bound, bits, named)


def repeatable(
    function: Any,
    op: Op,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    bound: tuple[Any, ...],
    bits: int,
    shown: Callable[[Op, Any], Any],
) -> Any:
    """A call that C repeats (`csrc/tape.c`) when it comes again with the same geometry: C is told
    what the call records, once `run` or the composite's body has been followed. `shown` gives the
    result the form that `function` has it in."""
    records = bits & state.RECORD
    if (
        bits & ~state.RECORD or (records and op.variant == "out") or not op.decl.repeatable
        or not _native.prepare(function, args, kwargs, bound)
    ):  # fmt: skip
        return shown(op, dispatch(op, bound))
    plain = dispatch(op, bound)
    result = shown(op, plain)
    if not records or op.decl.level == "composite":
        record: tuple[Any, ...] | None = (None, None, None, 0, 0)
    else:
        record = slot("record_of")(op, (*args, *kwargs.values()), bound, plain)
    kind = None if type(result) is type(plain) else type(result)
    if record is None:
        _native.describe(None, None, None, None, 0, 0, None)
    else:
        node_op, node_type, template, saves, carries = record
        _native.describe(bound, node_op, node_type, template, saves, carries, kind)
    return result


def requiring(made: Tensor) -> Tensor:
    """What a maker of tensors returns that was told `requires_grad=True`.

    Raises:
        RuntimeError: the dtype has no gradients.
    """
    if not (made.dtype.is_floating_point or made.dtype.is_complex):
        raise RuntimeError("Only Tensors of floating point and complex dtype can require gradients")
    made.requires_grad = True
    return made


def refusal(
    packet: Packet, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> TypeError:
    """What to raise where no overload takes the arguments."""
    method = type(function) is _native.Method
    shown = signatures(packet, method)
    name = getattr(function, "__name__", packet.name)
    kwargs = rename(kwargs, packet.ops[0]) if kwargs else kwargs
    return Refusal(name, shown, args[1:] if method else args, kwargs, takes).error()


def with_options(op: Op, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """The options that a call from Python states even where the user did not, as modes see them."""
    filled = list(args)
    for i, a in enumerate(op.schema.args):
        if filled[i] is None:
            if a.name == "pin_memory":
                filled[i] = False
            elif a.name == "device" and not op.schema.tensor_positions:
                devices = state.thread.devices
                filled[i] = devices[-1] if devices else state.process.default_device
    return tuple(filled)


def named(op: Op, result: Any) -> Any:
    """Several results come as a named tuple where torch gives one (torch.return_types.max)."""
    if type(result) is tuple and len(result) > 1 and op.namespace == "aten":
        fields = [r.name for r in op.base.schema.returns]
        if all(fields):
            suffix = "_out" if op.variant == "out" else ""
            return slot("return_type")(op.base.name + suffix, tuple(fields), result)
    return result


def call_overload(op: Op, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """torch.ops.aten.add.Tensor(x, y): ATen's own signature, no choice among overloads."""
    if call_bits(args, kwargs, 0) & _PUBLIC:
        return slot("function_layer")(op, args, kwargs)
    reasons: list[str] = []
    bound = bind(op, args, rename(kwargs, op) if kwargs else kwargs, reasons)
    if bound is None:
        raise TypeError(
            f"{op.namespace}::{op.name}() {reasons[0] if reasons else 'got wrong arguments'}"
        )
    return dispatch(op, bound)


def dispatch(op: Op, args: tuple[Any, ...]) -> Any:
    """Run a complete call through the layers that are active, the outermost first."""
    if op.writes and state.get_suspended() & state.FUNCTORCH == 0 and state.thread.functorch:
        slot("refuse_captured")(op, args)
    bits = call_bits(args, _NONE, op.bits) & _BELOW
    if bits:
        return LAYERS[1 << (bits.bit_length() - 1)](op, args)
    return run(op, args)


def below(bit: int, op: Op, args: tuple[Any, ...]) -> Any:
    """Go on beneath a layer: it and all outside it are suspended."""
    before = state.set_suspended(state.get_suspended() | (ALL & ~(bit - 1)))
    try:
        return dispatch(op, args)
    finally:
        state.set_suspended(before)


# ---- the innermost layer: the kernel ----


def run(op: Op, args: tuple[Any, ...]) -> Any:
    """Allocate and compute. In-place and out= forms write into what they were given."""
    if _native.pending(args):
        return _native.run_taped(args, _run, op, args)
    return _run(op, args)


def _run(op: Op, args: tuple[Any, ...]) -> Any:
    before = state.set_suspended(ALL)
    try:
        if op.variant == "functional":
            if op.schema.mutates:
                return _mutating(op, args)
            return functional(op, args)
        if op.variant == "inplace":
            return _inplace(op, args)
        return _out(op, args)
    except (RuntimeError, BufferError, ValueError):
        if any(
            isinstance(t, Tensor) and t.device.type == "meta"
            for v in args
            for t in (v if isinstance(v, (list, tuple)) else (v,))
        ):
            return slot("run_on_meta")(op, args)
        raise
    finally:
        state.set_suspended(before)


def functional(op: Op, args: tuple[Any, ...]) -> Any:
    """Run the functional form on real bytes (all layers are suspended)."""
    decl = op.decl
    direct = getattr(decl, "run", None)
    if direct is not None:
        return direct(*args)
    if decl.decompose is not None and "cpu" not in op.kernels and decl.only_decomposes():
        return decl.decompose(*args)
    specs = decl.infer(op, args)
    if isinstance(specs, TensorSpec):
        out = specs.allocate()
        if specs.device.type != "meta":
            decl.compute(op, out, args)
        return out
    outs = tuple(s.allocate() if isinstance(s, TensorSpec) else s for s in specs)
    if not any(isinstance(s, TensorSpec) and s.device.type == "meta" for s in specs):
        decl.compute(op, outs, args)
    return outs


def _mutating(op: Op, args: tuple[Any, ...]) -> Any:
    targets = [args[i] for i in op.schema.mutates]
    for t in targets:
        check_writable(t)
    result = op.decl.run(*args) if hasattr(op.decl, "run") else functional(op, args)
    for t in targets if op.decl.new_version else ():
        for x in t if isinstance(t, (list, tuple)) else (t,):
            if x is not None:
                x._bump_version()
    return result


def check_writable(t: Any) -> None:
    """Refuse writes into inference tensors outside inference mode and into read-only bytes."""
    for x in t if isinstance(t, (list, tuple)) else (t,):
        if isinstance(x, Tensor) and x._inference and not state.get_inference():
            raise RuntimeError(
                "Inplace update to inference tensor outside InferenceMode is not allowed.You can "
                "make a clone to get a normal tensor before doing inplace update.See "
                "https://github.com/pytorch/rfcs/pull/17 for more details."
            )


def overlaps_itself(t: Tensor) -> bool:
    """Whether two elements may share bytes (an expanded dimension)."""
    if not any(s > 1 and st == 0 for s, st in zip(t.shape, t.stride(), strict=True)):
        return False
    return bool(t.numel())


def check_no_self_overlap(t: Tensor) -> None:
    if overlaps_itself(t):
        raise RuntimeError(
            "unsupported operation: more than one element of the written-to tensor refers to a "
            "single memory location. Please clone() the tensor before performing the operation."
        )


def partly_overlaps(a: Tensor, b: Tensor) -> bool:
    """Whether a and b share some bytes without being the same elements in the same order."""
    if a is b or a.untyped_storage() is not b.untyped_storage() or not a.numel() or not b.numel():
        return False
    if a.storage_offset() == b.storage_offset() and a.shape == b.shape and a.stride() == b.stride():
        return False
    return (
        not (_end(a) <= a_start(b) or _end(b) <= a_start(a)) and a._contiguous() and b._contiguous()
    )


def a_start(t: Tensor) -> int:
    return int(t.storage_offset() * t.element_size())


def _end(t: Tensor) -> int:
    last = sum((s - 1) * st for s, st in zip(t.shape, t.stride(), strict=True))
    return int((t.storage_offset() + last + 1) * t.element_size())


def check_partial_overlap(out: Tensor, args: tuple[Any, ...]) -> None:
    for a in args:
        if isinstance(a, Tensor) and partly_overlaps(out, a):
            _refuse_overlap()


def check_no_overlap(out: Tensor, source: Tensor) -> None:
    same = out.untyped_storage() is source.untyped_storage()
    if same and a_start(out) < _end(source) and a_start(source) < _end(out):
        _refuse_overlap()


def _refuse_overlap() -> None:
    raise RuntimeError(
        "unsupported operation: some elements of the input tensor and the written-to tensor refer "
        "to a single memory location. Please clone() the tensor before performing the operation."
    )


def _inplace(op: Op, args: tuple[Any, ...]) -> Any:
    target = args[0]
    check_writable(target)
    base = op.base
    direct = getattr(op.decl, "run_inplace", None)
    if direct is not None:
        direct(*args)
        target._bump_version()
        return target
    if not op.decl.takes_overlap:
        check_no_self_overlap(target)
    check_partial_overlap(target, args[1:])
    into = getattr(op.decl, "compute_into", None)
    if into is not None:
        into(base, target, args)
        target._bump_version()
        return target
    result = functional(base, args)
    if result.shape != target.shape:
        raise RuntimeError(
            f"output with shape {list(target.shape)} doesn't match the broadcast shape "
            f"{list(result.shape)}"
        )
    check_cast(result.dtype, target.dtype)
    copy_into(target, result)
    target._bump_version()
    return target


def check_cast(source: Any, to: Any) -> None:
    if not dt.can_cast(source, to):
        raise RuntimeError(
            f"result type {dt.scalar_name(source)} can't be cast to the desired output type "
            f"{dt.scalar_name(to)}"
        )


def check_out_dtype(op: Op, source: Any, to: Any) -> None:
    """Whether out= may have the dtype `to`, by the declaration's `out_dtype`."""
    if source is to:
        return
    if op.decl.check_out is not None:
        op.decl.check_out(source, to)
    elif op.decl.out_dtype == "cast":
        check_cast(source, to)
    elif op.decl.out_dtype == "factory":
        raise RuntimeError(
            f"dtype {dt.scalar_name(source)} does not match dtype of out parameter "
            f"({dt.scalar_name(to)})"
        )
    else:
        raise RuntimeError(
            f"Expected out tensor to have dtype {dt.c_name(source)}, but got {dt.c_name(to)} "
            "instead"
        )


def copy_into(target: Tensor, source: Tensor) -> None:
    """target[...] = source, converting the dtype; the declaration of copy_ does it."""
    slot("copy_into")(target, source)


def resize_output(out: Tensor, shape: Any, stride: Any = None) -> None:
    """Give an out= tensor the result's shape; a warning when it was not empty."""
    if tuple(out.shape) == tuple(shape):
        return
    if out.numel():
        slot("warn_resized_output")(out, shape)
    slot("resize_to")(out, shape, stride)


def _out(op: Op, args: tuple[Any, ...]) -> Any:
    base, n = op.base, len(op.decl.out_args)
    outs, args = args[-n:], args[:-n]
    for o in outs:
        check_writable(o)
    into = getattr(op.decl, "compute_out", None)
    if into is not None and into(base, outs, args):
        pass
    else:
        results = functional(base, args)
        results = results if isinstance(results, tuple) else (results,)
        for i, (o, r) in enumerate(zip(outs, results, strict=True)):
            check_out_dtype(op, r.dtype, o.dtype)
            if o.device != r.device:
                raise RuntimeError(
                    "Expected all tensors to be on the same device, but found at least two "
                    f"devices, {o.device} and {r.device}!"
                )
            lay_out(op.decl, i, o, r)
            check_no_self_overlap(o)
            copy_into(o, r)
    for o in outs:
        o._bump_version()
    return outs[0] if n == 1 else tuple(outs)


def lay_out(decl: type[Declaration], number: int, out: Tensor, result: Tensor) -> None:
    """Give what stands at `number` of out= the geometry that the declaration tells."""
    if number in decl.out_fresh and not out.numel():
        slot("resize_to")(out, result.shape, result.stride())
    else:
        resize_output(out, result.shape, None if decl.out_rows else result.stride())


def write_out(
    out: Tensor, result: Tensor, decl: type[Declaration] = Declaration, number: int = 0
) -> None:
    """What out= of a composite does with the result: resized, converted where allowed, recorded."""
    check_cast(result.dtype, out.dtype)
    lay_out(decl, number, out, result)
    dispatch(slot("copy_op")(), (out, result, False))


def resize_to(out: Tensor, shape: Any, stride: Any = None) -> None:
    """Re-point out to a geometry of that shape, growing its storage where needed."""
    shape = tuple(shape)
    if stride is None:
        stride, c = [0] * len(shape), 1
        for i in range(len(shape) - 1, -1, -1):
            stride[i] = c
            c *= max(shape[i], 1)
    count = 1
    for n, s in zip(shape, stride, strict=True):
        count = 0 if not n or not count else count + (n - 1) * s
    storage = out.untyped_storage()
    need = (out.storage_offset() + count) * out.element_size() if count else 0
    if need > storage.nbytes():
        storage.resize_(need)
    out._set(storage, out.storage_offset(), shape, tuple(stride))


def warn_resized(out: Tensor, shape: Any) -> None:
    import warnings  # lazy: rarely needed

    _native.unrepeatable()
    warnings.warn(
        f"An output with one or more elements was resized since it had shape {list(out.shape)}, "
        f"which does not match the required output shape {list(shape)}. This behavior is "
        "deprecated, and in a future PyTorch release outputs will not be resized unless they have "
        "zero elements. You can explicitly reuse an out tensor t by resizing it, inplace, to zero "
        "elements with t.resize_(0).",
        UserWarning,
        stacklevel=6,
    )


fill("resize_to", resize_to)
fill("warn_resized_output", warn_resized)
fill("write_out", write_out)
fill("call_overload", call_overload)


# ---- the public callables ----


def fast_of(packet: Packet) -> Any:
    """The C fast path that serves this name: that of the first overload that has one, and of a
    second one that takes numbers where the first takes tensors."""
    first = None
    for op in resolve_lazy(packet):
        fast = op.fast
        if fast is None:
            continue
        if first is None:
            first, chain = fast, op.decl.takes_any_number()
        elif chain and op.decl.takes_any_number():
            first.set_other(fast)  # x > y, and x > 0.5
            break
    return first


def make_callable(packet: Packet, kind: type, name: str | None = None, fills: bool = False) -> Any:
    """The public function or method of a packet, calling C first and Python when C declines. With
    `fills`, options are stated as a call from Python states them.

    Schemas are read, and C learns the fast path, on the first call only: importing stays cheap."""
    fresh = True

    def slow(*args: Any, **kwargs: Any) -> Any:
        nonlocal fresh
        if kind is _native.Method:
            check_receiver(made, args)
        if fresh:
            fresh = False
            made._set_fast(fast_of(packet))
        return call_packet(packet, made, args, kwargs, fills)

    made = kind(name or packet.name, slow)
    return made


def check_receiver(method: Any, args: tuple[Any, ...]) -> None:
    """Refuse a method of Tensor that is called on something else."""
    if not args:
        raise TypeError(f"unbound method TensorBase.{method.__name__}() needs an argument")
    if not isinstance(args[0], Tensor):
        raise TypeError(
            f"descriptor '{method.__name__}' for 'torch._C.TensorBase' objects doesn't apply to a "
            f"'{type(args[0]).__name__}' object"
        )


def method(name: str, function: Callable[..., Any]) -> Any:
    """A method of Tensor whose body is Python; modes and subclasses see it like an operator."""

    def slow(*args: Any, **kwargs: Any) -> Any:
        check_receiver(made, args)
        if call_bits(args, kwargs, 0) & _PUBLIC:
            return slot("function_layer")(made, args, kwargs)
        return function(*args, **kwargs)

    made = _native.Method(name, slow)
    return made


def overridable(function: Callable[..., Any]) -> Callable[..., Any]:
    """A Python-level function or method that modes and subclasses see like an operator."""

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        if call_bits(args, kwargs, 0) & _PUBLIC:
            return slot("override_layer")(wrapper, args, kwargs)
        return function(*args, **kwargs)

    return wrapper


def by_number(name: str, t: Tensor, number: Any) -> Any:
    """t and a number by the overload for numbers, as torch's own bodies call
    it and modes see it."""
    if state.get_active() & ~state.get_suspended():
        overload = PACKETS[("aten", name)].overload("Scalar")
        if overload is not None:
            return dispatch(overload, (t, number))
    return getattr(aten, name)(t, number)


class Namespace:
    """`aten.add(x, y)`: the operators, for bodies and gradients that are written with operators.
    With `fills` they are called as from Python, which states options that the caller left open."""

    def __init__(self, namespace: str, fills: bool = False) -> None:
        self._namespace, self._fills = namespace, fills

    def __getattr__(self, name: str) -> Any:
        packet = PACKETS.get((self._namespace, name))
        if packet is None:
            raise AttributeError(f"no operator is called {self._namespace}::{name}")
        fills = self._fills and packet.makes_tensors
        function = make_callable(packet, _native.Function, fills=fills)
        self.__dict__[name] = function
        return function


aten = Namespace("aten")
called = Namespace("aten", fills=True)
fill("fast_of", lambda name: fast_of(PACKETS[("aten", name)]))
