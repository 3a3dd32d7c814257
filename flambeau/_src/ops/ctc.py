"""Connectionist temporal classification (Graves et al. 2006): sums over all alignments of a target,
worked out forwards and backwards in logarithms."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from flambeau._src.core import dtype as dt
from flambeau._src.core.interchange import array_of
from flambeau._src.core.tensor import Tensor
from flambeau._src.ops.arrays import store
from flambeau._src.ops.call import aten
from flambeau._src.ops.creation import tensor
from flambeau._src.ops.kinds import Composite, Opaque
from flambeau._src.ops.op import TensorSpec
from flambeau._src.ops.promote import refuse

_CHECKING = "(while checking arguments for ctc_loss_allocate_outputs)"


def _has_no_values(t: Tensor) -> bool:
    """Whether only running will tell them."""
    return bool(t.untyped_storage().is_fake)


def lengths_of(lengths: Any) -> list[int]:
    """Lengths as numbers."""
    if not isinstance(lengths, Tensor):
        return [int(n) for n in lengths]
    found = array_of(lengths).reshape(-1).tolist()
    return [int(n) for n in found]


def check_ctc(
    log_probs: Tensor, targets: Tensor, inputs: Sequence[int], wanted: Sequence[int], blank: int
) -> None:
    """torch's conditions on the arguments."""
    steps, batch, classes = log_probs.shape
    if log_probs.dtype not in (dt.float32, dt.float64):
        refuse("ctc_loss_cpu", log_probs.dtype)
    if not 0 <= blank < classes:
        raise RuntimeError("blank must be in label range")
    if len(inputs) != batch:
        raise RuntimeError("input_lengths must be of size batch_size")
    if len(wanted) != batch:
        raise RuntimeError("target_lengths must be of size batch_size")
    for n in wanted:
        if n < 0:
            raise RuntimeError(
                f"Expected target_lengths to have value at least 0, but got value {n} {_CHECKING}"
            )
    longest = max(wanted, default=0)
    if targets.dim() == 1:
        if targets.shape[0] != sum(wanted):
            raise RuntimeError(
                f"Expected tensor to have size {sum(wanted)} at dimension 0, but got size "
                f"{targets.shape[0]} for argument #2 'targets' {_CHECKING}"
            )
    elif targets.shape[1] < longest:
        raise RuntimeError(
            f"Expected tensor to have size at least {longest} at dimension 1, but got size "
            f"{targets.shape[1]} for argument #2 'targets' {_CHECKING}"
        )
    for n in inputs:
        if n > steps:
            raise RuntimeError(
                f"Expected input_lengths to have value at most {steps}, but got value {n} "
                f"{_CHECKING}"
            )
        if n < 0:
            raise RuntimeError(
                f"Expected input_lengths to have value at least 0, but got value {n} {_CHECKING}"
            )


