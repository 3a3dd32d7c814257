"""Exceptions: groups, contexts, what handlers see, what leaves."""

from __future__ import annotations

import contextlib

import flambeau as torch
from tests.capture.comparing import program


def x():
    return torch.randn(3, 4)


class Failure(Exception):
    def __init__(self, code, *, note=""):
        super().__init__(f"failure {code}")
        self.code = code
        self.note = note


class Special(Failure, ValueError):
    pass


@program(lambda: (x(),), graphs=1)
def hierarchy(a):
    log = []
    for error in (Failure(1), Special(2, note="n"), KeyError("k"), OSError(2, "gone")):
        try:
            raise error
        except ValueError as e:
            log.append(("value", e.code, e.note))
        except (Failure, KeyError) as e:
            log.append(("listed", e.args))
        except Exception as e:
            log.append(("other", str(e), e.errno))
    return a + 1, log


@program(lambda: (x(),), graphs=1)
def groups(a):
    log = []
    try:
        raise ExceptionGroup("both", [ValueError("v"), KeyError("k"), TypeError("t")])
    except* ValueError as group:
        log.append([str(e) for e in group.exceptions])
    except* (KeyError, TypeError) as group:
        log.append(len(group.exceptions))
        a = a * 2
    return a, log


@program(lambda: (x(),), graphs=1)
def group_of_plain(a):
    log = []
    try:
        raise ValueError("single")
    except* ValueError as group:
        log.append(type(group).__name__)
        a = a + 1
    return a, log


@program(lambda: (x(),), breaks=None)
def group_left_over(a):
    try:
        raise ExceptionGroup("g", [ValueError("v"), OSError("o")])
    except* ValueError:
        a = a + 1
    return a


@program(lambda: (x(),), graphs=1)
def group_methods(a):
    g = ExceptionGroup("g", [ValueError(1), ExceptionGroup("h", [KeyError(2)])])
    m, rest = g.split(KeyError)
    return a + 1, len(g.exceptions), g.message, m.exceptions[0].message, rest.exceptions[0].args


@program(lambda: (x(),), graphs=1)
def causes(a):
    try:
        try:
            {}["k"]
        except KeyError as e:
            raise Failure(3) from e
    except Failure as f:
        return a * f.code, type(f.__cause__).__name__, f.__context__ is f.__cause__


@program(lambda: (x(),), graphs=1)
def contexts(a):
    try:
        try:
            raise ValueError("first")
        finally:
            int("zz")
    except ValueError as e:
        return a + 1, str(e), str(e.__context__), e.__cause__, e.__suppress_context__


@program(lambda: (x(),), graphs=1)
def notes(a):
    try:
        e = ValueError("v")
        e.add_note("more")
        raise e
    except ValueError as caught:
        return a + 1, caught.__notes__, caught is e


@program(lambda: (x(), 3), graphs=1)
def finally_everywhere(a, n):
    log = []

    def f(k):
        for i in range(k):
            try:
                if i == 0:
                    continue
                if i == 2:
                    break
                log.append(i)
            finally:
                log.append(("f", i))
        try:
            return "body"
        finally:
            log.append("end")

    return a * n, f(n), log


@program(lambda: (x(),), graphs=1)
def swallowed_by_return(a):
    def f():
        try:
            raise ValueError
        finally:
            return 5

    return a * f()


@program(lambda: (x(),), graphs=1)
def else_and_finally(a):
    log = []
    for k in (0, 1, 2):
        try:
            v = [1, 2][k]
        except IndexError:
            log.append("none")
        else:
            log.append(v)
        finally:
            log.append("f")
    return a + 1, log


@program(lambda: (x(),), graphs=1)
def variable_of_handler(a):
    log = []
    try:
        raise KeyError(1)
    except KeyError as e:
        kept = e
    try:
        e  # noqa: F821
    except UnboundLocalError as u:
        log.append(str(u))
    return a + kept.args[0], log


@program(lambda: (x(),), graphs=1)
def classes_and_instances(a):
    log = []
    try:
        raise ValueError
    except ValueError as e:
        log.append(e.args)
    try:
        raise 5
    except TypeError as e:
        log.append(str(e))
    try:
        raise
    except RuntimeError as e:
        log.append(str(e))
    return a + 1, log


