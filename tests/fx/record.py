"""Writes expected.json: what PyTorch makes of the programs. Run where torch is installed.

python -m tests.fx.record
"""

import json
from pathlib import Path

import torch
import torch.fx

from tests.fx.describe import describe
from tests.fx.programs import build


def main() -> None:
    expected = {
        program.name: describe(torch.fx.symbolic_trace(program.root, program.concrete))
        for program in build(torch)
    }
    expected["torch"] = torch.__version__.partition("+")[0]
    path = Path(__file__).with_name("expected.json")
    path.write_text(json.dumps(expected, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