class _Lattice:
    """The states of all targets: each label between blanks, padded to the longest."""

    def __init__(
        self, log_probs: Any, targets: Any, inputs: Sequence[int], wanted: Sequence[int], blank: int
    ) -> None:
        import numpy as np  # lazy: NumPy is heavy

        self.np, batch = np, log_probs.shape[1]
        self.longest = max(wanted, default=0) if targets.ndim == 1 else targets.shape[1]
        self.width = 2 * self.longest + 1
        labels = np.full((batch, self.width), blank, np.int64)
        start = 0
        for i, n in enumerate(wanted):
            row = targets[start : start + n] if targets.ndim == 1 else targets[i, :n]
            labels[i, 1 : 2 * n : 2] = row
            start += n
        self.labels = labels
        self.inputs = np.asarray(inputs, np.int64)
        self.ends = 2 * np.asarray(wanted, np.int64)  # of each row: its last state
        state = np.arange(self.width)
        self.valid = state[None, :] <= self.ends[:, None]
        skip = np.zeros((batch, self.width), bool)
        skip[:, 2:] = labels[:, 2:] != labels[:, :-2]
        skip[:, ::2] = False
        self.skip = skip
        every = np.arange(batch)[:, None]
        self.emit = log_probs[:, every, labels]  # (T, N, states)

    def alphas(self) -> Any:
        """log of the sums over prefixes: (N, T, states)."""
        np, emit = self.np, self.emit
        steps, batch = emit.shape[:2]
        alpha = np.full((batch, steps, self.width), -np.inf, emit.dtype)
        if not steps:
            return alpha
        alpha[:, 0, 0] = emit[0, :, 0]
        if self.width > 1:
            alpha[:, 0, 1] = np.where(self.ends > 0, emit[0, :, 1], -np.inf)
        for t in range(1, steps):
            before = alpha[:, t - 1]
            total = before.copy()
            total[:, 1:] = np.logaddexp(total[:, 1:], before[:, :-1])
            total[:, 2:] = np.where(
                self.skip[:, 2:], np.logaddexp(total[:, 2:], before[:, :-2]), total[:, 2:]
            )
            live = self.valid & np.less(t, self.inputs)[:, None]
            alpha[:, t] = np.where(live, total + emit[t], -np.inf)
        return alpha

    def losses(self, alpha: Any) -> Any:
        """-log of the sum over all alignments, from the last step of each row."""
        np = self.np
        rows = np.arange(alpha.shape[0])
        last = np.maximum(self.inputs - 1, 0)
        if not alpha.shape[1]:
            return np.where(self.ends == 0, 0.0, np.inf).astype(alpha.dtype)
        end = alpha[rows, last, self.ends]
        label = alpha[rows, last, np.maximum(self.ends - 1, 0)]
        both = np.logaddexp(end, np.where(self.ends > 0, label, -np.inf))
        return np.where(self.inputs > 0, -both, np.where(self.ends == 0, 0.0, np.inf))

    def betas(self) -> Any:
        """log of the sums over suffixes, the step's own emission included: (N, T, states)."""
        np, emit = self.np, self.emit
        steps, batch = emit.shape[:2]
        beta = np.full((batch, steps, self.width), -np.inf, emit.dtype)
        rows = np.arange(batch)
        ahead = np.full((batch, self.width + 2), -np.inf, emit.dtype)
        jump = np.zeros((batch, self.width), bool)
        jump[:, :-2] = self.skip[:, 2:]
        for t in range(steps - 1, -1, -1):
            start = np.full((batch, self.width), -np.inf, emit.dtype)
            start[rows, self.ends] = 0
            some = self.ends > 0
            start[rows[some], self.ends[some] - 1] = 0
            total = np.logaddexp(ahead[:, :-2], ahead[:, 1:-1])
            total = np.where(jump, np.logaddexp(total, ahead[:, 2:]), total)
            total = np.where(np.equal(t, self.inputs - 1)[:, None], start, total)
            live = self.valid & np.less(t, self.inputs)[:, None]
            beta[:, t] = np.where(live, total + emit[t], -np.inf)
            ahead[:, :-2] = beta[:, t]
        return beta


_LENGTHS = {"": "int[] input_lengths, int[] target_lengths",
            ".Tensor": "Tensor input_lengths, Tensor target_lengths"}  # fmt: skip


