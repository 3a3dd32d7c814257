"""What the system knows of one operator: the declaration, its overloads and its packet.

A declaration is a class (see `kinds.py` for the kinds and docs/add_an_operator.md for the whole
list of fields). `Op` is one ATen overload of it; the in-place and `out=` overloads are derived.
A `Packet` holds the overloads of one name and chooses among them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property
from importlib import import_module
from typing import Any

from flambeau._src import _native
from flambeau._src.core import state
from flambeau._src.core.slots import SLOTS, slot
from flambeau._src.core.tensor import Tensor
from flambeau._src.ops.schema import Schema, parse


class Undeclared(Exception):
    """A body that the declaration does not have was asked for."""


class Declaration:
    """Base of all declarations. Bodies are plain functions in the class body.

    schema      the primary ATen overload, as text
    overloads   further overloads that the same bodies serve, as text
    level       'composite' | 'explicit' | 'primitive'
    inplace     derive `name_` (default: kinds decide); a text overrides the derived schema
    out         derive `out=`; a text overrides the derived overload name
    out_dtype   what out= may be: 'exact' the result's dtype, 'cast' what it converts to, 'factory'
    out_rows    what out= is resized to is contiguous, however the result itself is laid out
    check_out   `check_out(source, to)` refuses a dtype of out= in other words than `out_dtype`
    out_fresh   numbers of the results that, where what is given for them is empty, are laid out as
                the plain result is
    public      where the name appears: 'function', 'method', 'nn' (comma separated)
    public_inplace   where the in-place form's does (None: where `public` says)
    aliases     further public names of the very same function
    numbers     Python numbers are taken where a Tensor is asked for
    old_form    torch also knows a deprecated way of calling it (error messages tell)
    check       refuses what the operator does not take, before the results are inferred
    geometry_only   reads nothing but shapes of its tensor arguments
    repeatable      C may repeat the calls that the bodies made (`csrc/tape.c`): no other effects
    no_gradient     outputs carry gradients that are known not to be worked out (their backward says
                    so)
    no_formula      torch has no derivative of it: a backward through it is refused, even where
                    `decompose` would give one
    gives_base      False: what aliases the input counts as no view of it
    constants       tensor arguments that may not require gradients
    new_version     False: what the operator overwrites keeps its version
    takes_overlap   the in-place form writes to expanded tensors too
    takes16         False: 16-bit floats are refused (LAPACK has none)
    differentiable  False: outputs never carry gradients; or a tuple of output indices that do
    whole       `decompose` is for back ends that have no kernel of it: everything here runs the
                operator whole, and its gradient is `vjp` alone
    rows        `rows(*args) -> (expr, operands, dim, params)`, or None: the operator as one row
                kernel along one dimension, for fusion
    refuse_backward   `refuse_backward(grads, *args)` raises where torch's backward does (unlike
                `vjp` it is not run to find out what is saved)
    by_value    `by_value(extent, *args) -> specs`: the results where an extent of theirs depends on
                values; `extent(least=0, most=None)` makes a number that only running will tell
    total       no values of its arguments make it raise; of kernels made from expressions this is
                known without it
    saves_by    names of arguments on which the saved set depends: of what is no tensor the value,
                of a tensor which extents are 0 or 1, and how many bytes an element has
    """

    schema: str = ""
    overloads: tuple[str, ...] = ()
    kind: str = "opaque"
    level: str = "primitive"
    out_dtype: str = "exact"
    out_rows: bool = False
    out_fresh: tuple[int, ...] = ()
    inplace: bool | str = False
    out: bool | str = False
    out_args: tuple[str, ...] = ("out",)
    public: str = "function, method"
    public_inplace: str | None = None
    aliases: tuple[str, ...] = ()
    numbers: bool = False
    old_form: bool = False
    geometry_only: bool = False
    random: bool = False
    repeatable: bool = True
    takes_overlap: bool = False
    check_out: Callable[..., None] | None = None
    differentiable: Any = True
    gives_base: bool = True
    new_version: bool = True
    no_gradient: bool = False
    no_formula: bool = False
    whole: bool = False
    constants: tuple[str, ...] = ()
    takes16: bool = True
    total: bool = False
    saves_by: tuple[str, ...] = ()
    autocast: str | None = None
    node_name: str | None = None
    reference: str | None = None
    tags: tuple[str, ...] = ()

    op: Op  # the primary overload
    ops: list[Op]  # and all of them

    expr: Callable[..., Any] | None = None
    check: Callable[..., None] | None = None
    rows: Callable[..., Any] | None = None
    decompose: Callable[..., Any] | None = None
    meta: Callable[..., Any] | None = None
    vjp: Callable[..., Any] | None = None
    jvp: Callable[..., Any] | None = None
    refuse_backward: Callable[..., Any] | None = None
    batch: Callable[..., Any] | None = None
    samples: Callable[..., Iterator[Any]] | None = None
    error_samples: Callable[..., Iterator[Any]] | None = None
    kernel: Callable[..., Any] | None = None
    by_value: Callable[..., Any] | None = None

    def __init_subclass__(cls, **kw: Any) -> None:
        super().__init_subclass__(**kw)
        if "schema" in cls.__dict__:
            declare(cls)

    # What a kind provides (see kinds.py).
    @classmethod
    def infer(cls, op: Op, args: tuple[Any, ...]) -> Any:
        """The spec or specs of the results."""
        if cls.meta is None:
            raise Undeclared(f"{op} has no meta")
        return cls.meta(*args)

    @classmethod
    def compute(cls, op: Op, outs: Any, args: tuple[Any, ...]) -> None:
        """Fill outs, which were allocated from `infer`."""
        kernel = op.kernels.get("cpu")
        if kernel is None:
            raise Undeclared(f"{op} has no kernel")
        kernel(outs, *args)

    @classmethod
    def only_decomposes(cls) -> bool:
        """Whether nothing but `decompose` says how results come about."""
        own = cls.compute.__func__ is Declaration.compute.__func__  # type: ignore[attr-defined]
        bodies = cls.kernel is None and cls.expr is None and not cls.whole
        return cls.decompose is not None and own and bodies

    @classmethod
    def bakes(cls, name: str, value: Any) -> bool:
        """Whether this number is written into the kernel instead of passed
        to it (a special case)."""
        return False

    @classmethod
    def takes_any_number(cls) -> bool:
        """Whether all numbers go one way: none is refused or has a kernel of its own."""
        return False

    @classmethod
    def fast(cls, op: Op) -> Any:
        """The C fast path of this overload, or None."""
        return None

    @classmethod
    def fix_gradients(
        cls, op: Op, grads: tuple[Any, ...], args: tuple[Any, ...]
    ) -> tuple[Any, ...]:
        """Bring gradients to the shapes and dtypes of the arguments."""
        return grads


class TensorSpec:
    """What an output will be: shape, dtype, device and (None: contiguous) strides."""

    __slots__ = ("shape", "dtype", "device", "stride")

    def __init__(self, shape: Any, dtype: Any, device: Any = None, stride: Any = None) -> None:
        self.shape = tuple(shape)
        self.dtype = dtype
        self.device = _native.cpu if device is None else device
        self.stride = None if stride is None else tuple(stride)

    def __repr__(self) -> str:
        return f"TensorSpec({self.shape}, {self.dtype}, {self.device}, {self.stride})"

    def allocate(self) -> Tensor:
        """Fresh bytes for it (none on the meta device)."""
        return _native.empty(self.shape, self.dtype, self.device, self.stride)


def like(t: Tensor, shape: Any = None, dtype: Any = None) -> TensorSpec:
    """A contiguous spec with t's dtype and device."""
    return TensorSpec(t.shape if shape is None else shape, dtype or t.dtype, t.device)


