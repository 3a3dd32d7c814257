"""Write the checkpoints in files/: run with an interpreter that has PyTorch 2.13.

python tests/serialization/record.py
"""

from __future__ import annotations

import pickle
import sys
from collections import OrderedDict
from pathlib import Path

import torch

FILES = Path(__file__).with_name("files")
FILES.mkdir(exist_ok=True)

base = torch.arange(12.0).reshape(3, 4)
state = OrderedDict(
    whole=base,
    transposed=base.t(),
    strided=base[1:, ::2],
    parameter=torch.nn.Parameter(base + 1),
    recorded=torch.ones(2, requires_grad=True),
    empty=torch.ones(0),
    scalar=torch.tensor(2.5),
    plain=[1, 2.5, "text", None, True, (1, 2), {"k": 3}, b"bytes", 2**70, {1, 2}, 1j],
    dtype=torch.float16,
    device=torch.device("cpu"),
    size=torch.Size([1, 2]),
    layout=torch.strided,
    bool=torch.tensor([True, False]),
)
for name in "float64 float16 bfloat16 int64 int32 int16 int8 uint8".split():
    state[name] = torch.tensor([1, 2, 3]).to(getattr(torch, name))
for name in "complex64 complex128".split():
    state[name] = torch.tensor([1 + 2j, 3 - 1j], dtype=getattr(torch, name))
state._metadata = {"": {"version": 1}}
torch.save(state, FILES / "zip.pt")
torch.save(state, FILES / "legacy.pt", _use_new_zipfile_serialization=False)
torch.save({"t": base.to(torch.uint16), "f": base.to(torch.float8_e5m2)}, FILES / "new_dtypes.pt")
torch.save(torch.nn.Linear(2, 1), FILES / "module.pt")
model = torch.nn.Linear(2, 1)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
model(torch.ones(3, 2)).sum().backward()
optimizer.step()
torch.save(optimizer.state_dict(), FILES / "optimizer.pt")
(FILES / "pickle.pkl").write_bytes(pickle.dumps(base[1:], protocol=2))
sys.exit(0)
