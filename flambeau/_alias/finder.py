"""The import hook of the alias: ``torch.x`` is ``flambeau.x``, one module object for both names.

This file uses nothing but the standard library, and is loaded before anything else of flambeau:
when the alias is made first, the public modules are executed under their torch names, so that
``__module__`` of what they define, pickles and tracebacks read ``torch.nn.modules.linear``.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.metadata
import importlib.util
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType

#: The version of PyTorch that the alias answers for.
VERSION = "2.13.0"

ALIAS = "torch"
PACKAGE = "flambeau"
#: What PyTorch installs beside `torch`.
BESIDE = "functorch"
#: The package's own directory, and the one that holds the alias as real files.
ROOT = Path(__file__).resolve().parent.parent
SITE = ROOT / "_alias" / "site"

#: Parts that keep their own name: the engine is no part of torch's name space.
_OWN = ("_src", "_alias", "__main__")


def _alias_of(name: str) -> str:
    """``torch.x`` for ``flambeau.x``."""
    return ALIAS + name[len(PACKAGE) :]


def _is_below(name: str, root: str) -> bool:
    return name == root or name.startswith(root + ".")


def _is_public(name: str) -> bool:
    parts = name.split(".")
    return parts[0] == PACKAGE and (len(parts) == 1 or parts[1] not in _OWN)


class _Renaming(importlib.machinery.SourceFileLoader):
    """Executes a public module under its torch name, and enters it under both."""

    # The names that the machinery asks for are the module's, which is not this loader's.
    def get_filename(self, name: str | None = None) -> str:
        """The path of the source, whatever name it goes by."""
        return str(self.path)

    def exec_module(self, module: ModuleType) -> None:
        """Run the module with ``__name__`` set to its torch name."""
        alias = _alias_of(self.name)
        module.__name__ = alias
        sys.modules[alias] = module
        try:
            super().exec_module(module)
        except BaseException:
            sys.modules.pop(alias, None)
            raise


class _SameModule(importlib.abc.Loader):
    """Loads ``torch.x`` by importing ``flambeau.x`` and entering that very object."""

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        """None: the machinery's own empty module, which is thrown away."""
        return None

    def exec_module(self, module: ModuleType) -> None:
        """Put the real module in the place of `module`."""
        spec = module.__spec__
        if spec is None:
            raise ImportError(f"{module.__name__} has no spec")
        real = importlib.import_module(PACKAGE + spec.name[len(ALIAS) :])
        sys.modules[spec.name] = real


class Finder(importlib.abc.MetaPathFinder):
    """Finds ``torch.*`` as flambeau's modules, and the distribution metadata that goes with it.

    Args:
        renames: whether public modules are executed under their torch names.
    """

    def __init__(self, renames: bool) -> None:
        self.renames = renames

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,
        target: ModuleType | None = None,
    ) -> importlib.machinery.ModuleSpec | None:
        """The spec of a module of either name, None for all others."""
        if _is_below(fullname, ALIAS):
            return self._alias_spec(fullname)
        if fullname == BESIDE:
            return importlib.machinery.PathFinder.find_spec(fullname, [str(SITE)], target)
        if not _is_below(fullname, PACKAGE):
            return None
        if fullname == PACKAGE:
            spec = importlib.util.spec_from_file_location(
                PACKAGE, ROOT / "__init__.py", submodule_search_locations=[str(ROOT)]
            )
        else:
            spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is not None and self.renames and _is_public(fullname):
            loader = spec.loader
            if isinstance(loader, importlib.machinery.SourceFileLoader):
                spec.loader = _Renaming(loader.name, loader.path)
        return spec

    def _alias_spec(self, fullname: str) -> importlib.machinery.ModuleSpec | None:
        name = PACKAGE + fullname[len(ALIAS) :]
        known = sys.modules.get(name)
        real = getattr(known, "__spec__", None)
        if known is None:
            real = importlib.util.find_spec(name)
            if real is None:
                return None
        spec = importlib.machinery.ModuleSpec(
            fullname, _SameModule(), origin=getattr(real, "origin", None)
        )
        spec.has_location = getattr(real, "has_location", False)
        spec.submodule_search_locations = getattr(real, "submodule_search_locations", None)
        return spec

    def find_distributions(
        self, context: importlib.metadata.DistributionFinder.Context | None = None
    ) -> Iterator[importlib.metadata.Distribution]:
        """The distribution "torch", where no directory on the search path has it."""
        wanted = None if context is None else context.name
        if wanted not in (None, ALIAS) or str(SITE) in sys.path:
            return
        yield importlib.metadata.PathDistribution(SITE / f"{ALIAS}-{VERSION}.dist-info")


def activate() -> ModuleType:
    """Make ``import torch`` give flambeau in this process; returns the package.

    Where flambeau is loaded already its modules keep their names, and get the torch ones besides.

    Raises:
        ImportError: where PyTorch itself is loaded.
    """
    present = sys.modules.get(ALIAS)
    package = sys.modules.get(PACKAGE)
    being_loaded = getattr(present, "__file__", None) or ""
    ours = present is None or present is package or _is_alias_file(being_loaded)
    if not ours:
        raise ImportError(f"{ALIAS} is loaded from {being_loaded}: it cannot be flambeau as well")
    if not any(isinstance(finder, Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, Finder(renames=package is None))
    for name, module in list(sys.modules.items()):
        if _is_below(name, PACKAGE) and _is_public(name):
            sys.modules[_alias_of(name)] = module
    if package is None:
        package = importlib.import_module(PACKAGE)
    sys.modules[ALIAS] = package
    return package


def _is_alias_file(path: str) -> bool:
    """Whether `path` is the file that stands for ``torch``: the one in `SITE` or a copy of it."""
    try:
        return Path(path).read_bytes() == (SITE / ALIAS / "__init__.py").read_bytes()
    except OSError:
        return False