class Op:
    """One ATen overload. Calling it dispatches; the arguments stand in schema order, complete."""

    def __init__(
        self,
        decl: type[Declaration],
        text: str,
        variant: str = "functional",
        base: Op | None = None,
    ) -> None:
        self.decl = decl
        self.text = text
        self.variant = variant
        self.base = base or self
        self.kernels: dict[str, Callable[..., Any]] = {}
        if decl.kernel is not None:
            self.kernels["cpu"] = decl.kernel
        self.bits = state.COMPOSITE if decl.level == "composite" else 0
        self.saves: dict[Any, tuple[frozenset[int], frozenset[int]]] = {}
        self.batch_rules: dict[str, Any] = {}
        head, _, _ = text.partition("(")
        ns, colon, head = head.rpartition("::")
        self.namespace = ns if colon else "aten"
        self.name, _, self.overload = head.partition(".")
        # In place (a composite is only so many other operators).
        self.writes = self.name.endswith("_") and self.name[:2] != "__" and not self.bits

    def __repr__(self) -> str:
        return (
            f"<OpOverload(op='{self.namespace}.{self.name}', "
            f"overload='{self.overload or 'default'}')>"
        )

    def __str__(self) -> str:
        return f"{self.namespace}.{self.name}.{self.overload or 'default'}"

    @property
    def composes_gradient(self) -> bool:
        """Whether its gradient is that of what it dissolves into."""
        d = self.decl
        return d.vjp is None and d.decompose is not None and not (d.no_formula or d.whole)

    @property
    def key(self) -> str:
        """'add.Tensor': name and overload, as ATen writes them."""
        return f"{self.name}.{self.overload}" if self.overload else self.name

    @cached_property
    def schema(self) -> Schema:
        return parse(self.text)

    @cached_property
    def inplace_op(self) -> Op | None:
        if not self.decl.inplace or self.variant != "functional":
            return None
        return Op(self.decl, inplace_text(self.text, self.decl.inplace), "inplace", self)

    @cached_property
    def out_op(self) -> Op | None:
        if not self.decl.out or self.variant != "functional":
            return None
        return Op(self.decl, out_text(self, self.decl), "out", self)

    @cached_property
    def node_type(self) -> type:
        """The class of this operator's nodes: 'AddBackward0'."""
        name = self.decl.node_name or "".join(p.capitalize() for p in self.name.split("_"))
        number = NODE_NUMBERS.get((self.name, self.overload), 0)
        full = name if "Backward" in name else f"{name}Backward{number}"
        full = "NotImplemented" if self.decl.no_formula else full
        members = slot("node_members")(self)
        if not full[-1].isdigit():  # written by hand in torch, and named by its namespace
            members["name"] = lambda node: f"torch::autograd::{full}"
        return type(
            full,
            (_native.Node,),
            {"__slots__": (), "__module__": "torch.autograd.graph", **members},
        )

    @cached_property
    def fast(self) -> Any:
        f = self.decl.fast(self)
        if f is not None and self.variant == "functional" and self.decl.vjp is not None:
            f.set_node(self, self.node_type)
        return f

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Dispatch with ATen's own signature."""
        return SLOTS["call_overload"](self, args, kwargs)

    def backward(self, node: Any, grads: tuple[Any, ...]) -> Any:
        """Gradients along the node's edges (autograd's protocol of nodes)."""
        return SLOTS["run_backward"](self, node, grads)


