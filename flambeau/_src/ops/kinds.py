"""The kinds of operators and what each derives: shapes, dtypes, strides, kernels, in-place forms.

Pointwise   a scalar expression over broadcast operands
Reduction   a row expression over one or more dimensions
View        another geometry over the same bytes
Composite   Python over other operators; dissolves above autograd
Opaque      its own `meta` and `kernel`
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any

from flambeau._src import _native
from flambeau._src.core import dtype as dt
from flambeau._src.core import state
from flambeau._src.core.layout import contiguous_strides, strides_like
from flambeau._src.core.slots import slot
from flambeau._src.core.tensor import Tensor
from flambeau._src.ops.call import (
    aten,
    check_cast,
    check_no_self_overlap,
    check_partial_overlap,
    copy_into,
    overlaps_itself,
    resize_output,
)
from flambeau._src.ops.op import Declaration, Op, TensorSpec, Undeclared
from flambeau._src.ops.promote import number_type, result_type

SIXTEEN = (dt.float16, dt.bfloat16)
_NUMERIC = ("Scalar", "float", "int")


def device_of(args: tuple[Any, ...]) -> Any:
    """The device of the tensor arguments: the first with dimensions, else the first."""
    found, found_dim = None, False
    for a in args:
        if isinstance(a, Tensor):
            d = a.device
            if found is None or (found.type == "cpu" and d.type != "cpu"):
                if found is not None and found_dim:
                    raise RuntimeError(
                        "Expected all tensors to be on the same device, but found at least two "
                        f"devices, {found} and {d}!"
                    )
                found, found_dim = d, a.dim() > 0
            elif d != found and a.dim():
                raise RuntimeError(
                    "Expected all tensors to be on the same device, but found at least two "
                    f"devices, {found} and {d}!"
                )
    return found or state.process.default_device


def scalar_tensor(value: Any, dtype: dt.dtype) -> Tensor:
    """A 0-dim CPU tensor holding a Python number; no layer sees it."""
    t = _native.empty((), dtype, _native.cpu)
    if not _native.store(t, 0, value):
        kind = dtype.is_floating_point or dtype.is_complex
        _native.store(t, 0, bool(value) if dtype is dt.bool_ else value if kind else int(value))
    return t


def cast(t: Tensor, dtype: dt.dtype) -> Tensor:
    """t in another dtype, bytes copied when it differs; no layer sees it."""
    return t if t.dtype is dtype else slot("cast_to")(t, dtype)


def pack_params(values: list[Any], floating: list[bool]) -> bytes | None:
    """Scalar parameters as the kernel reads them: 8-byte slots, double or int64."""
    if not values:
        return None
    return b"".join(
        struct.pack("<d", float(v)) if f else struct.pack("<q", int(v))
        for v, f in zip(values, floating, strict=True)
    )


class Split:
    """A call's arguments, sorted: operands, scalar parameters, and what is
    baked into the kernel."""

    __slots__ = ("plan", "operands", "params", "baked")

    def __init__(self, op: Op, args: tuple[Any, ...]) -> None:
        self.plan: list[tuple[str, int]] = []  # ('t' | 'p' | 'b', index), in schema order
        self.operands: list[Any] = []
        self.params: list[Any] = []
        self.baked: list[Any] = []
        for a, v in zip(op.schema.args, args, strict=False):
            if a.type == "Tensor" and v is not None and not a.is_list:
                self.plan.append(("t", len(self.operands)))
                self.operands.append(v)
            elif (
                a.type in _NUMERIC
                and not a.is_list
                and v is not None
                and type(v) is not complex
                and not op.decl.bakes(a.name, v)
            ):
                self.plan.append(("p", len(self.params)))
                self.params.append(v)
            else:
                self.plan.append(("b", len(self.baked)))
                self.baked.append(v)

    @classmethod
    def of(cls, operands: list[Any], params: list[Any], baked: list[Any]) -> Split:
        """Arguments that are sorted already, in this order."""
        self = cls.__new__(cls)
        self.operands, self.params, self.baked = operands, params, baked
        groups = (("t", operands), ("p", params), ("b", baked))
        self.plan = [(g, i) for g, values in groups for i in range(len(values))]
        return self

    def adapter(self, expr: Callable[..., Any]) -> Callable[..., Any]:
        """expr as lowering calls it: operands, then parameters."""
        plan, baked, n = tuple(self.plan), tuple(self.baked), len(self.operands)

        def adapted(k: Any, *values: Any) -> Any:
            groups = {"t": values[:n], "p": values[n:], "b": baked}
            return expr(k, *[groups[g][i] for g, i in plan])

        return adapted


def check_result_shape(target: Tensor, shape: Any) -> None:
    """Refuse an in-place result that the target cannot hold."""
    if tuple(shape) != tuple(target.shape):
        raise RuntimeError(
            f"output with shape {list(target.shape)} doesn't match the broadcast shape "
            f"{list(shape)}"
        )


class Pointwise(Declaration):
    """A scalar expression applied to every element of broadcast operands.

    promotion   'default' | 'int_to_float' | 'bool' (computed in the common type, result bool) |
                'complex_to_real' | 'same' (each operand keeps its dtype; the first gives the
                result's)
    """

    kind = "pointwise"
    out_dtype = "cast"
    inplace: bool | str = True
    out: bool | str = True
    promotion = "default"
    n_outputs = 1
    fast_numbers: int | None = (
        None  # C may take Python numbers: 1 anywhere, 2 not first (default: as `numbers`)
    )
    lies_like_self = (
        False  # the result is `empty_like(self)`; of out= only what must be resized is not
    )
    number_operands = False  # a Scalar argument counts as a 0-dim operand in the result's geometry

    @classmethod
    def takes_any_number(cls) -> bool:
        def home(name: str) -> type:
            return next(c for c in cls.__mro__ if name in c.__dict__)

        return home("bakes") is Declaration and home("check") in (Declaration, Pointwise)

    @classmethod
    def common_dtype(cls, op: Op, args: tuple[Any, ...]) -> dt.dtype:
        """The dtype in which the operands are computed."""
        common = result_type(
            v
            for a, v in zip(op.schema.args, args, strict=False)
            if a.type in ("Tensor", "Scalar") and a.name not in cls.apart
        )
        if cls.promotion == "int_to_float" and dt.is_integral(common):
            return state.process.default_dtype
        return common

    apart: tuple[str, ...] = ("alpha", "value")  # arguments that do not take part in promotion
    keep: tuple[str, ...] = ()  # operands that keep their own dtype (where's condition)

    @classmethod
    def result_dtype(cls, common: dt.dtype) -> dt.dtype:
        if cls.promotion == "bool":
            return dt.bool_
        if cls.promotion == "complex_to_real":
            return dt.REAL_OF.get(common, common)
        return common

    @classmethod
    def settle(cls, op: Op, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """The arguments as `expr` takes them: what is baked in may depend on the operands."""
        return args

    @classmethod
    def iterated(cls, operands: Sequence[Tensor]) -> Any:
        """Shape and strides that a walk over all of the operands gives."""
        return slot("broadcast_geometry")(operands)

    @classmethod
    def infer(cls, op: Op, args: tuple[Any, ...]) -> Any:
        if cls.check is not None:
            cls.check(*args)
        tensors = [
            v if isinstance(v, Tensor) else scalar_tensor(0, dt.float32)
            for a, v in zip(op.schema.args, args, strict=False)
            if v is not None
            and (
                a.type == "Tensor"
                or (cls.number_operands and a.type == "Scalar" and a.name not in cls.apart)
            )
        ]
        result = cls.result_dtype(cls.common_dtype(op, args))
        shape, stride = cls.iterated(tensors)
        if cls.lies_like_self:
            stride = strides_like(tensors[0], None)
        spec = TensorSpec(shape, result, device_of(args), stride)
        return spec if cls.n_outputs == 1 else (spec,) * cls.n_outputs

    @classmethod
    def compute(cls, op: Op, outs: Any, args: tuple[Any, ...]) -> None:
        outs = outs if isinstance(outs, tuple) else (outs,)
        if not outs[0].numel():
            return
        common = cls.common_dtype(op, args)
        parts = Split(op, cls.settle(op, args))
        names = [a.name for a in op.schema.args if a.type == "Tensor"]
        present = [
            a.name
            for a, v in zip(op.schema.args, args, strict=False)
            if a.type == "Tensor" and v is not None
        ]
        del names
        inputs = []
        for name, v in zip(present, parts.operands, strict=True):
            if not isinstance(v, Tensor):
                inputs.append(scalar_tensor(v, dt.float32 if common in SIXTEEN else common))
            elif name in cls.keep:
                inputs.append(v)
            else:
                inputs.append(cast(v, common))
        floating = dt.category(common) >= 2
        expr = cls.expr
        if expr is None:
            raise Undeclared(f"{op} has no expression")
        address = kernel_for(op, expr, "map", parts, inputs, outs, common)
        if address is None:
            slot("evaluate")(parts.adapter(expr), "map", outs, inputs, parts.params, None, common)
            return
        _native.run_map(
            address, outs, inputs, pack_params(parts.params, [floating] * len(parts.params))
        )
        if all(t.dtype is common for t in inputs):
            cls.offer(op, parts, common, outs, address)

    @classmethod
    def offer(
        cls, op: Op, parts: Split, common: dt.dtype, outs: tuple[Any, ...], address: int
    ) -> None:
        """Let C call this kernel next time, when nothing special is baked into it."""
        expected = [
            a.default for a in op.schema.args if a.type not in _NUMERIC and a.type != "Tensor"
        ]
        if (
            len(outs) == 1
            and parts.baked == expected
            and (outs[0].dtype is common or outs[0].dtype is dt.bool_)
        ):
            for fast in op.__dict__.get("fasts", ()):
                if (
                    fast[1] == (outs[0].dtype is dt.bool_ and common is not dt.bool_)
                    or common is dt.bool_
                ):
                    fast[0].set_loop(common.code, address)

    @classmethod
    def fast(cls, op: Op) -> Any:
        args = op.schema.args
        nt = sum(a.type == "Tensor" for a in args)
        if cls.n_outputs != 1 or not 1 <= nt <= 3 or cls.keep or op.variant == "out":
            return None
        home = next(c for c in cls.__mro__ if "iterated" in c.__dict__)
        if home is not Pointwise and op.variant != "inplace":
            return None  # C lays results out as a walk over the operands does
        if any(a.type == "Tensor" and (a.optional or a.is_list) for a in args):
            return None
        kinds = [
            "t" if a.type == "Tensor" else "p" if a.type in _NUMERIC and not a.is_list else "b"
            for a in args
        ]
        if (
            "".join(kinds) != "t" * nt + "p" * kinds.count("p") + "b" * kinds.count("b")
            or kinds.count("p") > 4
        ):
            return None
        if any(k == "b" and not a.has_default for k, a in zip(kinds, args, strict=True)):
            return None
        params = tuple(
            (a.name, a.default if a.has_default else None)
            for k, a in zip(kinds, args, strict=True)
            if k == "p"
        )
        tail = tuple(a.default for k, a in zip(kinds, args, strict=True) if k == "b")
        is_bool = cls.promotion == "bool"
        if is_bool and op.variant == "inplace":
            return None
        f = _native.Fast(
            "map_inplace" if op.variant == "inplace" else "map", nt, params, is_bool, False, tail,
            int(cls.numbers if cls.fast_numbers is None else cls.fast_numbers)
            | (4 if cls.lies_like_self else 0),
        )  # fmt: skip
        op.base.__dict__.setdefault("fasts", []).append((f, is_bool))
        return f

    @classmethod
    def compute_into(cls, op: Op, target: Tensor, args: tuple[Any, ...]) -> None:
        try:
            spec = cls.infer(op, args)
        except NotImplementedError:  # of the kernel, which shapes and dtypes precede
            check_result_shape(
                target, slot("broadcast_geometry")([a for a in args if isinstance(a, Tensor)])[0]
            )
            check_cast(cls.result_dtype(cls.common_dtype(op, args)), target.dtype)
            raise
        check_result_shape(target, spec.shape)
        check_cast(spec.dtype, target.dtype)
        if spec.dtype is target.dtype or (
            cls.promotion == "bool" and target.dtype is cls.common_dtype(op, args)
        ):
            cls.compute(op, target, args)
        else:
            result = spec.allocate()
            cls.compute(op, result, args)
            copy_into(target, result)

    @classmethod
    def compute_out(cls, op: Op, outs: tuple[Any, ...], args: tuple[Any, ...]) -> bool:
        if cls.n_outputs != 1:
            if cls.lies_like_self:
                for target, spec in zip(outs, cls.infer(op, args), strict=True):
                    if target.dtype is spec.dtype:
                        resize_output(target, *cls.iterated(args))
            return False
        (target,) = outs
        spec = cls.infer(op, args)
        if target.shape == spec.shape:  # another one is resized, and may come to lie elsewhere
            check_no_self_overlap(target)
            check_partial_overlap(target, args)
        if (
            spec.dtype is not target.dtype
            or any(
                isinstance(a, Tensor)
                and a.untyped_storage() is target.untyped_storage()
                and a is not target
                for a in args
            )
            or overlaps_itself(target)
        ):
            return False
        stride = cls.iterated(args[:1])[1] if cls.lies_like_self else spec.stride
        resize_output(target, spec.shape, stride)
        cls.compute(op, target, args)
        return True

    @classmethod
    def fix_gradients(cls, op: Op, grads: Any, args: tuple[Any, ...]) -> Any:
        """Sum over broadcast dimensions, and back to each argument's dtype."""
        i = 0
        changed: list[Any] | None = None
        for a in args:
            if isinstance(a, Tensor):
                g = grads[i]
                if g is not None and (g.dtype is not a.dtype or g.shape != a.shape):
                    changed = list(grads) if changed is None else changed
                    changed[i] = unbroadcast(g, a)
                i += 1
        return grads if changed is None else tuple(changed)


_ADDRESSES: dict[Any, int | None] = {}


def forget_kernels() -> None:
    """Ask for every kernel anew (the pack's builder and tests do)."""
    _ADDRESSES.clear()


def kernel_for(
    op: Op,
    expr: Any,
    kind: str,
    parts: Split,
    inputs: list[Tensor],
    outs: tuple[Any, ...],
    common: dt.dtype,
) -> int | None:
    """The address of the generated kernel, or None when only evaluation in NumPy is possible."""
    ins = tuple(t.dtype.name for t in inputs)
    results = tuple(o.dtype.name for o in outs)
    key = (
        op.base.key,
        op.namespace,
        kind,
        ins,
        results,
        tuple(map(str, parts.baked)),
        tuple(parts.plan),
        common.name,
    )
    if key not in _ADDRESSES:
        if common.is_complex or any(t.dtype.is_complex for t in (*inputs, *outs)):
            _ADDRESSES[key] = None
        else:
            name = op.base.key.replace(".", "_") + "".join(
                f"_{b}" for b in parts.baked if not (b is None or (isinstance(b, tuple) and not b))
            )
            if None in parts.baked:  # which optional arguments are there decides the expression
                name += "_" + "".join(g for g, _ in parts.plan)
            floating = dt.category(common) >= 2
            _ADDRESSES[key] = slot("kernel_address")(
                name,
                parts.adapter(expr),
                kind,
                ins,
                results,
                ("f" if floating else "i",) * len(parts.params),
                key,
            )
    return _ADDRESSES[key]


def wrap_dim(dim: int, ndim: int) -> int:
    """dim in [0, ndim), counted from the end when negative; IndexError as torch words it."""
    n = max(ndim, 1)
    if not -n <= dim < n:
        raise IndexError(
            f"Dimension out of range (expected to be in range of [{-n}, {n - 1}], but got {dim})"
        )
    return dim + n if dim < 0 else dim


def wrap_dims(dims: Any, ndim: int, *, empty_is_all: bool = True) -> tuple[int, ...]:
    """Sorted dims to reduce; None (and an empty list, when told so) means all."""
    if dims is None or (empty_is_all and not isinstance(dims, int) and len(dims) == 0):
        return tuple(range(ndim))
    seen: list[int] = []
    for d in (dims,) if isinstance(dims, int) else dims:
        w = wrap_dim(d, ndim)
        if w in seen:
            raise RuntimeError(f"dim {w} appears multiple times in the list of dims")
        seen.append(w)
    return tuple(sorted(w for w in seen if w < ndim))


def reduced_shape(shape: Any, dims: tuple[int, ...], keepdim: bool) -> tuple[int, ...]:
    if keepdim:
        return tuple(1 if i in dims else s for i, s in enumerate(shape))
    return tuple(s for i, s in enumerate(shape) if i not in dims)


class Reduction(Declaration):
    """A row expression over dimensions. `expr(k, x, *params)` gives one value a result.

    promotion   'same' | 'sum' (integers to int64, `dtype=` wins) | 'int_to_float' | 'bool'
    Arguments are read by name: self, dim, keepdim, dtype; the other numbers are parameters.
    """

    kind = "reduction"
    out_dtype = "cast"
    out: bool | str = True
    promotion = "same"
    result_types: tuple[str | None, ...] = (
        None,
    )  # fixed dtypes of results; None: the computed one; "real": that of its parts
    empty_is_all = True
    splits = False  # the result of everything is that of the results of parts

    @classmethod
    def named(cls, op: Op, args: tuple[Any, ...]) -> dict[str, Any]:
        return {a.name: v for a, v in zip(op.base.schema.args, args, strict=False)}

    @classmethod
    def input_dtype(cls, x: Tensor, dtype: dt.dtype | None) -> dt.dtype:
        """The dtype to which the input is brought before reducing."""
        if dtype is not None:
            return dtype
        if cls.promotion == "sum" and dt.is_integral(x.dtype):
            return dt.int64
        if cls.promotion == "int_to_float" and dt.is_integral(x.dtype):
            return state.process.default_dtype
        own: dt.dtype = x.dtype
        return own

    @classmethod
    def infer(cls, op: Op, args: tuple[Any, ...]) -> Any:
        if cls.check is not None:
            cls.check(*args)
        n = cls.named(op, args)
        x = n["self"]
        dims = wrap_dims(n.get("dim"), x.dim(), empty_is_all=cls.empty_is_all)
        keep = bool(n.get("keepdim", False))
        base = cls.input_dtype(x, n.get("dtype"))
        base = dt.bool_ if cls.promotion == "bool" else base
        specs = tuple(
            TensorSpec(
                reduced_shape(x.shape, dims, keep),
                dt.REAL_OF.get(base, base) if r == "real" else dt.DTYPES[r] if r else base,
                x.device,
            )
            for r in cls.result_types
        )
        return specs[0] if len(specs) == 1 else specs

    @classmethod
    def compute(cls, op: Op, outs: Any, args: tuple[Any, ...]) -> None:
        outs = outs if isinstance(outs, tuple) else (outs,)
        n = cls.named(op, args)
        x = n["self"]
        dims = wrap_dims(n.get("dim"), x.dim(), empty_is_all=cls.empty_is_all)
        keep = bool(n.get("keepdim", False))
        work = cls.input_dtype(x, n.get("dtype"))
        params = cls.params(n)
        reduce_rows(op, cls.expr, outs, cast(x, work), dims, keep, params, cls.baked(n))

    @classmethod
    def params(cls, n: dict[str, Any]) -> list[Any]:
        """Numbers that the expression takes after x."""
        return []

    @classmethod
    def baked(cls, n: dict[str, Any]) -> list[Any]:
        """What is baked into the kernel, passed to the expression after the parameters."""
        return []


def merge_dims(x: Tensor, dims: tuple[int, ...]) -> Tensor:
    """x with the reduced dimensions made one, the last; copied only when strides forbid a view."""
    nd = x.dim()
    kept = [i for i in range(nd) if i not in dims]
    order = [*kept, *dims]
    shape = [x.shape[i] for i in order]
    strides = [x.stride()[i] for i in order]
    v = _native.alias(Tensor, x, shape, strides, None)
    merged = 1
    for d in dims:
        merged *= x.shape[d]
    size = [*shape[: len(kept)], merged]
    if len(dims) == 1:
        return v
    st = _native.view_strides(v, size)
    if st is None:
        dense = _native.empty(shape, x.dtype, x.device)
        copy_into(dense, v)
        return _native.alias(Tensor, dense, size, contiguous_strides(size), 0)
    return _native.alias(Tensor, v, size, st, None)


def _lifted(t: Tensor) -> Tensor:
    """A 0-dim tensor as one of a single element."""
    return _native.alias(Tensor, t, (1,), (1,), None)


def run_elements(
    op: Op, expr: Any, outs: tuple[Any, ...], ins: list[Tensor], params: list[Any],
    baked: list[Any], common: dt.dtype,
) -> None:  # fmt: skip
    """Run an expression on every element of operands that broadcast to the outputs' shape."""
    if not outs[0].numel():
        return
    parts = Split.of(ins, params, baked)
    address = kernel_for(op, expr, "map", parts, ins, outs, common)
    if address is None:
        slot("evaluate")(parts.adapter(expr), "map", outs, ins, params, None, common)
        return
    floating = dt.category(common) >= 2
    _native.run_map(address, outs, ins, pack_params(params, [floating] * len(params)))


Places = tuple[Sequence[int], Sequence[int]]  # sizes and strides
ROWS_TOGETHER = 64  # a thread takes a multiple of so many rows that lie side by side (iterate.c)


def places(tensors: Sequence[Tensor]) -> list[Places]:
    return [(t.shape, t.stride()) for t in tensors]


def row_loops(outs: Sequence[Places], ins: Sequence[Places], dim: int) -> str:
    """The kind of row kernel that operands of one rank ask for: 'row_along' or 'row_across' where
    they take one of its two loops whatever the number of rows (`row_driver` in codegen/staging.py
    decides), else 'row'."""
    n0 = max(size[dim] for size, _ in (*outs, *ins))
    full = [p for p in outs if p[0][dim] != 1]
    steps = [0 if size[dim] == 1 else stride[dim] for size, stride in ins]
    if all(s in (0, 1) for s in steps) and all(stride[dim] == 1 for _, stride in full):
        return "row_along" if n0 > 64 else "row"
    beside = next((d for d in range(len(outs[0][0])) if d != dim and _dense(d, (*outs, *ins))), dim)
    # What is left over of a full-size output's vectors of rows is done along the rows.
    if beside == dim or n0 <= 8 or (full and outs[0][0][beside] % ROWS_TOGETHER):
        return "row"
    turned = any(s > 1 and size[beside] > 1 for s, (size, _) in zip(steps, ins, strict=True))
    return "row_across" if turned else "row"


def _dense(d: int, operands: Sequence[Places]) -> bool:
    """Whether rows lie side by side along dimension d."""
    own = [stride[d] == 1 for size, stride in operands if size[d] != 1]
    return bool(own) and operands[0][0][d] != 1 and all(own)


def run_rows(
    op: Op, expr: Any, outs: tuple[Any, ...], ins: list[Tensor], dim: int, params: list[Any],
    baked: list[Any], common: dt.dtype,
) -> None:  # fmt: skip
    """Run a row kernel along dim. All operands have one rank (0-dim ones count as 1-dim); an extent
    of 1 is used all along the others' dimension; per-row results have extent 1 at dim."""
    if not outs[0].numel():
        return
    parts = Split.of(ins, params, baked)
    if not ins[0].dim():
        ins, outs = [_lifted(t) for t in ins], tuple(_lifted(t) for t in outs)
    address = kernel_for(
        op, expr, row_loops(places(outs), places(ins), dim), parts, ins, outs, common
    )
    if address is None:
        slot("evaluate")(parts.adapter(expr), "row", outs, ins, params, dim, common)
        return
    floating = dt.category(common) >= 2
    _native.run_rows(address, outs, ins, dim, pack_params(params, [floating] * len(params)))


#: Elements of one part where a reduction of everything is split over threads. The split must not
#: depend on the number of threads: the result's bits would.
PART = 1 << 16


def _reduce_parts(address: int, out: Tensor, x: Tensor) -> None:
    """One number from contiguous x: that of the parts' own."""
    whole, rest = divmod(x.numel(), PART)
    partial = _native.empty((whole + bool(rest),), x.dtype, x.device)

    def rows(first: int, count: int, length: int) -> None:
        source = _native.alias(
            Tensor, x, (count, length), (length, 1), first * PART + x.storage_offset()
        )
        target = _native.alias(Tensor, partial, (count, 1), (1, 1), first)
        _native.run_rows(address, (target,), (source,), 1, None)

    rows(0, whole, PART)
    if rest:
        rows(whole, 1, rest)
    one = _native.alias(Tensor, out, (1, 1), (1, 1), None)
    all_of = _native.alias(Tensor, partial, (1, partial.numel()), (partial.numel(), 1), 0)
    _native.run_rows(address, (one,), (all_of,), 1, None)


def reduce_rows(
    op: Op, expr: Any, outs: tuple[Any, ...], x: Tensor, dims: tuple[int, ...], keepdim: bool,
    params: list[Any], baked: list[Any],
) -> None:  # fmt: skip
    """Run a row kernel that gives one value a row for each of outs."""
    if not outs[0].numel():
        return
    if len(outs) == 1 and not params and not baked and x.numel() <= 65536 and not x._contiguous():
        # As C does (dense() in fast.c): the first call must give the bits that later ones give.
        dense = _native.empty(x.shape, x.dtype, x.device)
        copy_into(dense, x)
        x = dense
    parts = Split.of([x], params, baked)
    rows = merge_dims(x, dims) if x.dim() else _native.alias(Tensor, x, (1,), (1,), None)
    kept = [i for i in range(x.dim()) if i not in dims]
    views = []
    for o in outs:
        st = o.stride()
        st = [st[i] for i in kept] if keepdim else list(st)
        views.append(_native.alias(Tensor, o, [*rows.shape[:-1], 1], [*st, 1], None))
    plain = len(outs) == 1 and not params and not baked and x.dtype is outs[0].dtype
    kind = row_loops(places(views), places([rows]), rows.dim() - 1)
    address = kernel_for(op, expr, kind, parts, [rows], tuple(views), x.dtype)
    if address is None:
        slot("evaluate")(
            parts.adapter(expr), "row", tuple(views), [rows], params, rows.dim() - 1, x.dtype
        )
        return
    if (
        plain
        and getattr(op.base.decl, "splits", False)
        and x.numel() >= 4 * PART
        and outs[0].numel() == 1
        and x._contiguous()
    ):
        _reduce_parts(address, outs[0], x)
        return
    floating = dt.category(x.dtype) >= 2
    _native.run_rows(
        address, views, [rows], rows.dim() - 1, pack_params(params, [floating] * len(params))
    )
    if x.dtype is outs[0].dtype and len(outs) == 1 and not baked and not params:
        for fast in op.base.__dict__.get("fasts", ()):
            fast[0].set_loop(x.dtype.code, address, kind)


def unbroadcast(g: Tensor, t: Tensor) -> Tensor:
    """The gradient g of a broadcast operand, brought to the operand's shape and dtype."""
    if g.dim() != t.dim() or g.shape != t.shape:
        extra = g.dim() - t.dim()
        dims = [
            *range(extra),
            *(i + extra for i, s in enumerate(t.shape) if s == 1 and g.shape[i + extra] != 1),
        ]
        if dims:
            g = aten.sum(g, dims, True)
        if extra:
            g = aten.view(g, t.shape) if g._contiguous() else aten.reshape(g, t.shape)
    if g.dtype is not t.dtype:
        if g.dtype.is_complex and not t.dtype.is_complex:
            g = aten.real(g)
        g = aten._to_copy(g, dtype=t.dtype) if g.dtype is not t.dtype else g
    return g


class View(Declaration):
    """Another geometry over the same bytes: `view(self, …) -> (size, stride, offset)`."""

    kind = "view"
    geometry_only = True
    view: Callable[..., Any]

    @classmethod
    def infer(cls, op: Op, args: tuple[Any, ...]) -> TensorSpec:
        size, stride, _, *dtype = cls.view(*args)
        return TensorSpec(size, dtype[0] if dtype else args[0].dtype, args[0].device, stride)

    @classmethod
    def run(cls, *args: Any) -> Any:
        return make_view(args[0], *cls.view(*args))


def make_view(t: Tensor, size: Any, stride: Any, offset: int, dtype: Any = None) -> Tensor:
    """A view of t that knows its base."""
    v = _native.alias(Tensor, t, size, stride, offset, dtype)
    if not t._inference:
        v._base = t if t._base is None else t._base
    v._bits = t._bits & state.GEOMETRY
    _native.view_kind(t, v)
    return v


class Composite(Declaration):
    """Dissolves into other operators above autograd: `decompose(…)` over public functions."""

    kind = "composite"
    level = "composite"


class Opaque(Declaration):
    """Its own `meta(…) -> TensorSpec(s)` and `kernel(outs, …)`."""

    kind = "opaque"


__all__ = [
    "Composite", "Opaque", "Pointwise", "Reduction", "TensorSpec", "View", "cast", "device_of",
    "kernel_for", "make_view", "number_type", "reduce_rows", "scalar_tensor", "wrap_dim",
    "wrap_dims",
]  # fmt: skip
