"""Programs as users write them: training and search. `fn(C)` runs one; C is `torch.compile`."""

from __future__ import annotations

import collections
import copy
import dataclasses
import itertools
import logging
from typing import Any, NamedTuple

import flambeau as torch
import flambeau.nn as nn
import flambeau.nn.functional as F

PROGRAMS: dict[str, Any] = {}


def prog(f: Any) -> Any:
    """Note a program."""
    PROGRAMS[f.__name__] = f
    return f


def mlp(*d: int) -> Any:
    """Linear layers with ReLU between them."""
    return nn.Sequential(
        *[m for a, b in itertools.pairwise(d) for m in (nn.Linear(a, b), nn.ReLU())][:-1]
    )


@prog
def train_sched(C):
    m = mlp(4, 8, 1)
    o = torch.optim.SGD(m.parameters(), lr=0.1, momentum=0.9)
    s = torch.optim.lr_scheduler.CosineAnnealingLR(o, 10)

    @C
    def step(x, y):
        o.zero_grad()
        score = F.mse_loss(m(x), y)
        score.backward()
        o.step()
        return score.detach()

    x = torch.randn(6, 4)
    y = torch.randn(6, 1)
    out = []
    for _ in range(6):
        out.append(step(x, y))
        s.step()
    return out, list(m.parameters())


@prog
def train_fwd_only(C):
    m = mlp(4, 8, 1)
    f = C(m)
    o = torch.optim.AdamW(m.parameters(), lr=0.01)
    s = torch.optim.lr_scheduler.OneCycleLR(o, 0.1, total_steps=8)
    x = torch.randn(6, 4)
    y = torch.randn(6, 1)
    out = []
    for _ in range(5):
        score = F.smooth_l1_loss(f(x), y)
        o.zero_grad(set_to_none=True)
        score.backward()
        nn.utils.clip_grad_norm_(m.parameters(), 0.5)
        o.step()
        s.step()
        out.append(score.detach())
    return out


@prog
def clip_in_graph(C):
    m = mlp(4, 8, 1)
    o = torch.optim.Adam(m.parameters(), lr=0.01)

    @C
    def step(x, y, maxn):
        score = ((m(x) - y) ** 2).mean()
        score.backward()
        n = nn.utils.clip_grad_norm_(m.parameters(), maxn)
        o.step()
        o.zero_grad()
        return score.detach(), n

    x = torch.randn(6, 4)
    y = torch.randn(6, 1)
    return [step(x, y, c) for c in (1.0, 0.5, 0.25, 0.1)]


@prog
def clip_value(C):
    m = mlp(3, 3)

    @C
    def g(x):
        m.zero_grad()
        m(x).sum().backward()
        nn.utils.clip_grad_value_(m.parameters(), 0.1)
        return [p.grad for p in m.parameters()]

    return g(torch.randn(2, 3))


@prog
def ema(C):
    m = mlp(4, 4)
    e = copy.deepcopy(m)

    @C
    @torch.no_grad()
    def upd(decay):
        for p, q in zip(e.parameters(), m.parameters()):
            p.mul_(decay).add_(q, alpha=1 - decay)
        for b, c in zip(e.buffers(), m.buffers()):
            b.copy_(c)

    for i in range(5):
        with torch.no_grad():
            for q in m.parameters():
                q.add_(0.1)
        upd(min(0.999, (1 + i) / (10 + i)))
    return list(e.parameters())


@prog
def swa(C):
    m = mlp(3, 3)
    a = torch.optim.swa_utils.AveragedModel(m)
    f = C(m)
    x = torch.randn(2, 3)
    for _ in range(3):
        f(x)
        a.update_parameters(m)
    return a(x), a.n_averaged


