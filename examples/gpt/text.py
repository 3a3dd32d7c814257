"""The text, its word pieces, and the windows that a model is trained on.

The text is the language reference that `pydoc` prints, which every CPython carries: half a
megabyte of English with some code in it. (It differs a little from one Python version to the
next.) It is cut into word pieces by byte-pair merging, learned from the text itself: start from
single characters, and join the commonest neighbouring pair until the vocabulary is full.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import pairwise
from pydoc_data.topics import topics

import torch
from torch.utils.data import Dataset, Sampler

# Line ends with their indentation, words and numbers with the space before them, runs of signs,
# and spaces that are left over.  Merging never crosses these borders.
PIECES = re.compile(r"\n\s*| ?\w+| ?[^\w\s]+|\s+")

Pair = tuple[str, str]


def read_text() -> str:
    """All topics, in a fixed order, separated by blank lines; broken lines of prose are joined."""
    return "\n\n".join(join_prose(topics[name].strip()) for name in sorted(topics))


def join_prose(text: str) -> str:
    """`text` with broken lines joined to the line after them, and drawn tables left out."""
    joined: list[str] = []
    before = ""
    for line in text.splitlines():
        if line.lstrip().startswith(("|", "+-", "+=")):
            continue
        # A broken line is a long one, and what follows it begins with a word.
        if len(before) > 55 and re.match(r' *[\w"‘“(]', line):
            joined[-1] += " " + line.strip()
        else:
            joined.append(line)
        before = line
    return "\n".join(joined)


class WordPieces:
    """A vocabulary of at most `size` pieces learned from `text`; the result is deterministic."""

    def __init__(self, text: str, size: int) -> None:
        counts = Counter(PIECES.findall(text))
        self.pieces = sorted(set(text))
        self._ranks: dict[Pair, int] = {}
        self._learn(counts, size)
        self._ids = {piece: number for number, piece in enumerate(self.pieces)}
        self._cache: dict[str, list[int]] = {}

    def __len__(self) -> int:
        return len(self.pieces)

    def _learn(self, counts: Counter[str], size: int) -> None:
        words = [(list(word), count) for word, count in counts.items()]
        pair_counts: Counter[Pair] = Counter()
        found_in: defaultdict[Pair, set[int]] = defaultdict(set)
        for number, (parts, count) in enumerate(words):
            for pair in pairwise(parts):
                pair_counts[pair] += count
                found_in[pair].add(number)
        while len(self.pieces) < size and pair_counts:
            # Ties are broken by the pair itself, so that the order of a set never matters.
            best = max(pair_counts, key=lambda pair: (pair_counts[pair], pair))
            if pair_counts[best] < 2:
                break
            self._ranks[best] = len(self._ranks)
            self.pieces.append("".join(best))
            for number in found_in.pop(best):
                parts, count = words[number]
                for pair in pairwise(parts):
                    pair_counts[pair] -= count
                merge(parts, best)
                for pair in pairwise(parts):
                    pair_counts[pair] += count
                    found_in[pair].add(number)
            del pair_counts[best]

    def encode(self, text: str) -> list[int]:
        """Numbers of the pieces of `text`; a character that was never seen is left out."""
        numbers: list[int] = []
        for word in PIECES.findall(text):
            if word not in self._cache:
                self._cache[word] = self._encode_word(word)
            numbers.extend(self._cache[word])
        return numbers

    def _encode_word(self, word: str) -> list[int]:
        parts = list(word)
        while len(parts) > 1:
            pairs = pairwise(parts)
            best = min(pairs, key=lambda pair: self._ranks.get(pair, len(self._ranks)))
            if best not in self._ranks:
                break
            merge(parts, best)
        return [self._ids[part] for part in parts if part in self._ids]

    def decode(self, numbers: list[int]) -> str:
        return "".join(self.pieces[number] for number in numbers)


def merge(parts: list[str], pair: Pair) -> None:
    """Join every occurrence of `pair` in `parts`, in place, from left to right."""
    left, right = pair
    start = 0
    while start < len(parts) - 1:
        if parts[start] == left and parts[start + 1] == right:
            parts[start : start + 2] = [left + right]
        start += 1


class Windows(Dataset[tuple[torch.Tensor, torch.Tensor]]):
    """Windows of `block` tokens, each with the same window moved on by one token as the target.

    Items are a pair of int64 tensors of shape (block,). Neighbouring windows start `stride` apart.
    """

    def __init__(self, tokens: torch.Tensor, block: int, stride: int) -> None:
        if len(tokens) <= block:
            raise ValueError(f"{len(tokens)} tokens are too few for windows of {block}")
        self.tokens, self.block, self.stride = tokens, block, stride

    def __len__(self) -> int:
        return (len(self.tokens) - self.block - 1) // self.stride + 1

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        start = index * self.stride
        end = start + self.block
        return self.tokens[start:end], self.tokens[start + 1 : end + 1]


class ShuffledFrom(Sampler[int]):
    """`count` indices of an endless reshuffled walk over `size` items, from position `start` on.

    What stands at a position depends on the seed and the position alone. So a run that starts
    again in the middle sees what it would have seen, with no loader state to keep.
    """

    def __init__(self, size: int, seed: int, start: int, count: int) -> None:
        self.size, self.seed, self.start, self.count = size, seed, start, count

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[int]:
        position, end = self.start, self.start + self.count
        while position < end:
            epoch, offset = divmod(position, self.size)
            generator = torch.Generator().manual_seed(self.seed * 1_000_003 + epoch)
            order = torch.randperm(self.size, generator=generator).tolist()
            part = order[offset : offset + end - position]
            yield from part
            position += len(part)
