"""The checker itself: it finds planted violations, and nothing in a clean tree."""

import pytest

from tests.layers import checker, ranks


def plant(root, files):
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (root / "flambeau" / "_src").mkdir(parents=True, exist_ok=True)
    return checker.read_tree(root)


CLEAN = {
    "flambeau/__init__.py": "from flambeau._src.compiler import driver\nfrom flambeau import nn\n",
    "flambeau/_src/util/log.py": "import os.path\n",
    "flambeau/_src/core/tensor.py": (
        "from typing import TYPE_CHECKING\n"
        "from flambeau._src.util import log\n"
        "if TYPE_CHECKING:\n    from flambeau._src.core.size import Size\n"
        "def f():\n    import numpy  # lazy: NumPy is heavy\n"
    ),
    "flambeau/_src/core/size.py": "from . import tensor\n",
    "flambeau/_src/compiler/driver.py": "import flambeau._src.core.tensor\n",
    "flambeau/nn/__init__.py": "import flambeau\nfrom flambeau.nn.module import Module\n",
    "flambeau/nn/module.py": "import flambeau as torch\nfrom flambeau._src.autograd import x\n",
    "flambeau/optim.py": "from flambeau import nn\n",
    "flambeau/jit/__init__.py": "from flambeau._src.export import program\n",
    "flambeau/distributed/a.py": "from flambeau._src.dist import mesh\n",
}


def every_check(modules, root):
    return [
        *checker.check_ranks(modules),
        *checker.check_cycles(modules),
        *checker.check_local_imports(modules),
        *checker.check_globals(modules),
        *checker.check_environment(modules),
        *checker.check_torch(modules, root),
        *checker.check_names(modules),
        *checker.check_machine_paths(root),
    ]


def test_clean_tree(tmp_path):
    assert every_check(plant(tmp_path, CLEAN), tmp_path) == []


@pytest.mark.parametrize(
    ("name", "text", "complaint"),
    [
        ("_src/core/a.py", "from flambeau._src.ops import op\n", "upward, from rank 1 to 3"),
        ("_src/core/a.py", "from flambeau._src import ops\n", "upward, from rank 1 to 3"),
        ("_src/core/a.py", "from ..ops import op\n", "upward, from rank 1 to 3"),
        ("_src/ops/a.py", "import flambeau._src.codegen.cpp\n", "sideways, both of rank 3"),
        (
            "_src/ops/a.py",
            "def f():\n    from flambeau._src.loops import x  # lazy: cheap\n",
            "upward, from rank 3 to 5",
        ),
        ("_src/core/a.py", "import flambeau\n", "the engine may not use the public API"),
        ("_src/export/a.py", "from flambeau import nn\n", "upward, from rank 9 to 10"),
        (
            "_src/core/a.py",
            "import importlib\nm = importlib.import_module('flambeau._src.ops.op')\n",
            "upward, from rank 1 to 3",
        ),
        ("_src/novel/a.py", "x = 1\n", "its folder has no rank"),
        ("nn/a.py", "from flambeau._src.compiler import driver\n", "rank 8 is above 6"),
        ("nn/a.py", "from flambeau import jit\n", "rank 11 is above 6"),
    ],
)
def test_rank_violation(tmp_path, name, text, complaint):
    modules = plant(
        tmp_path,
        {
            f"flambeau/{name}": text,
            "flambeau/_src/ops/__init__.py": "",
            "flambeau/nn/__init__.py": "",
            "flambeau/jit/__init__.py": "",
        },
    )
    found = checker.check_ranks(modules)
    assert len(found) == 1 and complaint in found[0], found


def test_cycle(tmp_path):
    modules = plant(
        tmp_path,
        {
            "flambeau/_src/core/a.py": "from flambeau._src.core import b\n",
            "flambeau/_src/core/b.py": "from . import c\n",
            "flambeau/_src/core/c.py": "def f():\n    from .a import x  # lazy: really\n",
            "flambeau/nn/__init__.py": "from flambeau.optim import sgd\n",
            "flambeau/optim/sgd.py": "from flambeau import nn\n",
        },
    )
    assert checker.check_cycles(modules) == [
        "flambeau._src.core.a -> flambeau._src.core.b -> flambeau._src.core.c -> "
        "flambeau._src.core.a",
        "flambeau.nn -> flambeau.optim.sgd -> flambeau.nn",
    ]


