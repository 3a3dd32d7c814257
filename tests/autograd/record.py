"""Write expected.json: run with an interpreter that has PyTorch 2.13.

python tests/autograd/record.py
"""

from __future__ import annotations

import json

import cases
import torch

lines = [
    f" {json.dumps(name)}: {json.dumps(cases.run(torch, case))}"
    for name, case in cases.cases().items()
]
cases.EXPECTED.write_text("{\n" + ",\n".join(lines) + "\n}\n")
