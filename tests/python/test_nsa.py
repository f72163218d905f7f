"""Sparse and full attention on NumPy arrays: against the definitions, against each other, and refusals."""

import ctypes
import itertools

import ml_dtypes
import numpy as np
import pantile
import pytest
import reference as ref
from hypothesis import given, settings
from hypothesis import strategies as st
from pantile import _library

BLOCKS = dict(block=4, stride=2, select_block=6)
OPTIONS = dict(BLOCKS, topk=3, n_init=1, n_local=1, window=5)
LENGTHS = [13, 0, 3, 30]
OFFSETS = np.array([0, *itertools.accumulate(LENGTHS)])


def arrays(*shapes, seed=0, dtype=np.float32):
    rng = np.random.default_rng(seed)
    return [rng.standard_normal(shape).astype(dtype) for shape in shapes]


def inputs(rows, tokens=None, heads=(4, 2), dim=8, dv=5, **kwargs):
    """q, k, v, gates; jagged."""
    tokens = rows if tokens is None else tokens
    q, k, v, gates = arrays((rows, heads[0], dim), (tokens, heads[1], dim), (tokens, heads[1], dv), (rows, heads[0], 3), **kwargs)
    return q, k, v, gates


def close(got, expected, bound=2e-5):
    if got.size == 0:
        return got.shape == expected.shape
    hidden = np.isneginf(expected)
    assert np.array_equal(np.isneginf(got.astype(float)), hidden)
    difference = np.abs(np.where(hidden, 0, got.astype(float)) - np.where(hidden, 0, expected))
    return difference.max() <= bound * max(1, np.abs(np.where(hidden, 0, expected)).max())


def pick(options, names):
    return {name: options[name] for name in names.split() if name in options}


SELECTION = "block stride select_block topk n_init n_local scale score pool order count lse_in"
ATTEND = "block stride select_block window dense_len scale"
ALL = ["out_cmp", "out_slc", "out_swa", "lse_cmp", "lse_slc", "lse_swa", "importance", "idx", "nsel"]


def check(got, q, k, v, gates, offsets_q, offsets_k, *, bound=2e-5, **options):
    """All results of nsa_forward with the means as compressed keys, sequence by sequence. The selection is compared
    for the importance that was found, which is compared itself."""
    options = dict(OPTIONS, scale=q.shape[-1] ** -0.5, **options)
    for lo, hi, lo_k, hi_k in zip(offsets_q[:-1], offsets_q[1:], offsets_k[:-1], offsets_k[1:]):
        q_b, k_b, v_b, g_b = (x.astype(float) for x in (q[lo:hi], k[lo_k:hi_k], v[lo_k:hi_k], gates[lo:hi]))
        here = {name: x[lo:hi] for name, x in got.items()}
        length = hi_k - lo_k
        kc, vc = (ref.nsa_compress(x, options["block"], options["stride"]) for x in (k_b, v_b))
        cmp, lse_cmp, importance = ref.nsa_scores(q_b, kc, vc, length, **pick(options, "block stride select_block scale score pool"))
        n_blocks = importance.shape[2]
        idx = ref.nsa_select(here["importance"], length, **pick(options, "select_block topk n_init n_local order"))
        slc, lse_slc, swa, lse_swa = ref.nsa_attend(q_b, k_b, v_b, idx, **pick(options, "select_block window dense_len scale"))
        if options["window"] == 0:
            swa, lse_swa = np.zeros_like(swa), np.full_like(lse_swa, -np.inf)
        out = g_b[..., :1] * cmp + g_b[..., 1:2] * slc + g_b[..., 2:] * swa
        assert np.array_equal(here["idx"], idx)
        assert np.array_equal(here["nsel"], (idx >= 0).sum(-1))
        assert close(here["importance"][..., :n_blocks], importance, 8 * bound)
        for name, expected in dict(out=out, out_cmp=cmp, out_slc=slc, out_swa=swa, lse_cmp=lse_cmp, lse_slc=lse_slc,
                                   lse_swa=lse_swa).items():
            assert close(here[name], expected, bound), name


# ---- Against the definitions ----------------------------------------------------------------------

