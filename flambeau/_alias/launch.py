"""Start a Python program whose ``import torch`` finds flambeau."""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
from typing import Any, NoReturn

from flambeau._src.util.config import child_environment, live

from .finder import ROOT, SITE, activate


def search_path(inherited: str | None) -> str:
    """The PYTHONPATH of a process in which ``torch`` is flambeau.

    The alias comes first, before a PyTorch that may be installed. Where flambeau itself is not
    installed (a checkout), its directory is added at the end.
    """
    parts = [part for part in (inherited or "").split(os.pathsep) if part and part != str(SITE)]
    home = str(ROOT.parent)
    if os.path.basename(home) not in ("site-packages", "dist-packages") and home not in parts:
        parts.append(home)
    return os.pathsep.join([str(SITE), *parts])


def run(arguments: list[str]) -> NoReturn:
    """Become ``python *arguments`` with the alias in force, for it and for its children.

    The process is replaced, not copied: process id, files, signals and exit status are those of
    the program. Where the environment is ignored (``python -I``, ``-E``) the program runs inside
    this process, and then a child is under the alias only if this process's path reaches it.
    """
    if sys.flags.ignore_environment or not sys.executable:
        _run_here(arguments)
    flags: list[str] = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
    environment = child_environment(PYTHONPATH=search_path(live("PYTHONPATH")))
    sys.stdout.flush()
    sys.stderr.flush()
    os.execve(sys.executable, [sys.executable, *flags, *arguments], environment)


def _run_here(arguments: list[str]) -> NoReturn:
    activate()
    if str(SITE) not in sys.path:
        # Spawned children get this path.
        sys.path.insert(1, str(SITE))
    if not arguments:
        sys.exit("flambeau: an interactive session needs an interpreter that reads PYTHONPATH")
    first, *rest = arguments
    if first == "-c":
        sys.argv = ["-c", *rest[1:]]
        namespace: dict[str, Any] = {"__name__": "__main__"}
        exec(compile(rest[0], "<string>", "exec"), namespace)
    elif first == "-m":
        sys.argv = rest
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    else:
        sys.argv = arguments
        sys.path[0] = os.path.dirname(os.path.abspath(first))
        runpy.run_path(first, run_name="__main__")
    sys.exit(0)
