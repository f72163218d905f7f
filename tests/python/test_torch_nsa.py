"""Sparse and full attention on tensors: the bits of the NumPy functions, torch's machinery, and fla's signature."""

import itertools

import ml_dtypes
import numpy as np
import pantile
import pantile.torch as pt
import pytest
import reference as ref
import torch
from pantile.torch.fla import parallel_nsa

BLOCKS = dict(block=4, stride=2, select_block=6)
OPTIONS = dict(BLOCKS, topk=3, n_init=1, n_local=1, window=5)
LENGTHS = [13, 0, 3, 30]
OFFSETS = torch.tensor([0, *itertools.accumulate(LENGTHS)])
ALL = ["out_cmp", "out_slc", "out_swa", "lse_cmp", "lse_slc", "lse_swa", "importance", "idx", "nsel"]


def inputs(rows=46, heads=(4, 2), dim=8, dv=5, dtype=torch.float32):
    """q, k, v, gates; jagged."""
    shapes = (rows, heads[0], dim), (rows, heads[1], dim), (rows, heads[1], dv), (rows, heads[0], 3)
    return [torch.randn(shape).to(dtype) for shape in shapes]


def dense(rows=20, **kwargs):
    return [x.view(2, rows, *x.shape[1:]) for x in inputs(2 * rows, **kwargs)]


def compressed(k, v):
    kc = pt.nsa_compress(k, OFFSETS, block=4, stride=2, want=["seq_offsets_y"])
    return dict(kc=kc["y"], vc=pt.nsa_compress(v, OFFSETS, block=4, stride=2), seq_offsets_kc=kc["seq_offsets_y"])


# name: a call on the functions of pantile or pantile.torch.
CALLS = {
    "attention": lambda m, q, k, v, g: m.attention_forward(q, k, v, OFFSETS, window=9, want=["lse"]),
    "compress": lambda m, q, k, v, g: m.nsa_compress(k, OFFSETS, **CACHE, want=["seq_offsets_y"]),
    "compressed": lambda m, q, k, v, g: m.nsa_compressed_attention(
        q, seq_offsets_q=OFFSETS, **compressed(torch.as_tensor(k), torch.as_tensor(v)), topk=3, score="ascend", order="score",
        want=["out_cmp", "lse_cmp", "importance", "idx", "nsel"], **BLOCKS),
    "select": lambda m, q, k, v, g: m.nsa_select(torch.rand(46, 2, 5, generator=torch.Generator().manual_seed(1)), OFFSETS,
                                                 topk=3, want=["nsel"], **BLOCKS),
    "attend": lambda m, q, k, v, g: m.nsa_attend(q, k, v, torch.arange(46 * 4).view(46, 2, 2) % 7 - 1, OFFSETS, window=4,
                                                 want=["out_slc", "out_swa", "lse_slc", "lse_swa"], **BLOCKS),
    "combine": lambda m, q, k, v, g: m.nsa_combine(g, q, None, q, gate_act="sigmoid"),
    "forward": lambda m, q, k, v, g: m.nsa_forward(q, k, v, g, OFFSETS, want=ALL, dense_len=7, gate_act="sigmoid", **OPTIONS),
    "forward_usual": lambda m, q, k, v, g: m.nsa_forward(q, k, v, g, OFFSETS, **OPTIONS),
}
CACHE = dict(block=4, stride=2)


