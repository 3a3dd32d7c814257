"""Optimizers against the values that PyTorch 2.13 gives (record.py), and their other promises."""

from __future__ import annotations

import copy
import json
import pickle
import warnings
from pathlib import Path
from typing import Any

import pytest

import flambeau as torch
from tests.optim import cases

EXPECTED = json.loads(Path(__file__).with_name("expected.json").read_text())


@pytest.mark.parametrize("case", cases.OPTIMIZERS, ids=cases.name_of)
def test_values(case: tuple[str, dict[str, Any]]) -> None:
    values, optimizer = cases.optimize(torch, case)
    # Muon iterates in bfloat16, and Newton's method magnifies the last bits.
    tolerance = {"Muon": 2e-2, "LBFGS": 1e-4}.get(case[0], 2e-6)
    expected = EXPECTED["optimizers"][cases.name_of(case)]
    assert values == pytest.approx(expected, rel=tolerance, abs=tolerance)
    # What is saved is what is loaded: the next step is the same.
    state = optimizer.state_dict()
    other = pickle.loads(pickle.dumps(optimizer))
    assert repr(other) == repr(optimizer)
    other.load_state_dict(copy.deepcopy(state))
    assert list(other.state_dict()["state"]) == list(state["state"])


@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW"])
def test_plain_and_fused_agree(name: str) -> None:
    options = {"lr": 0.1, "weight_decay": 0.1}
    default, _ = cases.optimize(torch, (name, options))
    one_by_one, _ = cases.optimize(torch, (name, {**options, "foreach": False}))
    assert default == pytest.approx(one_by_one, rel=1e-6, abs=1e-7)


def a_parameter(*values: float) -> Any:
    return torch.nn.Parameter(torch.tensor(values or (1.0, 2.0)))


SGD = torch.optim.SGD


@pytest.mark.parametrize(
    ("make", "error", "text"),
    [
        (lambda p: SGD(p), TypeError, "an iterable of Tensors or dicts, but got torch.FloatTensor"),
        (lambda p: SGD([]), ValueError, "optimizer got an empty parameter list"),
        (lambda p: SGD([1]), TypeError, "optimizer can only optimize Tensors"),
        (lambda p: SGD([p * 1]), ValueError, "can't optimize a non-leaf Tensor"),
        (lambda p: SGD([{"params": {p}}]), TypeError, "sets will change between runs"),
        (lambda p: SGD([{"params": p}, {"params": p}]), ValueError, "more than one parameter"),
        (lambda p: SGD([("a", p), a_parameter()]), ValueError, "Some param names are missing"),
        (lambda p: SGD([p]).add_param_group(3), TypeError, "param_group must be a dict"),
        (lambda p: SGD([p], lr=-1), ValueError, "Invalid learning rate: -1"),
        (lambda p: SGD([p], momentum=-1), ValueError, "Invalid momentum value: -1"),
        (lambda p: SGD([p], nesterov=True), ValueError, "Nesterov momentum requires"),
        (lambda p: SGD([p], lr=torch.ones(2)), ValueError, "Tensor lr must be 1-element"),
        (lambda p: SGD([p], fused=True, foreach=True), RuntimeError, "cannot be `True` together"),
        (lambda p: torch.optim.Adam([p], betas=(1.0, 0)), ValueError, "parameter at index 0: 1.0"),
        (
            lambda p: torch.optim.Adam([p], lr=torch.tensor(1.0), foreach=True),
            ValueError,
            "lr as a Tensor is not supported for capturable=False and foreach=True",
        ),
        (
            lambda p: SGD([p]).load_state_dict({"state": {}, "param_groups": []}),
            ValueError,
            "a different number of parameter groups",
        ),
    ],
)
def test_errors(make: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error) as caught:
        make(a_parameter())
    assert text in str(caught.value)


def test_capturable_needs_a_device_that_captures() -> None:
    p = a_parameter()
    p.grad = torch.ones(2)
    with pytest.raises(AssertionError, match="must be on supported devices"):
        torch.optim.Adam([p], capturable=True).step()


def test_state_dict_has_the_known_shape() -> None:
    p, q = a_parameter(), a_parameter()
    optimizer = torch.optim.AdamW([{"params": [p], "lr": 0.5}, {"params": [("n", q)][0][1]}])
    p.grad = torch.ones(2)
    optimizer.step()
    state = optimizer.state_dict()
    assert list(state) == ["state", "param_groups"]
    assert list(state["state"]) == [0]
    assert list(state["state"][0]) == ["step", "exp_avg", "exp_avg_sq"]
    assert state["state"][0]["step"].dtype is torch.float32
    assert [g["params"] for g in state["param_groups"]] == [[0], [1]]
    assert state["param_groups"][0]["lr"] == 0.5


