"""Checks against abstract classes, whose registries may change between calls."""

from __future__ import annotations

import collections.abc
from typing import Any

import flambeau as torch


def test_a_class_registered_later_is_an_instance_then() -> None:
    class Plain:
        pass

    def f(x: Any, o: Any) -> Any:
        if isinstance(o, collections.abc.Container) or issubclass(type(o), collections.abc.Sized):
            return x + 1
        return x - 1

    compiled = torch.compile(f, backend="eager", fullgraph=True)
    x, o = torch.zeros(1), Plain()
    assert compiled(x, o).item() == compiled(x, o).item() == -1
    collections.abc.Sized.register(Plain)
    assert compiled(x, o).item() == 1


def test_a_class_is_taken_out_of_a_list_once() -> None:
    def f(x: Any, classes: Any) -> Any:
        left = list(classes)
        left.remove(int)
        return x + left.index(str), left, left.count(float)

    compiled = torch.compile(f, backend="eager", fullgraph=True)
    out, left, count = compiled(torch.zeros(1), [float, int, str])
    assert (out.item(), left, count) == (1, [float, str], 1)


def test_what_is_told_of_its_end_is_made_once() -> None:
    ended = []

    class Told(list[int]):
        def __del__(self) -> None:
            ended.append(len(self))

    def f(x: Any) -> Any:
        made = Told([1, 2])
        return x + len(made)

    assert torch.compile(f, backend="eager")(torch.zeros(1)).item() == 2
    assert ended == [2]
