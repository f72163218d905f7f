"""The jagged copies and the position and time embedding in `pantile run` and `check`, against NumPy."""

import re

import numpy as np
import pytest

OFFSETS = np.array([0, 5, 5, 12])
LEFT = np.array([0, 2, 6, 7])


def some(rng, *shape, kind=np.float32):
    return rng.integers(0, 200, shape).astype(kind)


@pytest.fixture
def run(pantile, tmp_path):
    """run(words, **outputs): each output as it is expected, bit for bit; and `check` passes."""

    def call(op, words, **outputs):
        named = [f"{name}=@{name}_result.npy" for name in outputs]
        done = pantile("run", op, *words, *named)
        assert (done.status, done.err) == (0, "")
        assert len(done.out.splitlines()) == len(outputs)
        for name, expected in outputs.items():
            got = np.load(tmp_path / f"{name}_result.npy")
            assert got.dtype == expected.dtype and got.shape == expected.shape, (got.shape, expected.shape)
            assert got.tobytes() == expected.tobytes(), name
        for checked in ([*words, *named], words):  # all outputs when none is named
            done = pantile("check", op, *checked)
            assert done.status == 0 and re.match(r"PASS: (error|left|right) 0.00e\+00, ", done.out), done.out + done.err

    return call


KINDS = [np.float32, np.float16, np.uint16, np.int32, np.int64, np.uint8]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("align", ["start", "end"])
def test_padded(run, save, kind, align):
    rng = np.random.default_rng(1)
    x = some(rng, 13, 2, 3, kind=kind)
    words = [save("x", x), f"align={align}"]
    fill = 0x40E0 if kind is np.uint16 else 7  # 7 in bf16
    words.append("padding_value=7")
    for n in (7, 4, 0):
        padded = np.full((3, n, 2, 3), fill, kind)
        back = np.full((13, 2, 3), fill, kind)
        back[12:] = 0
        for b in range(3):
            rows = x[OFFSETS[b]:OFFSETS[b + 1]]
            m = min(len(rows), n)
            to = slice(0, m) if align == "start" else slice(n - m, n)
            of = slice(0, m) if align == "start" else slice(len(rows) - m, len(rows))
            padded[b, to] = rows[of]
            back[OFFSETS[b]:OFFSETS[b + 1]][of] = rows[of]
        run("jagged_to_padded", [*words, save("x.offsets", OFFSETS), f"n={n}"], out=padded)
        run("padded_to_jagged", [save("x", padded), *words[1:], save("out.offsets", OFFSETS), "rows=13"], out=back)
        save("x", x)


def test_defaults(run, save, pantile):
    x = np.arange(12, dtype=np.int64)
    expected = np.zeros((3, 7), np.int64)
    expected[0, :5], expected[2] = x[:5], x[5:]
    run("jagged_to_padded", [save("x", x), "x.offsets=list:0,5,5,12"], out=expected)
    run("padded_to_jagged", [save("x", expected), "out.offsets=list:0,5,5,12"], out=x)
    done = pantile("run", "jagged_to_padded", save("x", x), "x.offsets=list:0,5,5,12")
    assert done.out == "computed; out=@file.npy keeps the result\n"


@pytest.mark.parametrize("n_prefix", [0, 3])
@pytest.mark.parametrize("kind", [np.float32, np.uint16, np.int64])
def test_concat_and_split(run, save, kind, n_prefix):
    rng = np.random.default_rng(2)
    left, right = some(rng, 7, 3, kind=kind), some(rng, 12, 3, kind=kind)
    parts = []
    for b in range(3):
        r = right[OFFSETS[b]:OFFSETS[b + 1]]
        parts += [r[:n_prefix], left[LEFT[b]:LEFT[b + 1]], r[n_prefix:]]
    whole = np.concatenate(parts)
    sides = [save("left.offsets", LEFT), save("right.offsets", OFFSETS), f"n_prefix={n_prefix}"]
    run("concat_jagged", [save("left", left), save("right", right), *sides], out=whole)
    padded = np.concatenate([whole, np.zeros((2, 3), kind)])
    run("concat_jagged", [save("left", left), save("right", right), *sides, "rows=21"], out=padded)
    run("split_jagged", [save("x", padded), *sides], left=left, right=right)
    run("split_jagged", [save("x", padded), *sides], right=right)


def test_dense_sides(run, save):
    rng = np.random.default_rng(3)
    left, right = some(rng, 3, 2, 4), some(rng, 12, 4)
    whole = np.concatenate([y for b in range(3) for y in (left[b], right[OFFSETS[b]:OFFSETS[b + 1]])])
    offsets = save("right.offsets", OFFSETS)
    run("concat_jagged", [save("left", left), save("right", right), offsets], out=whole)
    run("split_jagged", [save("x", whole), "left.n=2", offsets], left=left, right=right)


def embedding(n, targets, contexts, positions, times, n_buckets):
    """Rows of pos_w and ts_w for a sequence of n tokens."""
    x, top = np.arange(n), n - targets
    pos = np.where(x < contexts, x, np.minimum(top - np.minimum(x, top) + contexts, positions - 1))
    minutes = np.maximum(np.float32(times[-1] - times), np.float32(1e-6)) / np.float32(60) if n else np.zeros(0)
    return pos, np.clip(np.trunc(np.sqrt(minutes)), 0, n_buckets).astype(int)


