"""`pantile run hstu_backward` over .npy files, against gradients in float64 NumPy."""

import re

import numpy as np
import pytest

import hstu_numpy

OFFSETS = np.array([0, 30, 30, 71])
ALPHA, SCALE = 0.4, 0.05


def floats(rng, *shape):
    return rng.uniform(-1, 1, shape).astype(np.float32)


def inputs(rng, rows=75, h=4, hk=2, d=12, dv=8):
    return floats(rng, rows, h, d), floats(rng, rows, hk, d), floats(rng, rows, hk, dv), floats(rng, rows, h, dv)


def expected_gradients(q, k, v, dout, masks=None, biases=None, scale=SCALE, **rule):
    """[dq, dk, dv] with zero padding rows, one dS per sequence, ds."""
    grads = [np.zeros(x.shape) for x in (q, k, v)]
    scores, ds = [], np.zeros(len(q))
    for b in range(len(OFFSETS) - 1):
        rows = slice(OFFSETS[b], OFFSETS[b + 1])
        n = OFFSETS[b + 1] - OFFSETS[b]
        mask = hstu_numpy.valid(n, n, **rule) if masks is None else masks[b]
        row_scale = scale[rows] if np.ndim(scale) else scale
        *parts, score, ds[rows] = hstu_numpy.gradients(q[rows], k[rows], v[rows], dout[rows], mask, ALPHA, row_scale,
                                                       0.0 if biases is None else biases[b])
        for grad, part in zip(grads, parts):
            grad[rows] = part
        scores.append(score)
    return grads, scores, ds


def agree(tmp_path, name, expected, bound=1e-5, dtype=np.float32):
    got = np.load(tmp_path / f"{name}.npy")
    assert got.dtype == dtype and got.shape == expected.shape, name
    if dtype == np.uint16:
        got = hstu_numpy.from_bf16(got)
    assert hstu_numpy.error(got.astype(np.float64), expected) <= bound, name
    return got


def outputs(*names):
    return [f"{name}=@{name}.npy" for name in names]


WORDS = [f"alpha={ALPHA}", f"attn_scale={SCALE}"]


def test_gradients(pantile, save, tmp_path):
    q, k, v, dout = inputs(np.random.default_rng(1))
    words = [save("q", q), save("k", k), save("v", v), save("dout", dout), save("seq_offsets_q", OFFSETS), *WORDS,
             "num_targets=3", "num_contexts=2"]
    done = pantile("run", "hstu_backward", *words, *outputs("dv", "dq", "dk", "ds"))
    assert (done.status, done.err) == (0, "")
    assert done.out == ("dq.npy: (75, 4, 12) float32\ndk.npy: (75, 2, 12) float32\ndv.npy: (75, 2, 8) float32\n"
                        "ds.npy: (75,) float32\n")
    grads, _, ds = expected_gradients(q, k, v, dout, targets=3, contexts=2)
    for name, grad in zip(("dq", "dk", "dv"), grads):
        assert (agree(tmp_path, name, grad)[71:] == 0).all()
    agree(tmp_path, "ds", ds)
    done = pantile("check", "hstu_backward", *words, *outputs("ds"))
    assert re.match(r"PASS: dq \S+, dk \S+, dv \S+, ds \S+, bound 1e-05, all 426 rows; ", done.out), done.out
    done = pantile("run", "hstu_backward", *words)
    assert (done.status, done.out) == (0, "computed; dq=@file.npy keeps the result\n")


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_halves(pantile, save, tmp_path, dtype):
    arrays = inputs(np.random.default_rng(2))
    if dtype == "f16":
        stored, kind, bound = [x.astype(np.float16) for x in arrays], np.float16, 2e-3
        exact = [x.astype(np.float32) for x in stored]
    else:
        stored, kind, bound = [hstu_numpy.to_bf16(x) for x in arrays], np.uint16, 1.6e-2
        exact = [hstu_numpy.from_bf16(x) for x in stored]
    words = [save(name, x) for name, x in zip(("q", "k", "v", "dout"), stored)]
    done = pantile("run", "hstu_backward", *words, f"dtype={dtype}", save("seq_offsets_q", OFFSETS), *WORDS,
                   *outputs("dq", "dk", "dv"))
    shown = "float16" if dtype == "f16" else "uint16 (bf16)"
    assert done.out == (f"dq.npy: (75, 4, 12) {shown}\ndk.npy: (75, 2, 12) {shown}\n"
                        f"dv.npy: (75, 2, 8) {shown}\n"), done.err
    for name, grad in zip(("dq", "dk", "dv"), expected_gradients(*exact)[0]):
        agree(tmp_path, name, grad, bound, kind)


