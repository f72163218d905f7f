"""`pantile run hstu` with halves, biases, intervals and paged keys, and `hstu_kv_append`, against NumPy."""

import re

import numpy as np
import pytest

import hstu_numpy

OFFSETS = np.array([0, 30, 30, 71])
LENGTHS = np.diff(OFFSETS)
WORDS = ["alpha=0.4", "attn_scale=0.05"]


def floats(rng, *shape):
    return rng.uniform(-1, 1, shape).astype(np.float32)


def qkv(rng, rows=75, h=4, hk=2, d=12, dv=8):
    return floats(rng, rows, h, d), floats(rng, rows, hk, d), floats(rng, rows, hk, dv)


def expected_out(q, k, v, masks=None, biases=None):
    out = np.zeros((*q.shape[:2], v.shape[2]))
    for b, n in enumerate(LENGTHS):
        rows = slice(OFFSETS[b], OFFSETS[b + 1])
        mask = hstu_numpy.valid(n, n) if masks is None else masks[b]
        out[rows] = hstu_numpy.sequence(q[rows], k[rows], v[rows], mask, 0.4, 0.05, 0.0 if biases is None else biases[b])
    return out


@pytest.fixture
def run_and_check(pantile, tmp_path):
    def run(words, expected, bound=5e-6, shown="float32"):
        done = pantile("run", "hstu", *words, "out=@out.npy")
        assert (done.status, done.out, done.err) == (0, f"out.npy: {expected.shape} {shown}\n", "")
        got = np.load(tmp_path / "out.npy")
        values = hstu_numpy.from_bf16(got) if got.dtype == np.uint16 else got.astype(np.float64)
        assert hstu_numpy.error(values, expected) <= bound
        done = pantile("check", "hstu", *words)
        assert done.status == 0 and re.match(rf"PASS: error \S+, bound {bound:.3g}, all \d+ rows; ", done.out), done.out
        return got

    return run


def arrays(save, q, k, v, **others):
    return [save(name, x) for name, x in dict(q=q, k=k, v=v, seq_offsets_q=OFFSETS, **others).items()] + WORDS


def test_float16(run_and_check, save):
    q, k, v = (x.astype(np.float16) for x in qkv(np.random.default_rng(1)))
    expected = expected_out(*(x.astype(np.float64) for x in (q, k, v)))
    assert run_and_check(arrays(save, q, k, v), expected, 2e-3, "float16").dtype == np.float16
    run_and_check([*arrays(save, q, k, v), "dtype=f16"], expected, 2e-3, "float16")


def test_bf16(run_and_check, save):
    q, k, v = (hstu_numpy.to_bf16(x) for x in qkv(np.random.default_rng(2)))
    bias = hstu_numpy.to_bf16(floats(np.random.default_rng(3), 1, 4, 41, 41))
    exact = [hstu_numpy.from_bf16(x) for x in (q, k, v)]
    words = [*arrays(save, q, k, v), "dtype=bf16"]
    run_and_check(words, expected_out(*exact), 1.6e-2, "uint16 (bf16)")
    biases = [0.4 * hstu_numpy.from_bf16(bias)[0, :, :n, :n].astype(np.float64) for n in LENGTHS]
    run_and_check([*words, save("attn_bias", bias)], expected_out(*exact, biases=biases), 1.6e-2, "uint16 (bf16)")


def test_dense_bias(run_and_check, save):
    rng = np.random.default_rng(4)
    q, k, v = qkv(rng)
    bias = floats(rng, 3, 4, 41, 41)
    for b, n in enumerate(LENGTHS):
        bias[b, :, n:] = bias[b, :, :, n:] = np.nan
    words = arrays(save, q, k, v, attn_bias=bias)
    for scale, word in ((0.4, []), (-2.0, ["bias_scale=-2"]), (0.4, ["bias_rows=key", "bias_scale=0.4"])):
        biases = [scale * bias[b, :, :n, :n].astype(np.float64) for b, n in enumerate(LENGTHS)]
        run_and_check([*words, *word], expected_out(q, k, v, biases=biases))


