"""Fake tensors: geometry, dtype and device without bytes; operators run their `meta` alone.

A `FakeTensor` is a real tensor object over a storage cell that has no bytes, so views, aliases
and versions work as they do everywhere. `FakeTensorMode` is the lowest of the dispatch modes:
whatever reaches it is answered from the declaration.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from flambeau._src import _native
from flambeau._src.core import state, symbolic
from flambeau._src.core.generator import Generator, default_generator
from flambeau._src.core.layout import contiguous_strides
from flambeau._src.core.slots import slot
from flambeau._src.core.tensor import Tensor, _disabled_torch_function_impl
from flambeau._src.interp import by_value
from flambeau._src.interp.dispatch_mode import (
    FAKE_KEY,
    TorchDispatchMode,
    infra_mode,
    modes_suspended,
    pop_mode,
    push_mode,
)
from flambeau._src.interp.record import dissolved
from flambeau._src.interp.sizes import Dims, symbolic_geometry
from flambeau._src.ops.call import ALL, check_cast, check_writable, dispatch
from flambeau._src.ops.op import Op, TensorSpec, Undeclared, packet
from flambeau._src.ops.overload import OpOverload, overload_of
from flambeau._src.ops.tags import DATA_DEPENDENT, DYNAMIC_SHAPE, INPLACE_VIEWS

__all__ = [
    "DataDependentOutputException",
    "DynamicOutputShapeException",
    "FakeTensor",
    "FakeTensorConverter",
    "FakeTensorMode",
    "UnsupportedFakeTensorException",
    "UnsupportedOperatorException",
    "fake_mode_of",
    "infer_results",
]

_CONSTANT_NUMEL = 1  # results of operators on known values stay known up to this many elements
_LIFTS = ("lift_fresh", "lift_fresh_copy", "lift")


class UnsupportedFakeTensorException(RuntimeError):
    """A tensor of this kind has no fake form."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class UnsupportedOperatorException(RuntimeError):
    """An operator says nothing of its results' geometry (`func`)."""

    def __init__(self, func: OpOverload) -> None:
        super().__init__(func)
        self.func = func


class DynamicOutputShapeException(RuntimeError):
    """The shape of an operator's (`func`'s) result depends on values, which fake tensors lack."""

    def __init__(self, func: OpOverload) -> None:
        super().__init__(func)
        self.func = func


class DataDependentOutputException(RuntimeError):
    """An operator (`func`) reads values, which fake tensors lack."""

    def __init__(self, func: OpOverload) -> None:
        super().__init__(func)
        self.func = func


