"""The frame hook and its stand-in: calls are offered, and frames of every kind run other code."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import sys
import threading
import traceback
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from flambeau._src import _native
from flambeau._src.capture import frames

HOOKED = isinstance(frames.FRONT, frames.Hook)
needs_hook = pytest.mark.skipif(not HOOKED, reason="this Python has no frame hook")


class Swap:
    """A callback: functions with these codes run others; `asked` lists what was offered."""

    def __init__(self, *pairs: tuple[Callable[..., Any], Callable[..., Any]]) -> None:
        self.table = {a.__code__: b.__code__ for a, b in pairs}
        self.asked: list[Any] = []
        self.key = self

    def __call__(
        self, code: Any, variables: Any, globals_: Any, builtins: Any, function: Any
    ) -> Any:
        self.asked.append((code.co_name, dict(variables)))  # finalisers of others are offered too
        return self.table.get(code)


class Holds:
    """A checker that asks a Python function of the variables."""

    def __init__(self, test: Callable[[dict[str, Any]], Any]) -> None:
        self.test = test

    def check(self, variables: dict[str, Any], globals_: dict[str, Any]) -> Any:
        return self.test(variables)


@pytest.fixture(params=["put", "apart"] if HOOKED else ["wrapper"])
def how(request: pytest.FixtureRequest) -> Iterator[str]:
    """Both ways in which the hook runs other code."""
    if HOOKED:
        _native.frame_force_apart(request.param == "apart")
    yield request.param
    if HOOKED:
        _native.frame_force_apart(False)
    assert frames.get_callback() is None


def swapped(
    function: Callable[..., Any], other: Callable[..., Any], *args: Any, **kwargs: Any
) -> Any:
    """The call with `other` in place of `function`, asked for and then as a version."""
    target = frames.prepare(function)
    first = frames.run_with(Swap((function, other)), target, args, kwargs)
    swap = Swap()
    code = getattr(function, "__func__", function).__code__
    frames.add(code, swap, None, getattr(other, "__func__", other).__code__, "mine")
    try:
        second = frames.run_with(swap, target, args, kwargs)
    finally:
        frames.forget(code)
    return first, second


def test_arguments_of_every_kind(how: str) -> None:
    def f(a: Any, /, b: Any = 2, *rest: Any, k: Any = 3, **more: Any) -> Any:
        return 0

    def g(a: Any, /, b: Any = 2, *rest: Any, k: Any = 3, **more: Any) -> Any:
        x = [a, b, rest, k, sorted(more.items()), max(1, 2, 3, 4, 5, 6, 7, 8, 9, a)]
        return [(i, j) for i in range(2) for j in range(2)], x, len(x)

    for args, kwargs in (((1,), {}), ((1, 5, 6, 7), {"k": 8, "z": 9}), ((1,), {"b": 4})):
        want = g(*args, **kwargs)
        assert swapped(f, g, *args, **kwargs) == (want, want)


def test_what_the_callback_is_told() -> None:
    free = 10

    def f(a: Any, b: Any = 2, *rest: Any, **more: Any) -> Any:
        return lambda: (a, free, unset)

    swap = Swap()
    frames.run_with(swap, frames.prepare(f), (1,), {"z": 3})
    assert swap.asked[0] == ("f", {"a": 1, "b": 2, "rest": (), "more": {"z": 3}, "free": 10})
    assert "<lambda>" not in [n for n, _ in swap.asked]
    unset = 1
    got: list[Any] = []

    def callback(*given: Any) -> None:
        got.append(given)

    frames.run_with(callback, frames.prepare(f), (1,))
    code, variables, globals_, builtins, function = got[0]
    assert code is f.__code__ and function is f and globals_ is globals()
    assert variables["unset"] == unset and builtins["len"] is len


def make_inner(n: int) -> Any:
    def inner(a: Any) -> Any:
        return (lambda: a + n)()

    return inner


def make_other(n: int) -> Any:
    def inner(a: Any) -> Any:
        z = 5
        return (lambda: (a, n))(), (lambda: z + n + a)()

    return inner


def test_closures_and_arguments_that_are_cells(how: str) -> None:
    for n in (10, 20):
        f, g = make_inner(n), make_other(n)
        assert swapped(f, g, 3) == (((3, n), 8 + n),) * 2


def test_methods_and_super(how: str) -> None:
    class Base:
        def m(self) -> str:
            return "base"

    class One(Base):
        def m(self) -> str:
            return super().m()

    class Two(Base):
        def m(self) -> Any:
            return super().m() + "!", sys._getframe().f_code.co_name, sorted(locals())

    two = Two.m
    got = swapped(One().m, two)
    assert got[0][1:] == ("m", ["__class__", "self"]) and got[0][0] == "base!"


@pytest.mark.parametrize("checked", ["python", "none"])
def test_versions_are_tried_until_one_holds(how: str, checked: str) -> None:
    def f(x: Any) -> str:
        return "as it is"

    target = frames.prepare(f)
    swap = Swap()
    versions = [("int", int), ("str", str), ("float", float)]
    for name, kind in versions:
        code = (lambda x: "NAME").__code__
        consts = tuple(name if c == "NAME" else c for c in code.co_consts)
        checker = Holds(lambda v, kind=kind: type(v["x"]) is kind)
        frames.add(f.__code__, swap, checker, code.replace(co_consts=consts), name)
    assert [e[3] for e in frames.entries(f.__code__)] == ["int", "str", "float"]
    values = [1, "a", 2.5, 2, 3, "b", 1, None, 4]
    want = ["int", "str", "float", "int", "int", "str", "int", "as it is", "int"]
    assert [frames.run_with(swap, target, (v,)) for v in values] == want
    assert [v["x"] for name, v in swap.asked if name == "f"] == [None]
    other = Swap()  # another key: no version is its own
    assert frames.run_with(other, target, (1,)) == "as it is"
    assert [name for name, _ in other.asked if name == "f"] == ["f"]
    frames.forget(f.__code__)
    assert frames.run_with(swap, target, (1,)) == "as it is" and not frames.entries(f.__code__)


def test_skipped_functions_are_not_offered() -> None:
    def f() -> int:
        return 1

    target, one, two = frames.prepare(f), Swap(), Swap()
    frames.skip(f.__code__, one)
    assert frames.skipped(f.__code__, one) and not frames.skipped(f.__code__, two)
    for swap in (one, two):
        assert frames.run_with(swap, target) == 1
    assert (len(one.asked), len(two.asked)) == (0, 1)
    frames.skip(f.__code__, None)
    assert frames.run_with(two, target) == 1 and len(two.asked) == 1
    frames.forget(f.__code__)
    assert frames.run_with(two, target) == 1 and len(two.asked) == 2


def test_the_key_is_the_callbacks_attribute() -> None:
    def f() -> int:
        return 1

    class Keyed(Swap):
        def __init__(self, key: Any) -> None:
            super().__init__()
            self.key = key

    key = object()
    frames.add(f.__code__, key, None, (lambda: 2).__code__, None)
    target = frames.prepare(f)
    assert frames.run_with(Keyed(key), target) == 2
    assert frames.run_with(Keyed(object()), target) == 1
    assert frames.run_with(lambda *a: None, target) == 1  # no such attribute: its own key
    frames.forget(f.__code__)


def test_code_that_does_not_fit_is_refused() -> None:
    def f(a: Any) -> Any:
        return a

    def two(a: Any, b: Any) -> Any:
        return a

    def star(*a: Any) -> Any:
        return a

    for wrong in (two, star, make_inner(1)):
        with pytest.raises(ValueError, match="same arguments and free variables"):
            frames.add(f.__code__, None, None, wrong.__code__, None)
        with pytest.raises(ValueError, match="same arguments and free variables"):
            frames.run_with(Swap((f, wrong)), frames.prepare(f), (1,))
    with pytest.raises(TypeError):
        frames.set_callback(5)


def test_errors_of_callbacks_and_checkers_reach_the_caller() -> None:
    def f(x: Any) -> Any:
        return x

    def fails(*given: Any) -> Any:
        raise RuntimeError("compiler")

    target = frames.prepare(f)
    with pytest.raises(RuntimeError, match="compiler"):
        frames.run_with(fails, target, (1,))
    swap = Swap()
    frames.add(f.__code__, swap, Holds(lambda v: 1 // 0), f.__code__, None)
    with pytest.raises(ZeroDivisionError):
        frames.run_with(swap, target, (1,))
    frames.forget(f.__code__)
    assert frames.run_with(swap, target, (1,)) == 1


def test_nothing_is_offered_while_a_callback_or_checker_runs() -> None:
    def f(x: Any) -> Any:
        return x

    def inner() -> int:
        return 1

    asked = []

    def callback(code: Any, *given: Any) -> None:
        asked.append(code.co_name)
        frames.prepare(inner)()

    target = frames.prepare(f)
    frames.run_with(callback, target, (1,))
    frames.add(f.__code__, callback, Holds(lambda v: inner() == 2), f.__code__, None)
    frames.run_with(callback, target, (1,))
    frames.forget(f.__code__)
    assert [n for n in asked if n != "run_with"] == ["f", "f"]


def test_exceptions_carry_the_lines_of_what_ran(how: str) -> None:
    def f(x: Any) -> Any:
        return x

    def g(x: Any) -> Any:
        y = x + 1
        return 1 // (x - x) + y

    with pytest.raises(ZeroDivisionError) as caught:
        swapped(f, g, 4)
    trace = caught.value.__traceback__
    while trace.tb_next is not None:
        trace = trace.tb_next
    assert trace.tb_lineno == g.__code__.co_firstlineno + 2
    assert trace.tb_frame.f_locals == {"x": 4, "y": 5}
    assert "1 // (x - x)" in "".join(traceback.format_exception(caught.value))


def test_generators_and_coroutines(how: str) -> None:
    def f(n: int) -> Any:
        yield n

    def g(n: int) -> Any:
        got = []
        try:
            for i in range(n):
                got.append((yield i * 10))
        finally:
            done.append(list(got))
        return sum(x or 0 for x in got)

    done: list[Any] = []

    def free(n: int) -> Any:  # the same free variables as g
        yield done

    swap = Swap((free, g))

    def drive() -> Any:
        made = frames.prepare(free)(3)
        out = [next(made), made.send(5), made.send(6)]
        try:
            made.send(7)
        except StopIteration as stop:
            out.append(stop.value)
        early = frames.prepare(free)(3)
        next(early)
        early.close()
        return out, made.__name__, list(frames.prepare(free)(2))

    assert frames.run_with(swap, drive) == ([0, 10, 20, 18], "free", [0, 10])
    assert done == [[5, 6, 7], [], [None, None]]

    async def a(n: int) -> Any:
        return n

    async def b(n: int) -> Any:
        total = 0
        for i in range(n):
            await asyncio.sleep(0)
            total += i
        return total

    async def c(n: int) -> Any:
        yield n

    async def d(n: int) -> Any:
        for i in range(n):
            await asyncio.sleep(0)
            yield i

    async def gather(n: int) -> Any:
        return [v async for v in frames.prepare(c)(n)], await frames.prepare(a)(n)

    both = Swap((a, b), (c, d))
    assert frames.run_with(both, lambda: asyncio.run(gather(4))) == ([0, 1, 2, 3], 6)


def test_recursion_at_every_depth(how: str) -> None:
    """The stack's chunks end somewhere: there the code runs apart."""

    def leaf(m: Any) -> Any:
        return m

    def bigger(m: Any) -> Any:
        a = b = c = d = e = m
        return max(a - a, b - b, c - c, d, e, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)

    target = frames.prepare(leaf)
    scope: dict[str, Any] = {"leaf": target}
    swap = Swap()
    frames.add(leaf.__code__, swap, None, bigger.__code__, None)
    for size in range(0, 40, 3):
        body = "; ".join(f"v{i} = 0" for i in range(size + 1))
        exec(f"def pad(n, m):\n {body}\n return leaf(m) if n == 0 else pad(n - 1, m)", scope)
        for depth in range(0, 250, 5):
            assert frames.run_with(swap, scope["pad"], (depth, 5)) == 5
    frames.forget(leaf.__code__)
    if HOOKED and how == "put":
        assert _native.frame_stats()["grown"] > 0


