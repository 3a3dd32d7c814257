"""Schedules against the rates that PyTorch 2.13 gives (record.py), and their warnings."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import pytest

import flambeau as torch
from tests.optim import cases

EXPECTED = json.loads(Path(__file__).with_name("expected.json").read_text())["schedules"]
lrs = torch.optim.lr_scheduler


@pytest.mark.parametrize("case", cases.SCHEDULES, ids=cases.name_of)
def test_values(case: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        # Python numbers, in the same order of operations: equal, not nearly so.
        assert cases.schedule(torch, case) == EXPECTED[cases.name_of(case)]


def an_optimizer(**options: Any) -> Any:
    return torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], **{"lr": 0.1, **options})


def test_plateau() -> None:
    optimizer = an_optimizer()
    scheduler = lrs.ReduceLROnPlateau(optimizer, patience=1, factor=0.5, cooldown=1, min_lr=0.03)
    rates = []
    for loss in [3, 2, 2, 2, 2, 2, 2, 1, 1, 1, 1, 1]:
        scheduler.step(loss)
        rates.append(optimizer.param_groups[0]["lr"])
    assert rates == [0.1, 0.1, 0.1, 0.05, 0.05, 0.05, 0.03, 0.03, 0.03, 0.03, 0.03, 0.03]
    other = lrs.ReduceLROnPlateau(an_optimizer())
    other.load_state_dict(scheduler.state_dict())
    assert other.state_dict() == scheduler.state_dict()


def test_tensor_rate_is_filled_in_place() -> None:
    rate = torch.tensor(0.1)
    optimizer = an_optimizer(lr=rate)
    scheduler = lrs.ExponentialLR(optimizer, 0.5)
    optimizer.step()
    scheduler.step()
    assert optimizer.param_groups[0]["lr"] is rate
    assert rate.item() == pytest.approx(0.05)
    assert scheduler.get_last_lr()[0] is not rate


def test_resume_by_last_epoch() -> None:
    optimizer = an_optimizer()
    scheduler = lrs.StepLR(optimizer, 2, 0.5)
    for _ in range(3):
        optimizer.step()
        scheduler.step()
    again = lrs.StepLR(optimizer, 2, 0.5, last_epoch=scheduler.last_epoch - 1)
    assert again.last_epoch == 3
    with pytest.raises(KeyError, match="param 'initial_lr' is not specified"):
        lrs.StepLR(an_optimizer(), 2, last_epoch=3)


def _warned(action: Any) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        action()
    assert all(w.filename == __file__ for w in caught)
    return [str(w.message) for w in caught]


def test_warnings() -> None:
    scheduler = lrs.StepLR(an_optimizer(), 2)
    (text,) = _warned(lambda: scheduler.step())
    assert "`lr_scheduler.step()` before `optimizer.step()`" in text
    assert "please use `get_last_lr()`" in _warned(lambda: scheduler.get_lr())[0]
    assert "epoch parameter" in _warned(lambda: scheduler.step(4))[0]
    assert scheduler.get_last_lr() == pytest.approx([0.001])


@pytest.mark.parametrize(
    ("make", "error", "text"),
    [
        (lambda o: lrs.StepLR(3, 2), TypeError, "int is not an Optimizer"),
        (lambda o: lrs.LambdaLR(o, [1, 2]), ValueError, "Expected 1 lr_lambdas, but got 2"),
        (lambda o: lrs.SequentialLR(o, [], []), ValueError, "at least one scheduler"),
        (lambda o: lrs.ReduceLROnPlateau(o, mode="x"), ValueError, "mode x is unknown!"),
        (lambda o: lrs.CyclicLR(o, 0.1, 1, mode="x"), ValueError, "mode is invalid"),
        (lambda o: lrs.OneCycleLR(o, 1), ValueError, "You must define either total_steps"),
    ],
)
def test_errors(make: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error) as caught:
        make(an_optimizer(momentum=0.5))
    assert text in str(caught.value)


def test_functions_are_not_saved_but_objects_are() -> None:
    class Decay:
        def __init__(self) -> None:
            self.factor = 0.5

        def __call__(self, epoch: int) -> float:
            return self.factor**epoch

    scheduler = lrs.LambdaLR(an_optimizer(), Decay())
    assert scheduler.state_dict()["lr_lambdas"] == [{"factor": 0.5}]
    plain = lrs.LambdaLR(an_optimizer(), lambda e: 1.0)
    assert plain.state_dict()["lr_lambdas"] == [None]
