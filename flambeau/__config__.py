"""How this build was made, as text."""

from __future__ import annotations

import sys

import flambeau as torch
from flambeau._src.util.config import config


def show() -> str:
    """The version, Python's, and where kernels come from."""
    return (
        f"flambeau, with the API of PyTorch {torch.__version__}\n"
        f"  - Python {sys.version.split()[0]}\n"
        f"  - kernels: {config.kernels}\n"
        "  - matrix products: the BLAS of NumPy\n"
    )


def parallel_info() -> str:
    """How many threads operators use."""
    return (
        "flambeau parallel info:\n"
        f"\tat::get_num_threads() : {torch.get_num_threads()}\n"
        f"\tat::get_num_interop_threads() : {torch.get_num_interop_threads()}\n"
    )
