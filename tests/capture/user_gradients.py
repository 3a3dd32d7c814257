"""Steps that do unusual things with gradients: `fn(C)`, as in `user_training`."""

from __future__ import annotations

import copy
import types

import flambeau as torch
import flambeau.nn.functional as F
from flambeau import nn
from flambeau.utils.checkpoint import checkpoint
from tests.capture.user_training import prog


def facts(m):
    """The gradients of a module, and how they are laid out."""
    return [
        (q.grad is None or (q.grad.stride(), q.grad, q.grad.is_leaf, q.grad.requires_grad))
        for q in m.parameters()
    ]


@prog
def shared_weights(C):
    class M(nn.Module):
        def __init__(s):
            super().__init__()
            s.e = nn.Embedding(5, 4)
            s.h = nn.Linear(4, 5, bias=False)
            s.h.weight = s.e.weight
            s.u = nn.Parameter(torch.ones(2))

        def forward(s, i):
            return s.h(s.e(i))

    m = M()
    opt = torch.optim.SGD(m.parameters(), 0.1, momentum=0.9, nesterov=True)

    @C
    def step(i):
        opt.zero_grad()
        loss = F.cross_entropy(m(i), i)
        loss.backward()
        opt.step()
        return loss.detach()

    return [step(torch.arange(5)) for _ in range(3)], facts(m), m.u.grad is None


@prog
def grad_alias_mutation(C):
    a = torch.randn(3, requires_grad=True)
    b = torch.randn(3, requires_grad=True)
    keep = []

    @C
    def f():
        (a + b).sum().backward()
        keep.append(a.grad)
        a.grad.add_(1)
        b.grad.mul_(3)
        a.grad = None
        (a * b).sum().backward()
        return a.grad is keep[0]

    r = f()
    return r, keep, a.grad, b.grad


@prog
def grads_of_views(C):
    w = torch.randn(4, 3, requires_grad=True)

    @C
    def f(x):
        for i in range(2):
            (w[i] @ x).backward()
        w.t().sum().backward()
        w.view(-1)[::2].pow(2).sum().backward()
        return w.grad.stride()

    return f(torch.randn(3)), w.grad


@prog
def retain_and_double(C):
    w = torch.randn(3, requires_grad=True)

    @C
    def f(x):
        y = (w * x).tanh()
        y.retain_grad()
        loss = y.sum()
        loss.backward(retain_graph=True)
        g1 = y.grad.clone()
        (loss * 2).backward()
        return g1, y.grad, loss.detach()

    return f(torch.randn(3)), w.grad


@prog
def grad_penalty_inside(C):
    m = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
    opt = torch.optim.Adam(m.parameters())

    @C
    def step(x):
        opt.zero_grad()
        x = x.detach().requires_grad_(True)
        o = m(x).sum()
        (g,) = torch.autograd.grad(o, x, create_graph=True)
        loss = (g.norm(2, 1) - 1).pow(2).mean()
        loss.backward()
        opt.step()
        return loss.detach(), g.detach()

    return [step(torch.randn(2, 3)) for _ in range(2)], facts(m)


@prog
def custom_optimizer(C):
    class Lion(torch.optim.Optimizer):
        def __init__(s, ps, lr=1e-2, betas=(0.9, 0.99), wd=0.1):
            super().__init__(ps, {"lr": lr, "betas": betas, "wd": wd})

        @torch.no_grad()
        def step(s, closure=None):
            loss = None
            if closure is not None:
                with torch.enable_grad():
                    loss = closure()
            for g in s.param_groups:
                for q in g["params"]:
                    if q.grad is None:
                        continue
                    st = s.state[q]
                    if not st:
                        st["m"] = torch.zeros_like(q)
                        st["step"] = 0
                    st["step"] += 1
                    b1, b2 = g["betas"]
                    q.mul_(1 - g["lr"] * g["wd"])
                    u = st["m"].mul(b1).add(q.grad, alpha=1 - b1)
                    q.add_(u.sign(), alpha=-g["lr"])
                    st["m"].lerp_(q.grad, 1 - b2)
            return loss

    m = nn.Linear(3, 2)
    opt = Lion(m.parameters())

    @C
    def step(x):
        def closure():
            opt.zero_grad()
            loss = m(x).square().sum()
            loss.backward()
            return loss

        return opt.step(closure)

    return (
        [step(torch.ones(2, 3)) for _ in range(3)],
        list(m.parameters()),
        [s["step"] for s in opt.state.values()],
    )


