"""The part of PyTorch's helpers for symbolic sizes that programs name."""
