"""What programs say about functions and tensors, by its older place."""

from flambeau._src.capture.marks import (  # noqa: F401
    graph_break,
    mark_dynamic,
    mark_static,
    mark_static_address,
    mark_unbacked,
    maybe_mark_dynamic,
)
from flambeau._src.compiler.api import disable  # noqa: F401
from flambeau._src.compiler.stance import set_stance  # noqa: F401
from flambeau._src.compiler.told import (  # noqa: F401
    allow_in_graph,
    assume_constant_result,
    disallow_in_graph,
    error_on_graph_break,
    forbid_in_graph,
    nonstrict_trace,
    substitute_in_graph,
)
