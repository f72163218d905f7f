"""NumPy functions against the definitions; arguments as people give them; refusals."""

import hstu_numpy as ref
import ml_dtypes
import numpy as np
import pantile
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

OFFSETS = [0, 5, 5, 8]
N = 16


def arrays(*shapes, seed=0, dtype=np.float32):
    rng = np.random.default_rng(seed)
    return [rng.standard_normal(shape).astype(dtype) for shape in shapes]


def qkv(rows=8, heads=2, dqk=4, dv=4, **kwargs):
    return arrays((rows, heads, dqk), (rows, heads, dqk), (rows, heads, dv), **kwargs)


def test_forward():
    q, k, v = qkv(dv=3)
    out = pantile.hstu_forward(q, k, v, OFFSETS, scaling_seqlen=N, alpha=0.5, num_targets=[2, 0, 1])
    expected = ref.jagged(q, k, v, OFFSETS, alpha=0.5, scale=1 / N, targets=[2, 0, 1])
    assert out.dtype == np.float32 and ref.error(out, expected) < 5e-6


@pytest.mark.parametrize("dtype, bound", [(np.float16, 2e-3), (ml_dtypes.bfloat16, 1.6e-2)])
def test_halves(dtype, bound):
    q, k, v = qkv(dtype=dtype)
    out = pantile.hstu_forward(q, k, v, OFFSETS, scaling_seqlen=N)
    assert out.dtype == dtype
    assert ref.error(out.astype(np.float64), ref.jagged(q, k, v, OFFSETS, scale=1 / N)) < bound


def test_bf16_as_bits():
    typed = [x.astype(ml_dtypes.bfloat16) for x in qkv()]
    out = pantile.hstu_forward(*(x.view(np.uint16) for x in typed), OFFSETS, scaling_seqlen=N)
    assert out.dtype == np.uint16
    assert np.array_equal(out, pantile.hstu_forward(*typed, OFFSETS, scaling_seqlen=N).view(np.uint16))


def test_dense_strided_and_given_output():
    q, k, v = (x.transpose(0, 2, 1, 3) for x in arrays((2, 3, 7, 4), (2, 3, 7, 4), (2, 3, 7, 4)))
    out = np.full((2, 7, 3, 8), np.nan, np.float32)
    result = pantile.hstu_forward(q, k, v, scaling_seqlen=N, out=out[..., 2:6])
    flat = [x.reshape(14, 3, 4) for x in (q, k, v)]
    assert np.shares_memory(result, out)
    assert ref.error(result.reshape(14, 3, 4), ref.jagged(*flat, [0, 7, 14], scale=1 / N)) < 5e-6
    assert np.isnan(out[..., :2]).all() and np.isnan(out[..., 6:]).all()


@pytest.mark.parametrize("index", [np.int32, np.int64])
def test_numbers_take_the_type_of_the_offsets(index):
    q, k, v = qkv()
    offsets = np.array(OFFSETS, index)
    got = pantile.hstu_forward(q, k, v, offsets, scaling_seqlen=N, num_targets=1, seqused_q=[5, 0, 3])
    assert ref.error(got, ref.jagged(q, k, v, OFFSETS, scale=1 / N, targets=[1, 0, 1])) < 5e-6


def test_mask_and_intervals_agree_with_the_rule():
    q, k, v = qkv()
    expected = pantile.hstu_forward(q, k, v, OFFSETS, attn_scale=0.25, window_left=2)
    position = np.concatenate([np.arange(5), np.arange(3)])
    intervals = np.stack([np.maximum(position - 2, 0), position + 1], 1)
    assert np.array_equal(pantile.hstu_forward(q, k, v, OFFSETS, attn_scale=0.25, intervals=intervals), expected)
    mask = ref.valid(5, 5, (2, 0))[None, None]
    assert np.array_equal(pantile.hstu_forward(q, k, v, OFFSETS, attn_scale=0.25, mask=mask), expected)


