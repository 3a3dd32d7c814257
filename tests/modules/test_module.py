"""`Module`: registration, finding, conversion, hooks, state dicts, copies."""

from __future__ import annotations

import copy
import pickle
import warnings
from collections import OrderedDict

import pytest

import flambeau as torch
from flambeau import nn
from flambeau.nn.modules import _mutation
from flambeau.nn.modules.module import (
    register_module_forward_hook,
    register_module_full_backward_hook,
)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(2, 3)
        self.norm = nn.BatchNorm1d(3)
        self.scale = nn.Parameter(torch.ones(1))
        self.register_buffer("table", torch.arange(3.0), persistent=False)

    def forward(self, x, factor=1.0):
        return self.norm(self.fc(x)) * self.scale * factor


def test_registration():
    net = Net()
    names = ["scale", "fc.weight", "fc.bias", "norm.weight", "norm.bias"]
    assert [name for name, _ in net.named_parameters()] == names
    assert [name for name, _ in net.named_buffers()] == [
        "table",
        "norm.running_mean",
        "norm.running_var",
        "norm.num_batches_tracked",
    ]
    assert [name for name, _ in net.named_modules()] == ["", "fc", "norm"]
    net.fc = None
    assert net.fc is None and [name for name, _ in net.named_children()] == ["norm"]
    net.scale = None
    assert list(net._parameters) == ["scale"] and net.scale is None
    net.table = nn.Parameter(torch.ones(2))
    assert "table" in net._parameters and "table" not in net._buffers
    del net.norm
    with pytest.raises(AttributeError, match="'Net' object has no attribute 'norm'"):
        _ = net.norm
    assert type(nn.Module) is type


@pytest.mark.parametrize(
    ("act", "error", "text"),
    [
        (lambda m: m.register_parameter("a.b", None), KeyError, "parameter name can.*t contain"),
        (lambda m: m.register_parameter("", None), KeyError, "can.*t be empty string"),
        (lambda m: m.register_buffer("forward", None), KeyError, "'forward' already exists"),
        (lambda m: m.add_module("x", 3), TypeError, "int is not a Module subclass"),
        (
            lambda m: setattr(m, "weight", torch.ones(1)),
            TypeError,
            r"as parameter 'weight' \(torch.nn.Parameter or None expected\)",
        ),
        (lambda m: m.get_submodule("x"), AttributeError, "Linear has no attribute `x`"),
        (lambda m: m.get_parameter("in_features"), AttributeError, "is not an nn.Parameter"),
        (lambda m: m.train(1), ValueError, "training mode is expected to be boolean"),
        (lambda m: m.to(torch.int32), TypeError, "only accepts floating point or complex"),
        (lambda m: nn.Module()(1), NotImplementedError, 'missing the required "forward"'),
        (lambda m: nn.Module(1), TypeError, "takes 1 positional argument but 2 were given"),
    ],
)
def test_errors(act, error, text):
    with pytest.raises(error, match=text):
        act(nn.Linear(2, 2))


def test_before_init():
    class Early(nn.Module):
        def __init__(self, value):
            self.value = value

    for value, what in ((nn.Parameter(torch.ones(1)), "parameters"), (nn.ReLU(), "module")):
        with pytest.raises(AttributeError, match=f"cannot assign {what} before Module.__init__"):
            Early(value)
    assert Early(3).value == 3


def test_shared_modules_are_visited_once():
    layer = nn.Linear(2, 2)
    net = nn.Sequential(layer, layer)
    assert len(list(net.parameters())) == 2
    assert len(list(net.named_parameters(remove_duplicate=False))) == 4
    assert [name for name, _ in net.named_modules(remove_duplicate=False)] == ["", "0", "1"]


def test_state_dict_roundtrip():
    torch.manual_seed(0)
    net, other = Net(), Net()
    state = net.state_dict()
    assert isinstance(state, OrderedDict) and "table" not in state
    assert state._metadata["norm"] == {"version": 2}
    result = other.load_state_dict(state)
    assert repr(result) == "<All keys matched successfully>"
    assert torch.equal(other.fc.weight, net.fc.weight)
    assert other.fc.weight.requires_grad and not state["fc.weight"].requires_grad
    state["fc.weight"].zero_()
    assert net.fc.weight.abs().sum() == 0  # the entries share the parameters' memory


