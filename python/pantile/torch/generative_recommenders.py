"""The names and argument orders of generative-recommenders (its `ops`), over pantile.torch. Arguments that
choose among GPU kernels (kernel, enable_tma, sort_by_length) are taken and ignored."""

from __future__ import annotations

import torch

from ._hstu import hstu_attention
from ._jagged import (jagged_concat, jagged_position_time, jagged_replace_last, jagged_split, jagged_to_padded,
                      padded_to_jagged)


def hstu_mha(max_seq_len: int, alpha: float, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor,
             seq_offsets: torch.Tensor, causal: bool = True, dropout_pr: float = 0.0, training: bool = True,
             num_targets: torch.Tensor | None = None, attn_scale: torch.Tensor | None = None, max_attn_len: int = 0,
             contextual_seq_len: int = 0, min_full_attn_seq_len: int = 0, sort_by_length: bool = False,
             kernel: object = None, enable_tma: bool = False) -> torch.Tensor:
    """q and k [L, H, Dqk], v [L, H, Dv] -> [L, H, Dv]. max_attn_len 0: no window. Rows are divided by
    max_seq_len, or multiplied by attn_scale (a number or [L])."""
    if dropout_pr > 0.0 and training:
        raise ValueError(f"dropout_pr: {dropout_pr}, expected 0; there is no dropout on scores")
    scale = dict(attn_scale=attn_scale) if attn_scale is not None else dict(scaling_seqlen=max_seq_len)
    return hstu_attention(q, k, v, seq_offsets, alpha=alpha, num_targets=num_targets, **scale,
                          **_window(max_attn_len, causal, contextual_seq_len),
                          min_full_attn_seq_len=min_full_attn_seq_len)


def delta_hstu_mha(max_seq_len: int, alpha: float, delta_q: torch.Tensor, k: torch.Tensor, v: torch.Tensor,
                   seq_offsets: torch.Tensor, num_targets: torch.Tensor | None = None, max_attn_len: int = 0,
                   contextual_seq_len: int = 0, kernel: object = None, enable_tma: bool = False) -> torch.Tensor:
    """delta_q [B * n, H, Dqk], the last n queries of every sequence; k [L, H, Dqk], v [L, H, Dv] with
    seq_offsets -> [B * n, H, Dv]. Rows are divided by max_seq_len."""
    n_sequences = seq_offsets.shape[0] - 1
    delta = delta_q.shape[0] // n_sequences if n_sequences else 0
    offsets = torch.arange(n_sequences + 1, dtype=seq_offsets.dtype) * delta
    return hstu_attention(delta_q, k, v, offsets, seq_offsets_k=seq_offsets, alpha=alpha, scaling_seqlen=max_seq_len,
                          num_targets=num_targets, **_window(max_attn_len, True, contextual_seq_len))


def _window(max_attn_len: int, causal: bool, contextual_seq_len: int) -> dict:
    left = max_attn_len if max_attn_len > 0 else -1
    return dict(window_left=left, window_right=0 if causal else left,
                num_contexts=contextual_seq_len if contextual_seq_len > 0 else None)


def _side(values: torch.Tensor, length: int | None, offsets: torch.Tensor | None) -> torch.Tensor:
    """A side without offsets holds `length` rows of every sequence."""
    return values if offsets is not None else values.unflatten(0, (-1, length))


def concat_2D_jagged(max_seq_len: int, values_left: torch.Tensor, values_right: torch.Tensor,
                     max_len_left: int | None = None, max_len_right: int | None = None,
                     offsets_left: torch.Tensor | None = None, offsets_right: torch.Tensor | None = None,
                     kernel: object = None) -> torch.Tensor:
    """Per sequence left, right. A side without offsets is [B * max_len, D]."""
    return jagged_concat(_side(values_left, max_len_left, offsets_left),
                         _side(values_right, max_len_right, offsets_right), offsets_left, offsets_right)


def split_2D_jagged(max_seq_len: int, values: torch.Tensor, total_len_left: int | None = None,
                    total_len_right: int | None = None, max_len_left: int | None = None,
                    max_len_right: int | None = None, offsets_left: torch.Tensor | None = None,
                    offsets_right: torch.Tensor | None = None,
                    kernel: object = None) -> tuple[torch.Tensor, torch.Tensor]:
    """The inverse of concat_2D_jagged."""
    n_left = max_len_left if offsets_left is None else total_len_left
    n_right = max_len_right if offsets_right is None else total_len_right
    left, right = jagged_split(values, offsets_left, offsets_right, n_left=n_left, n_right=n_right)
    return (left if offsets_left is not None else left.flatten(0, 1),
            right if offsets_right is not None else right.flatten(0, 1))


def hstu_concat_l2_embeddings(max_prefix_len: int, prefix_x: torch.Tensor, prefix_offsets: torch.Tensor,
                              max_l2_len: int, l2_x: torch.Tensor, l2_offsets: torch.Tensor,
                              contextual_seq_len: int, kernel: object = None) -> torch.Tensor:
    """Per sequence the first contextual_seq_len rows of l2, prefix, the rest of l2."""
    return jagged_concat(prefix_x, l2_x, prefix_offsets, l2_offsets, n_prefix=contextual_seq_len)


def hstu_split_l2_embeddings(max_seq_len: int, x: torch.Tensor, prefix_offsets: torch.Tensor, l2_offsets: torch.Tensor,
                             contextual_seq_len: int, kernel: object = None) -> tuple[torch.Tensor, torch.Tensor]:
    """The inverse of hstu_concat_l2_embeddings: prefix, l2."""
    return jagged_split(x, prefix_offsets, l2_offsets, n_prefix=contextual_seq_len)


def replace_last_n_with_jagged(max_seq_len_left: int, offsets_left: torch.Tensor, values_left: torch.Tensor,
                               offsets_right: torch.Tensor, values_right: torch.Tensor) -> torch.Tensor:
    """The last rows of every left sequence replaced by the right one."""
    return jagged_replace_last(values_left, values_right, offsets_left, offsets_right)


def jagged_dense_bmm_broadcast_add(max_seq_len: int, seq_offsets: torch.Tensor, jagged: torch.Tensor,
                                   dense: torch.Tensor, bias: torch.Tensor, kernel: object = None) -> torch.Tensor:
    """jagged [L, K] times dense[b] [K, N] plus bias[b] [N], for the rows of each sequence: [L, N]. By torch's
    own product, on padded rows."""
    padded = jagged_to_padded(jagged, seq_offsets, max_seq_len)
    return padded_to_jagged(torch.baddbmm(bias.unsqueeze(1), padded, dense), seq_offsets, jagged.shape[0])


def add_timestamp_positional_embeddings(
        alpha: float, max_seq_len: int, max_contextual_seq_len: int, position_embeddings_weight: torch.Tensor,
        timestamp_embeddings_weight: torch.Tensor, seq_offsets: torch.Tensor, seq_lengths: torch.Tensor,
        seq_embeddings: torch.Tensor, timestamps: torch.Tensor, num_targets: torch.Tensor | None,
        interleave_targets: bool, time_bucket_fn: str = "sqrt", kernel: object = None) -> torch.Tensor:
    """alpha * seq_embeddings [L, E] + a row of each table, by position from the end and time before the last."""
    if num_targets is not None and interleave_targets:
        num_targets = num_targets * 2
    return jagged_position_time(seq_embeddings, position_embeddings_weight, seq_offsets, timestamps=timestamps,
                                ts_w=timestamp_embeddings_weight, num_targets=num_targets, alpha=alpha,
                                num_contexts=max_contextual_seq_len or None, time_bucket=time_bucket_fn)
