"""Program → code object."""

from __future__ import annotations

from itertools import pairwise
from types import CodeType
from typing import Any

from flambeau._src.capture.bytecode.opcodes import (
    BINARY,
    CACHES,
    CELL_OPS,
    COMPARE,
    COMPARE_MASKS,
    COMPARE_SHIFT,
    CONST_OPS,
    DOUBLES,
    FAST_OPS,
    INTRINSICS,
    INVERTED,
    JUMPS,
    NAME_OPS,
    VERSION,
    number_of,
)
from flambeau._src.capture.bytecode.program import ExceptionEntry, Instruction, Positions, Program
from flambeau._src.capture.bytecode.stack import stack_size
from flambeau._src.capture.bytecode.tables import write_exceptions, write_locations
from flambeau._src.capture.bytecode.variables import Slots

__all__ = ["assemble"]

_COMPARE_AT = {text: i for i, text in enumerate(COMPARE)}
_BINARY_AT = {text: i for i, text in enumerate(BINARY)}
_DOUBLED = {pair: name for name, pair in DOUBLES.items()} if VERSION >= (3, 13) else {}
_TWO_WAY = VERSION < (3, 12)  # conditional jumps exist in both directions


def assemble(program: Program) -> CodeType:
    """The code object of a program, which is not changed.

    Raises ValueError for what has no encoding: an unknown instruction or cell, a jump out of the
    program, depths of the stack that disagree, neighbours that belong together torn apart.
    """
    _check_neighbours(program.instructions)
    pools = _Pools(program)
    units = _lower(program, pools)
    starts = _place(units)
    text, places = _encode(units, starts)
    at = {x: starts[i] for i, u in enumerate(units) for x in u.of}
    last = {x: starts[i + 1] for i, u in enumerate(units) for x in u.of}
    entries = _apart([_entry(e, at, last) for e in program.exceptions])
    return CodeType(
        program.argcount,
        program.posonlyargcount,
        program.kwonlyargcount,
        len(pools.varnames),
        stack_size(program),
        program.flags,
        text,
        tuple(pools.consts),
        tuple(pools.names),
        tuple(pools.varnames),
        program.filename,
        program.name,
        program.qualname,
        program.firstlineno,
        write_locations(places, program.firstlineno),
        write_exceptions(entries),
        tuple(program.freevars),
        tuple(program.cellvars),
    )


def _entry(
    e: ExceptionEntry, at: dict[Instruction, int], last: dict[Instruction, int]
) -> tuple[int, int, int, int, bool]:
    return at[e.start], last[e.end], at[e.target], e.depth, e.lasti


def _apart(
    entries: list[tuple[int, int, int, int, bool]],
) -> list[tuple[int, int, int, int, bool]]:
    """In the order of their starts, as the interpreter looks them up; overlaps go to the first."""
    ordered = sorted(entries, key=lambda e: e[0])
    if all(a[1] <= b[0] for a, b in pairwise(ordered)):
        return ordered
    cuts = sorted({edge for e in entries for edge in e[:2]})
    out: list[tuple[int, int, int, int, bool]] = []
    owner = None
    for start, end in pairwise(cuts):
        covering = next((e for e in entries if e[0] <= start and end <= e[1]), None)
        if covering is not None and covering is owner:
            out[-1] = (out[-1][0], end, *covering[2:])
        elif covering is not None:
            out.append((start, end, *covering[2:]))
        owner = covering
    return out


class _Pools:
    """Constants, names and variables, found by value and appended to."""

    def __init__(self, program: Program) -> None:
        self.consts = list(program.consts)
        self.names = list(program.names)
        self.varnames = list(program.varnames)
        known = set(self.varnames) | set(program.cellvars) | set(program.freevars)
        for x in program.instructions:
            if x.opname in FAST_OPS and x.argval not in known:
                known.add(x.argval)
                self.varnames.append(x.argval)
        self.slots = Slots(self.varnames, program.cellvars, program.freevars)
        self._name_at = {name: i for i, name in enumerate(self.names)}
        self._const_at: dict[Any, int] = {}
        for i, value in enumerate(self.consts):
            self._const_at.setdefault(_const_key(value), i)

    def name(self, name: str) -> int:
        """The index of a name."""
        at = self._name_at.get(name)
        if at is None:
            at = self._name_at[name] = len(self.names)
            self.names.append(name)
        return at

    def const(self, value: Any, hint: int | None) -> int:
        """The index of a constant; `hint`: where it was."""
        if hint is not None and hint < len(self.consts) and self.consts[hint] is value:
            return hint
        key = _const_key(value)
        at = self._const_at.get(key)
        if at is None:
            at = self._const_at[key] = len(self.consts)
            self.consts.append(value)
        return at

    def variable(self, x: Instruction) -> int:
        """The slot of the variable that an instruction names."""
        try:
            return self.slots.find(x.argval, x.flag, x.opname in CELL_OPS)
        except KeyError:
            raise ValueError(f"{x.opname}: {x.argval!r} is no cell or free variable") from None


