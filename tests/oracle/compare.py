"""Judging one outcome against the recorded one. NumPy only; the rule is stated in README.md."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tests.oracle import wire

EPS = {"float16": 2.0**-10, "bfloat16": 2.0**-7, "float32": 2.0**-23, "complex64": 2.0**-23,
       "complex32": 2.0**-10,
       "float64": 2.0**-52, "complex128": 2.0**-52}  # fmt: skip
TINY = {"float16": 2.0**-24, "bfloat16": 2.0**-133, "float32": 2.0**-149, "complex64": 2.0**-149,
        "complex32": 2.0**-24,
        "float64": 2.0**-1074, "complex128": 2.0**-1074}  # fmt: skip
LARGEST = {"float16": 65520.0, "bfloat16": 2.0**128 - 2.0**119}  # what rounds to infinity
ULPS = 4  # of the result's scale, always allowed below float64
R64, A64 = 1e-10, 1e-12  # float64: relative to the element, relative to the tensor's scale
ELEMENTWISE = ("pointwise", "view", "copy", "create")
EXACT = ("random", "view", "create")


@dataclass
class Judge:
    """Compares trees; `reason` of the first difference, `None` when equal."""

    kind: str
    ours: list[bytes]
    theirs: list[bytes]
    gradient: bool = False
    strides: bool = False  # compare strides (and only them)
    ulps: int = ULPS  # 0: exact, in float64 too
    factor: float = 2.0  # how many times the other side's error is allowed
    wide: list[bytes] | None = None  # buffers of the references, where not among `theirs`
    truth_counts: bool = False  # infinities and NaNs may also be where the reference has them
    largest: float = 0.0  # of all gradients of the call: what terms that cancel wholly are made of

    def __post_init__(self) -> None:
        if self.kind in EXACT and not self.gradient:
            self.ulps = 0

    def tree(self, ours: Any, theirs: Any, ref: Any = None, at: str = "out") -> str | None:
        """First difference between two result trees."""
        if isinstance(theirs, dict) and isinstance(ours, dict) and ours.get("k") == theirs["k"]:
            kind = theirs["k"]
            if kind == "out":
                return self.tensor(ours, theirs, ref, at)
            if kind in ("tuple", "named"):
                if ours["f"] != theirs["f"]:
                    return f"{at}: fields {ours['f']}, torch has {theirs['f']}"
                inner = ref["v"] if isinstance(ref, dict) and "v" in ref else None
                return self.items(ours["v"], theirs["v"], inner, at)
            if kind == "dict":
                return self.entries(ours["v"], theirs["v"], ref, at)
            return None if ours == theirs or _both_nan(ours, theirs) else (
                f"{at}: {ours}, torch has {theirs}"
            )  # fmt: skip
        if isinstance(theirs, list) and isinstance(ours, list):
            if self.gradient and at == "out":
                self.largest = max((self._size(node) for node in theirs), default=0.0)
            return self.items(ours, theirs, ref if isinstance(ref, list) else None, at)
        if type(ours) is type(theirs) and not isinstance(ours, dict):
            if isinstance(ours, float):
                return self.numbers(np.array([ours]), np.array([theirs]), None, "float64", at)
            return None if ours == theirs else f"{at}: {ours!r}, torch has {theirs!r}"
        return f"{at}: {_brief(ours)}, torch has {_brief(theirs)}"

    def _size(self, node: Any) -> float:
        """The largest finite number of a gradient."""
        if not isinstance(node, dict) or node.get("dt") not in EPS:
            return 0.0
        values = np.abs(_real_view(wire.to_array(self.theirs[node["b"]], node["dt"])))
        return float(values[np.isfinite(values)].max(initial=0.0))

    def items(self, ours: list[Any], theirs: list[Any], ref: Any, at: str) -> str | None:
        """First difference between two sequences."""
        if len(ours) != len(theirs):
            return f"{at}: {len(ours)} items, torch has {len(theirs)}"
        refs = ref if ref is not None and len(ref) == len(theirs) else [None] * len(theirs)
        for number, (a, b, c) in enumerate(zip(ours, theirs, refs, strict=True)):
            reason = self.tree(a, b, c, f"{at}[{number}]")
            if reason:
                return reason
        return None

    def entries(self, ours: Any, theirs: Any, ref: Any, at: str) -> str | None:
        """First difference between two dictionaries: the keys in their order, then the values."""
        mine, wanted = [k for k, _ in ours], [k for k, _ in theirs]
        if mine != wanted:
            return f"{at}: keys {mine}, torch has {wanted}"
        refs = {str(k): v for k, v in ref["v"]} if isinstance(ref, dict) and "v" in ref else {}
        for (key, a), (_, b) in zip(ours, theirs, strict=True):
            reason = self.tree(a, b, refs.get(str(key)), f"{at}[{key!r}]")
            if reason:
                return reason
        return None

    def tensor(self, ours: Any, theirs: Any, ref: Any, at: str) -> str | None:
        """First difference between two tensors."""
        if self.strides:
            return _strides(ours, theirs, at)
        for key, what in (("dt", "dtype"), ("sz", "shape")):
            if ours[key] != theirs[key]:
                return f"{at}: {what} {ours[key]}, torch has {theirs[key]}"
        if not self.gradient:
            for key, what in (("rg", "requires_grad"), ("is", "same object as input"),
                              ("al", "storage shared with input"), ("o", "offset")):  # fmt: skip
                if ours.get(key) != theirs.get(key):
                    return f"{at}: {what} {ours.get(key)}, torch has {theirs.get(key)}"
        if self.kind == "meta":
            return None
        a, b = self.ours[ours["b"]], self.theirs[theirs["b"]]
        if a == b:
            return None
        wide, terms = None, 0.0
        if isinstance(ref, dict) and ref.get("k") == "out" and ref["sz"] == theirs["sz"]:
            buffers = self.theirs if self.wide is None else self.wide
            wide, terms = wire.to_array(buffers[ref["b"]], ref["dt"]), ref.get("terms", 0.0)
        name = theirs["dt"]
        x, y = wire.to_array(a, name), wire.to_array(b, name)
        return self.numbers(x, y, wide, name, at, terms)

    def numbers(
        self, ours: np.ndarray, theirs: np.ndarray, wide: np.ndarray | None, name: str, at: str,
        terms: float = 0.0,
    ) -> str | None:  # fmt: skip
        """First element outside the bound; flat arrays of one dtype. `terms`: the norm of what a
        gradient's sum has added up, which is its scale where that is larger than the sum.
        """
        if name not in EPS or self.ulps == 0:
            exact = (ours == theirs) | ((ours != ours) & (theirs != theirs))
            return None if exact.all() else _report(~exact, ours, theirs, at, "exact")
        if ours.dtype.kind == "c":
            ours, theirs = ours.view(ours.real.dtype), theirs.view(theirs.real.dtype)
            wide = None if wide is None else _real_view(wide)
        a, b = ours.astype(np.float64), theirs.astype(np.float64)
        special = ~np.isfinite(b) | ~np.isfinite(a)
        bad = special & ~_alike(a, b)
        if name in LARGEST and wide is not None:
            bad &= ~self._overflowed(a, b, wide, name)
        if self.truth_counts and wide is not None:
            truth = _real_view(wide)
            bad &= ~(np.isnan(b) & ~np.isnan(truth))  # nothing is further off than no number
            with np.errstate(over="ignore"):
                bad &= ~_alike(a, truth.astype(ours.dtype))
        if not bad.any():
            with np.errstate(all="ignore"):
                bad = ~special & (a != b) & self._outside(a, b, wide, name, terms)
        return _report(bad, a, b, at, name) if bad.any() else None

    def _overflowed(self, a: np.ndarray, b: np.ndarray, wide: np.ndarray, name: str) -> np.ndarray:
        """Where a step on torch's way overflowed (its 16-bit matrix_exp: what it calls itself), and
        ours is right: near the reference, or an infinity that the reference rounds to.
        """
        truth = _real_view(wide).astype(np.float64)
        finite = np.abs(truth[np.isfinite(truth)])
        whole = float(finite.max()) if finite.size else 0.0
        scale = np.abs(truth) if self.kind in ELEMENTWISE and not self.gradient else whole
        with np.errstate(all="ignore"):
            near = np.abs(a - truth) <= self.ulps * EPS[name] * scale + TINY[name]
            past = (np.abs(truth) >= LARGEST[name]) & (a == np.sign(truth) * np.inf)
        return np.isfinite(truth) & ~np.isfinite(b) & (near & np.isfinite(a) | past)

    def _outside(
        self, a: np.ndarray, b: np.ndarray, wide: np.ndarray | None, name: str, terms: float
    ) -> np.ndarray:
        if name not in ("float64", "complex128"):
            return np.abs(a - self._centre(b, wide)) > self._bound(b, wide, name, terms)
        finite = np.abs(b[np.isfinite(b)])
        scale = self._scale(finite, exact_zero=True)
        far = np.abs(a - b) > R64 * np.abs(b) + A64 * scale
        if wide is None or not far.any():
            return far
        return far & (np.abs(a - self._centre(b, wide)) > self._bound(b, wide, name, terms))

    def _scale(self, finite: np.ndarray, exact_zero: bool = False) -> float:
        """The largest of these; of the call's gradients where they are what rounding has left of
        zero (`exact_zero`: where they are zero too)."""
        scale = float(finite.max()) if finite.size else 0.0
        left = scale <= A64 * self.largest and (scale > 0 or exact_zero)
        return self.largest if left else scale

    @staticmethod
    def _centre(theirs: np.ndarray, wide: np.ndarray | None) -> np.ndarray:
        if wide is None:
            return theirs
        wide = _real_view(wide).astype(np.float64)
        return np.where(np.isfinite(wide), wide, theirs)

    def _bound(
        self, theirs: np.ndarray, wide: np.ndarray | None, name: str, terms: float
    ) -> np.ndarray:
        centre = self._centre(theirs, wide)
        finite = np.abs(centre[np.isfinite(centre) & np.isfinite(theirs)])
        scale = max(self._scale(finite), terms)
        error = np.abs(theirs - centre)
        if self.kind in ELEMENTWISE and not self.gradient:
            floor = self.ulps * EPS[name] * np.abs(centre)
            return np.maximum(self.factor * error, floor) + TINY[name]
        known = error[np.isfinite(error)]
        worst = float(known.max()) if known.size else 0.0
        floor = max(self.ulps * EPS[name] * scale, self.factor * worst)
        return np.maximum(self.factor * error, floor) + TINY[name]


def _alike(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return (a == b) | (np.isnan(a) & np.isnan(b))


def _real_view(array: np.ndarray) -> np.ndarray:
    return array.view(array.real.dtype) if array.dtype.kind == "c" else array


def _both_nan(a: Any, b: Any) -> bool:
    return repr(a) == repr(b)


def _brief(node: Any) -> str:
    if isinstance(node, dict) and node.get("k") == "out":
        return f"{node['dt']}{node['sz']}"
    if isinstance(node, list):
        return f"a list of {len(node)}"
    return repr(node)[:80]


def _strides(ours: Any, theirs: Any, at: str) -> str | None:
    if ours["sz"] != theirs["sz"] or ours["st"] == theirs["st"]:
        return None  # a wrong shape is the business of the value check
    real = [i for i, size in enumerate(theirs["sz"]) if size > 1]
    differs = any(ours["st"][i] != theirs["st"][i] for i in real) and 0 not in theirs["sz"]
    note = "" if differs else " (only where a size is 0 or 1)"
    return f"{at}: strides {ours['st']}, torch has {theirs['st']} for {theirs['sz']}{note}"


def _report(bad: np.ndarray, ours: np.ndarray, theirs: np.ndarray, at: str, how: str) -> str:
    first = int(np.flatnonzero(bad)[0])
    return (
        f"{at}: {int(bad.sum())} of {bad.size} values differ ({how}), "
        f"first at {first}: {ours[first]!r}, torch has {theirs[first]!r}"
    )