def test_backward():
    q, k, v, dout, pos = arrays(*[(6, 2, 4)] * 4, (11,))
    got = pantile.hstu_backward(dout, q, k, v, [0, 6], alpha=0.5, scaling_seqlen=N, pos_table=pos, bias_scale=1.0,
                                want=["dpos_table", "ds"])
    mask, index = ref.valid(6, 6), ref.positions(np.arange(11), 6, 6)
    dq, dk, dv, d_score, ds = ref.gradients(q, k, v, dout, mask, 0.5, 1 / N, ref.positions(pos, 6, 6))
    dpos = np.zeros(11)
    np.add.at(dpos, index, d_score.sum(0))
    assert list(got) == ["dq", "dk", "dv", "dpos_table", "ds"]
    for name, expected in zip(got, (dq, dk, dv, dpos, ds)):
        assert ref.error(got[name], expected) < 1e-5, name


def test_backward_into_slices():
    q, k, v, dout = arrays(*[(8, 2, 4)] * 4)
    buffer = np.full((8, 3, 2, 4), np.nan, np.float32)
    got = pantile.hstu_backward(dout, q, k, v, OFFSETS, scaling_seqlen=N,
                                out=dict(dq=buffer[:, 0], dk=buffer[:, 1], dv=buffer[:, 2]))
    expected = pantile.hstu_backward(dout, q, k, v, OFFSETS, scaling_seqlen=N)
    for i, name in enumerate(("dq", "dk", "dv")):
        assert got[name].base is buffer and np.array_equal(buffer[:, i], expected[name])


def test_pages():
    q, k, v = qkv(9, dv=4)
    expected = pantile.hstu_forward(q, k, v, [0, 9], scaling_seqlen=N, num_targets=2)
    pages = dict(k_pages=np.zeros((4, 3, 2, 4), np.float32), v_pages=np.zeros((4, 3, 2, 4), np.float32))
    lists = dict(page_offsets=[0, 3], page_ids=[2, 0, 3])
    pantile.hstu_kv_append(k[:4], v[:4], [0, 4], [0], **pages, **lists)
    pantile.hstu_kv_append(k[4:], v[4:], [0, 5], [4], **pages, **lists, num_targets=2)
    got = pantile.hstu_forward(q[4:], k[4:], v[4:], [0, 5], scaling_seqlen=N, num_targets=2, **pages, **lists,
                               last_page_lens=[1])
    assert np.array_equal(got, expected[4:])


@pytest.mark.parametrize("fn, unit, divisor", [("log", 1.0, 0.301), ("sqrt", 60.0, 1.0)])
def test_time_thresholds(fn, unit, divisor):
    thresholds = pantile.hstu_time_thresholds(fn, unit, divisor, 20)
    x = np.arange(1, 100000)
    bucket = {"log": np.log, "sqrt": np.sqrt}[fn](x.astype(np.float32) / np.float32(unit)) / np.float32(divisor)
    assert np.array_equal(np.searchsorted(thresholds, x, "right"), np.clip(bucket.astype(np.int64), 0, 20))


def test_threads_and_levels_in_contexts():
    q, k, v = qkv(1000, heads=2, dqk=32, dv=32)
    results = [pantile.hstu_forward(q, k, v, [0, 1000], scaling_seqlen=N, context=pantile.Context(threads, "pool"))
               for threads in (1, 2, 7)]
    assert all(np.array_equal(result, results[0]) for result in results)
    info = pantile.Context(1, "serial", "scalar").info()
    assert (info["executor"], info["level"], info["threads"]) == ("serial", "scalar", 1)
    assert pantile.info()["version"] == pantile.__version__


# ---- Jagged --------------------------------------------------------------------------------------

LENGTHS = [3, 0, 2]


def rows(*shape):
    return np.arange(np.prod(shape), dtype=np.float32).reshape(shape)


def pieces(x, offsets):
    return [x[lo:hi] for lo, hi in zip(offsets[:-1], offsets[1:])]


def test_cumsum():
    assert pantile.jagged_complete_cumsum(LENGTHS).tolist() == [0, 3, 3, 5]
    assert pantile.jagged_complete_cumsum(np.array(LENGTHS, np.int32)).dtype == np.int32


@pytest.mark.parametrize("dtype", [np.float32, np.int64, np.uint8, ml_dtypes.bfloat16])
def test_padding(dtype):
    x = rows(5, 2).astype(dtype)
    padded = pantile.jagged_to_padded(x, [0, 3, 3, 5], 2, pad=7)
    assert padded.astype(int).tolist() == [[[0, 1], [2, 3]], [[7, 7], [7, 7]], [[6, 7], [8, 9]]]
    last = pantile.jagged_to_padded(x, [0, 3, 3, 5], 2, align="end")
    assert last.astype(int).tolist() == [[[2, 3], [4, 5]], [[0, 0], [0, 0]], [[6, 7], [8, 9]]]
    assert np.array_equal(pantile.padded_to_jagged(pantile.jagged_to_padded(x, [0, 3, 3, 5], 4), [0, 3, 3, 5]), x)
    shorter = pantile.jagged_resize(x, [0, 3, 3, 5], [0, 2, 2, 3], align="end")
    assert shorter.astype(int).tolist() == [[2, 3], [4, 5], [8, 9]]


