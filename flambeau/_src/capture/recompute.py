"""`tag_activation_checkpoint`: a part of a graph whose backward computes it again.

A back end that runs the graph as it is runs a checkpoint. A trace runs the part, and marks its
nodes: the partition saves none of them (`partition.py`).
"""

from __future__ import annotations

import contextlib
import itertools
from typing import Any

from flambeau._src.capture.higher_order import BELOW, HigherOrderOperator
from flambeau._src.core import state
from flambeau._src.core.slots import slot
from flambeau._src.ir import provenance
from flambeau._src.ops.call import call_bits

__all__ = ["CHOICE", "REGION", "chooser", "tag_activation_checkpoint"]

#: In the meta of a node: the number of the checkpoint that it belongs to.
REGION = "ac_graph_id"
#: In the meta of a node: what says of an operator, its arguments, keywords and result whether to
#: keep the result (a `CheckpointPolicy`).
CHOICE = "ac_choice"
_numbers = itertools.count()


def chooser(context_fn: Any) -> Any:
    """What the first context of a `context_fn` says of operators; None: it says nothing.

    Raises:
        TypeError: the contexts are none that a compiler could do without.
    """
    if context_fn is None:
        return None
    first, _ = context_fn()
    if isinstance(first, contextlib.nullcontext):
        return None
    if not hasattr(first, "choice"):
        raise TypeError(type(first).__name__)
    return first.choice


class TagActivationCheckpoint(HigherOrderOperator):
    """`tag_activation_checkpoint(body, *operands, **options)`: what the body returns.

    The options are those of `torch.utils.checkpoint.checkpoint`.
    """

    bodies = ("wrap_body",)

    def __call__(self, /, *args: Any, **options: Any) -> Any:
        body, *operands = args
        if not call_bits((operands,), {}, 0) & (BELOW | state.FUNCTORCH):
            # Not the module itself, which would report that a recomputation stops early.
            run = getattr(body, "forward", body)
            return slot("checkpoint")(run, *operands, **options)
        current = provenance.current
        meta = {**current.meta, REGION: next(_numbers), "recompute": True}
        found = chooser(options.get("context_fn"))
        if found is not None:
            meta[CHOICE] = found
        with provenance.with_meta(meta):
            return body(*operands)


tag_activation_checkpoint = TagActivationCheckpoint("tag_activation_checkpoint")
