"""Recurrent networks as compositions of operators.

`params` of a stack lists for each layer and direction w_ih, w_hh, with biases b_ih, b_hh, and with
a projection w_hr. Gates are in PyTorch's order: LSTM input, forget, cell, output; GRU reset,
update, new.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import flambeau as torch
from flambeau import Tensor, _nn
from flambeau.overrides import handle_torch_function, has_torch_function

from .dropout import dropout as _dropout


class _Params(NamedTuple):
    """The weights of one layer and direction."""

    w_ih: Tensor
    w_hh: Tensor
    b_ih: Tensor | None
    b_hh: Tensor | None
    w_hr: Tensor | None


def _rnn_step(activation: Callable[[Tensor], Tensor]) -> Callable[..., Tensor]:
    def step(from_input: Tensor, h: Tensor, p: _Params) -> Tensor:
        return activation(_nn.linear(h, p.w_hh, p.b_hh) + from_input)

    return step


def _lstm_step(from_input: Tensor, state: Any, p: _Params) -> tuple[Tensor, Tensor]:
    h, c = state
    gates = _nn.linear(h, p.w_hh, p.b_hh) + from_input
    i, f, g, o = gates.chunk(4, 1)
    c = f.sigmoid() * c + i.sigmoid() * g.tanh()
    h = o.sigmoid() * c.tanh()
    return (h if p.w_hr is None else torch.matmul(h, p.w_hr.t())), c


def _gru_step(from_input: Tensor, h: Tensor, p: _Params) -> Tensor:
    i_r, i_z, i_n = from_input.chunk(3, 1)
    h_r, h_z, h_n = _nn.linear(h, p.w_hh, p.b_hh).chunk(3, 1)
    reset = (h_r + i_r).sigmoid()
    update = (h_z + i_z).sigmoid()
    new = (i_n + h_n * reset).tanh()
    return (h - new) * update + new


def _output(state: Any) -> Tensor:
    return state[0] if isinstance(state, tuple) else state


def _map(fn: Callable[..., Tensor], *states: Any) -> Any:
    """Apply to h, or to h and c."""
    if isinstance(states[0], tuple):
        return tuple(fn(*parts) for parts in zip(*states, strict=True))
    return fn(*states)


def _scan(step: Any, x: Tensor, state: Any, p: _Params, reverse: bool) -> tuple[Tensor, Any]:
    """One layer in one direction over (T, N, *); the outputs and the last state."""
    steps = _nn.linear(x, p.w_ih, p.b_ih).unbind(0)
    outputs = []
    for from_input in reversed(steps) if reverse else steps:
        state = step(from_input, state, p)
        outputs.append(_output(state))
    if reverse:
        outputs.reverse()
    return torch.stack(outputs, 0), state


def _scan_packed(
    step: Any, data: Tensor, sizes: Sequence[int], state: Any, p: _Params, reverse: bool
) -> tuple[Tensor, Any]:
    """The same over packed sequences: step t has the first sizes[t] sequences."""
    steps = _nn.linear(data, p.w_ih, p.b_ih).split(list(sizes))
    outputs = []
    if reverse:
        initial = state
        state = _map(lambda s: s.narrow(0, 0, sizes[-1]), initial)
        for t in range(len(sizes) - 1, -1, -1):
            have = _output(state).size(0)
            if sizes[t] > have:  # shorter sequences begin here
                begun = _map(lambda s, n=sizes[t], h=have: s.narrow(0, h, n - h), initial)
                state = _map(lambda a, b: torch.cat([a, b], 0), state, begun)
            state = step(steps[t], state, p)
            outputs.append(_output(state))
        outputs.reverse()
        return torch.cat(outputs, 0), state
    ended = []
    for t, size in enumerate(sizes):
        have = _output(state).size(0)
        if size < have:  # shorter sequences have ended
            ended.append(_map(lambda s, n=size, h=have: s.narrow(0, n, h - n), state))
            state = _map(lambda s, n=size: s.narrow(0, 0, n), state)
        state = step(steps[t], state, p)
        outputs.append(_output(state))
    for last in reversed(ended):
        state = _map(lambda a, b: torch.cat([a, b], 0), state, last)
    return torch.cat(outputs, 0), state


def _unflatten(params: Sequence[Tensor], biases: bool, projection: bool) -> list[_Params]:
    size = 2 + 2 * biases + projection
    result = []
    for i in range(0, len(params), size):
        group = list(params[i : i + size])
        w_hr = group.pop() if projection else None
        b_ih, b_hh = group[2:] if biases else (None, None)
        result.append(_Params(group[0], group[1], b_ih, b_hh, w_hr))
    return result


def _stack(
    scan: Callable[[Tensor, Any, _Params, bool], tuple[Tensor, Any]],
    x: Tensor,
    states: list[Any],
    params: list[_Params],
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
) -> tuple[Tensor, list[Any]]:
    """All layers, with dropout in between; the last layer's outputs and all last states."""
    directions = 2 if bidirectional else 1
    last = []
    for layer in range(num_layers):
        outputs = []
        for direction in range(directions):
            place = layer * directions + direction
            out, state = scan(x, states[place], params[place], direction == 1)
            outputs.append(out)
            last.append(state)
        x = outputs[0] if directions == 1 else torch.cat(outputs, -1)
        if dropout != 0 and train and layer < num_layers - 1:
            x = _dropout(x, dropout, True)
    return x, last