def same(got, expected):
    if not isinstance(got, dict):
        got, expected = {"result": got}, {"result": expected}
    for name in expected:
        array = expected[name]
        if array.dtype == ml_dtypes.bfloat16:
            got, array = {**got, name: got[name].view(torch.uint16)}, array.view(np.uint16)
        assert got[name].shape == array.shape and np.array_equal(got[name].numpy(), array), name


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", CALLS)
def test_the_bits_of_numpy(name, dtype):
    tensors = inputs(dtype=dtype)
    arrays = [x.view(torch.uint16).numpy().view(ml_dtypes.bfloat16) if dtype == torch.bfloat16 else x.numpy() for x in tensors]
    if name == "compressed" and dtype != torch.float32:
        arrays = [x if dtype == torch.float16 else x.view(np.uint16) for x in arrays]
        kc = compressed(*tensors[1:3])
        options = dict(seq_offsets_q=OFFSETS, seq_offsets_kc=kc["seq_offsets_kc"], want=["importance", "lse_cmp"], **BLOCKS)
        bits = {key: kc[key].view(torch.uint16).numpy() if dtype == torch.bfloat16 else kc[key].numpy() for key in ("kc", "vc")}
        return same(pt.nsa_compressed_attention(tensors[0], kc["kc"], kc["vc"], **options),
                    pantile.nsa_compressed_attention(arrays[0], bits["kc"], bits["vc"], **options))
    same(CALLS[name](pt, *tensors), CALLS[name](pantile, *arrays))


def test_strided_views():
    """[B, H, S, D] as most models have it, read in place."""
    tensors = dense()
    expected = pt.nsa_forward(*tensors, want=ALL, **OPTIONS)
    views = [x.transpose(1, 2).contiguous().transpose(1, 2) for x in tensors]
    wide = torch.randn(2, 20, 4, 24)
    wide[..., 8:16] = tensors[0]
    for q in (views[0], wide[..., 8:16]):
        assert not q.is_contiguous()
        got = pt.nsa_forward(q, *views[1:], want=ALL, **OPTIONS)
        assert all(torch.equal(got[name], expected[name]) for name in got)
    assert torch.equal(pt.attention_forward(*views[:3]), pt.attention_forward(*tensors[:3]))


def caches(dtype=torch.float32, fill=0.0):
    return [torch.full((8, 5, 2, dim), fill, dtype=dtype) for dim in (8, 5, 8, 5)]


TABLES = dict(page_table=torch.tensor([[7, 1, 4, 2], [0, 3, 6, 5]], dtype=torch.int32),
              page_table_c=torch.tensor([[2, 3], [5, 4]]))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_decode_steps_are_rows(dtype):
    q, k, v, gates = dense(dtype=dtype)
    kc, vc = (pt.nsa_compress(x, **CACHE) for x in (k, v))
    whole = pt.nsa_forward(q, k, v, gates, kc=kc, vc=vc, **OPTIONS)
    k_pages, v_pages, kc_pages, vc_pages = pages = caches(dtype, torch.nan)
    pt.nsa_append(torch.tensor([0, 0]), torch.tensor([6, 6]), k=k[:, :6], v=v[:, :6], k_pages=k_pages, v_pages=v_pages,
                  kc_pages=kc_pages, vc_pages=vc_pages, **TABLES, **CACHE)
    for t in range(6, 20, 2):
        new = slice(t, t + 2)
        step = dict(k=k[:, new], v=v[:, new], **TABLES, **OPTIONS)
        lengths = torch.tensor([t, t]), torch.tensor([t + 2, t + 2])
        out = pt.nsa_decode(q[:, new], gates[:, new], *lengths, *pages, **step)
        assert torch.equal(out, whole[:, new])
        again = pt.nsa_decode(q[:, new], gates[:, new], *lengths, *pages, want=["nsel"], **step)
        assert list(again) == ["out", "nsel"] and torch.equal(again["out"], out)
    table = TABLES["page_table_c"]
    assert torch.equal(kc_pages[table].flatten(1, 2)[:, :kc.shape[1]], kc)


def test_threads():
    tensors = inputs()
    expected = pt.nsa_forward(*tensors, OFFSETS, **OPTIONS)
    threads = torch.get_num_threads()
    try:
        for n in (1, 2, 3):
            torch.set_num_threads(n)
            assert torch.equal(pt.nsa_forward(*tensors, OFFSETS, **OPTIONS), expected)
    finally:
        torch.set_num_threads(threads)


def test_nothing_to_do():
    got = pt.nsa_forward(*inputs(0), torch.tensor([0, 0]), want=ALL)
    assert got["out"].shape == (0, 4, 5) and got["importance"].shape == (0, 2, 0)


# ---- torch's machinery ---------------------------------------------------------------------------

