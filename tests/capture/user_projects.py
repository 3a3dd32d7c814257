"""Caches, trainers, adversarial and averaged models, and the Python between: `fn(C)`."""

from __future__ import annotations

import abc
import contextlib
import copy
import dataclasses
import enum
import functools
import itertools
import math
import operator
import types
import typing
from collections import OrderedDict

import flambeau as torch
import flambeau.nn.functional as F
from flambeau import nn
from flambeau.nn.utils import parametrize
from flambeau.utils.checkpoint import checkpoint
from tests.capture.user_training import prog


@prog
def hf_attention_mask(C):
    class Mask:
        def __init__(s, causal):
            s.causal = causal
            s.cache = {}

        def make(s, q, k, dtype):
            key = (q, k)
            if key not in s.cache:
                m = torch.full((q, k), torch.finfo(dtype).min, dtype=dtype)
                s.cache[key] = torch.triu(m, diagonal=1 + k - q)
            return s.cache[key]

    mk = Mask(True)

    @C
    def f(x, pad=None):
        b, t, d = x.shape
        m = mk.make(t, t, x.dtype)[None]
        if pad is not None:
            m = m.expand(b, -1, -1).masked_fill(pad[:, None, :] == 0, torch.finfo(x.dtype).min)
        return (x @ x.transpose(1, 2) / math.sqrt(d) + m).softmax(-1) @ x

    x = torch.randn(2, 3, 4)
    return f(x), f(x, torch.tensor([[1, 1, 0], [1, 1, 1]])), list(mk.cache), f(torch.randn(1, 2, 4))


@prog
def dynamic_cache(C):
    class Layer:
        keys: torch.Tensor | None = None
        values = None
        is_init = False

        def lazy(s, k):
            s.dtype, s.device = k.dtype, k.device
            s.keys = torch.tensor([], dtype=k.dtype)
            s.values = torch.tensor([], dtype=k.dtype)
            s.is_init = True

        def update(s, k, v):
            if not s.is_init:
                s.lazy(k)
            s.keys = torch.cat([s.keys, k], dim=-2) if s.keys.numel() else k
            s.values = torch.cat([s.values, v], -2) if s.values.numel() else v
            return s.keys, s.values

    class Cache:
        def __init__(s):
            s.layers = []
            s.cls = Layer

        def update(s, k, v, i, cache_kwargs=None):
            while len(s.layers) <= i:
                s.layers.append(s.cls())
            return s.layers[i].update(k, v)

        def get_seq_length(s, i=0):
            return (
                0 if i >= len(s.layers) or not s.layers[i].is_init else s.layers[i].keys.shape[-2]
            )

        def __len__(s):
            return len(s.layers)

        def __iter__(s):
            for unit in s.layers:
                yield unit.keys, unit.values

    class M(nn.Module):
        def __init__(s):
            super().__init__()
            s.q = nn.Linear(4, 4)
            s.n = 2

        def forward(s, x, past=None, use_cache=True, **kw):
            if use_cache and past is None:
                past = Cache()
            off = past.get_seq_length() if past is not None else 0
            pos = torch.arange(off, off + x.shape[1])
            x = x + pos[None, :, None]
            for i in range(s.n):
                k = v = s.q(x)
                if past is not None:
                    k, v = past.update(k, v, i, {"pos": pos})
                x = F.scaled_dot_product_attention(x, k, v)
            return x, past

    m = M().eval()
    f = C(m)
    with torch.no_grad():
        a, c = f(torch.randn(1, 3, 4))
        b, c = f(torch.randn(1, 1, 4), past=c)
        d, c = f(torch.randn(1, 1, 4), past=c)
        e, c = f(torch.randn(1, 1, 4), past=c)
    return a, b, d, e, len(c), [k.shape for k, v in c], c.layers[0].dtype


