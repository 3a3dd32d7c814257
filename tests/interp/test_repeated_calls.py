"""Calls that C repeats from what it followed of Python's body: as Python gives them, bit by bit."""

from __future__ import annotations

import gc
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import flambeau as torch
from flambeau._src import _native
from tests.ops import battery

OPS = list(battery.tested_ops())


@contextmanager
def in_python() -> Iterator[None]:
    before = _native.set_repeating(False)
    try:
        yield
    finally:
        _native.set_repeating(before)


def other_values(t: Any, turns: int) -> Any:
    """The same numbers in another order (so that they stay in the operator's domain)."""
    same = torch.empty_strided(t.shape, t.stride(), dtype=t.dtype).copy_(t.detach())
    if not turns % 2 or not t.dtype.is_floating_point or not t.dim():
        return same
    return same.copy_(t.detach().contiguous().flatten().flip(0).reshape(t.shape))


def described(t: Any) -> Any:
    """All that a result is, its bits included."""
    if not isinstance(t, torch.Tensor):
        return t
    bits = t.detach().resolve_conj().resolve_neg().contiguous().flatten()
    if bits.dtype is not torch.bool and bits.numel():
        bits = bits.view(torch.uint8)
    fn = t.grad_fn
    recorded = None if fn is None else (type(fn).__name__, [e[1] for e in fn.next_functions])
    place = (t.shape, t.stride(), t.storage_offset(), t.dtype, t.requires_grad, t._version)
    return (*place, t._is_view(), t.is_leaf, recorded, bits.tolist())


def called(op: Any, sample: Any, turns: int, grad: bool) -> Any:
    tensors = [other_values(t, turns) for t in battery.tensors_in(sample)]
    if grad:
        tensors = [t.requires_grad_() if t.dtype.is_floating_point else t for t in tensors]
    s = battery.with_tensors(sample, tensors)
    torch.manual_seed(turns)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            result = battery.function_of(op)(*s.args, **s.kwargs)
    except Exception as error:
        return type(error), str(error)
    kind = type(result).__name__
    parts = result if isinstance(result, (tuple, list)) else (result,)
    return kind, [described(x) for x in parts], [described(t) for t in tensors]


@pytest.mark.parametrize("op", OPS, ids=lambda op: op.key)
def test_every_operator(op: Any) -> None:
    """Five times the same call with other values: the third and later ones are repetitions."""
    for layout in ("contiguous", "permuted"):
        for sample in battery.samples_of(op, torch.float32, layout):
            for grad in (False, True):
                for turns in range(5):
                    found = called(op, sample, turns, grad)
                    with in_python():
                        assert found == called(op, sample, turns, grad), (sample, grad, turns)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.int64, torch.uint8, torch.bool])
def test_dtypes(dtype: Any) -> None:
    calls = [
        lambda x, y: x + 2, lambda x, y: x > 0, lambda x, y: x * 2.5, lambda x, y: x.sum(),
        lambda x, y: x.sum(-1, keepdim=True), lambda x, y: x.max(), lambda x, y: x.max(0),
        lambda x, y: x.float(), lambda x, y: x.to(torch.float64), lambda x, y: x.clone(),
        lambda x, y: torch.where(x > 0, x, y), lambda x, y: x.masked_fill(y > 0, 1),
        lambda x, y: x.any(), lambda x, y: x / 3, lambda x, y: torch.zeros_like(x),
        lambda x, y: x.clone().clamp_(0, 1), lambda x, y: x.clone().mul_(2), lambda x, y: x**2,
        lambda x, y: x.t().contiguous(), lambda x, y: x.reshape(-1), lambda x, y: x[None] == y,
    ]  # fmt: skip
    for call in calls:
        for turn in range(5):
            x = ((torch.arange(12) * (turn + 3)) % 5).reshape(3, 4).to(dtype)
            y = ((torch.arange(12) * (turn + 1)) % 3).reshape(3, 4).to(dtype)

            def outcome(call: Any = call, x: Any = x, y: Any = y) -> Any:
                try:
                    r = call(x.clone(), y.clone())
                except Exception as error:
                    return type(error), str(error)
                return [described(t) for t in (r if isinstance(r, tuple) else (r,))]

            found = outcome()
            with in_python():
                assert found == outcome()


def test_numbers_are_told_apart() -> None:
    x = torch.tensor([1.0, -2.0, 3.0])
    for _ in range(4):
        for p in (2, 3, 2.0, 0.5, -1, True, -0.0, 0.0):
            found = x.abs() ** p
            with in_python():
                assert described(found) == described(x.abs() ** p)
        for limit in (0, 1, 0.5, True):
            assert torch.equal(x > limit, torch.tensor([v > limit for v in x.tolist()]))


def test_shared_bytes_are_told_apart() -> None:
    """In-place operators look at who shares bytes with whom, and at what distance."""
    for _ in range(4):
        x = torch.arange(8.0)
        x[1:5].clamp_(max=torch.tensor([0.0, 9.0, 0.0, 9.0]))
        assert x.tolist() == [0, 0, 2, 0, 4, 5, 6, 7]
        y = torch.arange(8.0)
        y[:4].clamp_(max=y[4:])
        assert y.tolist() == [0, 1, 2, 3, 4, 5, 6, 7]
        z = torch.arange(8.0)
        with pytest.raises(RuntimeError, match="single memory location"):
            z[:4].clamp_(max=z[2:6])