class FakeTensor(Tensor):
    """A tensor without bytes.

    `constant` is its value where that is known, `fake_mode` its maker.
    """

    __module__ = "flambeau._subclasses.fake_tensor"
    fake_mode: Any
    constant: Any = None
    real_tensor: Any = None

    __torch_function__ = _disabled_torch_function_impl

    @staticmethod
    def __new__(
        cls: type, fake_mode: FakeTensorMode, elem: Tensor, device: Any, constant: Any = None
    ) -> FakeTensor:
        """The geometry of `elem`, on `device`."""
        cell = _native.UntypedStorage.fake(elem.untyped_storage().nbytes(), _native.device(device))
        made: FakeTensor
        made = _native.wrap(cls, cell, elem.dtype, elem.shape, elem.stride(), elem.storage_offset())
        made.fake_mode, made.constant = fake_mode, constant
        if elem.requires_grad:
            made.requires_grad = True
        return made

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        return None

    @property
    def fake_device(self) -> Any:
        """The device that the tensor stands for."""
        return self.device

    @staticmethod
    def from_tensor(t: Tensor, fake_mode: FakeTensorMode) -> FakeTensor:
        """The fake form of a tensor."""
        return fake_mode.from_tensor(t)

    @staticmethod
    def _run_op(op: Op, args: tuple[Any, ...]) -> Any:
        return fake_mode_of(args).run_op(op, args)

    @classmethod
    def __torch_dispatch__(
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        return fake_mode_of(args).run_op(func._op, func._bound(args, kwargs or {}))

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        parts = [f"size={tuple(self.shape)}"]
        if self.device.type != "cpu":
            parts.insert(0, f"device='{self.device}'")
        if (
            (
                self.dtype is not state.process.default_dtype
                and self.dtype.name not in ("int64", "bool")
            )
            or (not self.dtype.is_floating_point and self._sym is None and not self.numel())
            or self.dtype.name in ("int64", "bool")
        ):
            parts.append(f"dtype={self.dtype}")
        if self.grad_fn is not None:
            parts.append(f"grad_fn=<{type(self.grad_fn).__name__}>")
        elif self.requires_grad:
            parts.append("requires_grad=True")
        return f"FakeTensor(..., {', '.join(parts)})"

    def tolist(self) -> Any:
        """The values; DataDependentOutputException unless they are known."""
        if self.constant is not None:
            return self.constant.tolist()
        if not self.numel():
            return [] if self.dim() == 1 else [x.tolist() for x in self.unbind()]
        return self.item() if not self.dim() else [x.tolist() for x in self.unbind()]


def _flat(values: Any) -> Iterator[Tensor]:
    for v in values:
        if isinstance(v, Tensor):
            yield v
        elif isinstance(v, (list, tuple)):
            yield from _flat(v)


def fake_mode_of(args: Any) -> FakeTensorMode:
    """The mode of the fake tensors among the arguments. AssertionError when there are two."""
    found: FakeTensorMode | None = None
    for t in _flat(args):
        if isinstance(t, FakeTensor):
            if found is None:
                found = t.fake_mode
            elif found is not t.fake_mode:
                raise AssertionError(
                    f"Mixing fake modes NYI: {found!r} and {t.fake_mode!r} (a fake tensor belongs "
                    "to the mode that made it)"
                )
    if found is None:
        raise AssertionError("no fake tensor among the arguments")
    return found


class FakeTensorConverter:
    """Real tensors to fake ones: one for each object, aliases over one cell, leaves stay leaves."""

    def __init__(self) -> None:
        self._tensors: dict[int, tuple[Any, FakeTensor]] = {}
        self._cells: dict[int, tuple[Any, Any]] = {}

    def cell(self, real: Any) -> Any:
        """The fake storage cell that stands for a real one."""
        found = self._cells.get(id(real))
        if found is not None and found[0]() is real:
            return found[1]
        made = _native.UntypedStorage.fake(real.nbytes(), real.device)
        self._cells[id(real)] = (weakref.ref(real), made)
        return made

    def known(self, t: Tensor) -> FakeTensor | None:
        """The fake form made before, if there is one."""
        found = self._tensors.get(id(t))
        return found[1] if found is not None and found[0]() is t else None

    def from_real_tensor(
        self,
        fake_mode: FakeTensorMode,
        t: Tensor,
        make_constant: bool = False,
        *,
        source: Any = None,
        dims: Dims | None = None,
    ) -> FakeTensor:
        """The fake form of a real tensor; `dims` says which of its sizes are symbols."""
        found = self.known(t)
        if found is not None and not make_constant:
            return found
        cell = (
            _native.UntypedStorage.fake(t.untyped_storage().nbytes(), t.device)
            if make_constant
            else self.cell(t.untyped_storage())
        )
        fake: FakeTensor
        shape, stride, offset = t.shape, t.stride(), t.storage_offset()
        if dims is not None and fake_mode.shape_env is not None and not make_constant:
            shape, stride, offset = symbolic_geometry(fake_mode.shape_env, t, source, dims)
        fake = _native.wrap(FakeTensor, cell, t.dtype, shape, stride, offset)
        fake.fake_mode = fake_mode
        fake.constant = t if make_constant else None
        if not make_constant:
            self._tensors[id(t)] = (weakref.ref(t), fake)
        fake._is_wrapped_number = t._is_wrapped_number
        if t._inference:
            fake._inference = True
        base = t._base
        if base is not None:
            fake._base = self.from_real_tensor(fake_mode, base)
            fake._nograd_view, fake._multi_view = t._nograd_view, t._multi_view
        if t.requires_grad:
            if t.is_leaf:
                fake.requires_grad = True
            else:
                fake = self._recorded(fake, t)
        if type(t) is not Tensor and getattr(type(t), "__name__", "") in ("Parameter", "Buffer"):
            fake._is_param = type(t).__name__ == "Parameter"
            fake._is_buffer = type(t).__name__ == "Buffer"
        if t.is_leaf and t.requires_grad and t.grad is not None:
            fake.grad = self.from_real_tensor(fake_mode, t.grad)
        return fake

    def _recorded(self, fake: FakeTensor, t: Tensor) -> FakeTensor:
        """A result of a recorded computation stays one: it hangs on a leaf of its own."""
        op = packet("alias").ops[0]
        leaf = _native.alias(FakeTensor, fake)
        leaf.fake_mode = fake.fake_mode
        leaf.requires_grad = True
        node = _native.node(op.node_type, op, [leaf])
        node.args = (_native.geometry(leaf),)
        fake._set_history(node, 0, True)
        return fake


class FakeTensorMode(TorchDispatchMode):
    """While active (or when an argument is fake), operators give fake results.

    allow_non_fake_inputs   real tensors among the arguments are converted; otherwise they are an
                            error (AssertionError)
    allow_fallback_kernels  an operator without a `meta` is run on zeros of the same geometry
    """

    __module__ = "flambeau._subclasses.fake_tensor"
    _mode_key = FAKE_KEY

    def __init__(
        self, *, allow_fallback_kernels: bool = True, allow_non_fake_inputs: bool = False,
        shape_env: Any = None, static_shapes: bool | None = None, export: bool = False,
    ) -> None:  # fmt: skip
        super().__init__()
        self.allow_fallback_kernels = allow_fallback_kernels
        self.allow_non_fake_inputs = allow_non_fake_inputs
        self.shape_env = shape_env
        self.static_shapes = shape_env is None if static_shapes is None else static_shapes
        self.export = export
        self.fake_tensor_converter = FakeTensorConverter()
        self.in_kernel_invocation = False
        self.drawn = 0  # how many operators drew random numbers
        self.enter_stack: list[Any] = []

    def __enter__(self) -> FakeTensorMode:
        outer = infra_mode(FAKE_KEY)
        if outer is not None:
            pop_mode(FAKE_KEY)
        if outer is not self:
            state.thread.fake = [*state.thread.fake, self]
        self.enter_stack.append(outer)
        push_mode(self)
        return self

    def __exit__(self, *error: object) -> None:
        pop_mode(FAKE_KEY)
        outer = self.enter_stack.pop()
        if outer is not self:
            state.thread.fake = state.thread.fake[:-1]
        if outer is not None:
            push_mode(outer)

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        return True

    def from_tensor(
        self, tensor: Tensor, *, static_shapes: Any = None, source: Any = None,
        symbolic_context: Any = None, trace: bool = True,
    ) -> FakeTensor:  # fmt: skip
        """The fake form of a tensor: the same object again for the same tensor."""
        if isinstance(tensor, FakeTensor):
            if tensor.fake_mode is not self:
                raise AssertionError("Mixing fake modes NYI")
            return tensor
        dims = None
        if not (self.static_shapes if static_shapes is None else static_shapes):
            dims = symbolic_context or Dims()
        with modes_suspended(), state.Suspended(ALL & ~state.COMPOSITE):
            return self.fake_tensor_converter.from_real_tensor(
                self, tensor, source=source, dims=dims
            )

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        return self.run_op(func._op, func._bound(args, kwargs or {}))

    def run_higher_order(self, op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The operator's own rule for fake arguments, with this mode active again."""
        with self:
            return op.fake(*args, **kwargs)

    # ---- one operator ----

    def run_op(self, op: Op, args: tuple[Any, ...]) -> Any:
        """The results of an operator on fake tensors."""
        if op.name in _LIFTS and not isinstance(args[0], FakeTensor):
            return self.fake_tensor_converter.from_real_tensor(
                self, args[0].detach(), make_constant=True
            )
        for t in _flat(args):  # a wrapper's own class unwraps it first
            if type(t) is not Tensor and not isinstance(t, FakeTensor) and t._bits & state.DISPATCH:
                return NotImplemented
        known = self._on_constants(op, args)
        if known is not None:
            return known[0]
        args = self._all_fake(op, args)
        self.drawn += op.decl.random
        if op.schema.mutates:
            for i in op.schema.mutates:
                for t in _flat((args[i],)):
                    t.constant = None
        before = state.set_suspended(state.get_suspended() | ALL)
        try:
            return self._run(op, args)
        finally:
            state.set_suspended(before)

    def _all_fake(self, op: Op, args: tuple[Any, ...]) -> tuple[Any, ...]:
        if all(isinstance(t, FakeTensor) and t.fake_mode is self for t in _flat(args)):
            return args

        def one(v: Any) -> Any:
            if isinstance(v, (list, tuple)):
                return type(v)(one(x) for x in v) if not hasattr(v, "_fields") else v
            if not isinstance(v, Tensor):
                return v
            if isinstance(v, FakeTensor):
                if v.fake_mode is not self:
                    raise AssertionError("Mixing fake modes NYI")
                return v
            if v._bits & state.GEOMETRY or v._is_wrapped_number:
                return self._wrap(v)
            if not self.allow_non_fake_inputs and self.fake_tensor_converter.known(v) is None:
                raise AssertionError(
                    "Please convert all Tensors to FakeTensors first or instantiate FakeTensorMode "
                    f"with 'allow_non_fake_inputs'. Found in {overload_of(op)}"
                    f"({', '.join(_shown(x) for x in args)})"
                )
            return self.from_tensor(v)

        return tuple(one(v) for v in args)

    def _on_constants(self, op: Op, args: tuple[Any, ...]) -> tuple[Any] | None:
        """The result computed on known values, when all are known and the result is small."""
        tensors = list(_flat(args))
        if not tensors or any(getattr(t, "constant", None) is None for t in tensors):
            return None
        if op.schema.mutates or op.decl.random:
            return None

        def value(v: Any) -> Any:
            if isinstance(v, Tensor):
                return v.constant
            return [value(x) for x in v] if isinstance(v, (list, tuple)) else v

        with modes_suspended(), state.Suspended(ALL & ~state.COMPOSITE):
            out = dispatch(
                op, tuple(value(v) if isinstance(v, (Tensor, list)) else v for v in args)
            )
        results = list(_flat(out if isinstance(out, (tuple, list)) else (out,)))
        if not results:
            return (out,)
        if isinstance(out, Tensor) and out.numel() <= _CONSTANT_NUMEL and not op.schema.is_view:
            return (
                self.fake_tensor_converter.from_real_tensor(self, out.detach(), make_constant=True),
            )
        return None

    def _run(self, op: Op, args: tuple[Any, ...]) -> Any:
        decl = op.decl
        env = self.shape_env
        if env is not None and decl.kind == "factory":
            by_value.check_extents(args)
        if op.base.name in DATA_DEPENDENT:
            scalar = op.base.name == "_local_scalar_dense"
            if scalar and env is not None and env.allow_scalar_outputs:
                found = by_value.item(env, args[0])
                if found is not None:
                    return found
            raise DataDependentOutputException(overload_of(op))
        if decl.level == "composite":
            return self._composite(op, args)
        if op.base.key in DYNAMIC_SHAPE and not _masks_absent(op, args):
            if decl.by_value is None or op.variant != "functional":
                raise DynamicOutputShapeException(overload_of(op))
            with self, state.Resumed(state.DISPATCH | state.COMPOSITE):
                if env is not None and env.allow_dynamic_output_shape_ops:
                    return self._wrap_all(by_value.extents_by_value(env, op, args))
                return self._wrap_all(decl.by_value(_refusing(op), *args))  # where all is told
        try:
            if op.variant == "inplace":
                return self._inplace(op, args)
            if op.variant == "out":
                return self._out(op, args)
            if op.schema.mutates:
                return self._mutating(op, args)
            return self.results(op, args)
        except BufferError:
            raise DataDependentOutputException(overload_of(op)) from None

    def _composite(self, op: Op, args: tuple[Any, ...]) -> Any:
        with self, state.Resumed(state.DISPATCH | state.COMPOSITE):
            return dissolved(op, args)

    def results(self, op: Op, args: tuple[Any, ...]) -> Any:
        """Fake results of a functional form."""
        decl = op.decl
        if decl.kind == "view" or op.schema.is_view:
            return self._view(op, args)
        if decl.kind == "question":
            return decl.run(*args)  # type: ignore[attr-defined]
        rule = getattr(decl, "fake_run", None)
        if rule is not None:
            with self, state.Resumed(state.DISPATCH | state.COMPOSITE):
                return rule(*args)
        try:
            specs = decl.infer(op, args)
        except Undeclared:
            specs = None
        if specs is not None:
            return self._wrap_all(specs)
        if getattr(decl, "geometry_only", False) and hasattr(decl, "run"):
            return self._view(op, args)
        if decl.decompose is not None and not decl.whole:
            with self, state.Resumed(state.DISPATCH | state.COMPOSITE):
                return decl.decompose(*args)
        if not self.allow_fallback_kernels:
            raise UnsupportedOperatorException(overload_of(op))
        return self._fallback(op, args)

    def _fallback(self, op: Op, args: tuple[Any, ...]) -> Any:
        """Run the kernel on zeros of the same geometry. No random numbers are used up."""

        def zeros(v: Any) -> Any:
            if isinstance(v, Tensor):
                t = _native.empty(v.shape, v.dtype, _native.cpu, v.stride())
                slot("fill_with")(t, 0)
                return t
            return [zeros(x) for x in v] if isinstance(v, list) else v

        streams = [v for v in args if isinstance(v, Generator)] or [default_generator]
        before = [g.get_state() for g in streams] if op.decl.random else []
        try:
            with modes_suspended():
                out = dispatch(op, tuple(zeros(v) for v in args))
        finally:
            for g, kept in zip(streams, before, strict=False):
                g.set_state(kept)
        return self._wrap_all(out)

    def _view(self, op: Op, args: tuple[Any, ...]) -> Any:
        out = op.decl.run(*args)  # type: ignore[attr-defined]
        if isinstance(out, Tensor):
            return self._as_fake(out, args[0])
        return tuple(self._as_fake(v, args[0]) for v in out)

    def _as_fake(self, v: Tensor, source: Any) -> Any:
        if isinstance(v, FakeTensor):
            return v
        fake = _native.alias(FakeTensor, v)
        fake.fake_mode = self
        fake._base = v._base
        fake._nograd_view, fake._multi_view = v._nograd_view, v._multi_view
        if getattr(source, "constant", None) is not None and v.numel() == source.numel():
            fake.constant = None
        return fake

    def _wrap_all(self, specs: Any) -> Any:
        if isinstance(specs, (TensorSpec, Tensor)):
            return self._wrap(specs)
        if isinstance(specs, (tuple, list)):
            return tuple(self._wrap_all(s) for s in specs)
        return specs

    def _wrap(self, spec: Any) -> FakeTensor:
        """A fresh fake tensor of a spec's (or a tensor's) geometry."""
        shape = spec.shape
        if isinstance(spec, Tensor):
            stride: Any = spec.stride()
        else:
            stride = contiguous_strides(shape) if spec.stride is None else spec.stride
        sizes, steps = symbolic.hints(shape) or shape, symbolic.hints(stride) or stride
        last = 0 if 0 in sizes else 1 + sum((n - 1) * s for n, s in zip(sizes, steps, strict=True))
        cell = _native.UntypedStorage.fake(last * spec.dtype.itemsize, spec.device)
        fake: FakeTensor = _native.wrap(FakeTensor, cell, spec.dtype, shape, stride, 0)
        fake.fake_mode = self
        if state.get_inference():
            fake._inference = True
        if isinstance(spec, Tensor):
            fake._is_wrapped_number = spec._is_wrapped_number
        return fake

    def _inplace(self, op: Op, args: tuple[Any, ...]) -> Any:
        target = args[0]
        check_writable(target)
        decl = op.decl
        if op.name in INPLACE_VIEWS and hasattr(decl, "run_inplace"):
            decl.run_inplace(*args)
            target._bump_version()
            return target
        spec = self.results(op.base, args)
        spec = spec[0] if isinstance(spec, tuple) else spec
        if tuple(spec.shape) != tuple(target.shape):
            raise RuntimeError(
                f"output with shape {list(target.shape)} doesn't match the broadcast shape "
                f"{list(spec.shape)}"
            )
        if decl.kind != "copy":
            check_cast(spec.dtype, target.dtype)
        target._bump_version()
        return target

    def _out(self, op: Op, args: tuple[Any, ...]) -> Any:
        n = len(op.decl.out_args)
        outs = args[-n:]
        results = self.results(op.base, args[:-n])
        for o, r in zip(outs, results if isinstance(results, tuple) else (results,), strict=True):
            check_cast(r.dtype, o.dtype)
            if o.shape != r.shape:
                last = _native.UntypedStorage.fake(r.untyped_storage().nbytes(), o.device)
                if o.numel():
                    slot("warn_resized_output")(o, r.shape)
                o._set(last, 0, tuple(r.shape), r.stride(), o.dtype)
            o._bump_version()
        return outs[0] if n == 1 else tuple(outs)

    def _mutating(self, op: Op, args: tuple[Any, ...]) -> Any:
        """An operator whose functional form writes arguments (random fills, `set_`, batch norm)."""
        targets = list(_flat(args[i] for i in op.schema.mutates))
        check_writable(targets)
        returns = op.schema.returns
        if op.name in INPLACE_VIEWS:
            op.decl.run(*args)  # type: ignore[attr-defined]
            result: Any = args[0]
        elif len(returns) == 1 and returns[0].mutates:
            result = args[op.schema.mutates[0]]
        elif not returns:
            result = None
        else:
            result = self.results(op, args)
        for t in targets:
            t._bump_version()
        return result


def _refusing(op: Op) -> Callable[..., Any]:
    """In the place of what makes extents that only running tells."""

    def extent(*bounds: Any) -> Any:
        raise DynamicOutputShapeException(overload_of(op))

    return extent


def _masks_absent(op: Op, args: tuple[Any, ...]) -> bool:
    """Whether the indices of `index` are numbers, which give a known shape."""
    if op.base.key != "index.Tensor":
        return False
    return all(t.dtype.name not in ("bool", "uint8") for t in _flat((args[1],)))


def _shown(v: Any) -> str:
    if isinstance(v, Tensor) and not isinstance(v, FakeTensor):
        with modes_suspended(), state.Suspended(ALL & ~state.COMPOSITE):
            return repr(v)
    return repr(v)


@contextmanager
def maybe_fake_mode(mode: FakeTensorMode | None) -> Iterator[FakeTensorMode]:
    """The given mode, or the active one, or a new one; active inside."""
    mode = mode or infra_mode(FAKE_KEY) or FakeTensorMode(allow_non_fake_inputs=True)
    with mode:
        yield mode


def infer_results(mode: FakeTensorMode, op: Op, args: tuple[Any, ...]) -> Any:
    """The fake results of one call, whatever layers are active."""
    with modes_suspended():
        return mode.run_op(op, args)


# ---- the meta device ----

_NO_META = (
    "aten::{0}: attempted to run this operator with Meta tensors, but there was no fake impl or "
    "Meta kernel registered. Its result depends on values, which Meta tensors do not have."
)


def run_on_meta(op: Op, args: tuple[Any, ...]) -> Any:
    """An operator on meta tensors that its kernel could not run: as a fake run gives it.

    Raises NotImplementedError where a result or its shape depends on values.
    """
    if op.base.name == "_local_scalar_dense":
        raise RuntimeError("Tensor.item() cannot be called on meta tensors")
    if op.base.name in ("_to_copy", "copy"):
        source = args[1] if op.base.name == "copy" else args[0]
        onto = args[0].device if op.base.name == "copy" else args[3] or source.device
        if source.device.type == "meta" and onto.type != "meta":
            raise NotImplementedError("Cannot copy out of meta tensor; no data!")
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    fakes: dict[int, Tensor] = {}

    def enter(v: Any) -> Any:
        if isinstance(v, Tensor):
            fake = mode.from_tensor(v)
            fakes[id(fake)] = v
            return fake
        return [enter(x) for x in v] if isinstance(v, list) else v

    def leave(v: Any) -> Any:
        if isinstance(v, FakeTensor):
            known = fakes.get(id(v))
            return _native.empty(v.shape, v.dtype, v.device, v.stride()) if known is None else known
        return type(v)(leave(x) for x in v) if isinstance(v, (tuple, list)) else v

    try:
        result = infer_results(mode, op, tuple(enter(v) for v in args))
    except (DataDependentOutputException, DynamicOutputShapeException):
        raise NotImplementedError(_NO_META.format(op.base.name)) from None
    for i in op.schema.mutates:
        for t in _flat((args[i],)):
            t._bump_version()
    return leave(result)
