"""`pantile run` and `check` of NSA and attention over .npy files, against NumPy."""

import re

import numpy as np
import pytest

import nsa_numpy

SIZES = {"block": 8, "stride": 4, "select_block": 16, "topk": 5, "n_init": 1, "n_local": 2, "window": 19}
WORDS = [f"{key}={value}" for key, value in SIZES.items()]
HEADS, KV_HEADS, DIM, DV, PAGE = 6, 2, 12, 8, 5
TOKENS, ROWS = (150, 7, 61), (9, 7, 2)  # of three sequences: tokens, and query rows
OFFSETS = np.cumsum((0, *ROWS))


def unit(rng, *shape):
    return rng.uniform(-1, 1, shape).astype(np.float32)


@pytest.fixture
def problem():
    """Sequences one by one: q, k, v, gates, and what must come out."""
    rng = np.random.default_rng(7)
    seqs = [{"q": 4 * unit(rng, n, HEADS, DIM), "k": unit(rng, s, KV_HEADS, DIM), "v": unit(rng, s, KV_HEADS, DV),
             "gates": unit(rng, n, HEADS, 3)} for s, n in zip(TOKENS, ROWS)]
    return seqs, [nsa_numpy.forward(**x, **SIZES) for x in seqs]


def jagged(seqs, key):
    return np.concatenate([x[key] for x in seqs])


