"""Builds the C extension `flambeau._src._native` and, with it, the pack of generated kernels.

Everything that is not code stands in pyproject.toml.
"""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

HERE = Path(__file__).resolve().parent
SOURCES = sorted(path.relative_to(HERE).as_posix() for path in HERE.glob("flambeau/csrc/*.c"))
HEADERS = sorted(path.relative_to(HERE).as_posix() for path in HERE.glob("flambeau/csrc/*.h"))

NATIVE = Extension(
    "flambeau._src._native",
    SOURCES,
    depends=HEADERS,
    include_dirs=["flambeau/csrc"],
    extra_compile_args=[
        "-O2",
        "-std=gnu11",
        "-fno-strict-aliasing",
        "-fvisibility=hidden",
        "-pthread",
    ],
    extra_link_args=["-pthread"],
    libraries=["m"],
)


class BuildNative(build_ext):
    """Compiles what changed, several files at a time, and then the kernel pack."""

    def build_extensions(self) -> None:
        header = Path(sysconfig.get_path("include"), "Python.h")
        if not header.exists():
            sys.exit(
                f"flambeau: {header} is missing. Install the C headers of this Python "
                "(Debian and Ubuntu: apt install python3-dev)."
            )
        self.compiler.compile = only_stale(self.compiler, self.compiler.compile)
        super().build_extensions()

    def run(self) -> None:
        super().run()
        root = HERE if self.inplace else Path(self.build_lib).resolve()
        failure = build_pack(root)
        if not failure:
            return
        if self.inplace:
            sys.exit(f"flambeau: the extension is built, its kernel pack is not:\n{failure}")
        print(
            f"{failure}\nflambeau: the kernel pack could not be built (above). The package works "
            "without it: kernels are then compiled on first use.",
            file=sys.stderr,
        )


def only_stale(compiler: Any, compile_all: Callable[..., list[str]]) -> Callable[..., list[str]]:
    """`compile_all` for the sources whose object file is older than they or a header are."""

    def compile_stale(sources: list[str], output_dir: str, **rest: Any) -> list[str]:
        objects: list[str] = compiler.object_filenames(sources, output_dir=output_dir)
        newest_header = max((Path(header).stat().st_mtime for header in HEADERS), default=0.0)

        def fresh(source: str, target: str) -> bool:
            needed = max(newest_header, Path(source).stat().st_mtime)
            return Path(target).exists() and Path(target).stat().st_mtime > needed

        stale = [
            source
            for source, target in zip(sources, objects, strict=True)
            if not fresh(source, target)
        ]
        with ThreadPoolExecutor() as pool:
            list(pool.map(lambda one: compile_all([one], output_dir=output_dir, **rest), stale))
        return objects

    return compile_stale


def build_pack(root: Path) -> str:
    """Build the pack of the package below `root`, in its place; returns what went wrong, or ''.

    A process of its own runs the package that was just built, so that nothing of it is loaded here.
    """
    done = subprocess.run(
        [sys.executable, "-m", "flambeau._src.loops.pack"],
        cwd=root,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    return "" if done.returncode == 0 else done.stdout.strip()


setup(ext_modules=[NATIVE], cmdclass={"build_ext": BuildNative})
