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
from tests.compiler.models import MODELS
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


#: The same of whole models.
OF_MODELS: dict[str, str] = {
    "digits": "addmm convolution max_pool2d_with_indices permute relu view",
    "resnet18": "_native_batch_norm_legit_functional add.Tensor addmm convolution "
    "max_pool2d_with_indices mean.dim permute relu view",
    "unet": "cat convolution max_pool2d_with_indices mul.Tensor native_group_norm sigmoid "
    "upsample_nearest2d.vec",
    "vae": "add.Tensor addmm elu exp mean mul.Tensor permute pow.Tensor_Scalar randn_like "
    "split_with_sizes sub.Tensor sum.dim_IntList tanh",
    "transformer_encoder": "_softmax add.Tensor addmm any.dim bmm clone eq.Scalar expand full_like "
    "logical_not "
    "mul.Scalar native_layer_norm permute relu select.int squeeze.dims unsqueeze view "
    "where.self",
    "mixture_of_experts": "_softmax add.Tensor addmm div.Tensor eq.Scalar full_like gelu "
    "mul.Tensor permute "
    "sum.dim_IntList topk",
}


@pytest.mark.parametrize("name", MODELS)
def test_models_reach_core(name: str) -> None:
    make, inputs = MODELS[name]
    torch.manual_seed(0)
    program = export(make().eval() if name == "lstm" else make(), (inputs(),)).run_decompositions()
    found = left(program)
    if name in OF_MODELS:
        assert found == set(OF_MODELS[name].split())
    targets = {n.target for n in program.graph.nodes if isinstance(n.target, torch._ops.OpOverload)}
    outside = {"_native_batch_norm_legit_functional", "randn_like"}  # torch leaves them too
    assert all(CORE in t.tags for t in targets if t._op.key not in outside)


def test_without_an_entry_the_operator_stays() -> None:
    """What the test above would say, were one missing."""
    fn, args, expected = PROGRAMS["silu"]
    table = default_decompositions()
    del table[aten.silu.default]
    program = export(Calls(fn), args).run_decompositions(table)
    assert left(program) == {"silu"} != set(expected.split())


OPS = [o for key in BODIES for o in resolve_lazy(packet(key.partition(".")[0])) if o.key == key]
APART = core_decompositions()


