"""Replaying side: runs the recorded calls under a runtime and judges every result.

`python -m tests.oracle.replay [--runtime flambeau] [--jobs 2] [--entry add --dtype float32 -v]`.
Writes build/oracle.json and prints a table. Entries run in worker processes, so that a crash or a
hang costs that entry alone. Exit status: see `baseline.py`.
"""

from __future__ import annotations

import importlib
import json
import keyword
import math
import operator
import os
import re
import sys
import traceback
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from tests.oracle import checks, gauge, programs, wire
from tests.oracle.compare import EXACT, Judge
from tests.oracle.entries import ENTRIES, Entry, dotted, resolve

# Torch's gradient at a NaN depends on the loop that reaches it (README.md, tolerance).
NAN_BY_LOOP = {
    f"nn.functional.{name}"
    for name in ("hardtanh", "relu6", "hardshrink", "softshrink", "elu", "selu", "celu")
}
KEEP = 5  # failures kept a check, unless verbose


@dataclass
class Tally:
    """What one entry under one dtype has passed."""

    counts: dict[str, list[int]] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)
    keep: int = KEEP
    shown: dict[str, int] = field(default_factory=dict)

    def add(self, check: str, reason: str | None, where: str = "") -> None:
        """Count one check of one sample."""
        count = self.counts.setdefault(check, [0, 0])
        count[1] += 1
        if reason is None:
            count[0] += 1
            return
        self.shown[check] = self.shown.get(check, 0) + 1
        if self.shown[check] <= self.keep:
            self.failures.append(f"{check} {where}: {reason}"[:600])


