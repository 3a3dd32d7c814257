"""Programs as users write them: models, and Python around them. `fn(C)`: C is `torch.compile`."""

from __future__ import annotations

import contextlib
import enum
import functools
import itertools
import math
import warnings

import flambeau as torch
import flambeau.nn as nn
import flambeau.nn.functional as F
from tests.capture.user_training import Cfg, mlp, prog


@prog
def warn(C):
    @C
    def f(x):
        if x.dim() != 2:
            warnings.warn(f"expected 2 dims, got {x.dim()}", stacklevel=2)
        return x * 2

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return f(torch.ones(2)), f(torch.ones(2)), f(torch.ones(2, 2))


@prog
def prints(C):
    @C
    def f(x):
        y = x + 1
        print(end="")
        return y * 2

    return f(torch.ones(2)), f(torch.ones(2))


@prog
def partials(C):
    def act(x, *, slope, bias=0.0):
        return F.leaky_relu(x, slope) + bias

    @functools.lru_cache(None)
    def table(n):
        return math.sqrt(n)

    g = functools.partial(act, slope=0.1)

    @C
    def f(x):
        return functools.reduce(
            lambda a, b: a + b, [g(x), functools.partial(g, bias=1.0)(x)]
        ) * table(x.shape[0])

    return f(torch.randn(3)), f(torch.randn(4))


class Bar:
    def __init__(s, it, desc=""):
        s.it = it
        s.n = 0
        s.desc = desc

    def __iter__(s):
        for x in s.it:
            s.n += 1
            yield x

    def __len__(s):
        return len(s.it)

    def set_postfix(s, **k):
        s.post = k


@prog
def tqdm_like(C):
    @C
    def f(xs):
        b = Bar(xs, "go")
        t = 0
        for x in b:
            t = t + x.sum()
            b.set_postfix(n=b.n)
        return t, b.n, len(b)

    return f([torch.ones(2)] * 3)


@prog
def fstrings(C):
    @C
    def f(x, name="a"):
        k = f"{name}_{x.shape[-1]}_{x.dtype}"
        d = {k: x * 2}
        return d, f"{len(d):03d}|{name!r:>5}|{3.14159:.2f}"

    return f(torch.ones(2, 3)), f(torch.ones(2, 3), "b")


@prog
def asserts(C):
    @C
    def f(x, w):
        assert x.dim() == 2, f"bad dim {x.dim()}"
        assert x.shape[1] == w.shape[0], (x.shape, w.shape)
        assert isinstance(w, torch.Tensor) and w.is_floating_point()
        torch._assert(x.shape[0] > 0, "empty")
        return x @ w

    r = [f(torch.ones(2, 3), torch.ones(3, 1)), f(torch.ones(4, 3), torch.ones(3, 1))]
    try:
        f(torch.ones(2, 3), torch.ones(2, 1))
    except AssertionError as e:
        r.append(str(e))
    return r


@prog
def isinst_chain(C):
    @C
    def f(x):
        if isinstance(x, dict):
            return {k: f2(v) for k, v in x.items()}
        if isinstance(x, (list, tuple)):
            return type(x)(f2(v) for v in x)
        if isinstance(x, torch.Tensor):
            return x * 2
        if isinstance(x, (int, float)):
            return x + 1
        return None

    f2 = f

    def g(x):
        if isinstance(x, dict):
            return {k: g(v) for k, v in x.items()}
        if isinstance(x, (list, tuple)):
            return type(x)([g(v) for v in x])
        if torch.is_tensor(x):
            return x * 2
        if isinstance(x, bool):
            return not x
        if isinstance(x, (int, float)):
            return x + 1
        return x

    h = C(g)
    return h({"a": [torch.ones(2), (3, torch.zeros(1))], "b": 1.5, "c": None, "d": True, "s": "t"})


