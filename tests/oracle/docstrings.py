"""The examples in PyTorch's docstrings, run on both: ``python -m tests.oracle.docstrings``.

Every name of PyTorch's public modules whose docstring has examples (``>>>``) is one program: its
examples run one after another, seeded, in a namespace of its own; what each prints, or shows at a
prompt, or raises, is noted. flambeau runs the same programs, read from the installed wheel (nothing
of them is kept in the repository), and must show the same text. Numbers may differ by what a
printed digit is worth; addresses are left out.

    python -m tests.oracle.docstrings --torch-python PATH [--name torch.linalg.] [--show]
                                      [--captured eager]

With ``--captured`` every function that the programs call, flambeau's own Python included, is
captured and compiled with the back end of that name.

The report is ``build/docstrings.json``. ``known_docstrings.txt`` lists the programs that differ,
each with its reason; the run fails for one that differs and is not listed, and for a listed one
that does not. Listed ones count as failures in the printed figure.
"""

from __future__ import annotations

import argparse
import ast
import collections
import contextlib
import doctest
import importlib
import inspect
import io
import json
import logging
import os
import re
import signal
import subprocess
import sys
import tempfile
import types
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parents[1]
BUILD = REPOSITORY / "build" / "docstrings"
REPORT = REPOSITORY / "build" / "docstrings.json"
KNOWN = HERE / "known_docstrings.txt"
SECONDS = 120  # for one example
MODULES = """
    torch.Tensor torch torch.nn torch.nn.functional torch.linalg torch.fft torch.special torch.func
    torch.autograd torch.autograd.functional torch.autograd.forward_ad torch.autograd.graph
    torch.optim torch.optim.lr_scheduler torch.optim.swa_utils torch.utils.data torch.nn.init
    torch.nn.utils torch.nn.utils.rnn torch.nn.utils.parametrize torch.nn.utils.parametrizations
    torch.nn.utils.prune torch.nn.attention torch.nn.parallel torch.utils.checkpoint
    torch.utils.dlpack torch.random torch.testing torch.library torch.compiler torch._dynamo
    torch.export torch.fx torch.distributions torch.masked torch.nested torch.sparse
    torch.signal.windows torch.storage torch.serialization torch.overrides torch.amp torch.futures
    torch.jit torch.cpu torch.backends
""".split()
#: Programs with these words need a device, several processes, or the network.
ELSEWHERE = ("cuda", "distributed", "spawn", "launch", "hub", "multiprocessing", "download")

Steps = list[list[str]]  # [status, text] an example


# ---- programs (in PyTorch's process) ----


def programs() -> Iterator[tuple[str, list[str]]]:
    """(name, sources) of every docstring with examples; one that several names share once."""
    seen: set[str] = set()
    for home in MODULES:
        owner = importlib.import_module("torch").Tensor if home == "torch.Tensor" else None
        with contextlib.suppress(ImportError):
            owner = owner or importlib.import_module(home)
        for name, value in sorted(_members(owner)):
            for path, doc in _docs(f"{home}.{name}", value):
                if ">>>" in doc and doc not in seen:
                    seen.add(doc)
                    sources = _sources(doc)
                    if sources and not any(word in "".join(sources) for word in ELSEWHERE):
                        yield path, sources


def _members(owner: Any) -> Iterator[tuple[str, Any]]:
    for name in dir(owner):
        if not name.startswith("_"):
            with contextlib.suppress(Exception):
                value = getattr(owner, name)
                if not isinstance(value, types.ModuleType):
                    yield name, value


def _docs(path: str, value: Any) -> Iterator[tuple[str, str]]:
    parts = [(path, value)]
    if inspect.isclass(value):
        parts += [(f"{path}.{k}", v) for k, v in vars(value).items() if not k.startswith("__")]
    for name, part in parts:
        doc = getattr(part, "__doc__", None)
        if isinstance(doc, str):
            yield name, doc


def _sources(doc: str) -> list[str]:
    spaced = re.sub(r"(?m)^(\s*)(>>>|\.\.\.)(\S)", r"\1\2 \3", doc)
    try:
        return [example.source for example in doctest.DocTestParser().get_examples(spaced)]
    except ValueError:  # prompts that are not aligned
        return []


# ---- running them ----


class _TooLong(BaseException):
    pass


def _stop(*_: Any) -> None:
    raise _TooLong


def _shown(source: str, names: dict[str, Any]) -> str:
    """What a prompt would show."""
    tree = ast.parse(source)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(tree, "<example>", "exec"), names)
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), "<example>", "eval"), names)
            if value is not None:
                print(repr(value))
    return printed.getvalue()


def run(program: list[str], torch: Any) -> Steps:
    """Status and text of each example of a program."""
    names = {name: importlib.import_module(module) for name, module in (
        ("np", "numpy"), ("math", "math"), ("torch", "torch"), ("nn", "torch.nn"),
        ("F", "torch.nn.functional"),
    )} | {"__name__": "example"}  # fmt: skip
    torch.manual_seed(0)
    steps: Steps = []
    for source in program:
        signal.alarm(SECONDS)
        try:
            steps.append(["ok", _shown(source, names)])
        except _TooLong:
            steps.append(["too long", ""])
            break
        except BaseException as error:
            steps.append(["error", f"{type(error).__name__}: {error}"])
        finally:
            signal.alarm(0)
    torch.set_default_dtype(torch.float32)
    torch.set_grad_enabled(True)
    torch.set_printoptions(profile="default")
    return steps


