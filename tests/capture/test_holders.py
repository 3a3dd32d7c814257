"""What is guarded of containers of users' classes, and of the classes of named tuples."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable
from typing import Any

import pytest

import flambeau as torch
from tests.capture.programs.holders import Result, Sized, Table, t


def result(**attributes: Any) -> Callable[[], Any]:
    def made() -> Any:
        out = Result(logits=t(), hidden=(t(), 3))
        for name, value in attributes.items():
            setattr(out, name, value)
        return out

    return made


def sized(limit: int, n: int = 2, **attributes: Any) -> Callable[[], Any]:
    def made() -> Any:
        out = Sized([t()] * n, limit=limit)
        out.__dict__.update(attributes)
        return out

    return made


def of_result(out: Any) -> Any:
    return out.logits * (2 if getattr(out, "flag", False) else 3), len(out), out[0], list(out)


def of_sized(s: Any) -> Any:
    return t() * s.limit if s[1] is None else s[1] + len(s), hasattr(s, "name")


def of_table(table: Any) -> Any:
    return t() * table["aa"] if table.default_factory is int else t(), len(table)


@pytest.mark.parametrize(
    ("fn", "makers"),
    [
        (of_result, [result(), result(flag=True), result(flag=False), result(loss=t()),
                     result(logits=t(3))]),
        (of_sized, [sized(3), sized(1), sized(3, 3), sized(3, name="q"), sized(2)]),
        (of_table, [lambda: Table(int), lambda: Table(float), lambda: Table(int, aa=3),
                    lambda: Table(int, aa=4)]),
    ],
)  # fmt: skip
def test_what_it_holds_and_its_attributes(fn: Any, makers: Any) -> None:
    torch._dynamo.reset()
    compiled = torch.compile(fn, backend="eager", fullgraph=True)
    for make in makers:
        for _ in range(2):
            assert repr(compiled(make())) == repr(fn(make()))


def test_attributes_of_a_class_that_its_instances_lead_to() -> None:
    torch._dynamo.reset()

    class State(namedtuple("State", "a b")):
        factor = 1
        tags = ("x",)

        def go(self) -> Any:
            return self._replace(a=self.a * self.factor)

    def f(s: Any) -> Any:
        return s.go().a, s.go().tags

    compiled = torch.compile(f, backend="eager", fullgraph=True)
    for State.factor, State.tags in ((1, ("x",)), (2, ("x",)), (2, ("y", "z")), (1, ("x",))):
        assert repr(compiled(State(t(), 1))) == repr(f(State(t(), 1)))