@prog
def walrus(C):
    @C
    def f(xs):
        out = []
        while xs and (n := xs[-1]).sum() is not None and len(out) < 3:
            out.append(n * 2)
            xs = xs[:-1]
        if (m := len(out)) > 1:
            out = [o + m for o in out]
        return out, [y for x in out if (y := x + 1) is not None]

    return f([torch.ones(1), torch.ones(2)])


@prog
def matching(C):
    @C
    def f(cmd, x):
        match cmd:
            case ("scale", float(s) | int(s)):
                return x * s
            case {"op": "add", "v": v, **rest}:
                return x + v + len(rest)
            case [a, *rest] if rest:
                return x + a + sum(rest)
            case Cfg(dim=d, act="gelu"):
                return F.gelu(x) * d
            case str() | None:
                return x
            case _:
                return -x

    x = torch.ones(2)
    return [
        f(c, x)
        for c in (
            ("scale", 2.0),
            ("scale", 3),
            {"op": "add", "v": 1, "k": 2},
            [1, 2, 3],
            Cfg(),
            "s",
            None,
            5,
        )
    ]


class Mode(enum.Enum):
    TRAIN = "t"
    EVAL = "e"


class Bits(enum.IntFlag):
    A = 1
    B = 2


@prog
def enums(C):
    @C
    def f(x, mode, bits):
        if mode is Mode.TRAIN:
            x = x * 2
        if Bits.A in bits:
            x = x + 1
        if bits & Bits.B:
            x = x + int(bits)
        return x, mode.value, {Mode.TRAIN: 1, Mode.EVAL: 2}[mode], [m.name for m in Mode]

    return f(torch.ones(1), Mode.TRAIN, Bits.A | Bits.B), f(torch.ones(1), Mode.EVAL, Bits.A)


@prog
def rnn_loop(C):
    cell = nn.GRUCell(3, 4)
    head = nn.Linear(4, 2)

    @C
    def f(xs, h=None):
        outs = []
        h = torch.zeros(xs.shape[1], 4) if h is None else h
        for _t, x in enumerate(xs.unbind(0)):
            h = cell(x, h)
            outs.append(head(h))
        return torch.stack(outs), h

    return [f(torch.randn(n, 2, 3))[0] for n in (3, 4)], f(torch.randn(3, 2, 3), torch.ones(2, 4))


@prog
def lstm_module(C):
    layer = nn.LSTM(3, 4, batch_first=True)
    f = C(lambda x: layer(x)[0][:, -1])
    return f(torch.randn(2, 5, 3)), f(torch.randn(2, 6, 3))


@prog
def resnet_block(C):
    class B(nn.Module):
        def __init__(s, i, o, stride=1):
            super().__init__()
            s.c = nn.Conv2d(i, o, 3, stride, 1, bias=False)
            s.b = nn.BatchNorm2d(o)
            s.d = (
                nn.Sequential(nn.Conv2d(i, o, 1, stride), nn.BatchNorm2d(o))
                if i != o or stride != 1
                else None
            )

        def forward(s, x):
            i = x if s.d is None else s.d(x)
            return F.relu(s.b(s.c(x)) + i, inplace=True)

    m = nn.Sequential(B(3, 4), B(4, 8, 2), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 2))
    f = C(m)
    x = torch.randn(2, 3, 8, 8)
    a = f(x)
    a.sum().backward()
    m.eval()
    b = f(x)
    m.train()
    return a, b, f(x), m[0].b.num_batches_tracked


@prog
def transformer(C):
    m = nn.TransformerEncoder(
        nn.TransformerEncoderLayer(8, 2, 16, 0.0, batch_first=True), 2, enable_nested_tensor=False
    )
    f = C(m)
    return [f(torch.randn(2, n, 8)) for n in (3, 4, 5)], f(
        torch.randn(2, 5, 8), src_key_padding_mask=torch.zeros(2, 5, dtype=torch.bool)
    )