NODE_NUMBERS: dict[tuple[str, str], int] = {
    ("sum", "dim_IntList"): 1, ("mean", "dim"): 1, ("pow", "Tensor_Tensor"): 1,
    ("pow", "Scalar"): 2, ("max", ""): 1, ("min", ""): 1, ("var_mean", "correction"): 0,
    ("squeeze", "dim"): 1, ("squeeze", "dims"): 2, ("index_fill", "int_Tensor"): 1,
    ("scatter", "value"): 1, ("masked_fill", "Tensor"): 1, ("t_", ""): 1, ("transpose_", ""): 1,
    ("unsqueeze_", ""): 1, ("squeeze_", ""): 3, ("squeeze_", "dim"): 4, ("squeeze_", "dims"): 5,
    ("as_strided_", ""): 1, ("rsub", "Scalar"): 1, ("clamp", ""): 1,
}  # fmt: skip


def inplace_text(text: str, given: bool | str) -> str:
    """'add.Tensor(Tensor self, …) -> Tensor' → 'add_.Tensor(Tensor(a!) self, …) -> Tensor(a!)'."""
    if isinstance(given, str):
        return given
    head, _, rest = text.partition("(")
    ns, colon, head = head.rpartition("::")
    name, dot, overload = head.partition(".")
    rest = rest.replace("Tensor self", "Tensor(a!) self", 1).replace(
        "Tensor input", "Tensor(a!) input", 1
    )
    args, _, _ = rest.rpartition("->")
    return f"{ns}{colon}{name}_{dot}{overload}({args}-> Tensor(a!)"


def out_text(op: Op, decl: type[Declaration]) -> str:
    """'exp(Tensor self) -> Tensor' → 'exp.out(Tensor self, *, Tensor(a!) out) -> Tensor(a!)'."""
    overload = (
        decl.out if isinstance(decl.out, str) else f"{op.overload}_out" if op.overload else "out"
    )
    head, _, rest = op.text.partition("(")
    ns, colon, head = head.rpartition("::")
    args, _, _ = rest.rpartition("->")
    args = args.rstrip()[:-1]
    marks = "defghijk" if "(a!)" in args else "abcdefgh"  # as ATen letters them
    outs = [f"Tensor({marks[i]}!) {n}" for i, n in enumerate(decl.out_args)]
    star = "" if "*," in args else "*, "
    sep = ", " if args else ""
    returns = ", ".join(f"Tensor({marks[i]}!)" for i in range(len(outs)))
    returns = f"({returns})" if len(outs) > 1 else returns
    return f"{ns}{colon}{op.name}.{overload}({args}{sep}{star}{', '.join(outs)}) -> {returns}"


