"""The rules of the tree, checked by AST. Each function returns complaints, one line each."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.layers import ranks

SKIPPED = frozenset(
    ".git .venv __pycache__ build dist .hypothesis .mypy_cache .pytest_cache .ruff_cache".split()
)
TEXT_SUFFIXES = frozenset(
    {".py", ".pyi", ".c", ".h", ".md", ".toml", ".cfg", ".in", ".txt", ".yml", ".yaml", ".sh", ""}
)
# Spelled in pieces, so that this file does not name what it forbids.
MACHINE_PATH = re.compile(
    r"(?<![\w.$~}])/(?:"
    + "|".join(("wo" + "rk", "tm" + "p", "ro" + "ot", "ho" + "me"))
    + r")(?=/|\b)"
    r"|/opt/" + "whe" + "els"
)
NOT_A_REASON = re.compile(r"#\s*(noqa|type:|pragma|pyright|mypy|ruff)[^#]*")


@dataclass(frozen=True)
class Import:
    """One imported name: ``module`` as written, ``name`` for ``from module import name``."""

    module: str
    name: str | None
    line: int
    local: bool  # inside a function
    typing_only: bool  # under `if TYPE_CHECKING`
    dynamic: bool = False


@dataclass
class Source:
    """One parsed Python file."""

    path: Path
    module: str
    is_package: bool
    text: str
    tree: ast.Module
    imports: list[Import] = field(default_factory=list)


# ---- reading -------------------------------------------------------------------------------------


def read_tree(root: Path, package: str = "flambeau") -> dict[str, Source]:
    """All modules below ``root/package`` by dotted name."""
    found: dict[str, Source] = {}
    for path in sorted((root / package).rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        if SKIPPED.intersection(parts):
            continue
        is_package = parts[-1] == "__init__"
        module = ".".join(parts[:-1] if is_package else parts)
        text = path.read_text(encoding="utf-8")
        source = Source(path, module, is_package, text, ast.parse(text, str(path)))
        source.imports = list(_imports(source))
        found[module] = source
    return found


def _imports(source: Source) -> Iterator[Import]:
    def visit(node: ast.AST, local: bool, typing_only: bool) -> Iterator[Import]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.Import):
                for alias in child.names:
                    yield Import(alias.name, None, child.lineno, local, typing_only)
            elif isinstance(child, ast.ImportFrom):
                base = _absolute(source, child)
                for alias in child.names:
                    yield Import(base, alias.name, child.lineno, local, typing_only)
            elif isinstance(child, ast.Call) and (name := _dynamic_import(child)):
                yield Import(name, None, child.lineno, local, typing_only, dynamic=True)
                yield from visit(child, local, typing_only)
            elif isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
                yield from visit(child, True, typing_only)
            elif isinstance(child, ast.If) and _is_type_checking(child.test):
                for statement in child.body:
                    yield from visit(ast.Module([statement], []), local, True)
                for statement in child.orelse:
                    yield from visit(ast.Module([statement], []), local, typing_only)
            else:
                yield from visit(child, local, typing_only)

    yield from visit(source.tree, False, False)


def _absolute(source: Source, node: ast.ImportFrom) -> str:
    if not node.level:
        return node.module or ""
    parts = source.module.split(".")
    keep = len(parts) - node.level + (1 if source.is_package else 0)
    return ".".join([*parts[:keep], *([node.module] if node.module else [])])


def _dynamic_import(call: ast.Call) -> str | None:
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    if name in ("import_module", "__import__") and call.args:
        first = call.args[0]
        if isinstance(first, ast.Constant) and isinstance(first.value, str):
            return first.value
    return None


def _is_type_checking(test: ast.expr) -> bool:
    return (isinstance(test, ast.Name) and test.id == "TYPE_CHECKING") or (
        isinstance(test, ast.Attribute) and test.attr == "TYPE_CHECKING"
    )


def target_of(item: Import, modules: dict[str, Source]) -> str:
    """The module that an import loads: ``from a import b`` is ``a.b`` where that is a module."""
    if item.name is not None:
        longer = f"{item.module}.{item.name}"
        if longer in modules or longer in ranks.ENGINE:
            return longer
    return item.module


# ---- ranks ---------------------------------------------------------------------------------------


def folder_of(module: str) -> str:
    """The unit of the rank table that `module` belongs to: an engine folder or a public name."""
    parts = module.split(".")
    if module in ranks.ROOTS:
        return module
    if parts[:2] == ["flambeau", "_src"]:
        return ".".join(parts[:3])
    return ".".join(parts[:2])


def rank_of(module: str) -> int | None:
    """The rank of `module`; None for an engine folder that the table does not know."""
    folder = folder_of(module)
    if folder in ranks.ROOTS:
        return ranks.ROOT
    if folder == "flambeau._src":
        return 0
    if folder.startswith("flambeau._src."):
        return ranks.ENGINE.get(folder)
    return ranks.FACADE if folder in ranks.FACADES else ranks.PUBLIC


def check_ranks(modules: dict[str, Source]) -> list[str]:
    """Upward and sideways imports."""
    complaints = []
    for source in modules.values():
        rank = rank_of(source.module)
        if rank is None:
            complaints.append(f"{source.module}: its folder has no rank in tests/layers/ranks.py")
            continue
        for item in source.imports:
            target = target_of(item, modules)
            if target.split(".")[0] != "flambeau":
                continue
            why = _refused(source.module, rank, target)
            if why:
                complaints.append(f"{source.module}:{item.line}: imports {target}: {why}")
    return complaints


def _refused(module: str, rank: int, target: str) -> str | None:
    if folder_of(module) == folder_of(target) or rank == ranks.ROOT:
        return None
    target_rank = rank_of(target)
    if target_rank is None:
        return "a folder without a rank"
    if target_rank == ranks.ROOT:
        # The root stands for "the public API" to the public libraries.
        if rank < ranks.PUBLIC:
            return "the engine may not use the public API"
        return None if target == "flambeau" else "a part of the composition root"
    if rank == ranks.PUBLIC:
        if target_rank == ranks.PUBLIC:
            return None  # the public API; cycles are looked for apart
        ceiling = ranks.ENGINE_CEILING.get(folder_of(module), ranks.PUBLIC_CEILING)
        if target_rank > ceiling:
            return f"rank {target_rank} is above {ceiling}, the ceiling of this library"
        return None
    if target_rank > rank:
        return f"upward, from rank {rank} to {target_rank}"
    if target_rank == rank and rank != ranks.FACADE:
        return f"sideways, both of rank {rank}"
    return None


def check_cycles(modules: dict[str, Source]) -> list[str]:
    """Circles of imports between modules (those under TYPE_CHECKING are never run)."""
    edges: dict[str, list[str]] = {}
    for source in modules.values():
        targets = {target_of(i, modules) for i in source.imports if not i.typing_only}
        # A package's __init__ may import its own parts, and they the package's name: Python runs
        # the package first. The root is everybody's package.
        edges[source.module] = sorted(
            t
            for t in targets
            if t in modules and t != source.module and not source.module.startswith(t + ".")
        )
    return [" -> ".join([*circle, circle[0]]) for circle in _circles(edges)]


def _circles(edges: dict[str, list[str]]) -> list[list[str]]:
    """One circle for every strongly connected component (Tarjan, without recursion)."""
    order: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []
    for start in edges:
        if start in order:
            continue
        work = [(start, iter(edges[start]))]
        order[start] = low[start] = len(order)
        stack.append(start)
        while work:
            node, following = work[-1]
            for target in following:
                if target not in order:
                    order[target] = low[target] = len(order)
                    stack.append(target)
                    work.append((target, iter(edges[target])))
                    break
                if target in stack:
                    low[node] = min(low[node], order[target])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == order[node]:
                    component = stack[stack.index(node) :]
                    del stack[stack.index(node) :]
                    if len(component) > 1:
                        found.append(sorted(component))
    return found


# ---- rules for one file --------------------------------------------------------------------------


def check_local_imports(modules: dict[str, Source]) -> list[str]:
    """Imports inside functions without a comment that says why (one comment serves a block)."""
    complaints = []
    for source in modules.values():
        local = {i.line for i in source.imports if i.local and not i.dynamic}
        if not local:
            continue
        comments = _comments(source.text)
        for block in _import_blocks(source.tree):
            last = block[-1].end_lineno or block[-1].lineno
            own = [comments.get(row, "") for row in range(block[0].lineno, last + 1)]
            reason = NOT_A_REASON.sub("", " ".join(own)).strip("# ")
            if block[0].lineno in local and len(reason) < 4:
                complaints.append(
                    f"{source.module}:{block[0].lineno}: local import without a reason comment"
                )
    return complaints


def _import_blocks(tree: ast.AST) -> Iterator[list[ast.stmt]]:
    """Runs of import statements that follow each other directly."""
    for node in ast.walk(tree):
        for name in ("body", "orelse", "finalbody"):
            block: list[ast.stmt] = []
            statements = getattr(node, name, None)
            for statement in statements if isinstance(statements, list) else []:
                if isinstance(statement, (ast.Import, ast.ImportFrom)):
                    block.append(statement)
                elif block:
                    yield block
                    block = []
            if block:
                yield block


def _comments(text: str) -> dict[int, str]:
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    return {t.start[0]: t.string for t in tokens if t.type == tokenize.COMMENT}


def check_globals(modules: dict[str, Source]) -> list[str]:
    """``global`` statements."""
    return [
        f"{source.module}:{node.lineno}: global {', '.join(node.names)}"
        for source in modules.values()
        for node in ast.walk(source.tree)
        if isinstance(node, ast.Global)
    ]


def check_environment(modules: dict[str, Source]) -> list[str]:
    """Uses of the environment outside the configuration."""
    complaints = []
    names = {"environ", "environb", "getenv", "getenvb", "putenv", "unsetenv"}
    for source in modules.values():
        if source.module == "flambeau._src.util.config":
            continue
        for node in ast.walk(source.tree):
            used = None
            if isinstance(node, ast.Attribute) and node.attr in names:
                used = (
                    node.attr if getattr(node.value, "id", "") in ("os", "_os", "posix") else None
                )
            elif isinstance(node, ast.ImportFrom) and node.module == "os":
                used = next((a.name for a in node.names if a.name in names), None)
            if used:
                complaints.append(
                    f"{source.module}:{node.lineno}: os.{used} outside _src/util/config.py"
                )
    return complaints


def check_torch(modules: dict[str, Source], root: Path) -> list[str]:
    """Imports of PyTorch itself."""
    return [
        f"{source.module}:{item.line}: imports {item.module}"
        for source in modules.values()
        for item in source.imports
        if item.module.split(".")[0] in ("torch", "torchvision", "functorch", "torchgen")
        and _relative(source.path, root) not in ranks.MAY_IMPORT_TORCH
    ]


def check_names(modules: dict[str, Source]) -> list[str]:
    """Engine files whose name says nothing."""
    return [
        f"{source.module}: name the file for what it holds"
        for source in modules.values()
        if source.module.startswith("flambeau._src.")
        and source.module.rsplit(".", 1)[-1] in ranks.EMPTY_NAMES
        and source.module != "flambeau._src.util"
    ]


def check_lengths(modules: dict[str, Source], root: Path) -> list[str]:
    """Files, façades and functions that are too long, and exceptions no longer needed."""
    complaints = []
    long_files, long_functions = set(), set()
    c_files = [p for s in ("*.c", "*.h") for p in sorted((root / "flambeau" / "csrc").glob(s))]
    for path in [*(source.path for source in modules.values()), *c_files]:
        name = _relative(path, root)
        lines = path.read_text(encoding="utf-8").count("\n")
        if lines > ranks.FILE_LINES:
            long_files.add(name)
            if name not in ranks.LONG_FILES:
                complaints.append(f"{name}: {lines} lines, over {ranks.FILE_LINES}")
    for source in modules.values():
        name = _relative(source.path, root)
        lines = source.text.count("\n")
        if rank_of(source.module) == ranks.FACADE and lines > ranks.FACADE_LINES:
            complaints.append(f"{name}: a façade of {lines} lines, over {ranks.FACADE_LINES}")
        for qualname, length in _functions(source.tree):
            if length > ranks.FUNCTION_LINES:
                key = f"{name}::{qualname}"
                long_functions.add(key)
                if key not in ranks.LONG_FUNCTIONS:
                    complaints.append(f"{key}: {length} lines, over {ranks.FUNCTION_LINES}")
    stale = (set(ranks.LONG_FILES) - long_files) | (set(ranks.LONG_FUNCTIONS) - long_functions)
    complaints += [f"{key}: listed as too long, but is not" for key in sorted(stale)]
    return complaints


def _functions(tree: ast.AST, prefix: str = "") -> Iterator[tuple[str, int]]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield prefix + node.name, (node.end_lineno or node.lineno) - node.lineno + 1
            yield from _functions(node, f"{prefix}{node.name}.")
        elif isinstance(node, ast.ClassDef):
            yield from _functions(node, f"{prefix}{node.name}.")
        else:
            yield from _functions(node, prefix)


def check_readmes(root: Path) -> list[str]:
    """Engine folders without a README, or with one that is too long."""
    complaints = []
    for folder in sorted(p for p in (root / "flambeau" / "_src").iterdir() if p.is_dir()):
        if folder.name in SKIPPED or not any(folder.rglob("*.py")):
            continue
        readme = folder / "README.md"
        if not readme.exists():
            complaints.append(f"{_relative(folder, root)}: no README.md")
        elif (lines := readme.read_text(encoding="utf-8").count("\n")) > ranks.README_LINES:
            complaints.append(
                f"{_relative(readme, root)}: {lines} lines, over {ranks.README_LINES}"
            )
    return complaints


def check_machine_paths(root: Path) -> list[str]:
    """Paths of the machine that something was written on."""
    complaints = []
    for path in _project_files(root):
        name = _relative(path, root)
        if name in ranks.MAY_NAME_PATHS:
            continue
        for number, line in enumerate(path.read_text(encoding="utf-8").split("\n"), 1):
            match = MACHINE_PATH.search(line)
            if match:
                complaints.append(f"{name}:{number}: names {match.group()}")
    return complaints


def _project_files(root: Path) -> Iterator[Path]:
    for path in sorted(root.iterdir()):
        if path.name in SKIPPED or path.name.endswith(".egg-info") or path.is_symlink():
            continue
        if path.is_dir():
            yield from _project_files(path)
        elif path.suffix in TEXT_SUFFIXES and _is_text(path):
            yield path


def _is_text(path: Path) -> bool:
    with path.open("rb") as file:
        return b"\0" not in file.read(4096)


def _relative(path: Path, root: Path) -> str:
    return path.relative_to(root).as_posix()