def test_gradients_are_refused():
    for name, call in CALLS.items():
        if name == "select":
            continue
        tensors = [x.requires_grad_() for x in inputs()]
        if name != "compressed":
            with pytest.raises(RuntimeError, match=r"requires a gradient, but (nsa|attention)_\w+ has no backward pass"):
                call(pt, *tensors)
        with torch.no_grad():
            call(pt, *tensors)
    pages = caches()
    with pytest.raises(RuntimeError, match="k: requires a gradient, but nsa_append has no backward pass"):
        pt.nsa_append(torch.tensor([0, 0]), torch.tensor([1, 1]), k=torch.zeros(2, 1, 2, 8, requires_grad=True), k_pages=pages[0],
                      **TABLES)
    q, k, v, _ = inputs()
    with pytest.raises(RuntimeError, match="attention_forward: has no backward pass"):
        torch.ops.pantile.attention_forward(q.requires_grad_(), k, v, OFFSETS)[0].sum().backward()


def test_opcheck():
    q, k, v, gates = dense(6, dim=3, dv=2)
    ops, check = torch.ops.pantile, torch.library.opcheck
    small = dict(block=2, stride=1, select_block=2, topk=2, n_local=1)
    geometry = dict(block=2, stride=1, select_block=2)
    kc, vc = (pt.nsa_compress(x, block=2, stride=1) for x in (k, v))
    lengths = torch.tensor([3, 2]), torch.tensor([4, 3])
    pages = [torch.zeros(4, 4, 2, dim) for dim in (3, 2, 3, 2)]
    tables = dict(page_table=torch.tensor([[1], [0]]), page_table_c=torch.tensor([[2], [3]]))
    new = dict(k=k[:, :1], v=v[:, :1], **tables)
    for operator, arguments, named in [
            (ops.attention_forward, (q, k, v), dict(want_lse=True)),
            (ops.nsa_compress, (k, [2, 5, 2, 3]), dict(block=2, stride=1)),
            (ops.nsa_compressed_attention, (q, kc, vc), dict(small, want_lse_cmp=True, idx_shape=[2, 6, 2, 2])),
            (ops.nsa_select, (torch.rand(2, 6, 2, 3), [2, 6, 2, 2]), dict(small, want_nsel=True)),
            (ops.nsa_attend, (q, k, v, torch.zeros(2, 6, 2, 1, dtype=torch.int32)), dict(geometry, want_out_slc=True)),
            (ops.nsa_combine, (gates, None, pt.nsa_attend(q, k, v)["out_swa"]), {}),
            (ops.nsa_forward, (q, k, v, gates), dict(small, want_out_swa=True, importance_shape=[2, 6, 2, 3])),
            (ops.nsa_append, lengths, dict(new, k_pages=pages[0], v_pages=pages[1], kc_pages=pages[2], block=2, stride=1)),
            (ops.nsa_decode, (q[:, :1], gates[:, :1], *lengths, *pages[:2]),
             dict(new, kc_pages=pages[2], vc_pages=pages[3], nsel_shape=[2, 1, 2], **small))]:
        # The other one traces, which test_compile does for all of them.
        utils = ("test_schema", "test_autograd_registration", "test_faketensor")
        check(operator.default, arguments, named, test_utils=utils)
    check(ops.nsa_decode.default, arguments, named, test_utils="test_aot_dispatch_dynamic")


def test_compile():
    """A prompt and a step in one program of any length; the caches are written."""

    def program(q, k, v, gates, pages, lengths, window):
        kc = pt.nsa_compress(k, **CACHE)
        prompt = pt.nsa_forward(q, k, v, gates, kc=kc, vc=pt.nsa_compress(v, **CACHE), want=["idx"], **OPTIONS)
        k_pages, v_pages, kc_pages, vc_pages = pages
        pt.nsa_append(lengths[0], lengths[1], k=k, v=v, k_pages=k_pages, v_pages=v_pages, kc_pages=kc_pages,
                      vc_pages=vc_pages, **TABLES, **CACHE)
        step = pt.nsa_decode(q[:, :1], gates[:, :1], lengths[1], lengths[2], *pages, k=k[:, :1], v=v[:, :1], **TABLES, **OPTIONS)
        return prompt["out"], prompt["idx"], step, pt.attention_forward(q, k, v, window=window)

    compiled = torch.compile(program, fullgraph=True, dynamic=True)
    for rows in (12, 17):
        tensors, lengths = dense(rows), [torch.tensor([n, n]) for n in (0, rows, rows + 1)]
        results = []
        for fn in (program, compiled):
            pages = caches()
            results.append([*fn(*tensors, pages, lengths, rows - 3), *pages])
        assert all(map(torch.equal, *results))


