"""The kernel IR: one loop nest over scalar operations, in SSA form. Data only.

A :class:`Kernel` is what an operator's ``expr`` becomes (``loops/lower.py``), what a printer reads
(``codegen/``), and what a fused group of operators is. It knows dtypes and data flow; it knows
neither vectors nor threads. The loop ABI that a printed kernel has is in ``docs/engine.md``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

__all__ = [
    "DTYPES",
    "REDUCTIONS",
    "SCANS",
    "DType",
    "Inst",
    "Kernel",
    "Schedule",
    "accumulate_type",
    "compute_type",
    "print_kernel",
    "promote",
]


@dataclass(frozen=True, slots=True)
class DType:
    """What a kernel needs to know of a dtype.

    Complex kernels exist only for evaluation in NumPy; the printers have none.

    ``kind`` is b(ool), i(nt), u(nsigned), f(loat) or c(omplex); ``size`` is in bytes;
    ``compute`` is the dtype its values are computed in; ``short`` names its C vectors.
    """

    name: str
    kind: str
    size: int
    compute: str
    short: str
    c: str


DTYPES: dict[str, DType] = {
    d.name: d
    for d in (
        DType("bool", "b", 1, "bool", "u8", "unsigned char"),
        DType("uint8", "u", 1, "uint8", "u8", "unsigned char"),
        DType("int8", "i", 1, "int8", "i8", "signed char"),
        DType("int16", "i", 2, "int16", "i16", "short"),
        DType("uint16", "u", 2, "uint16", "u16", "unsigned short"),
        DType("int32", "i", 4, "int32", "i32", "int"),
        DType("uint32", "u", 4, "uint32", "u32", "unsigned int"),
        DType("int64", "i", 8, "int64", "i64", "long long"),
        DType("uint64", "u", 8, "uint64", "u64", "unsigned long long"),
        DType("float8_e5m2", "f", 1, "float32", "u8", "unsigned char"),
        DType("float8_e4m3fn", "f", 1, "float32", "u8", "unsigned char"),
        DType("float16", "f", 2, "float32", "u16", "unsigned short"),
        DType("bfloat16", "f", 2, "float32", "u16", "unsigned short"),
        DType("float32", "f", 4, "float32", "f32", "float"),
        DType("float64", "f", 8, "float64", "f64", "double"),
        DType("complex32", "c", 4, "complex64", "c32", ""),
        DType("complex64", "c", 8, "complex64", "c64", ""),
        DType("complex128", "c", 16, "complex128", "c128", ""),
    )
}

# Reductions give one scalar a row; scans give one scalar an element, in order along the row.
# 'dot' is the sum of a product, which stands before it; with few elements nothing of it is lost.
REDUCTIONS = (
    "sum", "dot", "prod", "max", "min", "fmax", "fmin", "any", "all", "argmax", "argmin",
)  # fmt: skip
SCANS = ("cumsum", "cumprod", "cummax", "cummin", "cummax_index", "cummin_index", "logcumsumexp")

_RANK = {"b": 0, "u": 1, "i": 1, "f": 2, "c": 3}


def compute_type(name: str) -> str:
    """The dtype in which values of the storage dtype ``name`` are computed."""
    return DTYPES[name].compute


def accumulate_type(name: str) -> str:
    """The dtype of a sum over values of ``name``: floats keep theirs, the rest count in int64."""
    d = DTYPES[name]
    return "int64" if d.kind in "bui" else d.compute


def promote(a: str, b: str) -> str:
    """The common type of two compute types inside a kernel (kind first, then size)."""
    if a == b:
        return a
    da, db = DTYPES[a], DTYPES[b]
    if "c" in (da.kind, db.kind):
        return "complex128" if {a, b} & {"float64", "complex128"} else "complex64"
    if _RANK[da.kind] != _RANK[db.kind]:
        return a if _RANK[da.kind] > _RANK[db.kind] else b
    if da.kind == db.kind:
        return a if da.size > db.size else b
    unsigned, signed = (da, db) if da.kind == "u" else (db, da)
    if signed.size > unsigned.size:
        return signed.name
    return {1: "int16", 2: "int32", 4: "int64", 8: "int64"}[unsigned.size]


@dataclass(frozen=True, slots=True)
class Inst:
    """One SSA value: its number is its position in ``Kernel.insts``.

    ``attr`` is the operand of a load, the slot of a parameter, the value of a constant, the
    storage dtype of ``round_to``, the name of a reduction or a scan.
    """

    op: str
    args: tuple[int, ...]
    dtype: str
    attr: Any = None


@dataclass(frozen=True, slots=True)
class Kernel:
    """A map or row kernel over ``len(out_dtypes) + len(in_dtypes)`` operands.

    ``outs[i]`` is the value stored to output i, already of the compute type of
    ``out_dtypes[i]``; ``row_outs[i]`` says that it is one value a row. ``param_kinds`` has 'f'
    for a slot holding a double, 'i' for one holding an int64.
    """

    kind: str
    in_dtypes: tuple[str, ...]
    out_dtypes: tuple[str, ...]
    param_kinds: tuple[str, ...]
    insts: tuple[Inst, ...]
    outs: tuple[int, ...]
    row_outs: tuple[bool, ...]

    def __str__(self) -> str:
        return print_kernel(self)


@dataclass(frozen=True, slots=True)
class Schedule:
    """How a kernel runs over its loops (made by ``loops/schedule.py``, read by the printers).

    ``level[v]`` of value v: 0 uniform (constants and parameters), 1 per row, 2 per element.
    ``stage[v]``: the pass over the row in which v can first be computed (for a per-row value,
    before which pass). ``passes[p]`` lists the reductions and scans made in pass p. ``lane_size``
    is the size in bytes of the widest element, which fixes the number of lanes. ``kept`` are
    element values stored in a row buffer by the pass that makes them and read back later.
    ``loops`` are those of a row kernel's two loops that its operands can take.
    """

    level: tuple[int, ...]
    stage: tuple[int, ...]
    n_passes: int
    lane_size: int
    cost: int
    pass_cost: tuple[int, ...]
    kept: tuple[int, ...]
    loops: tuple[str, ...] = ("along", "across")


def print_kernel(k: Kernel) -> str:
    """The kernel as text, one value a line."""
    ins = ", ".join(k.in_dtypes)
    outs = ", ".join(d + ("/row" if r else "") for d, r in zip(k.out_dtypes, k.row_outs))
    lines = [f"{k.kind} kernel ({ins}) -> ({outs}), params ({', '.join(k.param_kinds)})"]
    for i, inst in enumerate(k.insts):
        args = [f"%{a}" for a in inst.args]
        if inst.attr is not None:
            args.append(repr(inst.attr))
        lines.append(f"  %{i}: {inst.dtype} = {inst.op} {', '.join(args)}".rstrip())
    for i, v in enumerate(k.outs):
        lines.append(f"  store out{i} <- %{v}")
    return "\n".join(lines)
