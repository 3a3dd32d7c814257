"""The step that most optimizers share: each parameter is updated from its own gradient alone."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, TypeVar

import flambeau as torch
from flambeau import Tensor

from ._stepping import _to_scalar, _use_grad_for_differentiable
from .optimizer import Optimizer

_F = TypeVar("_F", bound=Callable[..., Any])


class Parameterwise(Optimizer):
    """An optimizer that says how a parameter's state begins and how a group is updated.

    A group is updated by the functional form (`updates`), or by an `_update` of the class's own.
    """

    #: Whether `_update` can deal with sparse gradients.
    _takes_sparse = False
    #: The functional form, its list arguments behind gradients, and its options.
    _functional: Callable[..., None]
    _entries: tuple[tuple[str, str | None], ...]
    _options: tuple[str, ...]

    def _state_of(self, p: Tensor, group: dict[str, Any]) -> dict[str, Any]:
        state = self.state[p]
        if not state:
            state.update(self._begin(p, group))
        return state

    def _begin(self, p: Tensor, group: dict[str, Any]) -> dict[str, Any]:
        """The state of a parameter whose first gradient has come."""
        return {}

    def _update(
        self,
        group: dict[str, Any],
        params: list[Tensor],
        grads: list[Tensor],
        states: list[dict[str, Any]],
    ) -> None:
        """Update the parameters of a group that have gradients, and their states, in place."""
        lists = [
            [s[name] for s in states] if option is None or group[option] else []
            for name, option in self._entries
        ]
        self._functional(params, grads, *lists, **self._arguments(group))

    def _arguments(self, group: dict[str, Any]) -> dict[str, Any]:
        """The options of the functional form, as the group has them."""
        given = {name: group[name] for name in self._options if name in group}
        if "lr" in given:
            given["lr"] = _to_scalar(given["lr"])
        if "betas" in group:
            given["beta1"], given["beta2"] = group["betas"]
        return given

    def _check(self, p: Tensor, grad: Tensor) -> None:
        """Raise where this optimizer cannot work on such a parameter or gradient."""
        if grad.is_sparse and not self._takes_sparse:
            raise RuntimeError(f"{type(self).__name__} does not support sparse gradients")

    @_use_grad_for_differentiable
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update the parameters once.

        Args:
            closure: computes the loss and its gradients again, and returns the loss.

        Returns:
            what the closure returned, or None.
        """
        self._accelerator_graph_capture_health_check()
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            params, grads, states = [], [], []
            for p in group["params"]:
                grad = p.grad
                if grad is None:
                    continue
                self._check(p, grad)
                params.append(p)
                grads.append(grad)
                states.append(self._state_of(p, group))
            if params:
                self._update(group, params, grads, states)
        return loss

    def _accelerator_graph_capture_health_check(self) -> None:
        """Raise or warn where ``capturable`` and what the accelerator does now do not agree."""
        if "capturable" not in self.defaults or torch.compiler.is_compiling():
            return
        accelerator = torch.accelerator.current_accelerator(check_available=True)
        if accelerator is None or accelerator.type not in ("cuda", "xpu"):
            return
        capturing = torch.accelerator.current_stream().is_capturing()
        capturable = all(group["capturable"] for group in self.param_groups)
        kind = accelerator.type.upper()
        if capturing and not capturable:
            raise RuntimeError(
                f"Attempting {kind} graph capture of step() for an instance of "
                f"{type(self).__name__} but param_groups' capturable is False."
            )
        warned = getattr(self, "_warned_capturable_if_run_uncaptured", False)
        if capturable and not capturing and not warned:
            warnings.warn(
                "This instance was constructed with capturable=True or some of all the "
                "param_groups came with capturable=True, but step() is running without "
                f"{kind} graph capture. If you never intend to graph-capture this instance, "
                "capturable=True can impair performance, and you should set capturable=False.",
                stacklevel=2,
            )
            self._warned_capturable_if_run_uncaptured = True


def updates(cls: type[Parameterwise], *entries: str | tuple[str, str]) -> Callable[[_F], _F]:
    """Make a function the functional form of an optimizer: ``f(params, grads, *lists, **options)``.

    Args:
        cls: the optimizer.
        entries: names in a parameter's state, of which the function takes a list each; a pair's
            second name is an option of the group without which the list is empty.
    """

    def decorate(function: _F) -> _F:
        code = function.__code__
        names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        cls._functional = staticmethod(function)
        cls._entries = tuple((e, None) if isinstance(e, str) else e for e in entries)
        cls._options = names[2 + len(entries) :]
        return function

    return decorate