@settings(max_examples=100, deadline=None, derandomize=True)
@given(st.lists(st.tuples(st.integers(0, 25), st.integers(0, 6)), min_size=1, max_size=3),
       st.sampled_from([(1, 1), (2, 2), (6, 2), (5, 1)]), st.integers(1, 9), st.integers(1, 9),
       st.sampled_from([(4, 2, 6), (6, 2, 2), (3, 3, 3), (8, 4, 4), (2, 1, 5)]), st.integers(0, 2), st.integers(0, 2),
       st.integers(0, 3), st.integers(0, 7), st.sampled_from(["overlap", "plus", "ascend"]), st.sampled_from(["sum", "max"]),
       st.sampled_from(["index", "score"]), st.sampled_from([np.int32, np.int64]))
def test_any_shape(lengths, heads, dim, dv, blocks, n_init, n_local, more, window, score, pool, order, index):
    tokens = [more_tokens + rows for more_tokens, rows in lengths]
    offsets_q = np.array([0, *itertools.accumulate(rows for _, rows in lengths)], index)
    offsets_k = np.array([0, *itertools.accumulate(tokens)], index)
    q, k, v, gates = inputs(offsets_q[-1], offsets_k[-1], heads, dim, dv)
    options = dict(zip(("block", "stride", "select_block"), blocks), topk=max(1, n_init + n_local + more), n_init=n_init,
                   n_local=n_local, window=window, score=score, pool=pool, order=order)
    got = pantile.nsa_forward(q, k, v, gates, offsets_q, seq_offsets_k=offsets_k, want=ALL, **options)
    check(got, q, k, v, gates, offsets_q, offsets_k, **{**options, "dense_len": 0})


def test_dense_len():
    q, k, v, gates = inputs(OFFSETS[-1])
    got = pantile.nsa_forward(q, k, v, gates, OFFSETS, want=ALL, dense_len=21, **OPTIONS)
    check(got, q, k, v, gates, OFFSETS, OFFSETS, dense_len=21)


@pytest.mark.parametrize("dtype, bound", [(np.float16, 3e-3), (ml_dtypes.bfloat16, 2e-2)])
def test_halves(dtype, bound):
    q, k, v, gates = inputs(40, dtype=dtype)
    got = pantile.nsa_forward(q, k, v, gates, [0, 40], want=ALL, **OPTIONS)
    assert got["out"].dtype == dtype and got["lse_cmp"].dtype == np.float32
    check(got, q, k, v, gates, [0, 40], [0, 40], bound=bound)
    if dtype == ml_dtypes.bfloat16:
        bits = pantile.nsa_forward(*(x.view(np.uint16) for x in (q, k, v, gates)), [0, 40], **OPTIONS)
        assert np.array_equal(bits, got["out"].view(np.uint16))
    floats = pantile.nsa_forward(q, k, v, gates.astype(np.float32), [0, 40], **OPTIONS)
    assert np.array_equal(floats.view(np.uint16), got["out"].view(np.uint16))


def test_own_arrays_for_the_branches():
    q, k, v, gates = inputs(30)
    q_cmp, k_swa, v_swa, kc, vc = arrays((30, 4, 8), (30, 2, 8), (30, 2, 5), (14, 2, 8), (14, 2, 5), seed=1)
    got = pantile.nsa_forward(q, k, v, gates, [0, 30], kc=kc, vc=vc, seq_offsets_kc=[0, 14], q_cmp=q_cmp, k_swa=k_swa,
                              v_swa=v_swa, gate_act="sigmoid", scale=0.3, want=ALL, **OPTIONS)
    cmp, _, importance = ref.nsa_scores(q_cmp, kc, vc, 30, **BLOCKS, scale=0.3)
    slc, _, swa, _ = ref.nsa_attend(q, k, v, got["idx"], select_block=6, window=5, scale=0.3, k_swa=k_swa, v_swa=v_swa)
    g = 1 / (1 + np.exp(-gates.astype(float)))
    assert close(got["importance"], importance, 1e-4)
    assert close(got["out"], g[..., :1] * cmp + g[..., 1:2] * slc + g[..., 2:] * swa)


