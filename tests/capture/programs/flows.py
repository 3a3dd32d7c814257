"""Breaks in loops, in `try` and in `with`: the rest goes on where it stands."""

from __future__ import annotations

import contextlib
import traceback

import flambeau as torch
from tests.capture.comparing import program


def x():
    return torch.randn(3, 4)


@program(lambda: (x(),), breaks=1)
def print_in_for(a):
    for i in range(4):
        a = a + i
        print(i)
        a = a * 2
    return a + 1


@program(lambda: (x(), [3, 1, 2]), breaks=1)
def print_in_for_over_list(a, items):
    total = a * 0
    for i, n in enumerate(items):
        total = total + a * n
        print(i, n)
    return total, i, n


@program(lambda: (x(), [x(), x()]), breaks=1)
def print_in_for_over_tensors(a, items):
    for t in items:
        a = a + t
        print(t.shape)
    return a


@program(lambda: (x(), 5), breaks=1)
def print_in_while(a, n):
    while n > 0:
        a = a * n
        print(n)
        n -= 1
    return a


@program(lambda: (x(),), breaks=1)
def print_in_nested(a):
    for i in range(2):
        for j in range(3):
            a = a + i * j
            print(i, j)
        a = a * 2
    return a


@program(lambda: (x(),), breaks=2)
def two_prints_in_for(a):
    for i in range(3):
        a = a + 1
        print("p", i)
        a = a * 2
        print("q", i)
    return a


@program(lambda: (x(), [1, 2, 3, 4, 5, 6]), breaks=1)
def break_continue_around(a, items):
    for i in items:
        if i == 2:
            continue
        if i == 5:
            break
        a = a + i
        print(i)
        if i == 3:
            continue
        a = a * 2
    else:
        a = a * 100
    return a


@program(lambda: (x(),), breaks=1)
def for_else(a):
    for i in range(2):
        print(i)
    else:
        a = a * 3
    return a


@program(lambda: (x(),), breaks=1)
def return_inside(a):
    for i in range(5):
        a = a + 1
        print(i)
        if i == 2:
            return a * 2
    return a


@program(lambda: (x(),), breaks=1)
def many_rounds(a):
    for i in range(1500):
        if i % 500 == 0:
            a = a + i
        print(end="")
    return a


@program(lambda: (torch.ones(3),), breaks=1)
def item_in_loop(a):
    out = []
    for i in range(3):
        out.append((a * i).sum().item())
    return a * out[-1], out


@program(lambda: (torch.ones(3),), breaks=None)
def data_dependent_while(a):
    n = 0
    while a.sum() < 100:
        a = a * 2
        n += 1
    return a, n


@program(lambda: (torch.ones(3),), breaks=1)
def data_dependent_break(a):
    for i in range(10):
        a = a * 2
        if a.sum() > 20:
            break
    return a, i


@program(lambda: (torch.ones(3), []), breaks=1)
def changes_outside_in_loop(a, log):
    for i in range(3):
        log.append(a * i)
        print(len(log))
    return log[0] + log[1]


class Box:
    def __init__(self):
        self.n = 0
        self.items = []


@program(lambda: (x(), Box()), breaks=1)
def objects_in_loop(a, box):
    for i in range(3):
        box.n += 1
        box.items.append(a + i)
        print(box.n)
    return box.items[-1] * box.n


@program(lambda: (x(),), breaks=1)
def loop_with_closure(a):
    k = 1

    def scaled(v):
        return v * k

    for i in range(3):
        k += 1
        print(k)
        a = scaled(a)
    return a, k


@program(lambda: (x(),), breaks=1)
def loop_over_zip(a):
    for i, s in zip(range(3), "abc"):
        a = a + i
        print(i, s)
    return a


@program(lambda: (x(), {"p": 1, "q": 2}), breaks=1)
def loop_over_items(a, table):
    for k, v in table.items():
        a = a + v
        print(k)
    return a


