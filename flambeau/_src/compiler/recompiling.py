"""When a function may be compiled once more, and what is said about it."""

from __future__ import annotations

import linecache
import logging
from collections.abc import Iterable, Iterator
from typing import Any

from flambeau._src.capture import frames
from flambeau._src.capture.guards import Kind
from flambeau._src.capture.library import is_module
from flambeau._src.compiler import errors, logs, told
from flambeau._src.compiler.backends import BackEnd, lookup
from flambeau._src.compiler.history import COUNTERS
from flambeau._src.compiler.settings import DYNAMO
from flambeau._src.compiler.stance import STANCE

__all__ = ["MISSES", "chosen", "may_recompile", "reasons", "stance_allows"]

MISSES = 256  # calls that may fit no version, where all that runs is captured


def _failing(frame: Any) -> Iterator[tuple[Any, int, str]]:
    """The versions, newest first, with the number and the text of the guard that failed."""
    for entry in reversed(frame.known.entries):
        failing = entry.checker.explain(frame.arguments, frame.globals)
        if failing is not None:
            yield (entry, *failing)


def _of_others(failing: list[tuple[Any, int, str]]) -> int:
    """How many versions are for another module than the one that is called."""
    guards = [entry.guards[index] for entry, index, _ in failing if 0 <= index < len(entry.guards)]
    return sum(g.kind is Kind.ID and (g.gone or is_module(g.expected)) for g in guards)


def reasons(frame: Any) -> list[str]:
    """For each version, newest first: which guard failed, and the user's line that it is for."""
    return _in_words(_failing(frame))


def _in_words(failing: Iterable[tuple[Any, int, str]]) -> list[str]:
    found = []
    for entry, index, text in failing:
        line = f"{entry.id}: {text}"
        where = entry.guards[index].where if 0 <= index < len(entry.guards) else None
        if where is not None:
            file, number, name = told.place(*where)
            source = linecache.getline(file, number).strip()
            short = "/".join(file.split("/")[-2:])
            line = f"{line:<60}  # {source}  # {short}:{number} in {name}"
        found.append(line)
    return found


def _listed(found: list[str]) -> str:
    return "".join(f"\n    - {line}" for line in found)


def may_recompile(frame: Any) -> bool:
    """Whether a further version of a function may be made; says why it is needed.

    Raises:
        RecompileError: `config.error_on_recompile`.
        FailOnRecompileLimitHit: the limit is hit with fullgraph or the switch of that name.
    """
    code, known, compiler = frame.code, frame.known, frame.compiler
    failing = list(_failing(frame))
    why = _in_words(failing)
    file, line, name = told.place(code.co_filename, code.co_firstlineno, code.co_name)
    text = (
        f"Recompiling function {name} in {file}:{line}\n"
        f"    triggered by the following guard failure(s):{_listed(why)}"
    )
    if DYNAMO.get("error_on_recompile"):
        raise errors.RecompileError(text)
    logs.show("recompiles", text, frame.entry)
    COUNTERS["recompiles"][f"{name} {file}:{line}"] += 1
    switch, limit = "recompile_limit", compiler.options.recompile_limit
    limit = limit or DYNAMO.get(switch)
    if len(known.entries) - _of_others(failing) < limit:
        switch = "accumulated_recompile_limit"
        limit = max(limit, DYNAMO.get(switch))
        if len(known.entries) < limit:
            return True
    fail = [name for name in ("fail_on_recompile_limit_hit",) if DYNAMO.get(name)]
    fail += ["fullgraph=True"] if compiler.options.fullgraph else []
    if not fail and not compiler.options.everything:
        # until a reset, and what it calls too, as in torch; one that fails, fails each time
        frames.rest(code, compiler.key, -1)
    elif not fail and known.capped:
        frames.skip(code, compiler.key)  # its versions too: each call would be held against them
    elif not fail:
        frames.rest(code, compiler.key, MISSES)
    if not known.capped:
        known.capped = True
        _announce(frame, switch, limit, why)
    if fail:
        raise errors.FailOnRecompileLimitHit(f"Hard failure due to {fail[0]}")
    return False


def _announce(frame: Any, switch: str, limit: int, why: list[str]) -> None:
    code = frame.code
    file, line, name = told.place(code.co_filename, code.co_firstlineno, code.co_name)
    logs.tell(
        logging.WARNING,
        f"torch._dynamo hit config.{switch} ({limit})\n"
        f"   function: {name!r} ({file}:{line})\n"
        f"   last reason: {why[0] if why else 'no guard failed'}\n"
        "From here on, calls that fit no compiled version run eager. Make the value in that guard "
        f"constant, pass it as a tensor, or raise torch._dynamo.config.{switch}. "
        'To log all recompilation reasons, use TORCH_LOGS="recompiles".',
    )
    COUNTERS["unimplemented"]["recompile limit"] += 1


def stance_allows(frame: Any) -> bool:
    """Whether the stance in force lets a function be compiled now.

    Raises RuntimeError where the stance forbids to compile again.
    """
    stance, known, code = STANCE.value, frame.known, frame.code
    if stance.skip_guard_eval_unsafe and known.entries:
        raise RuntimeError(
            "Recompilation triggered with skip_guard_eval_unsafe stance. This usually means that "
            "you have not warmed up your model with enough inputs such that you can guarantee no "
            "more recompilations."
        )
    if stance.stance in ("force_eager", "eager_on_recompile"):
        return False
    if stance.stance == "fail_on_recompile":
        raise RuntimeError(
            "Detected recompile when torch.compile stance is 'fail_on_recompile'. filename: "
            f"'{code.co_filename}', function name: '{code.co_name}', line number: "
            f"{code.co_firstlineno}\n    triggered by the following guard failure(s):"
            f"{_listed(reasons(frame))}"
        )
    return stance.stance != "eager_then_compile" or known.calls > 1


def chosen(own: BackEnd, known: Any) -> BackEnd:
    """The back end for a version: the function's own, or what the stance puts in its place."""
    stance = STANCE.value
    if stance.backend is not None:
        return lookup(stance.backend)
    if stance.stance == "aot_eager_then_compile" and known.calls <= 1:
        return lookup("aot_eager")
    return own
