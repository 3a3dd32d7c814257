"""The command line: run programs that say ``import torch``, and write the alias.

python -m flambeau [run] script.py args...
python -m flambeau [run] -m module args...
python -m flambeau [run] -c code args...
python -m flambeau alias [--prefix DIR] [--remove]
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from flambeau._alias import environment, launch
from flambeau._alias.finder import VERSION

_USAGE = """\
usage: flambeau [run] script.py [args...]
       flambeau [run] -m module [args...]
       flambeau [run] -c code [args...]
       flambeau alias [--prefix DIR] [--remove]
       flambeau --version

run      Run a program whose 'import torch' finds flambeau, in it and in all its
         child processes. The word may be left out.
alias    Write the packages 'torch' and 'torch-{version}.dist-info' into an environment
         that has no PyTorch, so that every program in it finds flambeau; --remove
         takes them out again.
"""


def main(arguments: list[str] | None = None) -> int:
    """The command line without its first word; returns the exit status."""
    arguments = sys.argv[1:] if arguments is None else arguments
    first = arguments[0] if arguments else "--help"
    if first in ("-h", "--help"):
        print(_USAGE.format(version=VERSION), end="")
        return 0
    if first in ("-V", "--version"):
        print(f"flambeau, as torch {VERSION}")
        return 0
    if first == "alias":
        return _alias(arguments[1:])
    program = arguments[1:] if first == "run" else arguments
    if not program:
        print(_USAGE.format(version=VERSION), end="", file=sys.stderr)
        return 2
    if program[0] in ("-c", "-m") and len(program) < 2:
        print(f"flambeau: {program[0]} needs an argument", file=sys.stderr)
        return 2
    launch.run(program)


def _alias(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="flambeau alias", description="Make 'torch' in an environment mean flambeau."
    )
    parser.add_argument(
        "--prefix", type=Path, help="root of the environment (default: this Python's)"
    )
    parser.add_argument("--remove", action="store_true", help="take the alias out again")
    options = parser.parse_args(arguments)
    try:
        if options.remove:
            where = environment.remove(options.prefix)
            print(f"removed the alias from {where}")
        else:
            where = environment.write(options.prefix)
            print(f"'import torch' finds flambeau in {where.parent}")
    except environment.AliasError as problem:
        print(f"flambeau: {problem}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