def test_lse_and_count_given():
    q, k, v, _ = inputs(30)
    kc, vc = (ref.nsa_compress(x, 4, 2).astype(np.float32) for x in (k, v))
    lse_in, = arrays((30, 4), seed=2)
    lse_in[3] = -np.inf
    count = np.random.default_rng(0).integers(0, 4, (30, 2))
    got = pantile.nsa_compressed_attention(q, kc, vc, [0, 30], seq_offsets_kc=[0, 14], lse_in=lse_in, count=count, topk=3,
                                           n_local=1, want=["out_cmp", "importance", "idx", "nsel"], **BLOCKS)
    cmp, _, importance = ref.nsa_scores(q, kc, vc, 30, **BLOCKS, scale=8 ** -0.5, lse_in=lse_in)
    idx = ref.nsa_select(got["importance"], 30, select_block=6, topk=3, n_init=1, n_local=1, count=count)
    assert list(got) == ["out_cmp", "importance", "idx", "nsel"]
    assert close(got["out_cmp"], cmp) and close(got["importance"], importance, 1e-4)
    assert np.array_equal(got["idx"], idx) and np.array_equal(got["nsel"], (idx >= 0).sum(-1))
    assert not got["importance"][3].any()


def test_scores_rounded_to_halves():
    q, k, v, _ = inputs(30)
    kc, vc = (ref.nsa_compress(x, 4, 2).astype(np.float32) for x in (k, v))
    options = dict(want=["importance"], **BLOCKS)
    exact, rounded = (pantile.nsa_compressed_attention(q, kc, vc, [0, 30], seq_offsets_kc=[0, 14], score_dtype=name, **options)
                      for name in ("float32", "bfloat16"))
    difference = np.abs(exact["importance"] - rounded["importance"]).max()
    assert 0 < difference < 8 * 1e-2


def test_any_selection_is_attended():
    q, k, v, _ = inputs(13)
    idx = np.random.default_rng(0).integers(-2, 4, (13, 2, 7))
    got = pantile.nsa_attend(q, k, v, idx, [0, 13], want=["out_slc", "lse_slc", "out_swa", "lse_swa"],
                             **pick(OPTIONS, ATTEND))
    expected = ref.nsa_attend(q, k, v, idx, select_block=6, window=5, scale=8 ** -0.5)
    for (name, array), other in zip(got.items(), expected):
        assert close(array, other), name
    off = pantile.nsa_attend(q, k, v, None, [0, 13], window=0, want=["out_slc", "lse_swa"])
    assert not off["out_slc"].any() and np.isneginf(off["lse_swa"]).all()


@pytest.mark.parametrize("window", [0, 4])
def test_full_attention(window):
    q, k, v, _ = inputs(OFFSETS[-1])
    got = pantile.attention_forward(q, k, v, OFFSETS, window=window, want=["lse"])
    for lo, hi in zip(OFFSETS[:-1], OFFSETS[1:]):
        out, lse = ref.full_attention(q[lo:hi], k[lo:hi], v[lo:hi], 8 ** -0.5, window)
        assert close(got["out"][lo:hi], out) and close(got["lse"][lo:hi], lse)
    assert np.array_equal(pantile.attention_forward(q, k, v, OFFSETS, window=window), got["out"])


@pytest.mark.parametrize("length", [0, 1, 31, 32, 47, 48, 49, 1000])
def test_compressed_length(length):
    function = _library.LIBRARY.ptl_nsa_compressed_length
    function.restype = ctypes.c_int64
    for block, stride in ((32, 16), (16, 16), (48, 16), (1, 1)):
        expected = function(*map(ctypes.c_int64, (length, block, stride)))
        assert pantile.nsa_compressed_length(length, block, stride) == expected
    assert pantile.nsa_compressed_length(length) == pantile.nsa_compressed_length(length, 32, 16)


