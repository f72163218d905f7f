"""Generated NSA and attention lines: what is accepted passes its check, what is refused says why, what is counted."""

import json
import re

import numpy as np
import pytest

import nsa_numpy

ACCEPTED = """
nsa_compress s=300 d=12
nsa_compress b=0 s=3 d=4
nsa_compress b=3 hk=2 lengths=list:0,31,300 d=12 page_size=7 mode=weighted pe=1 dtype=bf16 index=i64
nsa_compress b=2 hk=2 s=100 d=12 layout=dense block=6 stride=2 dtype=f16
nsa_append b=3 hk=2 lengths=list:5,31,300 sq=4 d=12 dv=8
nsa_append s=200 sq=100 d=12 layout=dense mode=weighted pe=1 page_size=3
nsa_append b=4 lengths=uniform:0,200 sq=70 d=8 dtype=f16 block=8 stride=4
nsa_compressed_attention h=6 hk=2 s=300 d=12
nsa_compressed_attention b=0 s=3 d=4
nsa_compressed_attention h=6 hk=2 b=2 s=300 sq=9 d=12 dv=8 page_size=5 importance=1 score=ascend order=score
nsa_compressed_attention h=3 hk=1 lengths=list:900,3,0,200 lengths_q=list:1,3,0,50 d=12 score=plus pool=max
nsa_compressed_attention h=4 hk=2 s=700 sq=50 d=16 out=0 lse=0 dtype=bf16 score_dtype=bf16 importance=1
nsa_compressed_attention h=4 hk=2 s=700 sq=50 d=16 layout=dense idx=0
nsa_select b=2 hk=2 s=3000 sq=50 d=1
nsa_select hk=2 s=3000 sq=20 d=1 topk=40 n_init=3 n_local=5 order=score layout=dense
nsa_attend h=4 hk=2 s=1500 sq=9 d=16 page_size=16
nsa_attend h=4 hk=2 b=2 lengths=list:90,300 sq=80 d=16 layout=dense dtype=f16 idx=0 window=20
nsa_attend h=4 hk=2 s=700 sq=90 d=16 window=0 block=8 stride=4 select_block=4 topk=9 scale=0.7 dense_len=650
nsa_combine h=4 s=50 d=16 b=2
nsa_combine h=4 s=50 d=16 dv=8 b=2 layout=dense gate_act=sigmoid dtype=f16
nsa_forward h=6 hk=2 b=3 lengths=uniform:1,700 sq=20 d=24 dv=12 branches=1 importance=1
nsa_forward h=6 hk=2 b=2 s=300 sq=20 d=24 layout=dense kc=1 k_swa=1 q_cmp=1 pool=max branches=1
nsa_forward h=2 s=300 d=16 dtype=bf16 gate_act=sigmoid
nsa_forward h=2 hk=2 s=200 d=16 block=8 stride=4 select_block=4 topk=5 window=0 page_size=1 threads=3
nsa_decode h=6 hk=2 b=3 lengths=list:1,99,1500 d=24 dv=12
nsa_decode h=6 hk=2 b=2 s=900 sq=5 d=24 page_size=3 k_swa=1 mode=weighted pe=1 importance=1 branches=1
nsa_decode h=16 hk=1 s=3000 d=16 dtype=bf16 threads=1 isa=scalar
attention h=6 hk=2 b=3 lengths=list:1,99,800 d=24 dv=12 page_size=3
attention h=3 hk=1 b=2 s=200 d=20 layout=dense dtype=f16 window=33 lse=0
attention_decode h=64 hk=1 s=2000 d=16
attention_decode b=4 h=8 hk=4 lengths=lognormal:300,900 d=16 dtype=bf16
""".strip().splitlines()


@pytest.mark.parametrize("line", ACCEPTED)
def test_accepted(pantile, line):
    done = pantile("check", *line.split())
    assert done.err == ""
    assert done.status == 0 and done.out.startswith("PASS: "), done.out


def test_verdicts(pantile):
    def parts(*words):
        return re.sub(r"\d\.\d\de[-+]\d+", "E", pantile("check", *words).out.split("; ")[0])

    shape = ["h=4", "hk=2", "s=200", "d=8"]
    assert parts("nsa_compress", *shape) == "PASS: y E of 2e-06, seq_offsets_y E of 0, all 11 rows"
    assert parts("nsa_decode", *shape) == ("PASS: k_pages E of 0, v_pages E of 0, kc_pages E of 2e-06, vc_pages E of "
                                           "2e-06, out E of 2e-05, idx E of 2e-05, all 1 rows")
    assert parts("nsa_forward", *shape) == "PASS: out E, idx E, bound 2e-05, all 200 rows"
    assert parts("nsa_forward", *shape, "dtype=bf16") == "PASS: out E of 0.02, idx E of 0.01, all 200 rows"
    assert parts("nsa_combine", *shape) == "PASS: error E, bound 2e-05, all 200 rows"
    assert parts("attention_decode", *shape, "dtype=f16") == "PASS: out E of 0.003, lse E of 0.002, all 4 rows"
    assert parts("nsa_forward", "h=64", "hk=1", "s=3000", "d=64").endswith(" of 3000 rows, sampled")


