"""`pantile compare`: verdicts on two files of results, by the exact text."""

import json

import pytest

ROW = dict(op="hstu", problem="s=64 d=16", isa="avx2", executor="serial", threads=1, min_ms=2.0, median_ms=2.1, gflops=50,
           peak_fraction=0.5, bandwidth_fraction=0.1, extra_bytes=0, error=None, peak_gflops=100, read_gbps=10, copy_gbps=8,
           disturbed=False, cpu="A CPU")
HEAD = """| op | problem | isa | threads | old ms | new ms | change | |
|:---|:--------|:----|--------:|-------:|-------:|-------:|:-|
"""


@pytest.fixture
def compare(pantile, tmp_path):
    """compare(old rows, new rows, options...) -> status, table rows, sum. Rows are what differs from ROW."""

    def run(old, new, *options):
        for name, rows in ("old.jsonl", old), ("new.jsonl", new):
            (tmp_path / name).write_text("".join(json.dumps({**ROW, **row}) + "\n" for row in rows))
        done = pantile("compare", "old.jsonl", "new.jsonl", *options)
        assert done.out.startswith(HEAD)
        table, total = done.out[len(HEAD):].split("\n\n")
        return done.status, table.splitlines(), total.strip()

    return run


def total(slower=0, same=0, faster=0, not_judged=0):
    return f"{slower} slower, {same} same, {faster} faster, {not_judged} not judged"


def test_by_the_share_of_the_peak(compare):
    # 20 % more time on a CPU that gave 20 % less: the same. The same time on one that gave 25 % more: slower.
    assert compare([{}], [dict(min_ms=2.4, peak_fraction=0.5)]) == (
        0, ["| hstu | s=64 d=16 | avx2 | 1 | 2.000 | 2.400 | +0.0 % | same |"], total(same=1))
    assert compare([{}], [dict(peak_fraction=0.4)]) == (
        0, ["| hstu | s=64 d=16 | avx2 | 1 | 2.000 | 2.000 | +25.0 % | slower |"], total(slower=1))


@pytest.mark.parametrize("share", [None, 0])
def test_by_time_without_a_peak(compare, share):
    assert compare([dict(peak_fraction=share)], [dict(min_ms=1.0)]) == (
        0, ["| hstu | s=64 d=16 | avx2 | 1 | 2.000 | 1.000 | -50.0 % | faster |"], total(faster=1))


def test_fail_slower(compare):
    new = [dict(peak_fraction=0.46)]  # 8.7 % slower
    assert compare([{}], new)[0] == 0
    for limit, status in (("5%", 1), ("5", 1), ("8.6%", 1), ("8.8%", 0), ("10%", 0)):
        done = compare([{}], new, "--fail-slower", limit)
        assert (done[0], done[2]) == (status, total(slower=1) if status else total(same=1))
    assert compare([{}], [dict(peak_fraction=0.9)], "--fail-slower", "0%")[0] == 0


@pytest.mark.parametrize("other, mark", [
    (dict(cpu="B CPU"), "another CPU"), (dict(isa="avx512"), "another isa"), (dict(threads=2), "other threads"),
    (dict(executor="pool"), "another executor")])
def test_other_settings_are_marked(compare, other, mark):
    good = dict(problem="s=8 d=16")
    status, rows, sums = compare([{}, good], [dict(other, min_ms=9, peak_fraction=0.1), good], "--fail-slower", "5%")
    assert (status, sums) == (0, total(same=1, not_judged=1))
    isa, threads = other.get("isa", "avx2"), other.get("threads", 1)
    assert rows[0] == f"| hstu | s=64 d=16 | {isa} | {threads} | 2.000 | 9.000 | - | {mark} |"


def test_a_file_without_cpu(compare):
    assert compare([dict(cpu=None)], [dict(cpu=None)])[0] == 0
    assert compare([dict(cpu=None)], [{}])[2] == total(not_judged=1)


def test_disturbed_and_missing(compare):
    old = [{}, dict(op="attention"), dict(op="nsa_decode")]
    new = [dict(disturbed=True, peak_fraction=0.1), dict(op="attention"), dict(op="nsa_select")]
    assert compare(old, new, "--fail-slower", "5%") == (0, [
        "| hstu | s=64 d=16 | avx2 | 1 | 2.000 | 2.000 | +400.0 % | disturbed |",
        "| attention | s=64 d=16 | avx2 | 1 | 2.000 | 2.000 | +0.0 % | same |",
        "| nsa_select | s=64 d=16 | avx2 | 1 | - | 2.000 | - | only new |",
        "| nsa_decode | s=64 d=16 | avx2 | 1 | 2.000 | - | - | only old |"], total(same=1, not_judged=3))


def test_repeats_and_levels(compare):
    old = [dict(peak_fraction=0.2, min_ms=5), {}, dict(min_ms=0.1, peak_fraction=0.99, disturbed=True)]
    new = [dict(isa="scalar"), dict(peak_fraction=0.4, min_ms=2.5), {}]
    assert compare(old, new) == (0, [
        "| hstu | s=64 d=16 | scalar | 1 | 2.000 | 2.000 | - | another isa |",
        "| hstu | s=64 d=16 | avx2 | 1 | 2.000 | 2.000 | +0.0 % | same |"], total(same=1, not_judged=1))


def test_what_bench_writes(pantile, tmp_path):
    for name in ("old.jsonl", "new.jsonl"):
        done = pantile("bench", "hstu", "s=8,16", "d=4", "isa=scalar", "threads=1", "--reps", "2", "--time", "0", "-o", "jsonl")
        (tmp_path / name).write_text(done.out)
    done = pantile("compare", "old.jsonl", "new.jsonl")
    assert done.out.count("| hstu | s=") == 2 and done.status in (0, 2)  # 2: every row disturbed


def test_refusals(refused, tmp_path):
    (tmp_path / "good").write_text(json.dumps(ROW))
    for name, text in dict(bad="no json", nested='{"op": {}}', open='{"op": "x"', few='{"op": "hstu", "isa": "avx2"}').items():
        (tmp_path / name).write_text(text)
        refused(f"{name}:1: not a line of 'pantile bench -o jsonl'", "compare", "good", name)
    (tmp_path / "empty").write_text("\n")
    refused("empty: no results in it", "compare", "empty", "good")
    refused("missing: No such file or directory", "compare", "missing", "good")
    refused("compare: expected two files, see 'pantile help compare'", "compare", "good")
    refused("--fail-slower: '-3', expected a percentage from 0 on", "compare", "good", "good", "--fail-slower", "-3")
    refused("--fail-slower: 'x%', expected a percentage from 0 on", "compare", "good", "good", "--fail-slower", "x%")
    refused("'--fail': unknown option, see 'pantile help compare'", "compare", "good", "good", "--fail", "5%")


def test_nothing_judged(pantile, tmp_path):
    (tmp_path / "old").write_text(json.dumps(ROW))
    (tmp_path / "new").write_text(json.dumps({**ROW, "cpu": "B CPU"}))
    done = pantile("compare", "old", "new")
    assert (done.status, done.err) == (2, "pantile: compare: nothing was judged\n")
