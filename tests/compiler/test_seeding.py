"""Seeding and drawing in graphs: the streams go on exactly as they do without a compiler."""

from __future__ import annotations

import io
from typing import Any

import pytest

import flambeau as torch
from flambeau.utils.checkpoint import checkpoint

BACK_ENDS = ("eager", "aot_eager", "inductor")


def _state() -> bytes:
    return torch.default_generator.state_bytes()


def _run(fn: Any, *args: Any) -> tuple[list[Any], bytes]:
    torch.manual_seed(1)
    found = fn(*args)
    return list(found if isinstance(found, tuple) else (found,)), _state()


def _same(fn: Any, back_end: str, *args: Any, **options: Any) -> Any:
    """A function compiled gives the same numbers, twice, and leaves the same stream."""
    torch._dynamo.reset()
    wanted, after = _run(fn, *args)
    compiled = torch.compile(fn, backend=back_end, fullgraph=True, **options)
    for _ in range(2):
        found, state = _run(compiled, *args)
        assert state == after
        for a, b in zip(found, wanted, strict=True):
            if isinstance(a, torch.Tensor):
                assert torch.equal(a, b)
            else:
                assert a is b
    return compiled


X = torch.linspace(-1, 1, 12).reshape(3, 4)


def _between(x: Any) -> Any:
    first = torch.rand(3, 4)
    torch.manual_seed(5)
    second = x + torch.rand(3, 4)
    torch.random.manual_seed(5)
    return first, second, torch.randn(3, 4) * second


def _alone(x: Any) -> Any:
    torch.manual_seed(9)
    return x + 1


def _generator(x: Any) -> Any:
    return torch.rand_like(x), torch.manual_seed(3)


def _unneeded(x: Any) -> Any:
    """The pointwise operators are one kernel, which needs the second draw and not the first."""
    doubled = x * 2
    first = torch.rand(3, 4)
    second = torch.rand(3, 4)
    return doubled + second, first @ x.t()


@pytest.mark.parametrize("back_end", BACK_ENDS)
@pytest.mark.parametrize("fn", [_between, _alone, _generator, _unneeded])
def test_the_stream_is_eagers(fn: Any, back_end: str) -> None:
    _same(fn, back_end, X)


@pytest.mark.parametrize("back_end", BACK_ENDS)
def test_the_seed_is_a_number_of_the_call(back_end: str) -> None:
    def fn(x: Any, seed: int) -> Any:
        torch.manual_seed(seed)
        return x * torch.rand(3, 4)

    compiled = _same(fn, back_end, X, 4, dynamic=True)
    for seed in (5, 77, 1 << 40):
        wanted, after = _run(fn, X, seed)
        found, state = _run(compiled, X, seed)
        assert torch.equal(found[0], wanted[0]) and state == after


@pytest.mark.parametrize("back_end", BACK_ENDS)
def test_the_seed_is_a_tensor(back_end: str) -> None:
    def fn(x: Any, seed: Any) -> Any:
        torch.manual_seed(seed)
        return x * torch.rand(3, 4)

    with torch._dynamo.config.patch(capture_scalar_outputs=True):
        _same(fn, back_end, X, torch.tensor(12))


def test_a_seed_out_of_range_raises_where_it_stands() -> None:
    def fn(x: Any) -> Any:
        try:
            torch.manual_seed(1 << 64)
        except (RuntimeError, ValueError, OverflowError) as error:
            return x + len(str(error))
        return x

    _same(fn, "aot_eager", X)


class _Noisy(torch.autograd.Function):
    """Draws in its backward, and seeds there."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x * 2

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        first = torch.rand(3, 4)
        torch.manual_seed(6)
        return g * torch.rand(3, 4) + first


@pytest.mark.parametrize("back_end", BACK_ENDS)
def test_what_is_drawn_in_the_backward_is_drawn_then(back_end: str) -> None:
    def fn(x: Any) -> Any:
        torch.manual_seed(2)
        return _Noisy.apply(x * torch.rand(3, 4)).sin()

    def step(run: Any) -> tuple[Any, Any, bytes, Any]:
        torch.manual_seed(1)
        x = X.clone().requires_grad_()
        y = run(x)
        between = torch.rand(2)
        y.sum().backward()
        return y.detach(), x.grad, _state(), between

    torch._dynamo.reset()
    wanted = step(fn)
    found = step(torch.compile(fn, backend=back_end, fullgraph=True))
    assert found[2] == wanted[2]
    assert torch.equal(found[3], wanted[3])
    assert torch.equal(found[0], wanted[0]) and torch.equal(found[1], wanted[1])


@pytest.mark.parametrize("back_end", BACK_ENDS)
def test_a_checkpoint_does_not_seed_again(back_end: str) -> None:
    def inside(x: Any) -> Any:
        torch.manual_seed(4)
        return (x * torch.rand(3, 4)).sin().exp()

    def fn(x: Any) -> Any:
        return checkpoint(inside, x.cos(), use_reentrant=False) + torch.rand(3, 4)

    def step(run: Any) -> tuple[Any, Any, bytes]:
        torch.manual_seed(1)
        x = X.clone().requires_grad_()
        y = run(x)
        y.sum().backward()
        return y.detach(), x.grad, _state()

    torch._dynamo.reset()
    wanted = step(fn)
    found = step(torch.compile(fn, backend=back_end, fullgraph=True))
    assert found[2] == wanted[2] and torch.equal(found[0], wanted[0])
    assert torch.allclose(found[1], wanted[1], rtol=1e-6, atol=1e-7)


def test_exported_programs_seed() -> None:
    class Seeded(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            first = torch.rand(3, 4)
            torch.manual_seed(8)
            return first, x + torch.rand(3, 4)

    program = torch.export.export(Seeded(), (X,))
    wanted, after = _run(Seeded(), X)
    file = io.BytesIO()
    torch.export.save(program, file)
    file.seek(0)
    for each in (program, program.run_decompositions(), torch.export.load(file)):
        found, state = _run(each.module(), X)
        assert state == after
        assert all(map(torch.equal, found, wanted))


@pytest.mark.parametrize("back_end", BACK_ENDS)
def test_an_overload_that_is_named_as_a_keyword(back_end: str) -> None:
    """`aten.random.from` stands in printed graphs as Python can read it."""
    _same(lambda x: x + torch.empty(3, 4).random_(2, 9), back_end, X)


def _as_before(x: Any) -> Any:
    state = torch.get_rng_state()
    first = torch.rand(3, 4)
    torch.random.set_rng_state(state)
    return first, x * torch.rand(3, 4), state


def _forked(x: Any) -> Any:
    with torch.random.fork_rng():
        torch.manual_seed(3)
        inside = torch.randn(3, 4)
    return inside * x, torch.rand(3, 4)


def _unused_state(x: Any) -> Any:
    torch.get_rng_state()
    return x + torch.rand_like(x)


@pytest.mark.parametrize("back_end", BACK_ENDS)
@pytest.mark.parametrize("fn", [_as_before, _forked, _unused_state])
def test_states_are_taken_and_set_in_their_place(fn: Any, back_end: str) -> None:
    _same(fn, back_end, X)


def test_a_state_that_is_none_raises_when_it_runs() -> None:
    def fn(x: Any) -> Any:
        torch.set_rng_state(x)
        return x + 1

    compiled = torch.compile(fn, backend="aot_eager", fullgraph=True)
    with pytest.raises(TypeError, match=r"RNG state must be a torch\.ByteTensor"):
        compiled(X)
