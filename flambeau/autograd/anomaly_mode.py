"""Finding the operation whose backward fails or gives NaN."""

from __future__ import annotations

import warnings
from typing import Any

from flambeau._src.autograd import anomaly

__all__ = ["detect_anomaly", "set_detect_anomaly"]


class detect_anomaly:
    """Inside: an error of backward prints where the forward of that node was called, and NaN among
    gradients is an error. Slow; for debugging.

    Args:
        check_nan: whether to look for NaN.
    """

    def __init__(self, check_nan: bool = True) -> None:
        self.prev = anomaly.is_enabled()
        self.check_nan = check_nan
        self.prev_check_nan = anomaly.check_nan_enabled()
        warnings.warn(
            "Anomaly Detection has been enabled. This mode will increase the runtime and should "
            "only be enabled for debugging.",
            stacklevel=2,
        )

    def __enter__(self) -> None:
        anomaly.set_enabled(True, self.check_nan)

    def __exit__(self, *args: Any) -> None:
        anomaly.set_enabled(self.prev, self.prev_check_nan)


class set_detect_anomaly:
    """Anomaly mode on or off, at once and until the end of a ``with`` block.

    Args:
        mode: the switch.
        check_nan: whether to look for NaN.
    """

    def __init__(self, mode: bool, check_nan: bool = True) -> None:
        self.prev = anomaly.is_enabled()
        self.prev_check_nan = anomaly.check_nan_enabled()
        anomaly.set_enabled(mode, check_nan)

    def __enter__(self) -> None:
        """Nothing: the constructor did it."""

    def __exit__(self, *args: Any) -> None:
        anomaly.set_enabled(self.prev, self.prev_check_nan)
