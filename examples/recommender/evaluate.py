"""Full ranking of the item left out among all items that the user has not had: HR@10 and NDCG@10."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from .data import Batch, Events, batch


@dataclass
class Quality:
    hr: float
    ndcg: float

    def __str__(self) -> str:
        return f"HR@10 {self.hr:.4f}, NDCG@10 {self.ndcg:.4f}"


def hide_seen(scores: torch.Tensor, events: Events, users: torch.Tensor, left_out: int) -> torch.Tensor:
    """Scores [B, n_items] with -inf at the items of each whole history, also before the cap."""
    for row, user in zip(scores, users.tolist()):
        row[events.items[events.history(user, left_out)]] = -torch.inf
    return scores


def evaluate(score_last: Callable[[Batch], torch.Tensor], events: Events, users: torch.Tensor, left_out: int,
             cap: int, size: int = 16) -> Quality:
    """score_last(batch) gives [B, n_items]. left_out is VALIDATION or TEST. A tie counts against the model."""
    ranks = []
    for part in users.split(size):
        histories = batch(events, part, left_out, cap)
        target = histories.next_items[histories.last][:, None]
        scores = hide_seen(score_last(histories), events, part, left_out)
        ranks.append((~(scores < scores.gather(1, target))).sum(1))  # 1 is the best
    rank = torch.cat(ranks).double()
    hit = (rank <= 10).double()
    return Quality(hit.mean().item(), (hit / (1 + rank).log2()).mean().item())