@prog
def static_cache_index(C):
    class Cache(nn.Module):
        def __init__(s, n):
            super().__init__()
            s.register_buffer("k", torch.zeros(1, n, 2))
            s.pos = 0

        def update(s, x):
            n = x.shape[1]
            s.k[:, s.pos : s.pos + n] = x
            s.pos += n
            return s.k

        def copy_at(s, x, idx):
            s.k.index_copy_(1, idx, x)
            return s.k

    c = Cache(6)
    f = C(lambda x: c.update(x).sum(1))
    g = C(lambda x, i: c.copy_at(x, i).mean())
    return (
        f(torch.ones(1, 2, 2)),
        f(torch.ones(1, 1, 2)),
        f(torch.ones(1, 1, 2)),
        c.pos,
        c.k.clone(),
        g(torch.ones(1, 1, 2) * 5, torch.tensor([5])),
        c.k,
    )


@prog
def parametrized_training(C):
    class Sym(nn.Module):
        def forward(s, x):
            return x.triu() + x.triu(1).T

        def right_inverse(s, a):
            return a.triu()

    m = nn.Sequential(nn.Linear(3, 3), nn.Tanh())
    parametrize.register_parametrization(m[0], "weight", Sym())
    nn.utils.parametrizations.weight_norm(m[0], "bias", dim=0)
    opt = torch.optim.SGD(m.parameters(), lr=0.1, momentum=0.9)

    @C
    def step(x):
        opt.zero_grad()
        unit = m(x).square().mean()
        unit.backward()
        opt.step()
        return unit.detach()

    r = [step(torch.ones(2, 3)) for _ in range(3)]
    with parametrize.cached():
        w = m[0].weight
    return r, w, [n for n, _ in m.named_parameters()]


@prog
def forward_hooks(C):
    acts = {}
    m = nn.Sequential(OrderedDict(a=nn.Linear(3, 3), b=nn.ReLU(), c=nn.Linear(3, 2)))

    def save(name):
        def hook(mod, inp, out):
            acts[name] = out.detach()

        return hook

    hs = [unit.register_forward_hook(save(n)) for n, unit in m.named_children()]
    m.a.register_forward_pre_hook(lambda mod, args: (args[0] * 2,))
    m.c.register_forward_hook(lambda mod, a, kw, o: o + kw.get("z", 1), with_kwargs=True)
    f = C(m)
    o = f(torch.ones(1, 3))
    k = list(acts)
    hs[0].remove()
    acts.clear()
    o2 = f(torch.ones(1, 3))
    return o, o2, k, list(acts.items())


@prog
def timm_droppath(C):
    def drop_path(x, p, training, scale=True):
        if p == 0.0 or not training:
            return x
        keep = 1 - p
        r = x.new_empty((x.shape[0],) + (1,) * (x.ndim - 1)).bernoulli_(keep)
        if keep > 0.0 and scale:
            r.div_(keep)
        return x * r

    class DP(nn.Module):
        def __init__(s, p):
            super().__init__()
            s.p = p

        def forward(s, x):
            return drop_path(x, s.p, s.training)

        def extra_repr(s):
            return f"p={round(s.p, 3):0.3f}"

    dpr = [x.item() for x in torch.linspace(0, 0.5, 3)]
    m = nn.Sequential(*[nn.Sequential(nn.Linear(2, 2), DP(d)) for d in dpr])
    f = C(m)
    a = f(torch.ones(4, 2))
    m.eval()
    return a, f(torch.ones(4, 2))