@prog
def vae(C):
    e = mlp(6, 8, 4)
    d = mlp(2, 8, 6)

    @C
    def f(x, beta):
        mu, lv = e(x).chunk(2, -1)
        z = mu + torch.randn_like(mu) * (0.5 * lv).exp()
        kl = -0.5 * (1 + lv - mu**2 - lv.exp()).sum(-1).mean()
        return F.mse_loss(d(z), x) + beta * kl, {"kl": kl.detach()}

    return [f(torch.randn(3, 6), b)[0].shape for b in (0.0, 0.1, 0.2, 0.3)]


@prog
def diffusion(C):
    m = mlp(3, 16, 2)
    betas = torch.linspace(1e-4, 0.02, 10)
    ab = torch.cumprod(1 - betas, 0)

    @C
    def f(x, t, noise):
        a = ab[t][:, None]
        xt = a.sqrt() * x + (1 - a).sqrt() * noise
        return F.mse_loss(m(torch.cat([xt, t[:, None] / 10.0], 1)), noise)

    @C
    def sample(x, t):
        eps = m(torch.cat([x, torch.full((x.shape[0], 1), t / 10.0)], 1))
        b = betas[t]
        x = (x - b / (1 - ab[t]).sqrt() * eps) / (1 - b).sqrt()
        if t > 0:
            x = x + b.sqrt() * 0.5
        return x

    x = torch.randn(3, 2)
    with torch.no_grad():
        for t in reversed(range(6)):
            x = sample(x, t)
    return f(torch.randn(3, 2), torch.tensor([1, 4, 9]), torch.randn(3, 2)), x


@prog
def rope(C):
    @functools.lru_cache(maxsize=8)
    def freqs(n, d):
        inv = 1.0 / (10000 ** (torch.arange(0, d, 2).float() / d))
        return torch.outer(torch.arange(n).float(), inv)

    @C
    def f(q):
        t = freqs(q.shape[1], q.shape[2])
        c, s = t.cos(), t.sin()
        a, b = q[..., ::2], q[..., 1::2]
        return torch.stack([a * c - b * s, a * s + b * c], -1).flatten(-2)

    return [f(torch.randn(1, n, 4)) for n in (3, 4)]


@prog
def early_exit(C):
    class M(nn.Module):
        def __init__(s):
            super().__init__()
            s.ls = nn.ModuleList([nn.Linear(3, 3) for _ in range(3)])
            s.th = 0.5

        def forward(s, x):
            for i, layer in enumerate(s.ls):
                x = layer(x).tanh()
                if x.abs().mean().item() < s.th and i > 0:
                    return x, i
            return x, len(s.ls)

    f = C(M())
    return f(torch.zeros(2, 3)), f(torch.ones(2, 3) * 5)


@prog
def metrics(C):
    class Meter:
        def __init__(s):
            s.total = 0.0
            s.n = 0
            s.hist = []

        def update(s, v, n=1):
            s.total = s.total + v * n
            s.n += n
            s.hist.append(v)

        @property
        def avg(s):
            return s.total / max(s.n, 1)

    m = Meter()

    @C
    def f(x, y):
        c = (x.argmax(1) == y).float().mean()
        m.update(c, len(y))
        return m.avg

    return [f(torch.randn(4, 3), torch.randint(0, 3, (4,))) for _ in range(4)], m.n, len(m.hist)


@prog
def ctx_managers(C):
    @contextlib.contextmanager
    def frozen(m):
        [p.requires_grad for p in m.parameters()]
        try:
            yield m
        finally:
            pass

    m = nn.Linear(2, 2)

    @C
    def f(x):
        with torch.no_grad():
            a = m(x)
        with frozen(m) as k, contextlib.nullcontext():
            b = k(x)
        with torch.enable_grad():
            c = x * 2
        return a + b + c, a.requires_grad, b.requires_grad

    return f(torch.ones(1, 2))


