"""What `import flambeau` may cost: time, modules, and space on disk."""

from __future__ import annotations

import importlib.metadata
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SECONDS = 0.12  # from the start of the interpreter, with what its `site` imports
SECONDS_INSIDE = 0.08  # the import alone, in an interpreter that has imported nothing else
MODULES_BEYOND_NUMPY = 100
WAITING = 0.75  # of the operators' names: their families are imported at the first use
INSTALLED_MB = 100
OWN_MB = 20

# Processor time: on an idle machine the wall time of an import, on a busy one still the same. It
# counts from the start of the process.
TIMED = """
import time
started = time.process_time()
import flambeau
ended = time.process_time()
print(ended, ended - started)
"""

LOADED = """
import json, sys
import {module}
print(json.dumps(sorted(sys.modules)))
"""


def run(code: str, *options: str) -> str:
    """What a fresh interpreter prints for `code`; it may keep bytecode, as an installer does."""
    paths = filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")])
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    done = subprocess.run(
        [sys.executable, *options, "-c", code],
        env=environment,
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    return done.stdout


@pytest.fixture(scope="module", autouse=True)
def index() -> None:
    """What the build leaves beside the declarations."""
    run("from flambeau._src.ops import registry; registry.keep()")


def loaded_by(module: str) -> set[str]:
    return set(json.loads(run(LOADED.format(module=module))))


def fastest(*options: str) -> list[float]:
    """The least of several runs: other work on the machine only ever adds."""
    runs = [[float(word) for word in run(TIMED, *options).split()] for _ in range(9)]
    return [min(column) for column in zip(*runs, strict=True)]


def test_import_time() -> None:
    whole, _ = fastest()
    assert whole <= SECONDS, f"python -c 'import flambeau' takes {whole:.3f} s"


def test_import_time_alone() -> None:
    _, inside = fastest("-S")  # what `site` imported already would count for nothing
    assert inside <= SECONDS_INSIDE, f"import flambeau takes {inside:.3f} s"


WAITING_NAMES = """
import flambeau
from flambeau._src.ops.op import PACKETS
print(sum(not p._entered for p in PACKETS.values()) / len(PACKETS))
"""


def test_families_wait_for_their_first_use() -> None:
    assert float(run(WAITING_NAMES)) >= WAITING


def test_module_count() -> None:
    beyond = loaded_by("flambeau") - loaded_by("numpy")
    assert len(beyond) <= MODULES_BEYOND_NUMPY, sorted(beyond)


def test_no_torch_and_no_heavy_library_at_import() -> None:
    heavy = {"torch", "numpy", "scipy", "sympy", "typing_extensions", "asyncio"}
    assert not loaded_by("flambeau") & heavy


def test_installed_size() -> None:
    """The package as it lies here, without what other Python versions built, and NumPy."""
    tag = f"cpython-{sys.version_info[0]}{sys.version_info[1]}"
    own = sum(
        path.stat().st_size
        for path in (ROOT / "flambeau").rglob("*")
        if path.is_file()
        and "__pycache__" not in path.parts
        and "csrc" not in path.parts
        and ("cpython-" not in path.name or tag in path.name)
    )
    numpy = sum(
        Path(file.locate()).stat().st_size
        for file in importlib.metadata.files("numpy") or []
        if Path(file.locate()).is_file()
    )
    assert own <= OWN_MB * 1e6, f"flambeau takes {own / 1e6:.1f} MB"
    assert own + numpy <= INSTALLED_MB * 1e6, f"with NumPy {(own + numpy) / 1e6:.1f} MB"
