"""`nn.utils`: clipping, packing, parametrisation, pruning; values recorded from PyTorch 2.13."""

from __future__ import annotations

import copy

import pytest

import flambeau as torch
from flambeau import nn
from flambeau.nn import utils
from flambeau.nn.utils import parametrize, prune, rnn, stateless

X = [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]


def linear_with_grads():
    torch.manual_seed(1)
    net = nn.Linear(3, 2)
    net(torch.tensor(X)).pow(2).sum().backward()
    return net


def test_clip_grad_norm():
    net = linear_with_grads()
    norm = utils.clip_grad_norm_(net.parameters(), 0.5)
    assert norm.item() == pytest.approx(18.1226, abs=1e-4)
    expected = [-0.1333, -0.2107, -0.28811, 0.10988, 0.17093, 0.23199]
    assert net.weight.grad.flatten().tolist() == pytest.approx(expected, abs=1e-5)
    assert utils.clip_grad_norm_([], 1.0).item() == 0
    net.weight.grad.fill_(float("nan"))
    with pytest.raises(RuntimeError, match=r"The total norm of order 2\.0 for gradients"):
        utils.clip_grad_norm_(net.parameters(), 1.0, error_if_nonfinite=True)


def test_clip_grad_value():
    net = linear_with_grads()
    utils.clip_grad_value_(net.weight, 0.5)
    assert net.weight.grad.flatten().tolist() == [-0.5] * 3 + [0.5] * 3


def test_vectors():
    net = nn.Linear(3, 2)
    utils.vector_to_parameters(torch.arange(8.0), net.parameters())
    assert net.weight.tolist() == X
    assert utils.parameters_to_vector(net.parameters()).tolist() == list(range(8))


def test_packing():
    padded = torch.arange(12.0).view(2, 3, 2)
    packed = rnn.pack_padded_sequence(padded, [2, 3], batch_first=True, enforce_sorted=False)
    assert packed.data.tolist() == [[6, 7], [0, 1], [8, 9], [2, 3], [10, 11]]
    assert packed.batch_sizes.tolist() == [2, 2, 1]
    assert packed.sorted_indices.tolist() == [1, 0]
    back, lengths = rnn.pad_packed_sequence(packed, batch_first=True, padding_value=7.0)
    assert lengths.tolist() == [2, 3]
    assert back[0].tolist() == [[0, 1], [2, 3], [7, 7]] and torch.equal(back[1], padded[1])
    with pytest.raises(RuntimeError, match="`lengths` array must be sorted in decreasing order"):
        rnn.pack_padded_sequence(padded, [2, 3], batch_first=True)
    left = rnn.pad_sequence([torch.ones(1), torch.ones(2)], padding_side="left")
    assert left.tolist() == [[0, 1], [1, 1]]


def test_packed_network():
    torch.manual_seed(1)
    net = nn.GRU(2, 3, bidirectional=True)
    sequences = [torch.ones(2, 2), torch.ones(4, 2), torch.zeros(1, 2)]
    packed, last = net(rnn.pack_sequence(sequences, enforce_sorted=False))
    expected = [-0.29949, 0.17485, 0.06071, 0.17631, 0.24203, 0.1673]
    assert packed.data.flatten()[:6].tolist() == pytest.approx(expected, abs=2e-5)
    outputs, _ = rnn.pad_packed_sequence(packed)
    for i, sequence in enumerate(sequences):  # each alone gives the same
        alone, state = net(sequence)
        assert torch.allclose(outputs[: len(sequence), i], alone, atol=1e-6)
        assert torch.allclose(last[:, i], state, atol=1e-6)


class Exp(nn.Module):
    def forward(self, x):
        return x.exp()

    def right_inverse(self, x):
        return x.log()


def test_parametrize():
    net = nn.LayerNorm(2)
    weight = net.weight
    parametrize.register_parametrization(net, "weight", Exp())
    assert net.parametrizations.weight.original is weight and weight.tolist() == [0, 0]
    assert net.weight.tolist() == [1, 1] and type(net).__name__ == "ParametrizedLayerNorm"
    net.weight = torch.full((2,), 3.0)
    assert net.weight.tolist() == pytest.approx([3, 3])
    assert list(net.state_dict()) == ["bias", "parametrizations.weight.original"]
    twin = copy.deepcopy(net)
    twin.weight = torch.ones(2)
    assert net.weight.tolist() == pytest.approx([3, 3])
    with parametrize.cached():
        assert net.weight is net.weight
    assert net.weight is not net.weight
    parametrize.remove_parametrizations(net, "weight")
    assert net.weight is weight and type(net) is nn.LayerNorm
    with pytest.raises(ValueError, match="may not change the shape of the tensor"):
        parametrize.register_parametrization(net, "weight", Half())


class Half(nn.Module):
    def forward(self, x):
        return x[:1]


def test_functional_call():
    torch.manual_seed(1)
    net = nn.Linear(3, 2)
    before = net.weight
    out = stateless._functional_call(net, {"weight": torch.ones(2, 3)}, torch.tensor(X))
    expected = [2.88122, 3.29372, 11.88122, 12.29372]
    assert out.flatten().tolist() == pytest.approx(expected, abs=1e-5) and net.weight is before
    with pytest.raises(RuntimeError, match=r"Unexpected key\(s\): 'foo'"):
        stateless._functional_call(net, {"foo": before}, torch.tensor(X), strict=True)
    tied = nn.Sequential(nn.Linear(2, 2))
    tied.add_module("1", tied[0])
    ones = {"0.weight": torch.eye(2), "0.bias": torch.ones(2)}
    assert stateless._functional_call(tied, ones, torch.zeros(1, 2)).tolist() == [[2, 2]]


def test_prune():
    torch.manual_seed(1)
    net = prune.l1_unstructured(nn.Linear(3, 2), "weight", 0.5)
    assert net.weight_mask.tolist() == [[1, 0, 0], [0, 1, 1]] and prune.is_pruned(net)
    expected = [-0.11878, 0.44268, 0.77369, -0.1492]
    assert net(torch.tensor(X)).flatten().tolist() == pytest.approx(expected, abs=1e-5)
    prune.remove(net, "weight")
    assert list(net.state_dict()) == ["bias", "weight"] and (net.weight == 0).sum() == 3


def test_fusion_and_skip_init():
    conv, norm = nn.Conv2d(2, 3, 2).eval(), nn.BatchNorm2d(3).eval()
    norm.running_mean.fill_(0.5)
    norm.running_var.fill_(2.0)
    x = torch.rand(1, 2, 3, 3)
    fused = utils.fuse_conv_bn_eval(conv, norm)
    assert torch.allclose(fused(x), norm(conv(x)), atol=1e-6)
    assert utils.skip_init(nn.Linear, 2, 3).weight.shape == (3, 2)