REFUSED = {
    "nsa_forward d=20": "s: missing, expected s or lengths, the tokens of each sequence",
    "nsa_forward s=20": "d: missing, expected the head size",
    "nsa_forward d=20 s=4 sk=4": "sk: given together with s, expected one of them",
    "nsa_forward d=20 s=4 lengths=list:4": "lengths: given together with s, expected one of them",
    "nsa_forward d=20 s=4 sq=2 lengths_q=list:4": "lengths_q: given together with sq, expected one of them",
    "nsa_forward d=20 s=4 foo=5": "foo: unknown key of nsa_forward, see 'pantile help nsa'",
    "nsa_select d=20 s=4 rule=none": "rule: unknown key of nsa_select, see 'pantile help nsa'",
    "nsa_forward d=20 s=4 h=6 hk=4": "hk: 4, expected a divisor of h, which is 6",
    "nsa_forward d=20 s=4 sq=5": "sq: 5 query rows in sequence 0, more than its 4 tokens",
    "nsa_forward d=20 lengths=list:4,3 lengths_q=list:4,4": "lengths_q: 4 query rows in sequence 1, more than its 3 tokens",
    "nsa_forward d=20 lengths=list:4,3 b=3": "lengths: 2 numbers, expected 3 (b)",
    "nsa_forward d=20 lengths=list:4,3 layout=dense": "sq: missing, expected it with lengths and layout=dense",
    "nsa_forward d=20 s=4 lengths_q=list:4 layout=dense": "lengths_q: given with layout=dense, expected sq",
    "nsa_forward d=20 s=4 block=0": "block: '0', expected a whole number from 1 to 68719476736",
    "nsa_forward d=20 s=4 score=near": "score: 'near', expected overlap, plus or ascend",
    "nsa_forward d=20 s=4 dtype=f64": "dtype: 'f64', expected f32, f16 or bf16",
    "nsa_forward d=20 s=4 kc=2": "kc: '2', expected 0 or 1",
    "nsa_forward d=20 s=4 scale=x": "scale: 'x', expected a finite number",
    "nsa_decode d=20 s=4 page_size=0": "page_size: 0, expected 1 or more (a cache)",
    "attention d=4000 h=65536 b=1000 s=68719476736 index=i64": "q: more than 2^63 bytes",
    "attention_decode d=1000 s=68719476736 h=64 index=i64": "k: no memory for 17592186044416000 bytes",
}


@pytest.mark.parametrize("line", REFUSED)
def test_refused(refused, line):
    refused(REFUSED[line], "check", *line.split())


def test_results_depend_on_the_problem_alone(pantile, tmp_path):
    """Contents belong to their place: layout, pages and threads change nothing, bit for bit; the seed does."""
    def result(op, *words, line=("h=4", "hk=2", "b=2", "s=500", "sq=3", "d=16")):
        assert pantile("run", op, *line, *words, "isa=scalar", "out=@out.npy").status == 0
        return np.load(tmp_path / "out.npy").reshape(6, 4, 16)

    for op in ("nsa_forward", "attention"):
        plain = result(op)
        assert np.array_equal(plain, result(op, "page_size=7", "threads=3"))
        assert np.array_equal(plain, result(op, "layout=dense", "index=i64"))
        assert not np.array_equal(plain, result(op, "seed=2"))
    assert np.array_equal(result("attention"), result("attention_decode"))


def test_softmax_is_neither_flat_nor_one_key(pantile, tmp_path):
    """Generated queries and keys are such that a selection means something."""
    assert pantile("run", "nsa_compressed_attention", "h=16", "hk=1", "s=16384", "sq=1", "d=64", "importance=1",
                   "importance=@i.npy").status == 2
    assert pantile("run", "nsa_compressed_attention", "h=16", "hk=1", "s=16384", "sq=1", "d=64",
                   "importance=@i.npy").status == 0
    share = np.sort(np.load(tmp_path / "i.npy")[0, 0])[::-1] / (16 * 2)
    assert share.sum() == pytest.approx(1, abs=1e-4)
    assert 2 / len(share) < share[0] < 0.3
    assert share[:16].sum() > 3 * 16 / len(share)


# ---- Counted work ----------------------------------------------------------------------------------------------------


