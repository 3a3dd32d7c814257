"""Sequential, lists and dicts of modules and parameters."""

from __future__ import annotations

from collections import OrderedDict

import pytest

import flambeau as torch
from flambeau import nn


def names(modules):
    return [type(m).__name__ for m in modules]


def test_sequential():
    net = nn.Sequential(nn.ReLU(), nn.Tanh())
    assert names(net[1:]) == ["Tanh"] and isinstance(net[-1], nn.Tanh) and len(net) == 2
    net.insert(1, nn.ELU()).append(nn.SELU()).extend([nn.CELU()])
    assert names(net) == ["ReLU", "ELU", "Tanh", "SELU", "CELU"]
    del net[1:3]
    assert list(net._modules) == ["0", "1", "2"] and isinstance(net.pop(0), nn.ReLU)
    assert names(net + net) == names(net * 2) == ["SELU", "CELU"] * 2
    named = nn.Sequential(OrderedDict(first=nn.ReLU()))
    assert isinstance(named.first, nn.ReLU)
    with pytest.raises(IndexError, match="index 9 is out of range"):
        _ = net[9]
    with pytest.raises(TypeError, match="int is not a Module subclass"):
        nn.Sequential(3)


def test_module_list():
    modules = nn.ModuleList(nn.Linear(2, 2) for _ in range(3))
    modules += [nn.ReLU()]
    assert repr(modules) == (
        "ModuleList(\n  (0-2): 3 x Linear(in_features=2, out_features=2, bias=True)\n"
        "  (3): ReLU()\n)"
    )
    modules.insert(0, nn.Tanh())
    del modules[1:4]
    assert names(modules) == ["Tanh", "ReLU"] and names(modules[:1]) == ["Tanh"]
    assert repr(nn.ModuleList()) == "ModuleList()"
    with pytest.raises(TypeError, match=r"ModuleList\.extend should be called with an iterable"):
        modules.extend(3)


def test_module_dict():
    modules = nn.ModuleDict({"a": nn.ReLU(), "b": nn.Tanh()})
    modules.update([("c", nn.ELU())])
    assert list(modules) == ["a", "b", "c"] and "b" in modules and len(modules) == 3
    assert isinstance(modules.pop("a"), nn.ReLU) and list(modules.keys()) == ["b", "c"]
    with pytest.raises(KeyError, match="attribute 'keys' already exists"):
        nn.ModuleDict({"keys": nn.ReLU()})


def test_parameter_list():
    values = nn.ParameterList([torch.ones(2), 3])
    assert isinstance(values[0], nn.Parameter) and values[1] == 3 and len(values) == 2
    values.append(torch.zeros(1)).extend([torch.ones(2, 2)])
    assert [name for name, _ in values.named_parameters()] == ["0", "2", "3"]
    assert repr(values) == (
        "ParameterList(\n    (0): Parameter containing: [torch.float32 of size 2]\n"
        "    (1): Object of type: int\n"
        "    (2): Parameter containing: [torch.float32 of size 1]\n"
        "    (3): Parameter containing: [torch.float32 of size 2x2]\n)"
    )
    with pytest.raises(RuntimeError, match="ParameterList should not be called"):
        values()


def test_parameter_dict():
    values = nn.ParameterDict({"b": torch.ones(2), "a": 3})
    assert list(values) == ["a", "b"] and values.get("x", 5) == 5
    assert list((values | nn.ParameterDict({"c": torch.ones(1)})).keys()) == ["a", "b", "c"]
    assert values.setdefault("d", torch.ones(1)) is values["d"]
    key, value = values.popitem()
    assert key == "d" and value.shape == (1,) and "d" not in values
    del values["b"]
    assert list(values.items()) == [("a", 3)]