@prog
def timm_forward_features(C):
    class Enc(nn.Module):
        def __init__(s):
            super().__init__()
            s.cls = nn.Parameter(torch.zeros(1, 1, 4))
            s.pos = nn.Parameter(torch.randn(1, 5, 4))
            s.blocks = nn.Sequential(
                *[
                    nn.TransformerEncoderLayer(4, 2, 8, 0.0, batch_first=True, norm_first=True)
                    for _ in range(2)
                ]
            )
            s.norm = nn.LayerNorm(4)
            s.head = nn.Identity()
            s.global_pool = "token"
            s.grad_ckpt = False

        def _pos(s, x):
            if s.cls is not None:
                x = torch.cat((s.cls.expand(x.shape[0], -1, -1), x), dim=1)
            return x + s.pos

        def forward_features(s, x):
            x = s._pos(x)
            x = (
                s.blocks(x)
                if not s.grad_ckpt
                else functools.reduce(
                    lambda h, b: checkpoint(b, h, use_reentrant=False), s.blocks, x
                )
            )
            return s.norm(x)

        def forward_intermediates(s, x, indices=None, norm=False):
            take = {range(len(s.blocks))[i] for i in (indices or [-1])}
            inter = []
            x = s._pos(x)
            for i, b in enumerate(s.blocks):
                x = b(x)
                if i in take:
                    inter.append(s.norm(x) if norm else x)
            return x, [
                y[:, 1:].transpose(1, 2).reshape(y.shape[0], -1, 2, 2).contiguous() for y in inter
            ]

        def forward(s, x):
            x = s.forward_features(x)
            x = x[:, 0] if s.global_pool == "token" else x[:, 1:].mean(1)
            return s.head(x)

    m = Enc()
    f = C(m)
    x = torch.randn(2, 4, 4)
    a = f(x)
    m.grad_ckpt = True
    b = f(x)
    g = C(m.forward_intermediates)
    return a, b, g(x, [0, -1], norm=True)


@prog
def lightning_module(C):
    class LM(nn.Module):
        def __init__(s, **hp):
            super().__init__()
            s.hparams = types.SimpleNamespace(**hp)
            s.net = nn.Linear(2, 2)
            s._logged = {}
            s.global_step = 0
            s.automatic = True

        def log(s, name, v, *, prog_bar=False, on_step=None):
            s._logged[name] = (v.detach() if isinstance(v, torch.Tensor) else v, prog_bar)

        def training_step(s, batch, batch_idx):
            x, y = batch
            o = s.net(x)
            loss = F.cross_entropy(o, y)
            acc = (o.argmax(-1) == y).float().mean()
            s.log("loss", loss, prog_bar=True)
            s.log("acc", acc)
            s.log("lr", s.hparams.lr)
            return {"loss": loss, "acc": acc, "idx": batch_idx}

    m = LM(lr=0.1, wd=0)
    opt = torch.optim.AdamW(m.parameters(), lr=m.hparams.lr)
    ts = C(m.training_step)
    r = []
    for i in range(3):
        o = ts((torch.randn(4, 2), torch.tensor([0, 1, 0, 1])), i)
        opt.zero_grad()
        o["loss"].backward()
        opt.step()
        r.append({k: v.detach() if isinstance(v, torch.Tensor) else v for k, v in o.items()})
    return r, m._logged


@prog
def grad_accum_ctx(C):
    m = nn.Linear(2, 1)
    opt = torch.optim.SGD(m.parameters(), lr=0.1)

    @contextlib.contextmanager
    def no_sync(flag):
        old = m.training
        m.training = not flag
        try:
            yield
        finally:
            m.training = old

    @C
    def micro(x, i, n):
        with no_sync(True) if i < n - 1 else contextlib.nullcontext():
            unit = m(x).mean() / n
            unit.backward()
        if i == n - 1:
            opt.step()
            opt.zero_grad(set_to_none=False)
        return unit.detach()

    return (
        [micro(torch.ones(2, 2) * i, i % 2, 2) for i in range(4)],
        list(m.parameters()),
        [q.grad for q in m.parameters()],
        m.training,
    )


