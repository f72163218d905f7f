"""ML-100K as the events of users in order of time, and jagged batches of their histories. Knows no model."""

from __future__ import annotations

import csv
import importlib.util
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "build" / "data"

# Leave one out: the last event of a user is the test, the one before it the validation. So many events
# of each user are not in the history:
TRAIN, VALIDATION, TEST, NOW = 3, 2, 1, 0


@dataclass
class Events:
    """All events, user after user, each user's in order of time, then of the file."""
    items: torch.Tensor  # int64 [T], from 0
    times: torch.Tensor  # int64 [T], seconds
    offsets: torch.Tensor  # int64 [U+1]
    users: list[int]  # [U], their ids in the file
    item_ids: list[int]  # ids in the file
    titles: list[str]

    @property
    def n_users(self) -> int:
        return len(self.users)

    @property
    def n_items(self) -> int:
        return len(self.item_ids)

    def history(self, user: int, left_out: int = NOW) -> slice:
        """The rows of user number `user`, but for the last `left_out`."""
        return slice(int(self.offsets[user]), int(self.offsets[user + 1]) - left_out)


@dataclass
class Batch:
    """The histories of B users, end to end."""
    users: torch.Tensor  # [B]
    items: torch.Tensor  # [T]
    times: torch.Tensor  # [T]
    offsets: torch.Tensor  # [B+1]
    next_items: torch.Tensor | None  # [T], the item after each event; None where that is not known

    @property
    def last(self) -> torch.Tensor:
        """[B], the row of each user's last event."""
        return self.offsets[1:] - 1


def fetch(folder: Path = FOLDER) -> None:
    """Downloads the events and titles, unless they are there."""
    spec = importlib.util.spec_from_file_location("fetch_ml100k", ROOT / "tools" / "fetch_ml100k.py")
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    tool.fetch(folder / "ml-100k.inter", titles=True)


def load(folder: Path = FOLDER) -> Events:
    """Reads ml-100k.inter (user, item, rating, seconds) and ml-100k.item (item, title, year). Users with
    fewer than four events cannot be split and are left out."""
    for name in ("ml-100k.inter", "ml-100k.item"):
        if not (folder / name).is_file():
            raise SystemExit(f"{folder / name} is not there; tools/fetch_ml100k.py --titles downloads it")
    titles = {}
    with open(folder / "ml-100k.item", encoding="utf-8", newline="") as file:
        for row in list(csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE))[1:]:
            titles[int(row[0])] = f"{row[1]} ({row[2]})" if row[2:] and row[2] else row[1]
    item_ids = sorted(titles)
    number = {item: i for i, item in enumerate(item_ids)}

    by_user: dict[int, list[tuple[int, int]]] = {}
    with open(folder / "ml-100k.inter", encoding="utf-8", newline="") as file:
        lines = csv.reader(file, delimiter="\t")
        next(lines)  # names of the columns
        for user, item, _, seconds in lines:
            by_user.setdefault(int(user), []).append((int(float(seconds)), number[int(item)]))
    users = sorted(user for user, events in by_user.items() if len(events) >= 4)
    for user in users:
        by_user[user].sort(key=lambda event: event[0])  # stable: half of the events share their second
    lengths = torch.tensor([len(by_user[user]) for user in users])
    times, items = torch.tensor([event for user in users for event in by_user[user]]).unbind(1)
    return Events(items.contiguous(), times.contiguous(), torch.nn.functional.pad(lengths.cumsum(0), (1, 0)), users,
                  item_ids, [titles[item] for item in item_ids])


def batch(events: Events, users: torch.Tensor, left_out: int, cap: int) -> Batch:
    """The last `cap` events of each history, which lacks the user's last `left_out` events."""
    stop = events.offsets[users + 1] - left_out
    start = torch.maximum(events.offsets[users], stop - cap)
    lengths = stop - start
    offsets = torch.nn.functional.pad(lengths.cumsum(0), (1, 0))
    rows = torch.arange(int(offsets[-1])) + torch.repeat_interleave(start - offsets[:-1], lengths)
    next_items = events.items[rows + 1] if left_out > 0 else None
    return Batch(users, events.items[rows], events.times[rows], offsets, next_items)


def shuffled(events: Events, users: torch.Tensor, size: int, cap: int, generator: torch.Generator,
             by_length: bool = False) -> Iterator[Batch]:
    """One epoch of training batches. by_length puts users of like lengths together: jagged batches gain
    nothing from it, padded ones much."""
    users = users[torch.randperm(len(users), generator=generator)]
    if by_length:
        lengths = events.offsets[users + 1] - events.offsets[users]
        users = users[lengths.clamp(max=cap).argsort(stable=True)]
    parts = users.split(size)
    order = torch.randperm(len(parts), generator=generator).tolist() if by_length else range(len(parts))
    for i in order:
        yield batch(events, parts[i], TRAIN, cap)