def _const_key(value: Any) -> Any:
    """Equal keys: one may stand for the other. Unlike ==, it tells 1, 1.0, True and -0.0 apart."""
    kind = type(value)
    if kind in (int, str, bytes, bool, type(None), type(Ellipsis)):
        return kind, value
    if kind is float or kind is complex:
        return kind, repr(value)
    if kind is tuple:
        return kind, tuple(_const_key(v) for v in value)
    return id(value)


class _Unit:
    """An instruction as it will be encoded; `of`: those of the program that it stands for."""

    __slots__ = ("name", "arg", "where", "goal", "of", "wide")

    def __init__(self, name: str, arg: int, x: Instruction, *more: Instruction) -> None:
        self.name = name
        self.arg = arg
        self.where: Positions | None = x.where
        self.goal: int | None = None  # index of the unit that a jump goes to
        self.of = (x, *more)
        self.wide = 0  # EXTENDED_ARGs


def _lower(program: Program, pools: _Pools) -> list[_Unit]:
    """Instructions as this interpreter has them: numbers for meanings, jumps with a direction."""
    listed = program.instructions
    place = {x: i for i, x in enumerate(listed)}
    kept_apart = {x.target for x in listed if x.target is not None}
    for e in program.exceptions:
        kept_apart |= {e.start, e.target}
        after = place[e.end] + 1
        if after < len(listed):
            kept_apart.add(listed[after])
    units: list[_Unit] = []
    first: dict[Instruction, int] = {}
    jumps: list[tuple[_Unit, Instruction]] = []
    at = 0
    while at < len(listed):
        x = listed[at]
        at += 1
        first[x] = len(units)
        if x.target is not None:
            goal = place.get(x.target)
            if goal is None:
                raise ValueError(f"{x!r} jumps out of the program")
            made, jump = _jump(x, goal < at)
            if jump is not made[-1] or len(made) > 1:  # the inverted jump goes past the real one
                made[0].goal = len(units) + 2
            jumps.append((jump, x.target))
            units += made
            continue
        follower = listed[at] if at < len(listed) else None
        double = _double(x, follower, pools) if follower not in kept_apart else None
        if double is not None:
            first[listed[at]] = len(units)
            units.append(double)
            at += 1
            continue
        if x.opname == "CALL" and VERSION < (3, 12):
            units.append(_Unit("PRECALL", x.arg or 0, x))
        units.append(_Unit(_spelling(x), _argument(x, pools), x))
    for unit, target in jumps:
        unit.goal = first[target]
    return units


def _check_neighbours(listed: list[Instruction]) -> None:
    """What the interpreter assumes of the next instruction without looking (it would crash)."""
    place = {x: i for i, x in enumerate(listed)}
    for i, x in enumerate(listed):
        follower = listed[i + 1].opname if i + 1 < len(listed) else None
        if x.opname == "YIELD_VALUE" and follower != "RESUME":
            raise ValueError("YIELD_VALUE must be followed by RESUME")
        if x.target is None or VERSION < (3, 12):
            continue
        if x.opname == "FOR_ITER":
            goal = place.get(x.target, len(listed))
            found = [y.opname for y in listed[goal : goal + VERSION[1] - 11]]
            if found != ["END_FOR", "POP_TOP"][: VERSION[1] - 11]:
                raise ValueError(
                    "FOR_ITER must go to END_FOR" + (", POP_TOP" if VERSION[1] > 12 else "")
                )
        elif x.opname == "SEND" and x.target.opname != "END_SEND":
            raise ValueError("SEND must go to END_SEND")


def _spelling(x: Instruction) -> str:
    return "LOAD_FAST" if x.opname == "LOAD_CLOSURE" and VERSION >= (3, 13) else x.opname


