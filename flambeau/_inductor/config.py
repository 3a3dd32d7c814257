"""The options of generated code."""

from flambeau._src.compiler.settings import INDUCTOR, install

install(__name__, INDUCTOR)
