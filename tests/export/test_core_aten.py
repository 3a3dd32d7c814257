"""What `run_decompositions` leaves: Core ATen, the same operators as PyTorch 2.13 does, and values
as before. The sets were recorded from PyTorch."""

from __future__ import annotations

from typing import Any

import pytest

import flambeau as torch
from flambeau._src.compiler.core_aten import BODIES, core_decompositions
from flambeau._src.ops.bind import bind
from flambeau._src.ops.call import dispatch
from flambeau._src.ops.op import Op, packet, resolve_lazy
from flambeau.export import default_decompositions, export
from tests.ops import battery

aten = torch.ops.aten
nn, F = torch.nn, torch.nn.functional
CORE = torch.Tag.core
RTOL = {torch.float64: 1e-12, torch.float32: 2e-6, torch.bfloat16: 2.0**-7}


class Calls(nn.Module):
    """A function as a module."""

    def __init__(self, fn: Any) -> None:
        super().__init__()
        self.fn = fn

    def forward(self, *args: Any) -> Any:
        return self.fn(*args)


def _x(*shape: int) -> Any:
    return torch.linspace(-2.3, 2.1, torch.Size(shape).numel()).reshape(shape)


def _targets() -> Any:
    return torch.tensor([0, 2, -100])


PROGRAMS: dict[str, tuple[Any, tuple[Any, ...], str]] = {
    "silu": (
        F.silu,
        (_x(3, 4),),
        "mul.Tensor sigmoid",
    ),
    "mish": (
        F.mish,
        (_x(3, 4),),
        "exp gt.Scalar log1p mul.Tensor tanh where.self",
    ),
    "softplus": (
        F.softplus,
        (_x(3, 4),),
        "exp gt.Scalar log1p where.self",
    ),
    "hardswish": (
        F.hardswish,
        (_x(3, 4),),
        "add.Tensor clamp div.Tensor mul.Tensor",
    ),
    "logsigmoid": (
        F.logsigmoid,
        (_x(3, 4),),
        "abs exp full log1p minimum neg sub.Tensor",
    ),
    "softshrink": (
        F.softshrink,
        (_x(3, 4),),
        "abs gt.Scalar mul.Tensor sign sub.Tensor where.self",
    ),
    "threshold": (
        lambda x: F.threshold(x, 0.1, 2.0),
        (_x(3, 4),),
        "le.Scalar scalar_tensor where.self",
    ),
    "nll": (
        lambda x, y: F.nll_loss(F.log_softmax(x, 1), y),
        (_x(3, 4), _targets()),
        "_log_softmax _to_copy div.Tensor gather ne.Scalar neg scalar_tensor squeeze.dims "
        "sum.dim_IntList unsqueeze where.self",
    ),
    "nll_w": (
        lambda x, y, w: F.nll_loss(x, y, w, reduction="sum"),
        (_x(3, 4), _targets(), _x(4)),
        "gather mul.Tensor ne.Scalar neg scalar_tensor squeeze.dims sum.dim_IntList "
        "unsqueeze view where.self",
    ),
    "instance_norm": (
        F.instance_norm,
        (_x(2, 4, 6),),
        "_native_batch_norm_legit.no_stats view",
    ),
    "batch_norm_eval": (
        F.batch_norm,
        (_x(3, 4), _x(4), _x(4).abs()),
        "_native_batch_norm_legit_no_training",
    ),
    "bf": (
        lambda x: F.silu(x) + F.softplus(x) + F.mish(x),
        (_x(3, 4).bfloat16(),),
        "_to_copy add.Tensor exp gt.Scalar log1p mul.Tensor sigmoid tanh where.self",
    ),
    "ii": (
        lambda x: torch.deg2rad(x) + torch.sinc(x),
        (torch.arange(4),),
        "_to_copy add.Tensor div.Tensor eq.Scalar mul.Tensor scalar_tensor sin where.self",
    ),
    "nan_to_num": (
        torch.nan_to_num,
        (_x(3, 4).log(),),
        "eq.Scalar isnan scalar_tensor where.self",
    ),
    "all": (
        torch.all,
        (_x(3, 4),),
        "any.dims logical_not",
    ),
    "nansum": (
        torch.nansum,
        (_x(3, 4).log(),),
        "isnan scalar_tensor sum.dim_IntList where.self",
    ),
    "std_mean": (
        lambda x: torch.std_mean(x, 1),
        (_x(3, 4),),
        "sqrt var_mean.correction",
    ),
    "lerp": (
        lambda x, y: torch.lerp(x, y, 0.3),
        (_x(3, 4), _x(3, 4).cos()),
        "abs add.Tensor full ge.Scalar mul.Tensor sub.Tensor where.self",
    ),
    "addcdiv": (
        lambda x, y, z: torch.addcdiv(x, y, z, value=0.5),
        (_x(3, 4), _x(3, 4), _x(3, 4).exp()),
        "add.Tensor div.Tensor mul.Tensor",
    ),
    "logsumexp": (
        lambda x: x.logsumexp(1),
        (_x(3, 4),),
        "abs add.Tensor amax eq.Scalar exp log scalar_tensor squeeze.dims sub.Tensor "
        "sum.dim_IntList where.self",
    ),
    "mv": (
        torch.mv,
        (_x(3, 4), _x(4)),
        "mul.Tensor sum.dim_IntList",
    ),
    "baddbmm": (
        lambda a, b, c: torch.baddbmm(a, b, c, beta=0.5, alpha=2),
        (_x(2, 3, 3), _x(2, 3, 4), _x(2, 4, 3)),
        "add.Tensor bmm mul.Tensor",
    ),
    "stack": (
        lambda x, y: torch.stack([x, y], 1),
        (_x(3, 4), _x(3, 4)),
        "cat view",
    ),
    "split": (
        lambda x: x.split(2, 1),
        (_x(3, 5),),
        "split_with_sizes",
    ),
    "unbind": (
        lambda x: x.unbind(1),
        (_x(3, 2),),
        "slice.Tensor squeeze.dims",
    ),
    "masked_fill_i": (
        lambda x: x.masked_fill(x > 0, 2),
        (torch.arange(4),),
        "gt.Scalar scalar_tensor where.self",
    ),
    "roll": (
        lambda x: x.roll(1, 0),
        (_x(3, 4),),
        "add.Tensor arange.start_step fmod.Scalar index_select",
    ),
    "index_add": (
        lambda x, i, s: x.index_add(0, i, s),
        (_x(3, 4), torch.tensor([0, 2, 1]), _x(3, 4)),
        "index_put",
    ),
    "inplace": (
        lambda x: x.clone().add_(1).relu_().mul_(2).masked_fill_(x > 0, 0.5).clamp_min_(0.1),
        (_x(3, 4),),
        "add.Tensor clamp clone gt.Scalar mul.Tensor relu scalar_tensor where.self",
    ),
    "interp_bilinear": (
        lambda x: F.interpolate(x, scale_factor=2.0, mode="bilinear"),
        (_x(1, 2, 3, 3),),
        "upsample_bilinear2d.vec",
    ),
    "mha": (
        nn.MultiheadAttention(4, 2, batch_first=True),
        (_x(1, 3, 4), _x(1, 3, 4), _x(1, 3, 4)),
        "_softmax addmm bmm clone mean.dim mul.Tensor permute split_with_sizes view",
    ),
    "rnn": (
        nn.RNNCell(4, 3),
        (_x(2, 4),),
        "add.Tensor addmm full permute tanh",
    ),
}