class Replayer:
    """One file under the runtime `rt`."""

    def __init__(self, rt: ModuleType, path: Path, keep: int = KEEP) -> None:
        self.rt = rt
        self.document, self.buffers = wire.read_file(path)
        self.entry: Entry = ENTRIES[self.document["label"]]
        self.tally = Tally(keep=keep)
        self.fns: dict[str, Any] = {}
        if self.document["dtype"] == "float64":
            self._borrow(path.with_name(f"{self.document['label']}.float32.zip"))

    def _borrow(self, path: Path) -> None:
        """References of the float32 file for the calls that are the same there: they name no dtype
        and take no tensor, so that their results are float32 here too."""
        lone = [s for s in self.document["samples"] if not s["call"]["storages"] and not s["refs"]]
        if not lone or not path.exists():
            return
        document, buffers = wire.read_file(path)
        known = {json.dumps(s["call"]): s["refs"].get("forward", {}) for s in document["samples"]}
        for sample in lone:
            found = known.get(json.dumps(sample["call"]), {}).get("out")
            if isinstance(found, dict) and found.get("k") == "out":
                self.buffers.append(buffers[found["b"]])
                sample["refs"] = {"forward": {"out": found | {"b": len(self.buffers) - 1}}}

    def fn(self, check: str) -> Callable[..., Any]:
        """The callable of a check; a name that the runtime lacks fails where it is called."""
        if check not in self.fns:
            try:
                self.fns[check] = self._resolve(check)
            except Exception as error:
                self.fns[check] = _raiser(error)
        return self.fns[check]

    def _resolve(self, check: str) -> Callable[..., Any]:
        if check == "forward":
            return resolve(self.rt, self.entry.call)
        if check.startswith("alias:"):
            return dotted(self.rt, check[6:])
        text = self.document["calls"][check]
        if check == "operator":
            name = f"{text}_" if keyword.iskeyword(text) else text
            return checks.OPERATORS.get(text) or getattr(operator, name)
        return resolve(self.rt, text)

    def run(self, only: int | None = None) -> Tally:
        """All samples and error inputs."""
        for number, sample in enumerate(self.document["samples"]):
            if only is None or only == number:
                self.sample(number, sample)
        for number, case in enumerate(self.document["errors"]):
            if only is None:
                self.error(number, case)
        return self.tally

    # -- one sample -------------------------------------------------------------------------------

    def sample(self, number: int, sample: wire.Node) -> None:
        """Every recorded check of one sample."""
        pack = wire.Pack()
        self.storages = sample["call"]["storages"]
        case = checks.Case(
            self.rt, wire.InputReader(self.rt, sample["call"], self.buffers), pack, number
        )
        where = f"#{number} {describe(sample['call'])}"
        recorded, refs = sample["checks"], sample["refs"]
        ours = self._guard(lambda: checks.forward(case, self.fn("forward")))
        self._forward("forward", ours, recorded["forward"], refs, pack, where)
        self._gradients(case, ours, recorded, refs, pack, where)
        for check in ("method", "operator"):
            if check in recorded:
                outcome = self._guard(lambda c=check: checks.forward(case, self.fn(c)))
                theirs = recorded["forward"] if recorded[check] == "same" else recorded[check]
                self._forward(check, outcome, theirs, refs, pack, where)
        for name in self.document["aliases"]:
            fn = self.fn(f"alias:{name}")
            outcome = self._guard(lambda f=fn: checks.forward(case, f))
            self._forward("alias", outcome, recorded["forward"], refs, pack, f"{name} {where}")
        if "inplace" in recorded:
            outcome = self._guard(lambda: checks.inplace(case, self.fn("inplace")))
            ref = refs.get("inplace", refs.get("forward"))
            reason = self._outcome(outcome, recorded["inplace"], ref, pack)
            reason = reason or self._self(outcome, recorded["inplace"], refs, pack)
            self.tally.add("inplace", reason, where)
        if recorded.get("out"):
            forms = self._guard(lambda: checks.out_forms(case, self.fn("forward")))
            for form, theirs in recorded["out"].items():
                reason = self._out(forms, form, self._written(theirs, recorded), refs, pack)
                self.tally.add("out", reason, f"{form} {where}")

    @staticmethod
    def _guard(run: Callable[[], Any]) -> Any:
        try:
            return run()
        except Exception as error:
            frame = traceback.extract_tb(error.__traceback__)[-1]
            at = f"{Path(frame.filename).name}:{frame.lineno}"
            return {"err": ["harness", f"{type(error).__name__}: {error} ({at})"]}

    def _judge(self, pack: wire.Pack, **options: bool) -> Judge:
        return Judge(self.entry.kind, pack.buffers, self.buffers, **options)

    def _forward(
        self, check: str, ours: Any, theirs: Any, refs: Any, pack: wire.Pack, where: str
    ) -> None:
        self.tally.add(check, self._outcome(ours, theirs, refs.get("forward"), pack), where)
        if check == "forward" and "out" in theirs:
            name = "strides" if self.entry.strides else "strides_other"
            if "out" in ours:
                judge = self._judge(pack, strides=True)
                self.tally.add(name, judge.tree(ours["out"], theirs["out"]), where)
            else:
                self.tally.add(name, "no result", where)

    def _outcome(
        self, ours: Any, theirs: Any, ref: Any, pack: wire.Pack, gradient: bool = False
    ) -> str | None:
        if "err" in theirs:
            return _same_error(ours, theirs)
        if "err" in ours:
            return f"{ours['err'][0]}: {ours['err'][1]}"
        judge = self._judge(pack, gradient=gradient)
        wide = ref["out"] if ref and "out" in ref and self.entry.kind not in EXACT else None
        if not gradient and self.document["label"] in gauge.RESULTS:
            reason = self._turned(ours["out"], theirs["out"], wide, pack)
        else:
            reason = judge.tree(ours["out"], theirs["out"], wide)
        return reason or self._mutation(ours, theirs, ref, pack)

    def _turned(self, ours: Any, theirs: Any, wide: Any, pack: wire.Pack) -> str | None:
        """The first difference that no choice of the vectors' signs explains. The reference's are
        brought to torch's, that its error is not counted as one."""
        label, nodes = self.document["label"], _nodes(theirs)
        wanted = self._arrays(nodes, self.buffers)
        references = list(self.buffers)
        if wide is not None:
            wide = self._brought(label, wide, wanted, self.buffers, references)
        buffers = list(pack.buffers)
        ours = self._brought(label, ours, wanted, pack.buffers, buffers)
        judge = Judge(self.entry.kind, buffers, self.buffers, wide=references)
        return judge.tree(ours, theirs, wide)

    def _arrays(self, nodes: list[Any], buffers: list[bytes]) -> list[np.ndarray]:
        return [wire.to_array(buffers[n["b"]], n["dt"]).reshape(n["sz"]) for n in nodes]

    def _brought(
        self, label: str, tree: Any, wanted: list[np.ndarray], buffers: list[bytes], to: list[bytes]
    ) -> Any:
        """The tree with its vectors turned to `wanted`; what has changed is appended to `to`."""
        nodes = _nodes(tree)
        arrays = self._arrays(nodes, buffers)
        turns = gauge.factors(label, arrays, wanted)
        if turns is None:
            return tree
        made = []
        for node, old, new in zip(
            nodes, arrays, gauge.turned(label, arrays, turns, np.matmul), strict=True
        ):
            to.append(np.ascontiguousarray(new.astype(old.dtype)).tobytes())
            made.append(node | {"b": len(to) - 1})
        return made if isinstance(tree, list) else tree | {"v": made}

    def _turning(self, fn: Callable[..., Any], ours: Any, theirs: Any, pack: wire.Pack) -> Any:
        """`fn` with its vectors turned to torch's, so that what both differentiate is the same;
        `fn` itself where nothing is to be turned."""
        label = self.document["label"]
        if label not in gauge.RESULTS or "out" not in ours or "out" not in theirs:
            return fn
        arrays = self._arrays(_nodes(ours["out"]), pack.buffers)
        turns = gauge.factors(label, arrays, self._arrays(_nodes(theirs["out"]), self.buffers))
        if turns is None:
            return fn
        tensors = [None if t is None else self._tensor(t, a) for t, a in zip(turns, arrays)]
        return lambda *args, **kw: tuple(
            gauge.turned(label, fn(*args, **kw), tensors, self.rt.matmul)
        )

    def _tensor(self, values: np.ndarray, like: np.ndarray) -> Any:
        name = "complex128" if values.dtype.kind == "c" else "float64"
        if not values.size:
            return self.rt.empty(values.shape, dtype=getattr(self.rt, str(like.dtype)))
        memory = bytearray(np.ascontiguousarray(values).tobytes())
        flat = wire.over_memory(self.rt, memory, name, values.size)
        return flat.reshape(values.shape).to(getattr(self.rt, str(like.dtype)))

    def _mutation(self, ours: Any, theirs: Any, ref: Any, pack: wire.Pack) -> str | None:
        mine, wanted = ours.get("mut", []), theirs.get("mut", [])
        if {m[0] for m in mine} != {w[0] for w in wanted}:
            mine = [m for m in mine if self._changed(m, pack.buffers)]
            wanted = [w for w in wanted if self._changed(w, self.buffers)]
        if [m[0] for m in mine] != [w[0] for w in wanted]:
            return f"storages written {[m[0] for m in mine]}, torch: {[w[0] for w in wanted]}"
        wide = {m[0]: m for m in ref.get("mut", [])} if ref else {}
        for (number, name, a), (_, _, b) in zip(mine, wanted, strict=True):
            mean = None
            if number in wide and wide[number][1] != name:
                mean = wire.to_array(self.buffers[wide[number][2]], wide[number][1])
            x, y = (wire.to_array(raw, name) for raw in (pack.buffers[a], self.buffers[b]))
            if mean is not None and mean.size != y.size:
                mean = None
            reason = self._judge(pack).numbers(x, y, mean, name, f"written storage {number}")
            if reason and self.entry.kind != "meta":
                return reason
        return None

    def _changed(self, written: Any, buffers: list[bytes]) -> bool:
        """Whether a storage holds other values than before, not only other bits of its NaNs."""
        number, name, at = written
        raws = self.buffers[self.storages[number]], buffers[at]
        before, after = (wire.to_array(raw, name) for raw in raws)
        if before.dtype.kind not in "fc" or before.shape != after.shape:
            return True
        same = (before == after) & (np.signbit(before.real) == np.signbit(after.real))
        return not (same | (np.isnan(before) & np.isnan(after))).all()

    def _self(self, ours: Any, theirs: Any, refs: Any, pack: wire.Pack) -> str | None:
        if "self" not in theirs or "self" not in ours:
            return None
        judge = self._judge(pack, strides=True)
        return judge.tree(ours["self"], theirs["self"], None, "self")

    def _gradients(
        self, case: checks.Case, plain: Any, recorded: Any, refs: Any, pack: wire.Pack, where: str
    ) -> None:
        if "grad" in recorded:
            second = "grad2" in recorded
            fn = self._turning(self.fn("forward"), plain, recorded["forward"], pack)
            ours = self._guard(lambda: checks.gradients(case, fn, second=second))
            for check in ("grad", "grad2"):
                if check in recorded:
                    ref = refs.get(check)
                    if check == "grad2":
                        ref = self._with_terms(case.number, recorded["grad"], ref, refs.get("grad"))
                    self._one_gradient(check, case, ours, recorded[check], ref, pack, where)
        if "inplace_grad" in recorded:
            ours = self._guard(
                lambda: checks.gradients(case, self.fn("inplace"), second=False, clone=True)
            )
            ours = {"inplace_grad": ours.get("grad"), "err": ours.get("err")}
            ours = {key: value for key, value in ours.items() if value is not None}
            theirs = recorded["inplace_grad"]
            self._one_gradient("inplace_grad", case, ours, theirs, refs.get("grad"), pack, where)

    def _with_terms(self, number: int, first: Any, ref: Any, first_ref: Any) -> Any:
        """`ref` of second gradients with the norm of the terms of the last one, where that is by
        a single number g: the first gradients F are linear in g, so it sums what F / g has with
        the second cotangents.
        """
        if not (ref and "out" in ref and first_ref and "out" in first_ref and "out" in first):
            return ref
        *others, last = ref["out"]
        if not isinstance(last, dict) or last["sz"] != []:
            return ref
        g = float(np.abs(_cotangent((), 1000 * number, last["dt"])))
        if not g or len(others) != len(first["out"]):
            return ref
        total, place = 0.0, 1000 * number + 500
        for node, wide in zip(first["out"], first_ref["out"], strict=True):
            if not (isinstance(node, dict) and node["rg"] and isinstance(wide, dict)):
                continue
            dots = _cotangent(node["sz"], place, node["dt"]).reshape(-1)
            place += 1
            terms = wire.to_array(self.buffers[wide["b"]], wide["dt"]) * dots / g
            total += float(np.square(np.abs(terms)).sum())
        return ref | {"out": [*others, last | {"terms": total**0.5}]}

    def _one_gradient(
        self, check: str, case: checks.Case, ours: Any, theirs: Any, ref: Any, pack: wire.Pack,
        where: str,
    ) -> None:  # fmt: skip
        found = ours.get(check) or {"err": ours.get("err", ["none", "no gradient was recorded"])}
        if self.document["label"] in NAN_BY_LOOP and "out" in found and "out" in theirs:
            found = found | {"out": self._past_nans(case, found["out"], theirs["out"], pack)}
        self.tally.add(check, self._outcome(found, theirs, ref, pack, gradient=True), where)

    def _past_nans(self, case: checks.Case, ours: Any, theirs: Any, pack: wire.Pack) -> Any:
        """Our gradients, with torch's where the argument is a NaN."""
        given = wire.encode_output(self.rt, case.load(grad=False).tensors[0], pack, [])
        nans = np.isnan(wire.to_array(pack.buffers[given["b"]], given["dt"]).astype(np.float64))
        made = []
        for a, b in zip(ours, theirs, strict=True):
            if nans.any() and a and b and a["sz"] == b["sz"] == given["sz"] and a["dt"] == b["dt"]:
                raws = pack.buffers[a["b"]], self.buffers[b["b"]]
                mine, wanted = (np.frombuffer(raw, np.uint8).reshape(nans.size, -1) for raw in raws)
                taken = np.where(nans.reshape(-1, 1), wanted, mine)
                a = a | {"b": pack.add(taken.tobytes())}
            made.append(a)
        return made

    def _written(self, theirs: Any, recorded: Any) -> Any:
        """What `out=` is to hold: torch's plain result where its `out=` contradicts that (its
        narrow_copy takes no notice of the strides of what is given, its avg_pool3d writes into a
        copy of them that it forgets, its ihfftn along one dimension neither resizes nor writes, its
        lu_unpack leaves L of several matrices half written where rows are spread)."""
        plain = recorded["forward"].get("out")
        if (
            self.entry.kind not in ("copy", "pool", "fft", "linalg")
            or "out" not in theirs
            or not isinstance(plain, dict)
        ):
            return theirs
        wanted = _nodes(plain)
        if [n.get("dt") for n in theirs["out"]] != [n.get("dt") for n in wanted]:
            return theirs  # converted
        wanted = [_as_written(n, to) for n, to in zip(wanted, theirs["out"], strict=True)]
        right = Judge("copy", self.buffers, self.buffers, ulps=0).tree(theirs["out"], wanted)
        return theirs if right is None else theirs | {"out": wanted}

    def _out(self, forms: Any, form: str, theirs: Any, refs: Any, pack: wire.Pack) -> str | None:
        ours = forms.get(form, {"err": forms.get("err", ["none", "the plain call failed"])})
        if "err" in theirs:
            return _same_error(ours, theirs)
        if "err" in ours:
            return f"{ours['err'][0]}: {ours['err'][1]}"
        if ours["same"] != theirs["same"]:
            return f"the result {'is not' if theirs['same'] else 'is'} what was given as out="
        ref = refs.get("forward", {}).get("out")
        wide = None
        if isinstance(ref, dict) and self.entry.kind not in EXACT:
            wide = ref["v"] if ref["k"] in ("tuple", "named") else [ref]
        if self.document["label"] in gauge.RESULTS and len(ours["out"]) == len(theirs["out"]):
            reason = self._turned(ours["out"], theirs["out"], wide, pack)
        else:
            reason = self._judge(pack).tree(ours["out"], theirs["out"], wide)
        return reason or self._judge(pack, strides=True).tree(ours["out"], theirs["out"])

    # -- errors -----------------------------------------------------------------------------------

    def error(self, number: int, recorded: wire.Node) -> None:
        """A call that must raise: the database's type and pattern; exact text for information."""
        reader = wire.InputReader(self.rt, recorded["call"], self.buffers)
        case = checks.Case(self.rt, reader, wire.Pack(), number)
        ours = checks.call_error(case, self.fn("forward"))
        where = f"#{number} {describe(recorded['call'])}"
        judge_error(self.tally, self.rt, ours, recorded, where)


