"""Announcements, counters and log levels."""

import subprocess
import sys
import warnings
from pathlib import Path

import pytest

from flambeau._src.util import errors, log
from flambeau._src.util.registry import Registry

PACKAGE = Path(errors.__file__).resolve().parents[2]


def test_warn_once():
    log.reset_counters()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert log.warn_once("k", "text") and not log.warn_once("k", "text")
    assert [str(w.message) for w in caught] == ["text"]
    assert caught[0].filename == __file__


def test_fallback_counts_always_and_speaks_once(caplog):
    log.reset_counters()
    with caplog.at_level("INFO", logger="flambeau"):
        log.fallback("loops.numpy", "no compiler: kernels run in NumPy")
        log.fallback("loops.numpy", "no compiler: kernels run in NumPy")
    assert log.counters() == {"fallback.loops.numpy": 2}
    assert [r.message for r in caplog.records] == ["no compiler: kernels run in NumPy"]
    log.count("x", 3)
    assert log.counters()["x"] == 3


def test_levels():
    assert log.parse_log("info") == {"": 20}
    assert log.parse_log("capture=debug, loops=warning") == {"capture": 10, "loops": 30}
    assert log.parse_log("+dynamo,graph_code,-inductor") == {
        "dynamo": 10,
        "graph_code": 20,
        "inductor": 40,
    }
    assert log.parse_log("+all") == {"": 10}
    with pytest.raises(ValueError, match="log level must be one of"):
        log.parse_log("capture=loud")


def test_util_is_light():
    # A bare package stands in for flambeau, whose other parts import more.
    code = (
        "import sys, types; root = types.ModuleType('flambeau');"
        f"root.__path__ = [{str(PACKAGE)!r}]; sys.modules['flambeau'] = root;"
        "import flambeau._src.util.log, flambeau._src.util.pytree_text;"
        "print([m for m in ('logging', 'dataclasses', 'inspect', 'numpy', 'json') "
        "if m in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-S", "-c", code], capture_output=True, text=True)
    assert run.stdout.strip() == "[]", run.stderr


def test_registry():
    table = Registry("back end")
    table.add("inductor", 1)

    @table.register("eager")
    def eager():
        pass

    assert table["inductor"] == 1 and table["eager"] is eager and list(table) == list(table.keys())
    with pytest.raises(KeyError, match="no back end 'inducter' is registered; did you mean"):
        table["inducter"]
    with pytest.raises(ValueError, match="back end 'inductor' is already registered"):
        table.add("inductor", 2)
    assert table.add("inductor", 2, override=True) == 2 and table.remove("inductor") == 2
    assert "inductor" not in table and len(table) == 1


def test_errors_have_torchs_bases():
    assert issubclass(errors.OutOfMemoryError, RuntimeError)
    assert issubclass(errors.LinAlgError, RuntimeError)
    assert issubclass(errors.QueueEmptyError, errors.DistStoreError)
    assert not issubclass(errors.FatalError, RuntimeError)
    name = errors.OutOfMemoryError
    assert f"{name.__module__}.{name.__qualname__}" == "flambeau.OutOfMemoryError"
