"""Hooks of tensors, registered by the program or there before, and handles that remove them."""

from __future__ import annotations

import functools

import flambeau as torch
from flambeau import nn
from tests.capture.comparing import program


def x(n=4):
    return torch.randn(n, requires_grad=True)


def inner():
    return torch.randn(4, requires_grad=True) * 1


@program(lambda: (x(),), graphs=1)
def on_an_intermediate(a):
    b = a.sin()
    b.register_hook(lambda g: g * 10)
    return b.cos() * b


@program(lambda: (x(),), graphs=1)
def two_in_their_order(a):
    b = a.sin()
    b.register_hook(lambda g: g * 10)
    b.register_hook(lambda g: g + 1)
    c = b * 2
    c.register_hook(torch.cos)
    return c


@program(lambda: (x(), torch.randn(4)), graphs=1)
def with_a_tensor_of_the_function(a, w):
    b = a.sin()
    scale = w.exp()
    b.register_hook(lambda g: g * scale + w)
    return b.cos()


@program(lambda: (x(), x()), graphs=1)
def that_uses_its_tensor(a, w):
    b = a.sin()
    b.register_hook(lambda g: g * b + w)
    return b.cos()


@program(lambda: (x(),), graphs=1)
def made_by_partial(a):
    b = a.sin()
    b.register_hook(functools.partial(torch.mul, other=4))
    b.register_hook(hook=lambda g: None)
    return b.cos()


@program(lambda: (x(),), graphs=1)
def of_the_result(a):
    b = a.sin()
    b.register_hook(lambda g: g * 3)
    return b, b * 2


@program(lambda: (x(),), breaks=None)
def of_a_view_that_is_returned(a):
    b = a.view(2, 2)
    b.register_hook(lambda g: g * 3)
    c = a * 2
    d = c.view(2, 2)
    d.register_hook(lambda g: g * 5)
    return b, b * 2, c, d


@program(lambda: (x(),), graphs=1)
def of_a_view_inside(a):
    b = a.view(2, 2)
    b.register_hook(lambda g: g * 3)
    return b.sin() * 2


@program(lambda: (x(),), graphs=1)
def of_what_is_written_later(a):
    b = a.sin()
    b.register_hook(lambda g: g * 3)
    b.mul_(2)
    b.register_hook(lambda g: g + 1)
    return b.cos()


@program(lambda: (x(),), graphs=1)
def removed_again(a):
    b = a.sin()
    first = b.register_hook(lambda g: g * 10)
    b.register_hook(lambda g: g * 3)
    c = b.cos()
    first.remove()
    first.remove()
    with c.register_hook(lambda g: g * 100):
        c = c + 1
    return c


@program(lambda: (x(), []), breaks=None)
def with_effects(a, log):
    b = a.sin()
    b.register_hook(lambda g: log.append("b"))
    c = b.cos()
    c.register_hook(lambda g: log.append(tuple(g.shape)))
    return c + 1


@program(lambda: (x(),), breaks=None)
def handle_that_leaves(a):
    b = a.sin()
    handle = b.register_hook(lambda g: g * 10)
    c = b.cos()
    print("between")
    handle.remove()
    return c


@program(lambda: (x(), []), graphs=1)
def on_an_input(a, log):
    def hook(g):
        log.append("hook")
        return g * 3

    a.register_hook(hook)
    a.register_hook(lambda g: g + 1)
    return a.sin()


@program(lambda: (inner(), []), graphs=1)
def on_an_input_that_is_no_leaf(a, log):
    a.register_hook(lambda g: log.append(g * 2))
    a.retain_grad()
    return a.sin(), a.retains_grad


@program(lambda: (x(), []), graphs=1)
def on_an_input_removed(a, log):
    first = a.register_hook(lambda g: g * 10)
    a.register_hook(lambda g: g * 3)
    b = a.sin()
    first.remove()
    return b * 2


@program(lambda: (x(), torch.randn(4)), graphs=1)
def on_an_input_with_what_is_computed(a, w):
    scale = w.exp()
    a.register_hook(lambda g: g * scale)
    return a.sin()


@program(lambda: (x(), []), graphs=1)
def after_accumulation(a, log):
    def hook(p):
        log.append(p.grad.clone())
        p.grad.mul_(2)

    a.register_post_accumulate_grad_hook(hook)
    return a.sin()


@program(lambda: (torch.randn(3), x()), graphs=1)
def refused(a, b):
    out = []
    for call in (
        lambda: a.register_hook(lambda g: g),
        lambda: (b * 2).register_post_accumulate_grad_hook(lambda g: g),
        lambda: a.register_post_accumulate_grad_hook(lambda g: g),
        lambda: a.retain_grad(),
    ):
        try:
            call()
        except RuntimeError as error:
            out.append(str(error))
    return a * 2, out


