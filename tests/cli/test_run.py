"""`pantile run` and `check` over .npy files, against HSTU in float64 NumPy."""

import re

import numpy as np
import pytest

import hstu_numpy

BOUND = 5e-6


def floats(rng, *shape):
    return rng.uniform(-1, 1, shape).astype(np.float32)


def qkv(rng, rows_q, rows_k, h=4, hk=2, d=20, dv=12):
    return floats(rng, rows_q, h, d), floats(rng, rows_k, hk, d), floats(rng, rows_k, hk, dv)


def agree(tmp_path, expected):
    got = np.load(tmp_path / "out.npy")
    assert got.dtype == np.float32 and got.shape == expected.shape
    assert hstu_numpy.error(got, expected) <= BOUND
    return got


def run_and_check(pantile, tmp_path, words, expected):
    done = pantile("run", "hstu", *words, "out=@out.npy")
    shape = str(expected.shape)
    assert (done.status, done.out, done.err) == (0, f"out.npy: {shape} float32\n", "")
    got = agree(tmp_path, expected)
    done = pantile("check", "hstu", *words)
    assert done.status == 0 and re.match(r"PASS: error \S+, bound 5e-06, all \d+ rows; ", done.out), done.out
    return got


def test_the_line_of_the_help(pantile, save, tmp_path):
    rng = np.random.default_rng(1)
    offsets, targets = np.array([0, 70, 70, 170]), np.array([5, 0, 3])
    q, k, v = qkv(rng, 175, 175)
    words = [save("q", q), save("k", k), save("v", v), save("seq_offsets_q", offsets), save("num_targets", targets),
             "alpha=0.125", "scaling_seqlen=4096"]
    expected = hstu_numpy.jagged(q, k, v, offsets, targets=targets, alpha=0.125, scale=1 / 4096)
    got = run_and_check(pantile, tmp_path, words, expected)
    assert (got[170:] == 0).all()


@pytest.mark.parametrize("index", [np.int32, np.int64])
def test_every_option_of_the_rule(pantile, save, tmp_path, index):
    rng = np.random.default_rng(2)
    offsets_q, offsets_k = np.array([0, 3, 40, 90], index), np.array([0, 30, 90, 140], index)
    contexts, targets = np.array([2, 0, 70], index), np.array([4, 7, 0], index)
    q, k, v = qkv(rng, 90, 150)
    words = [save("q", q), save("k", k), save("v", v), save("seq_offsets_q", offsets_q),
             save("seq_offsets_k", offsets_k), save("num_contexts", contexts), save("num_targets", targets),
             "target_group_size=3", "window_size=9,0", "min_full_attn_seq_len=2", "attn_scale=-0.01", "alpha=0.3",
             "max_seqlen_q=64", "max_seqlen_k=64"]
    expected = hstu_numpy.jagged(q, k, v, offsets_q, offsets_k, contexts=contexts, targets=targets, group=3,
                                 window=(9, 0), min_full=2, alpha=0.3, scale=-0.01)
    run_and_check(pantile, tmp_path, words, expected)


@pytest.mark.parametrize("rule, window", [("rule=none", (-1, -1)), ("rule=causal", (-1, 0)), ("rule=local:5,2", (5, 2)),
                                          ("window_size=3,-1", (3, -1)), ("window_size=0,0", (0, 0))])
def test_rules(pantile, save, tmp_path, rule, window):
    rng = np.random.default_rng(3)
    offsets = np.array([0, 33, 34, 67])
    q, k, v = qkv(rng, 67, 67)
    words = [save("q", q), save("k", k), save("v", v), save("seq_offsets_q", offsets), rule, "scaling_seqlen=10"]
    run_and_check(pantile, tmp_path, words, hstu_numpy.jagged(q, k, v, offsets, window=window, scale=0.1))


def test_used_lengths_and_row_scales(pantile, save, tmp_path):
    rng = np.random.default_rng(4)
    offsets, used_q, used_k = np.array([0, 20, 50]), np.array([7, 30]), np.array([19, 30])
    q, k, v = qkv(rng, 50, 50)
    q[7:20] = k[19:20] = v[19:20] = np.nan
    scale = floats(rng, 50)
    scale[7:20] = np.nan
    words = [save("q", q), save("k", k), save("v", v), save("seq_offsets_q", offsets), save("seqused_q", used_q),
             save("seqused_k", used_k), save("attn_scale", scale)]
    expected = hstu_numpy.jagged(q, k, v, offsets, used_q=used_q, used_k=used_k, scale=scale)
    run_and_check(pantile, tmp_path, words, expected)


def test_dense_layout_and_mask(pantile, save, tmp_path):
    rng = np.random.default_rng(5)
    b, h, sq, sk = 3, 4, 21, 17
    q, k, v = (x.reshape(b, -1, *x.shape[1:]) for x in qkv(rng, b * sq, b * sk))
    mask = rng.integers(0, 2, (b, h, sq, sk)).astype(bool)
    words = [save("q", q), save("k", k), save("v", v), "alpha=-0.5", "attn_scale=0.1"]
    expected = np.stack([hstu_numpy.sequence(q[i], k[i], v[i], mask[i], -0.5, 0.1) for i in range(b)])
    run_and_check(pantile, tmp_path, [*words, save("mask", mask)], expected)
    run_and_check(pantile, tmp_path, [*words, save("mask", mask.astype(np.uint8) * 200)], expected)
    one = mask[:1, :1]
    expected = np.stack([hstu_numpy.sequence(q[i], k[i], v[i], one[0, 0], -0.5, 0.1) for i in range(b)])
    run_and_check(pantile, tmp_path, [*words, save("mask", one)], expected)