@needs_hook
def test_no_room_is_met() -> None:
    before = _native.frame_stats()["apart"]
    test_recursion_at_every_depth("put")
    assert _native.frame_stats()["apart"] > before


def test_functions_without_any_room(how: str) -> None:
    def f() -> Any:
        return 1

    def g() -> Any:
        return [len("ab"), max(1, 2, 3, 4)]

    assert swapped(f, g) == ([2, 4], [2, 4])
    assert [swapped(f, g) for _ in range(30)][-1] == ([2, 4], [2, 4])


def test_deep_recursion_meets_the_limit_that_the_user_set() -> None:
    def deep(n: int) -> int:
        return n if n == 0 else deep(n - 1)

    limit = sys.getrecursionlimit()
    try:
        sys.setrecursionlimit(4000)
        assert frames.run_with(Swap(), deep, (3000,)) == 0
        with pytest.raises(RecursionError):
            frames.run_with(Swap(), deep, (10**6,))
    finally:
        sys.setrecursionlimit(limit)


@needs_hook
def test_the_end_of_the_stack_is_an_error_and_no_crash() -> None:
    """Without a limit: calls through the hook use C's stack."""
    out: list[Any] = []

    def deep(n: int) -> int:
        return n if n == 0 else deep(n - 1)

    def work() -> None:
        try:
            frames.run_with(Swap(), deep, (10**6,))
        except RecursionError as e:
            out.append(str(e))

    limit, size = sys.getrecursionlimit(), threading.stack_size(1 << 20)
    try:
        sys.setrecursionlimit(10**7)
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    finally:
        sys.setrecursionlimit(limit)
        threading.stack_size(size)
    assert len(out) == 1 and "recursion" in out[0]


