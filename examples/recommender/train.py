"""The training loop, the same for every model that has loss(batch) and score_last(batch)."""

from __future__ import annotations

import copy
import time
from dataclasses import dataclass, field

import torch
from torch import nn
from tqdm import tqdm

from .data import VALIDATION, Events, shuffled
from .evaluate import Quality, evaluate


@dataclass
class Plan:
    epochs: int = 20
    batch_size: int = 16
    lr: float = 2e-3
    weight_decay: float = 0.01
    warmup: int = 100  # steps
    check_every: int = 2  # epochs between validations; 0: no validation
    seed: int = 1
    by_length: bool = False


@dataclass
class Report:
    losses: list[float] = field(default_factory=list)  # mean of each epoch
    seconds: list[float] = field(default_factory=list)  # of each epoch, without validation
    cpu_seconds: list[float] = field(default_factory=list)
    best: Quality | None = None  # on validation
    best_epoch: int = 0


def train(model: nn.Module, events: Events, cap: int, plan: Plan, quiet: bool = False,
          users: torch.Tensor | None = None) -> Report:
    """AdamW with a linear warm-up and a linear descent. The model ends as it was at the best validation.
    users: only these train it and are validated, instead of all."""
    users = torch.arange(events.n_users) if users is None else users
    generator = torch.Generator().manual_seed(plan.seed)
    torch.manual_seed(plan.seed)
    steps = plan.epochs * -(-len(users) // plan.batch_size)
    decayed = [p for p in model.parameters() if p.dim() > 1]
    others = [p for p in model.parameters() if p.dim() <= 1]
    optimizer = torch.optim.AdamW([dict(params=decayed, weight_decay=plan.weight_decay),
                                   dict(params=others, weight_decay=0.0)], plan.lr)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min((step + 1) / plan.warmup, 1.0) * max(1.0 - step / steps, 0.05))
    report, best = Report(), None
    bar = tqdm(total=steps, disable=quiet, unit="step", mininterval=0.5)
    for epoch in range(1, plan.epochs + 1):
        model.train()
        start, cpu_start, total, rows = time.perf_counter(), time.process_time(), 0.0, 0
        for batch in shuffled(events, users, plan.batch_size, cap, generator, plan.by_length):
            loss = model.loss(batch)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            schedule.step()
            total += loss.item() * len(batch.items)
            rows += len(batch.items)
            bar.update()
        report.seconds.append(time.perf_counter() - start)
        report.cpu_seconds.append(time.process_time() - cpu_start)
        report.losses.append(total / rows)
        if plan.check_every and (epoch % plan.check_every == 0 or epoch == plan.epochs):
            model.eval()
            quality = evaluate(model.score_last, events, users, VALIDATION, cap)
            if report.best is None or quality.ndcg > report.best.ndcg:
                report.best, report.best_epoch, best = quality, epoch, copy.deepcopy(model.state_dict())
            if not quiet:
                tqdm.write(f"epoch {epoch:3}  loss {report.losses[-1]:.4f}  validation {quality}")
        bar.set_postfix(epoch=epoch, loss=f"{report.losses[-1]:.3f}")
    bar.close()
    if best is not None:
        model.load_state_dict(best)
    model.eval()
    return report
