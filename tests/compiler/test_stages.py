"""Every stage of every pipeline: what it learns of a size becomes a guard, and an error in it is
contained. The lists come from `PIPELINES`: a stage that is added is tested."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import flambeau as torch
from flambeau._functorch.aot_autograd import make_boxed_func
from flambeau._src.compiler import driver, stages

exc = torch._dynamo.exc
counters = torch._dynamo.utils.counters

ALL = [(name, s.name) for name, own in stages.PIPELINES.items() for s in (*own.trace, *own.lower)]
LOWER = [(name, s.name) for name, own in stages.PIPELINES.items() if own.trace for s in own.lower]
ON_EVERY_WAY = [*ALL, ("eager", "capture"), ("eager", "guards")]
WHERE = 'test_stages.py", line '


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    torch._dynamo.reset()
    logging.getLogger("flambeau").propagate = True
    yield
    torch._dynamo.reset()


def plain(x: Any, n: int = 2) -> Any:
    return (x.sin() + n) * torch.exp(x)


def back_end(pipeline: str) -> Any:
    """Something that `compile` takes and that runs the pipeline."""
    if pipeline == "users":
        return lambda gm, inputs: gm.forward
    if pipeline == "aot_users":
        return torch._dynamo.backends.common.aot_autograd(
            fw_compiler=lambda gm, inputs: make_boxed_func(gm.forward)
        )
    return pipeline


def before_stage(
    monkeypatch: pytest.MonkeyPatch, pipeline: str, name: str, act: Callable[[Any], None]
) -> None:
    """`act(work)` before a stage runs. Capture and guards, which every pipeline has around it, have
    no work: None is given."""
    if name in ("capture", "guards"):
        owner, attribute = (driver, "capture") if name == "capture" else (driver.checker, "build")
        real = getattr(owner, attribute)

        def run(*args: Any) -> Any:
            act(None)
            return real(*args)

        monkeypatch.setattr(owner, attribute, run)
        return

    def changed(stage: Any) -> Any:
        def run(work: Any) -> Any:
            act(work)
            return stage.run(work)

        return stage._replace(run=run) if stage.name == name else stage

    own = stages.PIPELINES[pipeline]
    made = stages.Pipeline(tuple(map(changed, own.trace)), tuple(map(changed, own.lower)))
    monkeypatch.setitem(stages.PIPELINES, pipeline, made)


# ---- what a stage learns late --------------------------------------------------------------------


def sizes(work: Any) -> list[Any]:
    """The symbols among the sizes of a graph's inputs."""
    found = [n for v in work.inputs if isinstance(v, torch.Tensor) for n in v.shape]
    return [n for n in found if isinstance(n, torch.SymInt)]


def versions(compiled: Any, calls: list[int]) -> list[int]:
    """How many versions there are after a call with each size; all results are checked."""
    counts = []
    for n in calls:
        x, y = (torch.arange(float(n)).requires_grad_() for _ in range(2))
        out, expected = compiled(x), plain(y)
        out.sum().backward(), expected.sum().backward()
        assert torch.allclose(out, expected) and torch.allclose(x.grad, y.grad)
        counts.append(len(compiled.compiler().entries))
    return counts


@pytest.mark.parametrize("pipeline", stages.PIPELINES)
def test_no_stage_specialises_by_itself(pipeline: str) -> None:
    compiled = torch.compile(plain, backend=back_end(pipeline), dynamic=True)
    assert versions(compiled, [4, 5, 9]) == [1, 1, 1]


#: What a stage asks of a size, the sizes of the calls, how many versions there are after each, and
#: the answers that were given.
ASKED: dict[str, tuple[Any, list[int], list[int], set[Any]]] = {
    "size": (int, [4, 5, 4, 6], [1, 2, 2, 3], {4, 5, 6}),
    "comparison": (lambda n: bool(n > 5), [7, 8, 3, 4, 9], [1, 1, 2, 2, 2], {True, False}),
}