def test_names_of_parameters() -> None:
    layer = torch.nn.Linear(2, 1)
    optimizer = SGD(layer.named_parameters(), lr=0.1)
    assert optimizer.state_dict()["param_groups"][0]["param_names"] == ["weight", "bias"]
    with pytest.raises(ValueError, match="with/without names"):
        optimizer.add_param_group({"params": [a_parameter()]})


def test_zero_grad() -> None:
    p = a_parameter()
    optimizer = SGD([p])
    p.grad = torch.ones(2)
    held = p.grad
    optimizer.zero_grad(set_to_none=False)
    assert p.grad is held
    assert held.tolist() == [0, 0]
    optimizer.zero_grad()
    assert p.grad is None


def test_closure_and_hooks_in_order() -> None:
    p = a_parameter()
    optimizer = SGD([p], lr=0.5)
    seen = []
    optimizer.register_step_pre_hook(lambda o, args, kwargs: seen.append("before"))
    handle = optimizer.register_step_post_hook(lambda o, args, kwargs: seen.append("after"))

    def closure() -> Any:
        assert torch.is_grad_enabled()
        seen.append("closure")
        optimizer.zero_grad()
        loss = (p**2).sum()
        loss.backward()
        return loss

    with torch.no_grad():
        assert optimizer.step(closure).item() == 5.0
    assert seen == ["before", "closure", "after"]
    assert p.tolist() == [0.0, 0.0]
    handle.remove()
    optimizer.step()
    assert seen[3:] == ["before"]


def test_state_dict_hooks() -> None:
    optimizer = SGD([a_parameter()], lr=0.5)
    optimizer.register_state_dict_post_hook(lambda o, state: {**state, "more": 1})
    assert optimizer.state_dict()["more"] == 1
    optimizer.register_load_state_dict_pre_hook(lambda o, state: state.pop("more") and None)
    loaded = []
    optimizer.register_load_state_dict_post_hook(lambda o: loaded.append(o))
    optimizer.load_state_dict(optimizer.state_dict())
    assert loaded == [optimizer]


def test_differentiable_step() -> None:
    start = torch.tensor([1.0, 2.0], requires_grad=True)
    rate = torch.tensor(0.1, requires_grad=True)
    p = start.clone()
    optimizer = SGD([p], lr=rate, differentiable=True)
    p.grad = start * 3
    optimizer.step()
    p.sum().backward()
    # p = start - rate * 3 * start
    assert start.grad.tolist() == pytest.approx([0.7, 0.7])
    assert rate.grad.item() == pytest.approx(-9.0)


def test_state_moves_to_the_dtype_of_the_parameter() -> None:
    p = a_parameter()
    p.grad = torch.ones(2)
    optimizer = torch.optim.Adam([p])
    optimizer.step()
    q = torch.nn.Parameter(torch.ones(2, dtype=torch.float64))
    other = torch.optim.Adam([q])
    other.load_state_dict(optimizer.state_dict())
    assert other.state[q]["exp_avg"].dtype is torch.float64
    assert other.state[q]["step"].dtype is torch.float32


def test_own_optimizer() -> None:
    class Sign(torch.optim.Optimizer):
        def __init__(self, params: Any, lr: float) -> None:
            super().__init__(params, {"lr": lr})

        def step(self, closure: Any = None) -> None:
            for group in self.param_groups:
                for p in group["params"]:
                    p.data.sub_(group["lr"] * p.grad.sign())

    p = a_parameter()
    optimizer = Sign([p], lr=1.0)
    calls = []
    optimizer.register_step_post_hook(lambda *_: calls.append(1))
    p.grad = torch.tensor([-3.0, 5.0])
    optimizer.step()
    assert p.tolist() == [2.0, 1.0]
    assert calls == [1]


def test_duplicates_are_warned_of() -> None:
    p = a_parameter()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        SGD([p, p])
    assert "duplicate parameters" in str(caught[0].message)


def test_averaged_model() -> None:
    model = torch.nn.Linear(1, 1, bias=False)
    average = torch.optim.swa_utils.AveragedModel(model)
    for value in (1.0, 2.0, 6.0):
        with torch.no_grad():
            model.weight.fill_(value)
        average.update_parameters(model)
    assert average.module.weight.item() == pytest.approx(3.0)
    assert average.n_averaged.item() == 3
    decayed = torch.optim.swa_utils.AveragedModel(
        model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.9)
    )
    decayed.update_parameters(model)
    with torch.no_grad():
        model.weight.fill_(16.0)
    decayed.update_parameters(model)
    assert decayed.module.weight.item() == pytest.approx(7.0)