@needs_hook
def test_a_callback_without_room_leaves_the_program_as_it_is() -> None:
    """It has calls to spare; where they do not do, the frame runs, and what was set is set back."""

    def deep(n: int) -> int:
        return 0 if n == 0 else 1 + deep(n - 1)

    def callback(code: Any, *rest: Any) -> None:
        if code is deep.__code__:
            frames.set_callback(None)
            gc.disable()
            deep(900)  # more than the program has left
            frames.set_callback(callback)
            gc.enable()
            asked.append(rest[0]["n"])
            if len(asked) == 20:
                frames.set_callback(None)
                gc.disable()
                deep(10**5)

    asked: list[int] = []
    limit = sys.getrecursionlimit()
    try:
        sys.setrecursionlimit(500)
        assert frames.run_with(callback, deep, (300,)) == 300
    finally:
        sys.setrecursionlimit(limit)
    assert asked == list(range(300, -1, -1)) and gc.isenabled()


def test_threads_have_their_own_callback() -> None:
    def f(x: Any) -> str:
        return "as it is"

    def g(x: Any) -> str:
        return "other"

    target, swap = frames.prepare(f), Swap()
    frames.add(f.__code__, swap, None, g.__code__, None)
    out: dict[str, set[str]] = {}
    start = threading.Barrier(2)

    def work(name: str, callback: Any) -> None:
        start.wait()
        frames.set_callback(callback)
        out[name] = {target(1) for _ in range(3000)}

    threads = [
        threading.Thread(target=work, args=("on", swap)),  # ends without taking it back
        threading.Thread(target=work, args=("off", None)),
    ]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    frames.forget(f.__code__)
    assert out == {"on": {"other"}, "off": {"as it is"}}
    if HOOKED:
        assert _native.frame_stats()["threads"] == 0


