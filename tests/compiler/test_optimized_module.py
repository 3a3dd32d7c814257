"""What `compile` makes of modules: in the original's place, and saved, copied and loaded."""

from __future__ import annotations

import copy
import io
from typing import Any

import pytest

import flambeau as torch

nn = torch.nn
BACKENDS = ["eager", "aot_eager", "inductor"]


class Net(nn.Module):
    """Parameters, statistics, an attribute, a nested module."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2))
        self.scale = 2.0

    def forward(self, x: Any, *, shift: float = 0.0) -> Any:
        return self.body(x) * self.scale + shift


@pytest.fixture
def net() -> Net:
    torch._dynamo.reset()
    torch.manual_seed(0)
    return Net()


def x(seed: int = 1) -> Any:
    return torch.randn(5, 3, generator=torch.Generator().manual_seed(seed))


def test_attributes_reach_the_original(net: Net) -> None:
    c = torch.compile(net, backend="eager")
    assert isinstance(c, torch._dynamo.OptimizedModule) and isinstance(c, nn.Module)
    assert c._orig_mod is net and c.body is net.body and c.scale == 2.0
    c.extra = 3
    assert net.extra == 3 and "extra" in dir(c)  # type: ignore[attr-defined]
    del c.extra
    assert not hasattr(net, "extra")
    c.eval()
    assert not net.training and not c.training and not net.body.training
    net.train()
    assert c.training
    with pytest.raises(AttributeError, match="'Net' object has no attribute 'nope'"):
        _ = c.nope
    assert repr(c).startswith("OptimizedModule(\n  (_orig_mod): Net(")
    assert next(n for n, _ in c.named_parameters()) == "_orig_mod.body.0.weight"


@pytest.mark.parametrize("backend", BACKENDS)
def test_changes_of_the_original_show(net: Net, backend: str) -> None:
    c = torch.compile(net, backend=backend)
    assert torch.allclose(c(x(), shift=1.0), copy.deepcopy(net)(x(), shift=1.0), atol=1e-6)
    with torch.no_grad():
        net.body[3].weight.fill_(0.5)
        c.body[3].bias.zero_()
    net.eval()
    assert torch.allclose(c(x()), net(x()), atol=1e-6)
    c.scale = 7.0
    assert net.scale == 7.0 and torch.allclose(c(x()), net(x()), atol=1e-5)
    net.body[2] = nn.Tanh()
    assert torch.allclose(c(x()), net(x()), atol=1e-5)


@pytest.mark.parametrize("backend", BACKENDS)
def test_training_is_the_same(net: Net, backend: str) -> None:
    other = copy.deepcopy(net)
    losses = []
    for model in (net, torch.compile(other, backend=backend)):
        opt = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        own = []
        for step in range(4):
            loss = model(x(step)).square().mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
            own.append(loss.item())
        losses.append(own)
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)
    for (n, a), (_, b) in zip(net.state_dict().items(), other.state_dict().items(), strict=True):
        assert torch.allclose(a.double(), b.double(), 1e-4, 1e-5), n


def test_state_dicts(net: Net) -> None:
    c = torch.compile(net, backend="eager")
    plain = net.state_dict()
    assert list(c.state_dict()) == list(plain)
    prefixed = {f"_orig_mod.{k}": v + 1 for k, v in plain.items()}
    assert str(c.load_state_dict(prefixed)) == "<All keys matched successfully>"
    assert torch.equal(net.body[0].bias, prefixed["_orig_mod.body.0.bias"])
    c.load_state_dict({k: v * 0 for k, v in plain.items()})
    assert not net.body[0].weight.any()
    with pytest.raises(RuntimeError, match="Missing key"):
        c.load_state_dict({})

    outer = nn.ModuleDict({"a": c, "b": nn.Linear(1, 1)})
    keys = list(outer.state_dict())
    assert keys[0] == "a.body.0.weight" and "b.bias" in keys
    fresh = nn.ModuleDict({"a": torch.compile(Net(), backend="eager"), "b": nn.Linear(1, 1)})
    fresh.load_state_dict(outer.state_dict())
    assert all(torch.equal(v, fresh.state_dict()[k]) for k, v in outer.state_dict().items())
    old = {k.replace("a.", "a._orig_mod."): v for k, v in outer.state_dict().items()}
    assert not fresh.load_state_dict(old).missing_keys


def test_saved_and_copied(net: Net) -> None:
    c = torch.compile(net, backend="eager")
    expected = c(x())
    for module in (net, c):
        file = io.BytesIO()
        torch.save(module, file)
        file.seek(0)
        loaded = torch.load(file, weights_only=False)
        assert type(loaded) is type(module)
        loaded.body[1].reset_running_stats()
        assert torch.allclose(loaded(x()), expected)
    twin = copy.deepcopy(c)
    assert twin._orig_mod is not net and torch.allclose(twin(x()), expected)
    with torch.no_grad():
        twin.body[3].weight.zero_()
    assert net.body[3].weight.any() and copy.copy(c)._orig_mod is net


def test_hooks_run(net: Net) -> None:
    c = torch.compile(net, backend="eager")
    seen: list[str] = []
    c.register_forward_hook(lambda m, i, o: seen.append(type(m).__name__))
    net.register_forward_pre_hook(lambda m, i: seen.append(type(m).__name__))
    c(x())
    assert sorted(seen) == ["Net", "OptimizedModule"]


def test_compile_in_place(net: Net) -> None:
    count = torch._dynamo.testing.CompileCounter()
    expected = copy.deepcopy(net)(x())
    net.compile(backend=count)
    assert torch.allclose(net(x()), expected) and count.frame_count == 1
    assert type(net) is Net and "_orig_mod" not in "".join(net.state_dict())


def test_two_modules_of_a_class_do_not_share(net: Net) -> None:
    with torch._dynamo.config.patch(recompile_limit=2):
        made = [torch.compile(nn.Linear(2, 2), backend="eager") for _ in range(6)]
        for m in made:
            assert torch.allclose(m(torch.ones(1, 2)), m._orig_mod(torch.ones(1, 2)))
    assert torch._dynamo.utils.counters["unimplemented"] == {}


class Doubled(torch.utils.data.Dataset):  # type: ignore[type-arg]
    """Compiles in whichever process it is read."""

    def __len__(self) -> int:
        return 4

    def __getitem__(self, i: int) -> Any:
        return torch.compile(lambda t: t * 2, backend="eager")(torch.full((2,), float(i)))


def test_in_workers() -> None:
    loader = torch.utils.data.DataLoader(Doubled(), batch_size=2, num_workers=1)
    assert [b.tolist() for b in loader] == [[[0, 0], [2, 2]], [[4, 4], [6, 6]]]


def test_what_is_said_of_a_module_names_its_forward(net: Net) -> None:
    c = torch.compile(net, backend="eager")
    c(x())
    refused = pytest.raises(torch._dynamo.exc.RecompileError)
    with torch._dynamo.config.patch(error_on_recompile=True), refused as told:
        c(x()[:2])
    line = Net.forward.__code__.co_firstlineno
    assert f"Recompiling function forward in {__file__}:{line}" in str(told.value)
    assert f"test_optimized_module.py:{line} in forward" in str(told.value)


@pytest.mark.parametrize("times", [0, 1])
def test_a_compiled_module_is_explained_as_the_original(net: Net, times: int) -> None:
    c = torch.compile(net, backend="eager")
    for _ in range(times):
        c(x())
    found = torch._dynamo.explain(c)(x())
    assert (found.graph_count, found.graph_break_count) == (1, 0), found.break_reasons
    assert "<compiled" not in str(found)