@pytest.mark.parametrize("n_prefix", [0, 1, 9])
def test_concat_and_split(n_prefix):
    left, right, left_offsets, right_offsets = rows(4, 2), 100 + rows(5, 2), [0, 1, 1, 4], [0, 3, 3, 5]
    got = pantile.jagged_concat(left, right, left_offsets, right_offsets, n_prefix=n_prefix)
    parts = zip(pieces(left, left_offsets), pieces(right, right_offsets))
    assert np.array_equal(got, np.concatenate([part for l, r in parts for part in (r[:n_prefix], l, r[n_prefix:])]))
    again = pantile.jagged_split(got, left_offsets, right_offsets, n_prefix=n_prefix)
    assert np.array_equal(again[0], left) and np.array_equal(again[1], right)


def offsets_of(lengths):
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), max_size=6), st.integers(0, 7), st.booleans())
def test_any_lengths(lengths, n, end):
    """Resizing and concatenation, from their definitions, sequence by sequence."""
    left_offsets, right_offsets = (offsets_of([pair[side] for pair in lengths]) for side in (0, 1))
    left, right = rows(left_offsets[-1], 2), 100 + rows(right_offsets[-1], 2)
    both = pantile.jagged_concat(left, right, left_offsets, right_offsets, n_prefix=n)
    parts = list(zip(pieces(left, left_offsets), pieces(right, right_offsets)))
    assert np.array_equal(both, np.concatenate([rows(0, 2), *(x for l, r in parts for x in (r[:n], l, r[n:]))]))

    resized = pantile.jagged_resize(left, left_offsets, right_offsets, align="end" if end else "start", pad=-1)
    for (l, r), got in zip(parts, pieces(resized, right_offsets)):
        common, pad = min(len(l), len(r)), np.full((max(len(r) - len(l), 0), 2), -1)
        expected = [pad, l[len(l) - common:]] if end else [l[:common], pad]
        assert np.array_equal(got, np.concatenate(expected))
    assert pantile.jagged_sum(left, left_offsets).tolist() == [l.sum(0).tolist() for l, _ in parts]


def test_concat_with_dense_rows_in_front():
    got = pantile.jagged_concat(-rows(3, 1, 2), rows(5, 2), right_offsets=[0, 3, 3, 5])
    assert np.array_equal(got[[0, 4, 5]], -rows(3, 2)) and np.array_equal(got[[1, 2, 3, 6, 7]], rows(5, 2))
    left, right = pantile.jagged_split(got, right_offsets=[0, 3, 3, 5], n_left=1)
    assert np.array_equal(left, -rows(3, 1, 2)) and np.array_equal(right, rows(5, 2))


def test_replace_add_sum():
    x = rows(5, 2)
    got = pantile.jagged_replace_last(x, -rows(2, 2) - 1, [0, 3, 3, 5], [0, 1, 1, 2])
    assert got[:, 0].tolist() == [0, 2, -1, 6, -3]
    assert pantile.jagged_broadcast_add(x, rows(3, 2), [0, 3, 3, 5])[:, 0].tolist() == [0, 2, 4, 10, 12]
    assert pantile.jagged_sum(x, [0, 3, 3, 5])[:, 0].tolist() == [6, 0, 14]


def test_position_time():
    emb, pos_w, ts_w = arrays((5, 4), (6, 4), (9, 4))
    times = np.array([0, 3600, 7200, 50, 50])
    got = pantile.jagged_position_time(emb, pos_w, [0, 3, 3, 5], ts_w=ts_w, timestamps=times, num_targets=1, alpha=2.0)
    bucket = np.clip(np.sqrt(np.array([7200, 3600, 1e-6, 1e-6, 1e-6]) / 60).astype(int), 0, 8)
    assert np.allclose(got, 2 * emb + pos_w[[2, 1, 0, 1, 0]] + ts_w[bucket], atol=1e-6)