def test_tracing_sees_what_runs(how: str) -> None:
    def f(x: Any) -> Any:
        return x

    def replaced(x: Any) -> Any:
        y = x
        return y

    seen: list[tuple[str, str, int]] = []

    def trace(frame: Any, event: str, arg: Any) -> Any:
        seen.append((event, frame.f_code.co_name, frame.f_lineno))
        return trace

    swap = Swap((f, replaced))
    target = frames.prepare(f)

    def run() -> Any:
        sys.settrace(trace)
        try:
            return target(1)
        finally:
            sys.settrace(None)

    before = sys.gettrace()
    try:
        assert frames.run_with(swap, run) == 1
    finally:
        sys.settrace(before)
    line = replaced.__code__.co_firstlineno
    assert [e for e in seen if e[1] == "replaced"] == [
        ("call", "replaced", line), ("line", "replaced", line + 1),
        ("line", "replaced", line + 2), ("return", "replaced", line + 2),
    ]  # fmt: skip


class Counted:
    alive = 0

    def __init__(self) -> None:
        Counted.alive += 1

    def __del__(self) -> None:
        Counted.alive -= 1


def test_nothing_leaks(how: str) -> None:
    def f(o: Any, *rest: Any, **more: Any) -> Any:
        return o

    def g(o: Any, *rest: Any, **more: Any) -> Any:
        both = [o, o]
        return (lambda: both)()[0]

    def fails(o: Any, *rest: Any, **more: Any) -> Any:
        raise KeyError(o)

    target = frames.prepare(f)
    for other in (g, fails, None):
        swap = Swap()
        if other is not None:
            frames.add(f.__code__, swap, None, other.__code__, Counted())

        def many(n: int) -> None:
            for _ in range(n):
                with contextlib.suppress(KeyError):
                    target(Counted(), Counted(), k=Counted())

        def counts() -> list[int]:
            return [sys.getrefcount(c) for c in (f.__code__, g.__code__, fails.__code__)]

        frames.run_with(swap, many, (50,))
        swap.asked.clear()
        before = counts()
        frames.run_with(swap, many, (500,))
        swap.asked.clear()
        gc.collect()
        after = counts()
        assert all(abs(a - b) <= 2 for a, b in zip(after, before, strict=True)), (before, after)
        frames.forget(f.__code__)
    gc.collect()
    assert Counted.alive == 0


