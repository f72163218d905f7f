"""The names that people use, against their definitions: mask by multiplication, padded, in double."""

import pantile.torch as pt
import pytest
import reference as ref
import torch
from pantile.torch import article, fbgemm
from pantile.torch import generative_recommenders as gr

OFFSETS = torch.tensor([0, 6, 6, 10], dtype=torch.int32)
LENGTHS = OFFSETS.diff().tolist()
LONGEST = 8


def qkv(rows=10, heads=2, d=4, dv=4):
    return [torch.randn(rows, heads, n, requires_grad=True) for n in (d, d, dv)]


def same(got, expected, inputs=(), exact=()):
    assert ref.error(got, expected) < 5e-6
    dout = torch.randn_like(got)
    if inputs:
        for a, b in zip(torch.autograd.grad(got, inputs, dout), torch.autograd.grad(expected, exact, dout.double())):
            assert ref.error(a, b) < 1e-5


def doubles(inputs):
    return [x.detach().double().requires_grad_() for x in inputs]


# ---- The article ---------------------------------------------------------------------------------

@pytest.mark.parametrize("mask", ["causal", None, "2d", "3d", "4d"])
def test_article(mask):
    inputs = [torch.randn(2, 3, 5, 4, requires_grad=True) for _ in range(3)]
    exact = doubles(inputs)
    shapes = {"2d": (5, 5), "3d": (2, 5, 5), "4d": (2, 3, 5, 5)}
    if mask in shapes:
        given = (torch.rand(shapes[mask]) < 0.5).float()
        multiplied = given.unsqueeze(1) if mask == "3d" else given
    else:
        given, multiplied = mask, torch.ones(5, 5).tril() if mask == "causal" else torch.ones(5, 5)
    q, k, v = exact
    expected = multiplied.double() / 7 * torch.nn.functional.silu(0.5 * q @ k.transpose(2, 3)) @ v
    same(article.HSTU(*inputs, given, 0.5, 7), expected, inputs, exact)


def test_article_divides_by_the_keys_unless_told():
    q, k, v = (torch.randn(1, 1, s, 4) for s in (2, 5, 5))
    assert torch.equal(article.HSTU(q, k, v), article.HSTU(q, k, v, n=5))


@pytest.mark.parametrize("mask", [torch.full((5, 5), 0.5), "tril"])
def test_article_refuses_other_masks(mask):
    with pytest.raises(ValueError, match="mask: "):
        article.HSTU(*[torch.randn(1, 1, 5, 4)] * 3, mask)


# ---- FBGEMM --------------------------------------------------------------------------------------

def varlen(q, k, v, *args, seqused=(None, None), offsets_k=OFFSETS, **named):
    return fbgemm.hstu_attn_varlen_func(q, k, v, OFFSETS, offsets_k, *seqused, LONGEST, LONGEST, *args, **named)


@pytest.mark.parametrize("window", [(-1, -1), (-1, 0), (2, 1)])
def test_varlen_windows(window):
    inputs = qkv()
    exact = doubles(inputs)
    same(varlen(*inputs, -1, window_size=window, alpha=0.5),
         ref.attention(*exact, OFFSETS, scale=1 / LONGEST, alpha=0.5, window=window), inputs, exact)


def test_varlen_contexts_targets_scale():
    inputs = qkv()
    counts = torch.tensor([1, 0, 2], dtype=torch.int32)
    got = varlen(*inputs, 32, counts, counts, 2, (-1, 0))
    exact = doubles(inputs)
    same(got, ref.attention(*exact, OFFSETS, scale=1 / 32, contexts=[1, 0, 2], targets=[1, 0, 2], group=2), inputs,
         exact)


@pytest.mark.parametrize("has_drab", [False, True])
def test_varlen_bias_goes_through_alpha(has_drab):
    q, k, v = qkv(8)
    _, k2, v2 = qkv(10)
    offsets_q = torch.tensor([0, 4, 4, 8], dtype=torch.int32)
    rab = torch.randn(3, 1, LONGEST, LONGEST, requires_grad=True)
    got = fbgemm.hstu_attn_varlen_func(q, k2, v2, offsets_q, OFFSETS, None, None, LONGEST, LONGEST, window_size=(-1, 0),
                                       alpha=0.5, rab=rab, has_drab=has_drab)
    exact = doubles([q, k2, v2, rab])
    biases = [0.5 * exact[3][b, :, n - 4:n, :n] for b, n in enumerate(LENGTHS) if n] or []
    biases.insert(1, None)  # rows by position: the last 4
    expected = ref.attention(*exact[:3], offsets_q, OFFSETS, scale=1 / LONGEST, alpha=0.5, biases=biases)
    inputs = [q, k2, v2, *([rab] if has_drab else [])]
    same(got, expected, inputs, exact[:len(inputs)])