@pytest.mark.parametrize("own", [False, True])
def test_tables(run_and_check, save, own):
    rng = np.random.default_rng(5)
    q, k, v = qkv(rng)
    pos, time = floats(rng, 4, 2 * 41 - 1), floats(rng, 4)
    times = np.cumsum(rng.integers(0, 100, 75))
    words = arrays(save, q, k, v, pos_table=pos, time_table=time, timestamps=times,
                   time_thresholds=np.array([1, 50, 900]))
    biases = []
    for b, n in enumerate(LENGTHS):
        number = hstu_numpy.buckets(times[OFFSETS[b]:OFFSETS[b + 1]], [1, 50, 900], n, own)
        biases.append(0.4 * (hstu_numpy.positions(pos, n, n).astype(np.float64) + time[number]))
    run_and_check([*words, "time_query=own"] if own else words, expected_out(q, k, v, biases=biases))


@pytest.mark.parametrize("index", [np.int32, np.int64])
def test_intervals(run_and_check, save, index):
    rng = np.random.default_rng(6)
    q, k, v = qkv(rng)
    intervals = rng.integers(-5, 50, (75, 4)).astype(index)
    masks = []
    for b, n in enumerate(LENGTHS):
        rows, j = intervals[OFFSETS[b]:OFFSETS[b + 1]], np.arange(n)
        masks.append(((rows[:, 0:1] <= j) & (j < rows[:, 1:2])) | ((rows[:, 2:3] <= j) & (j < rows[:, 3:4])))
    words = [save(name, x) for name, x in (("q", q), ("k", k), ("v", v), ("seq_offsets_q", OFFSETS.astype(index)),
                                           ("intervals", intervals))] + WORDS
    run_and_check(words, expected_out(q, k, v, masks=masks))


