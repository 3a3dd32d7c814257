"""The default back end as a function of a GraphModule."""

from flambeau._src.compiler.own import inductor as compile_fx  # noqa: F401
