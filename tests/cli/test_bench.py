"""`pantile bench`: rows, fields, sweeps. Times are not judged, counted work is."""

import csv
import io
import json

import numpy as np
import pytest

import hstu_numpy

FIELDS = ["op", "problem", "isa", "executor", "threads", "min_ms", "median_ms", "gflops", "peak_fraction",
          "bandwidth_fraction", "extra_bytes", "error", "peak_gflops", "read_gbps", "copy_gbps", "disturbed", "cpu"]


@pytest.fixture
def bench(pantile):
    def run(*arguments):
        done = pantile("bench", *arguments, "--reps", "2", "--time", "0.1", "-o", "jsonl")
        assert (done.status, done.err) == (0, "")
        return [json.loads(line) for line in done.out.splitlines()]

    return run


def test_fields(bench):
    (row,) = bench("hstu", "b=2", "h=2", "s=40", "d=16", "isa=scalar", "threads=1")
    assert list(row) == FIELDS
    assert (row["op"], row["problem"]) == ("hstu", "b=2 h=2 s=40 d=16")
    assert (row["isa"], row["executor"], row["threads"]) == ("scalar", "serial", 1)
    assert 0 < row["min_ms"] <= row["median_ms"]
    assert row["error"] <= 5e-6
    assert row["peak_fraction"] == pytest.approx(row["gflops"] / row["peak_gflops"], rel=1e-3)
    bytes_once = 4 * 80 * 2 * 4 * 16
    assert row["bandwidth_fraction"] == pytest.approx(bytes_once / row["min_ms"] / 1e6 / row["read_gbps"], rel=1e-3)
    assert 0 < row["extra_bytes"] < 4 << 20


def pairs(row, dims):
    return row["gflops"] * row["min_ms"] * 1e6 / (2 * dims)


@pytest.mark.parametrize("line, rule", [
    ("rule=causal", {}),
    ("rule=none", {"window": (-1, -1)}),
    ("rule=local:7,3", {"window": (7, 3)}),
    ("window_size=-1,4", {"window": (-1, 4)}),
    ("window_size=6,-1", {"window": (6, -1)}),
    ("window_size=6,0 num_contexts=4", {"window": (6, 0), "contexts": 4}),
    ("window_size=9,0 num_contexts=4 num_targets=7 target_group_size=3", {"window": (9, 0), "contexts": 4, "targets": 7,
                                                                          "group": 3}),
    ("window_size=2,0 num_targets=5 min_full_attn_seq_len=6", {"window": (2, 0), "targets": 5, "min_full": 6}),
    ("num_contexts=99 num_targets=5", {"contexts": 99, "targets": 5}),
])
def test_only_valid_pairs_are_work(bench, line, rule):
    rows = bench("hstu", "b=3", "h=2", "sq=7,30,41", "sk=41", "d=4", "dv=3", "isa=scalar", "threads=1", *line.split())
    for row, uq in zip(rows, (7, 30, 41)):
        assert pairs(row, 7) == pytest.approx(6 * hstu_numpy.valid(uq, 41, **rule).sum(), rel=1e-4)


def test_valid_pairs_of_a_mask(bench):
    (row,) = bench("hstu", "b=3", "h=2", "s=20", "d=4", "isa=scalar", "threads=1", "mask=causal")
    assert pairs(row, 8) == pytest.approx(6 * 210, rel=1e-4)
    (row,) = bench("hstu", "b=3", "h=2", "s=20", "d=4", "isa=scalar", "threads=1", "mask=random:1", "mask_batch=b",
                   "mask_head=h")
    assert pairs(row, 8) == pytest.approx(6 * 400, rel=1e-4)


def test_backward_is_five_products(bench):
    (row,) = bench("hstu_backward", "b=3", "h=2", "s=20", "d=4", "dv=3", "isa=scalar", "threads=1")
    assert row["op"] == "hstu_backward" and row["error"] <= 1e-5
    assert pairs(row, 3 * 4 + 2 * 3) == pytest.approx(6 * 210, rel=1e-4)
    bytes_once = 4 * 3 * 20 * 2 * (2 * 4 + 3 + 2 * (4 + 3))
    assert row["bandwidth_fraction"] == pytest.approx(bytes_once / row["min_ms"] / 1e6 / row["read_gbps"], rel=1e-3)


def test_halves(bench):
    rows = bench("hstu", "h=2", "s=40", "d=16", "dtype=f32,f16,bf16", "isa=scalar", "threads=1")
    for row, size, bound in zip(rows, (4, 2, 2), (5e-6, 2e-3, 1.6e-2)):
        assert row["error"] <= bound and (size == 4 or row["error"] > 1e-5)
        bytes_once = size * 2 * 40 * 2 * 2 * 16
        assert row["bandwidth_fraction"] == pytest.approx(bytes_once / row["min_ms"] / 1e6 / row["read_gbps"], rel=1e-3)


