"""The driver: from a function that is about to run to compiled code. It alone knows the order.

    capture → (joint → passes → partition) → fuse → toolchain → assemble → guards → install

A `Compiler` is what one set of options of `compile` stands for, and the callback that the frame
hook calls when no compiled version fits. An error in a stage is contained: it is logged once with
the user's line and a remedy and counted, and what cannot be compiled runs eager; with
``fullgraph=True`` or ``torch._dynamo.config.suppress_errors = False`` it is raised.
"""

from __future__ import annotations

import functools
import gc
import logging
import sys
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import CodeType
from typing import Any, TypeVar

from flambeau._src.capture import checker, frames, going_on, modes
from flambeau._src.capture.frame import capture
from flambeau._src.capture.library import is_library_file, kind_of_code
from flambeau._src.capture.outcome import Captured, CaptureOptions, Forbidden, Skip
from flambeau._src.capture.overriding import has_say
from flambeau._src.capture.source import APPLIED
from flambeau._src.compiler import (
    aot,
    containment,
    errors,
    logs,
    marks,
    numbers,
    recompiling,
    told,
)
from flambeau._src.compiler.backends import BackEnd
from flambeau._src.compiler.containment import StageFailed
from flambeau._src.compiler.extents import is_number
from flambeau._src.compiler.history import COUNTERS, Entry, History, next_frame
from flambeau._src.compiler.settings import DYNAMO, FUNCTORCH, INDUCTOR
from flambeau._src.compiler.stages import PIPELINES, Pipeline, Stage, Work
from flambeau._src.compiler.stance import STANCE
from flambeau._src.core import state
from flambeau._src.core.slots import slot
from flambeau._src.core.tensor import Tensor
from flambeau._src.ir.graph import Graph
from flambeau._src.ir.shape_env import ConstraintViolationError

__all__ = ["Compiler", "Options", "compile_graph", "reset"]

F = TypeVar("F", bound=Callable[..., Any])
_LOCK = threading.RLock()
_LONGEST = 5_000  # jumps, calls and objects of a capture that need not meet a tensor
_CAPTURE = Stage(
    "capture", lambda work: None, "torch.compiler.disable keeps a function out of it.", "capture"
)
_GUARDS = Stage("guards", lambda work: None, "This is a fault of flambeau.", "capture")


@dataclass(frozen=True)
class Options:
    """What one call of `compile` asked for."""

    back_end: BackEnd
    fullgraph: bool = False
    dynamic: bool | None = None
    keywords: tuple[tuple[str, Any], ...] = ()  # for the back end: mode, options
    switches: tuple[tuple[str, Any], ...] = ()  # of the generated code
    recompile_limit: int | None = None
    guard_filter: Any = None
    everything: bool = False  # capture what meets no tensor too, Python's own library as well


@dataclass
class _Known:
    """What a compiler knows of a code object."""

    frame: int
    entries: list[Entry] = field(default_factory=list)
    failed: list[Entry] = field(default_factory=list)  # it runs as it is: a stage raised
    plain: list[Entry] = field(default_factory=list)  # guards of calls that met no operator
    missed: int = 0  # such calls that fit none of them
    sizes: dict[str, list[int | None]] = field(default_factory=dict)  # of tensors, by source
    capped: bool = False  # that has been said
    unready: int = 0  # calls that ran as they are because they met what was not ready
    modules: dict[Any, Any] = field(default_factory=dict)  # that were met, by source and class
    calls: int = 0


# ---- graphs --------------------------------------------------------------------------------------


def _run(stages: Sequence[Stage], work: Work) -> None:
    for stage in stages:
        try:
            with work.entry.history.timed(stage.name, stage.part, work.backward) as step:
                step.artefact = stage.run(work)
        except Exception as error:
            raise StageFailed(stage, error) from error


def _unseen(fn: F) -> F:
    """`fn` with nothing of what it runs offered: stages may have to run while compiled code does
    (for a backward, or another sharing of bytes)."""

    @functools.wraps(fn)
    def run(*args: Any) -> Any:
        before = frames.set_callback(None)
        try:
            return fn(*args)
        finally:
            frames.set_callback(before)

    return run  # type: ignore[return-value]


