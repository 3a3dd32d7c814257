"""The typing names that scripted code uses in annotations."""

from typing import Any, Dict, List, Optional, Tuple, Union  # noqa: F401, UP035

from flambeau import _jit_internal as _internal

BroadcastingList1 = _internal.BroadcastingList1  # type: ignore[attr-defined]
BroadcastingList2 = _internal.BroadcastingList2  # type: ignore[attr-defined]
BroadcastingList3 = _internal.BroadcastingList3  # type: ignore[attr-defined]