def test_versions_die_with_their_code() -> None:
    scope: dict[str, Any] = {}
    exec("def f(x): return x", scope)
    f = scope.pop("f")
    info = Counted()
    swap = Swap()
    frames.add(f.__code__, swap, None, (lambda x: 2).__code__, info)
    frames.skip(f.__code__, object())
    assert frames.run_with(swap, frames.prepare(f), (1,)) == 2
    gone = weakref.ref(f.__code__)
    del f, info, scope
    gc.collect()
    assert gone() is None
    if HOOKED:
        assert Counted.alive == 0


def test_versions_may_be_forgotten_while_one_is_checked() -> None:
    def f(x: Any) -> Any:
        return "as it is"

    swap = Swap()

    def forgets(v: Any) -> bool:
        frames.forget(f.__code__)
        gc.collect()
        return v["x"] == 1

    target = frames.prepare(f)
    for x, want in ((1, "new"), (2, "as it is")):
        for _ in range(3):
            frames.add(f.__code__, swap, Holds(forgets), (lambda x: "new").__code__, Counted())
        assert frames.run_with(swap, target, (x,)) == want
        frames.forget(f.__code__)


def test_a_code_that_rests_is_not_asked_about() -> None:
    """For so many calls, or for ever; its versions are tried first."""

    def f(a: Any) -> Any:
        return a

    def g(a: Any) -> Any:
        return -a

    def calls(*args: Any) -> list[Any]:
        return [frames.run_with(swap, target, (a,)) for a in args]

    swap, target = Swap(), frames.prepare(f)
    frames.add(f.__code__, swap, Holds(lambda v: v["a"] == 7), g.__code__, None)
    frames.rest(f.__code__, swap, 3)
    assert calls(1, 7, 2, 7, 3) == [1, -7, 2, -7, 3] and not swap.asked
    assert calls(4, 7, 5) == [4, -7, 5] and [v["a"] for _, v in swap.asked] == [4, 5]
    frames.rest(f.__code__, swap, -1)
    assert calls(*range(20)) == [-7 if n == 7 else n for n in range(20)]
    assert len(swap.asked) == 2
    other = Swap()
    frames.run_with(other, target, (1,))
    assert len(other.asked) == 1  # the rest of one key is not another's
    frames.forget(f.__code__)
    assert calls(7) == [7] and len(swap.asked) == 3


