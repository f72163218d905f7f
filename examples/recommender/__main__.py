"""The command: train, evaluate, recommend. See README.md."""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch

from . import data
from .evaluate import evaluate
from .model import Config, Recommender
from .serve import Server
from .train import Plan, train

CHECKPOINT = data.ROOT / "build" / "recommender.safetensors"


def arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m examples.recommender", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    shared = argparse.ArgumentParser(add_help=False)
    shared.add_argument("--data", type=Path, default=data.FOLDER, help="folder of ml-100k.inter and ml-100k.item")
    shared.add_argument("--checkpoint", type=Path, default=CHECKPOINT)
    shared.add_argument("--threads", type=int, help="of torch; default: one per core")

    training = commands.add_parser("train", parents=[shared], help="trains, and keeps the best on validation")
    training.add_argument("--epochs", type=int, default=Plan.epochs)
    training.add_argument("--batch-size", type=int, default=Plan.batch_size, help="users")
    training.add_argument("--lr", type=float, default=Plan.lr)
    training.add_argument("--seed", type=int, default=Plan.seed)
    for name in ("dim", "layers", "heads", "head_dim", "cap"):
        training.add_argument("--" + name.replace("_", "-"), type=int, default=getattr(Config, name))
    training.add_argument("--dropout", type=float, default=Config.dropout)

    commands.add_parser("evaluate", parents=[shared], help="the test: the last event of each user")

    recommending = commands.add_parser("recommend", parents=[shared], help="titles for one user")
    recommending.add_argument("--user", type=int, required=True, help="an id of the data, 1 to 943")
    recommending.add_argument("-n", type=int, default=10, help="so many titles")
    return parser.parse_args(argv)


def run_train(args: argparse.Namespace, events: data.Events) -> None:
    torch.manual_seed(args.seed)
    model = Recommender(Config(events.n_items, args.dim, args.layers, args.heads, args.head_dim, args.cap, args.dropout))
    plan = Plan(epochs=args.epochs, batch_size=args.batch_size, lr=args.lr, seed=args.seed)
    report = train(model, events, args.cap, plan)
    args.checkpoint.parent.mkdir(parents=True, exist_ok=True)
    model.save(args.checkpoint)
    print(f"best: epoch {report.best_epoch}, validation {report.best}; {statistics.median(report.seconds):.1f} s an epoch")
    print(f"wrote {args.checkpoint}")


def run_evaluate(args: argparse.Namespace, events: data.Events) -> None:
    model = Recommender.load(args.checkpoint)
    quality = evaluate(model.score_last, events, torch.arange(events.n_users), data.TEST, model.config.cap)
    print(f"test: {quality}, {events.n_users} users, all items that a user has not had")


def run_recommend(args: argparse.Namespace, events: data.Events) -> None:
    if args.user not in events.users:
        raise SystemExit(f"user {args.user} is not in the data")
    history = events.history(events.users.index(args.user))
    items, times = events.items[history].tolist(), events.times[history].tolist()
    server = Server(Recommender.load(args.checkpoint), 2)
    server.start(args.user, items, times)
    print(f"user {args.user}: {len(items)} events; the last three")
    for item in items[-3:]:
        print(f"             {events.titles[item]}")
    print("may like, with scores")
    for place, (item, score) in enumerate(server.recommend(args.user, args.n), 1):
        print(f"  {place:2}  {score:6.2f}   {events.titles[item]}")

    # Another user with the same history, whose last event comes alone.
    room = items[-server.cap:], times[-server.cap:]
    start = best_of(lambda: server.start("again", *(values[:-1] for values in room)))
    append = best_of(lambda: server.append("again", room[0][-1], room[1][-1]),
                     lambda: server.start("again", *(values[:-1] for values in room)))
    score = best_of(lambda: server.scores("again"))
    uncached = best_of(lambda: server.scores_uncached("again"))
    scores, scores_uncached = server.scores("again"), server.scores_uncached("again")
    same = torch.equal(*(s.topk(min(100, len(s))).indices for s in (scores, scores_uncached)))
    print(f"one more event {1e3 * append:.2f} ms, scores of all {events.n_items} items {1e3 * score:.2f} ms; without the "
          f"cache {1e3 * uncached:.2f} ms; history into the cache {1e3 * start:.2f} ms")
    print(f"with and without the cache: the first 100 {'the same' if same else 'NOT THE SAME'}, scores differ by at most "
          f"{(scores - scores_uncached).abs().max():.1e}")


def best_of(call: Callable[[], object], before: Callable[[], object] = lambda: None, runs: int = 20) -> float:
    """Seconds of a call, the fastest of some."""
    seconds = []
    for _ in range(runs):
        before()
        start = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - start)
    return min(seconds)


def main(argv: list[str] | None = None) -> None:
    args = arguments(argv)
    if args.threads:
        torch.set_num_threads(args.threads)
    if args.data == data.FOLDER:
        data.fetch()
    events = data.load(args.data)
    {"train": run_train, "evaluate": run_evaluate, "recommend": run_recommend}[args.command](args, events)


if __name__ == "__main__":
    main()
