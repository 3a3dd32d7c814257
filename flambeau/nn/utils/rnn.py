"""Sequences of different lengths: padded and packed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import flambeau as torch
from flambeau import Tensor

__all__ = [
    "PackedSequence",
    "invert_permutation",
    "pack_padded_sequence",
    "pad_packed_sequence",
    "pad_sequence",
    "unpad_sequence",
    "pack_sequence",
    "unpack_sequence",
]


class PackedSequence_(NamedTuple):
    data: Tensor
    batch_sizes: Tensor
    sorted_indices: Tensor | None
    unsorted_indices: Tensor | None


def bind(optional: Any, fn: Callable[[Any], Any]) -> Any:
    """fn of a value that may be None."""
    return None if optional is None else fn(optional)


class PackedSequence(PackedSequence_):
    """Sequences in order of falling length, stored step by step.

    Attributes:
        data: (total, *): the first elements of all sequences, then the second ones, ...
        batch_sizes: int64 on the CPU, the number of sequences that have a step t.
        sorted_indices: the order in which the sequences were taken; None if they were sorted.
        unsorted_indices: its inverse.
    """

    def __new__(
        cls,
        data: Tensor,
        batch_sizes: Tensor | None = None,
        sorted_indices: Tensor | None = None,
        unsorted_indices: Tensor | None = None,
    ) -> Any:
        return super().__new__(
            cls, *_packed_sequence_init_args(data, batch_sizes, sorted_indices, unsorted_indices)
        )

    def pin_memory(self) -> Any:
        """A copy in pinned memory."""
        return type(self)(
            self.data.pin_memory(),
            self.batch_sizes,
            bind(self.sorted_indices, lambda t: t.pin_memory()),
            bind(self.unsorted_indices, lambda t: t.pin_memory()),
        )

    def to(self, *args: Any, **kwargs: Any) -> Any:
        """Move or cast `data` (`Tensor.to`); the indices follow to the device."""
        data = self.data.to(*args, **kwargs)
        if data is self.data:
            return self
        # The indices keep their dtype.
        kwargs = {k: v for k, v in kwargs.items() if k not in ("device", "dtype")}

        def move(t: Tensor) -> Tensor:
            return t.to(data.device, **kwargs)

        return type(self)(
            data,
            self.batch_sizes,
            bind(self.sorted_indices, move),
            bind(self.unsorted_indices, move),
        )

    def cuda(self, *args: Any, **kwargs: Any) -> Any:
        """Move to a CUDA device."""
        example = torch.tensor((), dtype=self.data.dtype, device=self.data.device)
        if example.to(*args, **kwargs).is_cuda:
            return self.to(*args, **kwargs)
        kwargs["device"] = "cuda"
        return self.to(*args, **kwargs)

    def cpu(self, *args: Any, **kwargs: Any) -> Any:
        """Move to the CPU."""
        example = torch.tensor((), dtype=self.data.dtype, device=self.data.device)
        if example.to(*args, **kwargs).device.type == "cpu":
            return self.to(*args, **kwargs)
        kwargs["device"] = "cpu"
        return self.to(*args, **kwargs)

    def double(self) -> Any:
        """Cast `data` to float64."""
        return self.to(dtype=torch.double)

    def float(self) -> Any:
        """Cast `data` to float32."""
        return self.to(dtype=torch.float)

    def half(self) -> Any:
        """Cast `data` to float16."""
        return self.to(dtype=torch.half)

    def long(self) -> Any:
        """Cast `data` to int64."""
        return self.to(dtype=torch.long)

    def int(self) -> Any:
        """Cast `data` to int32."""
        return self.to(dtype=torch.int)

    def short(self) -> Any:
        """Cast `data` to int16."""
        return self.to(dtype=torch.short)

    def char(self) -> Any:
        """Cast `data` to int8."""
        return self.to(dtype=torch.int8)

    def byte(self) -> Any:
        """Cast `data` to uint8."""
        return self.to(dtype=torch.uint8)

    @property
    def is_cuda(self) -> bool:
        """Whether `data` is on a CUDA device."""
        return self.data.is_cuda

    def is_pinned(self) -> bool:
        """Whether `data` is in pinned memory."""
        return self.data.is_pinned()


def _packed_sequence_init_args(
    data: Any,
    batch_sizes: Tensor | None = None,
    sorted_indices: Tensor | None = None,
    unsorted_indices: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None]:
    if unsorted_indices is None:
        unsorted_indices = invert_permutation(sorted_indices)
    if batch_sizes is not None:
        if batch_sizes.device.type != "cpu":
            raise ValueError(
                "batch_sizes should always be on CPU. "
                "Instances of PackedSequence should never be created manually. "
                "They should be instantiated by functions like pack_sequence "
                "and pack_padded_sequences in nn.utils.rnn. "
                "https://pytorch.org/docs/stable/nn.html#torch.nn.utils.rnn.pack_sequence"
            )
        return data, batch_sizes, sorted_indices, unsorted_indices
    # The form of unpickling: both in one argument.
    if not isinstance(data, (tuple, list)) or len(data) != 2:
        raise AssertionError("Expected data to be a list or tuple of length 2")
    return data[0], data[1], sorted_indices, unsorted_indices


def invert_permutation(permutation: Tensor | None) -> Tensor | None:
    """The permutation that undoes the given one."""
    if permutation is None:
        return None
    output = torch.empty_like(permutation, memory_format=torch.contiguous_format)
    order = torch.arange(0, permutation.numel(), device=permutation.device)
    output.scatter_(0, permutation, order)
    return output


def _pack(input: Tensor, lengths: Tensor, batch_first: bool) -> tuple[Tensor, Tensor]:
    """Sorted padded sequences as (data, batch_sizes)."""
    if input.numel() == 0:
        raise RuntimeError("Cannot pack empty tensors.")
    if batch_first:
        input = input.transpose(0, 1)
    sizes = lengths.tolist()
    if len(sizes) != input.size(1):
        raise RuntimeError(
            f"Expected `len(lengths)` to be equal to batch_size, but got {len(sizes)}"
            f" (batch_size={input.size(1)})"
        )
    if sizes[-1] <= 0:
        raise RuntimeError(
            "Length of all samples has to be greater than 0, but found an element in 'lengths'"
            " that is <= 0"
        )
    if sizes != sorted(sizes, reverse=True):
        raise RuntimeError(
            "`lengths` array must be sorted in decreasing order when `enforce_sorted` is True."
            " You can pass `enforce_sorted=False` to pack_padded_sequence and/or pack_sequence"
            " to sidestep this requirement if you do not need ONNX exportability."
        )
    longest = sizes[0]
    counts = [sum(1 for size in sizes if size > t) for t in range(longest)]
    # Runs of steps with the same number of sequences are copied at once.
    parts = []
    begin = 0
    for t in range(1, longest + 1):
        if t == longest or counts[t] != counts[begin]:
            block = input[begin:t, : counts[begin]].contiguous()
            parts.append(block.view(-1, *input.size()[2:]))
            begin = t
    return torch.cat(parts), torch.tensor(counts, dtype=torch.int64)


def pack_padded_sequence(
    input: Tensor,
    lengths: Tensor | Sequence[int],
    batch_first: bool = False,
    enforce_sorted: bool = True,
) -> PackedSequence:
    """Pack padded sequences (T, N, *), or (N, T, *) with `batch_first`.

    Args:
        lengths: N of them, on the CPU.
        enforce_sorted: they fall already; otherwise the sequences are sorted.
    """
    if not isinstance(lengths, Tensor):
        lengths = torch.as_tensor(lengths, dtype=torch.int64, device="cpu")
    else:
        lengths = lengths.to(dtype=torch.int64)
    if enforce_sorted:
        sorted_indices = None
    else:
        lengths, sorted_indices = torch.sort(lengths, descending=True)
        sorted_indices = sorted_indices.to(input.device)
        input = input.index_select(0 if batch_first else 1, sorted_indices)
    if lengths.dim() != 1 or lengths.device.type != "cpu":
        raise RuntimeError(
            "'lengths' argument should be a 1D CPU int64 tensor, but got "
            f"{lengths.dim()}D {lengths.device} Long tensor"
        )
    data, batch_sizes = _pack(input, lengths, batch_first)
    return PackedSequence(data, batch_sizes, sorted_indices, None)


def pad_packed_sequence(
    sequence: PackedSequence,
    batch_first: bool = False,
    padding_value: float = 0.0,
    total_length: int | None = None,
) -> tuple[Tensor, Tensor]:
    """The padded sequences (T, N, *), or (N, T, *) with `batch_first`, and their lengths.

    `total_length` is the T wanted, if more than the longest sequence.
    """
    longest = sequence.batch_sizes.size(0)
    if total_length is not None:
        if total_length < longest:
            raise ValueError(
                "Expected total_length to be at least the length "
                "of the longest sequence in input, but got "
                f"total_length={total_length} and max sequence length being {longest}"
            )
        longest = total_length
    data, counts = sequence.data, sequence.batch_sizes.tolist()
    padded = data.new_full((longest, counts[0], *data.size()[1:]), padding_value)
    begin = offset = 0
    for t in range(1, len(counts) + 1):
        if t == len(counts) or counts[t] != counts[begin]:
            n, steps = counts[begin], t - begin
            block = data[offset : offset + n * steps]
            padded[begin:t, :n] = block.view(steps, n, *data.size()[1:])
            offset += n * steps
            begin = t
    lengths = torch.tensor([sum(1 for c in counts if c > i) for i in range(counts[0])])
    if batch_first:
        padded = padded.transpose(0, 1)
    order = sequence.unsorted_indices
    if order is not None:
        batch_dim = 0 if batch_first else 1
        return padded.index_select(batch_dim, order), lengths[order.cpu()]
    return padded, lengths


def pad_sequence(
    sequences: Tensor | Sequence[Tensor],
    batch_first: bool = False,
    padding_value: float = 0.0,
    padding_side: str = "right",
) -> Tensor:
    """Tensors (L_i, *) as one (max L, N, *), or (N, max L, *) with `batch_first`.

    `padding_side` is "right" or "left".
    """
    if not isinstance(sequences, Iterable):
        raise RuntimeError(
            f"pad_sequence: Expected iterable for input sequences, but got arg of type:"
            f" {type(sequences)}"
        )
    sequences = tuple(sequences)
    if not sequences:
        raise RuntimeError("received an empty list of sequences")
    if padding_side not in ("left", "right"):
        raise RuntimeError(
            f"Expected padding_side to be one of left or right, but got {padding_side}."
        )
    longest = max(t.size(0) for t in sequences)
    n = len(sequences)
    shape = (n, longest) if batch_first else (longest, n)
    first = sequences[0]
    out = first.new_full((*shape, *first.size()[1:]), padding_value)
    for i, t in enumerate(sequences):
        row = out.select(0 if batch_first else 1, i)
        begin = longest - t.size(0) if padding_side == "left" else 0
        row.narrow(0, begin, t.size(0)).copy_(t)
    return out


def unpad_sequence(
    padded_sequences: Tensor, lengths: Tensor, batch_first: bool = False
) -> list[Tensor]:
    """The reverse of `pad_sequence` with padding on the right."""
    if not batch_first:
        padded_sequences = padded_sequences.transpose(0, 1)
    longest = padded_sequences.shape[1]
    positions = torch.arange(longest, device=lengths.device)
    result = []
    for sequence, length in zip(padded_sequences, lengths, strict=True):
        result.append(sequence[positions < length])
    return result


def pack_sequence(sequences: Sequence[Tensor], enforce_sorted: bool = True) -> PackedSequence:
    """Pack tensors (L_i, *)."""
    lengths = torch.as_tensor([v.size(0) for v in sequences])
    return pack_padded_sequence(pad_sequence(sequences), lengths, enforce_sorted=enforce_sorted)


def unpack_sequence(packed_sequences: PackedSequence) -> list[Tensor]:
    """The reverse of `pack_sequence`."""
    padded, lengths = pad_packed_sequence(packed_sequences, batch_first=True)
    return unpad_sequence(padded, lengths, batch_first=True)