def test_inference_mode_and_meta_tensors():
    tensors = inputs()
    expected = pt.nsa_forward(*tensors, OFFSETS, **OPTIONS)
    with torch.inference_mode():
        out = pt.nsa_forward(tensors[0].clone(), *tensors[1:], OFFSETS, **OPTIONS)
        assert out.is_inference() and torch.equal(out, expected)
    shapes = pt.nsa_forward(*(x.to("meta") for x in dense()), want=ALL)
    assert shapes["importance"].shape == (2, 20, 2, 1) and shapes["idx"].dtype == torch.int32 and shapes["out"].is_meta


@pytest.mark.parametrize("change, sentence", [
    (dict(q=lambda x: x.double()), "q: an element type that is none of float32, "),
    (dict(k=lambda x: x.half()), "k: f16, but q is f32"),
    (dict(v=lambda x: torch.randn(46, 2, 10)[..., ::2]), "v: stride 2 on the last axis, expected 1"),
    (dict(k=lambda x: torch.randn(46, 3, 8)), "k: 3 heads, but q has 4"),
    (dict(gates=lambda x: x[..., :2]), "gates: 2 on axis 2, expected 3"),
    (dict(seq_offsets_q=lambda x: x.float()), "seq_offsets_q: f32"),
    (dict(topk=lambda x: 1), "topk: 1, expected 1 to 2^31 - 1, and at least n_init + n_local = 1 + 1"),
    (dict(window=lambda x: -1), "window: -1, expected 0 or more"),
])
def test_refusals(change, sentence):
    q, k, v, gates = inputs()
    arguments = dict(q=q, k=k, v=v, gates=gates, seq_offsets_q=OFFSETS, **OPTIONS)
    for name, fn in change.items():
        arguments[name] = fn(arguments.get(name))
    for want in ((), ALL):
        with pytest.raises(RuntimeError) as refused:
            pt.nsa_forward(**arguments, want=want)
        assert sentence in str(refused.value)


def test_refusals_before_the_operator():
    q, k, v, gates = inputs()
    with pytest.raises(pantile.Error, match="want: 'lse', expected some of out, out_cmp"):
        pt.nsa_forward(q, k, v, gates, OFFSETS, want=["lse"])
    with pytest.raises(pantile.Error, match="pool: 'mean', expected one of sum, max"):
        pt.nsa_forward(q, k, v, gates, OFFSETS, pool="mean")
    with pytest.raises(TypeError, match="nsa_forward: unknown argument 'blocks'"):
        pt.nsa_forward(q, k, v, gates, OFFSETS, blocks=4)
    with pytest.raises(RuntimeError, match="out_slc: missing, but a result is shaped like it"):
        pt.nsa_combine(gates)


# ---- fla -----------------------------------------------------------------------------------------

