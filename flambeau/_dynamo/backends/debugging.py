"""Back ends for looking on, and what `explain` returns."""

from flambeau._src.compiler.explain import ExplainOutput  # noqa: F401
from flambeau._src.compiler.own import aot_eager, eager, eager_noexcept  # noqa: F401
