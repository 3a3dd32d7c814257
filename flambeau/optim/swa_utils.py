"""Averages of a model over its training: stochastic weight averaging and moving averages.

Izmailov et al., arXiv:1803.05407; Polyak and Juditsky, 1992.
"""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Callable, Iterable
from copy import deepcopy
from typing import Any, Literal, TypeAlias

import flambeau as torch
from flambeau import Tensor
from flambeau.nn import Module

from ._schedule_parts import per_group
from .lr_scheduler import LRScheduler, Rate
from .optimizer import Optimizer

__all__ = [
    "AveragedModel",
    "update_bn",
    "SWALR",
    "get_ema_multi_avg_fn",
    "get_swa_multi_avg_fn",
    "get_ema_avg_fn",
    "get_swa_avg_fn",
]

PARAM_LIST: TypeAlias = "tuple[Tensor, ...] | list[Tensor]"
AvgFn: TypeAlias = Callable[[Tensor, Tensor, "Tensor | int"], Tensor]
MultiAvgFn: TypeAlias = Callable[[Any, Any, "Tensor | int"], None]


def _check_decay(decay: float) -> None:
    if decay < 0.0 or decay > 1.0:
        raise ValueError(
            f"Invalid decay value {decay} provided. Please provide a value in [0,1] range."
        )


def _averages(t: Tensor) -> bool:
    return torch.is_floating_point(t) or torch.is_complex(t)


def get_ema_multi_avg_fn(decay: float = 0.999) -> MultiAvgFn:
    """A function on lists of tensors: ``average = decay * average + (1 - decay) * current``."""
    _check_decay(decay)

    @torch.no_grad()
    def ema_update(ema_param_list: PARAM_LIST, current_param_list: PARAM_LIST, _: Any) -> None:
        if _averages(ema_param_list[0]):
            for ema, current in zip(ema_param_list, current_param_list, strict=True):
                ema.lerp_(current, 1 - decay)
        else:
            for ema, current in zip(ema_param_list, current_param_list, strict=True):
                ema.copy_(ema * decay + current * (1 - decay))

    return ema_update


def get_swa_multi_avg_fn() -> MultiAvgFn:
    """A function on lists of tensors: the plain mean of all that were seen."""

    @torch.no_grad()
    def swa_update(
        averaged_param_list: PARAM_LIST,
        current_param_list: PARAM_LIST,
        num_averaged: Tensor | int,
    ) -> None:
        if _averages(averaged_param_list[0]):
            weight = 1 / (num_averaged + 1)
            for average, current in zip(averaged_param_list, current_param_list, strict=True):
                average.lerp_(current, weight)
        else:
            for average, current in zip(averaged_param_list, current_param_list, strict=True):
                average.addcdiv_(current - average, num_averaged + 1)

    return swa_update


def get_ema_avg_fn(decay: float = 0.999) -> AvgFn:
    """A function of (average, current, count): the moving average with that decay."""
    _check_decay(decay)

    @torch.no_grad()
    def ema_update(ema_param: Tensor, current_param: Tensor, num_averaged: Any) -> Tensor:
        return decay * ema_param + (1 - decay) * current_param

    return ema_update


def get_swa_avg_fn() -> AvgFn:
    """A function of (average, current, count): the plain mean."""

    @torch.no_grad()
    def swa_update(averaged_param: Tensor, current_param: Tensor, num_averaged: Any) -> Tensor:
        return averaged_param + (current_param - averaged_param) / (num_averaged + 1)

    return swa_update


