"""The dtypes, their names, and how they promote."""

from __future__ import annotations

from typing import Any

from flambeau._src import _native
from flambeau._src.core.slots import fill

FLOATING, COMPLEX, SIGNED = 1, 2, 4
dtype = _native.dtype

uint8 = dtype("uint8", 0, 1, 0)
int8 = dtype("int8", 1, 1, SIGNED)
int16 = dtype("int16", 2, 2, SIGNED)
int32 = dtype("int32", 3, 4, SIGNED)
int64 = dtype("int64", 4, 8, SIGNED)
float16 = dtype("float16", 5, 2, FLOATING | SIGNED)
float32 = dtype("float32", 6, 4, FLOATING | SIGNED)
float64 = dtype("float64", 7, 8, FLOATING | SIGNED)
complex32 = dtype("complex32", 8, 4, COMPLEX | SIGNED)
complex64 = dtype("complex64", 9, 8, COMPLEX | SIGNED)
complex128 = dtype("complex128", 10, 16, COMPLEX | SIGNED)
bool_ = dtype("bool", 11, 1, 0)
bfloat16 = dtype("bfloat16", 12, 2, FLOATING | SIGNED)
float8_e5m2 = dtype("float8_e5m2", 13, 1, FLOATING | SIGNED)
float8_e4m3fn = dtype("float8_e4m3fn", 14, 1, FLOATING | SIGNED)
uint16 = dtype("uint16", 15, 2, 0)
uint32 = dtype("uint32", 16, 4, 0)
uint64 = dtype("uint64", 17, 8, 0)

DTYPES: dict[str, dtype] = {
    d.name: d
    for d in (
        uint8, int8, int16, int32, int64, float16, float32, float64, complex32, complex64,
        complex128, bool_, bfloat16, float8_e5m2, float8_e4m3fn, uint16, uint32, uint64,
    )
}  # fmt: skip
BY_CODE: dict[int, dtype] = {d.code: d for d in DTYPES.values()}
ALIASES: dict[str, dtype] = {
    "float": float32, "double": float64, "half": float16, "int": int32, "long": int64,
    "short": int16, "cfloat": complex64, "cdouble": complex128, "chalf": complex32,
}  # fmt: skip
REAL_OF: dict[dtype, dtype] = {complex32: float16, complex64: float32, complex128: float64}
COMPLEX_OF: dict[dtype, dtype] = {
    float16: complex32, float32: complex64, float64: complex128, bfloat16: complex64,
}  # fmt: skip

_INT_RANK = {bool_: 0, uint8: 1, int8: 1, int16: 2, int32: 3, int64: 4}
_FLOAT_RANK = {float16: 1, bfloat16: 1, float32: 2, float64: 3}


#: Python's classes of numbers, which programs may name where a dtype is wanted.
FROM_PYTHON: dict[Any, dtype] = {float: float64, int: int64, bool: bool_, complex: complex128}


def as_dtype(value: Any, function: str, argument: str = "argument 'dtype'") -> Any:
    """A dtype argument: None and dtypes themselves, Python's classes of numbers as theirs.

    Raises TypeError for anything else.
    """
    if value is None or type(value) is dtype:
        return value
    found = FROM_PYTHON.get(value) if isinstance(value, type) else None
    if found is None:
        raise TypeError(f"{function}(): {argument} must be torch.dtype, not {type(value).__name__}")
    return found


def is_integral(d: dtype, *, with_bool: bool = True) -> bool:
    """Whether d holds integers (bool counts unless told otherwise)."""
    return not d.is_floating_point and not d.is_complex and (with_bool or d is not bool_)


def category(d: dtype) -> int:
    """0 bool, 1 integer, 2 floating, 3 complex: the order in which numbers win."""
    return 3 if d.is_complex else 2 if d.is_floating_point else 0 if d is bool_ else 1


