"""Write expected.json: run with an interpreter that has PyTorch 2.13.

python tests/optim/record.py
"""

from __future__ import annotations

import json
from pathlib import Path

import cases
import torch

expected = {
    "optimizers": {cases.name_of(c): cases.optimize(torch, c)[0] for c in cases.OPTIMIZERS},
    "schedules": {cases.name_of(c): cases.schedule(torch, c) for c in cases.SCHEDULES},
}
Path(__file__).with_name("expected.json").write_text(json.dumps(expected, indent=0) + "\n")
