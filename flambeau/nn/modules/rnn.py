"""Recurrent networks: stacks over sequences, and single cells."""

from __future__ import annotations

import math
import numbers
import warnings
import weakref
from collections.abc import Callable
from typing import Any

import flambeau as torch
from flambeau import Tensor

from .. import init
from .._functional import recurrent
from ..parameter import Parameter
from ..utils.rnn import PackedSequence
from .module import Module

__all__ = [
    "RNNBase",
    "RNN",
    "LSTM",
    "GRU",
    "RNNCellBase",
    "RNNCell",
    "LSTMCell",
    "GRUCell",
]

_GATES = {"LSTM": 4, "GRU": 3, "RNN_TANH": 1, "RNN_RELU": 1}


def _apply_permutation(tensor: Tensor, permutation: Tensor, dim: int = 1) -> Tensor:
    return tensor.index_select(dim, permutation)


def apply_permutation(tensor: Tensor, permutation: Tensor, dim: int = 1) -> Tensor:
    """Deprecated: `tensor.index_select(dim, permutation)`."""
    warnings.warn(
        "`apply_permutation` is deprecated, please use "
        "`tensor.index_select(dim, permutation)` instead",
        FutureWarning,
        stacklevel=2,
    )
    return _apply_permutation(tensor, permutation, dim)


def _check_sizes(
    input_size: Any, hidden_size: Any, num_layers: int, batch_first: Any, dropout: Any,
    proj_size: int, bias: Any,
) -> None:  # fmt: skip
    if (
        not isinstance(dropout, numbers.Number)
        or not 0 <= dropout <= 1  # type: ignore[operator]
        or isinstance(dropout, bool)
    ):
        raise ValueError(
            "dropout should be a number in range [0, 1] "
            "representing the probability of an element being "
            "zeroed"
        )
    if dropout > 0 and num_layers == 1:  # type: ignore[operator]
        warnings.warn(
            "dropout option adds dropout after all but last "
            "recurrent layer, so non-zero dropout expects "
            f"num_layers greater than 1, but got dropout={dropout} and "
            f"num_layers={num_layers}",
            stacklevel=4,
        )
    if not isinstance(batch_first, bool):
        raise TypeError(f"batch_first should be of type bool, got: {type(batch_first).__name__}")
    for name, size in (("input_size", input_size), ("hidden_size", hidden_size)):
        if not isinstance(size, int):
            raise TypeError(f"{name} should be of type int, got: {type(size).__name__}")
        if size <= 0:
            raise ValueError(f"{name} must be greater than zero")
    if num_layers <= 0:
        raise ValueError("num_layers must be greater than zero")
    if proj_size < 0:
        raise ValueError("proj_size should be a positive integer or zero to disable projections")
    if proj_size >= hidden_size:
        raise ValueError("proj_size has to be smaller than hidden_size")