@program(lambda: (x(),), graphs=1)
def retained_inside(a):
    b = a.sin()
    before = b.retains_grad
    b.retain_grad()
    b.cos().sum().backward()
    return b.grad, a.grad + 1, before, b.retains_grad


@program(lambda: (torch.randn(2, 3, requires_grad=True), torch.randn(3, 2)), graphs=1)
def retained_over_two_passes(a, w):
    b = a.sin()
    b.retain_grad()
    b.retain_grad()
    loss = (b.t() * w).sum()
    loss.backward(retain_graph=True)
    first = b.grad
    loss.backward()
    c = a * 2
    c.retain_grad()
    return first, b.grad, b.grad is first, first.stride(), c.grad


@program(lambda: (x(),), breaks=None)
def retained_after_a_hook(a):
    b = a.sin()
    b.register_hook(lambda g: g * 2)
    b.retain_grad()
    b.cos().sum().backward()
    return b.grad


@program(lambda: (x(),), graphs=1)
def retained_and_written(a):
    b = a.sin()
    b.retain_grad()
    b.mul_(3)
    (b * b).sum().backward()
    b.grad.add_(1)
    return b.grad


@program(lambda: (x(),), breaks=1, graphs=2)
def retained_and_returned(a):
    b = a.sin()
    b.retain_grad()
    return b, b.cos()


@program(lambda: (x(),), graphs=1)
def retained_for_nobody(a):
    b = a.sin()
    b.retain_grad()
    return b.cos()


@program(lambda: (x(), []), graphs=1)
def of_a_leaf_with_backward_inside(a, log):
    a.register_hook(lambda g: (log.append("hook"), g * 3)[1])
    a.register_post_accumulate_grad_hook(lambda p: log.append(p.grad * 1))
    (a * a).sum().backward()
    return a.grad * 1


@program(lambda: (x(),), graphs=1)
def of_an_intermediate_with_backward_inside(a):
    b = a.sin()
    b.register_hook(lambda g: g * 7)
    b.cos().sum().backward()
    return b.detach()


# ---- modules whose parameters have hooks ----


