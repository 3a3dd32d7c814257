"""Breaks: the rest goes on as a function of its own."""

from __future__ import annotations

import flambeau as torch
from tests.capture.comparing import program


def x():
    return torch.randn(3, 4)


@program(lambda: (x(),), breaks=1, graphs=2)
def prints(a):
    b = a + 1
    print("shape", b.shape)
    return b * 2


@program(lambda: (x(), [], {"k": 1}), breaks=2, graphs=3)
def prints_twice(a, log, table):
    log.append(a + 1)
    print(len(log))
    table["k"] = log[0] * 2
    print(sorted(table))
    c = table["k"] + log[0]
    log.append(c)
    return c


@program(lambda: (x(),), breaks=1, graphs=2)
def item(a):
    n = a.sum().item()
    return a * n


@program(lambda: (torch.ones(3),), breaks=1, graphs=2)
def branch_taken(a):
    b = a + 1
    if b.sum() > 0:
        return b * 2
    return b * 3


@program(lambda: (-torch.ones(3),), breaks=1, graphs=2)
def branch_not_taken(a):
    b = a * 2
    if b.sum() > 0:
        c = b * 2
    else:
        c = b - 1
    return c * b


@program(lambda: (torch.ones(3),), breaks=1)
def boolean_operators(a):
    b = a + 1
    c = (b.sum() > 0) and 5
    return b * c


@program(lambda: (x(),), breaks=1, graphs=2)
def in_try(a):
    b = a + 1
    try:
        print("trying")
        b = b * 2
    except ValueError:
        b = b * 3
    return b


@program(lambda: (x(),), breaks=None)
def raises_in_try(a):
    b = a + 1
    try:
        print("trying")
        int(input_text())
    except ValueError as e:
        b = b * 3
        print(str(e))
    finally:
        b = b + 1
    return b


def input_text():
    return "x1"


@program(lambda: (x(),), breaks=None)
def raising_call_in_try(a):
    b = a + 1
    try:
        open("/nonexistent/file")
    except OSError:
        b = b * 3
    return b


@program(lambda: (torch.randn(3, requires_grad=True),), breaks=1, graphs=2)
def in_no_grad(a):
    b = a * 2
    with torch.no_grad():
        c = b + 1
        print("inside")
        d = c * b
    return d, b * a, torch.is_grad_enabled()


@program(lambda: (x(),), breaks=1)
def in_loop(a):
    for i in range(3):
        a = a + i
        print(i)
    return a


def helper(v):
    w = v + 1
    print("in helper")
    return w * 2


@program(lambda: (x(),), breaks=None)
def in_called_function(a):
    b = a * 3
    c = helper(b)
    return c + b


@program(lambda: (x(),), breaks=1, graphs=2)
def in_expression(a):
    return torch.add(a + 1, (a * 2, print("mid"))[0]) * 3


@program(lambda: (x(),), breaks=1, graphs=2)
def with_closure(a):
    k = 3

    def f(v):
        return v * k

    b = f(a)
    print("between")
    k = 4
    return f(b), f


@program(lambda: (x(),), breaks=1)
def with_nonlocal(a):
    n = 0

    def step():
        nonlocal n
        n += 1
        return n

    step()
    print("between")
    step()
    return a + n


@program(lambda: (x(),), breaks=1, graphs=2)
def with_iterator(a):
    it = iter([1, 2, 3])
    b = a + next(it)
    print("between")
    return b + next(it)


@program(lambda: (x(),), breaks=1, graphs=2)
def comprehension_after(a):
    b = a + 1
    print("between")
    return [b * i for i in range(2)], b


@program(lambda: (x(), 1), breaks=1, graphs=2)
def keywords_in_broken_call(a, n):
    b = a + n
    print("p", n, sep="-", end="!\n")
    return b * 2


@program(lambda: (x(),), breaks=1, graphs=1)
def shared_state(a):
    b = [a + 1]
    c = {"b": b}
    d = (b, c)
    print("between")
    b.append(a)
    return d, d[1]["b"] is b


class Box:
    def __init__(self, v):
        self.v = v


@program(lambda: (x(), Box(1)), breaks=1, graphs=2)
def objects_across(a, box):
    mine = Box(a + 1)
    box.v = mine
    print("between")
    mine.v = mine.v * 2
    return box.v.v