def test_numbers_written_out(pantile, save, tmp_path):
    rng = np.random.default_rng(6)
    q, k, v = qkv(rng, 30, 30)
    words = [save("q", q), save("k", k), save("v", v), "seq_offsets_q=list:0,11,30", "num_targets=2",
             "num_contexts=list:3,1", "scaling_seqlen=1"]
    expected = hstu_numpy.jagged(q, k, v, [0, 11, 30], targets=2, contexts=[3, 1])
    run_and_check(pantile, tmp_path, words, expected)


def test_numbers_follow_the_type_of_the_arrays(pantile, save, tmp_path):
    rng = np.random.default_rng(7)
    q, k, v = qkv(rng, 30, 30)
    words = [save("q", q), save("k", k), save("v", v), save("seq_offsets_q", np.array([0, 30], np.int32)),
             "num_targets=2", "scaling_seqlen=1"]
    run_and_check(pantile, tmp_path, words, hstu_numpy.jagged(q, k, v, [0, 30], targets=2))


@pytest.mark.parametrize("offsets", [[0], [0, 0, 0]])
def test_nothing_to_compute(pantile, save, tmp_path, offsets):
    q, k, v = qkv(np.random.default_rng(8), 0, 0)
    words = [save("q", q), save("k", k), save("v", v), save("seq_offsets_q", np.array(offsets)), "scaling_seqlen=1"]
    run_and_check(pantile, tmp_path, words, np.zeros((0, 4, 12)))


def test_one_argument_is_a_line(pantile, save, tmp_path):
    q, k, v = qkv(np.random.default_rng(9), 5, 5)
    words = [save("q", q), save("k", k), save("v", v), "seq_offsets_q=list:0,5", "scaling_seqlen=1", "out=@out.npy"]
    assert pantile("run", " ".join(["hstu", *words])).status == 0
    agree(tmp_path, hstu_numpy.jagged(q, k, v, [0, 5]))


def test_names_with_blanks(pantile, tmp_path):
    q, k, v = qkv(np.random.default_rng(10), 5, 5)
    for name, x in (("q", q), ("k", k), ("v", v)):
        np.save(tmp_path / f"my {name}.npy", x)
    done = pantile("run", "hstu", "q=@my q.npy", "k=@my k.npy", "v=@my v.npy", "seq_offsets_q=list:0,5",
                   "scaling_seqlen=1", "out=@the out.npy")
    assert (done.status, done.out) == (0, "the out.npy: (5, 4, 12) float32\n")


def test_a_generated_problem(pantile, tmp_path):
    done = pantile("run", "hstu", "b=2", "h=3", "s=7", "d=5", "view=bhsd", "out=@a.npy")
    assert (done.status, done.out) == (0, "a.npy: (14, 3, 5) float32\n")
    pantile("run", "hstu", "b=2", "h=3", "s=7", "d=5", "layout=dense", "out=@b.npy")
    a, b = np.load(tmp_path / "a.npy"), np.load(tmp_path / "b.npy")
    assert b.shape == (2, 7, 3, 5) and (a == b.reshape(a.shape)).all()
    done = pantile("run", "hstu", "s=7", "d=5")
    assert (done.status, done.out) == (0, "computed; out=@file.npy keeps the result\n")


def test_refusals(refused, pantile, save, tmp_path):
    q, k, v = qkv(np.random.default_rng(11), 5, 5)
    q, k, v = save("q", q), save("k", k), save("v", v)
    offsets = "seq_offsets_q=list:0,5"
    refused("q: missing, expected q=@file.npy", "run", "hstu", k, v, offsets)
    refused("v: 'x', expected @file.npy", "run", "hstu", q, k, "v=x", offsets)
    refused("seq_offsets_q: missing (data is NULL), expected a tensor", "run", "hstu", q, k, v, "scaling_seqlen=1")
    refused("scaling_seqlen, attn_scale: neither given, expected exactly one", "run", "hstu", q, k, v, offsets)
    refused("s: unknown key of a line with arrays, see 'pantile help hstu'", "run", "hstu", q, k, v, "s=5")
    refused("out: 'out.npy', expected @file.npy", "run", "hstu", q, k, v, offsets, "out=out.npy")
    refused("window_size: given together with rule, expected one of them", "run", "hstu", q, k, v, offsets,
            "rule=causal", "window_size=1,0")
    refused("k: 2 heads, but q has 3; q heads must be a multiple of k heads", "run", "hstu",
            save("q3", np.zeros((5, 3, 20), np.float32)).replace("q3=", "q="), k, v, offsets, "scaling_seqlen=1")
    refused("q: shape (5, 3), expected 3 axes (jagged) or 4 (dense)", "run", "hstu",
            save("q2", np.zeros((5, 3), np.float32)).replace("q2=", "q="), k, v, offsets, "scaling_seqlen=1")
    refused("missing.npy: No such file or directory", "run", "hstu", "q=@missing.npy", k, v, offsets)
    refused("no/out.npy: No such file or directory", "run", "hstu", q, k, v, offsets, "scaling_seqlen=1",
            "out=@no/out.npy")
    refused("'gdn_forward': unknown operator, see 'pantile help'", "run", "gdn_forward", q, k, v)
    pantile("run", "hstu", q, k, v, "seq_offsets_q=list:0,6", "scaling_seqlen=1", "out=@out.npy")
    assert not (tmp_path / "out.npy").exists()