@prog
def generators(C):
    def pairs(xs):
        for i in range(len(xs) - 1):
            yield xs[i], xs[i + 1]

    @C
    def f(xs):
        return (
            sum(a * b for a, b in pairs(xs)),
            list(itertools.accumulate([x.sum() for x in xs])),
            dict(enumerate(x * 2 for x in xs)),
            list(itertools.chain(xs, [xs[0]])),
            max(len(x) for x in xs),
        )

    return f([torch.ones(2), torch.ones(2) * 2, torch.ones(2) * 3])


@prog
def sort_things(C):
    @C
    def f(d):
        ks = sorted(d, key=lambda k: -len(k))
        items = sorted(d.items(), key=lambda kv: kv[0], reverse=True)
        return (
            torch.stack([d[k] for k in ks]),
            [k for k, _ in items],
            any(k == "b" for k in d),
            all(len(k) for k in d),
            set(d) & {"a", "zz"},
        )

    return f({"a": torch.ones(1), "bbb": torch.zeros(1), "cc": torch.ones(1) * 2})


@prog
def counters(C):
    class M(nn.Module):
        def __init__(s):
            super().__init__()
            s.calls = 0
            s.register_buffer("seen", torch.zeros(1))
            s.l = nn.Linear(2, 2)

        def forward(s, x):
            s.calls += 1
            s.seen += x.shape[0]
            return s.l(x) * (1 if s.calls < 3 else 2)

    m = M()
    f = C(m)
    x = torch.ones(3, 2)
    return [f(x) for _ in range(5)], m.calls, m.seen


@prog
def weight_norm(C):
    m = nn.utils.parametrizations.weight_norm(nn.Linear(3, 2))
    f = C(m)
    x = torch.randn(2, 3)
    f(x).sum().backward()
    return f(x), m.parametrizations.weight.original0.grad


@prog
def spectral(C):
    m = nn.utils.parametrizations.spectral_norm(nn.Linear(3, 2))
    f = C(m)
    return f(torch.ones(1, 3)), f(torch.ones(1, 3))


@prog
def hooks(C):
    m = nn.Linear(2, 2)
    m.register_forward_hook(lambda mod, i, o: o * 2)
    m.register_forward_pre_hook(lambda mod, i: (i[0] + 1,))
    f = C(m)
    return f(torch.ones(1, 2)), f(torch.ones(1, 2))


@prog
def temperature_sampling(C):
    layer = nn.Linear(4, 6)

    @C
    def logits(x, temp, topk, topp):
        z = layer(x) / max(temp, 1e-5)
        if topk:
            v, _ = z.topk(topk)
            z = z.masked_fill(z < v[..., -1:], -float("inf"))
        if topp < 1.0:
            s, i = z.sort(descending=True)
            c = s.softmax(-1).cumsum(-1)
            r = c > topp
            r[..., 1:] = r[..., :-1].clone()
            r[..., 0] = False
            z = z.masked_fill(r.scatter(-1, i, r), -float("inf"))
        return z.softmax(-1)

    x = torch.randn(2, 4)
    return [
        logits(x, t, k, p)
        for t, k, p in ((1.0, 3, 1.0), (0.7, 3, 0.9), (0.5, 3, 0.8), (0.3, 3, 0.7))
    ]


@prog
def lr_arg(C):
    @C
    def sgd(params, grads, lr, wd):
        return [p - lr * (g + wd * p) for p, g in zip(params, grads)]

    p = [torch.randn(3) for _ in range(2)]
    for i in range(6):
        p = sgd(p, [torch.ones(3)] * 2, 0.1 * 0.9**i, 1e-4)
    return p