@prog
def sam_two_steps(C):
    m = nn.Linear(3, 1)
    base = torch.optim.SGD(m.parameters(), 0.1)
    st = {}

    @C
    def step(x):
        m(x).square().mean().backward()
        with torch.no_grad():
            n = torch.stack([q.grad.norm() for q in m.parameters()]).norm()
            for q in m.parameters():
                e = q.grad * (0.05 / (n + 1e-12))
                q.add_(e)
                st[q] = e
        base.zero_grad()
        m(x).square().mean().backward()
        with torch.no_grad():
            for q in m.parameters():
                q.sub_(st.pop(q))
        base.step()
        base.zero_grad()
        return n

    return [step(torch.ones(2, 3)) for _ in range(2)], list(m.parameters()), len(st)


@prog
def lookahead_slow(C):
    m = nn.Linear(2, 1)
    slow = [q.detach().clone() for q in m.parameters()]
    opt = torch.optim.Adam(m.parameters(), 0.1)
    k = types.SimpleNamespace(n=0)

    @C
    def step(x):
        opt.zero_grad()
        m(x).sum().backward()
        opt.step()
        k.n += 1
        if k.n % 2 == 0:
            with torch.no_grad():
                for s, q in zip(slow, m.parameters()):
                    s.add_(q - s, alpha=0.5)
                    q.copy_(s)
        return k.n

    return [step(torch.ones(1, 2)) for _ in range(4)], list(m.parameters()), slow


@prog
def bn_momentum_freeze(C):
    m = nn.Sequential(
        nn.Conv2d(1, 2, 3),
        nn.BatchNorm2d(2, momentum=None),
        nn.ReLU(inplace=True),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(2, 1),
    )
    f = C(m)
    r = []
    for i in range(3):
        r.append(f(torch.randn(2, 1, 5, 5)).detach())
        if i == 1:
            m[1].eval()
    return r, list(m.buffers())


@prog
def inplace_relu_residual(C):
    class B(nn.Module):
        def __init__(s):
            super().__init__()
            s.c = nn.Linear(3, 3)
            s.r = nn.ReLU(True)

        def forward(s, x):
            o = s.c(x)
            o += x
            return s.r(o)

    m = nn.Sequential(B(), B())
    f = C(m)
    x = torch.randn(2, 3, requires_grad=True)
    o = f(x * 1)
    o.sum().backward()
    return o, x.grad, facts(m)


