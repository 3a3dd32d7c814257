"""Back ends and their registry."""

from flambeau._dynamo.backends import common, debugging, registry