@needs_hook
def test_what_a_code_at_rest_calls_has_only_its_versions() -> None:
    def inner(a: Any) -> Any:
        return [a]

    def known(a: Any) -> Any:
        return a

    def instead(a: Any) -> Any:
        return -a

    def outer(a: Any) -> Any:
        return inner(a), known(a), frames.run_with(swap, inner, (a,)), inner(a)

    def fails(a: Any) -> Any:
        return inner(a) and 1 / 0

    def names() -> list[str]:
        found = [name for name, _ in swap.asked if name != "run_with"]
        swap.asked.clear()
        return found

    swap = Swap()
    frames.add(known.__code__, swap, None, instead.__code__, None)
    assert frames.run_with(swap, outer, (1,)) == ([1], -1, [1], [1])
    assert names() == ["outer", "inner", "inner", "inner"]
    frames.rest(outer.__code__, swap, -1)
    assert frames.run_with(swap, outer, (1,)) == ([1], -1, [1], [1])
    assert names() == ["inner"]  # where the program asks for it again
    frames.rest(fails.__code__, swap, -1)
    for _ in range(2):
        with contextlib.suppress(ZeroDivisionError):
            frames.run_with(swap, lambda: fails(1))
        frames.run_with(swap, lambda: (contextlib.suppress(ValueError), inner(2)))
    assert names().count("inner") == 2 and frames.get_callback() is None

    class Rests(Swap):  # the call that is asked about is the first of those
        def __call__(self, code: Any, *rest: Any) -> Any:
            if code is outer.__code__:
                frames.rest(code, self, -1)
            return super().__call__(code, *rest)

    swap = Rests()
    frames.run_with(swap, outer, (1,))
    assert names() == ["outer", "inner"]


@needs_hook
def test_the_hook_reaches_functions_called_from_c() -> None:
    def f(x: Any) -> Any:
        return x

    def g(x: Any) -> Any:
        return -x

    swap = Swap((f, g))
    assert frames.run_with(swap, lambda: sorted([1, 3, 2], key=f)) == [3, 2, 1]
    assert frames.run_with(swap, lambda: list(map(f, [1, 2]))) == [-1, -2]


@needs_hook
def test_the_hook_is_out_when_no_thread_needs_it() -> None:
    assert _native.frame_stats()["threads"] == 0
    swap = Swap()
    before = frames.set_callback(swap)
    assert before is None and _native.frame_stats()["threads"] == 1
    assert frames.set_callback(None) is swap
    assert _native.frame_stats()["threads"] == 0
    asked = len(swap.asked)
    (lambda: 1)()
    assert len(swap.asked) == asked


def test_the_stand_in_does_the_same() -> None:
    """The wrapper, whatever this Python has: the same versions and the same answers."""
    front = frames.Wrapper()

    def f(a: Any, *rest: Any, k: Any = 1, **more: Any) -> Any:
        return "as it is"

    def g(a: Any, *rest: Any, k: Any = 1, **more: Any) -> Any:
        return a, rest, k, more

    target = front.prepare(f)
    swap = Swap((f, g))
    assert target(1) == "as it is"
    assert front.set_callback(swap) is None and front.get_callback() is swap
    assert target(1, 2, k=3, z=4) == (1, (2,), 3, {"z": 4})
    assert swap.asked[-1] == ("f", {"a": 1, "rest": (2,), "k": 3, "more": {"z": 4}})
    with pytest.raises(TypeError, match="missing 1 required positional argument"):
        target()
    front.add(
        f.__code__, swap, Holds(lambda v: v["k"] == 5), (lambda a, *r, k=1, **m: 5).__code__, 0
    )
    assert target(1, k=5) == 5 and target(1) == (1, (), 1, {})
    front.skip(f.__code__, swap)
    assert front.skipped(f.__code__, swap) and target(1) == "as it is"
    front.forget(f.__code__)
    assert target(1) == (1, (), 1, {}) and front.entries(f.__code__) == []
    with pytest.raises(ValueError, match="same arguments"):
        front.add(f.__code__, swap, None, (lambda: 1).__code__, None)
    assert front.set_callback(None) is swap
    assert front.prepare(len) is len