class RNNBase(Module):
    """What RNN, LSTM and GRU have in common: the weights, their names and checks."""

    __constants__ = [
        "mode",
        "input_size",
        "hidden_size",
        "num_layers",
        "bias",
        "batch_first",
        "dropout",
        "bidirectional",
        "proj_size",
    ]
    __jit_unused_properties__ = ["all_weights"]
    mode: str
    input_size: int
    hidden_size: int
    num_layers: int
    bias: bool
    batch_first: bool
    dropout: float
    bidirectional: bool
    proj_size: int

    def __init__(
        self,
        mode: str,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        proj_size: int = 0,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        self.mode = mode
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.num_layers = num_layers
        if not isinstance(bias, bool):
            raise TypeError(f"bias should be of type bool, got: {type(bias).__name__}")
        self.bias = bias
        self.batch_first = batch_first
        self.dropout = float(dropout)
        self.bidirectional = bidirectional
        self.proj_size = proj_size
        _check_sizes(input_size, hidden_size, num_layers, batch_first, dropout, proj_size, bias)
        self._flat_weight_refs: list[Any] = []
        if mode not in _GATES:
            raise ValueError("Unrecognized RNN mode: " + mode)
        gate_size = _GATES[mode] * hidden_size
        directions = 2 if bidirectional else 1
        self._flat_weights_names: list[str] = []
        self._all_weights: list[list[str]] = []
        for layer in range(num_layers):
            for direction in range(directions):
                outer = proj_size if proj_size > 0 else hidden_size
                layer_input = input_size if layer == 0 else outer * directions
                shapes = {"weight_ih": (gate_size, layer_input), "weight_hh": (gate_size, outer)}
                if bias:
                    shapes |= {"bias_ih": (gate_size,), "bias_hh": (gate_size,)}
                if proj_size > 0:
                    shapes["weight_hr"] = (proj_size, hidden_size)
                suffix = f"_l{layer}" + ("_reverse" if direction == 1 else "")
                names = [kind + suffix for kind in shapes]
                for name, shape in zip(names, shapes.values(), strict=True):
                    weight = torch.empty(shape, device=device, dtype=dtype)
                    setattr(self, name, Parameter(weight))
                self._flat_weights_names.extend(names)
                self._all_weights.append(names)
        self._init_flat_weights()
        self.reset_parameters()

    def _init_flat_weights(self) -> None:
        self._flat_weights = [getattr(self, name, None) for name in self._flat_weights_names]
        self._flat_weight_refs = [
            weakref.ref(w) if w is not None else None for w in self._flat_weights
        ]
        self.flatten_parameters()

    def __setattr__(self, attr: str, value: Any) -> None:
        names = self.__dict__.get("_flat_weights_names")
        if names is not None and attr in names and "_flat_weights" in self.__dict__:
            self._flat_weights[names.index(attr)] = value
        super().__setattr__(attr, value)

    def flatten_parameters(self) -> None:
        """Put the weights into one block, where a device's library wants it; none does here."""

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Any:
        self._flat_weight_refs = []
        result = super()._apply(fn, recurse)
        self._init_flat_weights()
        return result

    def reset_parameters(self) -> None:
        """Draw all weights from U(-k, k), k = 1 / sqrt(hidden_size)."""
        bound = 1.0 / math.sqrt(self.hidden_size) if self.hidden_size > 0 else 0
        for weight in self.parameters():
            init.uniform_(weight, -bound, bound)

    def check_input(self, input: Tensor, batch_sizes: Tensor | None) -> None:
        weight = self._flat_weights[0]
        if input.dtype != weight.dtype and not torch.is_autocast_enabled(input.device.type):
            raise ValueError(
                f"RNN input dtype ({input.dtype}) does not match weight dtype ({weight.dtype}). "
                f"Convert input: input.to({weight.dtype}), or convert model:"
                f" model.to({input.dtype})"
            )
        expected = 2 if batch_sizes is not None else 3
        if input.dim() != expected:
            raise RuntimeError(f"input must have {expected} dimensions, got {input.dim()}")
        if self.input_size != input.size(-1):
            raise RuntimeError(
                "input.size(-1) must be equal to input_size. "
                f"Expected {self.input_size}, got {input.size(-1)}"
            )

    def get_expected_hidden_size(
        self, input: Tensor, batch_sizes: Tensor | None
    ) -> tuple[int, int, int]:
        if batch_sizes is not None:
            batch = int(batch_sizes[0])
        else:
            batch = input.size(0) if self.batch_first else input.size(1)
        directions = 2 if self.bidirectional else 1
        size = self.proj_size if self.proj_size > 0 else self.hidden_size
        return self.num_layers * directions, batch, size

    def check_hidden_size(
        self,
        hx: Tensor,
        expected_hidden_size: tuple[int, int, int],
        msg: str = "Expected hidden size {}, got {}",
    ) -> None:
        if hx.size() != expected_hidden_size:
            raise RuntimeError(msg.format(expected_hidden_size, list(hx.size())))

    def _weights_have_changed(self) -> bool:
        """Whether an attribute is another tensor than when the list was made."""
        for ref, name in zip(self._flat_weight_refs, self._flat_weights_names, strict=False):
            weight = getattr(self, name, None)
            if weight is not None and ref is not None and ref() is not weight:
                return True
        return False

    def check_forward_args(self, input: Tensor, hidden: Any, batch_sizes: Tensor | None) -> None:
        self.check_input(input, batch_sizes)
        self.check_hidden_size(hidden, self.get_expected_hidden_size(input, batch_sizes))

    def permute_hidden(self, hx: Any, permutation: Tensor | None) -> Any:
        return hx if permutation is None else _apply_permutation(hx, permutation)

    def extra_repr(self) -> str:
        parts = [f"{self.input_size}, {self.hidden_size}"]
        for name, default in (
            ("proj_size", 0),
            ("num_layers", 1),
            ("bias", True),
            ("batch_first", False),
            ("dropout", 0),
            ("bidirectional", False),
        ):
            value = getattr(self, name)
            if value != default:
                parts.append(f"{name}={value}")
        return ", ".join(parts)

    def _update_flat_weights(self) -> None:
        if self._weights_have_changed():
            self._init_flat_weights()

    def __getstate__(self) -> dict[str, Any]:
        # The list of references is made again.
        self._update_flat_weights()
        state = super().__getstate__()
        state.pop("_flat_weight_refs", None)
        return state

    def __setstate__(self, d: dict[str, Any]) -> None:
        super().__setstate__(d)
        if "all_weights" in d:
            self._all_weights = d["all_weights"]
        self.__dict__.setdefault("proj_size", 0)  # checkpoints of version 1.7
        if "_flat_weights_names" not in self.__dict__:
            self._flat_weights_names = [name for names in self._all_weights for name in names]
        weights = [getattr(self, name, None) for name in self._flat_weights_names]
        self.__dict__["_flat_weights"] = weights
        self.__dict__["_flat_weight_refs"] = [
            weakref.ref(w) if w is not None else None for w in weights
        ]

    @property
    def all_weights(self) -> list[list[Parameter]]:
        """The weights of each layer and direction."""
        return [[getattr(self, name) for name in names] for names in self._all_weights]

    def _replicate_for_data_parallel(self) -> Any:
        replica = super()._replicate_for_data_parallel()
        replica._flat_weights = replica._flat_weights[:]
        replica._flat_weights_names = replica._flat_weights_names[:]
        return replica

    def _run(self, data: Tensor, batch_sizes: Tensor | None, hx: Any) -> Any:
        stack = (
            self._flat_weights,
            self.bias,
            self.num_layers,
            self.dropout,
            self.training,
            self.bidirectional,
            self.batch_first,
        )
        if self.mode == "LSTM":
            return recurrent.lstm(data, batch_sizes, hx, *stack)
        return recurrent.rnn(self.mode, data, batch_sizes, hx, *stack)

    def _zero_state(self, data: Tensor, batch: int, size: int) -> Tensor:
        directions = 2 if self.bidirectional else 1
        shape = (self.num_layers * directions, batch, size)
        return torch.zeros(shape, dtype=data.dtype, device=data.device)

    def _forward(self, input: Any, hx: Any) -> tuple[Any, Any]:
        """A network with one state (not an LSTM): unpack, check, run, pack."""
        name = "RNN" if self.mode.startswith("RNN") else self.mode
        self._update_flat_weights()
        packed = isinstance(input, PackedSequence)
        batched = True
        batch_sizes = sorted_indices = unsorted_indices = None
        if packed:
            data, batch_sizes, sorted_indices, unsorted_indices = input
            batch = int(batch_sizes[0])
        else:
            data, hx, batched = self._batched(name, input, hx)
            batch = data.size(0) if self.batch_first else data.size(1)
        if hx is None:
            hx = self._zero_state(data, batch, self.hidden_size)
        else:
            hx = self.permute_hidden(hx, sorted_indices)
        self.check_forward_args(data, hx, batch_sizes)
        output, hidden = self._run(data, batch_sizes, hx)
        if packed:
            out = PackedSequence(output, batch_sizes, sorted_indices, unsorted_indices)
            return out, self.permute_hidden(hidden, unsorted_indices)
        if not batched:
            return output.squeeze(0 if self.batch_first else 1), hidden.squeeze(1)
        return output, self.permute_hidden(hidden, unsorted_indices)

    def _batched(self, name: str, input: Tensor, hx: Any) -> tuple[Tensor, Any, bool]:
        """A (T, I) input and its state with a batch dimension; whether it had one."""
        if input.dim() not in (2, 3):
            tensor = " tensor" if name == "RNN" else ""
            raise ValueError(
                f"{name}: Expected input to be 2D or 3D, got {input.dim()}D{tensor} instead"
            )
        batched = input.dim() == 3
        if not batched:
            input = input.unsqueeze(0 if self.batch_first else 1)
        if hx is not None:
            if batched and hx.dim() != 3:
                raise RuntimeError(
                    f"For batched 3-D input, hx should also be 3-D but got {hx.dim()}-D tensor"
                )
            if not batched:
                if hx.dim() != 2:
                    raise RuntimeError(
                        "For unbatched 2-D input, hx should also be 2-D but got"
                        f" {hx.dim()}-D tensor"
                    )
                hx = hx.unsqueeze(1)
        return input, hx, batched


class RNN(RNNBase):
    """h' = tanh(W_ih x + b_ih + W_hh h + b_hh), or with relu, over a sequence.

    Args:
        input_size, hidden_size: of x and h.
        num_layers: stacked, each on the last one's outputs.
        nonlinearity: "tanh" or "relu".
        bias: whether there are b_ih and b_hh.
        batch_first: (N, T, I) instead of (T, N, I).
        dropout: of the outputs of all layers but the last.
        bidirectional: a second network backwards; outputs are joined.

    Call with the input (T, N, I), (T, I) or a PackedSequence, and h (layers * directions, N, H).
    Returns the outputs (T, N, directions * H) and the last h.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if "proj_size" in kwargs:
            raise ValueError("proj_size argument is only supported for LSTM, not RNN or GRU")
        if len(args) > 3:
            self.nonlinearity = args[3]
            args = args[:3] + args[4:]
        else:
            self.nonlinearity = kwargs.pop("nonlinearity", "tanh")
        if self.nonlinearity not in ("tanh", "relu"):
            raise ValueError(
                f"Unknown nonlinearity '{self.nonlinearity}'. Select from 'tanh' or 'relu'."
            )
        super().__init__(f"RNN_{self.nonlinearity.upper()}", *args, **kwargs)

    def forward(self, input: Any, hx: Tensor | None = None) -> tuple[Any, Tensor]:
        return self._forward(input, hx)


class GRU(RNNBase):
    """Gated recurrent units (Cho et al. 2014); arguments and call as `RNN`.

    r, z = sigmoid gates; n = tanh(W_in x + b_in + r (W_hn h + b_hn)); h' = (1 - z) n + z h.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if "proj_size" in kwargs:
            raise ValueError("proj_size argument is only supported for LSTM, not RNN or GRU")
        super().__init__("GRU", *args, **kwargs)

    def forward(self, input: Any, hx: Tensor | None = None) -> tuple[Any, Tensor]:
        return self._forward(input, hx)


class LSTM(RNNBase):
    """Long short-term memory (Hochreiter and Schmidhuber 1997); arguments as `RNN`.

    i, f, o = sigmoid gates, g = tanh gate; c' = f c + i g; h' = o tanh(c'). With `proj_size` the
    output is W_hr h' (Sak et al. 2014). The state is the pair (h, c).
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__("LSTM", *args, **kwargs)

    def get_expected_cell_size(
        self, input: Tensor, batch_sizes: Tensor | None
    ) -> tuple[int, int, int]:
        layers, batch, _ = self.get_expected_hidden_size(input, batch_sizes)
        return layers, batch, self.hidden_size

    def check_forward_args(self, input: Tensor, hidden: Any, batch_sizes: Tensor | None) -> None:
        self.check_input(input, batch_sizes)
        self.check_hidden_size(
            hidden[0],
            self.get_expected_hidden_size(input, batch_sizes),
            "Expected hidden[0] size {}, got {}",
        )
        self.check_hidden_size(
            hidden[1],
            self.get_expected_cell_size(input, batch_sizes),
            "Expected hidden[1] size {}, got {}",
        )

    def permute_hidden(self, hx: Any, permutation: Tensor | None) -> Any:
        if permutation is None:
            return hx
        return _apply_permutation(hx[0], permutation), _apply_permutation(hx[1], permutation)

    def _batched(self, name: str, input: Tensor, hx: Any) -> tuple[Tensor, Any, bool]:
        if input.dim() not in (2, 3):
            raise ValueError(f"{name}: Expected input to be 2D or 3D, got {input.dim()}D instead")
        batched = input.dim() == 3
        if not batched:
            input = input.unsqueeze(0 if self.batch_first else 1)
        if hx is not None:
            n = 3 if batched else 2
            if hx[0].dim() != n or hx[1].dim() != n:
                kind = "batched" if batched else "unbatched"
                raise RuntimeError(
                    f"For {kind} {n}-D input, hx and cx should "
                    f"also be {n}-D but got ({hx[0].dim()}-D, {hx[1].dim()}-D) tensors"
                )
            if not batched:
                hx = (hx[0].unsqueeze(1), hx[1].unsqueeze(1))
        return input, hx, batched

    def forward(self, input: Any, hx: Any = None) -> tuple[Any, tuple[Tensor, Tensor]]:
        self._update_flat_weights()
        packed = isinstance(input, PackedSequence)
        batched = True
        batch_sizes = sorted_indices = unsorted_indices = None
        if packed:
            data, batch_sizes, sorted_indices, unsorted_indices = input
            batch = int(batch_sizes[0])
        else:
            data, hx, batched = self._batched("LSTM", input, hx)
            batch = data.size(0) if self.batch_first else data.size(1)
        if hx is None:
            h_size = self.proj_size if self.proj_size > 0 else self.hidden_size
            hx = (
                self._zero_state(data, batch, h_size),
                self._zero_state(data, batch, self.hidden_size),
            )
        else:
            hx = self.permute_hidden(hx, sorted_indices)
        self.check_forward_args(data, hx, batch_sizes)
        output, h, c = self._run(data, batch_sizes, hx)
        if packed:
            out = PackedSequence(output, batch_sizes, sorted_indices, unsorted_indices)
            return out, self.permute_hidden((h, c), unsorted_indices)
        if not batched:
            return output.squeeze(0 if self.batch_first else 1), (h.squeeze(1), c.squeeze(1))
        return output, self.permute_hidden((h, c), unsorted_indices)


class RNNCellBase(Module):
    """The weights of a single step."""

    __constants__ = ["input_size", "hidden_size", "bias"]
    input_size: int
    hidden_size: int
    bias: bool
    weight_ih: Tensor
    weight_hh: Tensor

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool,
        num_chunks: int,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.bias = bias

        def parameter(*shape: int) -> Parameter:
            return Parameter(torch.empty(shape, device=device, dtype=dtype))

        self.weight_ih = parameter(num_chunks * hidden_size, input_size)
        self.weight_hh = parameter(num_chunks * hidden_size, hidden_size)
        if bias:
            self.bias_ih = parameter(num_chunks * hidden_size)
            self.bias_hh = parameter(num_chunks * hidden_size)
        else:
            self.register_parameter("bias_ih", None)
            self.register_parameter("bias_hh", None)
        self.reset_parameters()

    def extra_repr(self) -> str:
        parts = [f"{self.input_size}, {self.hidden_size}"]
        if "bias" in self.__dict__ and self.bias is not True:
            parts.append(f"bias={self.bias}")
        nonlinearity = self.__dict__.get("nonlinearity", "tanh")
        if nonlinearity != "tanh":
            parts.append(f"nonlinearity={nonlinearity}")
        return ", ".join(parts)

    def reset_parameters(self) -> None:
        """Draw all weights from U(-k, k), k = 1 / sqrt(hidden_size)."""
        bound = 1.0 / math.sqrt(self.hidden_size) if self.hidden_size > 0 else 0
        for weight in self.parameters():
            init.uniform_(weight, -bound, bound)

    def _check(self, input: Tensor, states: tuple[Any, ...]) -> None:
        name = type(self).__name__
        if input.dim() not in (1, 2):
            raise ValueError(f"{name}: Expected input to be 1D or 2D, got {input.dim()}D instead")
        for idx, state in enumerate(states):
            if state is not None and state.dim() not in (1, 2):
                which = f"hx[{idx}]" if len(states) > 1 else "hidden"
                raise ValueError(
                    f"{name}: Expected {which} to be 1D or 2D, got {state.dim()}D instead"
                )

    def _step(self, mode: str, input: Tensor, hx: Any) -> Any:
        biases = self.bias_ih, self.bias_hh
        return recurrent.cell(mode, input, hx, self.weight_ih, self.weight_hh, *biases)

    def _single_state(self, mode: str, input: Tensor, hx: Tensor | None) -> Tensor:
        self._check(input, (hx,))
        batched = input.dim() == 2
        if not batched:
            input = input.unsqueeze(0)
        if hx is None:
            shape = (input.size(0), self.hidden_size)
            hx = torch.zeros(shape, dtype=input.dtype, device=input.device)
        elif not batched:
            hx = hx.unsqueeze(0)
        out = self._step(mode, input, hx)
        return out if batched else out.squeeze(0)


class RNNCell(RNNCellBase):
    """One step h' = tanh(W_ih x + b_ih + W_hh h + b_hh), or with relu.

    Call with x (N, I) or (I,), and h (N, H) or (H,), zeros by default.
    """

    __constants__ = ["input_size", "hidden_size", "bias", "nonlinearity"]
    nonlinearity: str

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        nonlinearity: str = "tanh",
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(input_size, hidden_size, bias, num_chunks=1, device=device, dtype=dtype)
        self.nonlinearity = nonlinearity

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        if self.nonlinearity not in ("tanh", "relu"):
            self._check(input, (hx,))
            raise RuntimeError(f"Unknown nonlinearity: {self.nonlinearity}")
        return self._single_state(f"RNN_{self.nonlinearity.upper()}", input, hx)


class LSTMCell(RNNCellBase):
    """One step of an `LSTM`: x (N, I) or (I,) and the pair (h, c), to the new pair."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(input_size, hidden_size, bias, num_chunks=4, device=device, dtype=dtype)

    def forward(
        self, input: Tensor, hx: tuple[Tensor, Tensor] | None = None
    ) -> tuple[Tensor, Tensor]:
        self._check(input, (None, None) if hx is None else tuple(hx))
        batched = input.dim() == 2
        if not batched:
            input = input.unsqueeze(0)
        if hx is None:
            shape = (input.size(0), self.hidden_size)
            zeros = torch.zeros(shape, dtype=input.dtype, device=input.device)
            hx = (zeros, zeros)
        elif not batched:
            hx = (hx[0].unsqueeze(0), hx[1].unsqueeze(0))
        h, c = self._step("LSTM", input, hx)
        return (h, c) if batched else (h.squeeze(0), c.squeeze(0))


class GRUCell(RNNCellBase):
    """One step of a `GRU`: x (N, I) or (I,) and h (N, H) or (H,), to the new h."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(input_size, hidden_size, bias, num_chunks=3, device=device, dtype=dtype)

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        return self._single_state("GRU", input, hx)
