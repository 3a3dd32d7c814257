"""Slots of a frame: local variables, then cells that are no arguments, then free variables.

A name may mean two slots: from 3.12 a comprehension is part of its function, and its variable may
be a local or a cell where the function's variable of that name is free.
"""

from __future__ import annotations

__all__ = ["Slots"]


class Slots:
    """Slot numbers by name, and back."""

    def __init__(self, varnames: list[str], cellvars: list[str], freevars: list[str]) -> None:
        self.locals = {name: i for i, name in enumerate(varnames)}
        self.names = list(varnames)
        self.cells: dict[str, int] = {}
        for name in cellvars:
            if name in self.locals:  # an argument (or a comprehension's variable) that is a cell
                self.cells[name] = self.locals[name]
            else:
                self.cells[name] = len(self.names)
                self.names.append(name)
        self.free = {name: len(self.names) + i for i, name in enumerate(freevars)}
        self.names += freevars

    def name_of(self, slot: int, of_cell: bool) -> tuple[str, str | None]:
        """The variable's name, and its kind where the name alone would find another slot."""
        name = self.names[slot]
        if self.find(name, None, of_cell) == slot:
            return name, None
        for kind, table in (("local", self.locals), ("cell", self.cells), ("free", self.free)):
            if table.get(name) == slot:
                return name, kind
        raise ValueError(f"no variable has slot {slot}")

    def find(self, name: str, kind: str | None, of_cell: bool) -> int:
        """The slot of a variable. Raises KeyError if there is none."""
        if kind is not None:
            return {"local": self.locals, "cell": self.cells, "free": self.free}[kind][name]
        order = (
            (self.cells, self.free, self.locals)
            if of_cell
            else (self.locals, self.cells, self.free)
        )
        for table in order:
            if name in table:
                return table[name]
        raise KeyError(name)
