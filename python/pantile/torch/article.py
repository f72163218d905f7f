"""HSTU(Q, K, V, mask, alpha, n) as the formula is written: mask / n * silu(alpha * Q K^T) V, on (b, n, s, d)."""

from __future__ import annotations

from typing import Any

import torch

from ._hstu import hstu_attention


def HSTU(Q: torch.Tensor, K: torch.Tensor, V: torch.Tensor, mask: torch.Tensor | str | None = "causal",
         alpha: float = 1.0, n: int | None = None) -> torch.Tensor:
    """Q [b, h, sq, d], K [b, h, sk, d], V [b, h, sk, dv] -> [b, h, sq, dv], without copies.

    mask "causal", None (all pairs), or a tensor of zeros and ones, [sq, sk], [b, sq, sk] or [b or 1, h or 1,
    sq, sk]. A causal mask that is said to be one skips what it hides. n divides; default sk.
    """
    q, k, v = (x.transpose(1, 2) for x in (Q, K, V))
    options: dict[str, Any] = {}
    if mask is None:
        options["window_right"] = -1
    elif isinstance(mask, torch.Tensor):
        options["mask"] = zeros_and_ones(mask)
    elif mask != "causal":
        raise ValueError(f"mask: {mask!r}, expected 'causal', None or a tensor")
    out = hstu_attention(q, k, v, scaling_seqlen=K.shape[2] if n is None else n, alpha=alpha, **options)
    return out.transpose(1, 2)


def zeros_and_ones(mask: torch.Tensor) -> torch.Tensor:
    """A multiplied mask as one that selects: bool, with four axes."""
    selected = mask != 0
    looked_into = mask.dtype != torch.bool and not torch.compiler.is_compiling()
    if looked_into and not torch.equal(selected.to(mask.dtype), mask):
        raise ValueError("mask: values other than 0 and 1")
    while selected.dim() < 4:
        selected = selected.unsqueeze(-3)
    return selected