def compile_graph(pipeline: Pipeline, work: Work) -> Callable[..., Any]:
    """The graph of `work` through a pipeline: a callable of its inputs.

    Raises StageFailed. The backward half is lowered when it is first needed; an error there is
    contained (raised if `work.strict`).
    """
    if not pipeline.trace:
        _run(pipeline.lower, work)
        assert work.lowered is not None
        return work.lowered

    @_unseen
    def lower(graph: Graph, attributes: dict[str, Any], fakes: list[Any], backward: bool) -> Any:
        half = Work(
            graph, attributes, fakes, work.entry, work.switches, work.back_end, backward=backward,
            joint=None if backward else work.joint,
        )  # fmt: skip
        try:
            _run(pipeline.lower, half)
        except StageFailed as failed:
            if not backward:
                raise
            containment.contain(failed, work.entry, work.back_end, work.strict)
            _run(PIPELINES["aot_eager"].lower, half)
        program = getattr(half.lowered, "program", None)
        if program is not None and logs.shows("output_code"):
            logs.show("output_code", str(program), work.entry)
        return half.lowered

    @_unseen
    def make(inputs: Sequence[Any]) -> aot.Entry:
        work.inputs = list(inputs)
        before = modes.settings()
        try:
            _run(pipeline.trace, work)
        finally:
            before.put()
        _show_halves(work)
        return aot.entry_for(work.joint, work.cut, lower)

    return aot.Region(make, work.inputs)


def _show_halves(work: Work) -> None:
    if logs.shows("aot_joint_graph"):
        logs.show("aot_joint_graph", f"joint graph\n{work.joint}", work.entry)
    if logs.shows("aot_graphs"):
        logs.show("aot_graphs", f"forward graph\n{work.cut.forward}", work.entry)
        if work.joint.carrying:
            logs.show("aot_graphs", f"backward graph\n{work.cut.backward}", work.entry)


# ---- functions -----------------------------------------------------------------------------------


