"""Checks that a kernel is well formed; every stage that makes or changes one calls it."""

from __future__ import annotations

from .kernel import DTYPES, REDUCTIONS, SCANS, Kernel, compute_type

__all__ = ["KernelError", "verify_kernel"]

_COMPARE = frozenset(("lt", "le", "gt", "ge", "eq", "ne"))
_SAME = frozenset(
    "add sub mul div and or xor shl shr min max fmin fmax pow fmod remainder floor_divide"
    " trunc_divide atan2 hypot copysign nextafter fma".split()
)
_FLOAT = frozenset(
    "exp exp2 expm1 log log2 log10 log1p sqrt rsqrt sin cos tan asin acos atan sinh cosh tanh"
    " asinh acosh atanh atan2 erf erfc erfinv lgamma digamma div floor ceil trunc round hypot"
    " copysign nextafter sigmoid fma".split()
)


class KernelError(Exception):
    """A kernel that breaks the rules of its IR: a defect of the stage that made it."""


def verify_kernel(k: Kernel) -> Kernel:
    """Returns ``k`` when it is well formed, else raises :class:`KernelError`."""

    def need(ok: bool, i: int, why: str) -> None:
        if not ok:
            raise KernelError(f"%{i} ({k.insts[i].op}): {why}\n{k}")

    if k.kind not in ("map", "row"):
        raise KernelError(f"unknown kind {k.kind!r}")
    for i, inst in enumerate(k.insts):
        need(inst.dtype in DTYPES, i, f"unknown dtype {inst.dtype!r}")
        need(compute_type(inst.dtype) == inst.dtype, i, f"{inst.dtype} is a storage dtype only")
        need(all(0 <= a < i for a in inst.args), i, "uses a value that is not yet made")
        types = [k.insts[a].dtype for a in inst.args]
        if inst.op in ("load", "load_row"):
            need(inst.op == "load" or k.kind == "row", i, "in a map kernel")
            need(isinstance(inst.attr, int) and 0 <= inst.attr < len(k.in_dtypes), i, "operand")
            need(inst.dtype == compute_type(k.in_dtypes[inst.attr]), i, "load changes the dtype")
        elif inst.op == "param":
            need(isinstance(inst.attr, int) and 0 <= inst.attr < len(k.param_kinds), i, "slot")
        elif inst.op in _COMPARE:
            need(inst.dtype == "bool" and types[0] == types[1], i, f"compares {types}")
        elif inst.op == "where":
            need(types[0] == "bool" and types[1] == types[2] == inst.dtype, i, f"got {types}")
        elif inst.op in _SAME:
            need(all(t == inst.dtype for t in types), i, f"mixes {types} into {inst.dtype}")
        elif inst.op in ("reduce", "scan"):
            need(k.kind == "row", i, "in a map kernel")
            need(inst.attr in (REDUCTIONS if inst.op == "reduce" else SCANS), i, "unknown")
        elif inst.op in ("count", "index"):
            need(k.kind == "row", i, "in a map kernel")
        if inst.op in _FLOAT:
            need(DTYPES[inst.dtype].kind in "fc", i, f"is not defined for {inst.dtype}")
    if not len(k.outs) == len(k.out_dtypes) == len(k.row_outs):
        raise KernelError("outputs and their dtypes differ in number")
    for v, d in zip(k.outs, k.out_dtypes):
        if k.insts[v].dtype != compute_type(d):
            raise KernelError(f"%{v} is {k.insts[v].dtype}, stored as {d}\n{k}")
    return k
