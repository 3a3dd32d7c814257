"""Classes of tensors are guarded, and asked as often as in eager."""

from __future__ import annotations

from typing import Any

import pytest

import flambeau as torch

BACKENDS = pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])


class Noting(torch.Tensor):
    """Notes what it is asked for; sums of it are bigger."""

    log: list[str] = []
    more = 1

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        cls.log.append(func.__name__)
        out = super().__torch_function__(func, types, args, kwargs or {})
        if func is torch.add:
            with torch._C.DisableTorchFunctionSubclass():
                out = (out + cls.more).as_subclass(cls)
        return out


class Other(Noting):
    """Another one."""


def plain(t: Any) -> Any:
    return t.as_subclass(torch.Tensor)


@BACKENDS
def test_asked_as_often_as_in_eager(backend: str) -> None:
    """Neither guards nor the graph nor its backward ask; sizes may be symbols."""
    torch._dynamo.reset()

    def f(a: Any) -> Any:
        return torch.add(a.sin() * a.shape[0], torch.ones(a.shape[0]))

    compiled = torch.compile(f, backend=backend, fullgraph=True, dynamic=True)
    for n in (3, 4, 5):
        logs, outs = [], []
        for fn in (f, compiled):
            leaf = torch.arange(float(n)).requires_grad_()
            Noting.log.clear()
            out = fn(leaf.as_subclass(Noting))
            assert type(out) is Noting
            logs.append(list(Noting.log))
            plain(out).sum().backward()
            outs.append((plain(out), leaf.grad))
        assert logs[0] == logs[1]
        for a, b in zip(*outs, strict=True):
            torch.testing.assert_close(a, b)
    assert len(compiled.compiler().entries) == 1


@BACKENDS
def test_the_class_is_guarded(backend: str) -> None:
    torch._dynamo.reset()
    compiled = torch.compile(lambda a: torch.add(a, 1), backend=backend, fullgraph=True)
    t = torch.zeros(2)
    for kind, value in ((torch.Tensor, 1.0), (Noting, 2.0), (Other, 2.0), (torch.Tensor, 1.0)):
        out = compiled(t.as_subclass(kind))
        assert type(out) is kind
        assert plain(out).tolist() == [value, value]
    assert len(compiled.compiler().entries) == 3


@BACKENDS
def test_attributes_of_the_class_are_guarded(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    torch._dynamo.reset()
    compiled = torch.compile(lambda a: torch.add(a, 1), backend=backend, fullgraph=True)
    t = torch.zeros(2).as_subclass(Noting)
    assert plain(compiled(t)).tolist() == [2.0, 2.0]
    monkeypatch.setattr(Noting, "more", 5)
    assert plain(compiled(t)).tolist() == [6.0, 6.0]


@BACKENDS
def test_attributes_of_the_tensor_are_guarded(backend: str) -> None:
    torch._dynamo.reset()
    compiled = torch.compile(lambda a: a * a.tag, backend=backend, fullgraph=True)
    t = torch.ones(2).as_subclass(Noting)
    for tag in (2, 3):
        t.tag = tag
        assert plain(compiled(t)).tolist() == [tag, tag]
