"""What optimizers and schedules are made to do, for PyTorch (`record`) and for flambeau alike."""

from __future__ import annotations

import math
from typing import Any

STEPS = 5
#: (optimizer, options); a string "T" as a rate means a tensor.
OPTIMIZERS: list[tuple[str, dict[str, Any]]] = [
    ("SGD", {"lr": 0.1}),
    ("SGD", {"lr": 0.1, "momentum": 0.9, "dampening": 0.3, "weight_decay": 0.1}),
    ("SGD", {"lr": 0.1, "momentum": 0.9, "nesterov": True, "maximize": True}),
    ("SGD", {"lr": "T", "fused": True, "momentum": 0.5}),
    ("Adam", {"lr": 0.05}),
    ("Adam", {"lr": 0.05, "amsgrad": True, "weight_decay": 0.1, "foreach": False}),
    ("Adam", {"lr": "T", "betas": (0.5, 0.6), "eps": 1e-3}),
    ("Adam", {"lr": 0.05, "fused": True, "maximize": True}),
    ("AdamW", {"lr": 0.05}),
    ("AdamW", {"lr": 0.05, "weight_decay": 0.3, "amsgrad": True, "foreach": True}),
    ("Adagrad", {"lr": 0.1, "lr_decay": 0.1, "weight_decay": 0.1}),
    ("Adagrad", {"initial_accumulator_value": 0.5, "maximize": True}),
    ("Adadelta", {"lr": 0.5, "weight_decay": 0.1}),
    ("Adadelta", {"rho": 0.5, "maximize": True}),
    ("Adamax", {"lr": 0.05, "weight_decay": 0.1}),
    ("NAdam", {"lr": 0.05, "momentum_decay": 0.1}),
    ("NAdam", {"lr": 0.05, "weight_decay": 0.1, "decoupled_weight_decay": True}),
    ("RAdam", {"lr": 0.05, "betas": (0.5, 0.6)}),
    ("RAdam", {"lr": 0.05, "weight_decay": 0.1}),
    ("RMSprop", {"lr": 0.05, "momentum": 0.5, "weight_decay": 0.1}),
    ("RMSprop", {"lr": 0.05, "centered": True}),
    ("Rprop", {"lr": 0.1, "etas": (0.3, 1.5)}),
    ("ASGD", {"lr": 0.1, "weight_decay": 0.1, "t0": 2}),
    ("Adafactor", {"weight_decay": 0.1}),
    ("Adafactor", {"eps": (1e-5, 0.01), "d": 1.5, "maximize": True}),
    ("LBFGS", {}),
    ("LBFGS", {"line_search_fn": "strong_wolfe", "max_iter": 7, "history_size": 3}),
    ("Muon", {"lr": 0.1}),
]

#: (schedule, arguments, options); "other" stands for a schedule made of others.
SCHEDULES: list[tuple[str, list[Any], dict[str, Any]]] = [
    ("LambdaLR", ["lambda"], {}),
    ("MultiplicativeLR", ["lambda"], {}),
    ("StepLR", [3], {}),
    ("MultiStepLR", [[2, 5, 5, 9]], {"gamma": 0.5}),
    ("ConstantLR", [0.5, 4], {}),
    ("LinearLR", [0.1, 1.0, 7], {}),
    ("ExponentialLR", [0.9], {}),
    ("CosineAnnealingLR", [5, 0.001], {}),
    ("PolynomialLR", [6, 2.0], {}),
    ("CosineAnnealingWarmRestarts", [3, 2, 0.01], {}),
    ("CyclicLR", [[0.1, 0.2], 1.0, 3, 5], {}),
    ("CyclicLR", [0.1, 1.0, 3], {"mode": "exp_range", "gamma": 0.9}),
    ("OneCycleLR", [[1.0, 2.0]], {"total_steps": 20}),
    ("OneCycleLR", [1.0], {"total_steps": 20, "three_phase": True, "anneal_strategy": "linear"}),
    ("SequentialLR", ["sequence"], {}),
    ("ChainedScheduler", ["chain"], {}),
    ("SWALR", [0.05, 4], {}),
]


