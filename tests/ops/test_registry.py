"""The index of what the families declare: derived, never stale, and as good as importing them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]


def run(code: str, root: Path = ROOT, **environment: str) -> Any:
    """What a fresh interpreter prints for `code`, read as JSON."""
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"PYTHONPATH": str(root)} | environment,
        cwd=root,
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    return json.loads(done.stdout.splitlines()[-1])


# Each family is imported first in a process of its own; what it left undeclared is printed.
EACH_FIRST = """
import json, os
import flambeau
from flambeau._src.ops import registry
from flambeau._src.ops.op import PACKETS

registry.keep()
index = registry.read()
wrong = []
for home in sorted({h for *_, homes in index["packets"] for h in homes}):
    mine, theirs = os.pipe()
    if not (child := os.fork()):
        registry.family(home)
        missing = [n for s, n, *_, h in index["packets"] if h == (home,)
                   if not PACKETS[s, n]._entered]
        os.write(theirs, json.dumps([home, missing] if missing else []).encode())
        os._exit(0)
    os.close(theirs)
    with os.fdopen(mine) as file:
        wrong += json.loads(file.read() or '["died"]')
    os.waitpid(child, 0)
print(json.dumps(wrong))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_family_declares_what_the_index_says() -> None:
    assert run(EACH_FIRST) == []


OVERLOADS = """
import json, random
import flambeau
from flambeau._src.ops import registry
from flambeau._src.ops.op import PACKETS, resolve_lazy

packets = list(PACKETS)
random.Random({seed}).shuffle(packets)
found = {{}}
for key in packets:
    ops = resolve_lazy(PACKETS[key])
    p = PACKETS[key]
    decl, public = ops[0].decl, ops[0].decl.public
    if ops[0].variant == "inplace" and decl.public_inplace is not None:
        public = decl.public_inplace
    assert (p.kind, p.public, p.aliases) == (decl.kind, public, decl.aliases), p
    found["::".join(key)] = [o.overload for o in ops]
print(json.dumps(found, sort_keys=True))
"""

DERIVED = """
import json
from flambeau._src.ops import registry
from flambeau._src.ops.op import PACKETS, resolve_lazy

registry.derive()
print(json.dumps({"::".join(k): [o.overload for o in resolve_lazy(p)] for k, p in PACKETS.items()},
                 sort_keys=True))
"""


def test_overloads_stand_in_the_same_order_whichever_family_came_first() -> None:
    expected = run(DERIVED)
    for seed in range(3):
        assert run(OVERLOADS.format(seed=seed)) == expected


LOOK = """
import json, sys
import flambeau as torch
from flambeau._src.ops import registry

loaded = "flambeau._src.ops.fourier" in sys.modules
try:
    value = {value}
except Exception as error:
    value = type(error).__name__
print(json.dumps([loaded, registry.read() is not None, value]))
"""

SECOND = '''

class ThriceForTheTest(Pointwise):
    """3 x."""

    schema = "thrice_for_the_test(Tensor self) -> Tensor"
    inplace = True

    def expr(k: Any, x: Any) -> Any:
        return x * 3
'''


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The package's Python and its extension, to be changed."""
    ignored = shutil.ignore_patterns("__pycache__", "csrc", "pack.*.so", "declared.index")
    shutil.copytree(ROOT / "flambeau", tmp_path / "flambeau", ignore=ignored)
    return tmp_path


def test_an_operator_added_to_a_family_is_there_at_once(copy: Path) -> None:
    look = LOOK.format(value="torch.ones(2).thrice_for_the_test_().tolist()")
    keep = {"PYTHONDONTWRITEBYTECODE": ""}
    # No index, and none may be kept: everything is imported, and everything is there.
    assert run(look, copy, PYTHONDONTWRITEBYTECODE="1") == [True, False, "AttributeError"]
    assert run(look, copy, **keep) == [True, True, "AttributeError"]
    assert run(look, copy, **keep) == [False, True, "AttributeError"]
    path = copy / "flambeau/_src/ops/elementary.py"
    path.write_text(path.read_text() + SECOND)
    assert run(look, copy, PYTHONDONTWRITEBYTECODE="1") == [True, False, [3.0, 3.0]]
    assert run(look, copy, **keep) == [True, True, [3.0, 3.0]]
    assert run(look, copy, **keep) == [False, True, [3.0, 3.0]]
    # The same size and an older file: only an edit that leaves no trace goes unseen. A newer one:
    text = path.read_text()
    path.write_text(text.replace("thrice_for", "threes_for"))
    later = time.time() + 2  # bytecode tells times apart by whole seconds
    os.utime(path, (later, later))
    assert run(look, copy, **keep) == [True, True, "AttributeError"]


def test_a_spoilt_index_is_not_used(copy: Path) -> None:
    index = copy / "flambeau/_src/ops/declared.index"
    for content in (b"", b"nonsense", b"\xfb\x00\x00\x00\x00"):
        index.write_bytes(content)
        assert run(LOOK.format(value="torch.ones(2).tolist()"), copy, PYTHONDONTWRITEBYTECODE="1")[
            :2
        ] == [True, False]


LATE = """
import copy, json, pickle, sys
import flambeau as torch

before = "flambeau._src.ops.einsum" in sys.modules
listed = {"einsum", "tensordot", "_foreach_add", "tensor", "unique"} <= set(dir(torch))
f = torch.einsum
same = f is torch.einsum and pickle.loads(pickle.dumps(f)) is f and f.__module__ == "flambeau"
op = torch.ops.aten.fft_fft.default
g = torch.ops.aten.special_zeta
print(json.dumps([before, listed, same, pickle.loads(pickle.dumps(op)) is op, copy.copy(g) is g,
                  hasattr(torch, "einsums"), hasattr(torch.ops.aten, "no_such_operator"),
                  "_foreach_add" in torch.__dict__, torch._foreach_add is torch._foreach_add]))
"""


def test_names_of_families_that_are_not_imported() -> None:
    run("import json; from flambeau._src.ops import registry; registry.keep(); print(0)")
    expected = [False, True, True, True, True, False, False, False, True]
    assert run(LATE) == expected
