"""The stub of the extension names what the extension has."""

from __future__ import annotations

import ast
from pathlib import Path

import flambeau
from flambeau._src import _native

STUB = Path(flambeau.__file__).parent / "_src" / "_native.pyi"


def _names(body: list[ast.stmt]) -> set[str]:
    found: set[str] = set()
    for node in body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            found.add(node.name)
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            found.add(node.target.id)
    return {n for n in found if not n.startswith("_")}


def test_names() -> None:
    body = ast.parse(STUB.read_text(encoding="utf-8")).body
    stub = _names(body) | {"Tensor"}
    there = {n for n in vars(_native) if not n.startswith("_")}
    assert there - stub == set(), "flambeau/_src/_native.pyi lacks these"
    assert stub - there == set(), "flambeau/_src/_native.pyi has these, the extension has not"


def test_members() -> None:
    """What the stub says of a class, the class has."""
    for node in ast.parse(STUB.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            cls = getattr(_native, node.name)
            assert [n for n in _names(node.body) if not hasattr(cls, n)] == []