def captured(back_end: str) -> Callable[[list[str], Any], Steps]:
    """`run` with every function offered to the compiler; each program begins anew."""
    importlib.import_module("flambeau._dynamo")  # announces the back ends
    frames = importlib.import_module("flambeau._src.capture.frames")
    driver = importlib.import_module("flambeau._src.compiler.driver")
    lookup = importlib.import_module("flambeau._src.compiler.backends").lookup
    logging.disable(logging.CRITICAL)

    def compiled(program: list[str], torch: Any) -> Steps:
        torch._dynamo.reset()
        compiler = driver.Compiler(driver.Options(lookup(back_end)))
        steps: Steps = frames.run_with(compiler, run, (program, torch))
        return steps

    return compiled


def run_all(out: Path, given: Path | None, only: str, back_end: str) -> None:
    """All programs, PyTorch's own or those of the file `given`; the file `out` gets
    ``{name: [sources, steps]}``."""
    torch = importlib.import_module("torch")
    way = captured(back_end) if back_end else run
    warnings.simplefilter("ignore")
    signal.signal(signal.SIGALRM, _stop)
    known = dict(programs()) if given is None else {
        name: sources for name, (sources, _) in json.loads(given.read_text()).items()
    }  # fmt: skip
    done: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        for number, (name, sources) in enumerate(known.items()):
            if name.startswith(only):
                done[name] = [sources, way(sources, torch)]
            if sys.stderr.isatty():
                sys.stderr.write(f"\r{number + 1}/{len(known)} {name:60.60}")
        os.chdir(REPOSITORY)
    out.write_text(json.dumps(done))


# ---- judging ----

_NUMBER = re.compile(r"-?\d+\.?\d*(?:e[+-]?\d+)?")


def plain(text: str) -> str:
    """Text without what differs between two runs of one library."""
    text = re.sub(r"0x[0-9a-f]+", "0x", text).replace("flambeau", "torch")
    return re.sub(r"torch\._C\.(Generator)", r"torch.\1", text).strip()


def alike(a: str, b: str) -> bool:
    """Whether two texts are the same but for the last digits of their numbers."""
    a, b = plain(a), plain(b)
    if a == b:
        return True
    if _NUMBER.sub("#", a).split() != _NUMBER.sub("#", b).split():
        return False
    pairs = zip(_NUMBER.findall(a), _NUMBER.findall(b), strict=True)
    return all(abs(float(x) - float(y)) <= 2e-3 * max(abs(float(x)), 0.1) for x, y in pairs)


def difference(theirs: Steps, ours: Steps) -> int | None:
    """The first example that shows something else; an error's text may differ, not its type."""
    for i, ((status, text), (own, shown)) in enumerate(zip(theirs, ours, strict=False)):
        if status == "too long":
            return None
        if status != own:
            return i
        if status == "error":
            text, shown = text.partition(":")[0], shown.partition(":")[0]
        if not alike(text, shown):
            return i
    return None if len(theirs) == len(ours) else min(len(theirs), len(ours))


def known() -> dict[str, str]:
    """name → reason."""
    lines = KNOWN.read_text().splitlines()
    pairs = (line.partition("  ") for line in lines if line and not line.startswith("#"))
    return {name: reason.strip() for name, _, reason in pairs}


def judge(theirs: dict[str, Any], ours: dict[str, Any], show: bool, only: str) -> int:
    """Print the figures; the exit status."""
    listed = {name: why for name, why in known().items() if name.startswith(only)}
    counts: collections.Counter[str] = collections.Counter()
    report: dict[str, Any] = {}
    for name, (sources, steps) in theirs.items():
        own = ours[name][1]
        at = difference(steps, own)
        counts["examples"] += len(steps)
        counts["same examples"] += len(steps) if at is None else at
        counts["same"] += at is None
        if at is None:
            continue
        shown = own[at] if at < len(own) else ["missing", ""]
        report[name] = {"example": sources[at], "torch": steps[at], "flambeau": shown}
        if show and name not in listed:
            print(
                f"{name}: {sources[at].strip()[:200]}\n  torch    {steps[at]}\n  flambeau {shown}"
            )
    REPORT.write_text(json.dumps(report, indent=1))
    fresh, gone = sorted(set(report) - set(listed)), sorted(set(listed) - set(report))
    for name in fresh:
        print(f"differs: {name} (--show says how)")
    for name in gone:
        print(f"listed, but the same: {name}")
    print(
        f"{counts['same']} of {len(theirs)} docstrings show the same, and "
        f"{counts['same examples']} of {counts['examples']} examples up to the first difference of "
        f"their docstring; {len(listed)} are listed"
    )
    return int(bool(fresh or gone))


def main() -> int:
    """Run on both and compare."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--torch-python", help="interpreter that has torch 2.13")
    parser.add_argument("--name", default="", help="only names that begin so")
    parser.add_argument("--show", action="store_true", help="print each difference")
    parser.add_argument("--captured", default="", help="a back end: everything is compiled")
    parser.add_argument("--run", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--given", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.run:
        run_all(options.run, options.given, options.name, options.captured)
        return 0
    if not options.torch_python:
        parser.error("--torch-python is needed")
    BUILD.mkdir(parents=True, exist_ok=True)
    part = "part-" if options.name else ""
    theirs, ours = BUILD / f"{part}torch.json", BUILD / f"{part}flambeau.json"
    name = ["--name", options.name]
    here = ["-m", "tests.oracle.docstrings", *name, "--run"]
    if options.name or not theirs.exists():
        subprocess.run([options.torch_python, *here, str(theirs)], cwd=REPOSITORY, check=True)
    command = [sys.executable, "-m", "flambeau", *here, str(ours), "--given", str(theirs)]
    command += ["--captured", options.captured]
    subprocess.run(command, cwd=REPOSITORY, check=True)
    found = [json.loads(path.read_text()) for path in (theirs, ours)]
    return judge(found[0], found[1], options.show, options.name)


if __name__ == "__main__":
    sys.exit(main())
