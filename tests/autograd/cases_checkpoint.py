"""torch.utils.checkpoint: both kinds, nesting, random numbers, what is recomputed."""

from __future__ import annotations

from typing import Any


def _leaf(t: Any, *values: float) -> Any:
    return t.tensor(values or (1.0, 2.0, 3.0), requires_grad=True)


def both_kinds(t: Any, say: Any) -> None:
    checkpoint = t.utils.checkpoint.checkpoint
    for reentrant in (True, False):
        x, w = _leaf(t), _leaf(t, 0.5, 0.25, 2.0)
        calls: list[str] = []

        def f(a: Any, b: Any, calls: Any = calls) -> Any:
            calls.append("f")
            return (a * b).sin() * a

        y = checkpoint(f, x, w, use_reentrant=reentrant)
        say(len(calls), y.requires_grad, y.grad_fn.name() if reentrant else None)
        y.sum().backward()
        say(len(calls), x.grad, w.grad)
        say.error(y.sum().backward)


def no_use_reentrant(t: Any, say: Any) -> None:
    x = _leaf(t)
    checkpoint = t.utils.checkpoint.checkpoint
    say.warned(lambda: say.error(lambda: checkpoint(lambda v: v * 2, x).sum().backward()))
    say(x.grad)
    say.error(lambda: checkpoint(lambda v: v * 2, x, use_reentrant=True, unknown=3))
    say.error(lambda: checkpoint(lambda v, k: v * k, x, use_reentrant=True, k=3))
    y = checkpoint(lambda v, k: v * k, x, use_reentrant=False, k=3)
    y.sum().backward()
    say(x.grad)


def without_gradients(t: Any, say: Any) -> None:
    checkpoint = t.utils.checkpoint.checkpoint
    x = t.ones(3)
    say.warned(lambda: say(checkpoint(lambda v: v * 2, x, use_reentrant=True).requires_grad))
    say(checkpoint(lambda v: v * 2, x, use_reentrant=False).requires_grad)
    w = _leaf(t)
    y = checkpoint(lambda v: v * w, x, use_reentrant=False)
    y.sum().backward()
    say(w.grad)
    with t.no_grad():
        say(checkpoint(lambda v: v * w, w, use_reentrant=False).requires_grad)
        say(checkpoint(lambda v: v * w, w, use_reentrant=True).requires_grad)


def random_numbers(t: Any, say: Any) -> None:
    checkpoint = t.utils.checkpoint.checkpoint
    for reentrant in (True, False):
        x = t.ones(8, requires_grad=True)
        t.manual_seed(3)
        y = checkpoint(lambda v: t.nn.functional.dropout(v * 2, 0.5), x, use_reentrant=reentrant)
        t.rand(5)
        y.sum().backward()
        say(y, x.grad, t.rand(1))


def keeping_no_random_state(t: Any, say: Any) -> None:
    checkpoint = t.utils.checkpoint.checkpoint
    x = t.ones(8, requires_grad=True)
    t.manual_seed(3)
    y = checkpoint(
        lambda v: t.nn.functional.dropout(v, 0.5), x, use_reentrant=False, preserve_rng_state=False
    )
    y.sum().backward()
    say((x.grad == y).all())


def nested(t: Any, say: Any) -> None:
    checkpoint = t.utils.checkpoint.checkpoint
    for reentrant in (True, False):
        x = _leaf(t)
        calls: list[str] = []

        def inner(v: Any, calls: Any = calls) -> Any:
            calls.append("inner")
            return v.sin()

        def outer(
            v: Any, calls: Any = calls, inner: Any = inner, reentrant: Any = reentrant
        ) -> Any:
            calls.append("outer")
            return checkpoint(inner, v * 2, use_reentrant=reentrant) * v

        checkpoint(outer, x, use_reentrant=reentrant).sum().backward()
        say(calls, x.grad)


def several_outputs(t: Any, say: Any) -> None:
    checkpoint = t.utils.checkpoint.checkpoint
    for reentrant in (True, False):
        x, y = _leaf(t), _leaf(t, 4.0, 5.0, 6.0)
        a, b, c = checkpoint(lambda p, q: (p * q, p + 1, 7), x, y, use_reentrant=reentrant)
        say(c, a.requires_grad, b.requires_grad)
        (a.sum() + b.prod()).backward()
        say(x.grad, y.grad)


def grad_of_checkpoints(t: Any, say: Any) -> None:
    checkpoint = t.utils.checkpoint.checkpoint
    x = _leaf(t)
    y = checkpoint(lambda v: v.exp() * v, x, use_reentrant=False)
    (g,) = t.autograd.grad(y.sum(), x, create_graph=True)
    say(g)
    say(t.autograd.grad(g.sum(), x))
    z = checkpoint(lambda v: v * 2, x, use_reentrant=True)
    say.error(lambda: t.autograd.grad(z.sum(), x))


