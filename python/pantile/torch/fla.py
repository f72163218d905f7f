"""The name and argument order of flash-linear-attention's native sparse attention, over pantile.torch. For
inference."""

from __future__ import annotations

import warnings
from typing import Any

import torch

from ._nsa import nsa_attend, nsa_combine, nsa_forward, refuse_gradients


def parallel_nsa(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, g_cmp: torch.Tensor | None,
                 g_slc: torch.Tensor, g_swa: torch.Tensor | None, block_indices: torch.Tensor | None = None,
                 block_counts: torch.Tensor | int = 16, block_size: int = 64, window_size: int = 0,
                 scale: float | None = None, cu_seqlens: torch.Tensor | None = None) -> torch.Tensor:
    """q [B, T, HQ, K], k [B, T, H, K], v [B, T, H, V], gates [B, T, HQ] -> [B, T, HQ, V]; with cu_seqlens
    [N+1] B is 1 and the sequences lie end to end.

    Compressed keys are the means of the blocks of block_size tokens that are complete. With g_cmp a row takes
    block_counts (a number, or [B, T, H]) blocks, its own and the most important ones, and block_indices are
    ignored. Without g_cmp there is no compressed branch, and it takes block_indices [B, T, H, S], all or, where
    block_counts is a tensor, the first so many. window_size counts the row's own token; 0: no sliding branch.
    """
    arguments = dict(q=q, k=k, v=v, g_cmp=g_cmp, g_slc=g_slc, g_swa=g_swa)
    if torch.is_grad_enabled():
        refuse_gradients("parallel_nsa", arguments)
    if cu_seqlens is not None and q.shape[0] != 1:
        raise ValueError(f"q: batch of {q.shape[0]}, expected 1 with cu_seqlens")
    if window_size > 0 and g_swa is None:
        raise ValueError(f"g_swa: None, but window_size is {window_size}")
    counts = block_counts if isinstance(block_counts, torch.Tensor) else None
    if g_cmp is None and block_indices is None:
        raise ValueError("block_indices: None, and so is g_cmp; expected one of them")
    if g_cmp is not None and block_indices is not None:
        warnings.warn("block_indices: ignored, since g_cmp is given")
    off = torch.zeros_like(g_slc)
    gates = torch.stack([off if g_cmp is None else g_cmp, g_slc, off if window_size == 0 else g_swa], -1)
    gates = gates if gates.dtype == q.dtype else gates.float()
    options: dict[str, Any] = dict(block=block_size, stride=block_size, select_block=block_size, window=window_size,
                                   scale=scale)
    rows = dict(q=q, k=k, v=v, gates=gates, count=counts, idx=block_indices)
    if cu_seqlens is not None:
        rows = {name: None if x is None else x.squeeze(0) for name, x in rows.items()}
        options["seq_offsets_q"] = cu_seqlens
    if g_cmp is None:
        return _given(rows, options, block_counts, cu_seqlens)
    topk = int(counts.max()) if counts is not None else block_counts
    count = rows.pop("count")
    del rows["idx"]
    out = nsa_forward(**rows, **options, topk=max(topk, 1), n_init=0, n_local=1,
                      count=None if count is None else count.contiguous())
    return out if cu_seqlens is None else out.unsqueeze(0)


def _given(rows: dict[str, Any], options: dict[str, Any], block_counts: Any,
           cu_seqlens: torch.Tensor | None) -> torch.Tensor:
    """Selected and sliding attention over the blocks that the caller has chosen."""
    idx, count = rows["idx"], rows["count"]
    if count is not None:
        place = torch.arange(idx.shape[-1], device=idx.device)
        idx = torch.where(place < count.unsqueeze(-1), idx, -1)
    want = ("out_slc",) if options["window"] == 0 else ("out_slc", "out_swa")
    branches = nsa_attend(rows["q"], rows["k"], rows["v"], idx.contiguous(), want=want, **options)
    out = nsa_combine(rows["gates"], **branches)
    return out if cu_seqlens is None else out.unsqueeze(0)