def numbers(log):
    for i in range(3):
        log.append(i)
        yield i


@program(lambda: (x(), []), breaks=1)
def loop_over_generator(a, log):
    for i in numbers(log):
        a = a + i
        print(i)
    return a


@program(lambda: (x(),), breaks=1)
def comprehension_with_break(a):
    values = [print(i) or a * i for i in range(3)]
    return values[0] + values[2]


@program(lambda: (x(),), breaks=1)
def loop_in_try(a):
    try:
        for i in range(3):
            a = a + i
            print(i)
    finally:
        a = a * 2
    return a


@program(lambda: (x(),), breaks=1)
def try_in_loop(a):
    for i in range(3):
        try:
            a = a + 1
            print(i)
            if i == 1:
                raise ValueError("one")
        except ValueError as e:
            a = a * 2 + len(str(e))
        else:
            a = a - 1
        finally:
            a = a * 3
    return a


@program(lambda: (x(),), breaks=1)
def with_in_loop(a):
    for i in range(2):
        with torch.no_grad():
            b = a + i
            print(i)
        a = a + b
    return a


@program(lambda: (torch.randn(3, requires_grad=True),), breaks=1)
def loop_in_with(a):
    with torch.no_grad():
        for i in range(3):
            b = a + i
            print(i)
    return b * a


def calls_print(v, i):
    w = v + i
    print(i)
    return w * 2


@program(lambda: (x(),), breaks=None)
def helper_in_loop(a):
    for i in range(3):
        a = calls_print(a, i)
        a = a + 1
    return a


@program(lambda: (x(),), breaks=1)
def dead_variables(a):
    for i in range(3):
        t = a * i
        u = t + 1
        print(i)
        del t
        a = u
    return a


@program(lambda: (x(),), breaks=1)
def late_variables(a):
    for i in range(4):
        if i == 2:
            late = a * 2
        print(i)
        if i > 2:
            a = a + late
    return a


# ---- try ----


@program(lambda: (x(),), breaks=1)
def break_in_handler(a):
    try:
        raise ValueError("v")
    except ValueError as e:
        a = a + 1
        print("handling", e)
        a = a * 2
    return a


@program(lambda: (x(),), breaks=1)
def break_in_finally(a):
    try:
        b = a + 1
    finally:
        print("finally")
        c = a * 2
    return b + c


@program(lambda: (x(),), breaks=1)
def break_in_finally_of_error(a):
    try:
        try:
            raise KeyError("k")
        finally:
            print("finally")
    except KeyError as e:
        return a + 1, e.args


@program(lambda: (x(),), breaks=1)
def break_in_else(a):
    try:
        b = a + 1
    except ValueError:
        b = a
    else:
        print("else")
        b = b * 2
    return b


@program(lambda: (x(),), breaks=None)
def error_of_broken_call(a):
    b = a + 1
    try:
        eval("1 / 0")
    except ZeroDivisionError as e:
        b = b * 2
        text = str(e)
    return b, text


@program(lambda: (x(),), breaks=None)
def error_after_break(a):
    try:
        print("before")
        raise ValueError("after")
    except ValueError as e:
        a = a + len(str(e))
    return a


@program(lambda: (x(),), breaks=None)
def error_leaves_after_break(a):
    b = a + 1
    print("before")
    raise ValueError(f"left {b.dim()}")


@program(lambda: (x(),), breaks=None)
def nested_handlers(a):
    try:
        try:
            print("in")
            {}["k"]
        except KeyError:
            print("key")
            raise ValueError("new") from None
    except ValueError as e:
        a = a * 2
        kept = e.__cause__, e.__suppress_context__
    return a, kept


@program(lambda: (x(),), breaks=None)
def reraised_after_break(a):
    log = []
    try:
        try:
            raise ValueError("v")
        except ValueError:
            print("handling")
            raise
    except ValueError as e:
        log.append(str(e))
    return a + 1, log


