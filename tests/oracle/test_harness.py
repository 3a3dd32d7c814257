"""The harness's own rules: tolerance, baseline, counting. No runtime is needed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.oracle import checks, replay, run, wire
from tests.oracle.compare import Judge
from tests.oracle.entries import ENTRIES, EXTRA


def _node(values: Any, name: str, pack: wire.Pack, **more: Any) -> dict[str, Any]:
    array = np.asarray(values)
    if name == "bfloat16":
        words = array.astype(np.float32).view(np.uint32) >> np.uint32(16)
        raw = words.astype(np.uint16).tobytes()
    else:
        raw = array.astype(wire.NUMPY_NAME[name]).tobytes()
    strides = [s // array.itemsize for s in array.strides]
    return {"k": "out", "b": pack.add(raw), "dt": name, "sz": list(array.shape), "st": strides,
            "rg": False} | more  # fmt: skip


def _reason(ours: Any, theirs: Any, ref: Any = None, name: str = "float32", **options: Any) -> Any:
    pack = wire.Pack()
    nodes = [_node(ours, name, pack), _node(theirs, name, pack)]
    wide = None if ref is None else _node(ref, "float64", pack)
    kind = options.pop("kind", "pointwise")
    return Judge(kind, pack.buffers, pack.buffers, **options).tree(*nodes, wide)


def test_four_units_are_allowed_and_six_are_not() -> None:
    one = np.float32(1)
    unit = np.float32(2.0**-23)
    assert _reason([one + 4 * unit], [one], [1.0]) is None
    assert "differ" in _reason([one + 6 * unit], [one], [1.0])


def test_twice_the_error_of_torch_is_allowed() -> None:
    assert _reason([1.0002], [1.0001], [1.0]) is None
    assert _reason([0.9998], [1.0001], [1.0]) is None
    assert "differ" in _reason([1.0004], [1.0001], [1.0])


def test_the_scale_is_the_element_for_pointwise_and_the_tensor_for_others() -> None:
    ours, theirs = [1e6, 1e-3 + 1e-5], [1e6, 1e-3]
    assert "differ" in _reason(ours, theirs, theirs)
    assert _reason(ours, theirs, theirs, kind="matmul") is None
    assert _reason(ours, theirs, theirs, gradient=True) is None


def test_infinities_and_nans_must_be_where_torch_has_them() -> None:
    inf, nan = float("inf"), float("nan")
    assert _reason([inf, nan, -inf], [inf, nan, -inf], [inf, nan, -inf]) is None
    for wrong in ([-inf, nan, -inf], [inf, 0.0, -inf], [3e38, nan, -inf]):
        assert "differ" in _reason(wrong, [inf, nan, -inf], [inf, nan, -inf])
    assert "differ" in _reason([nan], [1.0], [1.0])


def test_random_numbers_and_integers_are_exact() -> None:
    next_one = np.nextafter(np.float32(1), np.float32(2))
    assert "differ" in _reason([next_one], [1.0], kind="random")
    assert "differ" in _reason([1, 2], [1, 3], name="int64")
    assert _reason([float("nan")], [float("nan")], kind="random") is None


def test_float64_is_close_to_torch() -> None:
    assert _reason([1 + 1e-11], [1.0], name="float64") is None
    assert "differ" in _reason([1 + 1e-9], [1.0], name="float64")


def test_float64_is_also_right_within_twice_the_error_of_torch_from_the_truth() -> None:
    assert _reason([1 - 1e-8], [1 + 1e-8], [1.0], name="float64") is None
    assert _reason([1 + 1.9e-8], [1 + 1e-8], [1.0], name="float64") is None
    assert "differ" in _reason([1 + 3e-8], [1 + 1e-8], [1.0], name="float64")
    assert _reason([1 + 1e-8 + 1e-11], [1 + 1e-8], [1.0], name="float64") is None  # as torch


def test_the_scale_of_a_summed_gradient_is_at_least_the_norm_of_its_terms() -> None:
    pack = wire.Pack()
    ours, theirs = (_node([x], "float32", pack) for x in (1e-3 + 1e-7, 1e-3))
    ref = _node([1e-3], "float64", pack)
    judge = Judge("pointwise", pack.buffers, pack.buffers, gradient=True)
    assert "differ" in str(judge.tree(ours, theirs, ref))
    assert judge.tree(ours, theirs, ref | {"terms": 0.5}) is None
    assert "differ" in str(judge.tree(ours, theirs, ref | {"terms": 0.1}))


@pytest.mark.parametrize("name", ["float64", "float32"])
def test_what_cancels_wholly_is_judged_by_the_scale_of_the_call(name: str) -> None:
    """[0 in truth, about 1]: 1e-13 is rounding beside the other gradient and not beside nothing."""
    pack = wire.Pack()
    other, off = _node([1.5], name, pack), 1e-13 if name == "float64" else 2e-7
    torchs, ours, more = (_node([v], name, pack) for v in (3e-17, off, 20 * off))
    refs = [_node([v], "float64", pack) for v in (2e-17, 1.5)]

    def reason(values: Any, found: Any, wide: Any) -> str | None:
        judge = Judge("reduction", pack.buffers, pack.buffers, gradient=True)
        return judge.tree(found, values, wide)

    assert reason([torchs, other], [ours, other], refs) is None
    assert "differ" in str(reason([torchs, other], [more, other], refs))
    assert "differ" in str(reason([torchs], [ours], refs[:1]))
    zeros = _node([0.0], name, pack), _node([0.0], "float64", pack)
    strict = reason([zeros[0], other], [ours, other], [zeros[1], refs[1]])
    assert (strict is None) == (name == "float64")


def test_infinities_of_the_truth_count_only_where_that_is_asked_for() -> None:
    inf, nan = float("inf"), float("nan")
    ours, theirs = [inf, nan, 1.0], [-inf, 2.0, 1.0]
    assert "differ" in _reason(ours, theirs, ours)
    assert _reason(ours, theirs, ours, truth_counts=True) is None
    assert "differ" in _reason(ours, theirs, theirs, truth_counts=True)


def test_16_bits_may_be_right_where_a_step_of_torch_overflowed() -> None:
    nan, inf = float("nan"), float("inf")
    assert _reason([-7.0, 2.0], [nan, 2.0], [-7.0, 2.0], name="float16") is None
    assert "differ" in _reason([-7.1, 2.0], [nan, 2.0], [-7.0, 2.0], name="float16")
    assert "differ" in _reason([65504.0], [inf], [70000.0], name="float16")
    assert "differ" in _reason([nan], [inf], [1.0], name="float16")
    assert "differ" in _reason([-7.0], [nan], [-7.0], name="float32")
    assert _reason([-7.0], [nan], [-7.0], name="bfloat16") is None
    assert _reason([-inf], [nan], [-70000.0], name="float16") is None
    assert "differ" in _reason([inf], [nan], [-70000.0], name="float16")
    assert "differ" in _reason([inf], [nan], [65000.0], name="float16")
    ours, theirs, truth = [100.0, 1.01], [nan, nan], [100.0, 1.0]
    assert "differ" in _reason(ours, theirs, truth, name="float16")
    assert _reason(ours, theirs, truth, name="float16", kind="matmul") is None


def test_the_replay_draws_the_cotangents_of_the_recording() -> None:
    import flambeau  # lazy: the harness itself needs no runtime

    for shape, name in (((), "float32"), ((2, 3), "complex64")):
        like = flambeau.zeros(shape, dtype=getattr(flambeau, name))
        drawn = checks.cotangent(flambeau, like, 7).reshape(-1).tolist()
        assert drawn == replay._cotangent(shape, 7, name).reshape(-1).tolist()


def test_a_recording_of_other_sources_is_refused(tmp_path: Path, capsys: Any) -> None:
    for name, said in ((wire.digest(), "matches"), ("0" * 12, "--stale")):
        (tmp_path / "latest").write_text(f"torch-2.13.0+cpu-{name}")
        assert run.main(["--root", str(tmp_path)]) == 2
        assert said in capsys.readouterr().err


def test_a_call_without_tensors_borrows_the_reference_of_float32(tmp_path: Path) -> None:
    label, call = "signal.windows.kaiser", {"args": [3], "kwargs": {}, "storages": []}
    for name, wide in (("float32", [1.0, 2.0, 3.0]), ("float64", None)):
        pack = wire.Pack()
        pack.add(b"something else")
        refs = {"forward": {"out": _node(wide, "float64", pack)}} if wide else {}
        document = {"label": label, "dtype": name, "samples": [{"call": call, "refs": refs}]}
        wire.write_file(tmp_path / f"{label}.{name}.zip", document, pack)
    made = replay.Replayer(wire, tmp_path / f"{label}.float64.zip")
    node = made.document["samples"][0]["refs"]["forward"]["out"]
    assert wire.to_array(made.buffers[node["b"]], "float64").tolist() == [1.0, 2.0, 3.0]


def test_bfloat16_travels_exactly() -> None:
    values = np.array([1.0, -0.5, 3.140625, float("inf")], np.float32)
    pack = wire.Pack()
    node = _node(values, "bfloat16", pack)
    assert (wire.to_array(pack.buffers[node["b"]], "bfloat16") == values).all()


@pytest.mark.parametrize(
    ("key", "value"), [("dt", "float64"), ("sz", [3]), ("rg", True), ("al", 0), ("is", 0)]
)
def test_what_a_tensor_is_counts(key: str, value: Any) -> None:
    pack = wire.Pack()
    theirs = _node([1.0, 2.0], "float32", pack)
    judge = Judge("pointwise", pack.buffers, pack.buffers)
    assert judge.tree(theirs, theirs) is None
    assert judge.tree(theirs | {key: value}, theirs)


def test_strides_are_compared_in_every_dimension() -> None:
    pack = wire.Pack()
    theirs = _node([[1.0, 2.0]], "float32", pack)
    judge = Judge("pointwise", pack.buffers, pack.buffers, strides=True)
    assert judge.tree(theirs, theirs) is None
    assert "only where" in judge.tree(theirs | {"st": [1, 1]}, theirs)
    assert "only where" not in judge.tree(theirs | {"st": [2, 2]}, theirs)


def _results(passed: int) -> run.Results:
    counts = {"forward": [3, 3], "grad": [passed, 3], "error_text": [0, 1]}
    return {"add": {"float32": {"counts": counts, "failures": [], "dropped": []}}}


def test_the_baseline_only_shrinks(tmp_path: Path) -> None:
    line = "add float32 grad"
    assert run.against_baseline(_results(2), set()) == ([line], [])
    assert run.against_baseline(_results(2), {line}) == ([], [])
    assert run.against_baseline(_results(3), {line}) == ([], [line])
    assert run.against_baseline(_results(3), {"sub float32 grad"}) == ([], [])
    known = tmp_path / "known.txt"
    known.write_text("sub float32 grad  # not replayed here\n")
    run.write_known(known, _results(2))
    assert run.read_known(known) == {line, "sub float32 grad"}
    run.write_known(known, _results(3))
    assert run.read_known(known) == {"sub float32 grad"}


def test_the_end_line_counts_checks_as_pytest_counts_tests() -> None:
    line = "add float32 grad"
    for passed, known, expected in (
        (3, set(), "2 passed in 60.40s"),
        (2, {line}, "1 passed, 1 xfailed in 60.40s"),
        (2, set(), "1 failed, 1 passed in 60.40s"),
        (3, {line}, "1 failed, 1 passed in 60.40s"),
    ):
        end = run.end_line(_results(passed), known, 60.4)
        assert end.strip("=\n") == f" {expected} "
        assert len(end) == 81
    extra = {"scatter": _results(0)["add"]}
    assert " 0 passed in 1.00s " in run.end_line(extra, set(), 1.0)


def test_extra_entries_are_not_required() -> None:
    results = {"scatter": _results(0)["add"]}
    assert run.failing(results) == set()
    assert run.totals(results, extra=True)["grad"] == [0, 3]
    assert set(EXTRA.split()) <= {entry.key for entry in ENTRIES.values()}


def test_checks_are_named_once() -> None:
    assert set(checks.INFORMATIVE) - {"data_dependent"} <= set(checks.CHECKS)


def test_an_interrupted_run_goes_on_with_what_is_left(tmp_path: Path) -> None:
    files = [tmp_path / f"{name}.float32.zip" for name in ("a", "b", "c")]
    for size, file in enumerate(files):
        file.write_bytes(b"x" * (size + 1))
    first = run.Kept(tmp_path / "kept.jsonl")
    assert first.left(files) == files[::-1]
    first.add(files[0], {"counts": {"forward": [1, 1]}, "failures": []})
    first.add(files[1], {"counts": {"forward": [0, 1]}, "failures": ["lost: crashed"]})
    again = run.Kept(tmp_path / "kept.jsonl")
    assert again.left(files) == files[:0:-1]
    assert again.results == {"a": {"float32": {"counts": {"forward": [1, 1]}, "failures": []}}}