def paged(rng, seqs, key, n_pages):
    """Pages full of NaN but for the rows of the sequences; the table has entries of nobody behind them."""
    pages = np.full((n_pages, PAGE, *seqs[0][key].shape[1:]), np.nan, np.float32)
    order, used = rng.permutation(n_pages), 0
    table = np.full((len(seqs), max(-(-len(x[key]) // PAGE) for x in seqs) + 2), -1, np.int32)
    for b, x in enumerate(seqs):
        for i, row in enumerate(x[key]):
            if i % PAGE == 0:
                table[b, i // PAGE] = order[used]
                used += 1
            pages[table[b, i // PAGE], i % PAGE] = row
    return pages, table


@pytest.fixture
def run(pantile, tmp_path):
    """run(op, words, **outputs): what is written is what is expected, and `check` passes."""

    def call(op, words, bound=1e-5, **outputs):
        named = [f"{name}=@{name}_result.npy" for name in outputs]
        done = pantile("run", op, *words, *named)
        assert (done.status, done.err) == (0, "")
        assert len(done.out.splitlines()) == len(outputs)
        for name, expected in outputs.items():
            got = np.load(tmp_path / f"{name}_result.npy")
            assert got.shape == expected.shape, (name, got.shape, expected.shape)
            if expected.dtype.kind == "i":
                assert np.array_equal(got, expected), name
            else:
                assert got.dtype == np.float32
                np.testing.assert_allclose(got, expected, rtol=0, atol=bound, err_msg=name)
        done = pantile("check", op, *words)
        assert done.status == 0 and done.out.startswith("PASS: "), done.out + done.err

    return call


def sequences(save):
    return [save("seq_offsets_q", OFFSETS), f"seq_offsets_k=list:{','.join(map(str, np.cumsum((0, *TOKENS))))}"]


ALL = ["out", "idx", "nsel", "importance", "out_cmp", "out_slc", "out_swa", "lse_cmp", "lse_slc", "lse_swa"]


def results(seqs, expected):
    """Importance has as many columns as the longest sequence has blocks."""
    n = max(r["importance"].shape[-1] for r in expected)
    rows = {name: np.concatenate([r[name] for r in expected]) for name in ALL if name != "importance"}
    rows["importance"] = np.concatenate([np.pad(r["importance"], ((0, 0), (0, 0), (0, n - r["importance"].shape[-1])))
                                         for r in expected])
    return rows


def test_forward(run, save, problem):
    seqs, expected = problem
    words = [save(key, jagged(seqs, key)) for key in ("q", "k", "v", "gates")]
    run("nsa_forward", [*words, *sequences(save), *WORDS], **results(*problem))
    run("nsa_forward", [*words, *sequences(save), *WORDS], out=results(*problem)["out"])


def test_forward_by_pages(run, save, problem):
    seqs, expected = problem
    rng = np.random.default_rng(8)
    k_pages, table = paged(rng, seqs, "k", 60)
    v_pages = paged(np.random.default_rng(8), seqs, "v", 60)[0]
    words = [save("q", jagged(seqs, "q")), save("gates", jagged(seqs, "gates")), save("k", k_pages), save("v", v_pages),
             save("page_table", table), save("seq_offsets_q", OFFSETS), "seqlens_k=list:150,7,61"]
    run("nsa_forward", [*words, *WORDS], **results(*problem))


def test_forward_dense(run, save):
    rng = np.random.default_rng(9)
    x = {"q": 4 * unit(rng, 2, 6, HEADS, DIM), "k": unit(rng, 2, 70, KV_HEADS, DIM), "v": unit(rng, 2, 70, KV_HEADS, DV),
         "gates": unit(rng, 2, 6, HEADS, 3)}
    expected = [nsa_numpy.forward(**{key: y[b] for key, y in x.items()}, **SIZES, scale=0.5, order="score",
                                  score="ascend") for b in range(2)]
    run("nsa_forward", [*(save(key, y) for key, y in x.items()), *WORDS, "scale=0.5", "order=score", "score=ascend"],
        out=np.stack([r["out"] for r in expected]), idx=np.stack([r["idx"] for r in expected]),
        lse_slc=np.stack([r["lse_slc"] for r in expected]))


@pytest.fixture
def compressed(problem):
    seqs, _ = problem
    return [{"kc": nsa_numpy.compress(x["k"], 8, 4).astype(np.float32),
             "vc": nsa_numpy.compress(x["v"], 8, 4).astype(np.float32)} for x in seqs]


@pytest.mark.parametrize("options", [{}, {"score": "plus"}, {"score": "ascend", "order": "score"}, {"pool": "max"}],
                         ids=str)
def test_steps(run, save, problem, compressed, options):
    """The operators one by one, each on what the ones before it give in NumPy."""
    seqs, _ = problem
    scores = {"mode" if key == "pool" else key: value for key, value in options.items()}
    expected = [nsa_numpy.forward(**x, **SIZES, **c, **scores) for x, c in zip(seqs, compressed)]
    if "pool" in options:  # a block without a visible key is -inf there, as padding to more blocks is here
        rows = results(seqs, expected)
        n = rows["importance"].shape[-1]
        rows["importance"] = np.concatenate([np.pad(r["importance"], ((0, 0), (0, 0), (0, n - r["importance"].shape[-1])),
                                                    constant_values=-np.inf) for r in expected])
    else:
        rows = results(seqs, expected)
    words = [f"{key}={value}" for key, value in options.items()]
    words += [f"{key}={SIZES[key]}" for key in ("select_block", "topk", "n_init", "n_local")]
    lengths = ["seqlens_k=list:150,7,61", save("seq_offsets_q", OFFSETS)]
    offsets = np.cumsum([0, *(len(c["kc"]) for c in compressed)]).astype(np.int32)
    run("nsa_compressed_attention", [save("q", jagged(seqs, "q")), save("kc", jagged(compressed, "kc")),
                                     save("vc", jagged(compressed, "vc")), save("seq_offsets_kc", offsets), *lengths,
                                     *words, "block=8", "stride=4"],
        out=rows["out_cmp"], lse=rows["lse_cmp"], importance=rows["importance"], idx=rows["idx"], nsel=rows["nsel"])
    run("nsa_select", [save("importance", rows["importance"].astype(np.float32)), *lengths,
                       *(word for word in words if not word.startswith(("score", "pool")))],
        idx=rows["idx"], nsel=rows["nsel"])
    tokens = [save("q", jagged(seqs, "q")), save("k_slc", jagged(seqs, "k")), save("v_slc", jagged(seqs, "v")),
              *sequences(save)]
    names = ("out_slc", "lse_slc", "out_swa", "lse_swa")
    run("nsa_attend", [*tokens, save("idx", rows["idx"]), "select_block=16", "window=19"], **{x: rows[x] for x in names})
    run("nsa_attend", [*tokens, "window=19"], out_swa=rows["out_swa"])
    run("nsa_attend", [*tokens, save("idx", rows["idx"].astype(np.int64)), "select_block=16", "window=0"],
        out_slc=rows["out_slc"])
    run("nsa_combine", [save("gates", jagged(seqs, "gates")), *(save(f"out_{x}", rows[f"out_{x}"].astype(np.float32))
                                                                for x in ("cmp", "slc", "swa"))], out=rows["out"])


def test_scores_only(run, save, problem, compressed):
    seqs, expected = problem
    offsets = np.cumsum([0, *(len(c["kc"]) for c in compressed)])
    run("nsa_compressed_attention", [save("q_cmp", jagged(seqs, "q")), save("kc", jagged(compressed, "kc")),
                                     save("seq_offsets_kc", offsets), *sequences(save), *WORDS[:-1]],
        idx=results(seqs, expected)["idx"])


def test_own_sliding_keys(run, save, problem):
    seqs, _ = problem
    rng = np.random.default_rng(10)
    swa = [{"k": unit(rng, s, KV_HEADS, DIM), "v": unit(rng, s, KV_HEADS, DV)} for s in TOKENS]
    other = results(seqs, [nsa_numpy.forward(**{**x, **y}, **SIZES) for x, y in zip(seqs, swa)])
    run("nsa_attend", [save("q", jagged(seqs, "q")), save("k", jagged(seqs, "k")), save("v", jagged(seqs, "v")),
                       save("k_swa", jagged(swa, "k")), save("v_swa", jagged(swa, "v")), *sequences(save), "window=19"],
        out_swa=other["out_swa"], lse_swa=other["lse_swa"])


@pytest.mark.parametrize("weighted", [False, True])
def test_compress(run, save, problem, weighted):
    seqs, _ = problem
    rng = np.random.default_rng(11)
    w, pe = (unit(rng, 8, KV_HEADS), unit(rng, 8, KV_HEADS, DIM)) if weighted else (None, None)
    words = ["block=8", "stride=4", *([save("w", w), save("pe", pe), "mode=weighted"] if weighted else [])]
    rows = [nsa_numpy.compress(x["k"], 8, 4, w, pe) for x in seqs]
    offsets = np.cumsum([0, *map(len, rows)])
    run("nsa_compress", [save("x", jagged(seqs, "k")), save("seq_offsets", np.cumsum((0, *TOKENS))), *words],
        y=np.concatenate(rows), seq_offsets_y=offsets)
    pages, table = paged(rng, seqs, "k", 60)
    run("nsa_compress", [save("x", pages), save("page_table", table), "seqlens=list:150,7,61", *words],
        y=np.concatenate(rows))
    run("nsa_compress", [save("x", seqs[0]["k"][None]), *words], y=rows[0][None])


def without(pages, table, lengths):
    """The pages without the rows from lengths on."""
    pages = pages.copy()
    for b, n in enumerate(lengths):
        for s in range(n, table.shape[1] * PAGE):
            if table[b, s // PAGE] >= 0:
                pages[table[b, s // PAGE], s % PAGE] = np.nan
    return pages


@pytest.fixture
def caches(save, problem, compressed):
    """Words of caches before the query rows' tokens, and the caches with them."""
    seqs, _ = problem
    old = [s - n for s, n in zip(TOKENS, ROWS)]
    words, full = [f"seqlens_old=list:{','.join(map(str, old))}", "seqlens_k=list:150,7,61", "block=8", "stride=4"], {}
    for table, parts, lengths in (("page_table", {"k": seqs, "v": seqs}, old),
                                  ("page_table_c", {"kc": compressed, "vc": compressed},
                                   [nsa_numpy.n_compressed(n, 8, 4) for n in old])):
        for key, rows in parts.items():
            full[f"{key}_pages_out"], numbers = paged(np.random.default_rng(12), rows, key, 60)
            words.append(save(f"{key}_pages", without(full[f"{key}_pages_out"], numbers, lengths)))
        words.append(save(table, numbers))
    words += [save(key, np.concatenate([x[key][n:] for x, n in zip(seqs, old)])) for key in ("k", "v")]
    return words, full


def test_append(run, save, caches):
    words, full = caches
    run("nsa_append", [*words, save("seq_offsets", OFFSETS)], bound=1e-6, **full)


def test_decode(run, save, problem, caches):
    seqs, expected = problem
    words, full = caches
    sizes = [f"{key}={SIZES[key]}" for key in ("select_block", "topk", "n_init", "n_local", "window")]
    run("nsa_decode", [*words, save("q", jagged(seqs, "q")), save("gates", jagged(seqs, "gates")),
                       save("seq_offsets_q", OFFSETS), *sizes], **full, **results(*problem))


def test_rings(pantile, save, tmp_path, problem):
    """Without raw pages: the last `block` tokens, and slots for the blocks."""
    k = problem[0][0]["k"]
    ring = np.full((1, 8, KV_HEADS, DIM), np.nan, np.float32)
    for s in range(100):
        ring[0, s % 8] = k[s]
    blocks = [nsa_numpy.n_compressed(n, 8, 4) for n in (100, 109)]
    slots = np.array([[7, -1]])[:, :blocks[1] - blocks[0]]
    done = pantile("run", "nsa_append", save("k", k[None, 100:109]), save("k_ring", ring), save("slots", slots), "block=8",
                   "stride=4", save("kc_pages", np.full((3, 4, KV_HEADS, DIM), 9, np.float32)), "seqlens_old=list:100",
                   "seqlens_k=list:109", "k_ring_out=@ring.npy", "kc_pages_out=@kc.npy")
    assert (done.status, done.err) == (0, "")
    ring, pages = np.load(tmp_path / "ring.npy"), np.load(tmp_path / "kc.npy")
    assert all(np.array_equal(ring[0, s % 8], k[s]) for s in range(101, 109))
    expected = nsa_numpy.compress(k[:109], 8, 4)[blocks[0]]
    assert np.abs(pages[7 // 4, 7 % 4] - expected).max() <= 1e-6
    pages[7 // 4, 7 % 4] = 9
    assert (pages == 9).all()


@pytest.mark.parametrize("window", [0, 30])
def test_attention(run, save, problem, window):
    seqs, _ = problem
    out, lse = zip(*(nsa_numpy.attention(x["q"], x["k"], x["v"], window=window) for x in seqs))
    words = [save(key, jagged(seqs, key)) for key in ("q", "k", "v")] + [f"window={window}"]
    for op in ("attention", "attention_decode"):
        run(op, [*words, *sequences(save)], out=np.concatenate(out), lse=np.concatenate(lse))


def test_half(pantile, save, tmp_path, problem):
    """bf16 as uint16 with dtype=bf16; float16 as it is."""
    x = problem[0][0]
    short = {key: x[key].astype(np.float16) for key in ("q", "k", "v", "gates")}
    done = pantile("run", "nsa_forward", *(save(key, y) for key, y in short.items()), "seq_offsets_q=list:0,9",
                   "seq_offsets_k=list:0,150", *WORDS, "out=@out.npy")
    assert (done.status, done.out, done.err) == (0, "out.npy: (9, 6, 8) float16\n", "")
    bits = {key: (x[key].view(np.uint32) >> 16).astype(np.uint16) for key in ("q", "k", "v")}
    words = [*(save(key, y) for key, y in bits.items()), "seq_offsets_q=list:0,9", "seq_offsets_k=list:0,150"]
    done = pantile("run", "attention", *words, "dtype=bf16", "out=@out.npy")
    assert (done.status, done.out, done.err) == (0, "out.npy: (9, 6, 8) uint16 (bf16)\n", "")
    done = pantile("check", "attention", *words)
    assert done.err == "pantile: q: uint16, expected float32 or float16, or dtype=bf16 on the line\n"


def test_refusals(refused, save):
    x = np.zeros((5, 2, 4), np.float32)
    q, k, v = save("q", x), save("k", x), save("v", x)
    offsets = "seq_offsets_q=list:0,5"
    refused("q: missing, expected q=@file.npy", "run", "nsa_forward", k, v, offsets)
    refused("v: missing, expected v=@file.npy", "run", "attention", q, k, offsets)
    refused("kc: missing, expected kc=@file.npy", "run", "nsa_compressed_attention", q, offsets)
    refused("importance: missing, expected importance=@file.npy", "run", "nsa_select",
            save("count", np.zeros((5, 2), np.int32)), offsets)
    refused("topk: unknown key of a line with arrays, see 'pantile help nsa'", "run", "attention", q, k, v, "topk=4")
    refused("k_slc: given twice, by two names", "run", "nsa_attend", q, k, v, save("k_slc", x))
    refused("score: 'near', expected overlap, plus or ascend", "run", "nsa_forward", q, k, v, "score=near")
    refused("q: shape (5, 2), expected 3 axes (jagged) or 4 (dense)", "run", "nsa_forward",
            save("q", np.zeros((5, 2), np.float32)), k, v, offsets)
    refused("out_swa: asked for, but this line has no such output", "run", "nsa_attend", save("q", x), k, v, offsets,
            save("idx", np.zeros((5, 2, 1), np.int32)), "window=0", "out_swa=@out.npy")
    refused("k_pages: missing, expected k_pages=@file.npy", "run", "nsa_decode", save("q", x))


def test_what_is_kept_by_default(pantile, save):
    x = np.zeros((5, 2, 4), np.float32)
    words = [save("q", x), save("k", x), save("v", x), "seq_offsets_q=list:0,5"]
    assert pantile("run", "attention", *words).out == "computed; out=@file.npy keeps the result\n"
    done = pantile("check", "attention", *words)
    assert re.match(r"PASS: out \S+, lse \S+, bound 2e-05, all 10 rows; ", done.out), done.out
