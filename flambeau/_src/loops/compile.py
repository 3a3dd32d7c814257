"""From a request to the address of a kernel: the pack, the cache on disk, or the compiler now."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Sequence

from flambeau._src.runtime.toolchain import (
    Library,
    Toolchain,
    ToolchainMissing,
)
from flambeau._src.util.config import config

from .pack import open_pack
from .request import ONE_LOOP, KernelRequest
from .source import host_target, kernel_of, kernel_text

__all__ = ["KernelLoader", "host_target", "kernel_address", "kernel_of", "kernel_text", "loader"]


class KernelLoader:
    """Finds kernels by request and remembers their addresses. Safe to use from threads.

    ``sources`` is the configuration's ``kernels``: 'auto', 'pack' (compile nothing) or 'numpy'
    (no kernels at all).
    """

    def __init__(self, toolchain: Toolchain | None = None, sources: str = config.kernels) -> None:
        self.toolchain = toolchain or Toolchain()
        self.sources = sources
        self.target = host_target()
        self._known: dict[str, int] = {}
        self._lock = threading.RLock()
        self._support = False
        self._pack: Library | None = None
        self._pack_tried = False

    def address(self, request: KernelRequest) -> int:
        """The address of the request's kernel, a function of the loop ABI.

        Raises:
            ToolchainMissing: it is not in the pack, and there is no C compiler (or the
                configuration forbids to use one).
            TypeError: the expression is not defined for these dtypes.
        """
        symbol = request.symbol
        found = self._known.get(symbol)
        if found is None:
            found = self._known[symbol] = self._find(request, symbol)
        return found

    def _find(self, request: KernelRequest, symbol: str) -> int:
        if self.sources == "numpy":
            raise ToolchainMissing("the configuration (FLAMBEAU_KERNELS=numpy) asks for NumPy")
        pack = self.pack()
        both = dataclasses.replace(request, kind="row") if request.kind in ONE_LOOP else request
        if both is not request and both.symbol in self._known:
            return self._known[both.symbol]
        if pack is not None:
            try:
                return pack.address(both.symbol)
            except AttributeError:
                pass
        if self.sources == "pack":
            raise ToolchainMissing(f"the pack has no kernel {symbol} (FLAMBEAU_KERNELS=pack)")
        return self.load(kernel_text([request], self.target), [symbol])[symbol]

    def pack(self) -> Library | None:
        """The prebuilt kernels, where there are any for this processor."""
        with self._lock:
            if not self._pack_tried:
                self._pack = open_pack(self.toolchain)
                self._pack_tried = True
            return self._pack

    def load(self, text: str, symbols: Sequence[str]) -> dict[str, int]:
        """Compiles and loads a text of kernels for this processor: symbol to address."""
        with self._lock:
            if not self._support:
                self._load_support()
                self._support = True
        return self.toolchain.load(text, symbols)

    def load_parts(self, parts: Sequence[tuple[str, Sequence[str]]]) -> dict[str, int]:
        """As `load`, several texts at the same time."""
        found: dict[str, int] = {}
        failed: list[BaseException] = []

        def load(text: str, symbols: Sequence[str]) -> None:
            try:
                found.update(self.load(text, symbols))
            except BaseException as e:
                failed.append(e)

        others = [threading.Thread(target=load, args=part, daemon=True) for part in parts[1:]]
        for thread in others:
            thread.start()
        load(*parts[0])
        for thread in others:
            thread.join()
        if failed:
            raise failed[0]
        return found

    def _load_support(self) -> None:
        """Makes the drivers that every kernel calls known to the dynamic linker."""
        from flambeau._src.codegen.staging import STAMP, support_text  # lazy: as above

        pack = self.pack()
        if pack is not None:
            try:
                pack.address(f"fl_map_driver_{STAMP}")
                return
            except AttributeError:
                pass
        self.toolchain.open(self.toolchain.build(support_text()), for_others=True)


_LOADER: list[KernelLoader] = []


def loader() -> KernelLoader:
    """The process's loader."""
    if not _LOADER:
        _LOADER.append(KernelLoader())
    return _LOADER[0]


def kernel_address(request: KernelRequest) -> int:
    """The address of ``request``'s kernel: from the pack, the disk cache, or compiled now."""
    return loader().address(request)