@pytest.mark.parametrize("heads", [1, 4])
@pytest.mark.parametrize("batch", [1, 3])
def test_dense_bias(pantile, save, tmp_path, heads, batch):
    rng = np.random.default_rng(3)
    q, k, v, dout = inputs(rng)
    bias = floats(rng, batch, heads, 41, 41)
    words = [save(name, x) for name, x in (("q", q), ("k", k), ("v", v), ("dout", dout), ("attn_bias", bias),
                                           ("seq_offsets_q", OFFSETS))]
    done = pantile("run", "hstu_backward", *words, *WORDS, "bias_scale=1.5", *outputs("dq", "dk", "dv", "dbias"))
    assert (done.status, done.err) == (0, "")
    lengths = np.diff(OFFSETS)
    biases = [1.5 * bias[b % batch, :, :n, :n].astype(np.float64) for b, n in enumerate(lengths)]
    grads, scores, _ = expected_gradients(q, k, v, dout, biases=biases)
    for name, grad in zip(("dq", "dk", "dv"), grads):
        agree(tmp_path, name, grad)
    dbias = np.zeros(bias.shape)
    for b, (n, score) in enumerate(zip(lengths, scores)):
        dbias[b % batch, :, :n, :n] += 1.5 * (score if heads == 4 else score.sum(0, keepdims=True))
    agree(tmp_path, "dbias", dbias)
    done = pantile("check", "hstu_backward", *words, *WORDS)
    assert re.match(r"PASS: dq \S+, dk \S+, dv \S+, dbias \S+, bound 1e-05, all 426 rows; ", done.out), done.out


@pytest.mark.parametrize("heads", [None, 4])
def test_tables(pantile, save, tmp_path, heads):
    rng = np.random.default_rng(4)
    q, k, v, dout = inputs(rng)
    pos, time = (floats(rng, *([heads] if heads else []), n) for n in (2 * 50 - 1, 5))
    times = np.cumsum(rng.integers(0, 1000, 75))
    words = [save(name, x) for name, x in (("q", q), ("k", k), ("v", v), ("dout", dout), ("seq_offsets_q", OFFSETS),
                                           ("pos_table", pos), ("time_table", time), ("timestamps", times))]
    thresholds = [0, 10, 1000, 5000]
    done = pantile("run", "hstu_backward", *words, *WORDS, "bias_scale=1", "time_thresholds=list:0,10,1000,5000",
                   "time_query=own", *outputs("dq", "dk", "dv", "dpos_table", "dtime_table"))
    assert (done.status, done.err) == (0, "")
    biases, numbers = [], []
    for b, n in enumerate(np.diff(OFFSETS)):
        here = times[OFFSETS[b]:OFFSETS[b + 1]]
        numbers.append(hstu_numpy.buckets(here, thresholds, n, own=True))
        biases.append(hstu_numpy.positions(pos, n, n).astype(np.float64) + time[..., numbers[b]])
    grads, scores, _ = expected_gradients(q, k, v, dout, biases=biases)
    for name, grad in zip(("dq", "dk", "dv"), grads):
        agree(tmp_path, name, grad)
    dpos, dtime = np.zeros((4, 99)), np.zeros((4, 5))
    for n, number, score in zip(np.diff(OFFSETS), numbers, scores):
        at = 49 + np.arange(n)[None, :] - np.arange(n)[:, None]
        for h in range(4):
            np.add.at(dpos[h], at, score[h])
            np.add.at(dtime[h], number, score[h])
    agree(tmp_path, "dpos_table", dpos if heads else dpos.sum(0))
    agree(tmp_path, "dtime_table", dtime if heads else dtime.sum(0))


def test_a_generated_problem(pantile, tmp_path):
    done = pantile("run", "hstu_backward", "b=2", "h=3", "s=7", "d=5", "dk=@a.npy", "ds=@s.npy")
    assert (done.status, done.out) == (0, "a.npy: (14, 3, 5) float32\ns.npy: (14,) float32\n")
    assert np.isfinite(np.load(tmp_path / "s.npy")).all()


def test_refusals(refused, save):
    q, k, v, dout = inputs(np.random.default_rng(5))
    words = [save("q", q), save("k", k), save("v", v), save("seq_offsets_q", OFFSETS), *WORDS]
    line = ["run", "hstu_backward", *words]
    refused("dout: missing, expected dout=@file.npy", *line)
    line.append(save("dout", dout))
    refused("dbias: asked for, but this line has no such output", *line, "dbias=@d.npy")
    refused("dq: '3', expected @file.npy", *line, "dq=3")
    refused("out: unknown key of a line with arrays, see 'pantile help hstu'", *line, "out=@o.npy")
    refused("dtime_table: asked for, but this line has no such output", "run", "hstu_backward", "s=5", "d=4",
            "dtime_table=@d.npy")
    refused("k_pages: given, but paged keys have no backward", *line, save("k_pages", np.zeros((1, 4, 2, 12), np.float32)))
    refused("page_size: given with hstu_backward, expected hstu", "check", "hstu_backward", "s=5", "d=4", "page_size=4")