@pytest.fixture
def bench(pantile):
    def run(*arguments):
        done = pantile("bench", *arguments, "--reps", "2", "--time", "0.1", "-o", "jsonl")
        assert (done.status, done.err) == (0, "")
        return [json.loads(line) for line in done.out.splitlines()]

    return run


def tokens(row, heads, dims):
    return row["gflops"] * row["min_ms"] * 1e6 / (2 * dims * heads)


def megabytes(row, rate="read_gbps"):
    return row["bandwidth_fraction"] * row[rate] * row["min_ms"]


def test_decode_counts_the_tokens_attended(bench):
    rows = bench("nsa_decode", "s=1000,4096", "h=8", "hk=2", "d=12", "dv=4", "isa=scalar", "threads=1", "cache=cold")
    for row, s in zip(rows, (1000, 4096)):
        t = s - 1
        selected = 15 * 64 + t % 64 + 1 if s > 1024 else s
        expected = nsa_numpy.n_compressed(s, 32, 16) + selected + 512
        assert tokens(row, 8, 16) == pytest.approx(expected, rel=1e-4)
        read = nsa_numpy.n_compressed(s, 32, 16) + min(s, selected + 512)
        block = 33 if (s - 32) % 16 == 0 else 0
        moved = 2 * 4 * 16 * (read + 2 + block) + 4 * 8 * (12 + 4)
        assert megabytes(row) == pytest.approx(moved * 1e-6, rel=2e-3)


def test_forward_counts_every_row(bench):
    (row,) = bench("nsa_forward", "s=300", "sq=70", "h=2", "d=4", "block=8", "stride=4", "select_block=16", "topk=6",
                   "window=50", "isa=scalar", "threads=1")
    expected = 0
    for t in range(230, 300):
        expected += nsa_numpy.n_compressed(t + 1, 8, 4) + 5 * 16 + t % 16 + 1 + 50
    assert tokens(row, 2, 8) == pytest.approx(expected, rel=1e-4)


def test_attend_counts_what_idx_names(bench, save):
    x = np.zeros((3, 2, 4), np.float32)
    k = np.zeros((99, 2, 4), np.float32)
    idx = np.array([[[0, -1, 9], [2, 1, 0]], [[5, 0, 0], [-1, -1, -1]], [[6, 2, -1], [1, 1, 3]]])
    words = [save("q", x), save("k", k), save("v", k), save("idx", idx), "seq_offsets_q=list:0,3",
             "seq_offsets_k=list:0,99", "select_block=16", "isa=scalar", "threads=1"]
    (row,) = bench("nsa_attend", *words, "window=0")
    both = 16 + 48 + 48 + 0 + 19 + 48  # block 6 begins at 96: three tokens of the last row
    assert tokens(row, 2, 8) == pytest.approx(both / 2, rel=1e-4)
    (row,) = bench("nsa_attend", *words, "window=20")
    assert tokens(row, 2, 8) == pytest.approx(both / 2 + 60, rel=1e-4)


def test_attention_counts_all(bench):
    (row,) = bench("attention_decode", "b=2", "s=500", "h=6", "hk=2", "d=8", "dv=4", "isa=scalar", "threads=1")
    assert row["op"] == "attention_decode" and row["error"] <= 2e-5
    assert tokens(row, 6, 12) == pytest.approx(1000, rel=1e-4)
    assert megabytes(row) == pytest.approx(4e-6 * (1000 * 2 * 12 + 2 * 6 * 12), rel=2e-3)
    (row,) = bench("attention", "s=100", "h=2", "d=8", "window=30", "isa=scalar", "threads=1")
    assert tokens(row, 2, 16) == pytest.approx(30 * 31 / 2 + 70 * 30, rel=1e-4)


def test_scores_alone_are_one_product(bench):
    (row,) = bench("nsa_compressed_attention", "s=1000", "sq=1", "h=4", "d=8", "out=0", "isa=scalar", "threads=1")
    assert tokens(row, 4, 8) == pytest.approx(61, rel=1e-4)


@pytest.mark.parametrize("line, moved", [
    ("nsa_compress s=1000 hk=2 d=8", 4 * 2 * 8 * (1000 + 61)),
    ("nsa_append s=1008 hk=2 d=8", 4 * 2 * 16 * (2 + 33)),
    ("nsa_append s=1009 hk=2 d=8", 4 * 2 * 16 * 2),
    ("nsa_select s=1000 sq=10 hk=2 d=1", 4 * 20 * (16 + 16 + 1)),
    ("nsa_combine s=10 h=2 d=8", 4 * 20 * (4 * 8 + 3)),
])
def test_the_others_copy(bench, line, moved):
    (row,) = bench(*line.split(), "isa=scalar", "threads=1")
    assert (row["gflops"], row["peak_fraction"]) == (None, None)
    assert megabytes(row, "copy_gbps") == pytest.approx(moved * 1e-6, rel=2e-3)