@program(lambda: (x(),), breaks=None)
def traceback_of_handled(a):
    try:
        raise ValueError("v")
    except ValueError as e:
        print("handling")
        frames = traceback.extract_tb(e.__traceback__)
    return a + 1, [(f.name, f.lineno) for f in frames]


# ---- with ----


class Manager:
    def __init__(self, log, swallow=False):
        self.log = log
        self.swallow = swallow

    def __enter__(self):
        self.log.append("enter")
        return self

    def __exit__(self, kind, error, trace):
        self.log.append("exit" if kind is None else kind.__name__)
        return self.swallow


@program(lambda: (x(), []), breaks=1)
def break_in_own_manager(a, log):
    with Manager(log) as m:
        a = a + 1
        print(len(m.log))
        a = a * 2
    return a


@program(lambda: (x(), []), breaks=None)
def error_in_own_manager(a, log):
    with Manager(log, True):
        print("in")
        raise ValueError("swallowed")
    return a + 1


@program(lambda: (x(), []), breaks=1)
def break_in_two_managers(a, log):
    with Manager(log) as m, Manager(log) as n:
        print(m is n)
        a = a * 2
    return a


@contextlib.contextmanager
def scaled(log, k):
    log.append(f"in {k}")
    try:
        yield k
    finally:
        log.append(f"out {k}")


@program(lambda: (x(), []), breaks=2)
def break_in_generator_manager(a, log):
    with scaled(log, 3) as k:
        a = a * k
        print("inside")
        a = a + k
    return a


@program(lambda: (x(), []), breaks=None)
def error_in_generator_manager(a, log):
    try:
        with scaled(log, 3) as k:
            print("inside")
            raise KeyError(k)
    except KeyError as e:
        return a * 2, e.args


@program(lambda: (x(), []), breaks=1)
def break_in_exit_stack(a, log):
    with contextlib.ExitStack() as stack:
        stack.enter_context(Manager(log))
        stack.callback(log.append, "called")
        print("inside")
        a = a + 1
    return a


@program(lambda: (x(),), breaks=1)
def break_in_autocast(a):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        b = a @ a.t()
        print(b.dtype)
        c = a @ a.t()
    return b, c, a @ a.t()


@program(lambda: (torch.randn(3, requires_grad=True),), breaks=1)
def break_in_nested_grad_modes(a):
    with torch.no_grad():
        with torch.enable_grad():
            b = a * 2
            print(b.requires_grad)
            c = b * 2
        d = c + 1
    return b, c, d, a * 3


@program(lambda: (x(),), breaks=1)
def break_in_suppress(a):
    with contextlib.suppress(KeyError):
        print("inside")
        a = a + 1
    return a


@program(lambda: (x(),), breaks=None)
def break_in_inference_mode(a):
    with torch.inference_mode():
        b = a + 1
        print(b.is_inference())
        c = b * 2
    return c.is_inference(), b.shape


# ---- generators that have begun ----


def counting(log, start):
    total = 0
    try:
        for i in range(start, start + 5):
            try:
                got = yield total + i
                total += got or 1
            except ValueError:
                log.append(i)
    finally:
        log.append(total)


@program(lambda: (x(), []), breaks=2)
def suspended_generator(a, log):
    g = counting(log, 2)
    first = next(g)
    b = a + g.send(3)
    print(first)
    rest = list(g)
    return b, rest


@program(lambda: (x(), []), breaks=None)
def suspended_generator_thrown_into(a, log):
    g = counting(log, 2)
    b = a + next(g)
    print("between")
    c = b * g.throw(ValueError("v"))
    g.close()
    return c, list(g)


def delegating(log):
    k = yield from counting(log, 1)
    log.append(("result", k))
    yield "last"


@program(lambda: (x(), []), breaks=None)
def suspended_delegates(a, log):
    g = delegating(log)
    b = a + next(g)
    print("between")
    return b, g.send(5), list(g)