@pytest.mark.parametrize("op, line, bytes_once", [
    ("hstu_kv_append", "lengths=list:5,0,9 h=2 d=8 dv=4 num_targets=list:1,0,2", 2 * 11 * 2 * 12 * 4),
    ("hstu_kv_append", "lengths=list:5,0,9 h=2 d=8 dtype=bf16 page_size=3 n_cached=random:20", 2 * 14 * 2 * 16 * 2),
    ("jagged_to_padded", "lengths=list:5,0,9 d=8 n=6", (18 + 11) * 8 * 4),
    ("padded_to_jagged", "lengths=list:5,0,9 d=8 n=6 align=end dtype=f16", (14 + 11) * 8 * 2),
    ("concat_jagged", "lengths_left=list:5,0,9 lengths_right=list:1,2,3 d=8 n_prefix=2", 2 * 20 * 8 * 4),
    ("split_jagged", "lengths_left=list:5,0,9 lengths_right=list:1,2,3 d=8", 2 * 20 * 8 * 4),
    ("position_time", "lengths=list:5,0,9 d=8", 14 * (2 * 8 * 4 + 8)),
    ("position_time_backward", "lengths=list:5,0,9 d=8 positions=10 buckets=6", 14 * (2 * 8 * 4 + 8) + 17 * 8 * 4),
])
def test_copies(bench, op, line, bytes_once):
    (row,) = bench(op, *line.split(), "isa=scalar", "threads=1")
    assert (row["op"], row["gflops"], row["peak_fraction"]) == (op, None, None)
    assert row["error"] <= (1e-6 if op.startswith("position") else 0)
    assert row["bandwidth_fraction"] == pytest.approx(bytes_once / row["min_ms"] / 1e6 / row["copy_gbps"], rel=1e-3)


def test_sweep(bench):
    rows = bench("hstu", "s=16,32", "h=2", "d=4,8", "isa=scalar", "threads=1", "window_size=4,0", "num_targets=list:3")
    assert [row["problem"] for row in rows] == [
        f"s={s} h=2 d={d} window_size=4,0 num_targets=list:3" for s in (16, 32) for d in (4, 8)]
    rows = bench("hstu", "s=16", "d=4", "isa=scalar", "threads=1,2", "executor=serial,pool")
    assert [(row["executor"], row["threads"]) for row in rows] == [("serial", 1), ("pool", 1), ("serial", 1), ("pool", 2)]


def test_csv(pantile):
    done = pantile("bench", "hstu", "b=2", "lengths=list:5,6", "d=4,8", "isa=scalar", "threads=1", "--reps", "2", "-o", "csv")
    assert (done.status, done.err) == (0, "")
    rows = list(csv.DictReader(io.StringIO(done.out)))
    assert list(rows[0]) == FIELDS
    assert [row["problem"] for row in rows] == ["b=2 lengths=list:5,6 d=4", "b=2 lengths=list:5,6 d=8"]
    assert all(row["disturbed"] in ("yes", "no") for row in rows)


def test_markdown(pantile):
    done = pantile("bench", "hstu", "s=16,128", "d=4", "isa=scalar", "threads=1", "--time", "0.01")
    assert (done.status, done.err) == (0, "")
    lines = done.out.splitlines()
    assert len(lines) == 4 and len({line.count("|") for line in lines}) == 1
    assert [cell.strip() for cell in lines[2].split("|")[1:6]] == ["hstu", "s=16 d=4", "scalar", "serial", "1"]


def test_arrays(bench, tmp_path):
    x = np.random.default_rng(1).uniform(-1, 1, (9, 2, 4)).astype(np.float32)
    np.save(tmp_path / "x.npy", x)
    words = ["q=@x.npy", "k=@x.npy", "v=@x.npy", "seq_offsets_q=list:0,4,9", "scaling_seqlen=3"]
    (row,) = bench("hstu", *words, "isa=scalar", "threads=1", "cache=cold")
    assert row["problem"] == " ".join([*words, "cache=cold"])
    assert pairs(row, 8) == pytest.approx(2 * (10 + 15), rel=1e-4)


def test_nothing_to_compute(bench):
    for line in ("b=0 s=4 d=4", "b=2 s=0 d=4"):
        (row,) = bench("hstu", *line.split(), "isa=scalar", "threads=1")
        assert (row["gflops"], row["error"]) == (0, 0)


def test_mismatch(pantile):
    done = pantile("bench", "hstu", "s=40", "d=8", "alpha=3e38", "attn_scale=2", "isa=scalar", "threads=1", "--reps", "1",
                   "-o", "jsonl")
    assert (done.status, done.err) == (1, "")
    assert json.loads(done.out)["error"] is None


def test_refusals(refused, pantile):
    refused("'--fast': unknown option, see 'pantile help bench'", "bench", "hstu", "s=4", "d=4", "--fast")
    refused("--reps: nothing behind it, see 'pantile help bench'", "bench", "hstu", "s=4", "d=4", "--reps")
    refused("--reps: '0', expected a whole number from 1 to 1000000", "bench", "hstu", "s=4", "d=4", "--reps", "0")
    refused("-o: 'xml', expected md, csv or jsonl", "bench", "hstu", "s=4", "d=4", "-o", "xml")
    many = ",".join(map(str, range(1000)))
    refused("line: stands for more than 100000 cases", "bench", "hstu", f"s={many}", f"d={many}")
    done = pantile("bench", "hstu", "s=4,x", "d=4", "isa=scalar", "threads=1", "-o", "jsonl", "--reps", "1")
    assert (done.status, done.err) == (2, "pantile: s: 'x', expected a whole number from 0 to 68719476736\n")
    assert len(done.out.splitlines()) == 1