class AveragedModel(Module):
    """A copy of a model whose parameters are averages of those that the model went through.

    Args:
        model: the model to average; it is copied.
        device: where the copy lives.
        avg_fn: ``f(average, current, count) -> new average``, for each tensor.
        multi_avg_fn: ``f(averages, currents, count)``, in place, for the tensors of one device
            and dtype together. With neither, the plain mean.
        use_buffers: average the buffers too; otherwise they are copied.

    The buffer ``n_averaged`` counts the calls of `update_parameters`.
    """

    n_averaged: Tensor

    def __init__(
        self,
        model: Module,
        device: int | torch.device | None = None,
        avg_fn: AvgFn | None = None,
        multi_avg_fn: MultiAvgFn | None = None,
        use_buffers: bool = False,
    ) -> None:
        super().__init__()
        if avg_fn is not None and multi_avg_fn is not None:
            raise AssertionError("Only one of avg_fn and multi_avg_fn should be provided")
        self.module = deepcopy(model)
        if device is not None:
            self.module = self.module.to(device)
        self.register_buffer("n_averaged", torch.tensor(0, dtype=torch.long, device=device))
        self.avg_fn = avg_fn
        self.multi_avg_fn = multi_avg_fn
        self.use_buffers = use_buffers

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Call the averaged model."""
        return self.module(*args, **kwargs)

    def update_parameters(self, model: Module) -> None:
        """Take `model`, as it is now, into the average; the first call copies it."""
        averages = self._tensors_of(self.module)
        currents = self._tensors_of(model)
        pairs = [
            (average.detach(), current.detach().to(average.device))
            for average, current in zip(averages, currents, strict=False)
        ]
        if self.n_averaged == 0:
            for average, current in pairs:
                average.copy_(current)
        elif self.avg_fn is not None:
            for average, current in pairs:
                count = self.n_averaged.to(average.device)
                average.copy_(self.avg_fn(average, current, count))
        elif pairs:
            self._update_together(pairs)
        if not self.use_buffers:
            for own, theirs in zip(self.module.buffers(), model.buffers(), strict=False):
                own.detach().copy_(theirs.detach().to(own.device))
        self.n_averaged += 1

    def _tensors_of(self, model: Module) -> Iterable[Tensor]:
        if self.use_buffers:
            return itertools.chain(model.parameters(), model.buffers())
        return model.parameters()

    def _update_together(self, pairs: list[tuple[Tensor, Tensor]]) -> None:
        averages, currents = (list(side) for side in zip(*pairs, strict=True))
        groups = Optimizer._group_tensors_by_device_and_dtype([averages, currents])
        update = self.multi_avg_fn or get_swa_multi_avg_fn()
        for (device, _), ((own, theirs), _) in groups.items():
            if self.multi_avg_fn is None and not _averages(own[0]):
                one = get_swa_avg_fn()
                for average, current in zip(own, theirs, strict=True):
                    average.copy_(one(average, current, self.n_averaged.to(device)))
            else:
                update(own, theirs, self.n_averaged.to(device))


@torch.no_grad()
def update_bn(
    loader: Iterable[Any], model: Module, device: int | torch.device | None = None
) -> None:
    """Compute the running statistics of the batch-norm layers of `model` again, from `loader`.

    Args:
        loader: gives batches, or lists and tuples whose first element is the batch.
        model: set to training for it, and back.
        device: where batches are moved.
    """
    norms = [m for m in model.modules() if isinstance(m, torch.nn.modules.batchnorm._BatchNorm)]
    if not norms:
        return
    momenta = [(norm, norm.momentum) for norm in norms]
    was_training = model.training
    model.train()
    for norm in norms:
        norm.reset_running_stats()
        # A momentum of None makes the statistics a plain mean over the batches.
        norm.momentum = None
    for batch in loader:
        if isinstance(batch, (list, tuple)):
            batch = batch[0]
        model(batch if device is None else batch.to(device))
    for norm, momentum in momenta:
        norm.momentum = momentum
    model.train(was_training)


class SWALR(LRScheduler):
    """Goes from the present rate to a constant one, `swa_lr`, within `anneal_epochs` steps.

    Args:
        optimizer: whose rates are set.
        swa_lr: the constant rate, for all groups or a list.
        anneal_epochs: steps until it is reached.
        anneal_strategy: ``"cos"`` or ``"linear"``.
        last_epoch: the epoch to continue from; -1 to begin.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        swa_lr: float,
        anneal_epochs: int = 10,
        anneal_strategy: Literal["cos", "linear"] = "cos",
        last_epoch: int = -1,
    ) -> None:
        rates = per_group("swa_lr", optimizer, swa_lr)
        for rate, group in zip(rates, optimizer.param_groups, strict=True):
            group["swa_lr"] = rate
        if anneal_strategy not in ("cos", "linear"):
            raise ValueError(
                f"anneal_strategy must be one of 'cos' or 'linear', instead got {anneal_strategy}"
            )
        self._anneal_strategy = anneal_strategy
        if not isinstance(anneal_epochs, int) or anneal_epochs < 0:
            raise ValueError(f"anneal_epochs must be equal or greater than 0, got {anneal_epochs}")
        self.anneal_epochs = anneal_epochs
        super().__init__(optimizer, last_epoch)

    def anneal_func(self, t: float) -> float:
        """The share of `swa_lr` when the share `t` of the epochs is done."""
        return t if self._anneal_strategy == "linear" else (1 - math.cos(math.pi * t)) / 2

    def get_lr(self) -> list[Rate]:
        """The next rates, from the present ones."""
        if not self._get_lr_called_within_step:
            warnings.warn(
                "To get the last learning rate computed by the scheduler, "
                "please use `get_last_lr()`.",
                UserWarning,
                stacklevel=2,
            )
        step = self._step_count - 1
        if self.anneal_epochs == 0:
            step = max(1, step)
        epochs = max(1, self.anneal_epochs)
        # The rate without the schedule is found back from the present one and its share.
        before = self.anneal_func(max(0, min(1, (step - 1) / epochs)))
        now = self.anneal_func(max(0, min(1, step / epochs)))
        rates = []
        for group in self.optimizer.param_groups:
            lr, swa_lr = group["lr"], group["swa_lr"]
            lr = swa_lr if before == 1 else (lr - before * swa_lr) / (1 - before)
            rates.append(swa_lr * now + lr * (1 - now))
        return rates
