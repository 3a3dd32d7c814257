"""How a kernel runs: what is computed once, per row, per element, and in which pass."""

from __future__ import annotations

from flambeau._src.ir.kernel import DTYPES, Kernel, Schedule

__all__ = ["schedule"]

# Rough costs in vector instructions; anything not named is one instruction.
_COST = {
    "exp": 14, "exp2": 12, "expm1": 18, "log": 24, "log2": 30, "log10": 30, "log1p": 26,
    "tanh": 28, "erf": 20, "sin": 28, "cos": 28, "div": 4, "sqrt": 4, "round_to": 8,
    "floor": 2, "ceil": 2, "trunc": 2, "round": 2, "min": 3, "max": 3, "fmin": 3, "fmax": 3,
    "fmod": 16, "remainder": 20, "floor_divide": 24, "scan": 20,
    "pow": 70,
}  # fmt: skip
_SCALAR_CALLS = frozenset(
    "tan asin acos atan sinh cosh asinh acosh atanh erfc lgamma digamma erfinv atan2 hypot"
    " nextafter trunc_divide".split()
)
_SCALAR_IN_DOUBLE = frozenset("exp2 log2 log10 erf pow".split())
# An element value is kept for a later pass when making it again costs at least this much.
_KEEP = 10


def _cost(op: str, dtype: str) -> int:
    if op in ("load", "load_row", "const", "param", "count"):
        return 0
    if op in _SCALAR_CALLS or (dtype == "float64" and op in _SCALAR_IN_DOUBLE):
        return 60
    return _COST.get(op, 1)


def schedule(k: Kernel, kind: str = "") -> Schedule:
    """The schedule of ``k``: see :class:`flambeau._src.ir.kernel.Schedule`. The kinds 'row_along'
    and 'row_across' say which one of a row kernel's loops is wanted."""
    level: list[int] = []
    stage: list[int] = []
    cost = [_cost(i.op, i.dtype) for i in k.insts]
    for inst in k.insts:
        stages = [stage[a] for a in inst.args]
        if inst.op == "reduce":
            level.append(1)
            stage.append(stages[0] + 1)
        else:
            own = {"load": 2, "index": 2, "scan": 2, "load_row": 1}.get(inst.op, 0)
            level.append(max([own, *(level[a] for a in inst.args)]))
            stage.append(max(stages, default=0))
    last = [stage[i.args[0]] for i in k.insts if i.op == "reduce"]
    last += [stage[v] for v, row in zip(k.outs, k.row_outs) if not row]
    n_passes = max(last, default=-1) + 1
    sizes = [DTYPES[i.dtype].size for i in k.insts if i.dtype != "bool"]
    sizes += [DTYPES[d].size for d in (*k.in_dtypes, *k.out_dtypes)]
    needs = [_needed(k, level, stage, p, n_passes) for p in range(n_passes)]
    kept = _kept(k, level, cost, needs)
    pass_cost = tuple(sum(cost[v] for v in need if level[v] == 2) for need in needs)
    return Schedule(
        tuple(level),
        tuple(stage),
        n_passes,
        max(sizes, default=1),
        sum(cost),
        pass_cost,
        kept,
        (kind[4:],) if kind in ("row_along", "row_across") else ("along", "across"),
    )


def _needed(k: Kernel, level: list[int], stage: list[int], p: int, n_passes: int) -> set[int]:
    """The element values that pass ``p`` computes when nothing is kept."""
    todo = [i.args[0] for i in k.insts if i.op == "reduce" and stage[i.args[0]] == p]
    if p == n_passes - 1:
        todo += [v for v, row in zip(k.outs, k.row_outs) if not row]
    need: set[int] = set()
    while todo:
        v = todo.pop()
        if v not in need and level[v] == 2:
            need.add(v)
            todo.extend(k.insts[v].args)
    return need


def _kept(k: Kernel, level: list[int], cost: list[int], needs: list[set[int]]) -> tuple[int, ...]:
    """Values that one pass makes and a later one needs, and that are dear to make again."""
    kept = []
    for v, inst in enumerate(k.insts):
        dear = level[v] == 2 and cost[v] >= _KEEP and inst.dtype != "bool"
        if dear and sum(v in need for need in needs) > 1:
            kept.append(v)
    return tuple(kept)
