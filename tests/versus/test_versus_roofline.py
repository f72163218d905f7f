"""roofline.py: what it makes of lines of `pantile bench -o jsonl`, and how it goes on where it was stopped."""

import json
import sys
from pathlib import Path

import pytest

import report
import roofline

BENCH = dict(op="hstu", isa="avx2", executor="pool", threads=2, min_ms=2.0, median_ms=2.5, gflops=50.0,
             peak_fraction=0.5, bandwidth_fraction=0.25, extra_bytes=0, error=1e-7, peak_gflops=100.0, read_gbps=20.0,
             copy_gbps=10.0, disturbed=False, cpu="some CPU")


def record(label="hstu f32", part="operators", x=0, level="avx2", **bench):
    return dict(part=part, label=label, x=x, level=level, line="hstu s=8", **BENCH | bench)


def write(path, *records):
    path.write_text("".join(json.dumps(one) + "\n" for one in records))
    return path


def test_an_operator_below_the_peak():
    row = roofline.row_of(record())
    assert (row.gbps, row.intensity, row.bound, row.share) == (5.0, 10.0, "arithmetic", 0.5)
    assert row.work == 1e8


def test_an_operator_below_the_bandwidth():
    row = roofline.row_of(record(gflops=10.0, bandwidth_fraction=0.5))
    assert (row.gbps, row.intensity, row.bound, row.share) == (10.0, 1.0, "memory", 0.5)


def test_an_operator_that_copies():
    row = roofline.row_of(record(gflops=None, peak_fraction=None, bandwidth_fraction=0.75))
    assert (row.gbps, row.bound, row.share) == (7.5, "copy", 0.75)


def test_the_fastest_undisturbed_row_counts(tmp_path):
    rows, failures = roofline.read(write(
        tmp_path / "roofline.jsonl", record(min_ms=3.0), record(min_ms=2.0), record(min_ms=1.0, disturbed=True),
        record(label="other", min_ms=2.0, disturbed=True), record(label="other", min_ms=1.0, disturbed=True)))
    assert [(row.label, row.ms, row.disturbed) for row in rows] == [("hstu f32", 2.0, False), ("other", 1.0, True)]
    assert failures == []


def test_failures_stand_until_the_line_passes(tmp_path):
    failed = [dict(part="operators", label=label, x=0, level="avx2", line="hstu s=8", failure="no memory")
              for label in "ab"]
    rows, failures = roofline.read(write(tmp_path / "roofline.jsonl", *failed, record(label="b")))
    assert [row.label for row in rows] == ["b"]
    assert failures == [("avx2", "hstu s=8", "no memory")]


def test_curves_and_ratios():
    rows = [roofline.row_of(record(label, "decode", x, min_ms=ms, gflops=gflops))
            for label, x, ms, gflops in (("NSA", 8192, 1.0, 60.0), ("NSA", 4096, 1.0, 50.0),
                                         ("full attention", 4096, 3.0, 50.0), ("full attention", 16384, 9.0, 50.0))]
    assert [row.x for row in roofline.curves(rows, "decode")["NSA"]] == [4096, 8192]
    assert roofline.ratios(rows, "decode") == [(4096, 3.0, 3.0)]
    assert roofline.ratios(rows, "prefill") == []


@pytest.mark.parametrize("threads, counts", [(1, [1]), (2, [1, 2]), (6, [1, 2, 3, 4, 5, 6]), (12, [1, 2, 4, 8, 12])])
def test_thread_counts(threads, counts):
    assert roofline.thread_counts(threads) == counts


def test_the_plan():
    plan = roofline.plan(["scalar", "avx2", "avx512"], 2, quick=False)
    keys = [(level, p.part, p.label, p.x) for level, p in plan]
    assert len(set(keys)) == len(keys)
    assert list(dict.fromkeys(level for level, _ in plan)) == ["avx512", "avx2", "scalar"]
    assert {p.part for level, p in plan if level != "avx512"} == {"operators"}
    quick = roofline.plan(["scalar", "avx2", "avx512"], 2, quick=True)
    assert 0 < len(quick) < 30 and set(quick) < set(plan) and {level for level, _ in quick} == {"avx512"}


# ---- A command that only says what it was asked --------------------------------------------------

