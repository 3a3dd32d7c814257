"""`torch.ops`: every operator by namespace, name and overload (`torch.ops.aten.add.Tensor`).

The name `flambeau.ops` stands for one object, not for this file: see `_src/ops/overload.py`.
"""

import sys

from flambeau._src.ops.overload import ops

# Under the alias this file runs as torch.ops, and stands under both names.
sys.modules[__name__] = sys.modules["flambeau.ops"] = ops