def test_varlen_func_is_intervals():
    inputs = qkv()
    func = torch.randint(0, 7, (1, 3, 10 + 256), dtype=torch.int32)
    j = torch.arange(6)
    seen = (j < func[0, 0, :, None]) | ((j >= func[0, 1, :, None]) & (j < func[0, 2, :, None]))
    masks = [seen[lo:lo + n, :n] for lo, n in zip(OFFSETS.tolist(), LENGTHS)]
    exact = doubles(inputs)
    same(varlen(*inputs, func=func), ref.attention(*exact, OFFSETS, scale=1 / LONGEST, masks=masks), inputs, exact)


def test_varlen_used_lengths_and_packed():
    q, k, v = qkv()
    used = torch.tensor([4, 0, 4], dtype=torch.int32)
    got = varlen(q, k, v, seqused=(used, used), window_size=(-1, 0))
    keep = torch.tensor([0, 1, 2, 3, 6, 7, 8, 9])
    expected = ref.attention(*(x.double()[keep] for x in (q, k, v)), torch.tensor([0, 4, 4, 8]), scale=1 / LONGEST)
    assert ref.error(got[keep], expected) < 5e-6 and not got[4:6].any()
    packed = fbgemm.hstu_attn_qkvpacked_func(torch.stack([q, k, v], 1), OFFSETS, OFFSETS, used, used, LONGEST, LONGEST,
                                             window_size=(-1, 0))
    assert torch.equal(packed, got)


def test_varlen_kv_cache():
    q, k, v = (x.detach() for x in qkv())
    targets, none_cached, last_page_lens = torch.tensor([[1, 0, 2], [0, 0, 0], [1, 1, 2]], dtype=torch.int32)
    lists = dict(zip(("page_offsets", "page_ids"), torch.tensor([[0, 3, 3, 4], [1, 3, 0, 2]], dtype=torch.int32)))
    cache = torch.zeros(4, 2, 2, 2, 4)
    pt.hstu_kv_append(k, v, OFFSETS, none_cached, cache[:, 0], cache[:, 1], **lists, num_targets=targets)
    got = varlen(q, k, v, num_targets=targets, window_size=(-1, 0), kv_cache=cache, last_page_lens=last_page_lens,
                 **lists)
    assert torch.equal(got, varlen(q, k, v, num_targets=targets, window_size=(-1, 0)))


@pytest.mark.parametrize("named, sentence", [
    (dict(has_drab=True), "has_drab: True, but rab is None"),
    (dict(num_targets=torch.ones(3)), r"num_targets: given, but window_size is \(-1, -1\), expected \(-1, 0\)"),
    (dict(num_contexts=torch.ones(3), window_size=(3, 0)), r"num_contexts: given, but window_size is \(3, 0\)"),
    (dict(quant_mode=0), "quant_mode: 0, expected -1"),
    (dict(func=torch.zeros(1, 1, 10), window_size=(-1, 0)), "func: given together with window_size"),
])
def test_varlen_refusals(named, sentence):
    with pytest.raises(ValueError, match=sentence):
        varlen(*qkv(), **named)


def test_jagged_names():
    x = torch.arange(20.0).view(10, 2)
    padded = fbgemm.jagged_to_padded_dense(x, [OFFSETS], [5], -1.0)
    assert padded.shape == (3, 5, 2) and padded[2, 4].tolist() == [-1, -1] and padded[0, 4].tolist() == [8, 9]
    values, offsets = fbgemm.dense_to_jagged(fbgemm.jagged_2d_to_dense(x, OFFSETS, 6), [OFFSETS], 10)
    assert torch.equal(values, x) and offsets[0] is OFFSETS
    assert fbgemm.jagged_1d_to_dense(torch.arange(10), OFFSETS, 6, 7)[2].tolist() == [6, 7, 8, 9, 7, 7]
    assert fbgemm.asynchronous_complete_cumsum(OFFSETS.diff()).tolist() == OFFSETS.tolist()
    with pytest.raises(ValueError, match="offsets: 2 levels, expected 1"):
        fbgemm.jagged_to_padded_dense(x, [OFFSETS, OFFSETS], [5, 5])


# ---- generative-recommenders ---------------------------------------------------------------------