def test_load_state_dict_says_everything():
    state = nn.Linear(2, 2).state_dict()
    state["weight"] = torch.ones(3, 2)
    state["extra"] = state.pop("bias")
    with pytest.raises(RuntimeError) as caught:
        nn.Linear(2, 2).load_state_dict(state)
    assert str(caught.value) == (
        'Error(s) in loading state_dict for Linear:\n\tMissing key(s) in state_dict: "bias". \n\t'
        'Unexpected key(s) in state_dict: "extra". \n\tsize mismatch for weight: copying a param '
        "with shape torch.Size([3, 2]) from checkpoint, the shape in current model is "
        "torch.Size([2, 2])."
    )
    del state["weight"]
    result = nn.Linear(2, 2).load_state_dict(state, strict=False)
    assert result.missing_keys == ["weight", "bias"] and result.unexpected_keys == ["extra"]


def test_assign():
    net = nn.Linear(2, 2)
    weight = torch.ones(2, 2)
    net.load_state_dict({"weight": weight, "bias": torch.zeros(2)}, assign=True)
    assert isinstance(net.weight, nn.Parameter) and net.weight.data_ptr() == weight.data_ptr()


def test_extra_state():
    class Counted(nn.Module):
        count = 0

        def get_extra_state(self):
            return {"count": self.count}

        def set_extra_state(self, state):
            self.count = state["count"]

    net = nn.Sequential(Counted())
    net[0].count = 5
    state = net.state_dict()
    assert state["0._extra_state"] == {"count": 5}
    fresh = nn.Sequential(Counted())
    fresh.load_state_dict(state)
    assert fresh[0].count == 5


def test_conversion_keeps_the_objects():
    net = Net()
    weight = net.fc.weight
    net(torch.ones(2, 2)).sum().backward()
    grad = weight.grad
    assert net.double() is net and net.fc.weight is weight and weight.grad is grad
    assert weight.dtype == grad.dtype == torch.float64
    assert net.norm.num_batches_tracked.dtype == torch.int64
    assert net.to(torch.float32).table.dtype == torch.float32
    net.zero_grad()
    assert weight.grad is None
    net.requires_grad_(False)
    assert not any(p.requires_grad for p in net.parameters())


def test_modes_and_apply():
    net = Net().eval()
    assert not net.training and not net.norm.training
    seen = []
    net.train().apply(lambda m: seen.append(type(m).__name__))
    assert net.norm.training and seen == ["Linear", "BatchNorm1d", "Net"]


def test_printed_form():
    assert repr(Net()) == (
        "Net(\n  (fc): Linear(in_features=2, out_features=3, bias=True)\n"
        "  (norm): BatchNorm1d(3, eps=1e-05, momentum=0.1, affine=True, bias=True,"
        " track_running_stats=True)\n)"
    )


