"""The foreach forms, derived: an operator applied to lists of tensors."""

from __future__ import annotations

from typing import Any

from flambeau._src.ops.call import aten
from flambeau._src.ops.op import PACKETS

_NAMES = {"linalg_vector_norm": "norm"}
_MORE = ("copy_", "zero_", "linalg_vector_norm")


def _apply(name: str, inplace: bool) -> Any:
    def foreach(self: Any, *args: Any, **kwargs: Any) -> Any:
        function = getattr(aten, name)
        n = len(self)
        for a in args:
            if isinstance(a, (list, tuple)) and len(a) != n:
                raise RuntimeError(
                    f"Tensor lists must have the same number of tensors, got {n} and {len(a)}"
                )
        if not n:
            raise RuntimeError("Tensor list must have at least one tensor.")
        results = [
            function(t, *[a[i] if isinstance(a, (list, tuple)) else a for a in args], **kwargs)
            for i, t in enumerate(self)
        ]
        return None if inplace else results

    foreach.__name__ = f"_foreach_{_NAMES.get(name, name)}"
    foreach.__doc__ = f"{name} on every tensor of a list; further lists go along with it."
    return foreach


def functions() -> dict[str, Any]:
    """`_foreach_<name>` for every pointwise operator, and a few others."""
    names = [
        name
        for (ns, name), p in PACKETS.items()
        if ns == "aten"
        and (name in _MORE or p.ops[0].decl.kind == "pointwise")
        and not name.startswith("_")
    ]
    table = {f"_foreach_{_NAMES.get(n, n)}": _apply(n, n.endswith("_")) for n in names}
    table["_foreach_pow"] = _apply("pow", False)
    return table