def judge_error(tally: Tally, rt: ModuleType, ours: Any, recorded: Any, where: str) -> None:
    """Count a call that must raise: type and pattern; the exact text for information."""
    if "err" not in ours:
        reason: str | None = f"{ours['why']}; torch raises {recorded['torch']}"
    elif not set(recorded["types"]) & set(ours["bases"]):
        reason = f"raises {ours['err']}, torch {recorded['torch']}"
    elif not re.search(recorded["regex"], ours["err"][1]):
        reason = f"says {ours['err'][1]!r}, not /{recorded['regex']}/"
    else:
        reason = None
    tally.add("errors", reason, where)
    said = [part.replace(f"{rt.__name__}.", "torch.") for part in ours.get("err", [])]
    exact = None if said == recorded["torch"] else f"{said}, torch {recorded['torch']}"
    tally.add("error_text", exact, where)


def _cotangent(shape: Any, seed: int, dtype: str) -> np.ndarray:
    """The values of `checks.cotangent`."""
    random = np.random.RandomState(seed)
    values = random.randint(-128, 128, tuple(shape)) / 64
    if dtype.startswith("complex"):
        return np.asarray(values + 1j * random.randint(-128, 128, tuple(shape)) / 64)
    return np.asarray(values)


def _as_written(plain: Any, to: Any) -> Any:
    """A plain result as it stands in out=, laid out like `to` where that has its shape."""
    plain = {key: value for key, value in plain.items() if key not in ("is", "al", "o")}
    sizes, stride = plain["sz"], to["st"]
    if to["sz"] != sizes:
        stride = [math.prod(n or 1 for n in sizes[i + 1 :]) for i in range(len(sizes))]
    return plain | {"rg": False, "st": stride}


