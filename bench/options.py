"""What the benches share on the command line: whose Python runs what, and where results go."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any


def parser(file: str, text: str | None, *, needs_torch: bool = False) -> argparse.ArgumentParser:
    """The options that every bench has. `file` is the bench's, `text` what it says of itself."""
    made = argparse.ArgumentParser(description=(text or "").splitlines()[0])
    path = Path(file).resolve()
    add = made.add_argument
    add("--flambeau-python", default=sys.executable, help="interpreter with flambeau")
    alone = "" if needs_torch else "; without it only flambeau is measured"
    add("--torch-python", required=needs_torch, help=f"interpreter with PyTorch{alone}")
    add("--out", type=Path, default=path.parent / "results" / f"{path.stem}.json")
    return made


def pythons(options: argparse.Namespace) -> dict[str, str]:
    """Runtime -> its interpreter, flambeau first."""
    found = {"flambeau": options.flambeau_python}
    if options.torch_python:
        found["torch"] = options.torch_python
    return found


def write(options: argparse.Namespace, result: Any) -> None:
    """Keep the result where `--out` says."""
    options.out.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(result, indent=1, ensure_ascii=False)
    options.out.write_text(text + "\n", encoding="utf-8")