@pytest.mark.parametrize("named, rule", [
    ({}, {}), (dict(max_attn_len=2), dict(window=(2, 0))), (dict(causal=False), dict(window=(-1, -1))),
    (dict(causal=False, max_attn_len=2), dict(window=(2, 2))),
    (dict(contextual_seq_len=1, max_attn_len=2, min_full_attn_seq_len=1,
          num_targets=torch.tensor([1, 0, 2], dtype=torch.int32)),
     dict(contexts=1, window=(2, 0), min_full=1, targets=[1, 0, 2]))])
def test_hstu_mha(named, rule):
    inputs = qkv(dv=3)
    exact = doubles(inputs)
    same(gr.hstu_mha(LONGEST, 0.5, *inputs, OFFSETS, **named),
         ref.attention(*exact, OFFSETS, scale=1 / LONGEST, alpha=0.5, **rule), inputs, exact)


@pytest.mark.parametrize("scale", [torch.tensor(0.3), torch.rand(10)], ids=["number", "per row"])
def test_hstu_mha_scale_replaces_the_length(scale):
    inputs = qkv()
    exact = doubles(inputs)
    same(gr.hstu_mha(LONGEST, 0.5, *inputs, OFFSETS, attn_scale=scale),
         ref.attention(*exact, OFFSETS, scale=scale.double(), alpha=0.5), inputs, exact)


def test_hstu_mha_has_no_dropout():
    with pytest.raises(ValueError, match="dropout_pr: 0.1, expected 0"):
        gr.hstu_mha(LONGEST, 0.5, *qkv(), OFFSETS, True, 0.1)
    gr.hstu_mha(LONGEST, 0.5, *qkv(), OFFSETS, True, 0.1, training=False)


def test_delta_hstu_mha():
    q, k, v = qkv(dv=3)
    offsets = torch.tensor([0, 6, 10])
    last, targets = torch.tensor([4, 5, 8, 9]), torch.tensor([1, 2])
    full = gr.hstu_mha(LONGEST, 0.5, q, k, v, offsets, num_targets=targets)
    assert torch.equal(gr.delta_hstu_mha(LONGEST, 0.5, q[last], k, v, offsets, num_targets=targets), full[last])


def test_concat_and_split():
    left, right = torch.randn(3, 2), torch.randn(10, 2)  # one row in front of each sequence
    both = gr.concat_2D_jagged(7, left, right, max_len_left=1, offsets_right=OFFSETS)
    assert torch.equal(both[[0, 7, 8]], left)
    again = gr.split_2D_jagged(7, both, max_len_left=1, offsets_right=OFFSETS)
    assert torch.equal(again[0], left) and torch.equal(again[1], right)
    prefix, offsets = torch.randn(4, 2), torch.tensor([0, 1, 2, 4], dtype=torch.int32)
    l2 = gr.hstu_concat_l2_embeddings(2, prefix, offsets, 6, right, OFFSETS, 2)
    assert torch.equal(l2[:4], torch.cat([right[:2], prefix[:1], right[2:3]]))
    again = gr.hstu_split_l2_embeddings(8, l2, offsets, OFFSETS, 2)
    assert torch.equal(again[0], prefix) and torch.equal(again[1], right)
    offsets = torch.tensor([0, 2, 2, 2], dtype=torch.int32)
    assert torch.equal(gr.replace_last_n_with_jagged(6, OFFSETS, right, offsets, prefix[:2])[4:6], prefix[:2])


def test_jagged_dense_bmm():
    x, w, b = torch.randn(10, 2), torch.randn(3, 2, 4), torch.randn(3, 4)
    got = gr.jagged_dense_bmm_broadcast_add(6, OFFSETS, x, w, b)
    assert torch.allclose(got, torch.cat([x[:6] @ w[0] + b[0], x[6:] @ w[2] + b[2]]), atol=1e-6)


@pytest.mark.parametrize("interleave", [False, True])
def test_position_time(interleave):
    emb, pos, ts = torch.randn(10, 4), torch.randn(9, 4), torch.randn(5, 4)
    targets = torch.tensor([1, 0, 2], dtype=torch.int32)
    times = torch.zeros(10, dtype=torch.int64)
    got = gr.add_timestamp_positional_embeddings(2.0, LONGEST, 0, pos, ts, OFFSETS, OFFSETS.diff(), emb, times,
                                                 targets, interleave)
    top = [n - t * (2 if interleave else 1) for n, t in zip(LENGTHS, targets.tolist())]
    position = [top[b] - min(x, top[b]) for b in (0, 2) for x in range(LENGTHS[b])]
    assert torch.allclose(got, 2 * emb + pos[position] + ts[0], atol=1e-6)