def left(program: Any) -> set[str]:
    """The operators of a program, as `aten` names them, `default` left out."""
    called = [n.target for n in program.graph.nodes if n.op == "call_function"]
    return {t._op.key for t in called if isinstance(t, torch._ops.OpOverload)}


def flat(value: Any) -> list[Any]:
    return (
        [v for part in value for v in flat(part)] if isinstance(value, (tuple, list)) else [value]
    )


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_operators_that_are_left(name: str) -> None:
    fn, args, expected = PROGRAMS[name]
    model = fn if isinstance(fn, nn.Module) else Calls(fn)
    program = export(model, args).run_decompositions()
    assert left(program) == set(expected.split())
    wanted, found = flat(model(*args)), flat(program.module()(*args))
    assert len(wanted) == len(found)
    for a, b in zip(wanted, found, strict=True):
        assert a.dtype is b.dtype and a.shape == b.shape
        torch.testing.assert_close(b, a, rtol=RTOL.get(a.dtype, 0), atol=1e-6, equal_nan=True)


def test_without_an_entry_the_operator_stays() -> None:
    """What the test above would say, were one missing."""
    fn, args, expected = PROGRAMS["silu"]
    table = default_decompositions()
    del table[aten.silu.default]
    program = export(Calls(fn), args).run_decompositions(table)
    assert left(program) == {"silu"} != set(expected.split())


