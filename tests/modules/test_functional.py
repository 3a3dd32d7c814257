"""Functional forms: arguments, errors, what `__torch_function__` is shown."""

from __future__ import annotations

import pickle

import pytest

import flambeau as torch
import flambeau.nn.functional as F

X = torch.arange(6.0).view(2, 3)


def test_names_belong_to_the_module():
    for fn in (F.relu, F.cross_entropy, F.max_pool2d, F.multi_head_attention_forward):
        assert fn.__module__ == "flambeau.nn.functional"
        assert pickle.loads(pickle.dumps(fn)) is fn


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: F.dropout(X, 2.0), ValueError, "has to be between 0 and 1, but got 2.0"),
        (lambda: F.glu(torch.tensor(1.0)), RuntimeError, "glu does not support scalars"),
        (lambda: F.hardtanh(X, 3, 2), ValueError, "min_val cannot be greater than max_val"),
        (
            lambda: F.batch_norm(X[:1], None, None, training=True),
            ValueError,
            "Expected more than 1 value per channel when training",
        ),
        (
            lambda: F.embedding(torch.tensor([0]), X, padding_idx=2),
            AssertionError,
            "Padding_idx must be within num_embeddings",
        ),
        (
            lambda: F.nll_loss(X, torch.tensor([0, 1]), reduction="foo"),
            ValueError,
            "foo is not a valid value for reduction",
        ),
        (
            lambda: F.binary_cross_entropy(X, X[0]),
            ValueError,
            "Using a target size .* that is different to the input size",
        ),
        (
            lambda: F.interpolate(X[None], size=2, scale_factor=2),
            ValueError,
            "only one of size or scale_factor should be defined",
        ),
        (
            lambda: F.interpolate(X[None], size=2, mode="bilinear"),
            NotImplementedError,
            "Got 3D input, but bilinear mode needs 4D input",
        ),
        (
            lambda: F.triplet_margin_loss(X, X, X, margin=0),
            ValueError,
            "margin must be greater than 0, got 0",
        ),
        (
            lambda: F.adaptive_avg_pool2d(X, (1, 1)),
            ValueError,
            "Input dimension should be at least 3",
        ),
    ],
)
def test_errors(call, error, text):
    with pytest.raises(error, match=text):
        call()


def test_warnings():
    with pytest.warns(UserWarning, match="Implicit dimension choice for softmax"):
        assert torch.equal(F.softmax(X), X.softmax(1))
    with pytest.warns(UserWarning, match="please use reduction='sum' instead"):
        F.nll_loss(X, torch.tensor([0, 1]), size_average=False)
    with pytest.warns(UserWarning, match="This will likely lead to incorrect results"):
        F.mse_loss(X, X[0])


def test_pooling_returns_indices_on_demand():
    image = torch.arange(16.0).view(1, 1, 4, 4)
    values, indices = F.max_pool2d(image, 2, return_indices=True)
    assert torch.equal(values, F.max_pool2d(image, 2))
    assert indices.flatten().tolist() == [5, 7, 13, 15]


def test_weighted_losses():
    weight = torch.ones(2, 3)
    weight[0] = 3
    error = (X - 1).pow(2)
    mean = F.mse_loss(X, torch.ones(2, 3), weight=weight)
    assert torch.allclose(mean, (error * weight).sum() / weight.sum())
    with pytest.raises(ValueError, match="Weights and input must have the same size"):
        F.l1_loss(X, X, weight=weight[0])


class Recorder(torch.Tensor):
    calls: list = []

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        cls.calls.append((func, len(args), sorted(kwargs or {})))
        return super().__torch_function__(func, types, args, kwargs or {})


def test_torch_function_sees_the_functional_form():
    x = X.clone().as_subclass(Recorder)
    Recorder.calls.clear()
    F.relu(x)
    F.cross_entropy(x, torch.tensor([0, 1]))
    F.smooth_l1_loss(x, X, reduction="sum")
    seen = [call for call in Recorder.calls if call[0].__module__ == "flambeau.nn.functional"]
    assert seen[0] == (F.relu, 1, ["inplace"])
    assert seen[1][:2] == (F.cross_entropy, 2) and "label_smoothing" in seen[1][2]
    smooth = ["beta", "reduce", "reduction", "size_average"]
    assert seen[2] == (F.smooth_l1_loss, 2, smooth)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.int64, torch.bool])
def test_margin_losses_have_two_dtypes(dtype: torch.dtype) -> None:
    x = torch.ones(2, 3).to(dtype)
    name = {"bfloat16": "BFloat16", "float16": "Half", "int64": "Long", "bool": "Bool"}[
        str(dtype).partition(".")[2]
    ]
    text = f"not implemented for '{name}'"
    with pytest.raises(NotImplementedError, match=f'"multi_margin_loss_cpu_kernel" {text}'):
        F.multi_margin_loss(x, torch.tensor([0, 1]), weight=torch.ones(3))
    kernel = "multilabel_margin_loss_forward_out_frame"
    with pytest.raises(NotImplementedError, match=f'"{kernel}" {text}'):
        F.multilabel_margin_loss(x, torch.tensor([[0, -1, 0]] * 2))
    assert F.multi_margin_loss(x[:0], torch.tensor([0, 1])[:0], reduction="none").shape == (0,)
