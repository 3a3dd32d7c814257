"""Programs about random numbers: the same words in the same order as torch's CPU generator."""

from __future__ import annotations

from types import ModuleType
from typing import Any

SIZES = (1, 2, 7, 8, 15, 16, 17, 31, 32, 33, 100, 1003)


def randn_sizes(rt: ModuleType) -> Any:
    """The three regimes of normal numbers, one after the other on one stream."""
    return [rt.randn(n) for n in SIZES]


def randn_dtypes(rt: ModuleType) -> Any:
    """Other dtypes than float32."""
    kinds = (rt.float64, rt.bfloat16, rt.float16)
    return [rt.randn(n, dtype=kind) for kind in kinds for n in (3, 16, 41)]


def rand_sizes(rt: ModuleType) -> Any:
    """Uniform numbers in every floating dtype."""
    kinds = (rt.float32, rt.float64, rt.bfloat16, rt.float16)
    return [rt.rand(n, dtype=kind) for kind in kinds for n in (1, 5, 16, 100)]


def rand_like_true(rt: ModuleType) -> Any:
    """rand_like itself: the database's entry of that name calls randn_like."""
    x = rt.zeros(3, 4).t()
    return [rt.rand_like(x), rt.rand_like(x, dtype=rt.float64), rt.randn_like(x)]


def randint_ranges(rt: ModuleType) -> Any:
    """Ranges below and above 2**32, negative bounds, other dtypes."""
    return [
        rt.randint(10, (20,)),
        rt.randint(-5, 5, (3, 4)),
        rt.randint(0, 2**40, (9,)),
        rt.randint(0, 2**33 + 5, (9,)),
        rt.randint(7, (6,), dtype=rt.int32),
        rt.randint(7, (6,), dtype=rt.uint8),
        rt.randint(7, (6,), dtype=rt.float32),
        rt.randint_like(rt.zeros(5), 3, 9),
    ]


def randperm_sizes(rt: ModuleType) -> Any:
    """Permutations, short and long, and in another dtype."""
    return [*(rt.randperm(n) for n in (0, 1, 2, 10, 100, 5000)), rt.randperm(9, dtype=rt.int32)]


def uniform_in_place(rt: ModuleType) -> Any:
    """uniform_ with bounds, on contiguous and other layouts."""
    return [
        rt.empty(20).uniform_(),
        rt.empty(20).uniform_(-3, 5),
        rt.empty(4, 6).t().uniform_(-1, 1),
        rt.empty(20, dtype=rt.float64).uniform_(2, 3),
        rt.empty(20, dtype=rt.bfloat16).uniform_(-2, 2),
    ]


def normal_in_place(rt: ModuleType) -> Any:
    """normal_ with mean and deviation, above and below 16, and not contiguous."""
    return [
        rt.empty(20).normal_(),
        rt.empty(20).normal_(2, 0.5),
        rt.empty(9).normal_(-1, 3),
        rt.empty(8, 6).t().normal_(1, 2),
        rt.empty(40, dtype=rt.float64).normal_(1, 2),
        rt.empty(40, dtype=rt.bfloat16).normal_(1, 2),
        rt.empty(64)[::2].normal_(),
    ]


def normal_spare(rt: ModuleType) -> Any:
    """The second number of a pair is kept for the next short call, and dropped by a seed."""
    first = [rt.randn(1), rt.randn(1), rt.randn(3), rt.randn(2)]
    rt.manual_seed(1)
    return [*first, rt.randn(1), rt.rand(2), rt.randn(1), rt.randn(20), rt.randn(1)]


def bernoulli_forms(rt: ModuleType) -> Any:
    """bernoulli of probabilities, bernoulli_ of a number and of a tensor."""
    p = rt.linspace(0, 1, 40)
    return [
        rt.bernoulli(p),
        rt.empty(40).bernoulli_(0.3),
        rt.empty(40).bernoulli_(p),
        rt.empty(40, dtype=rt.float64).bernoulli_(0.7),
        rt.empty(40, dtype=rt.bool).bernoulli_(0.5),
        rt.bernoulli(p.double()),
        rt.bernoulli(p, 0.25),
    ]