def name_of(case: tuple[Any, ...]) -> str:
    return " ".join(str(part) for part in case)


def gradient(step: int, element: int) -> float:
    """A number between -1 and 1 that is not regular."""
    return math.sin(3.7 * step + 1.3 * element + 0.5)


def parameters(torch: Any, matrices_only: bool) -> list[Any]:
    shapes = [(3, 2), (2, 4)] if matrices_only else [(3, 2), (5,), ()]
    made = []
    for k, shape in enumerate(shapes):
        count = math.prod(shape)
        values = [math.cos(1.7 * i + k) for i in range(count)]
        made.append(torch.nn.Parameter(torch.tensor(values).reshape(shape)))
    return made


def _options(torch: Any, options: dict[str, Any]) -> dict[str, Any]:
    return {k: torch.tensor(0.05) if v == "T" else v for k, v in options.items()}


def optimize(torch: Any, case: tuple[str, dict[str, Any]]) -> tuple[list[float], Any]:
    """Run an optimizer; all elements of the parameters, and the optimizer."""
    name, options = case
    params = parameters(torch, name == "Muon")
    optimizer = getattr(torch.optim, name)(params, **_options(torch, options))
    for step in range(STEPS):

        def closure(step: int = step) -> Any:
            optimizer.zero_grad()
            loss = sum(((p - 0.3) ** 4).sum() + (p**2).sum() for p in params)
            loss.backward()
            return loss

        if name == "LBFGS":
            optimizer.step(closure)
            continue
        for k, p in enumerate(params):
            values = [gradient(step + 11 * k, i) for i in range(p.numel())]
            p.grad = torch.tensor(values).reshape(p.shape)
        optimizer.step()
    return [x for p in params for x in p.detach().reshape(-1).tolist()], optimizer


def schedule(torch: Any, case: tuple[str, list[Any], dict[str, Any]]) -> list[list[float]]:
    """The rates and momenta of two groups over 16 steps, and after a resume."""
    name, arguments, options = case
    lrs = torch.optim.lr_scheduler

    def make() -> tuple[Any, Any]:
        groups = [
            {"params": [torch.nn.Parameter(torch.zeros(1))], "lr": 0.1 * (i + 1)} for i in range(2)
        ]
        optimizer = torch.optim.SGD(groups, momentum=0.9)
        if arguments[0] == "sequence":
            parts = [lrs.ConstantLR(optimizer, 0.5, 3), lrs.ExponentialLR(optimizer, 0.9)]
            parts.append(lrs.CosineAnnealingLR(optimizer, 4))
            return optimizer, lrs.SequentialLR(optimizer, parts, [3, 8])
        if arguments[0] == "chain":
            parts = [lrs.ConstantLR(optimizer, 0.5, 3), lrs.ExponentialLR(optimizer, 0.9)]
            return optimizer, lrs.ChainedScheduler(parts)
        args = [(lambda e: 0.9**e) if a == "lambda" else a for a in arguments]
        home = torch.optim.swa_utils if name == "SWALR" else lrs
        return optimizer, getattr(home, name)(optimizer, *args, **options)

    seen = []

    def look(optimizer: Any) -> None:
        seen.append([x for g in optimizer.param_groups for x in (float(g["lr"]), g["momentum"])])

    optimizer, scheduler = make()
    look(optimizer)
    for _ in range(12):
        optimizer.step()
        scheduler.step()
        look(optimizer)
    saved = optimizer.state_dict(), scheduler.state_dict()
    optimizer, scheduler = make()
    optimizer.load_state_dict(saved[0])
    scheduler.load_state_dict(saved[1])
    for _ in range(4):
        optimizer.step()
        scheduler.step()
        look(optimizer)
    return seen