def test_compress():
    x, w, pe = arrays((OFFSETS[-1], 2, 8), (4, 2), (4, 2, 8))
    got = pantile.nsa_compress(x, OFFSETS, block=4, stride=2, want=["seq_offsets_y"])
    assert got["seq_offsets_y"].tolist() == [0, 5, 5, 5, 19] and got["y"].shape == (19, 2, 8)
    weighted = pantile.nsa_compress(x, OFFSETS, block=4, stride=2, mode="weighted", w=w, pe=pe)
    for b, (lo, hi) in enumerate(zip(OFFSETS[:-1], OFFSETS[1:])):
        rows = slice(*got["seq_offsets_y"][b:b + 2])
        assert close(got["y"][rows], ref.nsa_compress(x[lo:hi], 4, 2))
        assert close(weighted[rows], ref.nsa_compress(x[lo:hi], 4, 2, w, pe))
    dense = pantile.nsa_compress(x[-30:].reshape(2, 15, 2, 8), block=4, stride=2)
    assert dense.shape == (2, 6, 2, 8) and close(dense[1], ref.nsa_compress(x[-15:], 4, 2))
    assert pantile.nsa_compress(x[-30:].reshape(2, 15, 2, 8), seqlens=[3, 9], block=4, stride=2).shape == (2, 3, 2, 8)
    assert pantile.nsa_compress(x, OFFSETS, rows=25, block=4, stride=2).shape == (25, 2, 8)


# ---- Against each other, bit for bit -----------------------------------------------------------------

def steps(x):
    return pick(x, ATTEND), pick(x, SELECTION)


@pytest.mark.parametrize("pool", ["sum", "max"])
def test_forward_is_the_composition(pool):
    q, k, v, gates = inputs(OFFSETS[-1])
    options = dict(OPTIONS, pool=pool)
    whole = pantile.nsa_forward(q, k, v, gates, OFFSETS, want=ALL, **options)
    kc = pantile.nsa_compress(k, OFFSETS, block=4, stride=2, want=["seq_offsets_y"])
    vc = pantile.nsa_compress(v, OFFSETS, block=4, stride=2)
    cmp = pantile.nsa_compressed_attention(q, kc["y"], vc, OFFSETS, seq_offsets_kc=kc["seq_offsets_y"],
                                           want=["out_cmp", "lse_cmp", "importance", "idx"], **pick(options, SELECTION))
    idx = pantile.nsa_select(cmp["importance"], OFFSETS, **pick(OPTIONS, "block stride select_block topk n_init n_local"))
    branches = pantile.nsa_attend(q, k, v, idx, OFFSETS, **pick(options, ATTEND))
    out = pantile.nsa_combine(gates, cmp["out_cmp"], **branches)
    for name, array in dict(cmp, out=out, **branches).items():
        assert np.array_equal(array, whole[name]), name
    assert np.array_equal(idx, whole["idx"])


