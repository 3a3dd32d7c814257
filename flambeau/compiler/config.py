"""Switches of everything that compiles."""

from flambeau._src.compiler.settings import COMPILER, install

install(__name__, COMPILER)
