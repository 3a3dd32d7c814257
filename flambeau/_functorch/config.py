"""The switches of ahead-of-time autograd."""

from flambeau._src.compiler.settings import FUNCTORCH, install

install(__name__, FUNCTORCH)
