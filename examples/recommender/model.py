"""The model: item embedding, HSTU layers, the same embedding as output; its loss, and its checkpoint."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path

import pantile.torch as pt
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import nn
from torch.nn import functional as F

from .data import Batch


@dataclass
class Config:
    n_items: int
    dim: int = 64
    layers: int = 2
    heads: int = 2
    head_dim: int = 32
    cap: int = 512  # longest history
    dropout: float = 0.3


class Recommender(nn.Module):
    """Scores of all items after each event of a history.

    Order and time enter through the layers' two bias tables only, which look at differences. So a row
    depends on nothing behind it, and not on where its history was cut: a cache can hold it.
    """

    def __init__(self, config: Config):
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(config.n_items, config.dim)
        self.dropout = nn.Dropout(config.dropout)
        self.stack = pt.HSTUStack(
            config.layers, config.dim, config.heads, config.head_dim, scaling_seqlen=config.cap,
            max_position=config.cap, time_buckets=64, time_query="own", bias_per_head=True,
            dropout=config.dropout, **pt.VARIANTS["nvidia"])
        self.norm = nn.LayerNorm(config.dim)
        self.bias = nn.Parameter(torch.zeros(config.n_items))
        nn.init.normal_(self.embedding.weight, std=0.02)

    def forward(self, items: torch.Tensor, times: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
        """Events [T] of users with offsets [B+1] to rows [T, dim]."""
        return self.norm(self.stack(self.dropout(self.embedding(items)), offsets, timestamps=times))

    def scores(self, rows: torch.Tensor) -> torch.Tensor:
        """[R, dim] to [R, n_items]: logarithms of probabilities, up to a constant of each row."""
        return F.linear(rows, self.embedding.weight, self.bias)

    def loss(self, batch: Batch) -> torch.Tensor:
        """Mean cross entropy of the next item, over all events."""
        return _CrossEntropy.apply(self(batch.items, batch.times, batch.offsets), self.embedding.weight, self.bias,
                                   batch.next_items)

    @torch.no_grad()
    def score_last(self, batch: Batch) -> torch.Tensor:
        """[B, n_items], what may follow each history."""
        return self.scores(self(batch.items, batch.times, batch.offsets)[batch.last])

    def save(self, path: Path) -> None:
        save_file(self.state_dict(), path, {"config": json.dumps(dataclasses.asdict(self.config))})

    @staticmethod
    def load(path: Path) -> Recommender:
        with safe_open(path, "pt") as file:
            model = Recommender(Config(**json.loads(file.metadata()["config"])))
            model.load_state_dict({name: file.get_tensor(name) for name in file.keys()})
        return model.eval()


class _CrossEntropy(torch.autograd.Function):
    """cross_entropy(rows @ weight.T + bias, targets) by blocks of rows. Each block's gradient is made with its
    loss, so scores of all rows and items, the largest array of a training step, never exist."""

    BLOCK = 256

    @staticmethod
    def forward(ctx, rows, weight, bias, targets):
        d_rows, d_weight, d_bias = torch.empty_like(rows), torch.zeros_like(weight), torch.zeros_like(bias)
        loss = rows.new_zeros(())
        for x, y, dx in zip(*(t.split(_CrossEntropy.BLOCK) for t in (rows, targets, d_rows))):
            scores = torch.addmm(bias, x, weight.t())
            target = y[:, None]
            loss += (scores.logsumexp(1) - scores.gather(1, target)[:, 0]).sum()
            p = scores.softmax(1).scatter_add_(1, target, torch.full_like(target, -1, dtype=scores.dtype))
            torch.mm(p, weight, out=dx)
            d_weight.addmm_(p.t(), x)
            d_bias += p.sum(0)
        ctx.save_for_backward(d_rows, d_weight, d_bias)
        ctx.n = len(rows)
        return loss / len(rows)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, dloss):
        return (*(d * (dloss / ctx.n) for d in ctx.saved_tensors), None)