def _recur(
    step: Any,
    x: Tensor,
    batch_sizes: Tensor | None,
    states: list[Any],
    params: list[_Params],
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
) -> tuple[Tensor, list[Any]]:
    if batch_sizes is None:
        if batch_first:
            x = x.transpose(0, 1)

        def scan(x: Tensor, state: Any, p: _Params, reverse: bool) -> tuple[Tensor, Any]:
            return _scan(step, x, state, p, reverse)

    else:
        sizes = batch_sizes.tolist()

        def scan(x: Tensor, state: Any, p: _Params, reverse: bool) -> tuple[Tensor, Any]:
            return _scan_packed(step, x, sizes, state, p, reverse)

    out, last = _stack(scan, x, states, params, num_layers, dropout, train, bidirectional)
    if batch_sizes is None and batch_first:
        out = out.transpose(0, 1)
    return out, last


def lstm(
    input: Tensor,
    batch_sizes: Tensor | None,
    hx: tuple[Tensor, Tensor],
    params: Sequence[Tensor],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """An LSTM stack on (T, N, I), or packed (total, I) with `batch_sizes`: output, h, c."""
    given = (input, *hx, *params)
    if has_torch_function(given):
        return handle_torch_function(  # type: ignore[no-any-return]
            lstm, given, input, batch_sizes, hx, params, has_biases, num_layers, dropout, train,
            bidirectional, batch_first,
        )  # fmt: skip
    h0, c0 = hx
    projection = h0.size(2) != c0.size(2)
    cells = _unflatten(params, has_biases, projection)
    states = list(zip(h0.unbind(0), c0.unbind(0), strict=True))
    out, last = _recur(
        _lstm_step,
        input,
        batch_sizes,
        states,
        cells,
        num_layers,
        dropout,
        train,
        bidirectional,
        batch_first,
    )
    return out, torch.stack([h for h, _ in last], 0), torch.stack([c for _, c in last], 0)


_STEPS = {
    "GRU": _gru_step,
    "RNN_TANH": _rnn_step(torch.tanh),
    "RNN_RELU": _rnn_step(torch.relu),
}


def rnn(
    mode: str,
    input: Tensor,
    batch_sizes: Tensor | None,
    hx: Tensor,
    params: Sequence[Tensor],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
) -> tuple[Tensor, Tensor]:
    """A stack of mode "GRU", "RNN_TANH" or "RNN_RELU": output and last states."""
    given = (input, hx, *params)
    if has_torch_function(given):
        return handle_torch_function(  # type: ignore[no-any-return]
            rnn, given, mode, input, batch_sizes, hx, params, has_biases, num_layers, dropout,
            train, bidirectional, batch_first,
        )  # fmt: skip
    cells = _unflatten(params, has_biases, False)
    out, last = _recur(
        _STEPS[mode],
        input,
        batch_sizes,
        list(hx.unbind(0)),
        cells,
        num_layers,
        dropout,
        train,
        bidirectional,
        batch_first,
    )
    return out, torch.stack(last, 0)


def cell(
    mode: str,
    input: Tensor,
    hx: Any,
    w_ih: Tensor,
    w_hh: Tensor,
    b_ih: Tensor | None,
    b_hh: Tensor | None,
) -> Any:
    """One step of "LSTM" (h and c), "GRU", "RNN_TANH" or "RNN_RELU" on (N, I)."""
    if input.size(1) != w_ih.size(1):
        raise RuntimeError(
            f"input has inconsistent input_size: got {input.size(1)} expected {w_ih.size(1)}"
        )
    for i, state in enumerate(hx if isinstance(hx, tuple) else (hx,)):
        if input.size(0) != state.size(0):
            raise RuntimeError(
                f"Input batch size {input.size(0)} doesn't match hidden{i} batch size"
                f" {state.size(0)}"
            )
        if state.size(1) != w_hh.size(1):
            raise RuntimeError(
                f"hidden{i} has inconsistent hidden_size: got {state.size(1)},"
                f" expected {w_hh.size(1)}"
            )
    step: Any = _lstm_step if mode == "LSTM" else _STEPS[mode]
    return step(_nn.linear(input, w_ih, b_ih), hx, _Params(w_ih, w_hh, b_ih, b_hh, None))