def fla_definition(q, k, v, g_cmp, g_slc, g_swa, block_indices, block_counts, size, window, scale):
    """One sequence, rows one by one, in double: what the block's own tokens say, in torch's layout [T, HQ, D]."""
    q, k, v = (x.double().numpy() for x in (q, k, v))
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    rows, n_kv = len(q), k.shape[1]
    counts = block_counts.numpy() if isinstance(block_counts, torch.Tensor) else np.full((rows, n_kv), block_counts)
    kc, vc = (ref.nsa_compress(x, size, size) for x in (k, v))
    cmp, _, p = ref.nsa_scores(q, kc, vc, rows, block=size, stride=size, select_block=size, scale=scale)
    if g_cmp is None:
        idx = block_indices.numpy().copy()
        if isinstance(block_counts, torch.Tensor):
            idx[np.arange(idx.shape[2]) >= counts[..., None]] = -1
    else:
        own = np.arange(rows) // size
        p[np.arange(rows), :, own] = q.shape[1] // n_kv + 1.0  # it wins
        idx = ref.nsa_select(p, rows, select_block=size, topk=int(counts.max()), n_init=0, n_local=0, count=counts)
    slc, _, swa, _ = ref.nsa_attend(q, k, v, idx, select_block=size, window=max(window, 1), scale=scale)
    out = g_slc.double().numpy()[..., None] * slc
    if g_cmp is not None:
        out += g_cmp.double().numpy()[..., None] * cmp
    if window > 0:
        out += g_swa.double().numpy()[..., None] * swa
    return torch.from_numpy(out)


@pytest.mark.parametrize("window", [0, 7])
@pytest.mark.parametrize("given, dtype", [(False, torch.float32), (True, torch.float32), (False, torch.bfloat16)])
@pytest.mark.parametrize("counts", [3, "tensor"])
def test_fla(window, given, dtype, counts):
    """cu_seqlens = one by one = the definition (halves: only the first two)."""
    offsets = torch.tensor([0, 37, 40, 60], dtype=torch.int32)
    q, k, v, g = inputs(60, heads=(4, 2), dtype=dtype)
    g_cmp, g_slc, g_swa = g.sigmoid().unbind(-1)
    indices = torch.randint(-1, 8, (60, 2, 5)) if given else None
    n = torch.randint(1, 4, (60, 2)) if counts == "tensor" else counts
    if given:
        g_cmp = None
    options = dict(block_size=4, window_size=window, scale=0.4)

    def batch(x, rows=slice(None)):
        return x[None, rows] if isinstance(x, torch.Tensor) else x

    arguments = (q, k, v, g_cmp, g_slc, g_swa, indices, n)
    out = parallel_nsa(*map(batch, arguments), **options, cu_seqlens=offsets)
    assert out.shape == (1, 60, 4, 5) and out.dtype == dtype
    for lo, hi in zip(offsets[:-1].tolist(), offsets[1:].tolist()):
        rows = slice(lo, hi)
        alone = parallel_nsa(*(batch(x, rows) for x in arguments), **options)
        assert torch.equal(alone[0], out[0, rows])
        if dtype == torch.float32:
            here = [x[rows] if isinstance(x, torch.Tensor) else x for x in arguments]
            assert ref.error(alone[0], fla_definition(*here, 4, window, 0.4)) < 2e-5


def test_fla_defaults_and_refusals():
    q, k, v, g = (x[None] for x in inputs(200, heads=(16, 1)))
    gates = g.sigmoid().unbind(-1)
    out = parallel_nsa(q, k, v, *gates)
    assert ref.error(out[0], fla_definition(q[0], k[0], v[0], *(x[0] for x in gates), None, 16, 64, 0, None)) < 2e-5
    indices = torch.zeros(1, 200, 1, 2, dtype=torch.int64)
    with pytest.warns(UserWarning, match="block_indices: ignored, since g_cmp is given"):
        assert torch.equal(parallel_nsa(q, k, v, *gates, indices), out)
    with pytest.raises(RuntimeError, match="q: requires a gradient, but parallel_nsa has no backward pass"):
        parallel_nsa(q.clone().requires_grad_(), k, v, *gates)
    for change, sentence in [(dict(g_cmp=None), "block_indices: None, and so is g_cmp"),
                             (dict(g_swa=None, window_size=4), "g_swa: None, but window_size is 4"),
                             (dict(q=torch.zeros(2, 200, 16, 8), cu_seqlens=torch.tensor([0, 200])), "q: batch of 2, expected 1")]:
        with pytest.raises(ValueError, match=sentence):
            parallel_nsa(**{**dict(q=q, k=k, v=v, g_cmp=gates[0], g_slc=gates[1], g_swa=gates[2]), **change})
