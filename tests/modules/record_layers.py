"""Write `recorded_layers.json` with PyTorch's results; run it where PyTorch 2.13 is installed."""

from __future__ import annotations

import json
import pathlib
import sys
import warnings

import torch

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import layer_cases  # noqa: E402


def main() -> None:
    warnings.simplefilter("ignore")
    lines = [json.dumps(layer_cases.run(torch, case)) for case in layer_cases.CASES]
    (HERE / "recorded_layers.json").write_text("[\n" + ",\n".join(lines) + "\n]\n")


if __name__ == "__main__":
    main()
