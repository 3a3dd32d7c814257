"""torch.library: users' operators through every layer."""

from __future__ import annotations

from typing import Any

import pytest

import flambeau as torch
from flambeau import Tensor, library
from flambeau._subclasses.fake_tensor import FakeTensorMode
from flambeau.fx.experimental.proxy_tensor import make_fx


@library.custom_op("tests_user::scale", mutates_args=())
def scale(x: Tensor, a: float = 2.0) -> Tensor:
    return x * a


def _setup(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.a = inputs[1]


scale.register_autograd(lambda ctx, g: (g * ctx.a, None), setup_context=_setup)


@scale.register_fake
def _(x: Tensor, a: float = 2.0) -> Tensor:
    return torch.empty_like(x)


@library.custom_op("tests_user::increase", mutates_args={"x"})
def increase(x: Tensor) -> None:
    x.add_(1)


def test_custom_op_eager_gradient_fake_trace() -> None:
    x = torch.ones(3, requires_grad=True)
    y = scale(x, 3.0)
    assert type(y.grad_fn).__name__ == "GeneratedBackwardFor_tests_user_scale_defaultBackward"
    y.sum().backward()
    assert x.grad.tolist() == [3, 3, 3]
    with FakeTensorMode():
        assert scale(torch.ones(3)).shape == (3,)
    gm = make_fx(lambda t: scale(t) + 1)(torch.ones(3))
    assert [str(n.target) for n in gm.graph.nodes][1:3] == [
        "tests_user.scale.default",
        "aten.add.Tensor",
    ]
    assert str(torch.ops.tests_user.scale.default._schema).startswith(
        "tests_user::scale(Tensor x, float a=2."
    )
    assert torch.ops.tests_user.scale(torch.ones(1)).item() == 2


def test_writes() -> None:
    x = torch.zeros(2)
    increase(x)
    assert x.tolist() == [1, 1] and x._version > 0
    assert str(increase._opoverload._schema) == "tests_user::increase(Tensor(a0!) x) -> ()"


def test_opcheck() -> None:
    for op, args in (
        (scale, (torch.ones(3),)),
        (scale, (torch.ones(3, requires_grad=True), 2.0)),
        (increase, (torch.ones(3),)),
    ):
        assert set(library.opcheck(op, args).values()) == {"SUCCESS"}


def test_errors() -> None:
    @library.custom_op("tests_user::same", mutates_args=())
    def same(x: Tensor) -> Tensor:
        return x

    with pytest.raises(RuntimeError, match="may not alias any inputs"):
        same(torch.ones(1))
    x = torch.ones(1, requires_grad=True)

    @library.custom_op("tests_user::flat", mutates_args=())
    def flat(x: Tensor) -> Tensor:
        return x.clone()

    with pytest.raises(
        RuntimeError,
        match=r"Trying to backward through tests_user\.flat\.default but no autograd formula",
    ):
        flat(x).sum().backward()
    with FakeTensorMode(), pytest.raises(RuntimeError, match="There was no fake impl registered"):
        flat(torch.ones(1))
    with pytest.raises(ValueError, match="Parameter x must have a type annotation"):
        library.infer_schema(lambda x: x, mutates_args=())
    with pytest.raises(RuntimeError, match="operator tests_user::nothing does not exist"):
        library.register_fake("tests_user::nothing", lambda x: x)


def test_schemas() -> None:
    def f(
        x: Tensor, y: Tensor | None, z: list[Tensor], i: int, *, b: bool = True
    ) -> tuple[Tensor, Tensor]: ...

    text = "(Tensor x, Tensor? y, Tensor[] z, SymInt i, *, bool b=True) -> (Tensor, Tensor)"
    assert library.infer_schema(f, mutates_args=()) == text
    assert library.infer_schema(f, mutates_args={"z"}).count("Tensor(a2!)[] z") == 1


def test_libraries() -> None:
    with library._scoped_library("tests_lib", "DEF") as lib:
        assert lib.define("twice(Tensor x) -> Tensor") == "twice"
        with pytest.raises(
            NotImplementedError,
            match="Could not run 'tests_lib::twice' with arguments from the 'CPU'",
        ):
            torch.ops.tests_lib.twice(torch.ones(1))
        lib.impl("twice", lambda x: x * 2, "CPU")
        x = torch.ones(2, requires_grad=True)
        torch.ops.tests_lib.twice(x).sum().backward()
        assert x.grad.tolist() == [2, 2]
        lib.define("thrice(Tensor x) -> Tensor")
        lib.impl("thrice", lambda x: x * 3, "CompositeImplicitAutograd")
        gm = make_fx(lambda t: torch.ops.tests_lib.thrice(t))(torch.ones(2))
        assert "aten.mul.Tensor" in [str(n.target) for n in gm.graph.nodes]
        with pytest.raises(RuntimeError, match="Tried to register an operator"):
            lib.define("twice(Tensor x) -> Tensor")
        with pytest.raises(RuntimeError, match="Only a single TORCH_LIBRARY can be used"):
            library.Library("tests_lib", "DEF")
    with pytest.raises(AttributeError):
        torch.ops.tests_lib.twice(torch.ones(1))
