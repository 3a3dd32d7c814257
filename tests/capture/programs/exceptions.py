"""Exceptions: raised and handled inside, and those that leave."""

from __future__ import annotations

import contextlib

import flambeau as torch
from tests.capture.comparing import program


def x():
    return torch.randn(3, 4)


class Problem(Exception):
    def __init__(self, code, text="t"):
        super().__init__(text)
        self.code = code


@program(lambda: (x(),), graphs=1)
def handled(a):
    try:
        raise ValueError("no")
    except (TypeError, ValueError) as e:
        a = a + len(str(e))
    else:
        a = a * 100
    finally:
        a = a + 1
    return a


@program(lambda: (x(),), graphs=1)
def own_class(a):
    try:
        raise Problem(7)
    except Problem as e:
        return a + e.code, e.args


@program(lambda: (x(), {}, []), graphs=1)
def native_errors(a, table, items):
    n = 0
    try:
        table["zz"]
    except KeyError as e:
        n += len(e.args)
    try:
        items[3]
    except IndexError:
        n += 1
    try:
        1 / 0
    except ZeroDivisionError:
        n += 1
    try:
        int("x")
    except ValueError as e:
        t = str(e)
    try:
        a.nothing
    except AttributeError:
        n += 1
    try:
        a(3)
    except TypeError:
        n += 1
    return a + n, t


def deep(n):
    if n == 0:
        raise KeyError("deep")
    return deep(n - 1)


@program(lambda: (x(),), graphs=1)
def through_calls(a):
    try:
        deep(3)
    except LookupError as e:
        a = a + 1
        kind = type(e).__name__
    return a, kind


@program(lambda: (x(),), graphs=1)
def reraised(a):
    log = []
    try:
        try:
            raise ValueError("p")
        except ValueError:
            log.append(1)
            raise
        finally:
            log.append(2)
    except ValueError as e:
        log.append(str(e))
    return a + 1, log


@program(lambda: (x(),), graphs=1)
def chained(a):
    try:
        try:
            raise ValueError("p")
        except ValueError as e:
            raise TypeError("q") from e
    except TypeError as e:
        return a + 1, str(e.__cause__), str(e.__context__), e.__suppress_context__


@program(lambda: (x(),), graphs=1)
def implicit_context(a):
    try:
        try:
            raise ValueError("p")
        except ValueError:
            {}["k"]
    except KeyError as e:
        return a + 1, repr(e.__context__)


@program(lambda: (x(),), graphs=1)
def finally_returns(a):
    def f():
        try:
            return 1
        finally:
            return 2

    def g(log):
        for i in range(3):
            try:
                if i == 1:
                    continue
                log.append(i)
            finally:
                log.append("f")
        return log

    return a + f(), g([])


class Manager:
    def __init__(self, log, swallow):
        self.log = log
        self.swallow = swallow

    def __enter__(self):
        self.log.append("in")
        return self

    def __exit__(self, kind, error, trace):
        self.log.append(kind.__name__ if kind else None)
        return self.swallow


@program(lambda: (x(), []), graphs=1)
def managers(a, log):
    with Manager(log, True):
        raise ValueError("swallowed")
    try:
        with Manager(log, False), Manager(log, False) as m:
            m.log.append("body")
            raise KeyError("k")
    except KeyError:
        log.append("caught")
    with contextlib.suppress(ZeroDivisionError):
        1 / 0
    return a + len(log)


@program(lambda: (x(),), breaks=None)
def leaves(a):
    b = a + 1
    if b.shape[0] == 3:
        raise Problem(3, "leaves")
    return b


@program(lambda: (x(), []), breaks=None)
def leaves_after_changes(a, log):
    log.append(a + 1)
    a.add_(1)
    return log[5]


@program(lambda: (x(),), breaks=None)
def shape_error(a):
    b = a + 1
    return b @ a


@program(lambda: (x(),), breaks=None)
def wrong_call(a):
    def f(p, q=1, *, r):
        return p

    b = a * 2
    return f(b, 2, 3, r=1)


@program(lambda: (x(),), graphs=1)
def shape_error_handled(a):
    try:
        return a @ a
    except RuntimeError as e:
        return a + 1, "mat1" in str(e)


@program(lambda: (x(),), breaks=None)
def unbound(a):
    if a.dim() == 7:
        z = 1
    b = a + 1
    return b + z


@program(lambda: (x(),), breaks=None)
def assertion(a):
    b = a + 1
    assert b.dim() == 3, f"dimensions {b.dim()}"
    return b


@program(lambda: (x(),), graphs=1)
def exception_as_value(a):
    e = ValueError("kept", 3)
    p = Problem(4)
    return a + 1, e, p


@program(lambda: (x(),), graphs=1)
def exit_stack(a):
    log = []
    with contextlib.ExitStack() as stack:
        stack.callback(log.append, 1)
        stack.enter_context(Manager(log, False))
        a = a + 1
    return a, log