def pages_of(x, offsets, size, order):
    """x [T, H, D] in pages of this size, in an order of their own, NaN where nothing is; and the table."""
    table = np.zeros((len(offsets) - 1, 40 // size + 1), np.int32)
    pages = np.full((table.size, size, *x.shape[1:]), np.nan, x.dtype)
    table[:] = order.permutation(table.size).reshape(table.shape)
    for b, (lo, hi) in enumerate(zip(offsets[:-1], offsets[1:])):
        for s in range(hi - lo):
            pages[table[b, s // size], s % size] = x[lo + s]
    return pages, table


@pytest.mark.parametrize("size", [1, 3, 16])
def test_pages_are_rows(size):
    q, k, v, gates = inputs(OFFSETS[-1])
    order = np.random.default_rng(size)
    k_pages, table = pages_of(k, OFFSETS, size, order)
    v_pages, _ = pages_of(v, OFFSETS, size, np.random.default_rng(size))
    options = dict(seqlens_k=LENGTHS, page_table=table)
    whole = pantile.nsa_forward(q, k, v, gates, OFFSETS, want=ALL, **OPTIONS)
    paged = pantile.nsa_forward(q, k_pages, v_pages, gates, OFFSETS, want=ALL, **OPTIONS, **options)
    assert all(np.array_equal(whole[name], paged[name]) for name in whole)
    assert np.array_equal(pantile.attention_forward(q, k, v, OFFSETS),
                          pantile.attention_forward(q, k_pages, v_pages, OFFSETS, **options))
    assert np.array_equal(pantile.nsa_compress(k, OFFSETS, block=4, stride=2),
                          pantile.nsa_compress(k_pages, seqlens=LENGTHS, page_table=table, block=4, stride=2))


def test_dense_chunks_and_strides():
    q, k, v, gates = (x.reshape(2, 20, *x.shape[1:]) for x in inputs(40))
    whole = pantile.nsa_forward(q, k, v, gates, want=ALL, **OPTIONS)
    jagged = pantile.nsa_forward(*(x.reshape(40, *x.shape[2:]) for x in (q, k, v, gates)), [0, 20, 40], want=ALL, **OPTIONS)
    bhsd = [np.ascontiguousarray(x.transpose(0, 2, 1, 3)).transpose(0, 2, 1, 3) for x in (q, k, v, gates)]
    strided = pantile.nsa_forward(*bhsd, want=ALL, **OPTIONS)
    for name in whole:
        assert np.array_equal(whole[name].reshape(jagged[name].shape), jagged[name]), name
        assert np.array_equal(strided[name], whole[name]), name
        chunk = pantile.nsa_forward(q[:, 13:], k, v, gates[:, 13:], want=[name], **OPTIONS)[name]
        assert np.array_equal(chunk, whole[name][:, 13:]), name


CACHE = dict(block=4, stride=2)


@pytest.mark.parametrize("size", [3, 16])
def test_decode_steps_are_rows(size):
    """Two sequences: a prompt by nsa_append, then ragged steps of 0 to 4 tokens."""
    lengths, offsets = [31, 24], [0, 31, 55]
    q, k, v, gates = inputs(55)
    whole = pantile.nsa_forward(q, k, v, gates, offsets, want=["idx", "lse_cmp"], **OPTIONS)
    order = np.random.default_rng(0)
    width = 32 // size + 1
    table, table_c = (order.permutation(2 * width).reshape(2, width).astype(np.int32) for _ in range(2))
    caches = [np.full((2 * width, size, 2, dim), np.nan, np.float32) for dim in (8, 5, 8, 5)]
    tables = dict(page_table=table, page_table_c=table_c)
    old = np.array([10, 3])
    rows = np.concatenate([np.arange(lo, lo + n) for lo, n in zip(offsets, old)])
    pantile.nsa_append([0, 0], old, k=k[rows], v=v[rows], seq_offsets=[0, 10, 13], k_pages=caches[0], v_pages=caches[1],
                       kc_pages=caches[2], vc_pages=caches[3], **tables, **CACHE)
    while (old < lengths).any():
        new = np.minimum(order.integers(0, 5, 2), np.array(lengths) - old)
        rows = np.concatenate([np.arange(lo + n, lo + n + more) for lo, n, more in zip(offsets, old, new)])
        got = pantile.nsa_decode(q[rows], gates[rows], old, old + new, *caches, k=k[rows], v=v[rows],
                                 seq_offsets_q=[0, new[0], new.sum()], want=["idx", "lse_cmp"], **tables, **OPTIONS)
        for name in got:
            assert np.array_equal(got[name], whole[name][rows]), name
        old = old + new
    kc = pantile.nsa_compress(k, offsets, **CACHE)
    for i in range(14):
        assert np.array_equal(caches[2][table_c[0, i // size], i % size], kc[i])


def test_rings_and_slots():
    k, = arrays((2, 20, 2, 8))
    w, pe = arrays((4, 2), (4, 2, 8), seed=1)
    options = dict(mode="weighted", **CACHE)
    expected = pantile.nsa_compress(k, w=w, pe=pe, **options)
    ring, kc = np.zeros((2, 4, 2, 8), np.float32), np.full((6, 3, 2, 8), np.nan, np.float32)
    done = []
    for lo, hi in ((0, 7), (7, 8), (8, 8), (8, 20)):
        first, last = (pantile.nsa_compressed_length(n, 4, 2) for n in (lo, hi))
        slots = np.full((2, 6), -1)
        slots[0, :last - first] = np.arange(first, last)
        slots[1, :last - first] = 9 + np.arange(first, last)
        pantile.nsa_append([lo] * 2, [hi] * 2, k=k[:, lo:hi], k_ring=ring, kc_pages=kc, slots=slots, w_k=w, pe_k=pe, **options)
        done.append(last)
    assert done == [2, 3, 3, 9] and np.array_equal(kc.reshape(2, 9, 2, 8), expected)
    assert np.array_equal(ring, k[:, 16:])


def test_threads():
    q, k, v, gates = inputs(300)
    results = [pantile.nsa_forward(q, k, v, gates, [0, 300], context=pantile.Context(n, "pool")) for n in (1, 2, 5)]
    assert all(np.array_equal(result, results[0]) for result in results)


# ---- Arguments -----------------------------------------------------------------------------------

def test_given_outputs():
    q, k, v, gates = inputs(40)
    expected = pantile.nsa_forward(q, k, v, gates, [0, 40], want=["idx", "lse_swa"], **OPTIONS)
    wide, idx = np.full((40, 4, 9), np.nan, np.float32), np.zeros((40, 2, 3), np.int32)
    got = pantile.nsa_forward(q, k, v, gates, [0, 40], out=wide[..., 2:7], idx=idx, **OPTIONS)
    assert np.shares_memory(got, wide) and np.array_equal(got, expected["out"]) and np.array_equal(idx, expected["idx"])
    assert np.isnan(wide[..., :2]).all() and np.isnan(wide[..., 7:]).all()
    branch = np.zeros((40, 4, 5), np.float32)
    got = pantile.nsa_attend(q, k, v, idx, [0, 40], want=["lse_swa"], out={"out_swa": branch}, **pick(OPTIONS, ATTEND))
    assert got["out_swa"] is branch and np.array_equal(got["lse_swa"], expected["lse_swa"])


def test_columns_of_importance():
    q, k, _, _ = inputs(30)
    kc = pantile.nsa_compress(k, [0, 30], block=4, stride=2)
    few, many = (pantile.nsa_compressed_attention(q, kc, None, [0, 30], seq_offsets_kc=[0, 14], want=["importance"],
                                                  n_blocks=n, **BLOCKS)["importance"] for n in (None, 8))
    assert few.shape == (30, 2, 5) and np.array_equal(many[..., :5], few) and many.shape[2] == 8


def test_nothing_to_do():
    q, k, v, gates = inputs(0)
    for offsets in ([0], [0, 0, 0]):
        assert pantile.nsa_forward(q, k, v, gates, offsets, want=ALL)["importance"].shape == (0, 2, 0)
    assert pantile.nsa_compress(k, [0, 0]).shape == (0, 2, 8)


@pytest.mark.parametrize("change, status, sentence", [
    (dict(k=lambda x: x.astype(np.float64)), "PTL_ERR_DTYPE", "k: float64, expected one of float32"),
    (dict(k=lambda x: x.astype(np.float16)), "PTL_ERR_DTYPE", "k: f16, but q is f32; all must be alike"),
    (dict(k=lambda x: x[:, :, ::2]), "PTL_ERR_LAYOUT", "k: stride 2 on the last axis, expected 1"),
    (dict(v=lambda x: np.repeat(x, 2, 1)), "PTL_ERR_SHAPE", "v: 4 on axis 1, expected 2"),
    (dict(gates=lambda x: x[..., :2]), "PTL_ERR_SHAPE", "gates: 2 on axis 2, expected 3"),
    (dict(seq_offsets_q=lambda x: [0, 12]), "PTL_ERR_SEQLEN", "seq_offsets_q: ends with 12"),
    (dict(seqlens_k=lambda x: [9]), "PTL_ERR_SEQLEN", "seqlens_k: 9 tokens in sequence 0, fewer than its 13"),
    (dict(page_table=lambda x: [[0]]), "PTL_ERR_", ""),
    (dict(select_block=lambda x: 5), "PTL_ERR_PARAM", "select_block: 5, expected a multiple of stride 2"),
    (dict(topk=lambda x: 1), "PTL_ERR_PARAM", "topk: 1, expected 1 to 2^31 - 1, and at least n_init + n_local = 1 + 1"),
    (dict(topk=lambda x: "3"), "PTL_ERR_PARAM", "topk: '3', expected a number"),
    (dict(score=lambda x: "Overlap"), "PTL_ERR_PARAM", "score: 'Overlap', expected one of overlap, plus, ascend"),
    (dict(gate_act=lambda x: "relu"), "PTL_ERR_PARAM", "gate_act: 'relu', expected one of none, sigmoid"),
    (dict(score_dtype=lambda x: "f16"), "PTL_ERR_PARAM", "score_dtype: 'f16', expected one of float32, float16, bfloat16"),
    (dict(want=lambda x: "idx"), "PTL_ERR_PARAM", "want: 'idx', expected a list of names"),
    (dict(want=lambda x: ["idx"], topk=lambda x: "3"), "PTL_ERR_PARAM", "topk: '3', expected a number"),
    (dict(want=lambda x: ["importance"], select_block=lambda x: 0), "PTL_ERR_PARAM", "select_block: 0, expected 1 or more"),
    (dict(want=lambda x: ["idx"], k=lambda x: x[0]), "PTL_ERR_LAYOUT", "k: 2 axes, expected 3 to 4"),
    (dict(want=lambda x: ["lse"]), "PTL_ERR_PARAM", "want: 'lse', expected some of out, out_cmp"),
    (dict(out=lambda x: [1]), "PTL_ERR_PARAM", "out: list, expected a writable NumPy array"),
    (dict(idx=lambda x: np.zeros((13, 2, 3))), "PTL_ERR_DTYPE", "idx: float64"),
    (dict(kc=lambda x: np.zeros((1, 2, 8), np.float32)), "PTL_ERR_NULL", "vc: missing"),
])
def test_refusals(change, status, sentence):
    q, k, v, gates = inputs(13)
    arguments = dict(q=q, k=k, v=v, gates=gates, seq_offsets_q=[0, 13], **OPTIONS)
    for name, fn in change.items():
        arguments[name] = fn(arguments.get(name))
    with pytest.raises(pantile.Error) as refused:
        pantile.nsa_forward(**arguments)
    assert refused.value.status.startswith(status) and str(refused.value).startswith(sentence), refused.value


def test_refusals_of_the_steps():
    q, k, v, gates = inputs(13)
    for call, sentence in [
            (lambda: pantile.nsa_compress(k), "seq_offsets: missing, expected with an x of this layout"),
            (lambda: pantile.nsa_compress(k[0]), "x: 2 axes, expected 3 to 4"),
            (lambda: pantile.nsa_compress(k, [0, 13], block=4, stride=3), "stride: 3, expected a divisor of block 4"),
            (lambda: pantile.nsa_compress(k, [0, 13], mode="max"), "mode: 'max', expected one of mean, weighted"),
            (lambda: pantile.nsa_compressed_attention(q, k, None, [0, 13], seq_offsets_kc=[0, 13]),
             "out_cmp: wanted, but vc is not given"),
            (lambda: pantile.nsa_compressed_attention(q, k, None, [0, 13], seq_offsets_kc=[0, 13], want=[]), "out_cmp: missing"),
            (lambda: pantile.nsa_combine(gates), "out: wanted, but out_slc is not given"),
            (lambda: pantile.nsa_select(np.zeros((13, 2, 1), np.float32), [0, 13], select_block=6, stride=6, block=6),
             "importance: 1 blocks on the last axis, expected 3"),
            (lambda: pantile.nsa_append([0], [1], k=k[None]), "k_pages: missing"),
            (lambda: pantile.nsa_append([0], [1], k=k[None], k_pages=[1], page_table=[[0]]), "k_pages: list, expected a writable"),
            (lambda: pantile.nsa_append([2], [1], k_pages=k[None], page_table=[[0]]), "seqlens_k: 1 for sequence 0 after"),
            (lambda: pantile.nsa_append([0], [13], k_pages=k[None], page_table=[[1]]), "page_table: ")]:
        with pytest.raises(pantile.Error) as refused:
            call()
        assert str(refused.value).startswith(sentence), refused.value
    with pytest.raises(TypeError, match="nsa_attend: unknown argument 'topk'"):
        pantile.nsa_attend(q, k, v, None, [0, 13], topk=3)