@pytest.mark.parametrize(
    "statement",
    [
        "import numpy",
        "import numpy  # noqa: F401",
        "from a import (\n        b,\n        c,\n    )",
    ],
)
def test_local_import_without_reason(tmp_path, statement):
    modules = plant(tmp_path, {"flambeau/_src/core/a.py": f"def f():\n    {statement}\n"})
    assert checker.check_local_imports(modules) == [
        "flambeau._src.core.a:2: local import without a reason comment"
    ]


def test_one_reason_serves_a_block_of_local_imports(tmp_path):
    text = "def f():\n    import a  # lazy: heavy\n    import b\n    x = 1\n    import c\n"
    modules = plant(tmp_path, {"flambeau/_src/core/a.py": text})
    assert checker.check_local_imports(modules) == [
        "flambeau._src.core.a:5: local import without a reason comment"
    ]


@pytest.mark.parametrize(
    ("check", "text", "complaint"),
    [
        ("check_globals", "def f():\n    global x\n", "global x"),
        ("check_environment", "import os\nx = os.environ['A']\n", "os.environ outside"),
        ("check_environment", "import os\nx = os.getenv('A')\n", "os.getenv outside"),
        ("check_environment", "from os import environ\n", "os.environ outside"),
    ],
)
def test_forbidden_statement(tmp_path, check, text, complaint):
    modules = plant(tmp_path, {"flambeau/nn/a.py": text, "flambeau/_src/util/config.py": ""})
    found = getattr(checker, check)(modules)
    assert len(found) == 1 and complaint in found[0]


@pytest.mark.parametrize(
    "text",
    ["import torch\n", "from torch.nn import functional\n", "__import__('torch')\n"],
)
def test_torch(tmp_path, text):
    modules = plant(tmp_path, {"flambeau/nn/a.py": text})
    assert len(checker.check_torch(modules, tmp_path)) == 1


@pytest.mark.parametrize("name", ["utils.py", "helpers.py", "misc.py"])
def test_empty_names(tmp_path, name):
    modules = plant(tmp_path, {f"flambeau/_src/core/{name}": "", "flambeau/utils/a.py": ""})
    assert len(checker.check_names(modules)) == 1


def test_lengths(tmp_path, monkeypatch):
    long_method = "class C:\n    def f():\n" + "        x = 1\n" * ranks.FUNCTION_LINES
    files = {
        "flambeau/_src/core/a.py": "x = 1\n" * (ranks.FILE_LINES + 1),
        "flambeau/_src/core/b.py": long_method,
        "flambeau/jit/__init__.py": "x = 1\n" * (ranks.FACADE_LINES + 1),
        "flambeau/csrc/a.c": "int x;\n" * (ranks.FILE_LINES + 1),
    }
    modules = plant(tmp_path, files)
    found = sorted(checker.check_lengths(modules, tmp_path))
    assert [text.split(":")[0] for text in found] == sorted(files)
    assert "flambeau/_src/core/b.py::C.f: 101 lines, over 100" in found
    monkeypatch.setattr(ranks, "LONG_FILES", {"flambeau/_src/core/a.py": "a table", "gone.py": ""})
    monkeypatch.setattr(ranks, "LONG_FUNCTIONS", {"flambeau/_src/core/b.py::C.f": "a table"})
    found = checker.check_lengths(modules, tmp_path)
    assert len(found) == 3 and found[-1] == "gone.py: listed as too long, but is not"


def test_readmes(tmp_path):
    plant(
        tmp_path,
        {
            "flambeau/_src/core/a.py": "",
            "flambeau/_src/ops/a.py": "",
            "flambeau/_src/ops/README.md": "line\n" * (ranks.README_LINES + 1),
            "flambeau/_src/util/a.py": "",
            "flambeau/_src/util/README.md": "line\n",
        },
    )
    assert checker.check_readmes(tmp_path) == [
        "flambeau/_src/core: no README.md",
        f"flambeau/_src/ops/README.md: {ranks.README_LINES + 1} lines, over {ranks.README_LINES}",
    ]


def test_machine_paths(tmp_path):
    (tmp_path / "build").mkdir()
    bad = "/wo" + "rk"
    (tmp_path / "build" / "x.txt").write_text(f"{bad}/main")
    (tmp_path / "a.md").write_text("fine: a/tm" + "p, $X/tm" + f"p/y\nsee {bad}/shared/x\n")
    (tmp_path / "Makefile").write_text("cd /tm" + "p\n")
    (tmp_path / "b.bin").write_bytes(b"\0" + bad.encode())
    assert checker.check_machine_paths(tmp_path) == [
        "Makefile:1: names /tm" + "p",
        f"a.md:2: names {bad}",
    ]