@prog
def amp_train(C):
    m = mlp(4, 8, 1)
    o = torch.optim.SGD(m.parameters(), lr=0.1)
    sc = torch.amp.GradScaler("cpu", init_scale=4.0, growth_interval=2)

    @C
    def fwd(x, y):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return F.mse_loss(m(x).float(), y)

    out = []
    x = torch.randn(6, 4)
    y = torch.randn(6, 1)
    for _ in range(4):
        score = fwd(x, y)
        sc.scale(score).backward()
        sc.unscale_(o)
        sc.step(o)
        sc.update()
        o.zero_grad()
        out.append((score.detach(), sc.get_scale()))
    return out


@prog
def grad_accum(C):
    m = mlp(4, 1)
    o = torch.optim.SGD(m.parameters(), lr=0.1)

    @C
    def micro(x, y, k):
        score = F.mse_loss(m(x), y) / k
        score.backward()
        return score.detach()

    out = []
    for i in range(6):
        out.append(micro(torch.randn(3, 4), torch.randn(3, 1), 2))
        if (i + 1) % 2 == 0:
            o.step()
            o.zero_grad()
    return out, list(m.parameters())


@prog
def focal_loss(C):
    class Focal(nn.Module):
        def __init__(s, gamma=2.0, alpha=None, reduction="mean"):
            super().__init__()
            s.gamma = gamma
            s.alpha = alpha
            s.reduction = reduction

        def forward(s, i, t):
            ce = F.cross_entropy(i, t, reduction="none")
            pt = torch.exp(-ce)
            score = (1 - pt) ** s.gamma * ce
            if s.alpha is not None:
                score = s.alpha[t] * score
            if s.reduction == "mean":
                return score.mean()
            elif s.reduction == "sum":
                return score.sum()
            return score

    i = torch.randn(5, 3)
    t = torch.randint(0, 3, (5,))
    return [
        C(Focal())(i, t),
        C(Focal(alpha=torch.rand(3), reduction="sum"))(i, t),
        C(Focal(reduction="none"))(i, t),
    ]


@prog
def dice(C):
    def dice_loss(p, t, eps=1e-6, smooth=1.0):
        p = p.sigmoid().flatten(1)
        t = t.flatten(1)
        n = 2 * (p * t).sum(1) + smooth
        d = (p + t).sum(1) + smooth + eps
        return (1 - n / d).mean()

    f = C(dice_loss)
    return [
        f(torch.randn(n, 2, 4, 4), torch.randint(0, 2, (n, 2, 4, 4)).float()) for n in (2, 3, 4)
    ]


@prog
def masking(C):
    @C
    def f(x, lengths):
        m = torch.arange(x.shape[1])[None, :] < lengths[:, None]
        x = x.masked_fill(~m[..., None], 0.0)
        return x.sum(1) / lengths[:, None].clamp(min=1), m

    return [f(torch.randn(2, n, 3), torch.tensor([1, n])) for n in (4, 5, 6, 7)]


@prog
def data_branch(C):
    @C
    def f(x):
        y = x * 2
        if y.sum() > 0:
            y = y + 1
        else:
            y = y - 1
        return y.relu()

    return [f(torch.ones(3)), f(-torch.ones(3)), f(torch.ones(3) * 2)]


@prog
def boolean_index(C):
    @C
    def f(x):
        return x[x > 0].sum(), (x * 2)[x.abs() < 1]

    return f(torch.randn(5)), f(torch.randn(5))


@prog
def greedy(C):
    emb = nn.Embedding(7, 8)
    lin = nn.Linear(8, 7)

    @C
    def step(tok):
        return lin(emb(tok)[:, -1])

    toks = torch.tensor([[1]])
    for _ in range(6):
        toks = torch.cat([toks, step(toks).argmax(-1, keepdim=True)], 1)
    return toks


@prog
def greedy_in_graph(C):
    emb = nn.Embedding(7, 8)
    lin = nn.Linear(8, 7)

    @C
    def gen(tok, n):
        for _ in range(n):
            tok = torch.cat([tok, lin(emb(tok)[:, -1]).argmax(-1, keepdim=True)], 1)
        return tok

    return [gen(torch.tensor([[1]]), n) for n in (2, 3, 4)]