def _nodes(tree: Any) -> list[Any]:
    """The tensors of a result that is one tensor or a sequence of them."""
    if isinstance(tree, list):
        return tree
    return list(tree["v"]) if "v" in tree else [tree]


def _raiser(error: Exception) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        raise error

    return call


def _same_error(ours: Any, theirs: Any) -> str | None:
    if "err" not in ours:
        return f"no error; torch raises {theirs['err'][0]}: {theirs['err'][1][:120]}"
    if ours["err"][0] != theirs["err"][0]:
        return f"raises {ours['err']}, torch {theirs['err']}"
    return None


def describe(call: wire.Node) -> str:
    """The call in one line: `(float32[2, 3] strides [1, 2], 2, dim=0)`."""
    parts = [_describe(node) for node in call["args"]]
    parts += [f"{key}={_describe(node)}" for key, node in call["kwargs"].items()]
    return f"({', '.join(parts)})"[:240]


def _describe(node: wire.Node) -> str:
    if isinstance(node, list):
        return f"[{', '.join(_describe(item) for item in node)}]"
    if not isinstance(node, dict):
        return repr(node)
    if node["k"] == "tensor":
        dense, run = [], 1
        for size in reversed(node["sz"]):
            dense.append(run)
            run *= max(size, 1)
        strides = "" if node["st"] == dense[::-1] else f" strides {node['st']}"
        offset = f"+{node['o']}" if node["o"] else ""
        return f"{node['dt']}{node['sz']}{strides}{offset}"
    if node["k"] == "tuple":
        return f"({', '.join(_describe(item) for item in node['v'])})"
    if node["k"] == "dict":
        return f"{{{', '.join(f'{key}={_describe(item)}' for key, item in node['v'])}}}"
    if node["k"] == "made":
        return f"{node['cls']}({', '.join(_describe(item) for item in node['v'])})"
    return str(node.get("v", node["k"]))


