"""What CPython's own tests of other modules than the listed ones took for something else."""

from __future__ import annotations

import abc

import flambeau as torch
from tests.capture.comparing import program


def x():
    return torch.arange(12.0).reshape(3, 4)


def _asks(name):
    def method(self, other):
        self.asked.append((type(self).__name__, name, type(other).__name__))
        return NotImplemented

    return method


class Base(metaclass=abc.ABCMeta):
    def __init__(self, asked):
        self.asked = asked

    __eq__, __le__, __ge__, __add__, __radd__ = map(
        _asks, ("__eq__", "__le__", "__ge__", "__add__", "__radd__")
    )
    __hash__ = None


class Derived(Base):
    pass


class Overriding(Base):
    __eq__, __ge__, __radd__ = map(_asks, ("==", ">=", "+"))


@Base.register
class Registered:
    __init__ = Base.__init__
    __eq__, __ge__, __radd__ = map(_asks, ("eq", "ge", "radd"))
    __hash__ = None


@program(lambda: (x(),), breaks=0, graphs=1)
def which_operand_is_asked_first(a):
    asked = []
    kinds = [kind(asked) for kind in (Base, Derived, Overriding, Registered)]
    for p in kinds:
        for q in kinds:
            asked.append(p == q)
            for how in (lambda p, q: p <= q, lambda p, q: p + q):
                try:
                    how(p, q)
                except TypeError as error:
                    asked.append(str(error))
    return a + len(asked), asked