@program(lambda: (x(),), breaks=None)
def suspended_with_cells(a):
    k = 2

    def parts():
        nonlocal k
        for v in (1, 2, 3):
            k += v
            yield lambda: v * k

    g = parts()
    f = next(g)
    print("between")
    h = next(g)
    k += 10
    return a + f() + h(), k, g.__name__


@program(lambda: (x(),), breaks=None)
def suspended_expression(a):
    g = (r * i for i, r in enumerate(a))
    b = next(g)
    print("between")
    return b + next(g), list(g), list(g)


@program(lambda: (x(),), breaks=None)
def finished_generator(a):
    g = (i for i in range(2))
    n = sum(g)
    print("between")
    return a + n, next(g, "end")


@program(lambda: (x(), []), breaks=None)
def suspended_in_handler(a, log):
    def parts():
        try:
            raise KeyError("k")
        except KeyError as e:
            yield 1
            log.append(str(e))
            try:
                raise ValueError from None
            except ValueError as f:
                log.append(type(f.__context__).__name__)
        yield 2

    g = parts()
    b = a + next(g)
    print("between")
    return b + next(g)


@contextlib.contextmanager
def without_recording(log):
    with torch.no_grad():
        log.append("in")
        yield
    log.append("out")


@program(lambda: (torch.randn(3, requires_grad=True), []), breaks=None)
def loop_in_generator_manager(a, log):
    with without_recording(log):
        for i in range(3):
            b = a * 2 + i
            print(i)
    return b, a * 2, torch.is_grad_enabled()


# ---- other places ----


@program(lambda: (x(), 3), breaks=1)
def break_in_condition(a, n):
    if print("asked") is None and n > 2:
        a = a + 1
    return a


@program(lambda: (x(),), breaks=1)
def break_in_dict_display(a):
    d = {"p": a + 1, "q": print("mid"), "r": a * 2}
    return d["p"] + d["r"]


@program(lambda: (x(),), breaks=1)
def break_in_f_string(a):
    text = f"{a.dim()} {print('mid')} {a.shape[0]}"
    return a + len(text)


@program(lambda: (x(),), breaks=1)
def break_in_subscript(a):
    rows = [a, a + 1]
    return rows[print("mid") or 1] * 2


@program(lambda: (x(),), breaks=1)
def break_in_assert(a):
    assert print("checked") is None, "never"
    return a + 1


@program(lambda: (x(),), breaks=1)
def break_in_star_call(a):
    def f(*args, **kwargs):
        return sum(args) + kwargs["k"]

    return f(*[a, 1], k=print("mid") or 2)


@program(lambda: (torch.ones(3),), breaks=None)
def break_in_match(a):
    match a.sum().item():
        case 3.0:
            a = a * 3
        case _:
            a = a * 100
    return a


@program(lambda: (torch.ones(3),), breaks=None)
def tensor_in_range(a):
    total = a
    for i in range(int(a.sum())):
        total = total + i
    return total


@program(lambda: (torch.tensor([1, 2]),), breaks=None)
def tensor_to_list(a):
    n = a.tolist()
    return a + n[1]


@program(lambda: (torch.ones(3),), breaks=None)
def assert_on_tensor(a):
    assert a.sum() > 0, "positive"
    return a + 1


@program(lambda: (-torch.ones(3),), breaks=None)
def failing_assert_on_tensor(a):
    assert a.sum() > 0, "positive"
    return a + 1


@program(lambda: (torch.ones(3),), breaks=None)
def tensor_truth_in_expression(a):
    b = a.sum() > 2 and a.sum() < 5
    c = a * 2 if b else a
    return c + 1, bool(b)


@program(lambda: (x(),), breaks=None)
def generator_function_broken(a):
    def parts():
        yield a + 1
        print("between")
        yield a * 2

    p, q = parts()
    return p + q
