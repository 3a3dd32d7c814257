"""Record torch's result dtypes: `python tests/ops/record_promotion.py` where torch is installed."""

import json
from pathlib import Path

import torch

NAMES = (
    "uint8 int8 int16 int32 int64 float16 bfloat16 float32 float64 complex64 complex128 bool"
).split()
NUMBERS = {"True": True, "2": 2, "2.5": 2.5, "1j": 1j}


def name(op, *args):
    try:
        return str(getattr(torch, op)(*args).dtype).removeprefix("torch.")
    except Exception as e:
        return type(e).__name__


table = {}
for a in NAMES:
    x = torch.ones(2, dtype=getattr(torch, a))
    for b in NAMES:
        for dims in ("1", "0"):
            y = torch.ones((2,) if dims == "1" else (), dtype=getattr(torch, b))
            for op in ("mul", "div", "eq", "pow", "maximum"):
                table[f"{op} {a} {b} {dims}"] = name(op, x, y)
    for text, number in NUMBERS.items():
        for op in ("mul", "div", "eq", "add", "pow"):
            table[f"{op} {a} {text}"] = name(op, x, number)
    for op in ("exp", "sum", "abs", "cumsum", "prod"):
        table[f"{op} {a}"] = name(op, x, *([0] if op == "cumsum" else []))
Path(__file__).with_name("promotion.json").write_text(json.dumps(table, indent=0, sort_keys=True))
