"""Code object → Program."""

from __future__ import annotations

from types import CodeType
from typing import Any

from flambeau._src.capture.bytecode.opcodes import (
    BINARY,
    CACHES,
    CELL_OPS,
    COMPARE,
    COMPARE_SHIFT,
    CONST_OPS,
    DOUBLES,
    FAST_OPS,
    INTRINSICS,
    JUMPS,
    NAME_OPS,
    OPNAME,
    VERSION,
    has_argument,
)
from flambeau._src.capture.bytecode.program import ExceptionEntry, Instruction, Positions, Program
from flambeau._src.capture.bytecode.tables import read_exceptions
from flambeau._src.capture.bytecode.variables import Slots

__all__ = ["decode"]

_BACK = frozenset({"JUMP_BACKWARD", "JUMP_BACKWARD_NO_INTERRUPT"})


def decode(code: CodeType) -> Program:
    """Take a code object apart. The code may have run: specialised instructions are undone."""
    program = Program.like(code)
    text = code.co_code
    places = list(code.co_positions())
    reader = _Reader(code)
    at_unit: dict[int, Instruction] = {}  # each code unit that an entry or a jump may name
    jumps: list[tuple[Instruction, int]] = []
    out = program.instructions
    unit, units = 0, len(text) // 2
    start, extended = 0, 0
    while unit < units:
        number, arg = text[2 * unit], text[2 * unit + 1] | extended
        name = OPNAME[number]
        unit += 1
        if name == "EXTENDED_ARG":
            extended = arg << 8
            continue
        extended = 0
        end = unit + CACHES.get(name, 0)
        where = _place(places[unit - 1])
        if name == "PRECALL":
            unit = end  # part of the CALL that follows, which so starts here
            continue
        plain, backward = _direction(name)
        if plain in JUMPS:
            made = [Instruction(plain, where=where, offset=2 * start)]
            jumps.append((made[0], end - arg if backward else end + arg))
        elif plain in DOUBLES:
            first, second = DOUBLES[plain]
            made = [
                reader.variable(first, arg >> 4, where, 2 * start),
                reader.variable(second, arg & 15, where, 2 * start),
            ]
        else:
            made = [reader.read(plain, number, arg, where, 2 * start)]
        at_unit[start] = made[0]
        out += made
        unit = start = end
    for jump, goal in jumps:
        jump.target = at_unit[goal]
    _exceptions(program, code.co_exceptiontable, at_unit)
    if VERSION >= (3, 13):
        _name_closures(out)
    return program


def _name_closures(listed: list[Instruction]) -> None:
    """`LOAD_FAST` of a cell for a function's closure, as `LOAD_CLOSURE`.

    Not every load from a cell's slot is one: a comprehension's variable may lie there for a while.
    """
    for i, x in enumerate(listed[:-1]):
        if x.opname != "SET_FUNCTION_ATTRIBUTE" or x.arg != 8 or i < 3:
            continue
        count = listed[i - 3].arg
        if listed[i - 3].opname == "BUILD_TUPLE" and count is not None:
            for load in listed[max(i - 3 - count, 0) : i - 3]:
                if load.opname == "LOAD_FAST":
                    load.opname = "LOAD_CLOSURE"


def _direction(name: str) -> tuple[str, bool]:
    """The name without a direction, and whether it jumps back (conditional jumps of 3.11)."""
    if "_BACKWARD_IF" in name:
        return name.replace("_BACKWARD_IF", "_IF"), True
    return name.replace("_FORWARD_IF", "_IF"), name in _BACK


def _place(given: tuple[int | None, int | None, int | None, int | None]) -> Positions | None:
    return None if given[0] is None else Positions(*given)


def _exceptions(program: Program, table: bytes, at_unit: dict[int, Instruction]) -> None:
    if not table:
        return
    place = {id(x): i for i, x in enumerate(program.instructions)}
    for start, end, target, depth, lasti in read_exceptions(table):
        after = at_unit.get(end)
        last = len(program.instructions) if after is None else place[id(after)]
        program.exceptions.append(
            ExceptionEntry(
                at_unit[start], program.instructions[last - 1], at_unit[target], depth, lasti
            )
        )


class _Reader:
    """Arguments of one code object's instructions by what they mean."""

    def __init__(self, code: CodeType) -> None:
        self.consts = code.co_consts
        self.names = code.co_names
        self.slots = Slots(list(code.co_varnames), list(code.co_cellvars), list(code.co_freevars))

    def variable(self, name: str, arg: int, where: Positions | None, offset: int) -> Instruction:
        """An instruction on a local variable or a cell."""
        what, kind = self.slots.name_of(arg, name in CELL_OPS)
        return Instruction(name, arg, what, where, flag=kind, offset=offset)

    def read(
        self, name: str, number: int, arg: int, where: Positions | None, offset: int
    ) -> Instruction:
        """Any instruction that is no jump."""
        if name in FAST_OPS or name in CELL_OPS:
            return self.variable(name, arg, where, offset)
        if not has_argument(number):
            return Instruction(name, None, None, where, offset=offset)
        value: Any = arg
        flag: Any = None
        if name in CONST_OPS:
            value = self.consts[arg]
        elif name in NAME_OPS:
            value, flag = self._name(name, arg)
        elif name == "COMPARE_OP":
            value = COMPARE[arg >> COMPARE_SHIFT]
            flag = bool(arg & 16) if VERSION >= (3, 13) else None
        elif name == "BINARY_OP":
            value = BINARY[arg]
        elif name in ("IS_OP", "CONTAINS_OP"):
            value = bool(arg)
        elif name in INTRINSICS:
            value = INTRINSICS[name][arg]
        return Instruction(name, arg, value, where, flag=flag, offset=offset)

    def _name(self, name: str, arg: int) -> tuple[str, Any]:
        if name == "LOAD_GLOBAL" or (name == "LOAD_ATTR" and VERSION >= (3, 12)):
            return self.names[arg >> 1], bool(arg & 1)
        if name == "LOAD_SUPER_ATTR":
            return self.names[arg >> 2], (bool(arg & 1), bool(arg & 2))
        return self.names[arg], None
