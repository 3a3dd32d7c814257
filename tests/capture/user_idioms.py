"""How models and steps are written in real projects: `fn(C)`, as in `user_training`."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import enum
import functools
import inspect
import itertools
import math
import operator
from collections import ChainMap, Counter, OrderedDict, defaultdict, deque, namedtuple

import flambeau as torch
import flambeau.nn.functional as F
from flambeau import nn
from flambeau.utils.checkpoint import checkpoint
from tests.capture.user_training import prog


class ModelOutput(OrderedDict):
    def __init_subclass__(cls):
        pass

    def __post_init__(self):
        for f in dataclasses.fields(self):
            v = getattr(self, f.name)
            if v is not None:
                self[f.name] = v

    def __getitem__(self, k):
        if isinstance(k, str):
            return dict(self.items())[k]
        return self.to_tuple()[k]

    def __setattr__(self, name, value):
        if name in self.keys() and value is not None:
            super().__setitem__(name, value)
        super().__setattr__(name, value)

    def __setitem__(self, k, v):
        super().__setitem__(k, v)
        super().__setattr__(k, v)

    def to_tuple(self):
        return tuple(self[k] for k in self.keys())


@dataclasses.dataclass
class Out(ModelOutput):
    loss: torch.Tensor | None = None
    logits: torch.Tensor = None
    hidden: tuple | None = None
    past: list | None = None


@prog
def model_output(C):
    class M(nn.Module):
        def __init__(s):
            super().__init__()
            s.unit = nn.Linear(3, 3)
            s.h = nn.Linear(3, 2)

        def forward(s, x, labels=None, return_dict=None, output_hidden=False, **kw):
            hs = () if output_hidden else None
            h = x
            for _ in range(2):
                h = s.unit(h).relu()
                if output_hidden:
                    hs = hs + (h,)
            lo = s.h(h)
            loss = None
            if labels is not None:
                loss = F.cross_entropy(lo, labels)
            if not return_dict:
                return ((loss,) if loss is not None else ()) + (lo,) + ((hs,) if hs else ())
            return Out(loss=loss, logits=lo, hidden=hs)

    m = M()
    f = C(m)
    x = torch.randn(2, 3)
    y = torch.tensor([0, 1])
    a = f(x, labels=y, return_dict=True, output_hidden=True)
    a.loss.backward()
    b = f(x)
    c = f(x, return_dict=True)
    c2 = C(lambda o: o.logits * 2 + o[0].sum() + len(o))(c)
    return [
        list(a.keys()),
        a[0],
        a["logits"],
        a.hidden,
        b,
        c.to_tuple(),
        c2,
        m.unit.weight.grad,
        type(a).__name__,
    ]


@dataclasses.dataclass
class Config:
    hidden: int = 4
    layers: int = 2
    act: str = "gelu"
    drop: float = 0.0
    extra: dict = dataclasses.field(default_factory=dict)

    @property
    def inner(self):
        return self.hidden * 2

    def get(self, k, default=None):
        return getattr(self, k, default)


ACT = {"gelu": F.gelu, "relu": F.relu, "silu": nn.SiLU()}


@prog
def config_model(C):
    class Layer(nn.Module):
        def __init__(s, cfg, idx):
            super().__init__()
            s.cfg = cfg
            s.idx = idx
            s.up = nn.Linear(cfg.hidden, cfg.inner)
            s.down = nn.Linear(cfg.inner, cfg.hidden)
            s.act = ACT[cfg.act]

        def forward(s, x, cache=None, pos=None):
            h = s.down(s.act(s.up(x)))
            if cache is not None:
                h = cache.update(s.idx, h)
            return x + h * s.cfg.get("scale", 1.0)

    class Cache:
        def __init__(s):
            s.kv = []
            s.seen = 0

        def update(s, i, h):
            if i == 0:
                s.seen += h.shape[0]
            if len(s.kv) <= i:
                s.kv.append(h)
            else:
                s.kv[i] = torch.cat([s.kv[i], h], 0)
            return s.kv[i][-h.shape[0] :]

    class M(nn.Module):
        def __init__(s, cfg):
            super().__init__()
            s.cfg = cfg
            s.layers = nn.ModuleList(Layer(cfg, i) for i in range(cfg.layers))

        def forward(s, x, cache=None, use_cache=False):
            if use_cache and cache is None:
                cache = Cache()
            for i, unit in enumerate(s.layers[: s.cfg.layers]):
                x = unit(x, cache=cache, pos=i)
            return x, cache

    m = M(Config())
    f = C(m)
    with torch.no_grad():
        o, c = f(torch.randn(2, 4), use_cache=True)
        o2, c2 = f(torch.randn(1, 4), cache=c)
        o3, c3 = f(torch.randn(1, 4), cache=c2)
    return [o, o2, o3, c3.seen, [k.shape for k in c3.kv], c2 is c]


@prog
def signature_filter(C):
    def target(x, *, scale=1.0, bias=0.0):
        return x * scale + bias

    def call(fn, x, **kw):
        ok = inspect.signature(fn).parameters
        return fn(x, **{k: v for k, v in kw.items() if k in ok})

    @C
    def f(x, **kw):
        return call(target, x, **kw)

    return f(torch.ones(2), scale=2.0, foo=1), f(torch.ones(2), bias=3.0)


@prog
def nonpersistent_buffers(C):
    class M(nn.Module):
        def __init__(s):
            super().__init__()
            s.register_buffer("inv", torch.arange(1.0, 4.0), persistent=False)
            s.register_buffer("n", torch.tensor(0))
            s._cos = None
            s.maxlen = 0

        def forward(s, x):
            if x.shape[0] > s.maxlen:
                s.maxlen = x.shape[0]
                t = torch.arange(s.maxlen, dtype=s.inv.dtype)
                s.register_buffer("_cos", torch.outer(t, s.inv).cos(), persistent=False)
            s.n += 1
            return x * s._cos[: x.shape[0]]

    m = M.__new__(M)
    nn.Module.__init__(m)
    m.register_buffer("inv", torch.arange(1.0, 4.0), persistent=False)
    m.register_buffer("n", torch.tensor(0))
    m.register_buffer("_cos", torch.zeros(0, 3), persistent=False)
    m.maxlen = 0
    f = C(m)
    return [
        f(torch.ones(2, 3)),
        f(torch.ones(4, 3)),
        f(torch.ones(3, 3)),
        m.n,
        m.maxlen,
        list(m.state_dict()),
        m._cos.shape,
    ]


@prog
def ema_update(C):
    m = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    e = copy.deepcopy(m).requires_grad_(False)

    @C
    @torch.no_grad()
    def upd(m, e, d):
        for pe, pm in zip(e.parameters(), m.parameters()):
            pe.lerp_(pm, 1 - d)
        for (_n, be), (_, bm) in zip(e.named_buffers(), m.named_buffers()):
            if be.dtype.is_floating_point:
                be.mul_(d).add_(bm, alpha=1 - d)
            else:
                be.copy_(bm)

    m(torch.randn(4, 2))
    for q in m.parameters():
        q.data.add_(1)
    upd(m, e, 0.9)
    upd(m, e, 0.9)
    return list(e.state_dict().values())


@prog
def clip_and_step(C):
    m = nn.Linear(3, 2)
    opt = torch.optim.AdamW(m.parameters(), lr=0.1)
    sch = torch.optim.lr_scheduler.LambdaLR(opt, lambda s: 1 / (s + 1))

    @C
    def step(x):
        opt.zero_grad(set_to_none=True)
        unit = m(x).pow(2).sum()
        unit.backward()
        n = nn.utils.clip_grad_norm_(m.parameters(), 1.0)
        opt.step()
        return unit.detach(), n

    r = []
    for i in range(3):
        r.append(step(torch.ones(2, 3) * i))
        sch.step()
    return r, list(m.parameters()), opt.param_groups[0]["lr"]


@prog
def grad_scaler(C):
    m = nn.Linear(3, 2)
    opt = torch.optim.SGD(m.parameters(), lr=0.1)
    sc = torch.amp.GradScaler("cpu", init_scale=8.0, enabled=True)
    f = C(lambda x: m(x).pow(2).mean())
    r = []
    for _i in range(3):
        opt.zero_grad()
        unit = f(torch.ones(2, 3))
        sc.scale(unit).backward()
        sc.unscale_(opt)
        sc.step(opt)
        sc.update()
        r.append(unit.detach())
    return r, list(m.parameters()), sc.get_scale()


@prog
def checkpoint_loop(C):
    class M(nn.Module):
        def __init__(s):
            super().__init__()
            s.ls = nn.ModuleList(nn.Linear(3, 3) for _ in range(3))
            s.gc = True

        def forward(s, x, mask=None):
            for _i, unit in enumerate(s.ls):
                if s.gc and s.training:
                    x = checkpoint(
                        functools.partial(
                            lambda unit, y, m=None: unit(y).tanh() * (1 if m is None else m), unit
                        ),
                        x,
                        mask,
                        use_reentrant=False,
                    )
                else:
                    x = unit(x).tanh()
            return x

    m = M()
    f = C(m)
    o = f(torch.ones(2, 3), torch.tensor(0.5))
    o.sum().backward()
    g = [q.grad for q in m.parameters()]
    m.eval()
    return o, g, f(torch.ones(2, 3))


@prog
def partial_layers(C):
    norm = functools.partial(nn.LayerNorm, eps=1e-3)
    leaky = functools.partial(F.leaky_relu, negative_slope=0.2)

    class Block(nn.Module):
        def __init__(s, d, norm_layer=norm, act=leaky):
            super().__init__()
            s.n = norm_layer(d)
            s.act = act
            s.fc = nn.Linear(d, d)
            s.ls = nn.Identity()
            s.gamma = nn.Parameter(torch.ones(d) * 0.1)

        def forward(s, x):
            return x + s.ls(s.gamma * s.act(s.fc(s.n(x))))

    m = nn.Sequential(*[Block(4) for _ in range(2)], OrderedDict([("a", nn.Linear(4, 2))])["a"])
    f = C(m)
    o = f(torch.randn(3, 4))
    o.sum().backward()
    return o, [q.grad for q in m.parameters()]


@prog
def modulelist_index(C):
    class M(nn.Module):
        def __init__(s):
            super().__init__()
            s.down = nn.ModuleList([nn.Linear(2**i, 2 ** (i + 1)) for i in range(1, 3)])
            s.up = nn.ModuleList([nn.Linear(2 ** (i + 1), 2**i) for i in range(1, 3)][::-1])
            s.d = nn.ModuleDict({"relu": nn.ReLU(), "tanh": nn.Tanh()})

        def forward(s, x, act="relu"):
            skips = []
            for unit in s.down:
                skips.append(x)
                x = s.d[act](unit(x))
            for i in range(len(s.up)):
                x = s.up[i](x) + skips.pop()
            x = x + s.up[-1](s.down[-len(s.down)](x))
            return x, len(skips), s.down[0:1].__len__(), list(s.d)

    m = M()
    f = C(m)
    return f(torch.ones(1, 2)), f(torch.ones(1, 2), act="tanh")


@prog
def descriptor_and_slots(C):
    class Typed:
        def __set_name__(s, o, n):
            s.n = "_" + n

        def __get__(s, i, o=None):
            return s if i is None else getattr(i, s.n)

        def __set__(s, i, v):
            if not isinstance(v, (int, float, torch.Tensor)):
                raise TypeError(f"bad {s.n}: {type(v).__name__}")
            setattr(i, s.n, v)

    class A:
        __slots__ = ("_x", "_y", "hist")
        x = Typed()
        y = Typed()

        def __init__(s, x, y):
            s.x = x
            s.y = y
            s.hist = []

        def step(s, d):
            s.x = s.x + d
            s.hist.append(s.x)
            return s

    @C
    def f(a, t):
        a.step(t).step(t * 2)
        try:
            a.y = "no"
        except TypeError as e:
            msg = str(e)
        a.y += 1
        return a.x * a.y, msg

    a = A(torch.zeros(2), 1)
    return f(a, torch.ones(2)), a.hist, a.y, f(a, torch.ones(2)), len(a.hist)


@prog
def nested_gen_with(C):
    log = []

    @contextlib.contextmanager
    def scope(n):
        log.append(("in", n))
        try:
            yield n * 2
        except ValueError as e:
            log.append(("err", str(e)))
        finally:
            log.append(("out", n))

    def gen(x, n):
        with scope(n) as k:
            for i in range(n):
                got = yield x * i * k
                if got is not None:
                    x = x + got
        return "done"

    @C
    def f(x):
        out = []

        def outer():
            r = yield from gen(x, 3)
            out.append(r)
            yield x

        g = outer()
        s = next(g)
        s = s + g.send(torch.ones(2))
        s = s + sum(g)
        with scope(5):
            raise ValueError(f"v{out[0]}")
        return s

    return f(torch.ones(2)), log


@prog
def match_classes(C):
    @dataclasses.dataclass
    class Pt:
        x: torch.Tensor
        k: int = 0

    class Kind(enum.Enum):
        A = "a"
        B = "b"

    NT = namedtuple("NT", "u v")

    @C
    def f(o):
        match o:
            case Pt(x=t, k=0):
                return t + 1
            case Pt(t, k) if k > 2:
                return t * k
            case Pt():
                return o.x
            case NT(u, [a, *r]):
                return u + a + len(r)
            case {"kind": Kind.A, "t": t}:
                return t - 1
            case (Kind.B | Kind.A) as k:
                return torch.tensor(len(k.value))
            case [torch.Tensor() as t, *_]:
                return t * 3

    t = torch.ones(2)
    return [
        f(o)
        for o in (
            Pt(t),
            Pt(t, 3),
            Pt(t, 1),
            NT(t, [2, 3]),
            {"kind": Kind.A, "t": t, "z": 1},
            Kind.B,
            [t, 1],
        )
    ]


@prog
def rng_in_loop(C):
    @C
    def f(x, n):
        out = []
        for _i in range(n):
            out.append(F.dropout(x, 0.5) + torch.randn_like(x) * torch.rand(()))
        return (
            torch.stack(out) + torch.randint(0, 5, (2,)),
            torch.randperm(3),
            torch.bernoulli(torch.full((2,), 0.5)),
        )

    return f(torch.ones(2), 2), torch.rand(2), f(torch.ones(2), 2)


@prog
def autograd_fn_ctx(C):
    class Fn(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, w, k, opts=None):
            ctx.save_for_backward(x, w)
            ctx.k = k
            ctx.opts = opts or {}
            return x * w * k

        @staticmethod
        def backward(ctx, g):
            x, w = ctx.saved_tensors
            gx = g * w * ctx.k if ctx.needs_input_grad[0] else None
            return gx, (g * x * ctx.k * ctx.opts.get("s", 1)).sum(0), None, None

    @C
    def f(x, w):
        return Fn.apply(x.sin(), w, 3, {"s": 2}) + Fn.apply(x, w, 1)

    x = torch.ones(2, 2, requires_grad=True)
    w = torch.ones(2, requires_grad=True)
    o = f(x, w)
    o.sum().backward()
    return o, x.grad, w.grad


@prog
def counters_defaultdict(C):
    @C
    def f(x, keys, acc):
        c = Counter(keys)
        d = defaultdict(list)
        for k in keys:
            d[k].append(x * c[k])
        for k, v in d.items():
            acc[k] = acc.get(k, 0) + sum(v)
        top = c.most_common(1)[0]
        m = ChainMap({"a": 1}, {"b": 2})
        return (
            top,
            sorted(d),
            m["b"] + m.get("z", 5),
            {k: len(v) for k, v in d.items()},
            max(acc, key=lambda k: len(d.get(k, []))),
        )

    acc = {"z": 0}
    r = f(torch.ones(2), ["a", "b", "a"], acc)
    r2 = f(torch.ones(2), ["a", "b", "a"], acc)
    return r, r2, acc


@prog
def deque_mutation(C):
    @C
    def f(q, x):
        q.append(x * 2)
        q.appendleft(q[-1] + 1)
        q.rotate(1)
        old = q.popleft()
        q.extend([x] * 2)
        return torch.stack(list(q)).sum(0), len(q), q.maxlen, old

    q = deque([torch.zeros(2)], maxlen=4)
    return f(q, torch.ones(2)), f(q, torch.ones(2)), list(q)


@prog
def property_super_mro(C):
    class Base(nn.Module):
        calls = 0

        @property
        def scale(s):
            return 2

        def forward(s, x):
            type(s).calls += 1
            return x * s.scale

    class Mix:
        def forward(s, x):
            return super().forward(x) + 1

    class D(Mix, Base):
        def __init__(s):
            super().__init__()
            s.w = nn.Parameter(torch.ones(2))

        @property
        def scale(s):
            return super().scale * s.w

        @scale.setter
        def scale(s, v):
            s.w.data.fill_(v)

        def forward(s, x):
            y = super().forward(x)
            return super(Mix, s).forward(y)

    d = D()
    f = C(d)
    a = f(torch.ones(2))
    d.scale = 3
    b = f(torch.ones(2))
    return a, b, D.calls


@prog
def fstrings_logging_dict(C):
    @C
    def f(x, log):
        for i, (n, v) in enumerate(zip(("a", "b"), (x, x * 2))):
            log[f"{n}/{i:02d}_{tuple(v.shape)}_{v.dtype}"] = v.mean()
            log[f"{n!r:>6}|{x.ndim+i=}"] = i
        return {f"x_{k}": v for k, v in log.items() if isinstance(v, torch.Tensor)}

    log = {}
    r = f(torch.ones(2, 3), log)
    return r, log


@prog
def walk_tree(C):
    def tmap(f, t):
        if isinstance(t, dict):
            return type(t)((k, tmap(f, v)) for k, v in t.items())
        if isinstance(t, tuple) and hasattr(t, "_fields"):
            return type(t)(*(tmap(f, v) for v in t))
        if isinstance(t, (list, tuple)):
            return type(t)(tmap(f, v) for v in t)
        return f(t) if isinstance(t, torch.Tensor) else t

    NT = namedtuple("NT", "a b")

    @C
    def f(t):
        return tmap(lambda v: v.float().mean() + 1, t)

    return f(
        {
            "x": torch.ones(2),
            "y": [torch.ones(2, dtype=torch.int64), (1, "s")],
            "z": NT(torch.zeros(1), OrderedDict(q=torch.ones(1))),
        }
    )


@prog
def kwargs_only_routing(C):
    class A(nn.Module):
        def forward(s, x, /, *args, scale, **kw):
            return x * scale + sum(args) + kw.pop("b", 0), sorted(kw)

    class W(nn.Module):
        def __init__(s):
            super().__init__()
            s.m = A()

        def forward(s, *a, **k):
            k.setdefault("scale", 2)
            k = {**k, "c": 1}
            return s.m(*a, **k)

    f = C(W())
    t = torch.ones(2)
    return f(t, 1, 2), f(t, b=3, d=4), f(t, scale=t)


@prog
def try_finally_flow(C):
    @C
    def f(x, log):
        for i in range(4):
            try:
                if i == 0:
                    continue
                if i == 1:
                    raise KeyError(i)
                if i == 3:
                    break
                x = x + i
            except KeyError as e:
                log.append(e.args)
                try:
                    raise RuntimeError("r") from e
                except RuntimeError as r:
                    log.append((str(r), type(r.__cause__).__name__, type(r.__context__).__name__))
            else:
                log.append(("else", i))
            finally:
                x = x * 2
                log.append(i)
        else:
            log.append("never")
        return x

    log = []
    return f(torch.ones(1), log), log


@prog
def closures_nonlocal(C):
    def make():
        n = 0
        hist = []

        def inc(x):
            nonlocal n
            n += 1
            hist.append(x.shape)
            return x * n

        def peek():
            return n, hist

        return inc, peek

    inc, peek = make()

    @C
    def f(x):
        y = inc(x)
        z = inc(y)

        def loc(k):
            nonlocal z
            z = z + k
            return [loc2(i) for i in range(2)]

        def loc2(i):
            return z * i

        return loc(1), z

    return f(torch.ones(2)), f(torch.ones(2)), peek()


@prog
def optim_param_groups(C):
    m = nn.ModuleDict({"a": nn.Linear(2, 2), "b": nn.Linear(2, 1)})
    opt = torch.optim.Adam(
        [
            {"params": m["a"].parameters(), "lr": 0.1, "name": "a"},
            {
                "params": [q for n, q in m["b"].named_parameters() if "bias" not in n],
                "weight_decay": 0.1,
            },
        ],
        lr=0.01,
        amsgrad=True,
    )

    @C
    def step(x, i):
        for g in opt.param_groups:
            if g.get("name") == "a":
                g["lr"] = 0.1 / (i + 1)
        opt.zero_grad()
        m["b"](m["a"](x).relu()).sum().backward()
        opt.step()

    for i in range(3):
        step(torch.ones(1, 2), i)
    return list(m.parameters()), [g["lr"] for g in opt.param_groups], len(opt.state)


@prog
def itertools_mix(C):
    @C
    def f(xs):
        a = [u * v for u, v in itertools.combinations(xs, 2)]
        b = list(itertools.accumulate(xs, operator.add))
        c = [sum(g) for k, g in itertools.groupby(range(6), key=lambda i: i // 2)]
        d = functools.reduce(torch.maximum, xs)
        e = [x + y for x, y in itertools.zip_longest(xs, [1], fillvalue=0)]
        g = list(itertools.islice(itertools.cycle(xs), 2, 5))
        h = list(map(operator.methodcaller("add", 1), xs))
        k = [*itertools.chain.from_iterable([[1], [2, 3]])]
        q = list(itertools.starmap(torch.add, itertools.pairwise(xs)))
        r = list(itertools.takewhile(lambda i: i < 3, itertools.count()))
        return a, b, c, d, e, g, h, k, q, r, math.prod(k), operator.itemgetter(0, 2)(xs)

    return f([torch.ones(2), torch.arange(2.0), torch.full((2,), 3.0)])
