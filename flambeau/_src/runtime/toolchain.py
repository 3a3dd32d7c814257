"""The C compiler: text in, address of a loaded function out, with a cache on disk.

The cache key is the text, the flags, the compiler's identity and the processor's features, so a
cache folder may be shared by machines and survives upgrades. Entries are written to a temporary
name and renamed: concurrent processes at worst compile the same text twice.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from flambeau._src.util.config import config

__all__ = [
    "CompileError",
    "Library",
    "Settings",
    "Toolchain",
    "ToolchainMissing",
    "cpu_features",
    "host_isa",
]

# Contraction is off so that a kernel gives the same bits alone and fused; the rest only says that
# nobody reads errno or the exception flags and that integers wrap.
FLAGS: tuple[str, ...] = (
    "-std=gnu11", "-O2", "-fPIC", "-w", "-ffp-contract=off", "-fno-math-errno",
    "-fno-trapping-math", "-fwrapv", "-fno-strict-aliasing", "-fno-asynchronous-unwind-tables",
    "-fno-stack-protector",
)  # fmt: skip
# The text is vectors already: looking for more costs time and gains nothing where every primitive
# is one instruction.
_X86_FLAGS = ("-fno-tree-loop-vectorize", "-fno-tree-slp-vectorize")
# Measured on row kernels: a tenth of GCC's time goes into these, and the code is as fast without.
# Start files and libc are in the process already, which spares the linker half of its work.
_GCC_FLAGS = (
    "-fno-thread-jumps", "-fno-tree-vrp", "-fno-ipa-cp", "-fno-ipa-sra", "-fno-ipa-icf",
    "-fno-code-hoisting", "-nostdlib",
)  # fmt: skip
# What somebody waits for: an eighth less again, with kernels as fast. Measured one by one: without
# gcse (constants are read anew in each turn) erf takes a fifth more, with -O1 softmax a tenth.
_GCC_NOW = (
    "-fno-tree-pre", "-fno-tree-pta", "-fno-tree-dominator-opts", "-fno-tree-tail-merge",
    "-fno-tree-loop-distribute-patterns", "-fno-tree-switch-conversion", "-fno-split-paths",
    "-fno-split-loops", "-fno-crossjumping", "-fno-reorder-blocks-and-partition", "-fno-ree",
    "-fno-optimize-strlen", "-fno-hoist-adjacent-loads", "-fno-optimize-sibling-calls",
    "-fno-isolate-erroneous-paths-dereference", "-fno-devirtualize", "-fno-indirect-inlining",
    "-fno-partial-inlining", "-fno-ipa-modref", "-fno-ipa-pure-const",
)  # fmt: skip
_X86 = platform.machine().lower() in ("x86_64", "amd64")
if _X86:
    FLAGS += _X86_FLAGS


class ToolchainMissing(RuntimeError):
    """There is no C compiler."""


class CompileError(RuntimeError):
    """The compiler refused the text: a defect of the code generator."""


@dataclass(frozen=True, slots=True)
class Settings:
    """``command``: the compiler's command line, () to look for cc, gcc, clang on PATH; ``flags``:
    added to ours; ``cache_dir``: the root of caches; ``cache``: whether it outlives the process.
    """

    command: tuple[str, ...] = config.cc
    flags: tuple[str, ...] = config.cflags
    cache_dir: str = config.cache_dir
    cache: bool = config.cache


def _on_path(name: str) -> str | None:
    """Where the command is (`shutil.which` without an import that compiling would wait for)."""
    folders = [""] if os.path.dirname(name) else os.get_exec_path()
    places = (os.path.join(folder, name) for folder in folders)
    return next((p for p in places if os.path.isfile(p) and os.access(p, os.X_OK)), None)


def cpu_features() -> frozenset[str]:
    """The features of the first processor as the kernel names them; empty where not known."""
    try:
        with open("/proc/cpuinfo", "rb") as f:
            head = f.read(8192).decode("ascii", "replace")
    except OSError:
        return frozenset()
    for line in head.splitlines():
        if line.startswith(("flags", "Features")):
            return frozenset(line.split(":", 1)[1].split())
    return frozenset()


def host_isa(features: frozenset[str]) -> str:
    """The widest vector instruction set that ``features`` allow: see ``codegen/target.py``."""
    if {"avx512f", "avx512bw", "avx512dq", "avx512vl"} <= features:
        return "avx512"
    return "avx2" if {"avx2", "fma", "f16c"} <= features else "generic"


@dataclass(slots=True)
class Library:
    """A loaded shared library; ``address`` looks a symbol up."""

    path: str
    handle: ctypes.CDLL

    def address(self, symbol: str) -> int:
        """The address of ``symbol``; raises AttributeError when it is not there."""
        return ctypes.cast(getattr(self.handle, symbol), ctypes.c_void_p).value or 0


@dataclass(slots=True)
class Toolchain:
    """One compiler and one cache folder."""

    settings: Settings = Settings()
    _compiler: str | None = None
    _identity: str | None = None
    _scratch: Any = None  # a TemporaryDirectory
    _loaded: dict[str, Library] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def compiler(self) -> str:
        """The compiler's path.

        Raises:
            ToolchainMissing: none was found; the message says what to do.
        """
        if self._compiler is None:
            names = self.settings.command[:1] or ("cc", "gcc", "clang")
            found = next((p for p in map(_on_path, names) if p), None)
            if found is None:
                raise ToolchainMissing(
                    f"no C compiler: looked for {', '.join(names)} on PATH. Install gcc or clang"
                    " (Debian and Ubuntu: apt install gcc), or set FLAMBEAU_CC to one."
                )
            self._compiler = found
        return self._compiler

    def available(self) -> bool:
        """Whether there is a compiler."""
        try:
            self.compiler()
        except ToolchainMissing:
            return False
        return True

    def identity(self) -> str:
        """What the cache key says of the compiler and the processor, without running either."""
        if self._identity is None:
            real = os.path.realpath(self.compiler())
            stat = os.stat(real)
            features = " ".join(sorted(cpu_features()))
            flags = (*FLAGS, *self._gcc(), *self.settings.command[1:], *self.settings.flags)
            compiler = (real, str(stat.st_size), str(stat.st_mtime_ns))
            self._identity = " ".join((*compiler, platform.machine(), *flags, features))
        return self._identity

    def cache_dir(self) -> Path:
        """The folder of compiled kernels, made when missing."""
        if not self.settings.cache:
            if self._scratch is None:
                import tempfile  # lazy: only without a cache, and to compile

                self._scratch = tempfile.TemporaryDirectory(prefix="flambeau-")
            return Path(self._scratch.name)
        path = Path(self.settings.cache_dir) / "kernels"
        path.mkdir(parents=True, exist_ok=True)
        return path

    def build(self, text: str, flags: Sequence[str] = (), libs: Sequence[str] = ("-lm",)) -> Path:
        """The shared library of ``text``: from the cache, else compiled into it."""
        key = hashlib.sha256(
            "\0".join((text, *flags, "|", *libs, self.identity())).encode()
        ).hexdigest()[:32]
        path = self.cache_dir() / f"{key}.so"
        if not path.exists():
            self.compile(text, path, flags, libs)
        return path

    def compile(
        self, text: str, path: Path, flags: Sequence[str] = (), libs: Sequence[str] = ("-lm",)
    ) -> None:
        """Compiles ``text`` to ``path``, which appears complete or not at all.

        Raises:
            CompileError: with the compiler's message; the text is left in the cache folder.
        """
        import subprocess  # lazy: compiling is rare

        own_name = f"{path.stem}.{os.getpid()}.{threading.get_ident()}.tmp"
        temporary = str(path.with_name(own_name))
        command = [*self._command(flags, True), "-shared", "-x", "c", "-", "-o", temporary, *libs]
        try:
            done = subprocess.run(command, input=text.encode(), capture_output=True)
            self._check(done.returncode, done.stderr, command, text, path)
            os.chmod(temporary, 0o755)
            os.replace(temporary, path)
        finally:
            if os.path.exists(temporary):
                os.unlink(temporary)

    def compile_parts(
        self, texts: Sequence[str], path: Path, flags: Sequence[str] = (), jobs: int = 1
    ) -> None:
        """Compiles several translation units, ``jobs`` at a time, into one library at ``path``."""
        import shutil  # lazy: only to build a pack
        import subprocess  # lazy: as above
        import tempfile  # lazy: as above
        from concurrent.futures import ThreadPoolExecutor  # lazy: as above

        with tempfile.TemporaryDirectory(prefix="flambeau-") as folder:
            objects = [os.path.join(folder, f"{i}.o") for i in range(len(texts))]

            def compile_one(i: int) -> None:
                command = [*self._command(flags), "-c", "-x", "c", "-", "-o", objects[i]]
                done = subprocess.run(command, input=texts[i].encode(), capture_output=True)
                self._check(done.returncode, done.stderr, command, texts[i], path)

            with ThreadPoolExecutor(jobs) as pool:
                list(pool.map(compile_one, range(len(texts))))
            library = os.path.join(folder, "all.so")
            command = [*self._command(flags), "-shared", "-s", *objects, "-o", library, "-lm"]
            done = subprocess.run(command, capture_output=True)
            self._check(done.returncode, done.stderr, command, "", path)
            beside = path.with_name(f"{path.name}.{os.getpid()}.tmp")
            shutil.copyfile(library, beside)
            os.chmod(beside, 0o755)
            os.replace(beside, path)

    def _command(self, flags: Sequence[str], now: bool = False) -> list[str]:
        command = [self.compiler(), *self.settings.command[1:]]
        own = [*command, *FLAGS, *self._gcc(now), *self.settings.flags]
        return [*own, *(flags or ("-march=native",))]

    def _gcc(self, now: bool = True) -> tuple[str, ...]:
        """Flags that only GCC knows, for a compiler that is not Clang."""
        if not _X86 or "clang" in os.path.basename(os.path.realpath(self.compiler())):
            return ()
        return (*_GCC_FLAGS, *_GCC_NOW) if now else _GCC_FLAGS

    def _check(self, code: int, stderr: bytes, command: list[str], text: str, path: Path) -> None:
        if code:
            source = self.cache_dir() / f"{path.stem}.c"
            source.write_text(text)
            message = stderr.decode("utf-8", "replace")[:2000]
            raise CompileError(f"{' '.join(command)}\nfailed on {source}:\n{message}")

    def open(self, path: Path, for_others: bool = False) -> Library:
        """``path`` loaded; the same object each time.

        ``for_others``: libraries loaded later find its symbols.
        """
        with self._lock:
            found = self._loaded.get(str(path))
            if found is None:
                mode = ctypes.RTLD_GLOBAL if for_others else ctypes.RTLD_LOCAL
                found = Library(str(path), ctypes.CDLL(str(path), mode=mode))
                self._loaded[str(path)] = found
            return found

    def load(self, text: str, symbols: Sequence[str], flags: Sequence[str] = ()) -> dict[str, int]:
        """Addresses of ``symbols`` in the compiled ``text``."""
        library = self.open(self.build(text, flags))
        return {s: library.address(s) for s in symbols}