@prog
def autocast_nested(C):
    m = nn.Linear(4, 4)

    @C
    def f(x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            a = m(x)
            with torch.autocast("cpu", enabled=False):
                b = m(x.float())
            c = a @ b.to(a.dtype)
        with torch.no_grad():
            d = m(x)
        with torch.set_grad_enabled(torch.is_grad_enabled() and m.training):
            e = m(x)
        return a, b, c, d, e, a.dtype

    return f(torch.ones(4, 4))


@prog
def enum_flag_dispatch(C):
    class Mode(enum.IntFlag):
        A = 1
        B = 2
        AB = 3

    class Red(enum.StrEnum):
        MEAN = "mean"
        SUM = "sum"

        @property
        def fn(s):
            return {"mean": torch.mean, "sum": torch.sum}[s.value]

        @classmethod
        def parse(cls, v):
            return cls(v) if not isinstance(v, cls) else v

    @C
    def f(x, m, r):
        r = Red.parse(r)
        if m & Mode.A:
            x = x + 1
        if Mode.B in m:
            x = x * 2
        return r.fn(x) + len(list(Red)), (m | Mode.B).name, f"{r.value}-{r.name}", r == "sum"

    return f(torch.ones(2), Mode.A, "mean"), f(torch.ones(2), Mode.AB, Red.SUM)


@prog
def abstract_registry(C):
    REG = {}

    def register(name):
        def deco(cls):
            REG[name] = cls
            return cls

        return deco

    class Op(abc.ABC):
        def __init__(s, k):
            s.k = k

        @abc.abstractmethod
        def __call__(s, x): ...
        def __or__(s, o):
            return Pipe(s, o)

    class Pipe(Op):
        def __init__(s, *ops):
            s.ops = ops

        def __call__(s, x):
            return functools.reduce(lambda a, o: o(a), s.ops, x)

    @register("add")
    class Add(Op):
        def __call__(s, x):
            return x + s.k

    @register("mul")
    class Mul(Op):
        def __call__(s, x):
            return x * s.k

    @C
    def f(x, spec):
        ops = [REG[n](k) for n, k in spec]
        p = functools.reduce(operator.or_, ops)
        return p(x), len(p.ops), issubclass(type(p), Op), callable(p)

    return f(torch.ones(2), [("add", 1), ("mul", 3), ("add", 2)])


@prog
def weakref_idcache(C):
    cache = {}

    @C
    def f(x, m):
        k = type(m).__name__
        try:
            w = cache[k]
        except KeyError:
            w = cache[k] = m.weight.sum(0)
        return x * w

    m = nn.Linear(2, 2)
    return f(torch.ones(2), m), f(torch.ones(2), m), list(cache)


@prog
def generator_pipeline(C):
    def src(xs):
        yield from xs

    def stage(it, f):
        for v in it:
            try:
                yield f(v)
            except ZeroDivisionError:
                yield None
                continue

    def batch(it, n):
        it = iter(it)
        while chunk := list(itertools.islice(it, n)):
            yield chunk

    @C
    def f(xs):
        out = [
            torch.stack([v for v in b if v is not None])
            for b in batch(stage(src(enumerate(xs)), lambda iv: iv[1] * (6 // (iv[0] - 1))), 2)
        ]
        return out

    return f([torch.ones(1) * i for i in range(5)])


@prog
def exc_groups_ctx(C):
    class Guard:
        def __init__(s, log, swallow):
            s.log = log
            s.sw = swallow

        def __enter__(s):
            s.log.append("enter")
            return s

        def __exit__(s, t, v, tb):
            s.log.append((t.__name__ if t else None, str(v)))
            return s.sw and t is ValueError

    @C
    def f(x, log):
        with Guard(log, True), Guard(log, False):
            x = x * 2
            if x.shape[0] == 2:
                raise ValueError("two")
            x = x * 100
        with contextlib.suppress(KeyError):
            {}["q"]
        with contextlib.ExitStack() as st:
            for _i in range(2):
                st.enter_context(Guard(log, False))
            st.callback(log.append, "cb")
            x = x + 1
        return x

    log = []
    return f(torch.ones(2), log), f(torch.ones(3), log), log


@prog
def inplace_views_buffers(C):
    class M(nn.Module):
        def __init__(s):
            super().__init__()
            s.register_buffer("q", torch.zeros(4, 2))
            s.register_buffer("ptr", torch.zeros(1, dtype=torch.long))
            s.i = 0

        @torch.no_grad()
        def enqueue(s, k):
            n = k.shape[0]
            s.q[s.i : s.i + n] = k
            s.i = (s.i + n) % 4
            s.ptr[0] = s.i
            v = s.q.view(2, 4)
            v[0].add_(1)
            s.q[:, 0].clamp_(max=3)
            s.q.t()[1].mul_(2)

        def forward(s, x):
            o = x @ s.q.clone().detach().T
            s.enqueue(x)
            return o

    m = M()
    f = C(m)
    return [f(torch.ones(2, 2) * i) for i in range(1, 4)], m.q, m.ptr, m.i


@prog
def moco_ema(C):
    q = nn.Linear(2, 2)
    k = copy.deepcopy(q)
    for a in k.parameters():
        a.requires_grad = False

    @C
    def step(x):
        with torch.no_grad():
            for a, b in zip(q.parameters(), k.parameters()):
                b.data = b.data * 0.9 + a.data * 0.1
            key = F.normalize(k(x), dim=1)
        return F.cross_entropy(F.normalize(q(x), dim=1) @ key.T, torch.arange(x.shape[0]))

    unit = step(torch.randn(3, 2))
    unit.backward()
    l2 = step(torch.randn(3, 2))
    return unit, l2, list(k.parameters()), q.weight.grad


@prog
def moe_routing(C):
    class MoE(nn.Module):
        def __init__(s):
            super().__init__()
            s.gate = nn.Linear(4, 3, bias=False)
            s.ex = nn.ModuleList(
                nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 4)) for _ in range(3)
            )
            s.aux = 0.0

        def forward(s, x):
            w, i = s.gate(x).softmax(-1).topk(2, -1)
            w = w / w.sum(-1, keepdim=True)
            oh = F.one_hot(i, 3).float()
            out = torch.zeros_like(x)
            for e, ex in enumerate(s.ex):
                out = out + ex(x) * (w * oh[..., e]).sum(-1, keepdim=True)
            s.aux = oh.mean((0, 1)).var()
            return out

    m = MoE()
    f = C(m)
    o = f(torch.randn(5, 4))
    (o.sum() + m.aux).backward()
    return o, m.aux, [q.grad for q in m.parameters()][:2]


@prog
def gan_two_optims(C):
    G = nn.Linear(2, 3)
    D = nn.Sequential(nn.Linear(3, 4), nn.LeakyReLU(0.2), nn.Linear(4, 1))
    og = torch.optim.Adam(G.parameters(), 1e-2, betas=(0.5, 0.9))
    od = torch.optim.RMSprop(D.parameters(), 1e-2)

    @C
    def step(z, real):
        od.zero_grad()
        fake = G(z)
        ld = F.softplus(D(fake.detach())).mean() + F.softplus(-D(real)).mean()
        ld.backward()
        od.step()
        og.zero_grad()
        lg = F.softplus(-D(fake)).mean()
        lg.backward()
        og.step()
        return ld.detach(), lg.detach()

    return (
        [step(torch.randn(4, 2), torch.randn(4, 3)) for _ in range(2)],
        list(G.parameters()),
        [q.grad for q in D.parameters()],
    )


@prog
def wgan_gp(C):
    D = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))

    @C
    def loss(r, f):
        a = torch.rand(r.shape[0], 1)
        x = (a * r + (1 - a) * f).requires_grad_(True)
        (g,) = torch.autograd.grad(D(x).sum(), x, create_graph=True)
        return ((g.norm(2, 1) - 1) ** 2).mean() + D(f).mean() - D(r).mean()

    unit = loss(torch.randn(4, 3), torch.randn(4, 3))
    unit.backward()
    return unit, [q.grad for q in D.parameters()]