def promote_types(a: dtype, b: dtype) -> dtype:
    """The smallest dtype that both convert to, as torch's promotion table has it."""
    if a is b:
        return a
    ca, cb = category(a), category(b)
    if ca == 3 or cb == 3:
        ra, rb = REAL_OF.get(a, a), REAL_OF.get(b, b)
        ra = ra if ra.is_floating_point else rb
        rb = rb if rb.is_floating_point else ra
        return COMPLEX_OF[promote_types(ra, rb)]
    if ca == 2 or cb == 2:
        if ca != 2:
            return b
        if cb != 2:
            return a
        if a.itemsize == 1 or b.itemsize == 1:
            raise RuntimeError(
                f"Promotion for Float8 Types is not supported, attempted to promote {a} and {b}"
            )
        if _FLOAT_RANK[a] == _FLOAT_RANK[b]:
            return float32
        return a if _FLOAT_RANK[a] > _FLOAT_RANK[b] else b
    if a is bool_:
        return b
    if b is bool_:
        return a
    if a not in _INT_RANK or b not in _INT_RANK:
        raise RuntimeError(
            "Promotion for uint16, uint32, uint64 types is not supported, attempted to promote "
            f"{a} and {b}"
        )
    if {a, b} == {uint8, int8}:
        return int16
    return a if _INT_RANK[a] >= _INT_RANK[b] else b


def can_cast(source: dtype, to: dtype) -> bool:
    """Whether a result of dtype `source` may be written into `to` without losing its category."""
    if source.is_complex and not to.is_complex:
        return False
    if source.is_floating_point and is_integral(to):
        return False
    return source is bool_ or to is not bool_


def type_name(d: dtype, device: str = "cpu") -> str:
    """The legacy tensor type name, as error messages print it: 'torch.FloatTensor'."""
    where = "" if device == "cpu" else device + "."
    return f"torch.{where}{SCALAR_NAMES[d.name]}Tensor"


SCALAR_NAMES: dict[str, str] = {
    "float32": "Float", "float64": "Double", "float16": "Half", "bfloat16": "BFloat16",
    "uint8": "Byte", "int8": "Char", "int16": "Short", "int32": "Int", "int64": "Long",
    "bool": "Bool", "complex64": "ComplexFloat", "complex128": "ComplexDouble",
    "complex32": "ComplexHalf", "uint16": "UInt16", "uint32": "UInt32", "uint64": "UInt64",
    "float8_e5m2": "Float8_e5m2", "float8_e4m3fn": "Float8_e4m3fn",
}  # fmt: skip


_C_NAMES: dict[str, str] = {
    "float32": "float", "float64": "double", "float16": "c10::Half", "bfloat16": "c10::BFloat16",
    "int64": "long int", "int32": "int", "int16": "short int", "int8": "signed char",
    "uint8": "unsigned char", "uint16": "short unsigned int", "uint32": "unsigned int",
    "uint64": "long unsigned int", "bool": "bool", "complex32": "c10::complex<c10::Half>",
    "complex64": "c10::complex<float>", "complex128": "c10::complex<double>",
    "float8_e5m2": "c10::Float8_e5m2", "float8_e4m3fn": "c10::Float8_e4m3fn",
}  # fmt: skip


def c_name(d: dtype) -> str:
    """The C++ type's name, as some error messages print it: 'long int', 'c10::BFloat16'."""
    return _C_NAMES[d.name]


def scalar_name(d: dtype) -> str:
    """The scalar type's name in error messages: 'Float', 'Long'."""
    return SCALAR_NAMES[d.name]


def to_complex(d: dtype) -> dtype:
    """The complex dtype whose parts hold d; RuntimeError where there is none."""
    found = d if d.is_complex else COMPLEX_OF.get(d)
    if found is None:
        raise RuntimeError(f"Unknown Complex ScalarType for {scalar_name(d)}")
    return found


fill("dtype_to_real", lambda d: REAL_OF.get(d, d))  # dtype's methods of these names
fill("dtype_to_complex", to_complex)