def test_defaults_are_followed() -> None:
    """What Python reads besides the arguments counts: the default dtype."""
    try:
        for dtype in (torch.float32, torch.float64, torch.float32):
            torch.set_default_dtype(dtype)
            for _ in range(4):
                assert (torch.arange(3) * 0.5).dtype is dtype
                assert torch.zeros(2).dtype is dtype
                assert torch.full((2,), 1.5).dtype is dtype
    finally:
        torch.set_default_dtype(torch.float32)


def test_draws_are_fresh() -> None:
    def draws() -> list[Any]:
        torch.manual_seed(3)
        found = []
        for _ in range(6):
            found += [
                torch.randn(4, 4),
                torch.rand(3),
                torch.randn(20),
                torch.bernoulli(torch.full((5,), 0.5)),
            ]
            found.append(torch.nn.functional.dropout(torch.ones(9), 0.4))
        return [t.tolist() for t in found]

    found = draws()
    assert len({str(f) for f in found[::5]}) == 6
    with in_python():
        assert found == draws()


def test_modes_see_their_calls() -> None:
    from flambeau.utils._python_dispatch import TorchDispatchMode

    x = torch.rand(3, 3)
    for _ in range(4):
        x.softmax(-1)

    seen = []

    class Mode(TorchDispatchMode):
        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            seen.append(str(func))
            return func(*args, **(kwargs or {}))

    with Mode():
        x.softmax(-1)
    assert seen == ["aten._softmax.default"]


def test_nothing_is_kept() -> None:
    x = torch.rand(6, 6, requires_grad=True)
    y = torch.rand(6, 6)
    held: list[Any] = []
    objects: list[int] = []
    for step in range(3000):
        a = (x > 0.5).float() + x.softmax(-1).mean(0) * torch.zeros(6) + torch.randn(6)
        b = torch.where(y > 0, y, a).max(-1)
        c = torch.nn.functional.layer_norm(y, (6,)) ** 2 + y.norm() + y.sum(dim=0)
        y.clone().clamp_(0, 1).mul_(3)
        del a, b, c
        if step in (20, 2999):
            gc.collect()
            held.append(
                (sys.getrefcount(x), sys.getrefcount(y), sys.getrefcount(torch.float32) // 50)
            )
            held[-1] += (_native.memory_stats()["live_bytes"],)
            objects.append(len(gc.get_objects()))
    assert held[0] == held[1]
    assert objects[1] <= objects[0] + 200


def test_tensors_that_count_as_numbers() -> None:
    """A 0-dim tensor where a number is asked for is read when the call is bound."""
    x = torch.rand(4)
    for i in range(6):
        alpha = torch.tensor(float(i))
        assert torch.equal(torch.add(x, x, alpha=alpha), x + x * i)
        assert torch.equal(x.clone().addcmul_(x, x, value=alpha), torch.addcmul(x, x, x, value=i))
        assert torch.full((2,), alpha).tolist() == [i, i]


def test_what_users_wrote_runs_every_time() -> None:
    """Bodies of users' operators, their gradients, and warnings are not repeated from C."""
    calls = []

    @torch.library.custom_op("repeated::twice", mutates_args=())
    def twice(x: torch.Tensor) -> torch.Tensor:
        calls.append("forward")
        return x * 2

    def backward(ctx: Any, g: Any) -> Any:
        calls.append("backward")
        return g * 2

    torch.library.register_autograd("repeated::twice", backward)
    x = torch.rand(3, requires_grad=True)
    for _ in range(5):
        twice(x).sum().backward()
    assert calls == ["forward", "backward"] * 5
    y = torch.rand(2, 3, 4)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        for _ in range(5):
            torch.empty(3).resize_(0)
            torch.abs(y, out=torch.empty(2))
            torch.meshgrid(torch.arange(2), torch.arange(3))
    assert len([w for w in seen if "resized" in str(w.message)]) == 5
    assert len([w for w in seen if "indexing" in str(w.message)]) == 5


def test_default_devices_of_a_block() -> None:
    for _ in range(4):
        assert torch.zeros(3).device.type == torch.arange(4).device.type == "cpu"
        with torch.device("meta"):
            assert torch.zeros(3).device.type == torch.arange(4).device.type == "meta"


def test_places_in_the_storage() -> None:
    """The same geometry elsewhere in its storage: what Python derives from it is not kept."""
    x = torch.rand(7, 3, 4, requires_grad=True)
    y = x.detach()
    for i in range(7):
        for call in (
            lambda t: t.std(), lambda t: t.max(), lambda t: t.var(0), lambda t: t.mean(),
            lambda t: t.flip(0),
            lambda t: t.amax(1), lambda t: t.t().contiguous(), lambda t: t.repeat(2, 1),
            lambda t: t.cumsum(0),
            lambda t: t.as_strided((2, 2), (4, 1)), lambda t: t.roll(1, 0), lambda t: t.softmax(0),
            lambda t: torch.cat([t, t]).norm(),
            lambda t: t.gather(0, torch.zeros(1, 4, dtype=torch.int64)),
        ):  # fmt: skip
            for source in (x, y):
                found = call(source[i])
                with in_python():
                    assert described(found) == described(call(source[i])), i
