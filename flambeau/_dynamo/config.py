"""The switches of the capture and its driver."""

from flambeau._src.compiler.settings import DYNAMO, install

install(__name__, DYNAMO)