def exponential_and_others(rt: ModuleType) -> Any:
    """exponential_, and what is drawn after it."""
    return [
        rt.empty(10).exponential_(),
        rt.empty(10).exponential_(2.5),
        rt.empty(33, dtype=rt.float64).exponential_(),
        rt.rand(2),
    ]


def multinomial_draws(rt: ModuleType) -> Any:
    """With and without replacement, one row and several."""
    weights = rt.tensor([0.1, 0.0, 0.4, 0.2, 0.3])
    rows = rt.stack([weights, weights.flip(0)])
    return [
        rt.multinomial(weights, 3),
        rt.multinomial(weights, 12, replacement=True),
        rt.multinomial(rows, 1),
        rt.multinomial(rows, 4),
        rt.multinomial(rows, 6, replacement=True),
    ]


def dropout_forms(rt: ModuleType) -> Any:
    """dropout in training and not, in place, and the mask's place in the stream."""
    functional = rt.nn.functional
    x = rt.arange(1.0, 41.0)
    return [
        functional.dropout(x, 0.5),
        functional.dropout(x, 0.1),
        functional.dropout(x, 0.5, training=False),
        functional.dropout(x, 1.0),
        functional.dropout(x, 0.0),
        functional.dropout(x.clone(), 0.3, inplace=True),
        functional.dropout(x.double(), 0.5),
        functional.dropout(x.bfloat16(), 0.5),
        rt.rand(1),
    ]


def generators(rt: ModuleType) -> Any:
    """Generators of one's own: independent streams, seeds, states."""
    one, two = rt.Generator(), rt.Generator()
    one.manual_seed(5)
    two.manual_seed(5)
    first = rt.rand(3, generator=one)
    state = one.get_state()
    second = rt.randn(18, generator=one)
    one.set_state(state)
    again = rt.randn(18, generator=one)
    other = [rt.rand(3, generator=two), rt.randperm(6, generator=two)]
    other.append(rt.randint(9, (4,), generator=two))
    return [first, second, again, *other, one.initial_seed(), rt.rand(2), rt.initial_seed()]


def global_state(rt: ModuleType) -> Any:
    """get_rng_state/set_rng_state, fork_rng, and the state's bytes."""
    start = rt.get_rng_state()
    a = rt.rand(4)
    rt.set_rng_state(start)
    b = rt.rand(4)
    rt.randn(1)
    with rt.random.fork_rng():
        c = rt.rand(2)
    return [start, a, b, c, rt.rand(2), rt.get_rng_state()]


def big_seeds(rt: ModuleType) -> Any:
    """Seeds beyond 32 bits, negative seeds, seeds that are refused."""
    results = []
    for seed in (0, 2**31, 2**32 + 7, 2**63 - 1, -1, -(2**40)):
        rt.manual_seed(seed)
        results.append(rt.rand(3))
    try:
        rt.manual_seed(2**64)
    except Exception as error:
        results.append(f"{type(error).__name__}: {error}")
    return results


def initialisers(rt: ModuleType) -> Any:
    """nn.init: the weights that a script starts from."""
    init = rt.nn.init
    return [
        init.uniform_(rt.empty(3, 5), -2, 2),
        init.normal_(rt.empty(5, 5), 0, 0.02),
        init.trunc_normal_(rt.empty(6, 7), std=0.5),
        init.kaiming_uniform_(rt.empty(8, 6), a=5**0.5),
        init.kaiming_normal_(rt.empty(8, 6), mode="fan_out", nonlinearity="relu"),
        init.xavier_uniform_(rt.empty(4, 8), gain=2.0),
        init.xavier_normal_(rt.empty(4, 8)),
        init.kaiming_normal_(rt.empty(4, 3, 3, 3)),
    ]


def layer_weights(rt: ModuleType) -> Any:
    """Weights of freshly made layers, in the order in which they draw."""
    nn = rt.nn
    layers = [nn.Linear(5, 7), nn.Embedding(9, 6), nn.Conv2d(3, 4, 3), nn.LayerNorm(6),
              nn.BatchNorm2d(4), nn.Linear(20, 20, bias=False)]  # fmt: skip
    return [p.detach() for layer in layers for p in layer.parameters()]
