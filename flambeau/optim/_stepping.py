"""How a step goes over the parameters: grad mode, complex numbers, fused kernels, devices."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

import flambeau as torch
from flambeau import Tensor

_F = TypeVar("_F", bound=Callable[..., Any])


def _use_grad_for_differentiable(func: _F) -> _F:
    """A step method that runs with gradients on or off, as its optimizer's defaults say."""

    @functools.wraps(func)
    def step(*args: Any, **kwargs: Any) -> Any:
        before = torch.is_grad_enabled()
        torch.set_grad_enabled(bool(args[0].defaults.get("differentiable")))
        try:
            return func(*args, **kwargs)
        finally:
            torch.set_grad_enabled(before)

    return step  # type: ignore[return-value]


def _get_value(x: Any) -> Any:
    """A number from a one-element tensor; while compiling a tensor in a number's precision."""
    if isinstance(x, Tensor):
        return x.double() if torch.compiler.is_compiling() else x.item()
    return x


def add_quotient_(p: Tensor, a: Tensor, b: Tensor, factor: Any) -> None:
    """``p += factor * a / b``; while compiling a factor that is a tensor stays one."""
    if isinstance(factor, Tensor) and (factor.requires_grad or torch.compiler.is_compiling()):
        p.add_((a / b).mul_(factor))
    else:
        p.addcdiv_(a, b, value=factor)


def add_scaled_(p: Tensor, update: Tensor, factor: Any) -> None:
    """``p += factor * update``; while compiling a factor that is a tensor stays one."""
    if isinstance(factor, Tensor) and torch.compiler.is_compiling():
        p.add_(update * factor)
    else:
        p.add_(update, alpha=factor)


def _stack_if_compiling(x: Any) -> Any:
    return torch.stack(x) if torch.compiler.is_compiling() else x


def _to_scalar(x: Any) -> Any:
    """A one-element tensor as a 0-dim one; anything else as it is."""
    return x.squeeze() if isinstance(x, Tensor) and x.dim() != 0 else x


def _get_scalar_dtype(is_fused: bool | None = None) -> torch.dtype:
    """The dtype of the step counters."""
    if is_fused:
        return torch.float32
    return torch.float64 if torch.get_default_dtype() == torch.float64 else torch.float32


def _get_capturable_supported_devices(supports_xla: bool = True) -> list[str]:
    """Device types on which ``capturable=True`` may run uncompiled."""
    return ["cuda", "xpu", "hpu", "privateuseone"] + (["xla"] if supports_xla else [])


def _get_foreach_kernels_supported_devices() -> list[str]:
    """Device types where lists of tensors are updated together by default."""
    return ["cuda", "xpu", "mtia", "privateuseone"]


def _get_fused_kernels_supported_devices() -> list[str]:
    """Device types that have the ``_fused_*`` operators."""
    return ["mps", "cuda", "xpu", "hpu", "cpu", "mtia", "privateuseone"]


def _is_plain(p: Tensor) -> bool:
    return type(p) is Tensor or type(p) is torch.nn.Parameter


def _default_to_fused_or_foreach(
    params: list[Tensor], differentiable: bool, use_fused: bool = False
) -> tuple[bool, bool]:
    """(fused, foreach): which form suits these parameters where the user named none."""
    if differentiable:
        return False, False
    fused = use_fused and all(
        p is None
        or (
            _is_plain(p)
            and p.device.type in _get_fused_kernels_supported_devices()
            and torch.is_floating_point(p)
        )
        for p in params
    )
    foreach = not fused and all(
        p is None or (_is_plain(p) and p.device.type in _get_foreach_kernels_supported_devices())
        for p in params
    )
    return fused, foreach


def _device_dtype_check_for_fused(p: Tensor, cuda_unsupported: bool = False) -> None:
    """RuntimeError where ``fused=True`` cannot be had for the parameter `p`."""
    devices = _get_fused_kernels_supported_devices()
    if cuda_unsupported:
        devices.remove("cuda")
    if not (p.device.type in devices and torch.is_floating_point(p)):
        raise RuntimeError(
            "`fused=True` requires all the params to be floating point Tensors of "
            f"supported devices: {devices} but {p.dtype} and {p.device.type}"
        )


