"""L-BFGS (Nocedal and Wright, Numerical Optimization, 2nd ed., chapters 3 and 7).

The line search is the one of Mark Schmidt's minFunc: bracketing and zooming with cubic
interpolation until the strong Wolfe conditions hold.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import flambeau as torch
from flambeau import Tensor

from ._stepping import _to_scalar
from .optimizer import Optimizer, ParamsT

__all__ = ["LBFGS"]

#: What a step leaves in the state, in this order.
_SAVED = ("d", "t", "old_dirs", "old_stps", "ro", "H_diag", "prev_flat_grad", "prev_loss")
_ARMIJO, _CURVATURE = 1e-4, 0.9
_MOST_SEARCHES = 25
_SEARCH_TOLERANCE = 1e-9


class _Point(NamedTuple):
    """A place along the direction: step, loss, gradient, slope."""

    t: Any
    f: float
    g: Tensor
    slope: Any


class LBFGS(Optimizer):
    """A quasi-Newton method with limited memory, for all parameters as one vector.

    Args:
        params: tensors; one group only.
        lr: step along the direction (with a line search: its first try).
        max_iter: iterations a step.
        max_eval: evaluations of the closure a step (default: ``max_iter * 5 / 4``).
        tolerance_grad: stop where no element of the gradient is larger.
        tolerance_change: stop where neither the parameters nor the loss change by more.
        history_size: updates that are remembered.
        line_search_fn: None, or ``"strong_wolfe"``.
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1,
        max_iter: int = 20,
        max_eval: int | None = None,
        tolerance_grad: float = 1e-7,
        tolerance_change: float = 1e-9,
        history_size: int = 100,
        line_search_fn: str | None = None,
    ) -> None:
        if isinstance(lr, Tensor) and lr.numel() != 1:
            raise ValueError("Tensor lr must be 1-element")
        if not 0.0 <= lr:
            raise ValueError(f"Invalid learning rate: {lr}")
        super().__init__(
            params,
            {
                "lr": lr,
                "max_iter": max_iter,
                "max_eval": max_iter * 5 // 4 if max_eval is None else max_eval,
                "tolerance_grad": tolerance_grad,
                "tolerance_change": tolerance_change,
                "history_size": history_size,
                "line_search_fn": line_search_fn,
            },
        )
        if len(self.param_groups) != 1:
            raise ValueError("LBFGS doesn't support per-parameter options (parameter groups)")
        self._params = self.param_groups[0]["params"]

    def _flat_grad(self) -> Tensor:
        parts = []
        for p in self._params:
            if p.grad is None:
                part = p.new_zeros(p.numel())
            else:
                part = (p.grad.to_dense() if p.grad.is_sparse else p.grad).reshape(-1)
            parts.append(torch.view_as_real(part).reshape(-1) if torch.is_complex(part) else part)
        return torch.cat(parts, 0)

    def _move(self, t: Any, direction: Tensor) -> None:
        """Add ``t * direction`` to the parameters."""
        offset = 0
        for p in self._params:
            p = torch.view_as_real(p) if torch.is_complex(p) else p
            count = p.numel()
            p.add_(direction[offset : offset + count].view_as(p), alpha=t)
            offset += count

    def _at(self, closure: Callable[[], Any], start: list[Tensor], t: Any, d: Tensor) -> _Point:
        """What the closure says at ``start + t * d``; the parameters are put back."""
        self._move(t, d)
        loss = float(closure())
        grad = self._flat_grad()
        for p, value in zip(self._params, start, strict=True):
            p.copy_(value)
        return _Point(t, loss, grad, grad.dot(d))

    @torch.no_grad()
    def step(self, closure: Callable[[], Any]) -> Any:  # type: ignore[override]
        """Take up to ``max_iter`` iterations.

        Args:
            closure: computes the loss and its gradients again, and returns the loss.

        Returns:
            the loss before the step.
        """
        closure = torch.enable_grad()(closure)
        group = self.param_groups[0]
        search = group["line_search_fn"]
        state = self.state[self._params[0]]
        begun = "prev_loss" in state
        state.setdefault("func_evals", 0)
        state.setdefault("n_iter", 0)
        first_loss = closure()
        loss, evals = float(first_loss), 1
        state["func_evals"] += 1
        grad = self._flat_grad()
        if grad.abs().max() <= group["tolerance_grad"]:
            return first_loss
        for iteration in range(1, group["max_iter"] + 1):
            state["n_iter"] += 1
            self._new_direction(state, grad, group["history_size"])
            d = state["d"]
            state["prev_loss"] = before = loss
            t = _to_scalar(group["lr"])
            if state["n_iter"] == 1:
                t = min(1.0, 1.0 / grad.abs().sum()) * t
            state["t"] = t
            slope = grad.dot(d)
            if slope > -group["tolerance_change"]:
                break
            optimal, tries = False, 0
            if search is not None:
                if search != "strong_wolfe":
                    raise RuntimeError("only 'strong_wolfe' is supported")
                start = [p.clone(memory_format=torch.contiguous_format) for p in self._params]
                here = _Point(0, loss, grad, slope)
                found, tries = _strong_wolfe(
                    lambda t, start=start, d=d: self._at(closure, start, t, d), t, here, d
                )
                loss, grad, t = found.f, found.g, found.t
                state["t"] = t
                self._move(t, d)
                optimal = bool(grad.abs().max() <= group["tolerance_grad"])
            else:
                self._move(t, d)
                if iteration != group["max_iter"]:
                    loss, grad, tries = float(closure()), self._flat_grad(), 1
                    optimal = bool(grad.abs().max() <= group["tolerance_grad"])
            evals += tries
            state["func_evals"] += tries
            still = d.mul(t).abs().max() <= group["tolerance_change"]
            flat = abs(loss - before) < group["tolerance_change"]
            if evals >= group["max_eval"] or optimal or still or flat:
                break
        if not begun:
            for key in _SAVED:
                if key in state:
                    state[key] = state.pop(key)
        return first_loss

    def _new_direction(self, state: dict[str, Any], grad: Tensor, history: int) -> None:
        """Put the next direction into the state (the two-loop recursion, algorithm 7.4)."""
        if state["n_iter"] == 1:
            state.update(d=grad.neg(), old_dirs=[], old_stps=[], ro=[], H_diag=1)
            state["prev_flat_grad"] = grad.clone()
            return
        ys_list, steps, ro = state["old_dirs"], state["old_stps"], state["ro"]
        y = grad.sub(state["prev_flat_grad"])
        s = state["d"].mul(state["t"])
        ys = y.dot(s)
        if ys > 1e-10:
            if len(ys_list) == history:
                for memory in (ys_list, steps, ro):
                    memory.pop(0)
            ys_list.append(y)
            steps.append(s)
            ro.append(1.0 / ys)
            state["H_diag"] = ys / y.dot(y)
        count = len(ys_list)
        weights = state.setdefault("al", [None] * history)
        q = grad.neg()
        for i in range(count - 1, -1, -1):
            weights[i] = steps[i].dot(q) * ro[i]
            q.add_(ys_list[i], alpha=-weights[i])
        d = torch.mul(q, state["H_diag"])
        for i in range(count):
            d.add_(steps[i], alpha=weights[i] - ys_list[i].dot(d) * ro[i])
        state["d"] = d
        state["prev_flat_grad"].copy_(grad)