def paged(rng, page_size=4, extra=3, d=12):
    """A cache of shuffled pages, NaN where nobody may read, and the new rows of three sequences."""
    cached, targets, new = [9, 0, 16], [2, 3, 0], [5, 3, 4]
    offsets = np.concatenate([[0], np.cumsum(new)])
    lists = [-(-n // page_size) for n in cached]
    page_offsets = np.concatenate([[0], np.cumsum(lists)])
    page_ids = rng.permutation(page_offsets[-1] + extra)[:page_offsets[-1]]
    last = np.array([n - (-(-n // page_size) - 1) * page_size if n else 0 for n in cached])
    pages = {name: np.full((page_offsets[-1] + extra, page_size, 2, d), np.nan, np.float32) for name in "kv"}
    rows = {name: floats(rng, offsets[-1], 2, d) for name in "kv"}
    history = {name: [floats(rng, n, 2, d) for n in cached] for name in "kv"}
    for name in "kv":
        for b, tokens in enumerate(history[name]):
            for x, token in enumerate(tokens):
                pages[name][page_ids[page_offsets[b] + x // page_size], x % page_size] = token
    q = floats(rng, offsets[-1], 4, d)
    return q, rows, pages, history, offsets, np.array(targets), page_offsets, page_ids, last


def test_paged_keys(run_and_check, save):
    q, rows, pages, history, offsets, targets, page_offsets, page_ids, last = paged(np.random.default_rng(7))
    expected = np.zeros(q.shape)
    for b, t in enumerate(targets):
        own = slice(offsets[b + 1] - t, offsets[b + 1])
        keys, values = (np.concatenate([history[name][b], rows[name][own]]) for name in "kv")
        uq = offsets[b + 1] - offsets[b]
        mask = hstu_numpy.valid(uq, len(keys), targets=t)
        expected[offsets[b]:offsets[b + 1]] = hstu_numpy.sequence(q[offsets[b]:offsets[b + 1]], keys, values, mask, 0.4,
                                                                  0.05)
    for b, t in enumerate(targets):
        for name in "kv":
            rows[name][offsets[b]:offsets[b + 1] - t] = np.nan
    words = [save(name, x) for name, x in dict(q=q, k=rows["k"], v=rows["v"], seq_offsets_q=offsets, num_targets=targets,
                                               k_pages=pages["k"], v_pages=pages["v"], page_offsets=page_offsets,
                                               page_ids=page_ids, last_page_lens=last).items()] + WORDS
    run_and_check(words, expected)


@pytest.mark.parametrize("kind", [np.float32, np.float16, np.uint16])
def test_append(pantile, save, tmp_path, kind):
    rng = np.random.default_rng(8)
    offsets, targets, cached = np.array([0, 5, 5, 12]), np.array([2, 0, 0]), np.array([3, 0, 8])
    page_offsets, page_ids = np.array([0, 2, 2, 6]), np.array([4, 1, 0, 6, 3, 5])
    k, v = (rng.integers(0, 60000, (13, 2, n)).astype(kind) for n in (6, 3))
    pages = [rng.integers(0, 60000, (8, 4, 2, n)).astype(kind) for n in (6, 3)]
    words = [save(name, x) for name, x in dict(k=k, v=v, seq_offsets=offsets, num_targets=targets, n_cached=cached,
                                               page_offsets=page_offsets, page_ids=page_ids, k_pages=pages[0],
                                               v_pages=pages[1]).items()]
    words += ["dtype=bf16"] if kind is np.uint16 else []
    done = pantile("run", "hstu_kv_append", *words, "k_pages_out=@ko.npy", "v_pages_out=@v_pages.npy")
    shown = {np.float32: "float32", np.float16: "float16", np.uint16: "uint16 (bf16)"}[kind]
    assert (done.status, done.err) == (0, "")
    assert done.out == f"ko.npy: (8, 4, 2, 6) {shown}\nv_pages.npy: (8, 4, 2, 3) {shown}\n"
    expected = [x.copy() for x in pages]
    for b in range(3):
        for x in range(offsets[b + 1] - offsets[b] - targets[b]):
            token = cached[b] + x
            for rows, cache in zip((k, v), expected):
                cache[page_ids[page_offsets[b] + token // 4], token % 4] = rows[offsets[b] + x]
    for name, want in (("ko", expected[0]), ("k_pages", pages[0]), ("v_pages", expected[1])):
        got = np.load(tmp_path / f"{name}.npy")
        assert got.dtype == kind and got.tobytes() == want.tobytes()
    done = pantile("check", "hstu_kv_append", *words)
    assert re.match(r"PASS: k_pages 0.00e\+00, v_pages 0.00e\+00, bound 0, all 10 rows; ", done.out), done.out
    assert pantile("run", "hstu_kv_append", *words).out == "computed; k_pages_out=@file.npy keeps the result\n"


@pytest.mark.parametrize("line", ["s=9 d=4", "b=3 h=4 hk=2 lengths=uniform:0,60 d=20 dv=12 num_targets=random:5 "
                                  "n_cached=random:50 page_size=7 dtype=bf16 view=gap index=i32", "b=0 s=4 d=3",
                                  "lengths=list:0,70,3 d=8 n_cached=13 page_size=1"])
def test_generated_appends(pantile, line):
    done = pantile("check", "hstu_kv_append", *line.split())
    assert (done.status, done.err) == (0, "") and done.out.startswith("PASS: k_pages 0.00e+00, v_pages 0.00e+00, bound 0, ")


def test_refusals(refused, save):
    q, k, v = qkv(np.random.default_rng(9))
    words = arrays(save, q, k, v)
    refused("bias_rows: 'row', expected query or key", "run", "hstu", *words, "bias_rows=row")
    refused("time_query: 'now', expected next or own", "run", "hstu", *words, "time_query=now")
    refused("timestamps: '5', expected @file.npy or list:a,b,...", "run", "hstu", *words, "timestamps=5")
    refused("attn_bias: '5', expected @file.npy", "run", "hstu", *words, "attn_bias=5")
    refused("bias_scale: '1e39', expected a number that fits fp32", "run", "hstu", *words, "bias_scale=1e39")
    refused("q: f32, but the line says dtype=f16", "run", "hstu", *words, "dtype=f16")
    refused("dtype: 'f64', expected f32, f16 or bf16", "run", "hstu", *words, "dtype=f64")
    refused("k: missing, expected k=@file.npy", "run", "hstu_kv_append", save("v", v))
    refused("k_pages: missing (data is NULL), expected a tensor", "run", "hstu_kv_append", save("k", k), save("v", v))
    refused("layout: dense, expected jagged", "check", "hstu_kv_append", "s=4", "d=4", "layout=dense")
    refused("page_size: '0', expected a whole number from 1 to 68719476736", "check", "hstu_kv_append", "s=4", "d=4",
            "page_size=0")
