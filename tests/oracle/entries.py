"""Which entries of torch's operator database are judged, and what function each one names.

A key is the entry's name, with `.variant` appended where the entry has one. `call` is how the
function is reached in the runtime under test:

* `torch.add`        a dotted path, looked up in the runtime (`torch` stands for it);
* `Tensor.view`      the method as a function of (tensor, *args);
* `seed:torch.rand`  the same, called right after `manual_seed(42)` (what the database does);
* `own:name`         one of the small functions of `OWN` below, for entries that swap arguments.

`kind` decides the tolerance (README.md) and whether strides are required.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from tests.oracle import further

STRICT_STRIDES = ("pointwise", "view", "copy", "reduction", "create")


@dataclass(frozen=True)
class Entry:
    """One entry. `extra`: recorded and shown, but not among those required."""

    key: str
    kind: str  # pointwise view copy reduction create matmul norm index sort conv random mask meta
    call: str
    extra: bool = False
    inplace: str | None = None  # only where the database's own is a lambda
    method: str | None = None
    further: bool = False  # of further.py: recorded only when asked for

    @property
    def name(self) -> str:
        """The operator database's name."""
        return self.key.partition("|")[0]

    @property
    def variant(self) -> str:
        """The operator database's variant name, empty for most."""
        return self.key.partition("|")[2]

    @property
    def label(self) -> str:
        """How the entry is written on the command line and in reports."""
        return self.key.replace("|", ".")

    @property
    def strides(self) -> bool:
        """Whether strides of results are required (else only reported)."""
        return self.kind in STRICT_STRIDES


# kind: entries whose function is `torch.<name>`
FUNCTIONS = {
    "pointwise": """add sub mul div|no_rounding_mode div|trunc_rounding div|floor_rounding
        true_divide pow exp log tanh erf clamp clamp_min clamp_max eq ne lt le gt ge max|binary
        nn.functional.gelu fill""",
    "view": """transpose permute narrow select as_strided as_strided|partial_views reshape flatten
        squeeze squeeze|multiple unsqueeze t split split|list_args chunk unbind""",
    "copy": """cat stack clone take_along_dim gather index_select index_put narrow_copy
        transpose_copy permute_copy view_copy expand_copy as_strided_copy as_strided_scatter
        select_scatter slice_scatter index_fill index_copy""",
    "index": "scatter_add scatter index_add",
    "reduction": """sum mean argmax var_mean var_mean|unbiased var var|unbiased std std|unbiased
        max|reduction_with_dim max|reduction_no_dim""",
    "create": "zeros_like ones_like full_like zeros ones full arange",
    "meta": "empty_like empty",
    "scan": "cumsum",
    "sort": "sort topk",
    "norm": """softmax softmax|with_dtype log_softmax log_softmax|with_dtype native_layer_norm
        native_batch_norm nn.functional.layer_norm nn.functional.batch_norm
        nn.functional.batch_norm|without_cudnn nn.functional.nll_loss
        nn.functional.cross_entropy nn.functional.softmin nn.functional.softmin|with_dtype
        _native_batch_norm_legit""",
    "matmul": "mm bmm addmm addmm|decomposed matmul nn.functional.linear baddbmm",
    "conv": """nn.functional.conv1d nn.functional.conv2d nn.functional.conv3d
        nn.functional.conv_transpose1d nn.functional.conv_transpose2d
        nn.functional.conv_transpose3d""",
    "pool": "nn.functional.max_pool1d nn.functional.max_pool2d nn.functional.max_pool3d",
}
# entries whose function is the method `torch.Tensor.<name>`
METHODS = {
    "pointwise": """to float double bfloat16 half int long bool char byte short
        __radd__ __rsub__ __rmul__ __rdiv__ __rpow__ __rmod__ __rand__ __ror__ __rxor__""",
    "view": "view view_as reshape_as expand expand_as unflatten __getitem__",
    "copy": "contiguous",
    "create": "new_zeros new_ones new_full",
    "meta": "new_empty new_empty_strided",
    "matmul": "__rmatmul__",
}
# entries called right after manual_seed(42); values compared bit for bit. The database's
# `rand_like` calls randn_like; the true one is among the programs.
SEEDED = {
    "random": """torch.randn_like:rand_like torch.randn:randn torch.randn_like:randn_like
        torch.randint:randint torch.randint_like:randint_like Tensor.uniform_:uniform
        Tensor.normal_:normal|in_place torch.normal:normal torch.bernoulli:bernoulli
        Tensor.exponential_:exponential torch.multinomial:multinomial""",
    "meta": "torch.empty_strided:empty_strided",
    "mask": """torch.nn.functional.dropout:nn.functional.dropout
        torch.nn.functional.dropout2d:nn.functional.dropout2d
        torch.nn.functional.dropout3d:nn.functional.dropout3d
        torch.nn.functional.alpha_dropout:nn.functional.alpha_dropout
        torch.nn.functional.feature_alpha_dropout:nn.functional.feature_alpha_dropout|with_train
        torch.nn.functional.feature_alpha_dropout:nn.functional.feature_alpha_dropout|without_train
        torch.nn.functional.scaled_dot_product_attention:nn.functional.scaled_dot_product_attention
        """,
}
SPECIAL = (
    Entry("where", "pointwise", "own:where", method="Tensor.where"),
    Entry("slice", "view", "torch.ops.aten.slice.Tensor"),
    Entry("einsum", "matmul", "own:einsum"),
    Entry("nn.functional.embedding", "copy", "own:embedding"),
    Entry("normal|number_mean", "random", "own:normal_number_mean"),
    Entry("T", "view", "own:T"),
    Entry("mT", "view", "own:mT"),
)
EXTRA = """
    nn.functional.conv_transpose1d nn.functional.conv_transpose2d nn.functional.conv_transpose3d
    nn.functional.dropout2d nn.functional.dropout3d nn.functional.alpha_dropout
    nn.functional.feature_alpha_dropout|with_train nn.functional.feature_alpha_dropout|without_train
    var var|unbiased std std|unbiased narrow_copy transpose_copy permute_copy view_copy expand_copy
    as_strided_copy as_strided_scatter select_scatter slice_scatter index_fill index_copy index_add
    scatter unbind split split|list_args chunk t T mT arange new_zeros new_ones new_full new_empty
    new_empty_strided empty_strided exponential multinomial baddbmm nn.functional.softmin
    nn.functional.softmin|with_dtype _native_batch_norm_legit __rmod__ __ror__ __rxor__"""

