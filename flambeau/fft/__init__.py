"""torch.fft: the operators whose names begin with `fft_`, without that beginning."""

from __future__ import annotations

from flambeau._src.ops.call import called as _aten

__all__ = [
    "fft", "ifft", "fft2", "ifft2", "fftn", "ifftn", "rfft", "irfft", "rfft2", "irfft2", "rfftn",
    "irfftn", "hfft", "ihfft", "hfft2", "ihfft2", "hfftn", "ihfftn", "fftfreq", "rfftfreq",
    "fftshift", "ifftshift",
]  # fmt: skip

globals().update((_name, getattr(_aten, f"fft_{_name}")) for _name in __all__)
