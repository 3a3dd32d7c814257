"""Write the alias into an environment, or take it out again.

What is written is a directory ``torch`` and a ``torch-<version>.dist-info``: pip, and every package
that asks for the installed version of torch, see it, in any process.
"""

from __future__ import annotations

import base64
import hashlib
import shutil
import sysconfig
from pathlib import Path

from .finder import ALIAS, BESIDE, SITE, VERSION

_INFO = f"{ALIAS}-{VERSION}.dist-info"
_FILES = (
    f"{ALIAS}/__init__.py",
    f"{BESIDE}/__init__.py",
    f"{_INFO}/INSTALLER",
    f"{_INFO}/METADATA",
    f"{_INFO}/top_level.txt",
)


class AliasError(Exception):
    """The alias cannot be written or removed; the text says why and what to do."""


def packages_of(prefix: Path | None) -> list[Path]:
    """The directories of installed packages of an environment (default: the present one)."""
    where = None if prefix is None else {"base": str(prefix), "platbase": str(prefix)}
    if prefix is not None and not prefix.is_dir():
        raise AliasError(f"{prefix} is not a directory")
    schemes = sysconfig.get_preferred_scheme("prefix") if prefix is not None else None
    found = []
    for kind in ("purelib", "platlib"):
        if schemes is None:
            path = Path(sysconfig.get_path(kind))
        else:
            path = Path(sysconfig.get_path(kind, schemes, where))
        if path not in found:
            found.append(path)
    return found


def _is_ours(info: Path) -> bool:
    installer = info / "INSTALLER"
    return installer.is_file() and installer.read_text().strip() == "flambeau"


def _others(directories: list[Path]) -> list[Path]:
    """What an environment has of PyTorch itself."""
    found = []
    for directory in directories:
        infos = [*directory.glob(f"{ALIAS}-*.dist-info"), *directory.glob(f"{ALIAS}-*.egg-info")]
        found += [info for info in infos if not _is_ours(info)]
        package = directory / ALIAS
        if package.exists() and not any(_is_ours(info) for info in infos):
            found.append(package)
    return found


def write(prefix: Path | None = None) -> Path:
    """Write the alias; returns the directory that it is in.

    Raises:
        AliasError: where the environment has PyTorch.
    """
    directories = packages_of(prefix)
    others = _others(directories)
    if others:
        raise AliasError(
            f"this environment has PyTorch ({others[0]}); it would be overwritten. Run the program "
            "with 'python -m flambeau program.py' instead, or uninstall PyTorch first "
            "(pip uninstall torch)."
        )
    target = directories[0]
    record = []
    for name in _FILES:
        data = (SITE / name).read_bytes()
        path = target / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        record.append(f"{name},sha256={digest},{len(data)}\n")
    record.append(f"{_INFO}/RECORD,,\n")
    (target / _INFO / "RECORD").write_text("".join(record))
    return target


def remove(prefix: Path | None = None) -> Path:
    """Take the alias out; returns the directory that it was in.

    Raises:
        AliasError: where there is none.
    """
    for directory in packages_of(prefix):
        for info in directory.glob(f"{ALIAS}-*.dist-info"):
            if _is_ours(info):
                shutil.rmtree(info)
                shutil.rmtree(directory / ALIAS, ignore_errors=True)
                shutil.rmtree(directory / BESIDE, ignore_errors=True)
                return directory
    raise AliasError("this environment has no alias of flambeau's")
