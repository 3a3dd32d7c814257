"""The toy of the whole stack runs, compiles and learns."""

import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "docs" / "inside_flambeau.py"


@pytest.fixture(scope="module")
def inside():
    spec = importlib.util.spec_from_file_location("inside_flambeau", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    sys.modules["inside_flambeau"] = module  # dataclasses look there
    spec.loader.exec_module(module)
    yield module
    del sys.modules["inside_flambeau"]


def test_the_script():
    run = subprocess.run(
        [sys.executable, str(SCRIPT)], capture_output=True, text=True, timeout=120, check=True
    )
    said = [line for line in run.stdout.split("\n") if line.startswith("## ")]
    assert said[0].startswith("## eager: loss 0.7")
    if shutil.which("cc") or shutil.which("gcc") or shutil.which("clang"):
        assert "static void k_" in run.stdout and "def program(x, y, w1" in run.stdout
        differ = next(line for line in said if "differ from the eager" in line)
        assert float(differ.split(" by ")[1].split()[0]) < 1e-5
        assert float(said[-1].rpartition(" ")[2]) > 0.98


def test_gradients_are_right(inside):
    rng = np.random.default_rng(0)
    inputs = {
        "x": rng.normal(size=(3, 2)),
        "w": rng.normal(size=(2, 4)),
        "b": rng.normal(size=(1, 4)),
    }

    def loss_of(x, w, b):
        h = inside.tanh(x @ w + b)
        return (inside.log(1.0 + inside.exp(h)) * h / (2.0 + inside.relu(h))).sum()

    def numeric(name, index, step=1e-2):
        values = []
        for sign in (1, -1):
            moved = {k: v.copy() for k, v in inputs.items()}
            moved[name][index] += sign * step
            out = loss_of(**{k: inside.Tensor.of(v) for k, v in moved.items()})
            values.append(float(out.numpy().sum()))
        return (values[0] - values[1]) / (2 * step)

    tensors = {k: inside.Tensor.of(v) for k, v in inputs.items()}
    for t in tensors.values():
        t.requires_grad = True
    with inside.active(inside.Recording()):
        loss = loss_of(**tensors)
    grads = inside.gradients(loss, list(tensors.values()))
    for (name, value), grad in zip(inputs.items(), grads, strict=True):
        assert grad.shape == value.shape
        for index in np.ndindex(value.shape):
            assert abs(grad.numpy()[index] - numeric(name, index)) < 2e-3


def test_a_write_is_noticed(inside):
    x = inside.Tensor.of([[1.0, 2.0]])
    x.requires_grad = True
    with inside.active(inside.Recording()):
        loss = (x * x).sum()
    x.numpy()[...] = 5
    x.storage.version += 1
    with pytest.raises(RuntimeError, match="modified in place"):
        inside.gradients(loss, [x])


def test_views_share_bytes(inside):
    x = inside.Tensor.of([[1.0, 2.0, 3.0]])
    y = x.t()
    y.numpy()[1, 0] = 9
    assert y.shape == (3, 1) and x.numpy()[0, 1] == 9 and y.storage is x.storage


@pytest.mark.skipif(not (shutil.which("cc") or shutil.which("gcc")), reason="no C compiler")
def test_guards_recompile(inside):
    fn = inside.Compiled(lambda x: [inside.exp(x) + x.t().sum(0)], show=False)
    for rows in (2, 2, 3):
        x = inside.Tensor.of(np.arange(rows * rows).reshape(rows, rows) / 10)
        expected = np.exp(x.numpy()) + x.numpy().T.sum(0, keepdims=True)
        assert np.allclose(fn(x=x)[0].numpy(), expected)
    assert len(fn.entries) == 2