def test_position_time(pantile, save, tmp_path):
    rng = np.random.default_rng(4)
    emb, dout = (rng.uniform(-1, 1, (13, 6)).astype(np.float32) for _ in range(2))
    pos_w, ts_w = (rng.uniform(-1, 1, (n, 6)).astype(np.float32) for n in (9, 30))
    times = np.cumsum(rng.integers(0, 9000, 13))
    words = [save("seq_offsets", OFFSETS), save("num_targets", np.array([1, 0, 2])), "num_contexts=list:2,0,1",
             save("timestamps", times), save("pos_w", pos_w), save("ts_w", ts_w), "alpha=2.5"]
    done = pantile("run", "position_time", save("emb", emb), *words, "out=@out.npy")
    assert (done.status, done.out, done.err) == (0, "out.npy: (13, 6) float32\n", "")
    out, dpos, dts = np.zeros((13, 6)), np.zeros((9, 6)), np.zeros((30, 6))
    for b, (targets, contexts) in enumerate(((1, 2), (0, 0), (2, 1))):
        rows = slice(OFFSETS[b], OFFSETS[b + 1])
        pos, bucket = embedding(OFFSETS[b + 1] - OFFSETS[b], targets, contexts, 9, times[rows], 29)
        out[rows] = 2.5 * emb[rows] + (pos_w[pos] + ts_w[bucket])
        np.add.at(dpos, pos, dout[rows])
        np.add.at(dts, bucket, dout[rows])
    assert np.abs(np.load(tmp_path / "out.npy") - out).max() <= 1e-6
    done = pantile("run", "position_time_backward", save("dout", dout), *words, "demb=@demb.npy", "dpos_w=@dpos.npy",
                   "dts_w=@dts.npy")
    assert done.out == "demb.npy: (13, 6) float32\ndpos.npy: (9, 6) float32\ndts.npy: (30, 6) float32\n", done.err
    demb = 2.5 * dout.astype(np.float64)
    demb[12:] = 0
    for name, expected in (("demb", demb), ("dpos", dpos), ("dts", dts)):
        assert np.abs(np.load(tmp_path / f"{name}.npy") - expected).max() <= 1e-6
    done = pantile("check", "position_time_backward", save("dout", dout), *words)
    assert re.match(r"PASS: demb \S+, dpos_w \S+, dts_w \S+, bound 1e-06, all 52 rows; ", done.out), done.out
    done = pantile("check", "position_time", save("emb", emb), *words)
    assert re.match(r"PASS: error \S+, bound 1e-06, all 13 rows; ", done.out), done.out


@pytest.mark.parametrize("line", """
jagged_to_padded b=5 lengths=uniform:0,70 d=8
jagged_to_padded b=5 lengths=uniform:0,70 d=8 n=20 align=end dtype=bf16 view=gap pad=3 index=i32
padded_to_jagged b=5 lengths=uniform:0,70 d=8 n=20 view=gap pad=3
padded_to_jagged b=5 s=7 d=1 align=end dtype=f16
concat_jagged b=5 lengths_left=uniform:0,20 lengths_right=uniform:0,70 d=8 n_prefix=3
split_jagged b=5 lengths_left=uniform:0,20 lengths_right=uniform:0,70 d=8 n_prefix=3 dtype=bf16
concat_jagged b=0 s=3 d=4
position_time b=5 lengths=uniform:0,70 d=8 num_targets=random:5 num_contexts=random:4 positions=40
position_time b=5 lengths=uniform:0,70 d=8 position_order=from_start time_bucket=log buckets=5
position_time_backward b=5 lengths=uniform:0,70 d=8 num_targets=random:5 positions=40 buckets=9
""".strip().splitlines())
def test_generated(pantile, line):
    done = pantile("check", *line.split())
    assert (done.status, done.err) == (0, "") and done.out.startswith("PASS: "), done.out


def test_refusals(refused, save):
    x = np.zeros((12, 3), np.float32)
    refused("x: missing, expected x=@file.npy", "run", "jagged_to_padded", save("x.offsets", OFFSETS))
    line = ["run", "jagged_to_padded", save("x", x), save("x.offsets", OFFSETS)]
    refused("align: 'middle', expected start or end", *line, "align=middle")
    refused("n: 'x', expected a whole number from -9223372036854775808 to 9223372036854775807", *line, "n=x")
    refused("left: unknown key of a line with arrays, see 'pantile help jagged'", *line, "left=3")
    refused("x.offsets: missing, expected x.offsets=@file.npy", *line[:3])
    refused("left.offsets: missing, expected left.offsets or left.n", "run", "split_jagged", save("x", x),
            save("right.offsets", OFFSETS))
    refused("left.n: given together with left.offsets, expected one of them", "run", "split_jagged", save("x", x),
            "left.n=3", save("left.offsets", OFFSETS), save("right.offsets", OFFSETS))
    refused("padding_value: 1.5 does not fit the type of x", "run", "jagged_to_padded", save("x", x.astype("i4")),
            save("x.offsets", OFFSETS), "padding_value=1.5")
    refused("emb: missing, expected emb=@file.npy", "run", "position_time", save("pos_w", x))
    refused("dpos_w: asked for, but this line has no such output", "run", "position_time_backward", save("dout", x),
            save("seq_offsets", OFFSETS), "dpos_w=@d.npy")
    refused("right: shape (12,), expected 2 axes or more, as it has no offsets", "run", "concat_jagged", save("left", x),
            save("left.offsets", OFFSETS), save("right", x[:, 0].copy()))
    refused("position_order: 'back', expected from_end or from_start", "run", "position_time", save("emb", x),
            "position_order=back")
    refused("h: 2, expected 1; rows have d numbers", "check", "jagged_to_padded", "s=4", "d=4",
            "h=2")
