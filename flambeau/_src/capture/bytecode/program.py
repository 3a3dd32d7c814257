"""The records: a program is a list of instructions that refer to each other, not to offsets."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import CodeType
from typing import Any, NamedTuple

__all__ = ["ExceptionEntry", "Instruction", "Positions", "Program"]


class Positions(NamedTuple):
    """Where an instruction comes from; None where the compiler gave no number."""

    line: int | None
    end_line: int | None = None
    col: int | None = None
    end_col: int | None = None


class Instruction:
    """One instruction, without the details of its encoding.

    Attributes:
        opname: as `dis` names it, with these differences, which make the versions alike:
            conditional jumps have no direction (3.11: `POP_JUMP_IF_TRUE`, ...), `PRECALL` (3.11)
            is part of `CALL`, the double loads and stores of 3.13 are two instructions, and what
            loads a cell itself is `LOAD_CLOSURE` (3.13: a `LOAD_FAST`).
        arg: the plain number of instructions that have one (`BUILD_TUPLE`, `CALL`, ...).
        argval: what the argument means: a name, a constant, an operator's text (`"<"`, `"+="`),
            a bool (`IS_OP` and `CONTAINS_OP`: whether it is the negated form), the name of an
            intrinsic; otherwise `arg`. `LOAD_CONST` and its like take the constant from here.
        target: where a jump goes.
        flag: the rest of an argument that carries two facts: `LOAD_GLOBAL`: a NULL is pushed for a
            call; `LOAD_ATTR`: it loads a method and its self (3.12: what was `LOAD_METHOD`);
            `LOAD_SUPER_ATTR`: (method, not the argument-free super()); `COMPARE_OP`: the result is
            made a bool (3.13); variables: "local", "cell" or "free" where the name alone would mean
            another one.
        where: the place in the user's source.
        offset: the byte offset that it was decoded from; None for those made here.
    """

    __slots__ = ("opname", "arg", "argval", "target", "flag", "where", "offset")

    def __init__(
        self,
        opname: str,
        arg: int | None = None,
        argval: Any = None,
        where: Positions | None = None,
        target: Instruction | None = None,
        flag: Any = None,
        offset: int | None = None,
    ) -> None:
        self.opname = opname
        self.arg = arg
        self.argval = argval
        self.where = where
        self.target = target
        self.flag = flag
        self.offset = offset

    def copy(self) -> Instruction:
        """An equal instruction (with the same target)."""
        return Instruction(
            self.opname, self.arg, self.argval, self.where, self.target, self.flag, self.offset
        )

    def __repr__(self) -> str:
        text = self.opname
        if self.target is not None:
            text += f" -> {self.target.opname}"
            if self.target.offset is not None:
                text += f"@{self.target.offset}"
        elif self.arg is not None or self.argval is not None:
            text += f" {self.argval if self.argval is not None else self.arg!r}"
        if self.flag:
            text += f" ({self.flag})"
        return text


@dataclass(slots=True)
class ExceptionEntry:
    """Exceptions raised from `start` to `end` (inclusive) go to `target`.

    The stack is cut to `depth`; with `lasti` the offset of the raising instruction is pushed
    before the exception. Where entries overlap, the first in the program's list (the innermost)
    holds.
    """

    start: Instruction
    end: Instruction
    target: Instruction
    depth: int
    lasti: bool = False


@dataclass(slots=True)
class Program:
    """A code object taken apart. `consts` and `names` are pools: `assemble` appends to copies.

    Local variables that instructions name and `varnames` lacks are appended; cells must be listed.
    """

    instructions: list[Instruction]
    exceptions: list[ExceptionEntry] = field(default_factory=list)
    varnames: list[str] = field(default_factory=list)
    cellvars: list[str] = field(default_factory=list)
    freevars: list[str] = field(default_factory=list)
    argcount: int = 0
    posonlyargcount: int = 0
    kwonlyargcount: int = 0
    flags: int = 0
    name: str = "<made>"
    qualname: str = "<made>"
    filename: str = "<made>"
    firstlineno: int = 1
    consts: list[Any] = field(default_factory=lambda: [None])
    names: list[str] = field(default_factory=list)

    @classmethod
    def like(cls, code: CodeType) -> Program:
        """An empty program with the signature, variables, names and place of `code`."""
        return cls(
            [],
            [],
            list(code.co_varnames),
            list(code.co_cellvars),
            list(code.co_freevars),
            code.co_argcount,
            code.co_posonlyargcount,
            code.co_kwonlyargcount,
            code.co_flags,
            code.co_name,
            code.co_qualname,
            code.co_filename,
            code.co_firstlineno,
            list(code.co_consts),
            list(code.co_names),
        )

    def __str__(self) -> str:
        place = {id(x): i for i, x in enumerate(self.instructions)}
        lines = []
        line = None
        for i, x in enumerate(self.instructions):
            now = x.where.line if x.where is not None else None
            shown = str(now) if now != line and now is not None else ""
            line = now
            text = repr(x)
            if x.target is not None:
                text = f"{x.opname} -> {place.get(id(x.target), '?')}"
            lines.append(f"{shown:>6} {i:>5} {text}")
        for e in self.exceptions:
            lasti = ", lasti" if e.lasti else ""
            lines.append(
                f"{place.get(id(e.start), '?')}..{place.get(id(e.end), '?')} -> "
                f"{place.get(id(e.target), '?')} at depth {e.depth}{lasti}"
            )
        return "\n".join(lines)
