"""Calls generated kernels by address on NumPy arrays: the loop ABI and nothing else."""

from __future__ import annotations

import ctypes
import itertools

import numpy as np

from flambeau._src.codegen.cpp import print_kernels
from flambeau._src.loops.compile import host_target, loader
from flambeau._src.loops.lower import lower
from flambeau._src.loops.schedule import schedule

_ABI = ctypes.CFUNCTYPE(
    None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_longlong, ctypes.c_longlong, ctypes.c_void_p
)
_numbers = itertools.count()

NUMPY = {
    "bool": np.bool_, "uint8": np.uint8, "int8": np.int8, "int16": np.int16, "int32": np.int32,
    "int64": np.int64, "uint16": np.uint16, "uint32": np.uint32, "uint64": np.uint64,
    "float16": np.float16, "bfloat16": np.uint16, "float32": np.float32, "float64": np.float64,
    "float8_e5m2": np.uint8, "float8_e4m3fn": np.uint8,
}  # fmt: skip


class Built:
    """A kernel compiled for this machine."""

    def __init__(self, expr, kind, ins, outs, **options):
        self.kernel = lower(expr, kind, ins, outs, **options)
        self.schedule = schedule(self.kernel)
        self.text = print_kernels([("kernel", self.kernel, self.schedule)], host_target())
        self.function = _ABI(loader().load(self.text, ["kernel"])["kernel"])
        self.kind, self.outs = kind, outs

    def raw(self, pointers, strides0, strides1, n0, n1, params=()):
        """One call of the ABI."""
        p = (ctypes.c_void_p * len(pointers))(*pointers)
        s = (ctypes.c_longlong * (2 * len(pointers)))(*strides0, *strides1)
        slots = np.zeros(max(1, len(params)), np.int64)
        for i, v in enumerate(params):
            if self.kernel.param_kinds[i] == "f":
                slots[i : i + 1].view(np.float64)[:] = v
            else:
                slots[i] = v
        self.function(p, s, n0, n1, slots.ctypes.data)

    def map(self, *arrays, params=(), out=None):
        """Over 1-d or 2-d arrays of one shape (broadcast them before); the last axis is inner."""
        shape = arrays[0].shape if arrays else out[0].shape
        if out is None:
            out = [np.empty(shape, NUMPY[d]) for d in self.outs]
        ops = [np.atleast_2d(a) for a in (*out, *arrays)]
        self.raw(
            [a.ctypes.data for a in ops], [a.strides[1] for a in ops],
            [a.strides[0] for a in ops], ops[0].shape[1], ops[0].shape[0], params,
        )  # fmt: skip
        return out[0] if len(out) == 1 else out

    def rows(self, *arrays, axis=1, params=(), out=None):
        """Over 2-d arrays, rows along ``axis``."""
        arrays = [a if axis == 1 else a.T for a in arrays]
        n1, n0 = arrays[0].shape
        if out is None:
            out = []
            for d, per_row in zip(self.outs, self.kernel.row_outs):
                if per_row:
                    out.append(np.empty((n1,), NUMPY[d]))
                else:
                    full = np.empty((n1, n0) if axis == 1 else (n0, n1), NUMPY[d])
                    out.append(full)
        views = []
        for o in out:
            if o.ndim == 1:
                views.append(np.lib.stride_tricks.as_strided(o, (n1, n0), (o.strides[0], 0)))
            else:
                views.append(o if axis == 1 else o.T)
        ops = [*views, *arrays]
        self.raw(
            [a.ctypes.data for a in ops], [a.strides[1] for a in ops],
            [a.strides[0] for a in ops], n0, n1, params,
        )  # fmt: skip
        return out[0] if len(out) == 1 else out


def to_bf16(x):
    """float32 to bfloat16 bits, to nearest even."""
    u = np.ascontiguousarray(x, np.float32).view(np.uint32).astype(np.uint64)
    r = ((u + 0x7FFF + ((u >> 16) & 1)) >> 16).astype(np.uint16)
    return np.where(np.isnan(np.asarray(x, np.float32)), np.uint16(0x7FC0), r)


def from_bf16(b):
    """bfloat16 bits to float32."""
    return (np.asarray(b, np.uint16).astype(np.uint32) << 16).view(np.float32)


def ulps(got, want):
    """The error in units of the last place of ``got``'s dtype; ``want`` has more precision."""
    got = np.asarray(got)
    f = got.dtype.type
    with np.errstate(all="ignore"):
        rounded = want.astype(f)
        spacing = np.spacing(np.maximum(np.abs(rounded), np.finfo(f).tiny)).astype(want.dtype)
        error = np.abs(got.astype(want.dtype) - want) / spacing
    same = (got == rounded) | (np.isnan(got) & np.isnan(rounded))
    error = np.where(same & ~np.isfinite(want), 0, error)
    error = np.where(same & np.isinf(rounded), 0, error)
    return np.where(np.isnan(error), np.inf, error)
