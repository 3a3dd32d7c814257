"""torch.special: second names of other operators, and functions that only live there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from flambeau._src.core import dtype as dt
from flambeau._src.ops.call import aten
from flambeau._src.ops.kinds import Composite, Pointwise
from flambeau._src.ops.pointwise import dtype_of

# special name -> the operator it stands for; all are functions of one tensor
NAMES = {
    "expit": "sigmoid", "exp2": "exp2", "expm1": "expm1", "erf": "erf", "erfc": "erfc",
    "erfinv": "erfinv",
    "log1p": "log1p", "digamma": "digamma", "psi": "digamma", "gammaln": "lgamma", "sinc": "sinc",
}  # fmt: skip


def _second_name(
    name: str, target: str, args: str = "Tensor self", out: str | bool = "out"
) -> None:
    def decompose(*values: Any) -> Any:
        return getattr(aten, target)(*values)

    type(
        f"Special{name}",
        (Composite,),
        {
            "__doc__": f"{target} under its name in torch.special.",
            "__module__": __name__,
            "public": "",
            "out": out,
            "schema": f"special_{name}({args}) -> Tensor",
            "decompose": decompose,
        },
    )


for _name, _target in NAMES.items():
    _second_name(_name, _target)
_second_name("softmax", "softmax", "Tensor self, int dim, ScalarType? dtype=None", False)
_second_name("logsumexp", "logsumexp", "Tensor self, int[1] dim, bool keepdim=False")
_second_name("logit", "logit", "Tensor self, float? eps=None")


class SpecialLogSoftmax(Composite):
    """log_softmax under its name in torch.special."""

    schema = "special_log_softmax(Tensor self, int dim, *, ScalarType? dtype=None) -> Tensor"
    public = ""

    def decompose(x: Any, dim: int, dtype: Any) -> Any:
        return aten.log_softmax(x, dim, dtype)


class SpecialRound(Composite):
    """round under its name in torch.special."""

    schema = "special_round(Tensor self, *, int decimals=0) -> Tensor"
    public = ""
    out = "out"

    def decompose(x: Any, decimals: int) -> Any:
        return aten.round(x, decimals=decimals)


class SpecialNdtr(Composite):
    """The normal distribution function: (1 + erf(x / √2)) / 2."""

    schema = "special_ndtr(Tensor self) -> Tensor"
    public = ""
    out = "out"

    def decompose(x: Any) -> Any:
        return (1 + aten.erf(x * 0.7071067811865476)) * 0.5


def _products(name: str, shift: int, overloads: tuple[str, str], out: str) -> None:
    """x log(y + shift), 0 where x is 0 and y is no NaN."""
    log = "log1p" if shift else "log"

    def expr(k: Any, x: Any, y: Any) -> Any:
        product = x * getattr(k, log)(y)
        return k.where(k.isnan(y), y, k.where(x == 0, x * 0, product))

    def of_x(g: Any, x: Any, y: Any) -> Any:
        return aten.masked_fill(getattr(aten, name)(g, y), (x == 0) & (y <= -shift), 0.0)

    def of_y(g: Any, x: Any, y: Any) -> Any:
        return g * x / (y + shift if shift else y)

    def both(b: Any, g: Any, x: Any, y: Any) -> Any:
        return of_x(g, x, y) if b.needs[0] else None, of_y(g, x, y) if b.needs[1] else None

    def first(b: Any, g: Any, x: Any, y: Any) -> Any:
        if y > -shift:
            return getattr(aten, name)(g, y)
        return of_x(g, x, aten.full((), y, dtype=g.dtype, device=g.device))

    def second(b: Any, g: Any, x: Any, y: Any) -> Any:
        return of_y(g, x, y)

    def samples(s: Any) -> Iterator[Any]:
        for a, c in (((3, 4), (3, 4)), ((3, 1), (1, 4)), ((), (2,)), ((0, 3), (3,))):
            yield s.sample(s.tensor(a), s.tensor(c, low=0.1))

    heads = ("Tensor self, Tensor other", "Tensor self, Scalar other", "Scalar self, Tensor other")
    names = (
        name + (".Tensor" if name == "xlogy" else ""),
        f"{name}.{overloads[0]}",
        f"{name}.{overloads[1]}",
    )
    outs = (
        ("OutTensor", "OutScalar_Other", "OutScalar_Self")
        if name == "xlogy"
        else ("out", "other_scalar_out", "self_scalar_out")
    )
    for i, (head, full, vjp) in enumerate(zip(heads, names, (both, first, second), strict=True)):
        in_place = name == "xlogy" and i < 2
        type(
            f"{name}{i}",
            (Pointwise,),
            {
                "__doc__": f"x {log}(y), 0 where x is 0.",
                "__module__": __name__,
                "promotion": "int_to_float",
                "number_operands": True,
                "schema": f"{full}({head}) -> Tensor",
                "expr": expr,
                "vjp": vjp,
                "inplace": in_place,
                "out": outs[i],
                "public": out if i < 2 else out.replace(", method", ""),
                "saves_by": ("self", "other"),
                "reference": f"scipy.special.{'xlog1py' if shift else 'xlogy'}",
                **({"samples": samples} if i == 0 else {}),
                **({"fast": classmethod(lambda cls, op: None)} if i else {}),
            },
        )


_products("xlogy", 0, ("Scalar_Other", "Scalar_Self"), "function, method")
_products("special_xlog1py", 1, ("other_scalar", "self_scalar"), "")


class SpecialXlogy(Composite):
    """xlogy under its name in torch.special."""

    schema = "special_xlogy(Tensor self, Tensor other) -> Tensor"
    public = ""
    out = "out"

    def decompose(x: Any, y: Any) -> Any:
        return aten.xlogy(x, y)


class SpecialXlogyRight(SpecialXlogy):
    """xlogy with a number on the right."""

    schema = "special_xlogy.other_scalar(Tensor self, Scalar other) -> Tensor"
    out = "other_scalar_out"


class SpecialXlogyLeft(SpecialXlogy):
    """xlogy with a number on the left."""

    schema = "special_xlogy.self_scalar(Scalar self, Tensor other) -> Tensor"
    out = "self_scalar_out"


class SpecialEntr(Pointwise):
    """-x log x; 0 at 0, -inf below."""

    schema = "special_entr(Tensor self) -> Tensor"
    promotion = "int_to_float"
    inplace = False
    public = ""
    reference = "scipy.special.entr"

    def expr(k: Any, x: Any) -> Any:
        inside = k.where(x > 0, -x * k.log(x), k.where(x == 0, x * 0, float("-inf")))
        return k.where(k.isnan(x), x, inside)

    def vjp(b: Any, g: Any, x: Any) -> Any:
        return g * (-(1 + x.log()))

    def samples(s: Any) -> Iterator[Any]:
        yield s.sample(s.tensor((3, 4), low=0.1))


class Logit(Pointwise):
    """log(x / (1 - x)); with eps, x is first kept within [eps, 1 - eps]."""

    schema = "logit(Tensor self, float? eps=None) -> Tensor"
    promotion = "int_to_float"
    saves_by = ("eps",)

    def expr(k: Any, x: Any, eps: Any) -> Any:
        if eps is not None:
            x = k.where(x < eps, eps, k.where(x > 1 - eps, 1 - eps, x))
        return k.log(x / (1 - x))

    def vjp(b: Any, g: Any, x: Any, eps: Any) -> Any:
        return aten.logit_backward(g, x, eps)

    def samples(s: Any) -> Iterator[Any]:
        yield s.sample(s.tensor((3, 4), 0.1, 0.9))
        yield s.sample(s.tensor((3, 4), 0.1, 0.9), eps=0.2)


class LogitBackward(Pointwise):
    """grad_output / (x (1 - x)), 0 outside [eps, 1 - eps] (NaN outside [0, 1] without eps)."""

    schema = "logit_backward(Tensor grad_output, Tensor self, float? eps=None) -> Tensor"
    inplace = False
    out = "grad_input"
    out_args = ("grad_input",)
    public = ""
    saves_by = ("eps",)

    def check(g: Any, x: Any, eps: Any) -> None:
        if not dtype_of(x).is_floating_point:
            raise NotImplementedError(
                f"\"logit_backward_cpu\" not implemented for '{dt.scalar_name(x.dtype)}'"
            )

    def expr(k: Any, g: Any, x: Any, eps: Any) -> Any:
        low = 0.0 if eps is None else eps
        outside = g * 0 + (float("nan") if eps is None else 0.0)
        slope = k.where((x == 0) | (x == 1), g * float("inf"), g / (x * (1 - x)))
        return k.where((x >= low) & (x <= 1 - low), slope, outside)

    def vjp(b: Any, gg: Any, g: Any, x: Any, eps: Any) -> Any:
        # that of where(inside, g / (x (1 - x)), constant): outside nothing comes in
        low, high = (0.0, 1.0) if eps is None else (eps, 1 - eps)
        zero = aten.zeros((), dtype=gg.dtype, device=gg.device)
        inside = aten.where((x >= low) & (x <= high), gg, zero)
        d = x * (1 - x)
        into = -inside * ((g / d) / d) if b.needs[1] else None
        return (
            inside / d if b.needs[0] else None,
            None if into is None else into * (1 - x) - into * x,
        )