def _view_as_real(params: list[Tensor], *state_and_grads: list[Tensor]) -> None:
    """Replace complex parameters, and what belongs to them in the other lists, by real views."""
    for i, p in enumerate(params):
        if torch.is_complex(p):
            params[i] = torch.view_as_real(p)
            for others in state_and_grads:
                others[i] = torch.view_as_real(others[i])


def _group_tensors_by_device_and_dtype(
    lists: Sequence[list[Any]], with_indices: bool = False
) -> dict[tuple[Any, Any], tuple[list[list[Any]], list[int]]]:
    """Split parallel lists by (device, dtype) of the tensors of the first one.

    Lists may be empty, and hold None. Returns ``{(device, dtype): (lists, indices)}``.
    """
    groups: dict[tuple[Any, Any], tuple[list[list[Any]], list[int]]] = {}
    for i, first in enumerate(lists[0]):
        key = (first.device, first.dtype)
        if key not in groups:
            groups[key] = ([[] for _ in lists], [])
        parts, indices = groups[key]
        for part, whole in zip(parts, lists, strict=True):
            if whole:
                part.append(whole[i])
        if with_indices:
            indices.append(i)
    return groups


# What our own optimizers use.


def setting_defaults(state_numbers: tuple[str, ...] = (), **late: Any) -> Callable[[type], type]:
    """Give an optimizer class the ``__setstate__`` that reads states saved by older versions.

    `late` are options that a saved group may lack; `state_numbers` names state entries that were
    Python numbers once and are 0-dim tensors now.
    """

    def decorate(cls: type) -> type:
        def __setstate__(self: Any, state: dict[str, Any]) -> None:
            super(cls, self).__setstate__(state)
            for group in self.param_groups:
                for name, value in late.items():
                    group.setdefault(name, value)
                fused = group.get("fused")
                for p in group["params"]:
                    entry = self.state.get(p, {})
                    for name in state_numbers:
                        if name in entry and not isinstance(entry[name], Tensor):
                            entry[name] = _counter(
                                p, float(entry[name]), group.get("capturable") or fused, fused
                            )

        cls.__setstate__ = __setstate__  # type: ignore[attr-defined]
        return cls

    return decorate


def _counter(p: Tensor, value: float, beside: Any, fused: Any = None) -> Tensor:
    """A 0-dim state tensor: on the device of `p` if `beside` is true, else on the CPU."""
    dtype = _get_scalar_dtype(is_fused=fused)
    if beside:
        return torch.tensor(value, dtype=dtype, device=p.device)
    return torch.tensor(value, dtype=dtype)


def new_step(p: Tensor, group: dict[str, Any], value: float = 0.0) -> Tensor:
    """The counter of steps of a new parameter."""
    fused = group.get("fused")
    return _counter(p, value, group.get("capturable") or fused, fused)


def zeros_like(p: Tensor) -> Tensor:
    """Zeros in the memory order of `p`."""
    return torch.zeros_like(p, memory_format=torch.preserve_format)


def check_lr(lr: Any) -> None:
    """ValueError where a learning rate is a tensor of several elements, or negative."""
    if isinstance(lr, Tensor) and lr.numel() != 1:
        raise ValueError("Tensor lr must be 1-element")
    if not 0.0 <= lr:
        raise ValueError(f"Invalid learning rate: {lr}")


def check_not_negative(message: str, value: Any) -> None:
    """ValueError "Invalid <message>: <value>" where `value` is negative (or NaN)."""
    if not 0.0 <= value:
        raise ValueError(f"Invalid {message}: {value}")


def check_betas(betas: Any) -> None:
    """ValueError where a decay rate is not in [0, 1)."""
    for index in range(2):
        if not 0.0 <= betas[index] < 1.0:
            raise ValueError(f"Invalid beta parameter at index {index}: {betas[index]}")