class Hooked(nn.Module):
    """Its parameters note in `log` that their gradients have come."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(4, 3)
        self.second = nn.Linear(3, 2)
        self.log = []
        for name, p in self.named_parameters():
            p.register_hook(functools.partial(self.note, name))
        self.second.bias.register_post_accumulate_grad_hook(self.after)

    def note(self, name, grad):
        self.log.append(name)
        return grad * 2

    def after(self, p):
        self.log.append("after")
        p.grad.mul_(3)

    def forward(self, value):
        return self.second(torch.tanh(self.first(value)))


@program(lambda: (Hooked(), torch.randn(2, 4)), graphs=1)
def of_parameters(m, a):
    return m(a)


@program(lambda: (Hooked(), torch.randn(2, 4)), graphs=1)
def of_parameters_in_the_step(m, a):
    m(a).square().sum().backward()
    return [p.grad * 1 for p in m.parameters()], list(m.log)


def training():
    m = Hooked()
    return m, torch.optim.SGD(m.parameters(), lr=0.1, momentum=0.9), torch.randn(2, 4)


@program(training, graphs=1)
def of_parameters_in_a_training_step(m, opt, a):
    for _ in range(3):
        opt.zero_grad()
        loss = m(a).square().mean()
        loss.backward()
        opt.step()
    return loss.detach(), [p.detach() for p in m.parameters()], list(m.log)


def in_backward():
    m = nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 2))
    optimizers = {p: torch.optim.SGD([p], lr=0.1) for p in m.parameters()}

    def step(p):
        optimizers[p].step()
        optimizers[p].zero_grad()

    for p in m.parameters():
        p.register_post_accumulate_grad_hook(step)
    return m, torch.randn(2, 4)


@program(in_backward, breaks=None)
def optimizer_in_the_backward(m, a):
    m(a).square().mean().backward()
    return [p.detach() for p in m.parameters()], [p.grad for p in m.parameters()]


# ---- hooks of modules ----


def sequence(register):
    def made():
        m = nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 2))
        m.log = []
        register(m)
        return m, x()

    return made


def _forward(m):
    def change(module, args, kwargs):
        m.log.append(("pre", len(kwargs)))
        return (args[0] + 1, *args[1:]), kwargs

    m[0].register_forward_pre_hook(change, with_kwargs=True)
    m[0].register_forward_hook(lambda mod, a, k, o: m.log.append(len(k)), with_kwargs=True)
    m[0].register_forward_hook(lambda mod, a, o: o * 2, prepend=True)
    m[2].register_forward_hook(lambda mod, a, o: m.log.append("always"), always_call=True)


@program(sequence(_forward), graphs=1)
def forward_hooks_of_modules(m, a):
    return m(a)


def _backward(m):
    m[1].register_full_backward_hook(lambda mod, gi, go: (gi[0] * 2,))
    m[2].register_full_backward_pre_hook(lambda mod, go: (go[0] * 3,))
    m.register_full_backward_hook(lambda mod, gi, go: m.log.append(len(gi)))


@program(sequence(_backward), breaks=None)
def backward_hooks_of_modules(m, a):
    return m(a)


@program(sequence(_backward), breaks=None)
def backward_hooks_of_modules_in_the_step(m, a):
    m(a).sum().backward()
    return [p.grad * 1 for p in m.parameters()], list(m.log)


class Pair(nn.Module):
    """Two tensors in, and a tensor with a number out."""

    def __init__(self, both=False):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4))
        self.scale = 0.5
        self.both = both

    def forward(self, a, b, k=2):
        out = a * self.weight + b.sin() * k
        return (out, out * 2) if self.both else (out, k)


def layers(*hooks):
    """A net with backward hooks: (place, kind, hook)."""

    def made():
        m = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 3))
        for i, kind, hook in hooks:
            getattr(m[i], f"register_full_backward_{kind}")(hook)
        return m, torch.randn(2, 4, requires_grad=True)

    return made


def _clamped(module, grads, outs):
    return tuple(g.clamp(-0.1, 0.1) for g in grads)


def _by_weight(module, grads, outs):
    return (grads[0] + outs[0].sum() * module.weight.sum(),)


def _tripled(module, outs):
    return (outs[0] * 3,)


@program(layers((1, "hook", _clamped), (2, "pre_hook", _tripled)), graphs=1)
def of_modules(m, a):
    return m(a)


@program(
    layers((2, "hook", _clamped), (2, "hook", _by_weight), (2, "pre_hook", _tripled),
           (1, "hook", lambda m, g, o: None)),
    graphs=1,
)  # fmt: skip
def of_modules_several(m, a):
    return m(a) * 2


@program(layers((1, "hook", _clamped), (2, "pre_hook", _tripled)), graphs=1)
def of_modules_in_a_training_step(m, a):
    opt = torch.optim.SGD(m.parameters(), lr=0.1)
    m.zero_grad()
    loss = m(a).square().sum()
    loss.backward()
    opt.step()
    return loss.detach()


def pairs(both, *needs):
    def made():
        m = Pair(both)
        m.register_full_backward_hook(
            lambda m, g, o: tuple(None if x is None else x * m.scale + o[0].mean() for x in g)
        )
        return m, *[torch.randn(4, requires_grad=on) for on in needs]

    return made


@program(pairs(False, True, True), graphs=1)
def of_a_module_with_two_inputs(m, a, b):
    return m(a * 2, b)[0] + m(a, b, k=3)[1]


@program(pairs(False, True, False), graphs=1)
def of_a_module_with_an_input_without_gradient(m, a, b):
    with torch.no_grad():
        c = m(a, b)[0]
    return m(a, b)[0] + c


@program(pairs(True, True, True), breaks=None)
def of_a_module_with_two_results(m, a, b):
    x, y = m(a, b)
    return x + y


@program(pairs(False, False, False), breaks=None)
def of_a_module_without_inputs_that_need_gradients(m, a, b):
    return m(a, b)[0]


def logging():
    m, a = layers()()
    log = []
    for layer in m:
        layer.register_full_backward_hook(lambda m, g, o: log.append((type(m).__name__, len(g))))
    return m, a, log


@program(logging, breaks=None)
def of_modules_with_effects(m, a, log):
    return m(a) + 1


@program(logging, breaks=None)
def of_modules_with_effects_in_a_training_step(m, a, log):
    m(a).sum().backward()
    return [p.grad + 1 for p in m.parameters()], list(log)


@program(layers((1, "hook", lambda m, g, o: (g[0], g[0]))), breaks=None)
def of_a_module_that_returns_too_many(m, a):
    try:
        m(a).sum().backward()
    except RuntimeError as error:
        return str(error)


def _raises(g):
    raise ValueError("in a hook")


@program(lambda: (x(), []), breaks=None)
def that_raises(a, log):
    b = a.sin()
    b.register_hook(_raises)
    loss = b.cos().sum()
    log.append("registered")
    try:
        loss.backward()
    except ValueError as error:
        log.append(str(error))
    return loss.detach()