@prog
def beam(C):
    lin = nn.Linear(5, 5)

    @C
    def step(scores, seqs, k):
        lp = lin(F.one_hot(seqs[:, -1], 5).float()).log_softmax(-1)
        s = (scores[:, None] + lp).flatten()
        v, i = s.topk(k)
        return v, torch.cat([seqs[i // 5], (i % 5)[:, None]], 1)

    s = torch.zeros(1)
    q = torch.zeros(1, 1, dtype=torch.long)
    for _ in range(5):
        s, q = step(s, q, 2)
    return s, q


class KV:
    def __init__(s):
        s.k = None
        s.v = None

    def update(s, k, v):
        s.k = k if s.k is None else torch.cat([s.k, k], 1)
        s.v = v if s.v is None else torch.cat([s.v, v], 1)
        return s.k, s.v


@prog
def kv_cache(C):
    layer = nn.Linear(4, 12)

    class Attn(nn.Module):
        def __init__(s):
            super().__init__()
            s.l = layer

        def forward(s, x, cache):
            q, k, v = s.l(x).chunk(3, -1)
            k, v = cache.update(k, v)
            return F.scaled_dot_product_attention(q[:, None], k[:, None], v[:, None])[:, 0]

    f = C(Attn())
    c = KV()
    return [f(torch.randn(1, 1, 4), c) for _ in range(7)], c.k


@prog
def kv_static(C):
    k = torch.zeros(1, 10, 4)
    layer = nn.Linear(4, 4)

    @C
    def f(x, pos):
        k[:, pos : pos + x.shape[1]] = layer(x)
        return k[:, : pos + x.shape[1]].sum(1)

    with torch.no_grad():
        return [f(torch.randn(1, 1, 4), i) for i in range(6)], k


@prog
def dqn(C):
    q = mlp(3, 8, 2)
    t = copy.deepcopy(q)
    o = torch.optim.RMSprop(q.parameters(), 1e-2)

    @C
    def loss(s, a, r, s2, done, gamma=0.99):
        with torch.no_grad():
            y = r + gamma * (1 - done) * t(s2).max(1).values
        return F.huber_loss(q(s).gather(1, a[:, None]).squeeze(1), y)

    out = []
    for _ in range(3):
        score = loss(
            torch.randn(4, 3),
            torch.randint(0, 2, (4,)),
            torch.randn(4),
            torch.randn(4, 3),
            torch.zeros(4),
        )
        o.zero_grad()
        score.backward()
        o.step()
        out.append(score.detach())
        for p, p2 in zip(t.parameters(), q.parameters()):
            p.data.lerp_(p2.data, 0.1)
    return out


@prog
def ppo_loss(C):
    @C
    def f(lp, old, adv, v, ret, clip=0.2, ent=None):
        r = (lp - old).exp()
        pl = -torch.min(r * adv, r.clamp(1 - clip, 1 + clip) * adv).mean()
        vl = 0.5 * (v - ret).pow(2).mean()
        return {
            "policy": pl,
            "value": vl,
            "total": pl + vl - (0.0 if ent is None else 0.01 * ent.mean()),
            "kl": ((r - 1) - (lp - old)).mean().detach(),
        }

    a = [torch.randn(5) for _ in range(5)]
    return f(*a), f(*a, ent=torch.rand(5)), f(*a, clip=0.1), f(*a, clip=0.3)


@prog
def gae(C):
    @C
    def f(r, v, d, g, score):
        adv = torch.zeros_like(r)
        last = 0.0
        for t in reversed(range(len(r))):
            nv = v[t + 1]
            delta = r[t] + g * nv * (1 - d[t]) - v[t]
            last = delta + g * score * (1 - d[t]) * last
            adv[t] = last
        return adv

    return [f(torch.randn(5), torch.randn(6), torch.zeros(5), g, 0.95) for g in (0.99, 0.9, 0.8)]


@prog
def gan(C):
    G = mlp(2, 8, 2)
    D = mlp(2, 8, 1)
    og = torch.optim.Adam(G.parameters(), 1e-3)
    od = torch.optim.Adam(D.parameters(), 1e-3)
    bce = nn.BCEWithLogitsLoss()

    @C
    def dstep(real, z):
        fake = G(z).detach()
        score = bce(D(real), torch.ones(len(real), 1)) + bce(D(fake), torch.zeros(len(z), 1))
        return score

    @C
    def gstep(z):
        return bce(D(G(z)), torch.ones(len(z), 1))

    out = []
    for _ in range(3):
        od.zero_grad()
        score = dstep(torch.randn(4, 2), torch.randn(4, 2))
        score.backward()
        od.step()
        og.zero_grad()
        g = gstep(torch.randn(4, 2))
        g.backward()
        og.step()
        out += [score.detach(), g.detach()]
    return out


@prog
def siamese(C):
    class S(nn.Module):
        def __init__(s):
            super().__init__()
            s.e = mlp(4, 8, 3)

        def forward_once(s, x):
            return F.normalize(s.e(x), dim=-1)

        def forward(s, a, b, label=None, margin=1.0):
            x, y = map(s.forward_once, (a, b))
            d = F.pairwise_distance(x, y)
            if label is None:
                return d
            return (label * d**2 + (1 - label) * F.relu(margin - d) ** 2).mean()

    f = C(S())
    a, b = torch.randn(3, 4), torch.randn(3, 4)
    return f(a, b), f(a, b, torch.ones(3)), f(a, b, torch.zeros(3), margin=0.5)


@prog
def triplet(C):
    e = mlp(4, 3)
    f = C(lambda a, p, n: F.triplet_margin_loss(e(a), e(p), e(n), margin=0.3))
    return f(*[torch.randn(5, 4) for _ in range(3)])


@prog
def info_nce(C):
    @C
    def f(a, b, temperature):
        a, b = F.normalize(a, dim=1), F.normalize(b, dim=1)
        score = a @ b.T / temperature
        t = torch.arange(a.size(0))
        return (F.cross_entropy(score, t) + F.cross_entropy(score.T, t)) / 2

    return [f(torch.randn(4, 8), torch.randn(4, 8), t) for t in (0.1, 0.07, 0.05, 0.2)]


@prog
def autograd_fn(C):
    class Ste(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, s):
            ctx.save_for_backward(x)
            ctx.s = s
            return x.sign() * s

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return g * (x.abs() <= 1) * ctx.s, None

    @C
    def f(x, s):
        return (Ste.apply(x, s) ** 2).sum()

    out = []
    for s in (1.0, 2.0, 3.0):
        x = torch.randn(4, requires_grad=True)
        f(x, s).backward()
        out.append(x.grad)
    return out


@prog
def quantize(C):
    @C
    def f(x, bits=8):
        qmax = 2 ** (bits - 1) - 1
        s = x.abs().max() / qmax
        q = torch.clamp(torch.round(x / s), -qmax - 1, qmax)
        return x + (q * s - x).detach(), q.to(torch.int8), s

    return f(torch.randn(5)), f(torch.randn(5), 4)


@prog
def einops_like(C):
    def rearrange(x, pat, **ax):
        score, r = [p.split() for p in pat.split("->")]
        dict(zip(score, x.shape))
        return x.permute([score.index(n) for n in r])

    def heads(x, h):
        b, n, d = x.shape
        return rearrange(x.view(b, n, h, d // h), "b n h d -> b h n d")

    f = C(lambda x: heads(x, 2).flatten(2).sum(-1))
    return [f(torch.randn(2, n, 4)) for n in (3, 4, 5)]


@dataclasses.dataclass
class Cfg:
    dim: int = 4
    act: str = "gelu"
    scale: float = 0.5
    layers: tuple = (8, 4)
    drop: float | None = None


@prog
def dataclass_cfg(C):
    class M(nn.Module):
        def __init__(s, cfg):
            super().__init__()
            s.cfg = cfg
            s.ls = nn.ModuleList(
                [nn.Linear(a, b) for a, b in zip((cfg.dim,) + cfg.layers, cfg.layers)]
            )

        def forward(s, x):
            for i, layer in enumerate(s.ls):
                x = layer(x)
                if i < len(s.ls) - 1:
                    x = getattr(F, s.cfg.act)(x)
                if s.cfg.drop:
                    x = F.dropout(x, s.cfg.drop, s.training)
            return x * s.cfg.scale

    m = M(Cfg())
    f = C(m)
    x = torch.randn(2, 4)
    a = f(x)
    m.cfg = dataclasses.replace(m.cfg, scale=0.25)
    b = f(x)
    m.cfg.scale = 0.75
    return a, b, f(x)


@dataclasses.dataclass
class Out:
    logits: torch.Tensor
    hidden: tuple = ()
    loss: torch.Tensor | None = None

    def __getitem__(s, i):
        return (s.logits, s.hidden, s.loss)[i]


class NT(NamedTuple):
    a: torch.Tensor
    b: torch.Tensor
    n: int = 3


@prog
def outputs(C):
    layer = nn.Linear(3, 3)

    @C
    def f(x, labels=None):
        hs = []
        for _ in range(2):
            x = layer(x)
            hs.append(x)
        return (
            Out(x, tuple(hs), None if labels is None else F.mse_loss(x, labels)),
            NT(x, x + 1),
            {"x": x, "n": [x, x]},
            collections.OrderedDict(a=x),
        )

    o = f(torch.ones(2, 3))
    o2 = f(torch.ones(2, 3), torch.zeros(2, 3))
    return (
        o[0].logits,
        o[0].hidden,
        o2[0][2],
        tuple(o[1]),
        type(o[1]).__name__,
        o[2],
        list(o2[3].items()),
    )


@prog
def module_containers(C):
    class M(nn.Module):
        def __init__(s):
            super().__init__()
            s.d = nn.ModuleDict({"a": nn.Linear(3, 3), "b": nn.Linear(3, 3)})
            s.l = nn.ModuleList([nn.Linear(3, 3) for _ in range(3)])
            s.p = nn.ParameterList([nn.Parameter(torch.randn(3)) for _ in range(2)])
            s.pd = nn.ParameterDict({"w": nn.Parameter(torch.ones(3))})

        def forward(s, x, keys=("a", "b")):
            for k in keys:
                x = s.d[k](x)
            for _n, m in s.d.items():
                x = x + m(x)
            for i, m in enumerate(s.l):
                x = m(x) * (i + 1)
            for m in reversed(s.l):
                x = m(x)
            for m in s.l[1:]:
                x = m(x)
            for p, q in zip(s.p, s.l):
                x = x * p + q.bias
            for _, v in s.pd.items():
                x = x * v
            return x, "a" in s.d, len(s.l), list(s.d.keys())

    f = C(M())
    x = torch.randn(2, 3)
    return f(x), f(x, ("b",))


@prog
def try_except(C):
    @C
    def f(d, x):
        try:
            y = d["w"] * x
        except KeyError:
            y = x - 1
        else:
            y = y + 1
        finally:
            z = x * 2
        try:
            raise ValueError("no")
        except (TypeError, ValueError) as e:
            msg = str(e)
        return y + z, msg

    return f({}, torch.ones(2)), f({"w": torch.ones(2)}, torch.ones(2))


log = logging.getLogger("tp")


@prog
def logging_calls(C):
    @C
    def f(x, i):
        y = x.sin()
        log.debug("step %d", i)
        y = y + 1
        log.info(f"shape {x.shape}")
        return y * 2

    return [f(torch.ones(2), i) for i in range(4)]