FAKE = """#!{python}
import json, os, sys
if sys.argv[1] == "info":
    print("pantile 0.1.0\\ncpu: some CPU\\nlevels: scalar avx2\\nlevel: avx2")
    sys.exit()
with open({log!r}, "a") as f:
    print(os.environ["PTL_CPU"], *sys.argv[2:], file=f)
if "bf16" in " ".join(sys.argv):
    print("pantile: dtype: no bf16 today", file=sys.stderr)
    sys.exit(2)
print(json.dumps(dict({bench!r}, isa=os.environ["PTL_CPU"])))
"""


@pytest.fixture
def measured(tmp_path, monkeypatch):
    """measured(*options): the lines that were asked."""
    log, fake = tmp_path / "log", tmp_path / "pantile"
    fake.write_text(FAKE.format(python=sys.executable, log=str(log), bench=BENCH))
    fake.chmod(0o755)
    points = [roofline.Point("operators", "hstu f32", "hstu s=8", quick=True),
              roofline.Point("operators", "hstu bf16", "hstu s=8 dtype=bf16")]
    monkeypatch.setattr(roofline, "operators", lambda: points)
    one_thread = roofline.Point("threads", "hstu f32", "hstu s=8 threads=1", 1)
    monkeypatch.setattr(roofline, "sweeps", lambda threads: [one_thread])

    def run(*options):
        log.write_text("")
        monkeypatch.setattr(sys, "argv", ["roofline.py", "--build", str(tmp_path), "--threads", "2", *options])
        roofline.main()
        return log.read_text().splitlines()

    run.out = tmp_path / "roofline.jsonl"
    return run


def test_goes_on_where_it_was_stopped(measured):
    asked = measured("--quick", "--seconds", "0.1")
    assert asked == ["avx2 hstu s=8 threads=2 --time 0.1 -o jsonl"]
    assert [line.split(" --")[0] for line in measured()] == [
        "avx2 hstu s=8 dtype=bf16 threads=2", "avx2 hstu s=8 threads=1", "scalar hstu s=8 threads=2",
        "scalar hstu s=8 dtype=bf16 threads=2"]
    assert len(measured()) == 2  # those that were refused
    rows, failures = roofline.read(measured.out)
    assert [(row.level, row.part) for row in rows] == [
        ("avx2", "operators"), ("avx2", "threads"), ("scalar", "operators")]
    assert failures == [(level, "hstu s=8 dtype=bf16 threads=2", "pantile: dtype: no bf16 today")
                        for level in ("avx2", "scalar")]


def test_again_asks_what_was_disturbed(measured):
    measured("--quick")
    assert measured("--quick", "--again") == []
    disturbed = json.loads(measured.out.read_text()) | dict(disturbed=True)
    write(measured.out, disturbed)
    assert measured("--quick") == []
    assert len(measured("--quick", "--again")) == 1
    assert measured("--quick", "--again") == []


def test_refuses_to_mix_machines(measured, capsys):
    write(measured.out, record(cpu="another CPU"))
    with pytest.raises(SystemExit):
        measured()
    assert "of another CPU, another CPU" in capsys.readouterr().err


def test_the_command_says_what_is_needed(command):
    asked = roofline.question("scalar", roofline.Point("operators", "hstu f32", "hstu s=8 d=8"), 1)
    row = roofline.row_of(asked | roofline.answer(command, asked, 0.001))
    assert (row.level, row.threads, row.line) == ("scalar", 1, "hstu s=8 d=8 threads=1")
    assert row.gflops > 0 and row.gbps > 0 and row.peak > 0 and row.read > 0 and row.copy > 0
    assert {"cpu", "levels"} <= set(roofline.machine(command))
    asked["line"] = "hstu s=minus d=8"
    assert roofline.answer(command, asked, 0.001)["failure"].startswith("pantile: s: ")


def test_the_section_has_every_figure(tmp_path, sketches):
    plan = roofline.plan(["scalar", "avx2"], 2, quick=False)
    rows = []
    for i, (level, point) in enumerate(plan):
        gflops = None if "jagged" in point.label else 1 + i
        rows.append(roofline.row_of(record(point.label, point.part, point.x, level, isa=level, gflops=gflops)))
    html = "\n".join(report.roofline_part(rows, [("avx2", "hstu s=8", "no memory")], Path(tmp_path)))
    assert html.count("<img ") == 2 * 2 + 8  # levels: the roofline, the copies; the sweeps
    assert html.count("<table>") == 2 + 1
    assert "avx2, hstu s=8: no memory" in html
