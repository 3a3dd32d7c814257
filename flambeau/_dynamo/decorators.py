"""The marks, by their older place."""

from flambeau._src.capture.marks import (  # noqa: F401
    allow_in_graph,
    assume_constant_result,
    disable,
    graph_break,
    mark_dynamic,
    mark_static,
    mark_static_address,
    mark_unbacked,
    maybe_mark_dynamic,
    set_stance,
    substitute_in_graph,
)
