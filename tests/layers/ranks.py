"""The one table of ranks, and the listed exceptions, each with its reason.

A module of rank r imports ranks below r and its own folder; folders of equal rank do not import
each other. The public libraries (rank 10) import the public API, that is each other and the root,
as long as no cycle comes of it, and the engine's ranks up to `ENGINE_CEILING`.
"""

ENGINE: dict[str, int] = {
    "flambeau._src._native": 0,  # the C part: mechanism only, below everything
    "flambeau._src.util": 0,
    "flambeau._src.core": 1,
    "flambeau._src.ir": 2,
    "flambeau._src.runtime": 2,
    "flambeau._src.ops": 3,
    "flambeau._src.codegen": 3,
    "flambeau._src.interp": 4,
    "flambeau._src.loops": 5,
    "flambeau._src.kernels": 6,
    "flambeau._src.autograd": 6,
    "flambeau._src.dist": 7,
    "flambeau._src.capture": 7,
    "flambeau._src.compiler": 8,
    "flambeau._src.export": 9,
}

PUBLIC = 10
FACADE = 11
ROOT = 12

#: Public names that only forward to the engine: at most `FACADE_LINES` lines a file.
FACADES: frozenset[str] = frozenset(
    {
        "flambeau._C",
        "flambeau._decomp",
        "flambeau._dynamo",
        "flambeau._inductor",
        "flambeau._logging",
        "flambeau.compiler",
        "flambeau.export",
        "flambeau.jit",
        "flambeau.onnx",
        "flambeau.ops",
    }
)

#: The highest engine rank that a public library may import (default `PUBLIC_CEILING`).
PUBLIC_CEILING = 6
ENGINE_CEILING: dict[str, int] = {
    "flambeau.distributed": 7,
    "flambeau._higher_order_ops": 7,  # cond: its rules stand with capture
    "flambeau._functorch": 8,  # aot_function for users' back ends
}

#: The composition root, in its parts, and the command line: they may import everything.
ROOTS: frozenset[str] = frozenset(
    {"flambeau", "flambeau.__main__", "flambeau._src.public", "flambeau._src.toplevel"}
)

FILE_LINES = 1000
FUNCTION_LINES = 100
FACADE_LINES = 60
README_LINES = 60

#: Files over `FILE_LINES`, as path from the project's root, with the reason.
LONG_FILES: dict[str, str] = {}

#: Functions over `FUNCTION_LINES`, as "path::qualified.name", with the reason.
LONG_FUNCTIONS: dict[str, str] = {}

#: Files whose business is a name that is refused elsewhere, with the reason.
MAY_IMPORT_TORCH: dict[str, str] = {
    "flambeau/_alias/site/functorch/__init__.py": "stands beside the alias, whose `torch` it means",
}
MAY_NAME_PATHS: dict[str, str] = {}

#: Module names that say nothing of what a file is about.
EMPTY_NAMES: frozenset[str] = frozenset({"common", "helper", "helpers", "misc", "util", "utils"})