def _calls() -> dict[str, list[tuple[Any, ...]]]:
    """Calls of operators that have no samples, keyword arguments last, as in the schema."""
    x, y = torch.cat([_x(3, 4), _x(3, 4) * 5]), torch.cat([_x(3, 4).cos(), _x(3, 4).sin()])
    odd = torch.tensor([0.0, -0.0, float("inf"), float("-inf"), float("nan"), 3.0, -3.0, 1.0])
    unit = _x(3, 4).sigmoid()
    calls: dict[str, list[tuple[Any, ...]]] = {
        name: [(x,), (odd,), (torch.arange(-3, 4),)]
        for name in "silu mish hardswish hardsigmoid log_sigmoid_forward frac".split()
    }
    calls |= {
        name: [(y, x), (odd.cos(), odd)]
        for name in "silu_backward sigmoid_backward tanh_backward".split()
    }
    points = torch.tensor([0, 2, -100])
    areas = torch.tensor([[[0, 2], [3, -100]]] * 2)
    weight = torch.tensor([0.5, 2.0, 0.3, 1.0])
    nll = [(_x(3, 4), points, w, r, -100) for w in (None, weight) for r in (0, 1, 2)]
    nll += [(_x(4), points[1], w, r, -100) for w in (None, weight) for r in (0, 1, 2)]
    flat_ = [(_x(2, 4, 2, 2), areas, w, r, -100) for w in (None, weight) for r in (0, 1, 2)]
    _, mean, rstd = aten.native_layer_norm(_x(2, 3, 4), [3, 4], None, None, 1e-5)
    scale = _x(3, 4).exp()
    image = _x(2, 3, 4).sin()
    _, own, spread = aten.native_batch_norm(image, None, None, None, None, True, 0.1, 1e-5)
    norm = (weight[:3], weight[1:], weight[1:].exp(), own, spread)
    every, first = [True] * 3, [True, False, False]
    calls |= {
        "softplus": [(x, 1, 20), (x, 2.0, 1.0), (odd, 1, 20)],
        "threshold": [(x, 0.1, 2.0), (torch.arange(4), 1, 7), (odd, 0.0, 1.0)],
        "threshold_backward": [(y, x, 0.1), (odd.cos(), odd, 0)],
        "_prelu_kernel": [(x, weight), (odd, weight[:1])],
        "gelu_backward": [(y, x, how) for how in ("none", "tanh")],
        "native_dropout_backward": [(y, x > 0, 2.0)],
        "_softmax_backward_data": [(y, x.softmax(1), 1, torch.float32)],
        "_log_softmax_backward_data": [(y, x.log_softmax(1), 1, torch.float32)],
        "logit_backward": [(unit.cos(), unit * 1.2, eps) for eps in (None, 0.2)],
        "xlogy.Scalar_Self": [(2.0, unit), (0, odd)],
        "xlogy.Scalar_Other": [(x, 2.0), (odd, 0)],
        "special_xlog1py.self_scalar": [(2.0, unit), (0, odd)],
        "special_xlog1py.other_scalar": [(x, 2.0), (odd, -1)],
        "addcmul": [(x, y, weight, 1), (x, y, x, 0.5), (torch.arange(4),) * 3 + (2,)],
        "addcdiv": [(x, y, weight, 1), (x, y, y.exp(), 0.5)],
        "lerp.Tensor": [(x, y, weight), (x, y, x)],
        "lerp.Scalar": [(x, y, 0.3), (x, y, 0.7), (x, y, -2)],
        "rsub.Scalar": [(x, 1, 1), (x, 0.5, 2), (torch.arange(4), 1, 2), (torch.arange(4), 0.5, 1)],
        "floor_divide.Scalar": [(x, 2), (torch.arange(-4, 4), 3), (torch.arange(-4, 4), 1.5)],
        "clamp_min": [(x, 0.5), (torch.arange(4), 2), (torch.arange(4), 1.5), (odd, 0)],
        "clamp_max": [(x, 0.5), (torch.arange(4), 2), (torch.arange(4), 1.5), (odd, 0)],
        "clamp_min.Tensor": [(x, y), (x, weight), (torch.arange(4), weight)],
        "clamp_max.Tensor": [(x, y), (x, weight), (torch.arange(4), weight)],
        "masked_fill.Scalar": [(x, x > 0, 2), (torch.arange(4), x > 0, 2), (x, weight > 1, 0.5)],
        "all": [(x > 0,), (x,), (torch.ones(2, dtype=torch.uint8),), (torch.ones(0),)],
        "all.dim": [(x > 0, 1, False), (x, 0, True), (torch.ones(2, dtype=torch.uint8), 0, True)],
        "all.dims": [(x > 0, None, False), (x, [0, 1], True), (x > -2, [1], False)],
        "std.correction": [(x, [1], None, False), (x, None, 0, True), (x, [0, 1], 2, False)],
        "std_mean.correction": [(x, [1], None, False), (x, None, 0, True)],
        "logsumexp": [(x, [1], False), (x, [0, 1], True), (torch.arange(4), [0], False)]
        + [(odd[:3], [0], False), (torch.full((2, 3), -torch.inf), [1], False)]
        + [(x, [-1, 0], False)],
        "dot": [(weight, weight.cos())],
        "mv": [(x, weight)],
        "baddbmm": [(image, image, _x(2, 4, 4), b, a) for b in (1, 0, 0.5) for a in (1, 2.0)]
        + [(weight, image, _x(2, 4, 4), 1, 1), (torch.nan * weight, image, _x(2, 4, 4), 0, 1)],
        "addr": [(x[:3], weight[:3], weight, b, a) for b in (1, 0, 0.5) for a in (1, 2.0)],
        "nll_loss_forward": nll,
        "nll_loss2d_forward": flat_,
        "linspace": [
            (a, b, n, dtype, None, None, None)
            for a, b, n in ((0, 1, 5), (-2.5, 7, 8), (3, -3, 1), (1, 2, 0), (0, 1, 2))
            for dtype in (None, torch.float64, torch.bfloat16)
        ],
        "native_layer_norm_backward": [
            (_x(2, 3, 4).cos(), _x(2, 3, 4), [3, 4], mean, rstd, w, w, mask)
            for w in (None, scale)
            for mask in (every, first)
        ],
        "native_batch_norm_backward": [
            (image.cos(), image, w, *norm[1:], train, 1e-5, mask)
            for w in (None, norm[0])
            for train in (True, False)
            for mask in (every, first)
        ],
    }  # fmt: skip
    return calls


CALLS = _calls()


def _as(v: Any, dtype: Any) -> Any:
    if v is torch.float32:
        return dtype
    return v.to(dtype) if isinstance(v, torch.Tensor) and v.dtype is torch.float32 else v


def _tried(op: Op) -> list[tuple[Any, ...]]:
    if op.key in CALLS:
        return [
            tuple(_as(v, dtype) for v in args)
            for dtype in (torch.float32, torch.float64, torch.bfloat16)
            for args in CALLS[op.key]
        ]
    found = []
    if op is op.decl.op and op.decl.samples is not None:
        for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.bool):
            try:
                samples = battery.samples_of(op, dtype)
            except (RuntimeError, TypeError):  # none of this dtype can be made
                continue
            found += [bind(op, s.args, s.kwargs) for s in samples]
    return [args for args in found if args is not None]


@pytest.mark.parametrize("op", [o for o in OPS if o.key != "dropout"], ids=lambda op: op.key)
def test_values_of_every_decomposition(op: Op) -> None:
    compared = 0
    for args in _tried(op):
        try:
            wanted = battery.outputs(dispatch(op, args))
        except (RuntimeError, TypeError, NotImplementedError):  # not for this dtype
            continue
        found = BODIES[op.key](*args)
        assert found is not NotImplemented or not any(v.is_floating_point() for v in wanted), args
        if found is NotImplemented:
            continue
        compared += 1
        for a, b in zip(wanted, battery.outputs(found), strict=True):
            if a is None or b is None:
                assert a is b
                continue
            assert a.dtype is b.dtype and a.shape == b.shape, (args, a, b)
            torch.testing.assert_close(
                b, a, rtol=5 * RTOL.get(a.dtype, 0), atol=RTOL.get(a.dtype, 0), equal_nan=True,
            )  # fmt: skip
    assert compared, "no call: add one"


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