def replay_programs(rt: ModuleType, path: Path) -> Tally:
    """The programs' file."""
    document, buffers = wire.read_file(path)
    tally = Tally()
    for name, theirs in document["programs"].items():
        pack = wire.Pack()
        ours = programs.run(rt, name, pack)
        if "err" in theirs:
            reason = _same_error(ours, theirs)
        elif "err" in ours:
            reason = f"{ours['err'][0]}: {ours['err'][1]}"
        else:
            judge = Judge("other", pack.buffers, buffers, ulps=programs.ULPS[name])
            reason = judge.tree(ours["out"], theirs["out"])
            judge.strides = True
            reason = reason or judge.tree(ours["out"], theirs["out"])
        tally.add(name, reason)
    return tally


def expected_counts(path: Path) -> dict[str, list[int]]:
    """Every check of a file, none passed: what a crash or a hang costs."""
    document, _ = wire.read_file(path)
    tally = Tally()
    if document["label"] == "programs":
        return {name: [0, 1] for name in document["programs"]}
    strict = ENTRIES[document["label"]].strides
    for sample in document["samples"]:
        recorded = sample["checks"]
        for check in recorded:
            for _ in recorded["out"] if check == "out" else [0]:
                tally.add(check, "lost")
        if "out" in recorded["forward"]:
            tally.add("strides" if strict else "strides_other", "lost")
        for _ in document["aliases"]:
            tally.add("alias", "lost")
    for _ in document["errors"]:
        tally.add("errors", "lost")
        tally.add("error_text", "lost")
    return tally.counts