@prog
def lbfgs_closure(C):
    m = nn.Linear(2, 1)
    opt = torch.optim.LBFGS(m.parameters(), lr=0.5, max_iter=3)
    f = C(lambda x: (m(x) - 1).pow(2).mean())

    def closure():
        opt.zero_grad()
        unit = f(torch.eye(2))
        unit.backward()
        return unit

    return opt.step(closure).detach(), list(m.parameters())


@prog
def schedulers_many(C):
    m = nn.Linear(2, 1)
    opt = torch.optim.SGD(m.parameters(), lr=torch.tensor(0.1))
    S = torch.optim.lr_scheduler
    sch = S.SequentialLR(
        opt, [S.LinearLR(opt, 0.1, total_iters=2), S.CosineAnnealingLR(opt, 3)], milestones=[2]
    )

    @C
    def step(x):
        opt.zero_grad()
        unit = m(x).sum()
        unit.backward()
        opt.step()
        return unit.detach()

    r = []
    for _i in range(5):
        r.append(step(torch.ones(1, 2)))
        sch.step()
    return r, sch.get_last_lr(), m.weight


@prog
def swa_ema_multi(C):
    m = nn.Linear(2, 1)
    ema = torch.optim.swa_utils.AveragedModel(
        m, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.9)
    )
    opt = torch.optim.SGD(m.parameters(), 0.1)
    f = C(lambda x: m(x).sum())
    for _i in range(3):
        opt.zero_grad()
        f(torch.ones(1, 2)).backward()
        opt.step()
        ema.update_parameters(m)
    e = C(ema)
    return list(ema.module.parameters()), e(torch.ones(1, 2)), ema.n_averaged


