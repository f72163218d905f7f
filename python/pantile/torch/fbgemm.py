"""FBGEMM's names and argument orders, over pantile.torch: its experimental HSTU attention and its jagged
operators. What it refuses is refused here with a ValueError, or by the library."""

from __future__ import annotations

from typing import Any

import torch

from ._hstu import hstu_attention
from ._jagged import jagged_complete_cumsum, jagged_to_padded, padded_to_jagged

asynchronous_complete_cumsum = jagged_complete_cumsum


def hstu_attn_varlen_func(
        q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, cu_seqlens_q: torch.Tensor, cu_seqlens_k: torch.Tensor,
        seqused_q: torch.Tensor | None, seqused_k: torch.Tensor | None, max_seqlen_q: int, max_seqlen_k: int,
        scaling_seqlen: int = -1, num_contexts: torch.Tensor | None = None, num_targets: torch.Tensor | None = None,
        target_group_size: int = 1, window_size: tuple[int, int] = (-1, -1), alpha: float = 1.0,
        rab: torch.Tensor | None = None, has_drab: bool = False, kv_cache: torch.Tensor | None = None,
        page_offsets: torch.Tensor | None = None, page_ids: torch.Tensor | None = None,
        last_page_lens: torch.Tensor | None = None, func: torch.Tensor | None = None,
        quant_mode: int = -1) -> torch.Tensor:
    """q [Tq, H, D], k and v [Tk, H, D] -> [Tq, H, D].

    window_size (-1, -1) is no mask, (-1, 0) causal. scaling_seqlen -1: max_seqlen_q. rab [B, H or 1,
    max_seqlen_k, max_seqlen_k], added before alpha multiplies; has a gradient with has_drab. kv_cache [pages, 2,
    page_size, H, D]. func [1, n, Tq + ...], n odd: columns [0, f0), [f1, f2) ... of each row.
    """
    if quant_mode != -1:
        raise ValueError(f"quant_mode: {quant_mode}, expected -1; nothing is quantized here")
    if has_drab and rab is None:
        raise ValueError("has_drab: True, but rab is None")
    for name, value in (("num_contexts", num_contexts), ("num_targets", num_targets)):
        if value is not None and tuple(window_size) != (-1, 0):
            raise ValueError(f"{name}: given, but window_size is {tuple(window_size)}, expected (-1, 0)")
    if max_seqlen_q > max_seqlen_k:
        raise ValueError(f"max_seqlen_q: {max_seqlen_q}, more than max_seqlen_k, {max_seqlen_k}")
    options: dict[str, Any] = dict(window_left=window_size[0], window_right=window_size[1], num_contexts=num_contexts,
                                   num_targets=num_targets, target_group_size=target_group_size)
    if func is not None:
        if tuple(window_size) != (-1, -1) or num_contexts is not None or num_targets is not None:
            raise ValueError("func: given together with window_size, num_contexts or num_targets")
        ends = func.reshape(func.shape[-2:])[:, :q.shape[0]].t()
        options = dict(intervals=torch.cat([torch.zeros_like(ends[:, :1]), ends], 1))
    if rab is not None:
        options.update(attn_bias=rab if has_drab else rab.detach(), bias_rows="key")
    if kv_cache is not None:
        options.update(k_pages=kv_cache[:, 0], v_pages=kv_cache[:, 1], page_offsets=page_offsets,
                       page_ids=page_ids, last_page_lens=last_page_lens)
    return hstu_attention(q, k, v, cu_seqlens_q, seq_offsets_k=cu_seqlens_k, seqused_q=seqused_q, seqused_k=seqused_k,
                          max_seqlen_q=max_seqlen_q, max_seqlen_k=max_seqlen_k, alpha=alpha,
                          scaling_seqlen=max_seqlen_q if scaling_seqlen == -1 else scaling_seqlen, **options)


def hstu_attn_qkvpacked_func(
        qkv: torch.Tensor, cu_seqlens_q: torch.Tensor, cu_seqlens_k: torch.Tensor, seqused_q: torch.Tensor | None,
        seqused_k: torch.Tensor | None, max_seqlen_q: int, max_seqlen_k: int, scaling_seqlen: int = -1,
        num_contexts: torch.Tensor | None = None, num_targets: torch.Tensor | None = None, target_group_size: int = 1,
        window_size: tuple[int, int] = (-1, -1), alpha: float = 1.0, rab: torch.Tensor | None = None,
        has_drab: bool = False, func: torch.Tensor | None = None) -> torch.Tensor:
    """hstu_attn_varlen_func on qkv [T, 3, H, D], of which q, k and v are slices."""
    q, k, v = qkv.unbind(1)
    return hstu_attn_varlen_func(q, k, v, cu_seqlens_q, cu_seqlens_k, seqused_q, seqused_k, max_seqlen_q, max_seqlen_k,
                                 scaling_seqlen, num_contexts, num_targets, target_group_size, window_size, alpha, rab,
                                 has_drab, func=func)


def jagged_to_padded_dense(values: torch.Tensor, offsets: list[torch.Tensor], max_lengths: list[int],
                           padding_value: float = 0.0) -> torch.Tensor:
    """values [T, ...] as [B, max_lengths[0], ...]. One level of offsets."""
    return jagged_to_padded(values, _one("offsets", offsets), _one("max_lengths", max_lengths), pad=padding_value)


def jagged_2d_to_dense(values: torch.Tensor, offsets: torch.Tensor, max_sequence_length: int) -> torch.Tensor:
    """values [T, D] as [B, max_sequence_length, D], padded with zeros."""
    return jagged_to_padded(values, offsets, max_sequence_length)


def jagged_1d_to_dense(values: torch.Tensor, offsets: torch.Tensor, max_sequence_length: int,
                       padding_value: int) -> torch.Tensor:
    """values [T] as [B, max_sequence_length]."""
    return jagged_to_padded(values, offsets, max_sequence_length, pad=padding_value)


def dense_to_jagged(dense: torch.Tensor, offsets: list[torch.Tensor],
                    total_L: int | None = None) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """dense [B, n, ...] as values [total_L, ...], and the offsets as they were given."""
    return padded_to_jagged(dense, _one("offsets", offsets), total_L), offsets


def _one(name: str, items: list) -> Any:
    if len(items) != 1:
        raise ValueError(f"{name}: {len(items)} levels, expected 1")
    return items[0]
