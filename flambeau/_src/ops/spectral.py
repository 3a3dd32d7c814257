"""Windows, and short-time Fourier transforms with their inverse (Griffin and Lim 1984)."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

from flambeau._src.core import dtype as dt
from flambeau._src.core import state
from flambeau._src.core.tensor import Tensor
from flambeau._src.ops.assertions import hold
from flambeau._src.ops.call import aten
from flambeau._src.ops.creation import OPTIONS, Factory
from flambeau._src.ops.kinds import Composite

PI = math.pi

# ---- windows ----


def _check_window(name: str, n: int, dtype: Any) -> None:
    d = dtype or state.process.default_dtype
    if not d.is_floating_point and not d.is_complex:
        raise RuntimeError(
            f"{name} expects floating point dtypes, got: TensorOptions(dtype={dt.c_name(d)}, "
            "device=cpu, layout=Strided (default), requires_grad=false (default), "
            "pinned_memory=false, memory_format=(nullopt))"
        )
    if n < 0:
        raise RuntimeError(f"{name} requires non-negative window_length, got window_length={n}")


def _cosines(places: Tensor, n: int, alpha: float, beta: float) -> Tensor:
    return aten.cos(places * (2 * PI / (n - 1))) * -beta + alpha


def _bartlett(places: Tensor, n: int) -> Tensor:
    rising = places * (2.0 / (n - 1))
    half = ((n - 1) >> 1) + 1
    tail = -aten.narrow(rising, 0, half, n - half) + 2
    return aten.cat([aten.narrow(rising, 0, 0, half), tail])


def _blackman(places: Tensor, n: int) -> Tensor:
    at = places * (PI / (n - 1))
    return aten.cos(at * 4) * 0.08 - aten.cos(at * 2) * 0.5 + 0.42


def _kaiser(places: Tensor, n: int, beta: float) -> Tensor:
    """Kaiser 1974: I0 of an arc, over its top."""
    off = places * (2.0 / (n - 1)) - 1
    arc = aten.sqrt(aten.abs(1 - off * off))
    top = aten.i0(aten.full((), beta, dtype=places.dtype, device=places.device))
    return aten.i0(arc * beta) / top


def _windows(name: str, shape: Callable[..., Tensor], defaults: tuple[float, ...]) -> None:
    """The overloads: periodic or not, then the numbers that shape it, from left to right."""
    title = f"{name}_window"
    names = ("alpha", "beta") if name == "hamming" else ("beta",) if name == "kaiser" else ()

    def build(n: int, periodic: bool, numbers: tuple[float, ...], options: tuple[Any, ...]) -> Any:
        dtype, layout, device, pin = options
        _check_window(title, n, dtype)
        given = {"dtype": dtype or state.process.default_dtype, "layout": layout,
                 "device": device, "pin_memory": pin}  # fmt: skip
        if n <= 1:
            return aten.ones((n,), **given)
        wide = n + 1 if periodic else n
        narrow = given["dtype"] in (dt.float16, dt.bfloat16)
        places = aten.arange(wide, **(given | {"dtype": dt.float32} if narrow else given))
        made = shape(places, wide, *numbers, *defaults[len(numbers) :])
        made = aten._to_copy(made, dtype=given["dtype"]) if narrow else made
        return aten.clone(aten.narrow(made, 0, 0, n)) if periodic else made

    for i in range(len(names) + 2):
        arguments = ["bool periodic"] if i else []
        arguments += [f"float {v}" for v in names[: max(i - 1, 0)]]
        overload = "_".join(["periodic"] * bool(i) + list(names[: max(i - 1, 0)]))
        overload = "beta" if name == "kaiser" and i == 2 else overload

        def decompose(n: int, *rest: Any, count: int = i) -> Any:
            periodic = rest[0] if count else True
            return build(n, periodic, rest[1:count], rest[count:])

        head = ", ".join(["int window_length", *arguments])
        type(title, (Factory,), {
            "__doc__": f"The {name} window.", "__module__": __name__, "decompose": decompose,
            "schema": f"{title}{'.' if overload else ''}{overload}({head}, *, {OPTIONS}) "
            "-> Tensor", "out": f"{overload}_out" if overload else "out", "differentiable": False,
        })  # fmt: skip


_windows("hann", lambda p, n: _cosines(p, n, 0.5, 0.5), ())
_windows("hamming", _cosines, (0.54, 0.46))
_windows("bartlett", _bartlett, ())
_windows("blackman", _blackman, ())
_windows("kaiser", _kaiser, (12.0,))


# ---- short-time transforms ----


def _told(name: str, x: Tensor, kind: str, **given: Any) -> str:
    """The call, as error messages show it."""
    parts = []
    for key, v in given.items():
        if isinstance(v, Tensor):
            v = f"{_kind(v)}{{{list(v.shape)}}}"
        elif isinstance(v, bool):
            v = int(v)
        parts.append(f"{key}={v}")
    return f"{name}({kind}{list(x.shape)}, {', '.join(parts)})"


def _kind(t: Tensor) -> str:
    return f"torch.{dt.scalar_name(t.dtype)}Tensor"


_NO_WINDOW = (
    "A window was not provided. A rectangular window will be applied,which is known to cause "
    "spectral leakage. Other windows such as torch.hann_window or torch.hamming_window are "
    "recommended to reduce spectral leakage.To suppress this warning and use a rectangular window, "
    "explicitly set `window=torch.ones(n_fft, device=<device>)`."
)


def _frames(
    x: Tensor, n_fft: int, hop: int, window: Tensor | None, width: int, centred: bool
) -> Tensor:
    """Overlapping pieces of (batch, time): (batch, frames, n_fft), weighted."""
    count = 1 + (x.shape[1] - n_fft) // hop
    s0, s1 = x.stride()
    pieces = aten.as_strided(x, (x.shape[0], count, n_fft), (s0, hop * s1, s1))
    if window is None and width == n_fft:
        return pieces
    w = aten.ones((width,), dtype=x.dtype, device=x.device) if window is None else window
    if width < n_fft:
        left = (n_fft - width) // 2 if centred else 0
        w = aten.constant_pad_nd(w, [left, n_fft - width - left])
    return aten.mul(pieces, w)


def stft(
    x: Tensor, n_fft: int, hop: int | None, width: int | None, window: Tensor | None,
    normalized: bool, onesided: bool | None, as_complex: bool | None, align: bool | None,
    centred: bool = True,
) -> Tensor:  # fmt: skip
    """Frames transformed: (batch, frequencies, frames)."""
    if window is None:
        warnings.warn(_NO_WINDOW, UserWarning, stacklevel=4)
    hop = n_fft // 4 if hop is None else hop
    width = n_fft if width is None else width
    if as_complex is None:
        if not (x.dtype.is_complex or (window is not None and window.dtype.is_complex)):
            raise RuntimeError(
                "stft requires the return_complex parameter be given for real inputs, and will "
                "further require that return_complex=True in a future PyTorch release."
            )
        as_complex = True

    def refuse(what: str) -> RuntimeError:
        return RuntimeError(
            _told(
                "stft", x, _kind(x), n_fft=n_fft, hop_length=hop, win_length=width, window=window,
                normalized=normalized, onesided=onesided, return_complex=as_complex,
                align_to_window=align,
            ) + f" : {what}"
        )  # fmt: skip

    if not (x.dtype.is_floating_point or x.dtype.is_complex):
        raise refuse("expected a tensor of floating point or complex values")
    if not 1 <= x.dim() <= 2:
        raise refuse("expected a 1D or 2D tensor")
    rows = aten.unsqueeze(x, 0) if x.dim() == 1 else x
    if not 0 < n_fft <= rows.shape[1]:
        raise refuse(f"expected 0 < n_fft < {rows.shape[1]}, but got n_fft={n_fft}")
    if hop <= 0:
        raise refuse(f"expected hop_length > 0, but got hop_length={hop}")
    if not 0 < width <= n_fft:
        raise refuse(f"expected 0 < win_length <= n_fft, but got win_length={width}")
    if window is not None and (window.dim() != 1 or window.shape[0] != width):
        raise refuse(
            f"expected a 1D window tensor of size equal to win_length={width}, but got window with "
            f"size {list(window.shape)}"
        )
    pieces = _frames(rows, n_fft, hop, window, width, not align if align is not None else True)
    one = not pieces.dtype.is_complex if onesided is None else onesided
    code = 1 if normalized else 0
    if pieces.dtype.is_complex:
        if one:
            raise RuntimeError("Cannot have onesided output if window or input is complex")
        made = aten._fft_c2c(pieces, [2], code, True)
    else:
        made = aten._fft_r2c(pieces, [2], code, one)
    made = aten.transpose(made, 1, 2)
    made = aten.squeeze(made, 0) if x.dim() == 1 else made
    if as_complex:
        return made
    warnings.warn(
        "stft with return_complex=False is deprecated. In a future pytorch release, stft will "
        "return complex tensors for all inputs, and return_complex=False will raise an error.\n"
        "Note: you can still call torch.view_as_real on the complex output to recover the old "
        "return format.",
        UserWarning,
        stacklevel=4,
    )
    return aten.view_as_real(made)


_WINDOWED = "int n_fft, int? hop_length=None, int? win_length=None, Tensor? window=None"
_SHOWN = (
    "bool normalized=False, bool? onesided=None, bool? return_complex=None, "
    "bool? align_to_window=None"
)


class StftCenter(Composite):
    """The short-time transform, frames centred on their times (the signal padded) or not."""

    schema = (
        f'stft.center(Tensor self, {_WINDOWED}, bool center=True, str pad_mode="reflect", '
        f"{_SHOWN}) -> Tensor"
    )

    def decompose(
        x: Tensor, n_fft: int, hop: Any, width: Any, window: Any, center: bool, pad_mode: str,
        normalized: bool, onesided: Any, as_complex: Any, align: Any,
    ) -> Any:  # fmt: skip
        if center:
            if align is not None:
                raise RuntimeError("stft align_to_window should only be set when center = false")
            shape = list(x.shape)
            wide = aten.view(x, [1] * (3 - x.dim()) + shape)
            half = n_fft // 2
            if half > 0:
                wide = aten.pad(wide, [half, half], pad_mode)
            x = aten.view(wide, [*shape[:-1], wide.shape[-1]])
        return stft(x, n_fft, hop, width, window, normalized, onesided, as_complex, align)


class Stft(Composite):
    """The short-time transform of the signal as it is."""

    schema = f"stft(Tensor self, {_WINDOWED}, {_SHOWN}) -> Tensor"

    def decompose(
        x: Tensor, n_fft: int, hop: Any, width: Any, window: Any, normalized: bool, onesided: Any,
        as_complex: Any, align: Any,
    ) -> Any:  # fmt: skip
        return stft(x, n_fft, hop, width, window, normalized, onesided, as_complex, align)


def _added(pieces: Tensor, length: int, hop: int) -> Tensor:
    """Overlapping pieces (batch, frames, n) summed into (batch, length)."""
    size = pieces.shape[2]
    return aten.unfold_backward(pieces, (pieces.shape[0], length), 1, size, hop)


class Istft(Composite):
    """The signal whose short-time transform is nearest: overlapping frames, over the sum of the
    squared windows."""

    schema = (
        f"istft(Tensor self, {_WINDOWED}, bool center=True, bool normalized=False, "
        "bool? onesided=None, int? length=None, bool return_complex=False) -> Tensor"
    )

    def decompose(
        x: Tensor, n_fft: int, hop: Any, width: Any, window: Any, center: bool, normalized: bool,
        onesided: Any, length: Any, as_complex: bool,
    ) -> Any:  # fmt: skip
        hop = n_fft // 4 if hop is None else hop
        width = n_fft if width is None else width

        def refuse(what: str) -> RuntimeError:
            kind = f"CPU{dt.scalar_name(x.dtype)}Type"
            return RuntimeError(
                _told(
                    "istft", x, kind, n_fft=n_fft, hop_length=hop, win_length=width, window=window,
                    center=center, normalized=normalized, onesided=onesided, length=length,
                    return_complex=as_complex,
                ) + what
            )  # fmt: skip

        if not x.dtype.is_complex:
            raise RuntimeError(
                "istft requires a complex-valued input tensor matching the output from stft with "
                "return_complex=True."
            )
        frames = x.shape[-1]
        one = x.shape[-2] != n_fft if onesided is None else onesided
        _check_istft(x, n_fft, hop, width, window, one, refuse)
        real = dt.REAL_OF[x.dtype]
        w = aten.ones((width,), dtype=real, device=x.device) if window is None else window
        if width != n_fft:
            left = (n_fft - width) // 2
            w = aten.constant_pad_nd(w, [left, n_fft - width - left])
        rows = aten.transpose(x if x.dim() == 3 else aten.unsqueeze(x, 0), 1, 2)
        code = 1 if normalized else 2
        if as_complex:
            if one:
                raise RuntimeError("Cannot have onesided output if window or input is complex")
            pieces = aten._fft_c2c(rows, [2], code, False)
        else:
            if window is not None and window.dtype.is_complex:
                raise RuntimeError("Complex windows are incompatible with return_complex=False")
            half = rows if one else aten.slice(rows, 2, 0, n_fft // 2 + 1)
            pieces = aten._fft_c2r(half, [2], code, n_fft)
        pieces = aten.mul(pieces, w)
        total = n_fft + hop * (frames - 1)
        signal = _added(pieces, total, hop)
        squares = aten.expand(aten.pow(w, 2), (1, frames, n_fft))
        envelope = _added(aten.contiguous(squares), total, hop)
        start = n_fft // 2 if center else 0
        end = start + length if length is not None else total - n_fft // 2 if center else total
        signal = aten.slice(signal, 1, start, min(end, total))
        envelope = aten.slice(envelope, 1, start, min(end, total))
        told = " window overlap add min: 1\n[ CPUBoolType{} ]"
        hold(aten.min(aten.abs(envelope)) > 1e-11, lambda: str(refuse(told)))
        signal = aten.div(signal, envelope)
        if end > total:
            warnings.warn(
                "The length of signal is shorter than the length parameter. Result is being padded "
                "with zeros in the tail. Please check your center and hop_length settings.",
                UserWarning,
                stacklevel=4,
            )
            signal = aten.constant_pad_nd(signal, [0, end - total])
        return signal if x.dim() == 3 else aten.squeeze(signal, 0)


def _check_istft(
    x: Tensor, n_fft: int, hop: int, width: int, window: Any, one: bool, refuse: Any
) -> None:
    if not x.numel():
        raise refuse(" : input tensor cannot be empty.")
    if x.dim() not in (2, 3):
        raise refuse(
            f" : expected a tensor with 3 or 4 dimensions (view_as_real), but got {x.dim() + 1}"
        )
    expected = n_fft // 2 + 1 if one else n_fft
    if x.shape[-2] != expected:
        raise refuse(
            " : expected the frequency dimension (3rd to the last) of the input tensor to match "
            f"n_fft{' / 2 + 1' if one else ''} when onesided={one}, but got {x.shape[-2]}"
        )
    if not 0 < hop <= width:
        raise refuse(" : expected 0 < hop_length <= win_length")
    if not 0 < width <= n_fft:
        raise refuse(" : expected 0 < win_length <= n_fft")
    if window is not None and (window.dim() != 1 or window.shape[0] != width):
        raise refuse(" : Invalid window shape. window has to be 1D and length of `win_length`")
    if window is None:
        warnings.warn(
            "A window was not provided. A rectangular window will be applied.Please provide the "
            "same window used by stft to make the inversion lossless.To suppress this warning and "
            "use a rectangular window, explicitly set `window=torch.ones(n_fft, device=<device>)`.",
            UserWarning,
            stacklevel=5,
        )
