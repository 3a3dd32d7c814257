"""What the running interpreter's opcodes mean: one table from the standard library's facts."""

from __future__ import annotations

import opcode
import sys

__all__ = [
    "BACKWARD",
    "BINARY",
    "CACHES",
    "CELL_OPS",
    "COMPARE",
    "COMPARE_MASKS",
    "COMPARE_SHIFT",
    "CONST_OPS",
    "DOUBLES",
    "ENDS",
    "FAST_OPS",
    "INTRINSICS",
    "INVERTED",
    "JUMPS",
    "NAME_OPS",
    "OPNAME",
    "VERSION",
    "has_argument",
    "number_of",
]

VERSION = sys.version_info[:2]
_WITH_ARGUMENT = frozenset(
    getattr(opcode, "hasarg", None) or range(opcode.HAVE_ARGUMENT, 256)  # 3.11 has no list
)
_MAP = {name: code for name, code in opcode.opmap.items() if code < 256}


def _names_of(codes: list[int]) -> frozenset[str]:
    return frozenset(opcode.opname[c] for c in codes if not opcode.opname[c].startswith("<"))


#: Names by number.
OPNAME: tuple[str, ...] = tuple(opcode.opname[:256])


def has_argument(number: int) -> bool:
    """Whether the instruction of this number reads its argument."""
    return number in _WITH_ARGUMENT


def _cache_counts() -> dict[str, int]:
    """Code units of inline cache that follow each instruction."""
    counts = opcode._inline_cache_entries  # type: ignore[attr-defined]
    if isinstance(counts, dict):
        return dict(counts)
    return {opcode.opname[code]: n for code, n in enumerate(counts) if n}


CACHES: dict[str, int] = _cache_counts()
CONST_OPS = _names_of(opcode.hasconst)
NAME_OPS = _names_of(opcode.hasname)
FAST_OPS = _names_of(opcode.haslocal) - {"LOAD_CLOSURE"}
CELL_OPS = _names_of(opcode.hasfree) | {"LOAD_CLOSURE"}

#: Instructions with a target, under the names that `Instruction` uses.
JUMPS = frozenset(
    name.replace("_FORWARD_IF", "_IF").replace("_BACKWARD_IF", "_IF")
    for name in _names_of(opcode.hasjrel)
)
#: Unconditional jumps: the form that goes back, by the form that goes forward.
BACKWARD = {"JUMP_FORWARD": "JUMP_BACKWARD"}
#: The conditional jump that is taken when the other is not.
INVERTED = {
    "POP_JUMP_IF_TRUE": "POP_JUMP_IF_FALSE",
    "POP_JUMP_IF_FALSE": "POP_JUMP_IF_TRUE",
    "POP_JUMP_IF_NONE": "POP_JUMP_IF_NOT_NONE",
    "POP_JUMP_IF_NOT_NONE": "POP_JUMP_IF_NONE",
}
#: After these the next instruction is not run.
ENDS = frozenset(
    {
        "RETURN_VALUE",
        "RETURN_CONST",
        "RAISE_VARARGS",
        "RERAISE",
        "JUMP_FORWARD",
        "JUMP_BACKWARD",
        "JUMP_BACKWARD_NO_INTERRUPT",
        "INTERPRETER_EXIT",
    }
)
#: Two instructions in one (3.13), each index in four bits.
DOUBLES = {
    "LOAD_FAST_LOAD_FAST": ("LOAD_FAST", "LOAD_FAST"),
    "STORE_FAST_LOAD_FAST": ("STORE_FAST", "LOAD_FAST"),
    "STORE_FAST_STORE_FAST": ("STORE_FAST", "STORE_FAST"),
}

BINARY: tuple[str, ...] = tuple(
    symbol
    for _, symbol in opcode._nb_ops  # type: ignore[attr-defined]
)
COMPARE: tuple[str, ...] = tuple(opcode.cmp_op)
#: `COMPARE_OP` holds its operator above these bits, and from 3.12 a mask of results below.
COMPARE_SHIFT = {(3, 11): 0, (3, 12): 4, (3, 13): 5}.get(VERSION, 5)
COMPARE_MASKS = {"<": 2, "<=": 10, "==": 8, "!=": 7, ">": 4, ">=": 12}
INTRINSICS: dict[str, tuple[str, ...]] = {
    "CALL_INTRINSIC_1": tuple(getattr(opcode, "_intrinsic_1_descs", ())),
    "CALL_INTRINSIC_2": tuple(getattr(opcode, "_intrinsic_2_descs", ())),
}


def number_of(name: str) -> int:
    """The opcode's number. Raises ValueError for a name that this Python does not have."""
    code = _MAP.get(name)
    if code is None:
        raise ValueError(f"Python {VERSION[0]}.{VERSION[1]} has no instruction {name}")
    return code
