"""`import torch` gives flambeau: in programs, in their children, and in environments."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]


def run(*arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    """The result of a Python process in whose search path flambeau is."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **options.pop("env", {})}
    return subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        env=environment,
        **options,
    )


def output(*arguments: str, **options: Any) -> str:
    done = run(*arguments, **options)
    assert done.returncode == 0, done.stderr
    return done.stdout


def program(path: Path, text: str) -> str:
    path.write_text(textwrap.dedent(text))
    return str(path)


def test_one_module_object_for_two_names(tmp_path: Path) -> None:
    script = program(
        tmp_path / "names.py",
        """
        import sys
        import torch
        import torch.nn.functional as F
        from torch.optim.lr_scheduler import StepLR
        from torch import nn
        import flambeau
        import flambeau.utils.data
        import torch.utils.data
        assert flambeau is torch
        assert flambeau.nn is torch.nn is nn
        assert sys.modules["torch.nn.functional"] is sys.modules["flambeau.nn.functional"] is F
        assert flambeau.utils.data.DataLoader is torch.utils.data.DataLoader
        assert StepLR.__module__ == "torch.optim.lr_scheduler"
        assert nn.Linear.__module__ == "torch.nn.modules.linear"
        assert nn.__name__ == "torch.nn"
        print(sys.argv[1:], __name__, __file__)
        """,
    )
    assert output("-m", "flambeau", script, "a", "--b") == f"['a', '--b'] __main__ {script}\n"
    assert output("-m", "flambeau", "run", script) == f"[] __main__ {script}\n"


def test_what_packages_ask_for() -> None:
    code = """
    import importlib.metadata, importlib.util
    assert importlib.util.find_spec("torch") is not None
    assert importlib.metadata.version("torch") == "2.13.0"
    import torch
    assert importlib.util.find_spec("torch.nn") is not None
    assert importlib.util.find_spec("torch.nonsense") is None
    assert torch.__version__.split("+")[0] == "2.13.0"
    assert torch.__file__ and torch.__path__ and torch.__spec__
    assert not hasattr(torch, "nonsense")
    try:
        torch.nonsense
    except AttributeError as error:
        assert str(error) == "module 'torch' has no attribute 'nonsense'", error
    try:
        import torch.nonsense
    except ModuleNotFoundError as error:
        assert str(error) == "No module named 'torch.nonsense'", error
    print("done")
    """
    assert output("-m", "flambeau", "-c", textwrap.dedent(code)) == "done\n"


def test_modules_and_code(tmp_path: Path) -> None:
    program(tmp_path / "mine.py", "import sys, torch; print(torch.__name__, sys.argv[1:])")
    assert output("-m", "flambeau", "-m", "mine", "x", cwd=tmp_path) == "torch ['x']\n"
    assert output("-m", "flambeau", "-c", "import torch; print(torch.__name__)") == "torch\n"


def test_exit_status_and_usage(tmp_path: Path) -> None:
    assert run("-m", "flambeau", "-c", "import sys; sys.exit(7)").returncode == 7
    assert "usage: flambeau" in output("-m", "flambeau", "--help")
    assert run("-m", "flambeau", "run").returncode == 2
    assert run("-m", "flambeau", "-c").returncode == 2
    assert "2.13.0" in output("-m", "flambeau", "--version")
    assert "No such file" in run("-m", "flambeau", str(tmp_path / "none.py")).stderr


def test_flags_of_the_interpreter_are_kept() -> None:
    code = "import sys; print(sys.flags.optimize, sys.flags.dev_mode)"
    assert output("-O", "-X", "dev", "-m", "flambeau", "-c", code) == "1 True\n"


def test_isolated_interpreter(tmp_path: Path) -> None:
    script = program(
        tmp_path / "s.py", "import sys, torch; print(torch.__name__, sys.argv[1:], __name__)"
    )
    code = (
        f"import sys; sys.path.insert(0, {str(ROOT)!r}); sys.argv = ['flambeau', {script!r}, 'x'];"
        "from flambeau.__main__ import main; sys.exit(main())"
    )
    # flambeau was there before the alias, and keeps its name.
    assert output("-I", "-c", code) == "flambeau ['x'] __main__\n"


def test_children(tmp_path: Path) -> None:
    script = program(
        tmp_path / "children.py",
        """
        import multiprocessing, subprocess, sys
        import torch

        def child(queue):
            import torch, flambeau
            queue.put((torch is flambeau, torch.nn.Linear.__module__))

        def loaded(module):
            return type(module).__module__

        if __name__ == "__main__":
            for method in ("fork", "spawn"):
                context = multiprocessing.get_context(method)
                queue = context.SimpleQueue()
                process = context.Process(target=child, args=(queue,))
                process.start()
                print(method, *queue.get())
                process.join()
                with context.Pool(1) as pool:
                    print(pool.apply(loaded, (torch.nn.Linear(1, 1),)))
            code = "import torch; print(torch.__name__)"
            print(subprocess.check_output([sys.executable, "-c", code], text=True).strip())
        """,
    )
    assert (
        output("-m", "flambeau", script).split()
        == (
            "fork True torch.nn.modules.linear torch.nn.modules.linear "
            "spawn True torch.nn.modules.linear torch.nn.modules.linear torch"
        ).split()
    )


