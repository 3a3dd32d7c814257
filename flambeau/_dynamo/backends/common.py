"""Back ends built from functions of graphs."""

from flambeau._src.compiler.own import aot_autograd  # noqa: F401