class Packet:
    """The overloads of one name, in the order in which a call tries them.

    kind, public, aliases   those of the first overload's declaration
    homes                   the families that declare it and may not be imported yet

    What a name is and where it appears is known without its family (`registry.py`); asking for the
    overloads imports it.
    """

    __slots__ = ("namespace", "name", "kind", "public", "aliases", "homes", "_entered")

    def __init__(
        self,
        namespace: str,
        name: str,
        kind: str = "",
        public: str = "",
        aliases: tuple[str, ...] = (),
        homes: tuple[str, ...] = (),
    ) -> None:
        self.namespace = namespace
        self.name = name
        self.kind = kind
        self.public = public
        self.aliases = aliases
        self.homes = homes
        self._entered: list[Op] = []

    def __repr__(self) -> str:
        return (
            f"<Packet {self.namespace}.{self.name}: "
            f"{', '.join(o.overload or 'default' for o in self.ops)}>"
        )

    @property
    def ops(self) -> list[Op]:
        """The overloads (in-place ones may be stand-ins: `resolve_lazy`)."""
        if self.homes:
            self._import()
        return self._entered

    @property
    def makes_tensors(self) -> bool:
        """Whether its operators make tensors from options (dtype, device, …)."""
        return self.kind in ("factory", "like")

    def enter(self, op: Op, public: str | None = None) -> None:
        """Add an overload. Until one is there or expected, the packet is no more than its name."""
        if not self._entered and not self.homes:
            decl = op.decl
            self.kind, self.aliases = decl.kind, decl.aliases
            self.public = decl.public if public is None else public
        self._entered.append(op)

    def remove(self, op: Op) -> None:
        """Take an overload out."""
        self._entered = [o for o in self.ops if o is not op]

    def _import(self) -> None:
        homes = self.homes
        for home in homes:
            import_module(f"{__package__}.{home}")
        if len(homes) > 1:  # one of them may have been imported for another's sake, before its turn
            turn = {f"{__package__}.{home}": i for i, home in enumerate(homes)}
            self._entered.sort(key=lambda op: turn.get(op.decl.__module__, len(turn)))
        self.homes = ()
        if not self._entered:
            raise Undeclared(f"{self.namespace}::{self.name} is not declared by {homes}")

    def overload(self, name: str) -> Op | None:
        """The overload called `name` ('default' for none), derived ones included."""
        name = "" if name == "default" else name
        for op in self.ops:
            if op.overload == name:
                return op
        for op in self.ops:
            if op.out_op is not None and op.out_op.overload == name:
                return op.out_op
        return None


PACKETS: dict[tuple[str, str], Packet] = {}


def packet(name: str, namespace: str = "aten") -> Packet:
    """The packet of that name, made when new."""
    p = PACKETS.get((namespace, name))
    if p is None:
        p = PACKETS[(namespace, name)] = Packet(namespace, name)
    return p


def declare(cls: type[Declaration]) -> None:
    """Enter a declaration: its overloads, and the in-place ones under their own name."""
    cls.ops = []
    for text in (cls.schema, *cls.overloads):
        op = Op(cls, text)
        packet(op.name, op.namespace).enter(op)
        cls.ops.append(op)
        if cls.inplace:
            lazy: Any = _LazyInplace(op)
            packet(op.name + "_", op.namespace).enter(lazy, cls.public_inplace)
    cls.op = cls.ops[0]


class _LazyInplace:
    """Stands for an in-place overload in its packet until it is used."""

    def __init__(self, op: Op) -> None:
        object.__setattr__(self, "_op", op)

    def __getattr__(self, name: str) -> Any:
        return getattr(object.__getattribute__(self, "_op").inplace_op, name)


def resolve_lazy(p: Packet) -> list[Op]:
    """The packet's overloads, in-place stand-ins replaced."""
    for i, op in enumerate(p.ops):
        stand_in: object = op
        if type(stand_in) is _LazyInplace:
            p.ops[i] = object.__getattribute__(stand_in, "_op").inplace_op
    return p.ops