@prog
def rnn_tbptt(C):
    c = nn.GRUCell(2, 3)
    opt = torch.optim.SGD(c.parameters(), 0.1)

    @C
    def chunk(xs, h):
        h = h.detach()
        loss = 0
        for x in xs:
            h = c(x, h)
            loss = loss + h.pow(2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        return h.detach(), loss.item() if False else loss.detach()

    h = torch.zeros(1, 3)
    r = []
    for _i in range(3):
        h, loss = chunk(torch.randn(2, 1, 2), h)
        r.append(loss)
    return r, h, facts(c)


@prog
def lora_merge(C):
    class L(nn.Module):
        def __init__(s, b, r=1):
            super().__init__()
            s.b = b.requires_grad_(False)
            s.A = nn.Parameter(torch.randn(r, b.in_features))
            s.B = nn.Parameter(torch.zeros(b.out_features, r))
            s.merged = False
            s.scale = 2.0

        def delta(s):
            return (s.B @ s.A) * s.scale

        def merge(s, on=True):
            if on != s.merged:
                s.b.weight.data += s.delta() * (1 if on else -1)
                s.merged = on

        def forward(s, x):
            return s.b(x) if s.merged else s.b(x) + F.linear(F.linear(x, s.A), s.B) * s.scale

    m = L(nn.Linear(3, 2))
    f = C(m)
    g = C(lambda on: m.merge(on))
    x = torch.randn(1, 3)
    m.B.data.fill_(1.0)
    a = f(x)
    g(True)
    b = f(x)
    g(False)
    c = f(x)
    c.sum().backward()
    return a, b, c, m.A.grad, m.b.weight.grad, m.merged


@prog
def ddpm_loss_ema(C):
    net = nn.Sequential(nn.Linear(3, 8), nn.SiLU(), nn.Linear(8, 2))
    ema = copy.deepcopy(net)
    opt = torch.optim.AdamW(net.parameters(), 1e-2)
    ac = torch.cumprod(1 - torch.linspace(1e-3, 0.1, 10), 0)

    @C
    def step(x):
        t = torch.randint(0, 10, (x.shape[0],))
        n = torch.randn_like(x)
        a = ac[t][:, None]
        z = a.sqrt() * x + (1 - a).sqrt() * n
        p_ = net(torch.cat([z, t[:, None] / 10], 1))
        loss = F.mse_loss(p_, n)
        opt.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_value_(net.parameters(), 0.1)
        opt.step()
        with torch.no_grad():
            torch._foreach_lerp_(list(ema.parameters()), list(net.parameters()), 0.1)
        return loss.detach()

    return [step(torch.randn(4, 2)) for _ in range(3)], list(ema.parameters())


@prog
def ckpt_rng_dropout(C):
    class Blk(nn.Module):
        def __init__(s):
            super().__init__()
            s.loss = nn.Linear(4, 4)
            s.d = nn.Dropout(0.5)

        def forward(s, x, *, scale):
            return s.d(s.loss(x)).relu() * scale

    m = nn.ModuleList(Blk() for _ in range(2))

    @C
    def f(x):
        for b in m:
            x = checkpoint(b, x, use_reentrant=False, scale=2.0)
        return x.sum()

    loss = f(torch.ones(2, 4))
    loss.backward()
    return loss, facts(m), torch.rand(1)


@prog
def multi_loss_partial_backward(C):
    enc = nn.Linear(3, 3)
    h1 = nn.Linear(3, 1)
    h2 = nn.Linear(3, 1)

    @C
    def f(x):
        z = enc(x)
        l1 = h1(z).sum()
        l2 = h2(z.detach()).sum()
        l1.backward()
        l2.backward()
        l3 = h2(enc(x)).sum()
        l3.backward(inputs=list(enc.parameters()))
        return z.detach()

    f(torch.ones(2, 3))
    return facts(enc), facts(h1), facts(h2)


@prog
def freeze_midway(C):
    m = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1))
    opt = torch.optim.SGD(m.parameters(), 0.1)

    @C
    def step(x):
        opt.zero_grad()
        m(x).sum().backward()
        opt.step()

    step(torch.ones(1, 2))
    m[0].requires_grad_(False)
    step(torch.ones(1, 2))
    m[0].requires_grad_(True)
    step(torch.ones(1, 2))
    return list(m.parameters()), facts(m)


@prog
def grad_none_branch(C):
    ps = [torch.ones(2, requires_grad=True) for _ in range(3)]

    @C
    def f(x):
        (ps[0] * x).sum().backward()
        n = 0
        for q in ps:
            if q.grad is not None:
                n += 1
                q.grad.zero_()
            else:
                q.grad = torch.full_like(q, 5.0)
        return n, sum(q.grad.sum() for q in ps)

    return f(torch.ones(2)), f(torch.ones(2)), [q.grad for q in ps]


@prog
def accumulate_dtype(C):
    m = nn.Linear(3, 2).bfloat16()
    master = [q.detach().float().clone() for q in m.parameters()]

    @C
    def step(x):
        m.zero_grad()
        m(x.bfloat16()).float().pow(2).sum().backward()
        with torch.no_grad():
            for a, q in zip(master, m.parameters()):
                a.sub_(q.grad.float(), alpha=0.1)
                q.copy_(a)

    step(torch.ones(2, 3))
    step(torch.ones(2, 3))
    return master, list(m.parameters())


@prog
def scaler_inside(C):
    m = nn.Linear(3, 1)
    opt = torch.optim.SGD(m.parameters(), 0.1)
    scale = torch.tensor(8.0)

    @C
    def step(x):
        opt.zero_grad()
        with torch.autocast("cpu", torch.bfloat16):
            loss = m(x).float().pow(2).mean()
        (loss * scale).backward()
        fin = torch.stack([torch.isfinite(q.grad).all() for q in m.parameters()]).all()
        for q in m.parameters():
            q.grad.div_(scale)
            q.grad = torch.where(fin, q.grad, torch.zeros_like(q.grad))
        opt.step()
        scale.copy_(torch.where(fin, scale * 1.0, scale * 0.5))
        return loss.detach(), fin

    return [step(torch.ones(2, 3)) for _ in range(2)], list(m.parameters()), scale


