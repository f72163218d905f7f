"""The same split, loop and number of epochs for this model, its peers, and popularity; each in a process of
its own. Prints the table of README.md. Needs `pip install torch-rechub==0.9.0`.

    python -m examples.recommender.compare [--epochs N] [--only NAME ...]
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from pathlib import Path

import torch
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy
from torch.nn.utils.rnn import pad_sequence

from . import data
from .data import TEST, TRAIN, Batch, Events
from .evaluate import evaluate
from .train import Plan, Report, train

# Of all models.
CAP, DIM, LAYERS, HEADS, HEAD_DIM, DROPOUT = 512, 64, 2, 2, 32, 0.3
TIME_BUCKETS = 64
TIMED_BATCHES = 12


def padded(batch: Batch, values: torch.Tensor, length: int | None) -> torch.Tensor:
    """[B, longest or length] of rows [T], 0 behind each end."""
    dense = pad_sequence(values.tensor_split(batch.offsets[1:-1]), batch_first=True)
    return nn.functional.pad(dense, (0, length - dense.shape[1])) if length else dense


class RechubHSTU(nn.Module):
    """torch-rechub's HSTUModel, its time buckets set as ours; item i is its token i + 1. length: pad to so
    many events as its own loaders do, or else to the longest of the batch."""

    def __init__(self, events: Events, length: int | None):
        super().__init__()
        from torch_rechub.models.generative import HSTUModel
        self.length = length
        self.model = HSTUModel(events.n_items + 1, d_model=DIM, n_heads=HEADS, n_layers=LAYERS, dqk=HEAD_DIM, dv=HEAD_DIM,
                               max_seq_len=CAP, dropout=DROPOUT, num_time_buckets=TIME_BUCKETS, time_bucket_fn="log",
                               time_bucket_divisor=0.301, time_bucket_unit="seconds")

    def logits(self, batch: Batch) -> torch.Tensor:
        ages = torch.repeat_interleave(batch.times[batch.last], batch.offsets.diff()) - batch.times
        return self.model(padded(batch, batch.items + 1, self.length), padded(batch, ages, self.length))

    def loss(self, batch: Batch) -> torch.Tensor:
        return cross_entropy(self.logits(batch).flatten(0, 1), padded(batch, batch.next_items + 1, self.length).flatten(),
                             ignore_index=0)

    @torch.no_grad()
    def score_last(self, batch: Batch) -> torch.Tensor:
        rows = self.logits(batch)[torch.arange(len(batch.users)), batch.offsets.diff() - 1]
        return rows[:, 1:].clone()


class RechubSASRec(nn.Module):
    """torch-rechub's SASRec with its own loss: the next item against one that the user has not had."""

    def __init__(self, events: Events):
        super().__init__()
        from torch_rechub.basic.features import SequenceFeature
        from torch_rechub.models.matching import SASRec
        seq, *others = [SequenceFeature(name, events.n_items + 1, DIM, pooling="concat", shared_with=shared)
                        for name, shared in (("seq", None), ("pos", "seq"), ("neg", "seq"))]
        self.model = SASRec([seq, *others], max_len=CAP, dropout_rate=DROPOUT, num_blocks=LAYERS, num_heads=HEADS)
        self.seen = torch.zeros(events.n_users, events.n_items, dtype=torch.bool)
        for user in range(events.n_users):
            self.seen[user, events.items[events.history(user, TRAIN - 1)]] = True

    def loss(self, batch: Batch) -> torch.Tensor:
        unseen = (~self.seen[batch.users]).float()
        negatives = unseen.multinomial(int(batch.offsets.diff().max()), replacement=True) + 1
        positives = padded(batch, batch.next_items + 1, None)
        x = dict(seq=padded(batch, batch.items + 1, None), pos=positives, neg=negatives)
        exists = positives != 0
        pos, neg = (logits[exists] for logits in self.model(x))
        return (binary_cross_entropy_with_logits(pos, torch.ones_like(pos))
                + binary_cross_entropy_with_logits(neg, torch.zeros_like(neg)))

    @torch.no_grad()
    def score_last(self, batch: Batch) -> torch.Tensor:
        self.model.mode = "user"
        rows = self.model(dict(seq=padded(batch, batch.items + 1, None)))
        self.model.mode = None
        return rows @ self.model.item_emb.embed_dict["seq"].weight[1:].t()


class Popularity:
    """How many users had an item before their last two events."""

    def __init__(self, events: Events):
        every = data.batch(events, torch.arange(events.n_users), TRAIN - 1, len(events.items))
        self.counts = every.items.bincount(minlength=events.n_items).float()

    def score_last(self, batch: Batch) -> torch.Tensor:
        return self.counts.repeat(len(batch.users), 1)


