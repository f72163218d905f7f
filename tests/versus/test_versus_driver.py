"""versus.py without processes: which turns count, what is resumed."""

import json
from types import SimpleNamespace

import pytest

import versus


class Script:
    """A worker whose answers are given."""

    def __init__(self, answers, name="pantile"):
        self.answers, self.contender, self.allocator = list(answers), SimpleNamespace(name=name), "default"
        self.best = float("inf")

    def times(self, seconds):
        return self.answers.pop(0)


def seconds(*medians):
    return [dict(median=x, min=x) for x in medians]


@pytest.fixture
def canary(monkeypatch):
    """canary(*medians): one that has seen ten times 1.0 and will see these."""
    monkeypatch.setattr(versus, "PAUSE", 0)

    def make(*medians):
        monkeypatch.setattr(versus, "Worker", lambda *_: Script(seconds(*[1.0] * 10, *medians)))
        return versus.Canary(SimpleNamespace())

    return make


@pytest.fixture
def results(tmp_path):
    return versus.Results(tmp_path / "folder/results.jsonl", resume=False)


def turns(results):
    return [row for row in map(json.loads, results.path.open()) if row["kind"] == "turn"]


def test_speed_is_to_what_a_tenth_of_the_turns_reach(canary):
    bird = canary(2.0, 0.5, 1.0)
    assert [bird.speed(), bird.speed(), bird.speed()] == [0.5, 2.0, 1.0]
    bird = canary(*[0.5] * 3, 1.0)  # no luck any more
    assert [bird.speed() for _ in range(4)] == [2.0, 1.0, 1.0, 0.5]


def test_waits_until_the_machine_is_at_its_speed(canary):
    bird = canary(2.0, 3.0, 2.0, 1.1)
    bird.speed()
    assert bird.wait() == pytest.approx(1 / 1.1)
    assert bird.worker.answers == []


def test_waits_no_longer_than_it_may(canary, monkeypatch):
    monkeypatch.setattr(versus, "WAIT", 0)
    bird = canary(2.0)
    bird.speed()
    assert bird.wait() == 0.5


def turn(results, bird, worker, tries=4, fastest=float("inf")):
    args = SimpleNamespace(tries=tries, seconds=0.1)
    return versus.turn(args, SimpleNamespace(name="case"), results, bird, worker, fastest)


def test_a_turn_at_usual_speed_counts_at_once(canary, results):
    worker = Script(seconds(0.3))
    assert turn(results, canary(1.0), worker)
    assert [(row["counts"], row["canary"], row["min"]) for row in turns(results)] == [(True, [1.0, 1.0], 0.3)]
    assert worker.best == 0.3


def test_a_turn_before_a_slow_canary_is_repeated(canary, results):
    """However good its time is: 0.1 is not believed, 0.3 is."""
    assert turn(results, canary(2.0, 1.0, 1.0), Script(seconds(0.1, 0.3)))
    assert [(row["counts"], row["min"]) for row in turns(results)] == [(False, 0.1), (True, 0.3)]


def test_a_turn_after_a_slow_canary_does_not_count(canary, results, monkeypatch):
    monkeypatch.setattr(versus, "WAIT", 0)
    bird = canary(2.0, 1.0, 1.0)
    bird.speed()
    assert turn(results, bird, Script(seconds(0.1, 0.3)))
    assert [(row["counts"], row["canary"]) for row in turns(results)] == [(False, [0.5, 1.0]), (True, [1.0, 1.0])]


def test_a_turn_is_given_up(canary, results, monkeypatch):
    monkeypatch.setattr(versus, "WAIT", 0)
    assert turn(results, canary(*[2.0] * 3), Script(seconds(0.1, 0.1, 0.1)), tries=3)
    assert [row["counts"] for row in turns(results)] == [False] * 3


@pytest.mark.parametrize("time, counts", [(5.0, True), (3.0, False)])
def test_who_has_lost_even_at_good_speed_is_not_tried_again(canary, results, monkeypatch, time, counts):
    """The canary at half its speed: 5 s would have been 2.5 s, more than twice the fastest; 3 s only 1.5 s."""
    monkeypatch.setattr(versus, "WAIT", 0)
    monkeypatch.setattr(versus, "LOST", 2.0)
    assert turn(results, canary(2.0), Script(seconds(time)), tries=1, fastest=1.0)
    assert [row["counts"] for row in turns(results)] == [counts]


def test_a_contender_that_fails_is_out(canary, results):
    assert not turn(results, canary(), Script([dict(failure="ended with status 1")]))
    row = json.loads(results.path.read_text())
    assert (row["kind"], row["contender"], row["reason"]) == ("failure", "pantile", "ended with status 1")


def test_results_are_resumed(results):
    results.add("case", case="first")
    results.add("done", case="first")
    results.add("case", case="second")
    before = results.path.read_text()
    assert versus.Results(results.path, resume=True).done == {"first"}
    assert results.path.read_text() == before


def test_results_begin_anew(results):
    results.add("done", case="first")
    again = versus.Results(results.path, resume=False)
    assert again.done == set() and again.path.read_text() == ""


def test_workers_that_fit_the_memory_live_at_the_same_time(results, monkeypatch):
    def contender(name, size, allocators=("default", "reuse"), needs=""):
        return SimpleNamespace(name=name, size=size, allocators=allocators, needs=needs, bf16_products=False)

    chosen = [contender("a", 20), contender("b", 30, ("default",)), contender("huge", 61, ("default",)),
              contender("elsewhere", 1, needs="checkout"), contender("c", 1)]
    monkeypatch.setattr(versus, "MEMORY", 0.6)
    monkeypatch.setattr(versus, "available_bytes", lambda: 100)
    monkeypatch.setattr(versus, "bytes_needed", lambda case, one: one.size)
    monkeypatch.setattr(versus.contenders, "contenders_of", lambda case: chosen)
    case = SimpleNamespace(name="case", dtype="f32")
    groups = versus.groups_of(SimpleNamespace(checkout=None, contenders=""), case, results)
    assert [[(one.name, allocator) for one, allocator in group] for group in groups] == [
        [("a", "default"), ("a", "reuse")], [("b", "default"), ("c", "default"), ("c", "reuse")]]
    row = json.loads(results.path.read_text())
    assert (row["kind"], row["contender"], row["allocator"]) == ("failure", "huge", "default")
    only = SimpleNamespace(checkout=None, contenders="^c$")
    assert [[one.name for one, _ in group] for group in versus.groups_of(only, case, results)] == [["c", "c"]]


@pytest.mark.parametrize("only, kinds", [("", ["turn", "done"]), ("pantile", ["turn"])])
def test_a_part_of_the_contenders_finishes_no_case(canary, results, monkeypatch, only, kinds):
    worker = Script(seconds(0.3))
    worker.contender.computes, worker.stop = "the same", lambda: None
    monkeypatch.setattr(versus, "groups_of", lambda *_: [[]])
    monkeypatch.setattr(versus, "start_workers", lambda *_: [worker])
    args = SimpleNamespace(rounds=1, tries=1, seconds=0.1, contenders=only)
    versus.run_case(args, SimpleNamespace(name="case"), results, canary(1.0))
    assert [row["kind"] for row in map(json.loads, results.path.open())] == kinds