@program(lambda: (x(),), breaks=None, rounding=1e-6)
def numpy(a):
    b = a + 1
    n = b.numpy().sum()
    return b * float(n)


@program(lambda: (x(),), breaks=1, graphs=2)
def nonzero(a):
    b = a + 1
    i = b.nonzero()
    return b.sum() + i.sum()


@program(lambda: (x(),), breaks=1, graphs=2)
def disabled(a):
    b = a + 1
    c = plain(b)
    return c * 2


@torch.compiler.disable
def plain(v):
    return v * 3


@program(lambda: (x(),), breaks=1, graphs=2)
def asked_for(a):
    b = a + 1
    torch._dynamo.graph_break()
    return b * 2


@program(lambda: (x(),), breaks=None)
def while_on_tensor(a):
    while a.sum() < 100:
        a = a.abs() * 2 + 1
    return a


@program(lambda: (x(),), breaks=None)
def in_finally(a):
    try:
        b = a + 1
    finally:
        print("finally")
    return b * 2


@program(lambda: (x(),), breaks=None)
def in_handler(a):
    b = a + 1
    try:
        raise ValueError("v")
    except ValueError:
        print("handling")
        b = b * 2
    return b


@program(lambda: (x(),), breaks=1, graphs=2)
def stores(a):
    b = a.clone()
    t = (b, 1)
    print(t[1])
    u, v = t
    u[0] = v
    return u


class Late:
    @property
    def shape_of(self):
        print("late")
        return lambda v: v.shape


@program(lambda: (x(), Late()), breaks=None)
def at_method_load(a, late):
    b = a + 1
    return late.shape_of(b), b


METHOD = [].append


@program(lambda: (x(),), breaks=None)
def at_global_load(a):
    b = a + 1
    METHOD(3)
    return b * 2


def square():
    return (torch.ones(2, 2, requires_grad=True),)


def _wants(*tensors):
    return [t.requires_grad for t in tensors], torch.is_grad_enabled()


@program(square, breaks=1)
def break_without_recording(a):
    with torch.no_grad():
        b = a * 2
        print("break")
        c = a * 3
    return _wants(b, c, a * 4), a * 5


@program(square, breaks=3)
def break_in_nested_modes(a):
    with torch.no_grad():
        print("nothing has run")
        b = a * 2
        with torch.enable_grad():
            c = a * 3
            print("break")
            d = a * 4
        print("break")
        e = a * 5
        with torch.enable_grad():
            f = a.sin()
    return _wants(b, c, d, e, f), f


@program(square, breaks=1)
def break_under_autocast(a):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        b = a @ a
        print("break")
        c = a @ b.float()
    return b, c, a @ a


def _inner(a):
    print("called")
    return a * 2


@program(square, breaks=1)
def call_that_breaks_without_recording(a):
    before = torch.is_grad_enabled()
    torch.set_grad_enabled(False)
    try:
        b = _inner(a)
    finally:
        torch.set_grad_enabled(before)
    return _wants(b), a * 2


# ---- changes that the function itself sees only after a break ------------------------------------

_count = 0


def _from_zero():
    global _count
    _count = 0
    return (x(),)


def _counted():
    return _count


@program(_from_zero, breaks=1, graphs=2)
def global_written(a):
    global _count
    _count = _count + 2
    b = a * _count
    print(_counted())
    return b + _counted()


def _counter():
    count = 1

    def bump():
        nonlocal count
        count += 2
        return count

    return x(), bump, lambda: count


@program(_counter, breaks=1, graphs=2)
def cell_written(a, bump, read):
    b = a * bump()
    print(read())
    return b + read()


@program(lambda: (x(), iter([1, 2, 3, 4])), breaks=1, graphs=2)
def iterator_moved(a, numbers):
    b = a * next(numbers) + next(numbers)
    print("break")
    return b - next(numbers)


def _around():
    count = 0

    def from_zero():
        nonlocal count
        count = 0
        return (x(),)

    def read():
        return count

    @program(from_zero, breaks=1, graphs=2)
    def own_cell_written(a):
        nonlocal count
        count += 2
        b = a * count
        print(read())
        return b + read()


_around()