def replay_file(rt: ModuleType, path: Path, keep: int = KEEP, only: int | None = None) -> Any:
    """`{"counts": …, "failures": …, "dropped": …}` of one file."""
    warnings.simplefilter("ignore")
    if path.name.startswith("programs."):
        tally, dropped = replay_programs(rt, path), []
    else:
        replayer = Replayer(rt, path, keep)
        tally, dropped = replayer.run(only), replayer.document["dropped"]
    return {"counts": tally.counts, "failures": tally.failures, "dropped": dropped}


def worker(
    runtime: str, keep: int, runner: str = "", limit: int = 0,
    replayer: str = "tests.oracle.compiled",
) -> None:  # fmt: skip
    """Read file names on standard input, answer one JSON line each.

    With a `runner` the file is `replayer`'s to judge: `compiled.py` has it compile the calls and
    compares them with eager.
    """
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what the runtime prints must not be taken for an answer
    rt = importlib.import_module(runtime)
    if hasattr(rt, "set_num_threads"):
        rt.set_num_threads(1)
    if runner:
        judge = importlib.import_module(replayer)
    for line in sys.stdin:
        path = Path(line.strip())
        if runner:
            result = judge.replay_file(rt, path, runner, limit, keep)
        else:
            result = replay_file(rt, path, keep)
        answers.write(json.dumps(result) + "\n")
        answers.flush()


if __name__ == "__main__":
    if "--worker" in sys.argv:
        worker(sys.argv[2], int(sys.argv[3]), sys.argv[4], int(sys.argv[5]), sys.argv[6])
    else:
        from tests.oracle.run import main  # lazy: a worker needs none of it

        sys.exit(main(sys.argv[1:]))