@prog
def post_acc_hook_fused_optim(C):
    m = nn.Linear(3, 2)
    opts = {q: torch.optim.SGD([q], 0.1, foreach=False) for q in m.parameters()}

    def hook(q):
        opts[q].step()
        opts[q].zero_grad()

    for q in m.parameters():
        q.register_post_accumulate_grad_hook(hook)

    @C
    def step(x):
        loss = m(x).pow(2).mean()
        loss.backward()
        return loss.detach()

    return (
        [step(torch.ones(2, 3)) for _ in range(3)],
        list(m.parameters()),
        [q.grad for q in m.parameters()],
    )


@prog
def tensor_hook_clip(C):
    m = nn.Linear(3, 2)
    hs = [q.register_hook(lambda g: g.clamp(-0.1, 0.1)) for q in m.parameters()]
    f = C(m)
    f(torch.ones(2, 3)).sum().backward()
    a = facts(m)
    m.zero_grad()
    hs[0].remove()

    @C
    def step(x):
        m(x).sum().backward()

    step(torch.ones(2, 3))
    return a, facts(m)


@prog
def hooked_module_pure(C):
    m = nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 1))
    m[1].register_full_backward_hook(lambda mod, gi, go: (gi[0].clamp(-0.01, 0.01),))
    m[2].register_full_backward_pre_hook(lambda mod, go: (go[0] * 2,))
    f = C(m)
    x = torch.randn(2, 3, requires_grad=True)
    f(x).sum().backward()
    return x.grad, facts(m)


@prog
def hooked_module_logging(C):
    log = []
    m = nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 1))
    m[1].register_full_backward_hook(lambda mod, gi, go: log.append((gi[0].norm(), go[0].shape)))
    f = C(m)
    f(torch.randn(2, 3)).sum().backward()
    f(torch.randn(2, 3)).sum().backward()
    return facts(m), log


@prog
def gradcam(C):
    acts = {}
    m = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(18, 2))

    def fh(mod, i, o):
        acts["a"] = o
        o.register_hook(lambda g: acts.__setitem__("g", g))

    m[0].register_forward_hook(fh)
    f = C(m)
    o = f(torch.randn(1, 1, 5, 5))
    o[0, 1].backward()
    return (acts["a"] * acts["g"].mean((2, 3), keepdim=True)).relu().sum(1).detach()


@prog
def out_args_and_views(C):
    buf = torch.zeros(2, 3)
    acc = torch.zeros(3)

    @C
    def f(x):
        torch.mul(x, 2, out=buf)
        acc.add_(buf.sum(0))
        v = buf[0]
        v.fill_(7.0)
        torch.cumsum(x, 0, out=buf)
        return v, buf.view(-1)[:2]

    a = f(torch.ones(2, 3))
    return a, buf, acc, True, a[0]._base is buf


@prog
def return_same_twice(C):
    @C
    def f(x, d):
        y = x + 1
        d["y"] = y
        d["l"] = [y, x]
        z = y.view(-1)
        z.mul_(2)
        return y, y, (x, z), d

    d = {}
    x = torch.ones(2)
    a = f(x, d)
    return (
        a[0] is a[1],
        a[2][0] is x,
        d["y"] is a[0],
        d["l"][1] is x,
        a[3] is d,
        a[0],
        a[2][1]._base is a[0],
    )


@prog
def detach_chain(C):
    w = torch.ones(2, requires_grad=True)

    @C
    def f(x):
        y = (w * x).detach()
        y.requires_grad_()
        z = (y * 2).sum()
        z.backward()
        return y.grad, z

    return f(torch.ones(2))[0], w.grad


@prog
def param_reassign(C):
    m = nn.Linear(2, 2)

    @C
    def f(x):
        m.weight.data = m.weight.data * 0.5
        return m(x)

    return f(torch.ones(1, 2)), f(torch.ones(1, 2)), m.weight


@prog
def param_data_sgd(C):
    m = nn.Linear(2, 2)

    @C
    def step(x):
        m.zero_grad()
        m(x).sum().backward()
        for q in m.parameters():
            q.data = q.data - 0.1 * q.grad.data
        for q in m.parameters():
            q.data.add_(q.grad.data, alpha=-0.1)

    step(torch.ones(1, 2))
    step(torch.ones(1, 2))
    return list(m.parameters())
