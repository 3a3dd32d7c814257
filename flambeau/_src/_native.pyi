# The extension's names are declared where they are wrapped, in core/; here only that it exists.
from typing import Any

def __getattr__(name: str) -> Any: ...
