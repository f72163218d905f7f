"""results.py on lines made by hand: which times count, who is compared with whom, which floor is kept."""

import pytest

from results import by_factor, groups, read, verdicts


def entry(case, name):
    return next(e for e in case.entries if e.name == name)


def test_the_better_allocator_counts(lines):
    lines.case("a f32", pantile=1.0, eager=[4.0, 5.0])
    lines.check("a f32", "eager", "reuse")
    lines.turn("a f32", "eager", 3.0, "reuse")
    lines.turn("a f32", "eager", 3.5, "reuse")
    case = read(lines.path)[1]["a f32"]
    eager = entry(case, "eager")
    assert (eager.allocator, eager.best, eager.median) == ("reuse", 3.0, 1.5 * 3.25)
    assert eager.spread == pytest.approx(1 / 6)
    assert [e.name for e in case.entries] == ["pantile", "eager"]
    assert case.factor == 3.0


def test_rejected_turns_do_not_count(lines):
    lines.case("a f32", pantile=1.0, eager=4.0)
    lines.turn("a f32", "eager", 0.5, counts=False)
    lines.check("a f32", "compiled")
    lines.turn("a f32", "compiled", 0.5, counts=False)
    case = read(lines.path)[1]["a f32"]
    assert (entry(case, "eager").best, entry(case, "eager").rejected) == (4.0, 1)
    assert case.unmeasured == [("compiled", "default")]
    assert case.rival.name == "eager"


def test_a_failure_stands_until_the_contender_passes(lines):
    lines.case("a f32", pantile=1.0)
    lines.failure("a f32", "eager", "would need 40 GiB")
    lines.failure("a f32", "compiled", "wrong result")
    lines.check("a f32", "compiled")
    lines.turn("a f32", "compiled", 2.0)
    case = read(lines.path)[1]["a f32"]
    assert case.failures == {("eager", "default"): "would need 40 GiB"}
    assert case.rival.name == "compiled"


def test_a_repeated_case_is_one(lines):
    lines.case("a f32", pantile=1.0, eager=4.0)
    lines.machine()
    lines.case("a f32", pantile=0.9, eager=[3.0])
    machines, cases = read(lines.path)
    assert len(machines) == 2 and len(cases) == 1
    assert (cases["a f32"].ours.best, cases["a f32"].rival.best) == (0.9, 3.0)


def test_a_yardstick_is_no_rival(lines):
    lines.case("a f32", pantile=1.0, eager=4.0, sdpa=0.5)
    lines.case("decode 8K f32", family="nsa", pantile=1.0, nsa_eager=3.0, full_sdpa=0.2)
    cases = read(lines.path)[1]
    assert [case.rival.name for case in cases.values()] == ["eager", "nsa_eager"]
    assert [[e.name for e in case.yardsticks] for case in cases.values()] == [["sdpa"], ["full_sdpa"]]


def test_losses_come_first_and_cases_without_a_pair_not_at_all(lines):
    lines.case("won f32", pantile=1.0, eager=4.0)
    lines.case("lost f32", pantile=1.0, eager=0.5)
    lines.case("alone f32", pantile=1.0, sdpa=4.0)
    lines.case("failed f32", eager=4.0)
    ordered = by_factor(read(lines.path)[1])
    assert [(case.name, case.factor) for case in ordered] == [("lost f32", 0.5), ("won f32", 4.0)]


def test_groups(lines):
    lines.case("article b=1 f32", pantile=1.0, eager=4.0)
    lines.case("small b=4 f32", pantile=1.0, eager=0.25)
    lines.case("small b=4 bf16", dtype="bf16", pantile=1.0, eager=3.0)
    lines.case("step jagged b=16 f32", backward=True, pantile=1.0, eager=5.0)
    lines.case("jagged b=16 f32", pantile=1.0, eager=6.0)
    lines.case("prefill 4K f32", family="nsa", pantile=1.0, nsa_eager=7.0)
    lines.case("decode 4K f32", family="nsa", pantile=1.0, nsa_eager=8.0)
    assert [(g.name, g.dtype, len(g.cases), round(g.mean, 9), g.losses) for g in groups(read(lines.path)[1])] == [
        ("HSTU forward", "f32", 2, 1.0, 1), ("HSTU forward", "bf16", 1, 3.0, 0), ("HSTU jagged", "f32", 1, 6.0, 0),
        ("HSTU training step", "f32", 1, 5.0, 0), ("NSA decode", "f32", 1, 8.0, 0), ("NSA prefill", "f32", 1, 7.0, 0)]


def words(lines):
    return {v.promise: (v.word, v.kept, v.n) for v in verdicts(read(lines.path)[1])}


def test_floors(lines):
    lines.case("article b=1 f32", pantile=1.0, eager=2.5, openblas=1.2)
    lines.case("small b=4 f32", pantile=1.0, eager=9.0, compiled=2.6, openblas=1.3)
    lines.case("jagged b=16 f32", pantile=1.0, eager=3.9, openblas=1.4)
    lines.case("decode 64K f32", family="nsa", pantile=1.0, nsa_eager=1.0, nsa_compiled=3.0)
    lines.case("prefill 4K f32", family="nsa", pantile=1.0, nsa_eager=1.0, full_sdpa=2.0)
    lines.case("prefill 64K f32", family="nsa", pantile=1.0, nsa_eager=1.0, full_sdpa=8.5)
    said = words(lines)
    assert said["HSTU forward f32, fastest torch contender"] == ("met", 3, 3)
    assert said["HSTU forward f32, loop over OpenBLAS"] == ("missed", 2, 3)
    assert said["HSTU jagged f32, fastest torch contender"] == ("missed", 0, 1)
    assert said["HSTU forward bf16, fastest contender"] == ("not measured", 0, 0)
    assert said["NSA decode f32, compiled NSA"] == ("met", 1, 1)
    assert said["NSA prefill f32 at 64K, SDPA full attention"] == ("met", 1, 1)


def test_the_weakest_case_is_named(lines):
    lines.case("article b=1 f32", pantile=1.0, eager=2.5)
    lines.case("small b=4 f32", pantile=1.0, eager=2.0)
    assert verdicts(read(lines.path)[1])[0].weakest == "2.00x, small b=4 f32"


@pytest.mark.parametrize("ours, word", [(0, "met"), (3 << 20, "met"), (8 << 20, "missed")])
def test_memory_is_compared_with_the_least_of_all_others(lines, ours, word):
    lines.case("a f32", pantile=1.0, eager=4.0)
    lines.check("a f32", "pantile", extra_bytes=ours)
    lines.check("a f32", "eager", extra_bytes=100 << 20)
    lines.check("a f32", "sdpa", extra_bytes=2 << 20)
    lines.check("a f32", "sdpa", "reuse", extra_bytes=0)  # hides what it keeps
    assert words(lines)["memory of a call, every contender"][0] == word