# ---- Arguments -----------------------------------------------------------------------------------

def test_empty():
    q, k, v = qkv(0)
    assert pantile.hstu_forward(q, k, v, [0, 0], scaling_seqlen=N).shape == (0, 2, 4)
    assert pantile.hstu_forward(q, k, v, [0], scaling_seqlen=N).shape == (0, 2, 4)
    assert pantile.jagged_to_padded(rows(0, 2), [0, 0], 2, pad=3).tolist() == [[[3, 3], [3, 3]]]


def test_other_arrays_are_viewed():
    class Exported:
        def __init__(self, array):
            self.array = array

        def __dlpack__(self, **kwargs):
            return self.array.__dlpack__(**kwargs)

        def __dlpack_device__(self):
            return self.array.__dlpack_device__()

    q, k, v = qkv()
    expected = pantile.hstu_forward(q, k, v, OFFSETS, scaling_seqlen=N)
    assert np.array_equal(pantile.hstu_forward(memoryview(q), Exported(k), v, OFFSETS, scaling_seqlen=N), expected)


def test_gradient_of_nothing():
    q, k, v = qkv()
    with pytest.raises(pantile.Error, match="dbias: wanted, but attn_bias is not given"):
        pantile.hstu_backward(v, q, k, v, OFFSETS, scaling_seqlen=N, want=["dbias"])


@pytest.mark.parametrize("change, status, sentence", [
    (dict(q=lambda x: x.astype(np.float64)), "PTL_ERR_DTYPE", "q: float64, expected one of float32, "),
    (dict(q=lambda x: x.astype(">f4")), "PTL_ERR_DTYPE", "q: >f4, expected"),
    (dict(k=lambda x: x.astype(np.float16)), "PTL_ERR_DTYPE", "k: f16"),
    (dict(v=lambda x: x[..., ::2]), "PTL_ERR_LAYOUT", "v: stride 2 on the last axis, expected 1"),
    (dict(q=lambda x: x[:, :, :3]), "PTL_ERR_SHAPE", "k: 4 on axis 2, expected 3"),
    (dict(q=lambda x: x.reshape(8, 2, 4, 1, 1)), "PTL_ERR_SHAPE", "q: 5 axes, expected at most 4"),
    (dict(seq_offsets_q=lambda x: np.array(x, np.float64)), "PTL_ERR_DTYPE", "seq_offsets_q: float64"),
    (dict(seq_offsets_q=lambda x: [0, 6, 5, 8]), "PTL_ERR_SEQLEN", "seq_offsets_q: entry 2 is 5, less than 6"),
    (dict(scaling_seqlen=lambda x: "8"), "PTL_ERR_PARAM", "scaling_seqlen: '8', expected a number"),
    (dict(scaling_seqlen=lambda x: 0), "PTL_ERR_PARAM", "scaling_seqlen, attn_scale: neither given"),
    (dict(bias_rows=lambda x: "p"), "PTL_ERR_PARAM", "bias_rows: 'p', expected one of query, key"),
    (dict(out=lambda x: [1]), "PTL_ERR_PARAM", "out: list, expected a writable NumPy array"),
    (dict(out=lambda x: np.zeros((8, 2, 3), np.float32)), "PTL_ERR_SHAPE", "out: 3 on axis 2"),
])
def test_refusals(change, status, sentence):
    q, k, v = qkv()
    arguments = dict(q=q, k=k, v=v, seq_offsets_q=OFFSETS, scaling_seqlen=N)
    for name, fn in change.items():
        arguments[name] = fn(arguments.get(name))
    with pytest.raises(pantile.Error) as refused:
        pantile.hstu_forward(**arguments)
    assert refused.value.status == status and str(refused.value).startswith(sentence), refused.value


def test_unknown_option():
    with pytest.raises(TypeError, match="hstu_forward: unknown argument 'scale'"):
        pantile.hstu_forward(*qkv(), OFFSETS, scale=1)


def test_unaligned_stride():
    raw = np.zeros((8, 33), np.uint8)[:, :32].view(np.float32)
    assert raw.strides == (33, 4)
    with pytest.raises(pantile.Error, match=r"q: strides \(33, 16, 4\) in bytes, expected multiples of 4"):
        pantile.hstu_forward(raw.reshape(8, 2, 4), *qkv()[1:], OFFSETS, scaling_seqlen=N)