class Compiler:
    """The callback of the frame hook for one set of options. It is the key of what it compiled."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.key = self
        self.known: dict[int, tuple[weakref.ref[CodeType], _Known]] = {}
        self.resumes: dict[Any, Any] = {}
        self.skipped: list[Entry] = []  # functions that run as they are, with a reason
        self.retired = False  # after a reset: callers ask for a new one

    # ---- what the hook calls ----

    def __call__(
        self, code: CodeType, arguments: Mapping[str, Any], globals_: dict[str, Any],
        builtins: Mapping[str, Any], function: Any,
    ) -> CodeType | bool | None:  # fmt: skip
        """Replacement code for a frame that is about to run; None: it runs as it is; False: so
        does all that it calls."""
        everything = self.options.everything
        if not told.may_capture(code, everything):
            frames.skip(code, self.key)
            return None
        if not everything and not told.meets_tensors(code, arguments, globals_):
            return None
        known = self._known(code)
        known.calls += 1
        if everything and known.calls > recompiling.MISSES:
            frames.skip(code, self.key)  # its versions too: each call would be held against them
            return None
        if code.co_name == "__torch_dispatch__":  # it runs beneath autograd and the modes
            frames.skip(code, self.key)
            return None
        if DYNAMO.get("disable") or known.calls < DYNAMO.get("minimum_call_count"):
            return None
        if not told.builtins_are_own() or self._is_watched(code):
            return None
        frame = _Frame(self, code, arguments, globals_, builtins, function, known)
        if not STANCE.plain and not recompiling.stance_allows(frame):
            return None
        versions, plain = len(known.entries), len(known.plain)
        before = frames.set_callback(None)
        collecting = gc.isenabled()
        gc.disable()  # a capture makes much and leaves little; finalizers find no half of it
        try:
            with _LOCK:
                for entry in known.entries[versions:] + known.plain[plain:]:  # by another thread
                    if entry.checker.check(dict(arguments), globals_):
                        return entry.code
                return frame.compile()
        finally:
            if collecting:
                gc.enable()
            frames.set_callback(before)

    def _is_watched(self, code: CodeType) -> bool:
        """Whether a mode of the program sees the operators: it wants each of them as it is called.
        What such a mode runs is none of a compiled function's either.

        Raises:
            RuntimeError: with fullgraph, as nothing will be captured.
        """
        if state.get_suspended() & state.RECORD:  # inside of an operator
            return True
        if not state.thread.dispatch_modes or not slot("users_modes")():
            return False
        if self.options.fullgraph:
            where = f"{code.co_name} ({code.co_filename}:{code.co_firstlineno})"
            raise RuntimeError(
                "torch.compile with fullgraph=True found no compiled frames. Skipped frames:\n"
                f"  - {where}: non-infra torch dispatch mode present, this is not supported today "
                "in torch.compile"
            )
        return True

    def _known(self, code: CodeType) -> _Known:
        found = self.known.get(id(code))
        if found is not None:
            return found[1]
        key, table = id(code), self.known
        made = _Known(next_frame())
        table[key] = (weakref.ref(code, lambda _: table.pop(key, None)), made)
        return made

    @property
    def entries(self) -> list[Entry]:
        """All versions, in the order of their functions."""
        return [e for _, known in self.known.values() for e in known.entries]

    def entries_of(self, code: CodeType) -> list[Entry]:
        """The versions of one function, and what became of it where there are none."""
        known = self.known.get(id(code))
        return [] if known is None else [*known[1].entries, *known[1].failed]

    def forget(self) -> None:
        """Compile everything anew when it is next called."""
        for ref, known in list(self.known.values()):
            code = ref()
            if code is not None:
                frames.forget(code)
            for entry in known.entries:
                entry.forget()
        self.known.clear()
        self.resumes.clear()

    @property
    def strict(self) -> bool:
        """Whether errors are raised."""
        return self.options.fullgraph or not DYNAMO.get("suppress_errors")


class _Frame:
    """One function call that wants a compiled version."""

    def __init__(
        self, compiler: Compiler, code: CodeType, arguments: Mapping[str, Any],
        globals_: dict[str, Any], builtins: Mapping[str, Any], function: Any, known: _Known,
    ) -> None:  # fmt: skip
        self.compiler, self.code, self.arguments = compiler, code, arguments
        self.globals, self.builtins, self.function, self.known = globals_, builtins, function, known
        file, line, _ = told.place(code.co_filename, code.co_firstlineno, code.co_name)
        self.entry = Entry(code.co_qualname, file, line, known.frame, len(known.entries), History())

    @property
    def where(self) -> str:
        """The function, for people."""
        return f"{self.entry.filename}:{self.entry.line} in {self.code.co_name}"

    @property
    def _limit(self) -> int:
        return int(self.compiler.options.recompile_limit or DYNAMO.get("recompile_limit"))

    def compile(self) -> CodeType | bool | None:
        """All stages; None when the function is to run as it is, False with all that it calls."""
        known = self.known
        if len(known.plain) >= self._limit:  # the calls of this function have no end of kinds
            frames.rest(self.code, self.compiler.key, known.missed)  # asked ever more seldom
            known.missed = 2 * known.missed + 1
        COUNTERS["frames"]["total"] += 1
        if known.entries and not recompiling.may_recompile(self):
            return None
        strict = self.compiler.strict
        try:
            captured = self._capture()
            if isinstance(captured, Skip):
                self._skipped(captured)
                return False if captured.alone else None
            if captured.code is self.code:
                return self._as_it_is(captured)
            self._report(captured)
            compiled = None if captured.region is None else self._compile(captured)
            return self._install(captured, compiled)
        except StageFailed as failed:
            self.compiler.skipped.append(self.entry)
            self.known.failed.append(self.entry)
            containment.contain(failed, self.entry, self.compiler.options.back_end, strict)
            frames.skip(self.code, self.compiler.key)
            return None

    def _capture(self) -> Captured | Skip:
        compiler = self.compiler
        options = CaptureOptions(
            fullgraph=compiler.options.fullgraph,
            keep_empty=compiler.options.everything,
            own_caches=compiler.options.everything,
            longest=_LONGEST if compiler.options.everything else 0,
            dynamic=compiler.options.dynamic,
            floats=not DYNAMO.get("specialize_float"),
            numpy=DYNAMO.get("trace_numpy"),
            repeats=_repeats(recompiling.chosen(compiler.options.back_end, self.known)),
            scalars=compiler.options.fullgraph or DYNAMO.get("capture_scalar_outputs"),
            shapes=compiler.options.fullgraph or DYNAMO.get("capture_dynamic_output_shape_ops"),
            sizes=self.known.sizes if DYNAMO.get("automatic_dynamic_shapes") else None,
            modules=self.known.modules,
            is_disabled=told.is_disabled,
            leaves=told.LEAVES,
            refused=told.BREAKS,
            substitutes=told.SUBSTITUTES,
            constants=told.CONSTANTS,
            resumes=compiler.resumes,
            counter=told.NAMES,
        )
        try:
            with self.entry.history.timed(_CAPTURE.name, _CAPTURE.part) as step:
                step.artefact = captured = capture(
                    self.code, self.arguments, self.globals, self.builtins, self.function, options
                )
        except Forbidden:
            raise
        except Exception as error:
            raise StageFailed(_CAPTURE, error) from error
        return captured

    def _skipped(self, skip: Skip) -> None:
        COUNTERS["skipped"][skip.reason] += 1
        logs.tell(logging.DEBUG, f"{self.where} runs as it is: {skip.reason}")
        breaks = getattr(skip, "breaks", ())
        if breaks:
            self.compiler.skipped.append(self.entry)
            self._report_breaks(breaks)
        self.known.unready += skip.alone
        if skip.permanent or self.known.unready > recompiling.MISSES:
            frames.skip(self.code, self.compiler.key)

    def _as_it_is(self, captured: Captured) -> CodeType:
        """No operator was met: other calls with these guards run as they are, unseen."""
        reason, known = "No operator on tensors was met.", self.known
        COUNTERS["skipped"][reason] += 1
        logs.tell(logging.DEBUG, f"{self.where} runs as it is: {reason}")
        if len(known.plain) < self._limit:
            self._guard(captured)
            frames.add(self.code, self.compiler.key, self.entry.checker, self.code, self.entry)
            known.plain.append(self.entry)
        return self.code

    def _report(self, captured: Captured) -> None:
        entry = self.entry
        entry.operators, entry.region = list(captured.operators), captured.region
        self._report_breaks(captured.breaks)
        COUNTERS["frames"]["ok"] += 1
        if captured.region is not None:
            COUNTERS["stats"]["unique_graphs"] += 1
            COUNTERS["stats"]["calls_captured"] += len(captured.operators)
            if logs.shows("graph_code"):
                text = captured.region.graph.python_code("self", verbose=True).src
                logs.show("graph_code", f"{captured.region.name}\n{text}", entry)
            if logs.shows("graph"):
                logs.show("graph", str(captured.region.graph), entry)

    def _report_breaks(self, breaks: Sequence[Any]) -> None:
        self.entry.breaks = [found for found in breaks if not self._leads_to(found)]
        for found in self.entry.breaks:
            COUNTERS["graph_break"][found.reason] += 1
            logs.show("graph_breaks", containment.break_text(found), self.entry)
        strict = self.compiler.options.fullgraph
        if breaks and (strict if breaks[0].error is None else breaks[0].error):
            raise errors.Unsupported(
                containment.break_text(breaks[0]), real_stack=containment.frames_of(breaks[0])
            )

    def _leads_to(self, found: Any) -> bool:
        """Whether this frame is the library's, as a module's `__call__`, and only leads to the
        user's frame that breaks, which meets the break itself."""
        return kind_of_code(self.code) is not None and not is_library_file(found.where[0])

    def _compile(self, captured: Captured) -> Callable[..., Any]:
        options, region, entry = self.compiler.options, captured.region, self.entry
        assert region is not None
        numbers.assertions(region.graph)
        back_end = recompiling.chosen(options.back_end, self.known)
        work = Work(
            region.graph, region.attributes, self._inputs(region), entry,
            {**dict(options.switches), "functorch": FUNCTORCH.values},
            back_end.function, dict(options.keywords), strict=self.compiler.strict,
        )  # fmt: skip
        pipeline = PIPELINES[back_end.pipeline or "users"]
        before = modes.settings()  # a graph that is traced may leave others
        state.set_grad(region.records)
        if any(isinstance(v, Tensor) and has_say(type(v)) for v in work.inputs):
            state.set_suspended(state.get_suspended() | state.FUNCTION)  # as it is called
        try:
            return compile_graph(pipeline, work)
        except StageFailed as failed:
            containment.contain(failed, entry, back_end.function, work.strict)
            return going_on.AtOnce(compile_graph(PIPELINES["eager"], work))
        finally:
            before.put()

    def _inputs(self, region: Any) -> list[Any]:
        """The values that the graph is about to be called with; the capture's own where there is
        none yet, and where sizes are symbols: what is traced must hold for all of them."""
        env = region.fake_mode.shape_env
        unknown = any(s.hint is None for s in env.symbols.values())  # there must be symbols again
        if unknown or any(isinstance(v, Tensor) and v._sym is not None for v in region.examples):
            return list(region.examples)  # all of one fake mode: who shares bytes is seen
        values = []
        for source, example in zip(region.inputs, region.examples, strict=True):
            if is_number(example):
                values.append(example)
                continue
            known, value = self._value(source)
            fits = known and isinstance(example, Tensor) <= isinstance(value, Tensor)
            values.append(value if fits else example)
        return values

    def _value(self, source: Any) -> tuple[bool, Any]:
        """Whether a source can be read now, and what it holds."""
        scope = {"L": self.arguments, "G": self.globals, "M": sys.modules, **APPLIED}
        try:
            return True, eval(source.text(), {"__builtins__": self.builtins}, scope)
        except (LookupError, AttributeError, TypeError, NameError):
            return False, None

    def _guard(self, captured: Captured) -> None:
        entry = self.entry
        entry.code = captured.code
        try:
            with entry.history.timed(_GUARDS.name, _GUARDS.part) as step:
                captured.shape_guards("guards")
                entry.guards = captured.guards.seal("guards")
                choose = self.compiler.options.guard_filter
                if choose is not None:
                    entry.guards = marks.filtered(entry.guards, choose, self._value)
                step.artefact = entry.checker = checker.build(entry.guards)
        except ConstraintViolationError:
            raise  # what the program promised of a size does not hold
        except Exception as error:
            raise StageFailed(_GUARDS, error) from error
        if logs.shows("guards"):
            logs.show("guards", str(entry.checker), entry)

    def _install(self, captured: Captured, compiled: Callable[..., Any] | None) -> CodeType:
        entry, key = self.entry, self.compiler.key
        self._guard(captured)
        names = dict(captured.new_globals)
        if captured.region is not None:
            names[captured.region.name] = compiled
        self.globals.update(names)
        entry.installed = self.globals, tuple(names)
        for code in captured.resumes:
            told.offer(code)
            frames.goes_on(code)
        frames.add(self.code, key, entry.checker, captured.code, entry)
        self.known.entries.append(entry)
        return captured.code


def _repeats(back_end: BackEnd) -> str:
    """Of which graphs nothing can be seen when they raise: `CaptureOptions.repeats`."""
    if back_end.pipeline is None:
        return ""
    return "functional" if PIPELINES[back_end.pipeline].trace else "pure"


def inductor_switches(options: Mapping[str, Any]) -> dict[str, Any]:
    """What the generated code is told, from the options of a call and the switches in force."""
    exact = options.get("emulate_precision_casts", INDUCTOR.get("emulate_precision_casts"))
    return {"exact": bool(exact)}


COMPILERS: dict[Any, Compiler] = {}


def reset() -> None:
    """Forget everything that was compiled, and the counts."""
    with _LOCK:
        for compiler in COMPILERS.values():
            compiler.forget()
            compiler.retired = True
        COMPILERS.clear()
        COUNTERS.clear()
        containment.forget()
        told.forget()
