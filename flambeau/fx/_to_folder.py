"""Writing a graph module as a Python package."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import flambeau as torch

__all__ = ["write"]

# Layers whose repr is a call that makes one like them.
_BY_REPR = (
    "Linear",
    "Conv1d",
    "Conv2d",
    "Conv3d",
    "BatchNorm1d",
    "BatchNorm2d",
    "BatchNorm3d",
)


def write(
    module: Any,
    folder: Any,
    module_name: str,
    import_block: Callable[[dict[str, Any]], str],
) -> None:
    """See `GraphModule.to_folder`."""
    place = Path(folder)
    place.mkdir(exist_ok=True)
    torch.save(module.state_dict(), place / "state_dict.pt")
    code = module.graph.python_code(root_module="self")
    imports = import_block(code.globals)
    root = "torch" if "\nimport torch\n" in f"\n{imports}\n" else "flambeau"
    lines = [
        "import os",
        imports,
        "",
        f"from {root}.nn import *",
        "",
        "_HERE = os.path.dirname(os.path.abspath(__file__))",
        "",
        f"class {module_name}(torch.nn.Module):",
        "    def __init__(self):",
        "        super().__init__()",
    ]
    blobified = []
    for name, child in module.named_children():
        if type(child).__name__ in _BY_REPR and type(child).__module__.endswith(
            (".linear", ".conv", ".batchnorm")
        ):
            made = repr(child)
            comment = ""
        else:
            torch.save(child, place / f"{name}.pt")
            blobified.append(name)
            shown = " ".join(repr(child).split())
            file = f"os.path.join(_HERE, {name + '.pt'!r})"
            made = f"torch.load({file}, weights_only=False)"
            comment = f"  # {shown}"
        lines.append(f"        setattr(self, {name!r}, {made}){comment}")
    for name, buffer in module._buffers.items():
        if buffer is None:
            continue
        if name in module._non_persistent_buffers_set:  # not in the state dict: kept by itself
            torch.save(buffer, place / f"{name}.pt")
            file = f"os.path.join(_HERE, {name + '.pt'!r})"
            lines.append(
                f"        self.register_buffer({name!r}, torch.load({file}), persistent=False)"
            )
        else:
            lines.append(f"        self.register_buffer({name!r}, {_empty(buffer)})")
    for name, parameter in module._parameters.items():
        if parameter is not None:
            lines.append(
                f"        setattr(self, {name!r}, torch.nn.Parameter({_empty(parameter)}))"
            )
    lines.append("        self.load_state_dict(torch.load(os.path.join(_HERE, 'state_dict.pt')))")
    body = "\n".join(f"    {line}" if line.strip() else "" for line in module.code.split("\n"))
    (place / "module.py").write_text("\n".join(lines) + f"\n{body}\n")
    (place / "__init__.py").write_text("from .module import *\n")
    if blobified:
        import warnings  # lazy: rare

        warnings.warn(
            "Was not able to save the following children modules as reprs -saved as pickled files "
            f"instead: {blobified}",
            stacklevel=3,
        )


def _empty(tensor: Any) -> str:
    return f"torch.empty({list(tensor.shape)}, dtype={tensor.dtype})"
