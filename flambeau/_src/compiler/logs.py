"""What the compiler tells, by the names of ``TORCH_LOGS``: `graph_code`, `guards`, `recompiles`, …

An artefact `x` goes to the logger ``flambeau.x`` at level INFO; as loggers say nothing below
WARNING unless asked, it shows when ``TORCH_LOGS=x`` (or `set_logs(x=True)`) asked for it.
"""

from __future__ import annotations

import logging
from typing import Any

from flambeau._src.util.log import logger

__all__ = ["ARTEFACTS", "COMPONENTS", "set_logs", "show", "shows", "tell", "told"]

#: Parts with a level.
COMPONENTS = (
    "all", "dynamo", "aot", "autograd", "dynamic", "inductor", "distributed", "c10d", "ddp", "fsdp",
    "dtensor", "onnx", "export",
)  # fmt: skip
#: Things that are shown or not.
ARTEFACTS = (
    "bytecode", "aot_graphs", "aot_joint_graph", "ddp_graphs", "graph", "graph_code",
    "graph_code_verbose", "graph_breaks", "side_effects", "graph_sizes", "guards", "recompiles",
    "recompiles_verbose", "trace_source", "trace_call", "trace_bytecode", "output_code",
    "kernel_code", "schedule", "perf_hints", "pre_grad_graphs", "post_grad_graphs", "ir_pre_fusion",
    "ir_post_fusion", "onnx_diagnostics", "fusion", "overlap", "cudagraphs", "sym_node",
    "compiled_autograd", "compiled_autograd_verbose", "cudagraph_static_inputs", "benchmarking",
    "autotuning", "incremental", "graph_region_expansion", "inductor_metrics",
    "hierarchical_compile", "compute_dependencies", "caching",
)  # fmt: skip


def shows(artefact: str) -> bool:
    """Whether someone wants to see it."""
    return logger(artefact).isEnabledFor(logging.INFO)


def show(artefact: str, text: str, entry: Any = None) -> None:
    """Show a thing; `entry` says which compilation it belongs to."""
    found = logger(artefact)
    if found.isEnabledFor(logging.INFO):
        found.info("%s", f"[{entry.id}] {text}" if entry is not None else text)


def told(level: int, part: str = "dynamo") -> bool:
    """Whether what a part says at a level is written anywhere."""
    return logger(part).isEnabledFor(level)


def tell(level: int, text: str, part: str = "dynamo") -> None:
    """Say something about a part at a level."""
    logger(part).log(level, "%s", text)


def set_logs(
    *, modules: dict[str, int | bool] | None = None, **settings: int | bool | None
) -> None:
    """Choose what is logged; without arguments, what was chosen is forgotten.

    Args:
        settings: a component (`dynamo`, `aot`, `inductor`, …) with a `logging` level, or an
            artefact (`graph_code`, `guards`, `recompiles`, …) with True or False.
        modules: loggers by name with a level.

    Raises:
        TypeError: an unknown name. ValueError: an artefact with a level, a component with a bool.
    """
    known = {*COMPONENTS, *ARTEFACTS}
    for name, value in settings.items():
        if name not in known:
            raise TypeError(f"set_logs() got an unexpected keyword argument '{name}'")
        if value is None:
            continue
        if name in ARTEFACTS and not isinstance(value, bool):
            raise ValueError(f"Expected bool or None for artifact {name}, received {type(value)}")
        if name in COMPONENTS and (isinstance(value, bool) or value not in _LEVELS):
            raise ValueError(
                f"Unrecognized log level for log {name}: {value}, valid level values are: "
                f"{','.join(map(str, sorted(_LEVELS)))}"
            )
    root = logger()
    for name in (*COMPONENTS, *ARTEFACTS):
        logger("" if name == "all" else name).setLevel(logging.NOTSET)
    chosen = {n: v for n, v in settings.items() if v is not None}
    if (chosen or modules) and not root.handlers:
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(name)s %(levelname)s: %(message)s"))
        root.addHandler(handler)
        root.propagate = False
    for name, value in chosen.items():
        level = (logging.INFO if value else logging.WARNING) if isinstance(value, bool) else value
        logger("" if name == "all" else name).setLevel(level)
    for name, value in (modules or {}).items():
        level = (logging.DEBUG if value else logging.WARNING) if isinstance(value, bool) else value
        logging.getLogger(name).setLevel(level)


_LEVELS = frozenset(
    {logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR, logging.CRITICAL, 0}
)