def _kernels(overload: str) -> None:
    def meta(
        log_probs: Tensor, targets: Tensor, inputs: Any, wanted: Any, blank: int, quiet: bool
    ) -> Any:
        lengths = lengths_of(inputs), lengths_of(wanted)
        check_ctc(log_probs, targets, *lengths, blank)
        longest = max(lengths[1], default=0) if targets.dim() == 1 else targets.shape[1]
        steps, batch, _ = log_probs.shape
        return (
            TensorSpec((batch,), log_probs.dtype, log_probs.device),
            TensorSpec((batch, steps, 2 * longest + 1), log_probs.dtype, log_probs.device),
        )

    def by_value(
        extent: Any, log_probs: Tensor, targets: Tensor, inputs: Any, wanted: Any, blank: int,
        quiet: bool,
    ) -> Any:  # fmt: skip
        if not overload:
            return meta(log_probs, targets, inputs, wanted, blank, quiet)
        if log_probs.dtype not in (dt.float32, dt.float64):
            refuse("ctc_loss_cpu", log_probs.dtype)
        places = targets.shape[-1]
        most = 2 * places + 1  # a state for each label and each blank around them
        width = extent(1, most) if targets.dim() == 1 else most
        steps, batch, _ = log_probs.shape
        return (
            TensorSpec((batch,), log_probs.dtype, log_probs.device),
            TensorSpec((batch, steps, width), log_probs.dtype, log_probs.device),
        )

    def kernel(
        outs: Any, log_probs: Tensor, targets: Tensor, inputs: Any, wanted: Any, blank: int,
        quiet: bool,
    ) -> None:  # fmt: skip
        import numpy as np  # lazy: NumPy is heavy

        lattice = _Lattice(
            array_of(log_probs), array_of(targets).astype(np.int64), lengths_of(inputs),
            lengths_of(wanted), blank,
        )  # fmt: skip
        with np.errstate(all="ignore"):
            alpha = lattice.alphas()
            store(outs[0], lattice.losses(alpha))
        store(outs[1], alpha)

    def vjp(
        b: Any, g: Any, log_probs: Any, targets: Any, inputs: Any, wanted: Any, blank: int,
        quiet: bool,
    ) -> Any:  # fmt: skip
        made = aten._ctc_loss_backward(
            g[0], log_probs, targets, inputs, wanted, b.outs[0], b.outs[1], blank, quiet
        )
        return made, None, *([None, None] if overload else [])

    def backward_meta(g: Tensor, log_probs: Tensor, *rest: Any) -> TensorSpec:
        return TensorSpec(log_probs.shape, log_probs.dtype, log_probs.device)

    def backward_kernel(
        out: Tensor, g: Tensor, log_probs: Tensor, targets: Tensor, inputs: Any, wanted: Any,
        loss: Tensor, log_alpha: Tensor, blank: int, quiet: bool,
    ) -> None:  # fmt: skip
        import numpy as np  # lazy: NumPy is heavy

        # What a chain of logarithms and sums loses is kept: float64 until the result is stored.
        probs = array_of(log_probs).astype(np.float64)
        lattice = _Lattice(
            probs, array_of(targets).astype(np.int64), lengths_of(inputs), lengths_of(wanted), blank
        )
        alpha, nll = array_of(log_alpha), array_of(loss)
        steps, batch, classes = probs.shape
        with np.errstate(all="ignore"):
            both = np.exp(alpha + lattice.betas() - 2 * lattice.emit.transpose(1, 0, 2)
                          + nll[:, None, None])  # fmt: skip
        both = np.where(lattice.valid[:, None, :], both, 0)
        share = np.zeros((batch, steps, classes), probs.dtype)
        every = np.arange(batch)[:, None]
        for t in range(steps):
            np.add.at(share[:, t], (every, lattice.labels), both[:, t])
        made = (1 - share.transpose(1, 0, 2)) * np.exp(probs)
        made = np.where((np.arange(steps)[:, None] < lattice.inputs)[..., None], made, 0)
        made = made * array_of(g)[None, :, None]
        if quiet:
            made = np.where(np.isinf(nll)[None, :, None], 0, made)
        store(out, made)

    common = {"__module__": __name__, "takes16": False}
    type("CtcLoss", (Opaque,), {
        "__doc__": "-log of the probability of each target, and the forward sums.",
        "schema": f"_ctc_loss{overload}(Tensor log_probs, Tensor targets, {_LENGTHS[overload]}, "
        "int blank=0, bool zero_infinity=False) -> (Tensor, Tensor)",
        "meta": meta, "kernel": kernel, "vjp": vjp, "differentiable": (0,), "node_name": "CtcLoss",
        "public": "function", "by_value": by_value, **common,
    })  # fmt: skip
    type("CtcLossBackward", (Opaque,), {
        "__doc__": "The gradient of _ctc_loss.", "no_formula": True, "public": "",
        "schema": f"_ctc_loss_backward{overload}(Tensor grad, Tensor log_probs, Tensor targets, "
        f"{_LENGTHS[overload]}, Tensor neg_log_likelihood, Tensor log_alpha, int blank, "
        "bool zero_infinity=False) -> Tensor",
        "meta": backward_meta, "kernel": backward_kernel, **common,
    })  # fmt: skip


_kernels("")
_kernels(".Tensor")


def _whole(overload: str) -> None:
    def decompose(
        log_probs: Tensor, targets: Tensor, inputs: Any, wanted: Any, blank: int, reduction: int,
        quiet: bool,
    ) -> Any:  # fmt: skip
        for name, v in (("input_lengths", inputs), ("target_lengths", wanted)):
            if isinstance(v, Tensor) and not dt.is_integral(v.dtype):
                raise RuntimeError(f"{name} must be integral")
        single = log_probs.dim() == 2
        given = aten.unsqueeze(log_probs, 1) if single else log_probs
        traced = any(isinstance(v, Tensor) and _has_no_values(v) for v in (inputs, wanted))
        if not traced:
            inputs, wanted = lengths_of(inputs), lengths_of(wanted)
        loss = aten._ctc_loss(given, targets, inputs, wanted, blank, quiet)[0]
        if quiet:
            loss = aten.where(
                aten.isinf(loss), aten.zeros((), dtype=loss.dtype, device=loss.device), loss
            )
        if reduction == 1:
            if traced:
                sizes = aten._to_copy(aten.clamp(wanted, min=1), dtype=loss.dtype)
            else:
                sizes = tensor([max(n, 1) for n in wanted], dtype=loss.dtype)
            return aten.mean(aten.div(loss, sizes))
        if reduction == 2:
            return aten.sum(loss)
        return aten.squeeze(loss, 0) if single else loss

    name = overload or ".IntList"
    type("CtcLossReduced", (Composite,), {
        "__doc__": "The CTC loss of a batch, (T, N, C) or (T, C).", "__module__": __name__,
        "schema": f"ctc_loss{name}(Tensor log_probs, Tensor targets, {_LENGTHS[overload]}, "
        "int blank=0, int reduction=1, bool zero_infinity=False) -> Tensor",
        "decompose": decompose, "public": "function",
    })  # fmt: skip


_whole("")
_whole(".Tensor")
