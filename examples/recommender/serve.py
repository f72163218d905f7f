"""Serving with a cache: a history is computed once, each new event costs one row, and scores of all items follow."""

from __future__ import annotations

import torch

from .data import Batch
from .model import Recommender


class Server:
    """Users with their histories, known by any name. Not for several threads at a time.

    The cache holds keys and values of every layer for each event. A history that outgrows the model's cap
    loses its older half at once, is computed again, and has room for another half.
    """

    def __init__(self, model: Recommender, n_users: int):
        self.model, self.cap = model.eval(), model.config.cap
        self.cache = model.stack.new_cache(n_users)
        self.free = list(range(n_users))[::-1]
        self.slots: dict[object, int] = {}
        self.items: dict[object, list[int]] = {}  # whole histories: what was seen is not recommended
        self.times: dict[object, list[int]] = {}
        self.kept: dict[object, int] = {}  # the last so many events are in the cache
        self.rows: dict[object, torch.Tensor] = {}  # [dim], of the last event

    def start(self, user: object, items: list[int], times: list[int]) -> None:
        """A user with a history of one event or more; one who was here before starts anew."""
        if user not in self.slots:
            if not self.free:
                raise RuntimeError(f"{len(self.slots)} users are here; forget() one first")
            self.slots[user] = self.free.pop()
        self.items[user], self.times[user] = list(items), list(times)
        self._prefill(user, self.cap)

    def append(self, user: object, item: int, time: int) -> None:
        """One more event of a user."""
        self.items[user].append(item)
        self.times[user].append(time)
        if self.kept[user] == self.cap:
            self._prefill(user, self.cap // 2)
        else:
            self.kept[user] += 1
            self._compute(user, self.model.stack.append, 1)

    def forget(self, user: object) -> None:
        slot = self.slots.pop(user)
        self.cache.clear([slot])
        self.free.append(slot)
        for table in (self.items, self.times, self.kept, self.rows):
            del table[user]

    def scores(self, user: object) -> torch.Tensor:
        """[n_items], what may follow the history."""
        with torch.no_grad():
            return self.model.scores(self.rows[user][None])[0]

    def scores_uncached(self, user: object) -> torch.Tensor:
        """The same from the events that are in the cache, without it."""
        n = self.kept[user]
        return self.model.score_last(Batch(torch.zeros(1), torch.tensor(self.items[user][-n:]),
                                           torch.tensor(self.times[user][-n:]), torch.tensor([0, n]), None))[0]

    def recommend(self, user: object, n: int = 10) -> list[tuple[int, float]]:
        """The n best items that the user has not had, with their scores, best first."""
        scores = self.scores(user)
        scores[self.items[user]] = -torch.inf
        best = scores.topk(min(n, len(scores)))
        return list(zip(best.indices.tolist(), best.values.tolist()))

    def _prefill(self, user: object, longest: int) -> None:
        self.kept[user] = min(len(self.items[user]), longest)
        self._compute(user, self.model.stack.prefill, self.kept[user])

    @torch.no_grad()
    def _compute(self, user: object, call, n: int) -> None:
        """The last n events of a user through prefill() or append()."""
        x = self.model.embedding(torch.tensor(self.items[user][-n:]))
        rows = call(x, torch.tensor([0, n]), self.cache, sequences=[self.slots[user]],
                    timestamps=torch.tensor(self.times[user][-n:]))
        self.rows[user] = self.model.norm(rows[-1])