def _jump(x: Instruction, back: bool) -> tuple[list[_Unit], _Unit]:
    """The units of a jump, and the one that goes to its target."""
    name = x.opname
    if name in ("JUMP_FORWARD", "JUMP_BACKWARD"):
        name = "JUMP_BACKWARD" if back else "JUMP_FORWARD"
    elif name == "JUMP_BACKWARD_NO_INTERRUPT":
        name = name if back else "JUMP_FORWARD"
    elif name in INVERTED:
        if _TWO_WAY:
            name = name.replace("_IF", "_BACKWARD_IF" if back else "_FORWARD_IF")
        elif back:
            jump = _Unit("JUMP_BACKWARD", 0, x)
            return [_Unit(INVERTED[name], 0, x), jump], jump
    elif name not in JUMPS:
        raise ValueError(f"{name} is no jump")
    elif back:
        raise ValueError(f"{name} cannot go backward")
    unit = _Unit(name, 0, x)
    return [unit], unit


def _double(x: Instruction, y: Instruction | None, pools: _Pools) -> _Unit | None:
    """Two loads or stores of one line as one instruction (3.13), if they are new or were one."""
    if y is None or x.offset != y.offset:
        return None
    name = _DOUBLED.get((x.opname, y.opname))
    if name is None or (x.where and x.where.line) != (y.where and y.where.line):
        return None
    a, b = pools.variable(x), pools.variable(y)
    return _Unit(name, a << 4 | b, x, y) if a < 16 and b < 16 else None


def _argument(x: Instruction, pools: _Pools) -> int:
    """The number that stands for an instruction's argument."""
    name = x.opname
    if name in FAST_OPS or name in CELL_OPS:
        return pools.variable(x)
    if name in CONST_OPS:
        return pools.const(x.argval, x.arg)
    if name in NAME_OPS:
        index = pools.name(x.argval)
        if name == "LOAD_GLOBAL" or (name == "LOAD_ATTR" and VERSION >= (3, 12)):
            return index << 1 | bool(x.flag)
        if name == "LOAD_SUPER_ATTR":
            method, two = x.flag
            return index << 2 | bool(two) << 1 | bool(method)
        return index
    if name == "COMPARE_OP":
        number = _COMPARE_AT[x.argval] << COMPARE_SHIFT
        if COMPARE_SHIFT:
            number |= COMPARE_MASKS[x.argval] | bool(x.flag) << 4
        return number
    if name == "BINARY_OP":
        return _BINARY_AT[x.argval]
    if name in ("IS_OP", "CONTAINS_OP"):
        return int(x.argval)
    if name in INTRINSICS:
        return INTRINSICS[name].index(x.argval)
    return x.arg or 0


def _place(units: list[_Unit]) -> list[int]:
    """The code unit at which each begins (and the end), with as few EXTENDED_ARGs as will do."""
    sizes = [1 + CACHES.get(u.name, 0) for u in units]
    for u in units:
        u.wide = 0 if u.goal is not None else _extensions(u.arg)
    while True:
        starts = [0]
        for u, size in zip(units, sizes, strict=True):
            starts.append(starts[-1] + size + u.wide)
        grown = False
        for i, u in enumerate(units):
            if u.goal is None:
                continue
            u.arg = abs(starts[u.goal] - starts[i + 1])
            needed = _extensions(u.arg)
            if needed > u.wide:  # never shrinks, so this ends
                u.wide = needed
                grown = True
        if not grown:
            return starts


def _extensions(arg: int) -> int:
    return 0 if arg < 1 << 8 else 1 if arg < 1 << 16 else 2 if arg < 1 << 24 else 3


def _encode(
    units: list[_Unit], starts: list[int]
) -> tuple[bytes, list[tuple[int, Positions | None]]]:
    """The bytes of the code, and how many code units come from which place."""
    out = bytearray()
    places: list[tuple[int, Positions | None]] = []
    extended = number_of("EXTENDED_ARG")
    for i, u in enumerate(units):
        for k in range(u.wide, 0, -1):
            out.append(extended)
            out.append(u.arg >> 8 * k & 255)
        out.append(number_of(u.name))
        out.append(u.arg & 255)
        out += bytes(2 * CACHES.get(u.name, 0))
        places.append((starts[i + 1] - starts[i], u.where))
    return bytes(out), places
