"""Keys and values of past tokens in pages, for HSTUStack's serving calls."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from ._hstu import hstu_attention, hstu_kv_append


@dataclass
class Step:
    """One call on a cache: which rows are new, and where they go. The same for all layers."""
    sequences: list[int]
    seq_offsets: torch.Tensor  # [B+1], rows of this call
    num_targets: torch.Tensor  # [B]
    n_cached: torch.Tensor  # [B], before this call
    lengths: torch.Tensor  # [B], cached after it
    page_offsets: torch.Tensor
    page_ids: torch.Tensor
    last_page_lens: torch.Tensor
    timestamps: torch.Tensor | None  # [B, longest], by position


class HSTUCache:
    """Pages of n_layers layers for n_sequences sequences, taken from one pool as sequences grow.

    lengths [n_sequences] counts the cached tokens of each. Made by HSTUStack.new_cache.
    """

    def __init__(self, n_layers: int, n_sequences: int, num_heads: int, head_dim: int, *, page_size: int = 64,
                 dtype: torch.dtype = torch.float32):
        self.page_size = page_size
        self.lengths = torch.zeros(n_sequences, dtype=torch.int64)
        self.times = torch.zeros(n_sequences, 0, dtype=torch.int64)
        shape = (0, page_size, num_heads, head_dim)
        self.k_pages = [torch.empty(shape, dtype=dtype) for _ in range(n_layers)]
        self.v_pages = [torch.empty(shape, dtype=dtype) for _ in range(n_layers)]
        self._pages: list[list[int]] = [[] for _ in range(n_sequences)]
        self._free: list[int] = []

    def clear(self, sequences: Any = None) -> None:
        """Forgets sequences (default: all)."""
        for b in self._numbers(sequences):
            self._free += self._pages[b]
            self._pages[b] = []
            self.lengths[b] = 0

    def _numbers(self, sequences: Any) -> list[int]:
        if sequences is None:
            return list(range(len(self._pages)))
        return [int(b) for b in sequences]

    def _reserve(self, b: int, length: int) -> None:
        missing = -(-length // self.page_size) - len(self._pages[b])
        if missing > len(self._free):
            old = self.k_pages[0].shape[0]
            new = max(2 * old, old + missing, 16)
            for pages in (self.k_pages, self.v_pages):
                for i, pool in enumerate(pages):
                    pages[i] = pool.new_empty(new, *pool.shape[1:])
                    pages[i][:old] = pool
            self._free += range(new - 1, old - 1, -1)
        self._pages[b] += [self._free.pop() for _ in range(missing)]

    def step(self, seq_offsets: torch.Tensor, num_targets: torch.Tensor | int, sequences: Any,
             timestamps: torch.Tensor | None) -> Step:
        """Makes room for the rows of a call, but for the last num_targets of each sequence."""
        numbers = self._numbers(sequences)
        seq_offsets = seq_offsets.to(torch.int64)
        new = seq_offsets.diff()
        if len(numbers) != len(new):
            raise ValueError(f"seq_offsets: {len(new)} sequences, expected {len(numbers)}")
        targets = torch.as_tensor(num_targets, dtype=torch.int64).expand(len(new)).contiguous()
        n_cached = self.lengths[numbers]
        lengths = n_cached + new - targets
        for b, length in zip(numbers, lengths.tolist()):
            self._reserve(b, length)
        n_pages = (lengths + self.page_size - 1) // self.page_size
        ids = [page for b, n in zip(numbers, n_pages.tolist()) for page in self._pages[b][:n]]
        page_offsets = torch.nn.functional.pad(n_pages.cumsum(0), (1, 0))
        if timestamps is not None:
            timestamps = self._times(numbers, seq_offsets, n_cached, new, timestamps)
        return Step(numbers, seq_offsets, targets, n_cached, lengths, page_offsets,
                    torch.tensor(ids, dtype=torch.int64), (lengths - 1) % self.page_size + 1, timestamps)

    def _times(self, numbers: list[int], seq_offsets: torch.Tensor, n_cached: torch.Tensor, new: torch.Tensor,
               timestamps: torch.Tensor) -> torch.Tensor:
        longest = int((n_cached + new).max()) if len(numbers) else 0
        if longest > self.times.shape[1]:
            self.times = torch.nn.functional.pad(self.times, (0, longest - self.times.shape[1]))
        sequence = torch.repeat_interleave(torch.arange(len(new)), new)
        position = n_cached[sequence] + torch.arange(len(sequence)) - seq_offsets[sequence]
        times = self.times[numbers, :longest]
        times[sequence, position] = timestamps[:len(sequence)]
        self.times[numbers, :longest] = times
        return times

    def attend(self, layer: int, step: Step, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor,
               **options: Any) -> torch.Tensor:
        """Keeps the keys and values that are to be kept, and attends to all of them and the targets."""
        k_pages, v_pages = self.k_pages[layer], self.v_pages[layer]
        hstu_kv_append(k, v, step.seq_offsets, step.n_cached, k_pages, v_pages, step.page_offsets, step.page_ids,
                       num_targets=step.num_targets)
        return hstu_attention(q, k, v, step.seq_offsets, num_targets=step.num_targets, k_pages=k_pages,
                              v_pages=v_pages, page_offsets=step.page_offsets, page_ids=step.page_ids,
                              last_page_lens=step.last_page_lens, **options)

    def commit(self, step: Step) -> None:
        """After the last layer: what the step has kept counts as cached."""
        self.lengths[step.sequences] = step.lengths