def check_step_tensors(
    steps: Iterable[Any], name: str = "state_steps", lead: str = "API has changed, "
) -> None:
    """RuntimeError where a functional form gets Python numbers as step counters."""
    if not torch.compiler.is_compiling() and not all(isinstance(t, Tensor) for t in steps):
        raise RuntimeError(f"{lead}`{name}` argument must contain a list of singleton tensors")


def check_capturable(
    capturable: bool, param: Tensor, *scalars: Tensor, names: str = "params and state_steps"
) -> None:
    """AssertionError where ``capturable=True`` meets a device that cannot be captured."""
    if not capturable or torch.compiler.is_compiling():
        return
    devices = _get_capturable_supported_devices()
    kind = param.device.type
    if kind not in devices or any(t.device.type != kind for t in scalars):
        raise AssertionError(
            f"If capturable=True, {names} must be on supported devices: {devices}."
        )


def as_real(*tensors: Tensor | None) -> Iterator[Tensor | None]:
    """Real views of complex tensors; others, and None, as they are."""
    return (torch.view_as_real(t) if t is not None and torch.is_complex(t) else t for t in tensors)


def fused_operator(
    name: str,
    params: list[Tensor],
    grads: list[Tensor],
    fused: bool | None,
    foreach: bool | None,
    plain: bool,
    lr: Any,
) -> Callable[..., Any] | None:
    """The operator ``torch.<name>`` if this step is to be one call of it.

    Asked for by ``fused=True``, and taken by default where it gives the same numbers up to
    rounding: float32 and float64, on the CPU, outside a trace. `plain` says that the caller uses
    nothing that the operator lacks.
    """
    operator: Callable[..., Any] | None = getattr(torch, name, None)
    if operator is None or fused is False or not plain:
        return None
    if fused:
        return operator
    if foreach is not None or isinstance(lr, Tensor) or torch.compiler.is_compiling():
        return None
    float32, float64, strided = torch.float32, torch.float64, torch.strided
    for p, g in zip(params, grads, strict=True):
        dtype = p.dtype
        if dtype is not float32 and dtype is not float64:
            return None
        if g.dtype is not dtype or type(g) is not Tensor or not _is_plain(p):
            return None
        if p.device.type != "cpu" or g.layout is not strided:
            return None
    return None if _watched() else operator


def fused_step(
    operator: Callable[..., Any],
    lists: list[list[Any]],
    lr: Any,
    grad_scale: Tensor | None,
    found_inf: Tensor | None,
    *,
    counted: bool = True,
    **options: Any,
) -> None:
    """Call a ``_fused_*`` operator once for each device and dtype of the parameters.

    `lists` are its list arguments in order, the parameters first. With `counted` the last are the
    step counters (0-dim, on the device of the parameters), which are counted up here, and down
    again where `found_inf` says that the step was not taken.
    """
    for part in _per_device_and_dtype(lists):
        device = part[0][0].device
        scale = None if grad_scale is None else grad_scale.to(device, non_blocking=True)
        skipped = None if found_inf is None else found_inf.to(device, non_blocking=True)
        steps = part[-1] if counted else []
        for step in steps:
            step += 1
        rate = lr
        if isinstance(lr, Tensor) and lr.device.type != "cpu" and lr.device != device:
            rate = lr.to(device, non_blocking=True)
        operator(*part, lr=rate, grad_scale=scale, found_inf=skipped, **options)
        for step in steps if skipped is not None else ():
            step -= skipped


def _per_device_and_dtype(lists: list[list[Any]]) -> list[list[list[Any]]]:
    params = lists[0]
    device, dtype = params[0].device, params[0].dtype
    if all(p.dtype is dtype and p.device == device for p in params):
        return [lists]
    return [parts for parts, _ in _group_tensors_by_device_and_dtype(lists).values()]


def _watched() -> bool:
    """Whether a mode looks at operators: it must then see those of the plain algorithm."""
    modes = getattr(torch.utils, "_python_dispatch", None)
    current = getattr(modes, "_get_current_dispatch_mode", None)
    return current is not None and current() is not None
