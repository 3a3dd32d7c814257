"""The pack: kernels of the common operators, generated and compiled when the package is built.

``python -m flambeau._src.loops.pack`` builds one library per instruction set beside this file,
``pack.x86-64-v4.so`` and so on, and ``pack.json``, which says from which sources. At run time
``open_pack`` gives the widest one that the processor can run; a symbol in it is looked up when it
is first asked for. A pack whose sources have changed since is not used.
"""

from __future__ import annotations

import json
import os
import platform
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from flambeau._src.codegen.target import GENERIC, TARGETS, V3, V4, Target
from flambeau._src.ops import registry
from flambeau._src.runtime.toolchain import CompileError, Library, Toolchain
from flambeau._src.util.sources import are_current, stamps

from .request import KernelRequest
from .source import host_target, kernel_text

__all__ = ["build_pack", "main", "open_pack"]

_HERE = Path(__file__).resolve().parent
_SOURCE = _HERE.parent
# Kernels of one translation unit: enough to share the pieces, few enough to compile in parallel.
_PER_UNIT = 40


def _sources() -> list[Path]:
    """The files that decide what the pack's kernels compute."""
    found = [_SOURCE / "ir" / "kernel.py", _SOURCE / "runtime" / "toolchain.py"]
    for folder in ("codegen", "ops"):
        found += sorted((_SOURCE / folder).glob("*.py"))
    return [*found, *(_HERE / f"{name}.py" for name in ("lower", "request", "schedule"))]


def _names() -> list[str]:
    return [str(p.relative_to(_SOURCE)) for p in _sources()]


def _is_current(folder: Path) -> bool:
    """Whether the pack in ``folder`` was built from the sources as they are now."""
    manifest = folder / "pack.json"
    try:
        known = json.loads(manifest.read_text())["sources"]
        return are_current(str(manifest), str(_SOURCE), _names(), known)
    except (OSError, ValueError, KeyError):
        return False


def pack_targets() -> list[Target]:
    """The instruction sets that a pack is built for on this architecture, widest first."""
    return [V4, V3] if platform.machine().lower() in ("x86_64", "amd64") else [GENERIC]


def _flags(target: Target) -> tuple[str, ...]:
    own = (f"-march={target.march}",) if target.march else ("-O2",)
    return (*own, "-mprefer-vector-width=512") if target is V4 else own


def build_pack(
    requests: Sequence[KernelRequest],
    folder: Path = _HERE,
    targets: Sequence[Target] | None = None,
    jobs: int = 2,
    toolchain: Toolchain | None = None,
) -> dict[str, int]:
    """Compiles ``requests`` for each target into ``folder``; sizes in bytes by target.

    A target that the compiler does not know is left out, unless it is the last.
    """
    from flambeau._src.codegen.staging import support_text  # lazy: opening a pack needs none

    tools = toolchain or Toolchain()
    unique = list({r.symbol: r for r in requests}.values())
    sizes: dict[str, int] = {}
    targets = pack_targets() if targets is None else targets
    for target in targets:
        units = [unique[i : i + _PER_UNIT] for i in range(0, len(unique), _PER_UNIT)]
        texts = [support_text(), *(kernel_text(unit, target) for unit in units)]
        path = folder / f"pack.{target.name}.so"
        try:
            tools.compile_parts(texts, path, _flags(target), jobs)
        except CompileError as e:
            message = str(e).split("failed on", 1)[1]
            unknown = "'-march" in message or "unknown target CPU" in message
            if target is targets[-1] or not unknown:
                raise
            continue
        sizes[target.name] = path.stat().st_size
    sources = stamps(str(_SOURCE), _names())
    manifest = {"kernels": len(unique), "targets": sizes, "sources": sources}
    beside = folder / f"pack.json.{os.getpid()}.tmp"
    beside.write_text(json.dumps(manifest, indent=1))
    os.replace(beside, folder / "pack.json")
    return sizes


def open_pack(toolchain: Toolchain, folder: Path = _HERE) -> Library | None:
    """The pack for this processor; None when there is none or it is out of date."""
    host = host_target()
    fitting = [t for t in TARGETS.values() if t.vector_bytes <= host.vector_bytes]
    for target in fitting:
        path = folder / f"pack.{target.name}.so"
        if path.exists():
            return toolchain.open(path, for_others=True) if _is_current(folder) else None
    return None


def main(arguments: Sequence[str] | None = None) -> int:
    """Builds the pack of the declared operators."""
    import argparse  # lazy: opening a pack needs none

    parser = argparse.ArgumentParser(description="Build the kernel pack.")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--targets", nargs="*", choices=sorted(TARGETS), default=None)
    parser.add_argument("--force", action="store_true", help="build it even if it is current")
    options = parser.parse_args(arguments)
    registry.keep()
    if not options.force and _is_current(_HERE):
        return 0
    from flambeau._src.ops.packed import kernel_requests  # lazy: declares every operator

    requests = [KernelRequest(*r) if isinstance(r, tuple) else r for r in kernel_requests()]
    targets = None if options.targets is None else [TARGETS[t] for t in options.targets]
    start = time.perf_counter()
    sizes = build_pack(requests, targets=targets, jobs=options.jobs)
    seconds = time.perf_counter() - start
    each = ", ".join(f"{name} {size >> 10} KiB" for name, size in sizes.items())
    print(f"{len(requests)} kernels in {seconds:.1f} s: {each}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