@program(lambda: (x(),), graphs=1)
def errors_of_the_library(a):
    log = []
    for fn in (
        lambda: a @ a,
        lambda: a.reshape(5, 5),
        lambda: torch.cat([a, a[0]]),
        lambda: a.foo,
        lambda: torch.zeros(2, dtype="z"),
        lambda: a + torch.ones(2),
        lambda: a[7],
        lambda: torch.stack([]),
        lambda: a.view(-1, -1),
    ):
        try:
            fn()
        except (RuntimeError, AttributeError, TypeError, IndexError, ValueError) as e:
            log.append(type(e).__name__)
    return a + 1, log


@program(lambda: (x(),), breaks=None)
def leaves_with_cause(a):
    b = a + 1
    try:
        {}["k"]
    except KeyError as e:
        raise Failure(b.dim()) from e


@program(lambda: (x(), []), breaks=None)
def leaves_through_finally(a, log):
    try:
        log.append(a + 1)
        raise Failure(1)
    finally:
        log.append("done")


@program(lambda: (x(), []), breaks=None)
def leaves_from_depth(a, log):
    def third(v):
        log.append(v)
        raise IndexError("deep")

    def second(v):
        try:
            third(v + 1)
        finally:
            log.append("second")

    second(a)


@program(lambda: (x(),), breaks=None)
def leaves_from_library(a):
    return a.sum() + a @ a


@program(lambda: (x(),), breaks=None)
def system_exit(a):
    try:
        raise SystemExit(3)
    except SystemExit as e:
        return a + e.code


@program(lambda: (x(), []), graphs=1)
def managers_of_contextlib(a, log):
    @contextlib.contextmanager
    def noted(name):
        log.append("+" + name)
        try:
            yield name
        except ValueError:
            log.append("!" + name)
        log.append("-" + name)

    with noted("p") as p, noted("q"):
        a = a + len(p)
    with noted("r"):
        raise ValueError
    with contextlib.suppress(KeyError, IndexError):
        [][0]
    with contextlib.nullcontext(5) as n:
        a = a * n
    return a


@program(lambda: (x(), []), breaks=None)
def exit_stacks(a, log):
    class Res:
        def __init__(self, n):
            self.n = n

        def __enter__(self):
            return self

        def __exit__(self, *e):
            log.append(self.n)

        def close(self):
            log.append("closed")

    with contextlib.ExitStack() as stack:
        items = [stack.enter_context(Res(i)) for i in range(3)]
        stack.callback(log.append, "last")
        stack.push(lambda *e: log.append(e[0]))
        a = a * len(items)
    with contextlib.closing(Res(9)) as r:
        a = a + r.n
    return a


class Switch(contextlib.ContextDecorator):
    def __init__(self, log):
        self.log = log

    def __enter__(self):
        self.log.append("on")
        return self

    def __exit__(self, *e):
        self.log.append("off")
        return False


@program(lambda: (x(), []), graphs=1)
def context_decorators(a, log):
    @Switch(log)
    def f(v):
        log.append("body")
        return v + 1

    return f(a)


@program(lambda: (x(),), graphs=1)
def exception_facts(a):
    e = Failure(4, note="k")
    f = ValueError("p", 2)
    return a + e.code, str(e), e.args, repr(f), str(f), isinstance(e, Failure), f.args[1]


@program(lambda: (x(), {"k": 1}), graphs=1)
def asking_forgiveness(a, table):
    def get(d, *path, default=None):
        for p in path:
            try:
                d = d[p]
            except (KeyError, TypeError, IndexError):
                return default
        return d

    return a * get(table, "k"), get(table, "z", default=7), get(table, "k", 0)


@program(lambda: (x(),), graphs=1)
def wrong_managers(a):
    log = []
    try:
        with 5:
            pass
    except TypeError as e:
        log.append(str(e))
    try:
        for _ in 5:
            pass
    except TypeError as e:
        log.append(str(e))
    try:
        (lambda: (yield))().send(1)
    except TypeError as e:
        log.append(str(e))
    return a + 1, log