def test_checkpoints_and_pickles_under_the_alias(tmp_path: Path) -> None:
    code = f"""
    import io, pickle, torch, zipfile
    x = torch.arange(3.0)
    data = pickle.dumps([x, torch.nn.Linear(1, 1)])
    assert b"flambeau" not in data and b"torch" in data
    assert pickle.loads(data)[0].tolist() == [0, 1, 2]
    torch.save({{"x": x, "m": torch.nn.Linear(1, 1)}}, {str(tmp_path / "x.pt")!r})
    pickled = zipfile.ZipFile({str(tmp_path / "x.pt")!r}).read("x/data.pkl")
    assert b"torch FloatStorage".replace(b" ", b"\\n") in pickled and b"flambeau" not in pickled
    assert torch.load({str(tmp_path / "x.pt")!r}, weights_only=False)["x"].tolist() == [0, 1, 2]
    print("done")
    """
    assert output("-m", "flambeau", "-c", textwrap.dedent(code)) == "done\n"


def test_alias_of_a_loaded_package() -> None:
    code = (
        "import flambeau, flambeau.optim\n"
        "from flambeau._alias import activate\n"
        "activate()\n"
        "import torch, torch.optim, torch.nn\n"
        "import importlib.metadata as m\n"
        "print(torch is flambeau, torch.optim is flambeau.optim, m.version('torch'))\n"
    )
    assert output("-c", code) == "True True 2.13.0\n"


@pytest.fixture
def environment(tmp_path: Path) -> Path:
    root = tmp_path / "env"
    subprocess.run(
        [sys.executable, "-m", "venv", "--without-pip", str(root)], check=True, timeout=60
    )
    return root


def test_alias_in_an_environment(environment: Path) -> None:
    python = str(environment / "bin" / "python")
    made = run("-m", "flambeau", "alias", "--prefix", str(environment))
    assert made.returncode == 0, made.stderr
    assert "'import torch' finds flambeau" in made.stdout
    code = "import torch, importlib.metadata as m; print(torch.__name__, m.version('torch'))"
    numpy_home = str(Path(__import__("numpy").__file__).parents[1])
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), numpy_home])}
    done = subprocess.run([python, "-c", code], capture_output=True, text=True, env=env)
    assert done.stdout == "torch 2.13.0\n", done.stderr
    # Where flambeau is not, the text says so.
    env["PYTHONPATH"] = ""
    done = subprocess.run(
        [python, "-c", code], capture_output=True, text=True, env=env, cwd=environment
    )
    assert "which is not installed" in done.stderr
    removed = run("-m", "flambeau", "alias", "--remove", "--prefix", str(environment))
    assert removed.returncode == 0
    assert not list(environment.rglob("torch*"))
    again = run("-m", "flambeau", "alias", "--remove", "--prefix", str(environment))
    assert again.returncode == 1
    assert "has no alias" in again.stderr


def test_alias_is_refused_beside_pytorch(environment: Path) -> None:
    packages = next(environment.rglob("site-packages"))
    (packages / "torch").mkdir()
    (packages / "torch-2.4.0.dist-info").mkdir()
    done = run("-m", "flambeau", "alias", "--prefix", str(environment))
    assert done.returncode == 1
    assert "this environment has PyTorch" in done.stderr
    assert "python -m flambeau program.py" in done.stderr
    assert not list((packages / "torch").iterdir())


def test_progress_bar(capsys: Any) -> None:
    from flambeau.utils.progress import Bar, track

    bar = Bar(total=4, unit="token", each=10, pause=0)
    for loss in (3.0, 2.0):
        bar.update(loss=loss)
    bar.close()
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2
    assert lines[0].startswith("1/4  loss 3  ")
    assert "token/s" in lines[1]
    assert list(track(range(3), pause=0)) == [0, 1, 2]
    assert capsys.readouterr().err.splitlines()[-1].startswith("3/3")


def test_functorch_beside_torch(tmp_path: Path) -> None:
    """The package that PyTorch 2.13 still installs: its functions warn, and name successors."""
    file = tmp_path / "program.py"
    file.write_text(
        textwrap.dedent(
            """
            import warnings, functorch, torch
            x = torch.ones(2, 3)
            with warnings.catch_warnings(record=True) as told:
                warnings.simplefilter("always")
                g = functorch.vmap(functorch.grad(lambda v: (v * v).sum()))(x)
            assert g.tolist() == [[2.0] * 3] * 2
            assert [w.category for w in told] == [FutureWarning] * 2
            assert "`functorch.vmap` is deprecated" in str(told[1].message)
            assert "use `torch.vmap` instead" in str(told[1].message)
            warnings.simplefilter("ignore")
            net = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2))
            f, params, buffers = functorch.make_functional_with_buffers(net)
            assert torch.equal(f(params, buffers, x), net(x)) and len(buffers) == 3
            f, params = functorch.make_functional(net[0], disable_autograd_tracking=True)
            assert not params[0].requires_grad and f.param_names == ("weight", "bias")
            f, params, buffers = functorch.combine_state_for_ensemble([net[0]] * 3)
            assert functorch.vmap(f, in_dims=(0, 0, None))(params, buffers, x).shape == (3, 2, 2)
            try:
                functorch.make_functional(net)
            except RuntimeError as error:
                print(error)
            print(functorch.__version__ == torch.__version__)
            """
        )
    )
    result = run("-m", "flambeau", str(file))
    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines() == [
        "make_functional(model): `model` has buffers. Please use "
        "make_functional_with_buffers(model) instead.",
        "True",
    ]