@pytest.mark.parametrize(("ask", "calls", "expected", "answers"), ASKED.values(), ids=list(ASKED))
@pytest.mark.parametrize(("pipeline", "name"), ALL)
def test_what_a_stage_asks_of_a_size_is_guarded(
    pipeline: str, name: str, ask: Any, calls: list[int], expected: list[int], answers: set[Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    given: list[Any] = []

    def asking(work: Any) -> None:
        if not work.backward:
            given.extend(ask(n) for n in sizes(work))

    before_stage(monkeypatch, pipeline, name, asking)
    compiled = torch.compile(plain, backend=back_end(pipeline), dynamic=True)
    assert versions(compiled, calls) == expected
    assert set(given) == answers and not counters["contained"]


@pytest.mark.parametrize(("pipeline", "name"), LOWER)
def test_what_the_backward_asks_after_the_guards_is_refused(
    pipeline: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A backward half is lowered when it is first needed: its guards are fixed by then."""
    first = iter([True])

    def specialise(work: Any) -> None:
        if work.backward and next(first, False):
            assert [int(n) for n in sizes(work)]

    before_stage(monkeypatch, pipeline, name, specialise)
    compiled = torch.compile(plain, backend=back_end(pipeline), dynamic=True)
    assert versions(compiled, [4, 5, 4]) == [1, 1, 1]
    assert counters["contained"] == {name: 1}
    (note,) = torch._dynamo.explain(compiled)(torch.ones(3)).contained
    assert type(note.error).__name__ == "FrozenShapes" and "fixed the guards" in str(note)


# ---- errors --------------------------------------------------------------------------------------


class Injected(Exception):
    """What the tests put into a stage."""


@pytest.mark.parametrize(("pipeline", "name"), ON_EVERY_WAY)
def test_an_error_in_a_stage_is_contained(
    pipeline: str, name: str, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    """Logged once with stage, user's line and remedy; counted in `explain`; what it gives is
    eager's."""
    calls = iter([True] + [False] * 99)  # the eager pipeline is also the way out

    def fail(work: Any) -> None:
        if next(calls):
            raise Injected("put here")

    before_stage(monkeypatch, pipeline, name, fail)
    compiled = torch.compile(plain, backend=back_end(pipeline))
    with caplog.at_level(logging.WARNING):
        versions(compiled, [4, 4])
    (said,) = [m for m in caplog.messages if "Injected: put here" in m]
    assert f"stage {name!r} failed at" in said and WHERE in said and "in plain" in said
    assert "suppress_errors" in said
    assert counters["contained"] == {name: 1}
    report = torch._dynamo.explain(compiled)(torch.ones(4))
    (note,) = report.contained
    assert note.stage == name and type(note.error) is Injected and note.remedy
    assert note.remedy in said and "Contained Errors:" in str(report) and str(note) in str(report)


@pytest.mark.parametrize(("pipeline", "name"), LOWER)
def test_an_error_in_the_backward_is_contained(
    pipeline: str, name: str, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    once = iter([True])

    def fail(work: Any) -> None:
        if work.backward and next(once, False):
            raise Injected("put here")

    before_stage(monkeypatch, pipeline, name, fail)
    compiled = torch.compile(plain, backend=back_end(pipeline))
    with caplog.at_level(logging.WARNING):
        versions(compiled, [4, 4])
    (said,) = [m for m in caplog.messages if "Injected: put here" in m]
    assert WHERE in said and counters["contained"] == {name: 1}


def raised(pipeline: str, name: str) -> Any:
    """What the user hears: of the back end that the user wrote, that it failed."""
    kind = exc.InternalTorchDynamoError
    if pipeline in ("users", "aot_users") and name not in ("capture", "guards"):
        kind = exc.BackendCompilerFailed
    return pytest.raises(kind, match="Injected: put here")


@pytest.mark.parametrize("how", ["fullgraph", "switch"])
@pytest.mark.parametrize(("pipeline", "name"), ON_EVERY_WAY)
def test_an_error_in_a_stage_is_raised_when_asked(
    pipeline: str, name: str, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(work: Any) -> None:
        raise Injected("put here")

    before_stage(monkeypatch, pipeline, name, fail)
    compiled = torch.compile(plain, backend=back_end(pipeline), fullgraph=how == "fullgraph")
    with torch._dynamo.config.patch(suppress_errors=how != "switch"), raised(pipeline, name):
        compiled(torch.ones(4))


@pytest.mark.parametrize(("pipeline", "name"), LOWER)
def test_an_error_in_the_backward_is_raised_when_asked(
    pipeline: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(work: Any) -> None:
        if work.backward:
            raise Injected("put here")

    before_stage(monkeypatch, pipeline, name, fail)
    compiled = torch.compile(plain, backend=back_end(pipeline), fullgraph=True)
    out = compiled(torch.ones(4, requires_grad=True)).sum()
    kind = exc.BackendCompilerFailed if name == "back end" else exc.InternalTorchDynamoError
    with pytest.raises(kind, match="Injected: put here"):
        out.backward()


@pytest.mark.parametrize("how", ["fullgraph", "switch"])
def test_what_is_said_of_a_back_end_that_fails(how: str) -> None:
    def bad(gm: Any, example_inputs: Any) -> Any:
        raise ValueError("oops")

    def no_callable(gm: Any, example_inputs: Any) -> Any:
        return 3

    x, strict = torch.arange(4.0), {"fullgraph": how == "fullgraph"}
    with torch._dynamo.config.patch(suppress_errors=how != "switch"):
        with pytest.raises(exc.BackendCompilerFailed, match="backend='bad' raised:\nValueError: o"):
            torch.compile(plain, backend=bad, **strict)(x)
        with pytest.raises(exc.BackendCompilerFailed, match="compiler_fn did not return callable"):
            torch.compile(plain, backend=no_callable, **strict)(x)
    assert torch.allclose(torch.compile(plain, backend=bad)(x), plain(x))


def test_a_function_whose_capture_failed_is_compiled_after_a_reset(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(work: Any) -> None:
        raise Injected("put here")

    before_stage(monkeypatch, "eager", "capture", fail)
    compiled = torch.compile(plain, backend="eager")
    assert versions(compiled, [4, 4]) == [0, 0]
    monkeypatch.undo()
    torch._dynamo.reset()
    assert versions(compiled, [4]) == [1]
