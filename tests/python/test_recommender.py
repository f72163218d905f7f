"""examples/recommender: data, loss, metrics, cache, checkpoint, command, on small seeded data; ML-100K where it is."""

import math
import os
import re
import subprocess
import sys

import pytest
import torch
from conftest import ROOT

sys.path.insert(0, str(ROOT))

from examples.recommender import compare, data  # noqa: E402
from examples.recommender.__main__ import main  # noqa: E402
from examples.recommender.evaluate import evaluate, hide_seen  # noqa: E402
from examples.recommender.model import Config, Recommender  # noqa: E402
from examples.recommender.serve import Server  # noqa: E402
from examples.recommender.train import Plan, train  # noqa: E402

N_USERS, N_ITEMS = 100, 120
HAS_ML100K = all((data.FOLDER / name).is_file() for name in ("ml-100k.inter", "ml-100k.item"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Users of 4 to 23 events, several in one second; the first event of user u is item u, no item comes twice."""
    place = tmp_path_factory.mktemp("data")
    g = torch.Generator().manual_seed(3)
    rows = []
    for user in range(N_USERS):
        others = torch.randperm(N_ITEMS, generator=g)
        items = [user, *others[others != user][:3 + int(torch.randint(20, (), generator=g))].tolist()]
        times = torch.randint(2, (len(items),), generator=g).mul(40).cumsum(0).add(1000 * user).tolist()
        rows += [f"{user + 1}\t{item + 1}\t3\t{time}" for item, time in zip(items, times)]
    mixed = [rows[i] for i in torch.randint(8, (len(rows),), generator=g).add(torch.arange(len(rows)) % 5).argsort(stable=True)]
    names = "user_id:token\titem_id:token\trating:float\ttimestamp:float"
    (place / "ml-100k.inter").write_text("\n".join([names, *mixed]) + "\n")
    titles = [f"{i + 1}\tFilm {i + 1}\t{1900 + i}\tDrama" for i in range(N_ITEMS)]
    (place / "ml-100k.item").write_text("\n".join(["item_id:token\tmovie_title:token_seq\trelease_year:token\tclass:token_seq",
                                                   *titles]) + "\n")
    return place


@pytest.fixture(scope="module")
def events(folder):
    return data.load(folder)


def small(events, **options):
    """A model whose scores of items are far apart."""
    torch.manual_seed(5)
    model = Recommender(Config(events.n_items, **{**dict(dim=16, heads=2, head_dim=8, cap=16), **options}))
    torch.nn.init.normal_(model.embedding.weight, std=0.5)
    return model.eval()


def all_users(events):
    return torch.arange(events.n_users)


# ---- Data ----------------------------------------------------------------------------------------

def test_order(folder, events):
    """By time, then as in the file."""
    assert (events.n_users, events.n_items) == (N_USERS, N_ITEMS) and events.titles[4] == "Film 5 (1904)"
    lines = [line.split("\t") for line in (folder / "ml-100k.inter").read_text().splitlines()[1:]]
    for number, user in enumerate(events.users):
        expected = sorted(((int(t), int(i) - 1) for u, i, _, t in lines if int(u) == user), key=lambda event: event[0])
        rows = events.history(number)
        assert list(zip(events.times[rows].tolist(), events.items[rows].tolist())) == expected


@pytest.mark.parametrize("cap", [5, 100])
def test_split(events, cap):
    for left_out in (data.TRAIN, data.VALIDATION, data.TEST, data.NOW):
        batch = data.batch(events, all_users(events), left_out, cap)
        for number, (first, stop) in enumerate(zip(batch.offsets[:-1].tolist(), batch.offsets[1:].tolist())):
            items = events.items[events.history(number)].tolist()
            history = items[:len(items) - left_out]
            assert batch.items[first:stop].tolist() == history[-cap:]
            if left_out:
                assert batch.next_items[first:stop].tolist() == items[1:len(items) - left_out + 1][-cap:]
    assert batch.next_items is None


@pytest.mark.parametrize("by_length", [False, True])
def test_shuffled(events, by_length):
    def epoch():
        return list(data.shuffled(events, all_users(events), 16, 10, torch.Generator().manual_seed(1), by_length))

    users = [batch.users for batch in epoch()]
    assert torch.cat(users).sort().values.tolist() == list(range(N_USERS))
    assert [u.tolist() for u in users] == [batch.users.tolist() for batch in epoch()]


# ---- Model ---------------------------------------------------------------------------------------

def test_loss(events, monkeypatch):
    monkeypatch.setattr("examples.recommender.model._CrossEntropy.BLOCK", 7)
    model = small(events)
    batch = data.batch(events, torch.tensor([3, 8, 20]), data.TRAIN, 16)
    rows = model(batch.items, batch.times, batch.offsets)
    plain = torch.nn.functional.cross_entropy(model.scores(rows), batch.next_items)
    expected = torch.autograd.grad(plain, list(model.parameters()))
    loss = model.loss(batch)
    torch.testing.assert_close(loss, plain)
    for got, exact in zip(torch.autograd.grad(loss, list(model.parameters())), expected):
        torch.testing.assert_close(got, exact, rtol=1e-4, atol=1e-6)


def test_alone_as_in_a_batch(events):
    model = small(events)
    together = model.score_last(data.batch(events, all_users(events), data.TEST, 16))
    alone = torch.cat([model.score_last(data.batch(events, torch.tensor([u]), data.TEST, 16)) for u in range(N_USERS)])
    torch.testing.assert_close(together, alone, rtol=1e-4, atol=1e-5)


def test_checkpoint(events, tmp_path):
    model = small(events, layers=3)
    model.save(tmp_path / "model.safetensors")
    again = Recommender.load(tmp_path / "model.safetensors")
    assert again.config == model.config and not again.training
    batch = data.batch(events, all_users(events), data.TEST, 16)
    assert torch.equal(again.score_last(batch), model.score_last(batch))


def test_overfit(events):
    model = Recommender(Config(events.n_items, dim=32, heads=2, head_dim=16, cap=32, dropout=0.0))
    report = train(model, events, 32, Plan(epochs=25, batch_size=10, lr=1.2e-2, warmup=10, weight_decay=0.0, check_every=0),
                   quiet=True)
    assert report.losses[-1] < 0.1 * report.losses[0], report.losses


# ---- Metrics -------------------------------------------------------------------------------------

@pytest.mark.parametrize("better", [0, 3, 9, 10, 50])
def test_metrics(events, better):
    """`better` unseen items above the target, of which one ties."""
    def score_last(batch):
        target = batch.next_items[batch.last]
        scores = torch.zeros(len(target), N_ITEMS).scatter_(1, target[:, None], 1.0)
        for row, user, item in zip(scores, batch.users.tolist(), target.tolist()):
            seen = set(events.items[events.history(user, data.TEST)].tolist())
            row[list(seen)] = 9.0  # does not count
            unseen = [i for i in range(N_ITEMS) if i not in seen and i != item][:better]
            row[unseen] = 2.0
            row[unseen[:1]] = 1.0
        return scores

    quality = evaluate(score_last, events, all_users(events), data.TEST, 16)
    hit = better < 10
    assert quality.hr == hit and math.isclose(quality.ndcg, hit / math.log2(better + 2))


def test_nan_is_no_hit(events):
    quality = evaluate(lambda batch: torch.full((len(batch.users), N_ITEMS), math.nan), events, all_users(events), 1, 16)
    assert (quality.hr, quality.ndcg) == (0.0, 0.0)


def test_popularity(events):
    """Counts no event of the validation or the test."""
    counts = compare.Popularity(events).counts
    assert counts.sum() == len(events.items) - 2 * N_USERS
    scores = hide_seen(counts.repeat(2, 1), events, torch.tensor([4, 7]), data.TEST)
    assert scores[1].isinf().sum() == len(events.items[events.history(7, data.TEST)])


def test_table(folder):
    result = compare.run_one("popularity", 3, 1, folder)
    row = compare.table([result]).splitlines()[-1]
    assert re.fullmatch(r"\| popularity \| 0\.\d{3} \| 0\.\d{3} \| - \| - \| - \| - \|", row), row


# ---- Serving -------------------------------------------------------------------------------------

def same_ranking(server, user):
    """With and without the cache: equal but for items whose scores are closer than rounding."""
    cached, exact = server.scores(user), server.scores_uncached(user)
    torch.testing.assert_close(cached, exact, rtol=1e-4, atol=1e-4)
    order = exact.argsort(descending=True)
    gaps = -exact[order].diff()
    assert gaps.median() > 1e-3
    assert (cached[order].diff()[gaps > 3e-4] < 0).all()


def histories(events, users):
    return [(user, events.items[events.history(user)].tolist(), events.times[events.history(user)].tolist()) for user in users]


def test_cache(events):
    """Users whose events arrive in turn, until past the cap."""
    server = Server(small(events), 5)
    users = histories(events, sorted(range(N_USERS), key=lambda u: events.offsets[u] - events.offsets[u + 1])[:5])
    for user, items, times in users:
        server.start(user, items[:2], times[:2])
    for step in range(2, len(users[0][1])):
        for user, items, times in users:
            if step < len(items):
                server.append(user, items[step], times[step])
                same_ranking(server, user)
    for user, items, _ in users:
        assert 8 <= server.kept[user] <= 16 < len(items)
        best = server.recommend(user, 10)
        assert len(best) == 10 and not {item for item, _ in best} & set(items)
        assert [score for _, score in best] == sorted((score for _, score in best), reverse=True)


def test_start_is_as_evaluated(events):
    model = small(events)
    batch = data.batch(events, all_users(events), data.NOW, 16)
    expected = model.score_last(batch)
    server = Server(model, N_USERS)
    for user, items, times in histories(events, range(N_USERS)):
        server.start(user, items, times)
        torch.testing.assert_close(server.scores(user), expected[user], rtol=1e-4, atol=1e-4)


def test_places(events):
    (a, *one), (b, *two), (c, *three) = histories(events, [1, 2, 3])
    server = Server(small(events), 2)
    server.start(a, *one)
    server.start(b, *two)
    before = server.scores(b)
    with pytest.raises(RuntimeError, match="2 users are here"):
        server.start(c, *three)
    server.start(a, one[0][:3], one[1][:3])
    same_ranking(server, a)
    server.forget(a)
    server.start(c, *three)
    same_ranking(server, c)
    assert torch.equal(server.scores(b), before)
    same_ranking(server, b)


@pytest.mark.skipif(not HAS_ML100K, reason="ML-100K is not downloaded; tools/fetch_ml100k.py --titles")
def test_real_users():
    events = data.load()
    assert (events.n_users, events.n_items, len(events.items)) == (943, 1682, 100000)
    assert events.titles[0] == "Toy Story (1995)"
    lengths = events.offsets.diff()
    assert (lengths.min(), lengths.max()) == (20, 737)
    model = small(events, dim=32, heads=2, head_dim=16, cap=512)
    server = Server(model, 4)
    for user, items, times in histories(events, [41, 0, int(lengths.argmin()), int(lengths.argmax())]):
        server.start(user, items[:-1], times[:-1])
        server.append(user, items[-1], times[-1])
        same_ranking(server, user)


# ---- The command ---------------------------------------------------------------------------------

def test_command(folder, tmp_path, capsys):
    checkpoint = tmp_path / "sub" / "model.safetensors"
    shared = ["--data", folder, "--checkpoint", checkpoint]

    def run(*args):
        main([str(arg) for arg in args])
        return capsys.readouterr().out

    training = ["train", *shared, "--epochs", 2, "--dim", 16, "--head-dim", 8, "--cap", 16]
    printed = run(*training)
    number = r"\d\.\d{4}"
    assert re.search(rf"^epoch   2  loss {number}  validation HR@10 {number}, NDCG@10 {number}$", printed, re.M), printed
    assert printed.endswith(f"wrote {checkpoint}\n")
    first = checkpoint.read_bytes()
    run(*training)
    assert checkpoint.read_bytes() == first, "the same seed, another model"

    assert re.fullmatch(rf"test: HR@10 {number}, NDCG@10 {number}, 100 users, all items that a user has not had\n",
                        run("evaluate", *shared))
    recommending = ["recommend", *shared, "--user", 42, "-n", 4]
    lines = run(*recommending).splitlines()
    assert re.fullmatch(r"user 42: \d+ events; the last three", lines[0])
    assert all(re.fullmatch(r" +Film \d+ \(\d{4}\)", line) for line in lines[1:4])
    assert lines[4] == "may like, with scores"
    assert all(re.fullmatch(rf"   {i}  +-?\d+\.\d\d   Film \d+ \(\d{{4}}\)", line) for i, line in enumerate(lines[5:9], 1))
    assert lines[9].startswith("one more event ") and "the first 100 the same" in lines[10]

    # As a user starts it.
    done = subprocess.run([sys.executable, "-m", "examples.recommender", *map(str, recommending)], capture_output=True,
                          text=True, timeout=300, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT / "python")})
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[:9] == lines[:9]


def test_refusals(folder, tmp_path):
    for place, user, words in ((folder, 4242, "user 4242 is not in the data"), (tmp_path, 1, "downloads it")):
        with pytest.raises(SystemExit, match=words):
            main(["recommend", "--data", str(place), "--user", str(user)])