@prog
def namedtuple_state(C):
    class S(typing.NamedTuple):
        h: torch.Tensor
        step: int = 0
        extra: tuple = ()

        def advance(s, x):
            return s._replace(h=torch.tanh(s.h + x), step=s.step + 1, extra=s.extra + (s.step,))

    @C
    def f(s, xs):
        for x in xs.unbind(0):
            s = s.advance(x)
        return s, s._asdict(), s[1:], S._fields

    s = S(torch.zeros(2))
    a = f(s, torch.ones(3, 2))
    return a, f(a[0], torch.ones(3, 2))[0].step


@prog
def dataclass_features(C):
    @dataclasses.dataclass(frozen=True, order=True)
    class K:
        a: int
        b: str = "x"

    @dataclasses.dataclass
    class St:
        x: torch.Tensor
        hist: list = dataclasses.field(default_factory=list, repr=False)
        n: dataclasses.InitVar[int] = 2
        k: K = K(1)

        def __post_init__(s, n):
            s.x = s.x * n

    @C
    def f(x):
        s = St(x, n=3)
        t = dataclasses.replace(s, x=s.x + 1, n=1)
        t.hist.append(K(2) > K(1))
        d = dataclasses.asdict(K(5))
        try:
            s.k.a = 3
        except dataclasses.FrozenInstanceError as e:
            d["err"] = str(e)
        return (
            s.x,
            t.x,
            t.hist is s.hist,
            d,
            [q.name for q in dataclasses.fields(s)],
            {K(1): x}[K(1)],
            K(1) == K(1),
            hash(K(1)) == hash(K(1)),
        )

    return f(torch.ones(2))


@prog
def cached_property_lru(C):
    class A:
        def __init__(s, n):
            s.n = n
            s.calls = 0

        @functools.cached_property
        def tab(s):
            s.calls += 1
            return torch.arange(s.n) * 2.0

        @staticmethod
        @functools.cache
        def fac(n):
            return 1 if n < 2 else n * A.fac(n - 1)

    a = A(3)
    f = C(lambda x: x * a.tab + a.tab.sum() + A.fac(4))
    return f(torch.ones(3)), f(torch.ones(3)), a.calls, "tab" in vars(a)


@prog
def getattr_delegation(C):
    class Wrap(nn.Module):
        def __init__(s, m):
            super().__init__()
            s.module = m

        def __getattr__(s, n):
            try:
                return super().__getattr__(n)
            except AttributeError:
                return getattr(s.module, n)

        def forward(s, *a, **k):
            return s.module(*a, **k)

    class In(nn.Module):
        scale = 3

        def __init__(s):
            super().__init__()
            s.unit = nn.Linear(2, 2)
            s.cfg = {"k": 2}

        def forward(s, x):
            return s.unit(x) * s.cfg["k"]

        def extra(s, x):
            return x + s.scale

    w = Wrap(Wrap(In()))
    f = C(lambda x: w.extra(w(x)) + w.unit.bias * w.scale)
    return f(torch.ones(1, 2)), hasattr(w, "zzz")