def test_copies():
    net = Net()
    calls = []
    net.register_forward_hook(Remember(calls))
    for made in (copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
        assert torch.equal(made.fc.weight, net.fc.weight) and made.fc.weight is not net.fc.weight
        assert len(made._forward_hooks) == 1
        made(torch.ones(2, 2))
    shallow = copy.copy(net)
    assert shallow.fc is net.fc
    assert b"Table" not in pickle.dumps(net)  # saved modules do not depend on our tables


class Remember:
    def __init__(self, calls):
        self.calls = calls

    def __call__(self, module, args, output):
        self.calls.append(type(module).__name__)


def test_forward_hooks():
    net = nn.Linear(2, 2)
    x = torch.ones(1, 2)
    log = []
    first = net.register_forward_pre_hook(lambda m, args: (args[0] * 2,))
    second = net.register_forward_hook(
        lambda m, args, kwargs, out: log.append((args, kwargs)), with_kwargs=True
    )
    third = net.register_forward_hook(lambda m, args, out: out + 1, prepend=True)
    doubled = net.forward(x * 2) + 1
    assert torch.equal(net(x), doubled)
    assert torch.equal(log[0][0][0], x * 2) and log[0][1] == {}
    for handle in (first, second, third):
        handle.remove()
    assert torch.equal(net(x), net.forward(x)) and not net._hooked  # the plain call again
    with net.register_forward_hook(lambda m, args, out: 7):
        assert net(x) == 7
    assert torch.equal(net(x), net.forward(x))


def test_always_called_hooks():
    net = nn.Linear(2, 2)
    seen = []
    net.register_forward_hook(lambda m, args, out: seen.append(out), always_call=True)
    net.register_forward_hook(lambda m, args, out: seen.append("never"))
    with pytest.raises(RuntimeError):
        net(torch.ones(1, 3))
    assert seen == [None]


def test_full_backward_hooks():
    net = nn.Linear(2, 3)
    seen = []
    net.register_full_backward_hook(lambda m, grad_in, grad_out: seen.append((grad_in, grad_out)))
    net.register_full_backward_pre_hook(lambda m, grad_out: (grad_out[0] * 2,))
    x = torch.ones(1, 2, requires_grad=True)
    net(x).sum().backward()
    (grad_in,), (grad_out,) = seen[0]
    assert torch.equal(grad_out, torch.full((1, 3), 2.0))
    assert torch.allclose(grad_in, grad_out @ net.weight) and torch.equal(x.grad, grad_in)
    with pytest.raises(RuntimeError, match="Cannot use both regular backward hooks"):
        net.register_backward_hook(lambda *args: None)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        net(torch.ones(1, 2)).sum().backward()
    assert "no inputs require gradients" in str(caught[0].message)


def test_global_hooks():
    seen = []
    handles = [
        register_module_forward_hook(lambda m, args, out: seen.append(type(m).__name__)),
        register_module_full_backward_hook(lambda m, gi, go: seen.append("backward")),
    ]
    net = nn.Sequential(nn.Linear(2, 2))
    net(torch.ones(1, 2, requires_grad=True)).sum().backward()
    for handle in handles:
        handle.remove()
    assert seen == ["Linear", "Sequential", "backward", "backward"]
    net(torch.ones(1, 2))
    assert len(seen) == 4


def test_state_dict_hooks():
    net = nn.Sequential(nn.Linear(2, 2))
    seen = []
    net.register_state_dict_pre_hook(lambda m, prefix, keep: seen.append(("pre", prefix)))
    net[0].register_state_dict_post_hook(lambda m, state, prefix, meta: seen.append(list(state)))
    net.register_load_state_dict_pre_hook(lambda m, state, *rest: state.pop("junk"))
    net.register_load_state_dict_post_hook(lambda m, keys: keys.missing_keys.clear())
    state = net.state_dict()
    assert seen == [("pre", ""), ["0.weight", "0.bias"]]
    state["junk"] = state.pop("0.bias")
    assert net.load_state_dict(state).missing_keys == []


def test_mutation_stamps():
    net = Net()
    before = _mutation.now()
    net(torch.ones(2, 2))
    net.state_dict(), list(net.parameters()), repr(net)
    stamps = [_mutation.stamp_of(m) for m in net.modules()]
    assert max(stamps) <= before
    for change in (
        lambda: setattr(net.fc, "note", 1),
        lambda: net.fc._parameters.update(bias=None),
        lambda: net.fc.register_forward_hook(lambda *args: None),
        lambda: net.fc.requires_grad_(False),
        lambda: net.fc.train(),
        lambda: delattr(net.fc, "note"),
    ):
        before = _mutation.now()
        change()
        assert _mutation.now() > before
        assert _mutation.stamp_of(net.fc) > before >= _mutation.stamp_of(net)


def test_lazy():
    layer = nn.LazyLinear(3)
    with pytest.raises(RuntimeError, match="Can't access the shape of an uninitialized"):
        _ = layer.weight.shape
    with pytest.raises(ValueError, match="Attempted to use an uninitialized parameter"):
        _ = layer.weight + 1
    layer(torch.ones(2, 4))
    assert type(layer) is nn.Linear and layer.weight.shape == (3, 4)


def test_parameter():
    p = nn.Parameter(torch.ones(2))
    assert p.requires_grad and p.is_leaf and isinstance(p, torch.Tensor)
    assert type(p + 1) is torch.Tensor
    assert repr(p) == "Parameter containing:\ntensor([1., 1.], requires_grad=True)"
    q = copy.deepcopy(p)
    assert type(q) is nn.Parameter and torch.equal(p, q) and q.data_ptr() != p.data_ptr()
    r = pickle.loads(pickle.dumps(nn.Parameter(torch.ones(2), requires_grad=False)))
    assert type(r) is nn.Parameter and not r.requires_grad
    assert isinstance(nn.Buffer(torch.ones(1)), nn.Buffer)
    assert not isinstance(torch.ones(1), nn.Parameter)