def _cubic_minimum(a: _Point, b: _Point, bounds: tuple[Any, Any] | None = None) -> Any:
    """The minimum of the cubic through two points with their slopes (equation 3.59)."""
    low, high = bounds or ((a.t, b.t) if a.t <= b.t else (b.t, a.t))
    d1 = a.slope + b.slope - 3 * (a.f - b.f) / (a.t - b.t)
    square = d1**2 - a.slope * b.slope
    if square < 0:
        return (low + high) / 2.0
    d2 = square.sqrt()
    if a.t <= b.t:
        best = b.t - (b.t - a.t) * ((b.slope + d2 - d1) / (b.slope - a.slope + 2 * d2))
    else:
        best = a.t - (a.t - b.t) * ((a.slope + d2 - d1) / (a.slope - b.slope + 2 * d2))
    return min(max(best, low), high)


def _strong_wolfe(
    at: Callable[[Any], _Point], t: Any, start: _Point, d: Tensor
) -> tuple[_Point, int]:
    """A point along `d` where the strong Wolfe conditions hold, and the evaluations it took."""
    start = start._replace(g=start.g.clone())
    new, evals = at(t), 1
    previous, searches = start, 0

    def too_high(point: _Point) -> bool:
        return bool(point.f > start.f + _ARMIJO * point.t * start.slope)

    def flat_enough(point: _Point) -> bool:
        return bool(abs(point.slope) <= -_CURVATURE * start.slope)

    ends: list[_Point] = [start, new]
    while searches < _MOST_SEARCHES:
        if too_high(new) or (searches > 1 and new.f >= previous.f):
            ends = [previous, new]
            break
        if flat_enough(new):
            return new, evals
        if new.slope >= 0:
            ends = [previous, new]
            break
        bounds = new.t + 0.01 * (new.t - previous.t), new.t * 10
        t = _cubic_minimum(previous, new, bounds)
        previous, new = new, at(t)
        evals += 1
        searches += 1
        ends = [start, new]
    return _zoom(at, ends, start, d.abs().max(), searches, evals, too_high, flat_enough)


def _zoom(
    at: Callable[[Any], _Point],
    ends: list[_Point],
    start: _Point,
    size: Tensor,
    searches: int,
    evals: int,
    too_high: Callable[[_Point], bool],
    flat_enough: Callable[[_Point], bool],
) -> tuple[_Point, int]:
    """Shrink the bracket `ends` until a point in it will do."""
    low, high = (0, 1) if ends[0].f <= ends[1].f else (1, 0)
    stuck = done = False
    while not done and searches < _MOST_SEARCHES:
        if abs(ends[1].t - ends[0].t) * size < _SEARCH_TOLERANCE:
            break
        t = _cubic_minimum(ends[0], ends[1])
        t, stuck = _away_from_ends(t, ends, stuck)
        new = at(t)
        evals += 1
        searches += 1
        if too_high(new) or new.f >= ends[low].f:
            ends[high] = new
            low, high = (0, 1) if ends[0].f <= ends[1].f else (1, 0)
            continue
        if flat_enough(new):
            done = True
        elif new.slope * (ends[high].t - ends[low].t) >= 0:
            ends[high] = ends[low]
        ends[low] = new
    return ends[low], evals


def _away_from_ends(t: Any, ends: list[_Point], stuck: bool) -> tuple[Any, bool]:
    """Keep the next try a tenth of the bracket away from an end, if it was there before."""
    left, right = min(ends[0].t, ends[1].t), max(ends[0].t, ends[1].t)
    margin = 0.1 * (right - left)
    if min(right - t, t - left) >= margin:
        return t, False
    if not (stuck or t >= right or t <= left):
        return t, True
    return (right - margin if abs(t - right) < abs(t - left) else left + margin), False
