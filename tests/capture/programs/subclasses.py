"""Tensors of classes of the user's own: handlers, methods and attributes, results in their class."""

from __future__ import annotations

import flambeau as torch
from flambeau import nn
from tests.capture.comparing import program


class Plain(torch.Tensor):
    """Nothing of its own."""


class Noting(torch.Tensor):
    """Notes which functions it is asked for."""

    log: list[str] = []

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        cls.log.append((func.__name__, len(types)))
        return super().__torch_function__(func, types, args, kwargs or {})


class Scaled(torch.Tensor):
    """Sums of it are bigger; it has attributes and methods."""

    factor = 3

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if func is torch.add:
            with torch._C.DisableTorchFunctionSubclass():
                return (func(*args, **(kwargs or {})) * cls.factor).as_subclass(cls)
        return super().__torch_function__(func, types, args, kwargs or {})

    def scaled(self):
        return self * self.factor

    @property
    def twice(self):
        return self * 2

    @staticmethod
    def half(value):
        return value / 2

    @classmethod
    def named(cls):
        return cls.__name__

    def __matmul__(self, other):
        return "no product"

    def sum(self, *args):
        return super().sum(*args) + 100


class Further(Scaled):
    """A subclass of a subclass."""

    def scaled(self):
        return super().scaled() + 1


class Unwrapping(torch.Tensor):
    """Gives plain tensors."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        args = [a.as_subclass(torch.Tensor) if isinstance(a, cls) else a for a in args]
        return func(*args, **(kwargs or {}))


class Silent(torch.Tensor):
    """Is never asked."""

    __torch_function__ = torch._C._disabled_torch_function_impl


class Tagged(torch.Tensor):
    """Hands its tag on."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        out = super().__torch_function__(func, types, args, kwargs or {})
        if isinstance(out, cls):
            for a in args:
                if isinstance(a, cls) and hasattr(a, "tag"):
                    out.tag = a.tag
        return out