OPS = [o for key in BODIES for o in resolve_lazy(packet(key.partition(".")[0])) if o.key == key]
APART = core_decompositions()


def _tried(op: Op) -> list[tuple[Any, ...]]:
    found = []
    if op is op.decl.op and op.decl.samples is not None:
        for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.bool):
            try:
                samples = battery.samples_of(op, dtype)
            except (RuntimeError, TypeError):  # none of this dtype can be made
                continue
            found += [bind(op, s.args, s.kwargs) for s in samples]
    return [args for args in found if args is not None]


@pytest.mark.parametrize("op", [o for o in OPS if o.decl.samples], ids=lambda op: op.key)
def test_values_of_every_decomposition(op: Op) -> None:
    if op.decl.random:
        pytest.skip("draws")
    for args in _tried(op):
        try:
            wanted = battery.outputs(dispatch(op, args))
        except (RuntimeError, TypeError, NotImplementedError):  # not for this dtype
            continue
        found = BODIES[op.key](*args)
        assert found is not NotImplemented or not any(v.is_floating_point() for v in wanted)
        if found is NotImplemented:
            continue
        for a, b in zip(wanted, battery.outputs(found), strict=True):
            assert a.dtype is b.dtype and a.shape == b.shape, (args, a, b)
            torch.testing.assert_close(
                b, a, rtol=5 * RTOL.get(a.dtype, 0), atol=RTOL.get(a.dtype, 0), equal_nan=True,
            )  # fmt: skip


class Several(nn.Module):
    """A composite, an operator of the table, a view, and one that is core."""

    def forward(self, x: Any, w: Any) -> Any:
        return F.linear(x, w), F.silu(x), x.T, F.interpolate(x[None, None], scale_factor=2.0)


def _several(table: Any) -> set[str]:
    program = export(Several(), (_x(4, 3), _x(2, 3)))
    return left(program.run_decompositions(table))


VIEWS = {"permute", "unsqueeze", "upsample_nearest2d.vec"}


def test_a_table_says_what_is_taken_apart() -> None:
    assert _several({}) == {"linear", "silu", *VIEWS}
    assert _several(None) == {"mm", "sigmoid", "mul.Tensor", *VIEWS}
    table = default_decompositions()
    del table[aten.linear.default]
    assert _several(table) == {"linear", "sigmoid", "mul.Tensor", *VIEWS}
    chosen = torch._decomp.get_decompositions([aten.silu])
    assert _several(chosen) == {"linear", "sigmoid", "mul.Tensor", *VIEWS}


def test_a_function_of_ones_own_for_a_composite() -> None:
    def linear(x: Any, w: Any, b: Any = None) -> Any:
        return aten.mm(x, aten.t(w))

    assert _several({aten.linear.default: linear}) == {"mm", "t", "silu", *VIEWS}


def test_the_tag() -> None:
    assert CORE in aten.mul.Tensor.tags and CORE in aten.upsample_nearest2d.vec.tags
    assert CORE not in aten.silu.default.tags and CORE not in aten.t.default.tags


def test_sizes_stay_symbols() -> None:
    def fn(x: Any) -> Any:
        both = torch.stack([F.silu(x.transpose(1, 2)), x.mT.tril()], 1)
        return both.split(2, 1)[0].logsumexp(2) + x.roll(1, 1).sum(), x.masked_fill(x > 0, 2.0)

    sizes = {"args": ({1: torch.export.Dim("n", min=3, max=20)},)}
    apart = export(Calls(fn), (_x(2, 5, 5),), dynamic_shapes=sizes).run_decompositions().module()
    for n in (5, 9):
        x = _x(2, n, 5)
        for a, b in zip(fn(x), apart(x), strict=True):
            torch.testing.assert_close(b, a, rtol=2e-6, atol=1e-5)