@prog
def manual_adam(C):
    @C
    def step(p, g, m, v, t, lr, b1=0.9, b2=0.999, eps=1e-8):
        m = b1 * m + (1 - b1) * g
        v = b2 * v + (1 - b2) * g * g
        mh = m / (1 - b1**t)
        vh = v / (1 - b2**t)
        return p - lr * mh / (vh.sqrt() + eps), m, v

    p = torch.ones(3)
    m = torch.zeros(3)
    v = torch.zeros(3)
    for t in range(1, 7):
        p, m, v = step(p, p * 2, m, v, t, 0.1 / math.sqrt(t))
    return p


@prog
def warmup(C):
    @C
    def f(x, step, warm=4):
        s = min(1.0, step / warm)
        return x * s if step < warm else x * math.cos(step / 10)

    return [f(torch.ones(2), i) for i in range(8)]


@prog
def jacobian(C):
    f = C(lambda x: (x**2).sum())
    return torch.autograd.functional.jacobian(f, torch.arange(3.0)), torch.func.grad(
        lambda x: (x**3).sum()
    )(torch.ones(2))


@prog
def grad_penalty(C):
    D = mlp(2, 4, 1)

    @C
    def f(x):
        x = x.clone().requires_grad_(True)
        y = D(x).sum()
        (g,) = torch.autograd.grad(y, x, create_graph=False)
        return ((g.norm(2, 1) - 1) ** 2).mean()

    return f(torch.randn(3, 2))


@prog
def checkpointing(C):
    from flambeau.utils.checkpoint import checkpoint

    m = mlp(4, 8, 4)
    f = C(lambda x: checkpoint(m, x, use_reentrant=False))
    x = torch.randn(2, 4, requires_grad=True)
    f(x).sum().backward()
    return x.grad


@prog
def dataloader(C):
    ds = torch.utils.data.TensorDataset(torch.randn(10, 3), torch.randint(0, 2, (10,)))
    m = nn.Linear(3, 2)
    f = C(lambda x, y: F.cross_entropy(m(x), y))
    return [f(x, y).detach() for x, y in torch.utils.data.DataLoader(ds, 4)]


@prog
def eval_train_switch(C):
    m = nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.5), nn.BatchNorm1d(3))
    f = C(m)
    x = torch.ones(4, 3)
    m.eval()
    a = f(x)
    with torch.no_grad():
        b = f(x)
    with torch.inference_mode():
        c = f(x)
    m.train()
    d = f(x).shape
    m.eval()
    return a, b, c, d, f(x)


@prog
def freeze(C):
    m = mlp(3, 3, 1)
    f = C(m)
    x = torch.ones(2, 3)
    f(x).sum().backward()
    g = [p.grad.clone() for p in m.parameters()]
    for p in m[0].parameters():
        p.requires_grad_(False)
        p.grad = None
    f(x).sum().backward()
    return g, [p.grad for p in m.parameters()]


@prog
def attention_mask_dict(C):
    class Att(nn.Module):
        def __init__(s, d, h):
            super().__init__()
            s.h = h
            s.qkv = nn.Linear(d, 3 * d)
            s.o = nn.Linear(d, d)
            s.register_buffer("mask", torch.tril(torch.ones(8, 8)).bool(), persistent=False)

        def forward(s, x, past=None, use_cache=False, **kw):
            b, t, d = x.shape
            q, k, v = [z.view(b, t, s.h, -1).transpose(1, 2) for z in s.qkv(x).split(d, -1)]
            if past is not None:
                k = torch.cat([past[0], k], 2)
                v = torch.cat([past[1], v], 2)
            T = k.shape[2]
            a = (q @ k.mT) * (k.size(-1) ** -0.5)
            a = a.masked_fill(~s.mask[T - t : T, :T], float("-inf")).softmax(-1)
            o = s.o((a @ v).transpose(1, 2).reshape(b, t, d))
            return (o, (k, v) if use_cache else None)

    f = C(Att(4, 2))
    o, c = f(torch.randn(1, 2, 4), use_cache=True)
    r = [o]
    for _ in range(4):
        o, c = f(torch.randn(1, 1, 4), past=c, use_cache=True)
        r.append(o)
    return r