class Refusing(torch.Tensor):
    """Refuses all but sums."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if func is torch.sum:
            return super().__torch_function__(func, types, args, kwargs or {})
        return NotImplemented


def of(cls, **attributes):
    def made():
        leaf = torch.randn(3, requires_grad=True)
        t = leaf.as_subclass(cls)
        t.__dict__.update(attributes)
        return (t,)

    return made


def _operators(a):
    b = a.sin() * 2 + a
    return b, torch.add(b, 1), 1 - a, a[1:], -a, a == a, a.shape, a.unbind(), torch.stack([a, b])


for _cls in (Plain, Scaled, Further, Silent, Tagged):
    program(of(_cls), graphs=1)(_operators)


@program(of(Unwrapping), graphs=1)
def plain_results(a):
    b = a.sin() * 2 + a
    return b, torch.add(b, a), 1 - a, a[1:], a.shape, a.unbind(), type(b) is torch.Tensor


@program(of(Noting), graphs=1)
def handler_with_effects(a):
    Noting.log.clear()
    b = (a + 1) * a
    b = b.relu() + nn.functional.relu(2 - a) + len(a) + a.size(0) + a.dim()
    b = b.clone()
    b.mul_(2)
    b += 1
    b[0] = 5
    return b, b.T.shape, b.dtype, list(Noting.log)


@program(of(Scaled), graphs=1)
def methods_and_attributes(a):
    out = a.scaled() + a.twice + a.factor + Scaled.half(a) + a.half(a)
    return out, a.named(), a @ a, a.sum(), type(a), isinstance(a, Scaled), type(out) is Scaled


@program(of(Further), graphs=1)
def methods_of_bases(a):
    return a.scaled(), torch.add(a, a), isinstance(a, Scaled), a.__class__.__name__


@program(of(Tagged, tag=5), graphs=1)
def instance_attributes(a):
    b = a * a.tag
    b.other = [b.tag, a]
    a.tag = 6
    return b, (b + a).tag, hasattr(a, "missing"), getattr(a, "missing", 3)


@program(lambda: (torch.randn(3, requires_grad=True),), graphs=1)
def made_inside(a):
    b = a.as_subclass(Scaled)
    return torch.add(b, 1), b.as_subclass(torch.Tensor) + 1, type(b) is Scaled


@program(of(Scaled), graphs=1)
def plain_again(a):
    b = a.as_subclass(torch.Tensor)
    with torch._C.DisableTorchFunctionSubclass():
        c = torch.add(a, 1)
        d = a.shape
    return torch.add(b, 1), c, d


@program(of(Scaled), breaks=1)
def not_asked_around_a_break(a):
    with torch._C.DisableTorchFunctionSubclass():
        b = torch.add(a, 1)
        print("between")
        b = torch.add(a, b)
    return b, torch.add(a, b)


@program(of(Scaled), breaks=1)
def alive_over_a_break(a):
    b = a.sin()
    print("between")
    return torch.add(b, a)


def two():
    a, b = torch.randn(3, requires_grad=True), torch.randn(3, requires_grad=True)
    return a.as_subclass(Plain), b.as_subclass(Scaled), torch.ones(3)


@program(lambda: (of(Further)()[0], of(Scaled)()[0], torch.ones(3)), graphs=1)
def the_subclass_first(a, b, c):
    return torch.add(b, a), torch.add(c, a), c * b, b * a, a.add(b)


@program(two, breaks=None)
def classes_that_refuse_each_other(a, b, c):
    try:
        a * b
    except TypeError as error:
        return str(error), (a * c).as_subclass(torch.Tensor), b * c


@program(lambda: (torch.randn(3, requires_grad=True),), breaks=None)
def not_implemented(a):
    out = []
    a = a.as_subclass(Refusing)
    for fn in (torch.sin, lambda t: t * 2, lambda t: t.shape, torch.sum):
        try:
            out.append(fn(a).as_subclass(torch.Tensor))
        except TypeError as error:
            out.append(str(error))
    return out


@program(of(Scaled), graphs=1)
def questions(a):
    has = torch.overrides.has_torch_function((a,))
    return has, torch.is_tensor(a), isinstance(a, torch.Tensor), a.requires_grad, a.is_leaf, a * 1


@program(lambda: (torch.randn(3).as_subclass(Scaled),), graphs=1)
def written_in_place(a):
    a.mul_(2)
    a += 1
    a[0] = 7
    return a


@program(lambda: (torch.randn(3).as_subclass(Tagged).requires_grad_(),), graphs=1)
def backward_inside(a):
    (a * a).sum().backward()
    return a.grad * 1


@program(lambda: (torch.randn(3).as_subclass(Noting).requires_grad_(), torch.randn(3)), graphs=1)
def backward_of_a_plain_loss(a, b):
    Noting.log.clear()
    with torch._C.DisableTorchFunctionSubclass():
        loss = (a * b).sum()
    loss.backward()
    first = a.grad
    with torch._C.DisableTorchFunctionSubclass():
        (a * a).sum().backward()
    a.grad = a.grad * 2
    return first, type(first).__name__, list(Noting.log)


def with_gradient():
    a = torch.randn(3).as_subclass(Scaled).requires_grad_()
    a.grad = torch.ones(3)
    hooked = torch.randn(3).as_subclass(Scaled).requires_grad_()
    hooked.register_hook(lambda g: g * 2)
    return a, hooked


@program(with_gradient, graphs=1)
def gradients_added_to_what_is_there(a, hooked):
    before = a.grad * 1
    (a * hooked).sum().backward()
    a.grad.mul_(2)
    hooked.grad = None if hooked.grad is None else hooked.grad + before
    return before


class Own(nn.Parameter):
    """A class of parameters, which is not asked."""

    def doubled(self):
        return self * 2


class Asked(nn.Parameter):
    """A class of parameters that is asked."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return torch.Tensor.__torch_function__.__func__(cls, func, types, args, kwargs)


class Net(nn.Module):
    """Parameters of both classes, and of a class that only became a parameter."""

    def __init__(self):
        super().__init__()
        self.own = Own(torch.randn(3))
        self.asked = Asked(torch.randn(3))
        self.marked = nn.Parameter(torch.randn(3).as_subclass(Tagged))

    def forward(self, value):
        kinds = [isinstance(p, nn.Parameter) for p in self.parameters()]
        out = (value * self.own + self.own.doubled()) * self.asked
        return out.as_subclass(torch.Tensor), kinds, self.marked + 1


@program(lambda: (Net(), torch.randn(3)), graphs=1)
def parameters(m, a):
    return m(a)


def stepped():
    m = Net()
    return m, torch.optim.SGD(m.parameters(), lr=0.1), torch.randn(3)


@program(stepped, graphs=1)
def parameters_in_a_training_step(m, opt, a):
    opt.zero_grad()
    out, _, more = m(a)
    (out.sum() + more.sum()).as_subclass(torch.Tensor).backward()
    opt.step()
    return [type(p).__name__ for p in m.parameters()]