def ours(events: Events) -> nn.Module:
    from .model import Config, Recommender
    return Recommender(Config(events.n_items, DIM, LAYERS, HEADS, HEAD_DIM, CAP, DROPOUT))


# name: how to make it, whether users of like lengths share a batch, and whether it is only timed: by some batches
# of equal size and cost, instead of hours of training.
CONTENDERS = {
    "popularity": (Popularity, False, False),
    "torch-rechub SASRec, batches by length": (RechubSASRec, True, False),
    "torch-rechub HSTUModel, padded to 512": (lambda events: RechubHSTU(events, CAP), False, True),
    "torch-rechub HSTUModel, batches by length": (lambda events: RechubHSTU(events, None), True, False),
    "this recommender": (ours, False, False),
}


def memory(field: str) -> float:
    """MiB of this process: VmRSS now, or VmHWM at its highest."""
    with open("/proc/self/status", encoding="ascii") as status:
        return next(int(line.split()[1]) / 1024 for line in status if line.startswith(field))


def import_all(name: str) -> None:
    """What a contender imports, before memory is measured."""
    if "rechub" in name:
        import torch_rechub.models.generative
        import torch_rechub.models.matching  # noqa: F401
    elif name == "this recommender":
        from . import model  # noqa: F401
    x = torch.zeros(2, requires_grad=True)
    x.sum().backward()
    torch.optim.AdamW([x]).step()  # imports more
    try:
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # VmHWM from here
    except OSError:
        pass


def run_one(name: str, epochs: int, seed: int, folder: Path) -> dict:
    """One contender, in this process."""
    make, by_length, only_timed = CONTENDERS[name]
    import_all(name)
    before = memory("VmRSS")
    events = data.load(folder)
    everyone = torch.arange(events.n_users)
    torch.manual_seed(seed)
    model = make(events)
    result: dict = dict(name=name)
    if isinstance(model, nn.Module):
        plan = Plan(epochs=epochs, seed=seed, by_length=by_length)
        users, share = everyone, 1.0
        if only_timed:
            users = everyone[torch.randperm(len(everyone))[:TIMED_BATCHES * plan.batch_size]]
            share, plan.epochs, plan.check_every = len(users) / len(everyone), 1, 0
        report = train(model, events, CAP, plan, users=users)
        result.update(mib=memory("VmHWM") - before, seconds=statistics.median(report.seconds) / share,
                      cpu_seconds=statistics.median(report.cpu_seconds) / share, fastest=min(report.seconds) / share,
                      slowest=max(report.seconds) / share)
        if report.best is not None:
            result.update(best_epoch=report.best_epoch, epochs=epochs, validation_hr=report.best.hr,
                          validation_ndcg=report.best.ndcg)
    if not only_timed:
        quality = evaluate(model.score_last, events, everyone, TEST, CAP)
        result.update(hr=quality.hr, ndcg=quality.ndcg)
    return result


def table(results: list[dict]) -> str:
    """Rows of Markdown."""
    def number(result, key, form):
        return format(result[key], form) if key in result else "-"

    lines = ["| | HR@10 | NDCG@10 | best epoch | s an epoch | CPU s an epoch | MiB above the imports |",
             "|---|---:|---:|---:|---:|---:|---:|"]
    for r in results:
        best = f"{r['best_epoch']} of {r['epochs']}" if "best_epoch" in r else "-"
        lines.append(f"| {r['name']} | {number(r, 'hr', '.3f')} | {number(r, 'ndcg', '.3f')} | {best} | "
                     f"{number(r, 'seconds', '.1f')} | {number(r, 'cpu_seconds', '.1f')} | {number(r, 'mib', '.0f')} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m examples.recommender.compare", description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=Plan.epochs)
    parser.add_argument("--seed", type=int, default=Plan.seed)
    parser.add_argument("--threads", type=int, default=1, help="of torch (1: CPU time means something on a busy machine)")
    parser.add_argument("--only", nargs="+", choices=CONTENDERS, default=list(CONTENDERS))
    parser.add_argument("--data", type=Path, default=data.FOLDER)
    parser.add_argument("--one", choices=CONTENDERS, help=argparse.SUPPRESS)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    if args.one:
        print(json.dumps(run_one(args.one, args.epochs, args.seed, args.data)))
        return
    if args.data == data.FOLDER:
        data.fetch()
    results = []
    for name in args.only:
        print(name, file=sys.stderr)
        command = [sys.executable, "-m", "examples.recommender.compare", "--one", name, "--data", str(args.data),
                   f"--epochs={args.epochs}", f"--seed={args.seed}", f"--threads={args.threads}"]
        printed = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, cwd=data.ROOT).stdout
        results.append(json.loads(printed.splitlines()[-1]))
        print(json.dumps(results[-1]), file=sys.stderr)
    print(table(results))


if __name__ == "__main__":
    main()