OWN: dict[str, Callable[[ModuleType], Callable[..., Any]]] = {
    "where": lambda rt: lambda x, mask, other, **kw: rt.where(mask, x, other, **kw),
    "einsum": lambda rt: lambda operands, equation: rt.einsum(equation, operands),
    "embedding": lambda rt: lambda table, at, **kw: rt.nn.functional.embedding(at, table, **kw),
    "normal_number_mean": lambda rt: seeded(
        rt, lambda std, mean, *args, **kw: rt.normal(mean, std, *args, **kw)
    ),
    "T": lambda rt: lambda x: x.T,
    "mT": lambda rt: lambda x: x.mT,
}


def seeded(rt: ModuleType, fn: Callable[..., Any]) -> Callable[..., Any]:
    """`fn`, with the default generator at seed 42 before every call."""

    def call(*args: Any, **kwargs: Any) -> Any:
        rt.manual_seed(42)
        return fn(*args, **kwargs)

    return call


def build_table() -> dict[str, Entry]:
    """All entries by label."""
    found = list(SPECIAL)
    for kind, keys in FUNCTIONS.items():
        found += [Entry(key, kind, f"torch.{key.partition('|')[0]}") for key in keys.split()]
    for kind, keys in METHODS.items():
        found += [Entry(key, kind, f"Tensor.{key}") for key in keys.split()]
    for kind, pairs in SEEDED.items():
        for pair in pairs.split():
            call, _, key = pair.partition(":")
            method = f"seed:Tensor.{key}" if key in ("bernoulli", "multinomial") else None
            inplace = f"inplace:seed:{call}" if "dropout" in key else None
            found.append(Entry(key, kind, f"seed:{call}", inplace=inplace, method=method))
    marked = [
        Entry(e.key, e.kind, e.call, e.key in EXTRA.split(), e.inplace, e.method) for e in found
    ]
    marked += [
        Entry(key, kind, f"torch.{key.partition('|')[0]}", True, further=True)
        for kind, keys in further.FUNCTIONS.items()
        for key in keys.split()
    ]
    for kind, pairs in further.CALLS.items():
        for pair in pairs.split():
            call, _, key = pair.partition("=")
            marked.append(Entry(key, kind, call, True, further=True))
    return {entry.label: entry for entry in marked}


ENTRIES = build_table()


def dotted(rt: ModuleType, path: str) -> Any:
    """`torch.nn.functional.gelu` or `Tensor.add` in the runtime `rt`."""
    target: Any = rt
    for part in path.removeprefix("torch.").split("."):
        target = getattr(target, part)
    return target


def resolve(rt: ModuleType, call: str) -> Callable[..., Any]:
    """The callable that a `call` text names (see the module's docstring)."""
    if call.startswith("own:"):
        name = call[4:]
        return (OWN.get(name) or further.OWN[name])(rt)
    if call.startswith("inplace:"):
        fn = resolve(rt, call[8:])
        return lambda *args, **kwargs: fn(*args, **kwargs, inplace=True)
    if call.startswith("seed:"):
        return seeded(rt, dotted(rt, call[5:]))
    return dotted(rt, call)