@prog
def string_keyed_modules(C):
    class M(nn.Module):
        def __init__(s):
            super().__init__()
            for i in range(3):
                setattr(s, f"layer{i}", nn.Linear(2, 2))
                s.add_module(f"norm_{i}", nn.LayerNorm(2))
            s.pd = nn.ParameterDict(
                {"a": nn.Parameter(torch.ones(2)), "b": nn.Parameter(torch.zeros(2))}
            )
            s.pl = nn.ParameterList([torch.ones(2)] * 2)

        def forward(s, x, only=None):
            for i in range(3):
                unit = getattr(s, f"layer{i}")
                n = s._modules[f"norm_{i}"]
                x = n(unit(x)) if only is None or i in only else x
            for k in sorted(s.pd.keys()):
                x = x * s.pd[k] + len(k)
            return (
                sum((w * x for w in s.pl), start=torch.zeros(2)),
                [n for n, _ in s.named_children() if n.startswith("layer")],
                s.get_submodule("layer1").out_features,
                sum(q.numel() for q in s.parameters()),
            )

    m = M()
    f = C(m)
    return f(torch.ones(1, 2)), f(torch.ones(1, 2), only={0, 2})


@prog
def tensor_subclass_meta(C):
    class MT(torch.Tensor):
        @staticmethod
        def __new__(cls, d, meta=None, **k):
            return torch.Tensor._make_subclass(cls, d)

        def __init__(s, d, meta=None):
            s.meta = meta

        @classmethod
        def __torch_function__(cls, fn, types, args=(), kwargs=None):
            r = super().__torch_function__(fn, types, args, kwargs or {})
            m = next((a.meta for a in args if isinstance(a, cls) and hasattr(a, "meta")), None)
            if isinstance(r, cls):
                r.meta = m
            return r

    f = C(lambda x, y: (x + y) * 2 - x.sum())
    o = f(MT(torch.ones(2), {"k": 1}), torch.ones(2))
    return o.as_subclass(torch.Tensor), o.meta, type(o).__name__


@prog
def list_default_mutation(C):
    def g(x, acc=[], *, opts={"n": 0}):  # noqa: B006 that it is changed is what it is for
        acc.append(x.shape[0])
        opts["n"] += 1
        return x * len(acc) + opts["n"]

    f = C(g)
    return f(torch.ones(2)), f(torch.ones(2)), g.__defaults__, g.__kwdefaults__


@prog
def global_state_counter(C):
    global _steps, _hist
    _steps = 0
    _hist = {}

    @C
    def f(x):
        global _steps
        _steps += 1
        _hist.setdefault(x.dim(), []).append(_steps)
        return x * _steps

    return f(torch.ones(2)), f(torch.ones(2, 2)), _steps, _hist


@prog
def sort_key_tensors(C):
    @C
    def f(ts, names):
        d = dict(zip(names, ts))
        a = sorted(d, key=lambda n: (d[n].numel(), n), reverse=True)
        b = max(ts, key=lambda t: t.shape[0])
        c = [*reversed(ts)]
        names.sort(key=str.lower)
        e = any(t.shape[0] > 2 for t in ts), all(t.dim() == 1 for t in ts)
        return a, b, c, e, d[names[0]], min(len(n) for n in names)

    return f([torch.ones(2), torch.zeros(3), torch.ones(1)], ["b", "A", "cc"])


@prog
def star_expr(C):
    @C
    def f(*xs, sep=None, **kw):
        a, *b, c = xs
        (d, e), *_ = [(1, 2), (3, 4)]
        q = [*b, *kw.values()]
        g = {**kw, "z": a}
        h = (lambda *a, k=2, **q: sum(a) * k + len(q))(*b, **g)
        return a + c, len(b), d + e, torch.stack(q), h

    return f(torch.ones(1), torch.ones(1) * 2, torch.ones(1) * 3, u=torch.ones(1))


@prog
def shape_arith(C):
    @C
    def f(x, p=2):
        b, c, h, w = x.shape
        ph, pw = (p - h % p) % p, (p - w % p) % p
        if ph or pw:
            x = F.pad(x, (0, pw, 0, ph))
        H, W = x.shape[-2:]
        x = x.reshape(b, c, H // p, p, W // p, p).permute(0, 2, 4, 3, 5, 1).flatten(3).flatten(1, 2)
        n = int(math.sqrt(x.shape[1]))
        return x, n, divmod(H, p), x.size(-1) == c * p * p, torch.Size([H, W]), x.shape.numel()

    return [f(torch.randn(1, 1, n, n)) for n in (3, 4, 5, 6)]