def retained(t: Any, say: Any) -> None:
    checkpoint = t.utils.checkpoint.checkpoint
    x = _leaf(t)
    calls: list[int] = []

    def f(v: Any) -> Any:
        calls.append(1)
        return v.sin().cos()

    y = checkpoint(f, x, use_reentrant=False).sum()
    y.backward(retain_graph=True)
    y.backward()
    say(x.grad, len(calls))


def different_recomputation(t: Any, say: Any) -> None:
    checkpoint = t.utils.checkpoint.checkpoint
    x = _leaf(t)
    state = {"n": 0}

    def changing(v: Any) -> Any:
        state["n"] += 1
        return v.sin().exp() if state["n"] == 1 else v.sin()

    say.error(lambda: checkpoint(changing, x, use_reentrant=False).sum().backward(), 90)
    state["n"] = 0

    def shapes(v: Any) -> Any:
        state["n"] += 1
        return v.sin() if state["n"] == 1 else v[:2].sin()

    say.error(lambda: checkpoint(shapes, x, use_reentrant=False).sum().backward(), 90)
    state["n"] = 0
    say.error(
        lambda: (
            checkpoint(shapes, x, use_reentrant=False, determinism_check="none").sum().backward()
        ),
        90,
    )


def errors_inside(t: Any, say: Any) -> None:
    checkpoint = t.utils.checkpoint.checkpoint
    x = _leaf(t)

    def fails(v: Any) -> Any:
        raise ValueError("mine")

    for reentrant in (True, False):
        say.error(lambda r=reentrant: checkpoint(fails, x, use_reentrant=r))
    say(t.is_grad_enabled(), (x * 2).requires_grad)


def early_stopping(t: Any, say: Any) -> None:
    module = t.utils.checkpoint
    for flag in (True, False):
        x = _leaf(t)
        seen: list[str] = []

        def f(v: Any, seen: Any = seen) -> Any:
            a = v.sin()
            seen.append("a")
            b = a + 1
            seen.append("b")
            return b

        with module.set_checkpoint_early_stop(flag):
            y = module.checkpoint(f, x, use_reentrant=False)
        y.sum().backward()
        say(seen, x.grad)


def sequential(t: Any, say: Any) -> None:
    x = _leaf(t)
    parts = [t.sin, t.exp, lambda v: v * 2, t.tanh]
    for reentrant in (True, False):
        y = t.utils.checkpoint.checkpoint_sequential(parts, 2, x, use_reentrant=reentrant)
        y.sum().backward()
        say(y, x.grad)
        x.grad = None


def modules_and_autocast(t: Any, say: Any) -> None:
    m = t.nn.Linear(3, 2)
    with t.no_grad():
        m.weight.fill_(0.5)
        m.bias.zero_()
    x = t.ones(1, 3, requires_grad=True)
    for reentrant in (True, False):
        with t.autocast("cpu", dtype=t.bfloat16):
            y = t.utils.checkpoint.checkpoint(m, x, use_reentrant=reentrant)
        y.float().sum().backward()
        say(y.dtype, x.grad, m.weight.grad, m.weight.grad.dtype)
        m.zero_grad()
        x.grad = None


def context_functions(t: Any, say: Any) -> None:
    import contextlib

    seen: list[str] = []

    @contextlib.contextmanager
    def noted(name: str) -> Any:
        seen.append(name)
        yield

    x = _leaf(t)
    y = t.utils.checkpoint.checkpoint(
        lambda v: v.sin(),
        x,
        use_reentrant=False,
        context_fn=lambda: (noted("forward"), noted("again")),
    )
    y.sum().backward()
    say(seen, x.grad)
    say.error(
        lambda: t.utils.checkpoint.checkpoint(
            lambda v: v, x, use_reentrant=True, context_fn=lambda: (noted("a"), noted("b"))
        )
    )


def selective(t: Any, say: Any) -> None:
    c = t.utils.checkpoint
    x = _leaf(t)
    for policy in (c.CheckpointPolicy.MUST_SAVE, c.CheckpointPolicy.PREFER_RECOMPUTE):
        y = c.checkpoint(
            lambda v: (v.sin() * v).exp(),
            x,
            use_reentrant=False,
            context_fn=lambda p=policy: c.create_selective_checkpoint_contexts(
                lambda ctx, op, *a, **k: p
            ),
        )
        y.sum().backward()
        say(x.grad)
        x.grad = None
    y = c.checkpoint(
        lambda v: (v.sin() * v).exp(),
        x,
        use_reentrant=False,
        context_fn=lambda: c.create_selective_checkpoint_contexts([t.ops.aten.sin.default]),
    )
    y.sum().backward()
    say(x.grad)
