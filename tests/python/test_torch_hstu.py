"""hstu_attention on tensors against the definition in double: values, gradients, layouts, compiled, refused."""

import itertools

import hstu_numpy
import numpy as np
import pantile
import pantile.torch as pt
import pytest
import reference as ref
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

N = 16
OFFSETS = torch.tensor([0, 7, 7, 8, 20])
LENGTHS = OFFSETS.diff().tolist()


def tensors(*shapes, dtype=torch.float32, grad=True):
    return [torch.randn(shape).to(dtype).requires_grad_(grad) for shape in shapes]


def qkv(rows=20, heads=2, kv_heads=2, dqk=4, dv=4, **kwargs):
    return tensors((rows, heads, dqk), (rows, kv_heads, dqk), (rows, kv_heads, dv), **kwargs)


def double(inputs):
    return [x.detach().double().requires_grad_() for x in inputs]


def check(inputs, got, expected_of):
    """Compares out and all gradients of got (a function of inputs) with expected_of (of the same in double)."""
    bounds = ref.BOUNDS[inputs[0].dtype]
    doubles = double(inputs)
    out, expected = got(*inputs), expected_of(*doubles)
    dout = torch.randn_like(out)
    assert ref.error(out, expected) <= bounds[0]
    grads = torch.autograd.grad(out, inputs, dout)
    for i, (grad, exact) in enumerate(zip(grads, torch.autograd.grad(expected, doubles, dout.double()))):
        assert grad.dtype == inputs[i].dtype
        assert ref.error(grad, exact) <= bounds[1], f"gradient {i}"


# ---- Values and gradients ------------------------------------------------------------------------

RULES = [dict(), dict(window=(-1, -1)), dict(window=(3, 0)), dict(window=(2, 1)), dict(targets=2),
         dict(targets=4, group=2), dict(contexts=3), dict(contexts=2, targets=2, window=(2, 0), min_full=1)]


def options_of(rule, counts=lambda name, n: n):
    """The rule of reference.attention as options of hstu_attention."""
    window = rule.get("window", (-1, 0))
    options = dict(window_left=window[0], window_right=window[1])
    for name, option in (("targets", "num_targets"), ("contexts", "num_contexts")):
        if name in rule:
            options[option] = counts(name, rule[name])
    if "group" in rule:
        options["target_group_size"] = rule["group"]
    if "min_full" in rule:
        options["min_full_attn_seq_len"] = rule["min_full"]
    return options


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("rule", RULES, ids=str)
def test_rules(rule, dtype):
    # As many targets and contexts as a sequence has room for.
    fitted = {name: [min(value, n) for n in LENGTHS] if name in ("targets", "contexts") else value
              for name, value in rule.items()}
    options = options_of(rule, lambda name, n: torch.tensor(fitted[name]))
    check(qkv(dtype=dtype),
          lambda q, k, v: pt.hstu_attention(q, k, v, OFFSETS, scaling_seqlen=N, alpha=0.5, **options),
          lambda q, k, v: ref.attention(q, k, v, OFFSETS, scale=1 / N, alpha=0.5, **fitted))


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 5)), min_size=1, max_size=4), st.sampled_from(RULES),
       st.sampled_from([(1, 1), (2, 2), (4, 2), (3, 1)]), st.integers(1, 9), st.integers(1, 9),
       st.sampled_from([torch.int32, torch.int64]))
def test_any_lengths(lengths, rule, heads, dqk, dv, index):
    uk = [more + queries for more, queries in lengths]
    offsets_q = torch.tensor([0, *itertools.accumulate(queries for _, queries in lengths)], dtype=index)
    offsets_k = torch.tensor([0, *itertools.accumulate(uk)], dtype=index)
    fitted = {name: [min(value, n) for n in uk] if name in ("targets", "contexts") else value
              for name, value in rule.items()}
    options = options_of(rule, lambda name, n: torch.tensor(fitted[name], dtype=index))
    inputs = tensors((int(offsets_q[-1]), heads[0], dqk), (sum(uk), heads[1], dqk), (sum(uk), heads[1], dv))
    check(inputs,
          lambda q, k, v: pt.hstu_attention(q, k, v, offsets_q, seq_offsets_k=offsets_k, scaling_seqlen=N, **options),
          lambda q, k, v: ref.attention(q, k, v, offsets_q, offsets_k, scale=1 / N, **fitted))


@pytest.mark.parametrize("per_row", [False, True])
def test_scale_has_a_gradient(per_row):
    scale = torch.rand(20 if per_row else (), requires_grad=True)
    check([*qkv(), scale], lambda q, k, v, s: pt.hstu_attention(q, k, v, OFFSETS, attn_scale=s),
          lambda q, k, v, s: ref.attention(q, k, v, OFFSETS, scale=s))


@pytest.mark.parametrize("shape", [(4, 2), (1, 2), (4, 1), (1, 1)])
def test_dense_bias(shape):
    bias = torch.randn(*shape, 12, 12, requires_grad=True)

    def pieces(b):
        return [0.5 * b.expand(4, -1, -1, -1)[i, :, :n, :n] for i, n in enumerate(LENGTHS)]

    check([*qkv(), bias],
          lambda q, k, v, b: pt.hstu_attention(q, k, v, OFFSETS, scaling_seqlen=N, alpha=0.5, attn_bias=b),
          lambda q, k, v, b: ref.attention(q, k, v, OFFSETS, scale=1 / N, alpha=0.5, biases=pieces(b)))


def table_biases(pos, time, times, thresholds, own):
    """bias of each sequence from the two tables."""
    result = []
    for lo, hi in zip(OFFSETS[:-1].tolist(), OFFSETS[1:].tolist()):
        n = hi - lo
        index = torch.from_numpy(hstu_numpy.positions(np.arange(pos.shape[-1]), n, n))
        bucket = torch.from_numpy(hstu_numpy.buckets(times[lo:hi].numpy(), thresholds.numpy(), n, own))
        result.append(pos[..., index] + time[..., bucket])
    return result


@pytest.mark.parametrize("heads, own", [((), False), ((2,), True)])
def test_table_bias(heads, own):
    pos, time = tensors((*heads, 23), (*heads, 9))
    thresholds = pt.hstu_time_thresholds("log", 1.0, 0.301, 8)
    times = torch.randint(0, 500, (20,))
    options = dict(scaling_seqlen=N, alpha=0.5, time_thresholds=thresholds, timestamps=times, bias_scale=1.0,
                   time_query="own" if own else "next")
    check([*qkv(), pos, time],
          lambda q, k, v, p, t: pt.hstu_attention(q, k, v, OFFSETS, pos_table=p, time_table=t, **options),
          lambda q, k, v, p, t: ref.attention(q, k, v, OFFSETS, scale=1 / N, alpha=0.5,
                                              biases=table_biases(p, t, times, thresholds, own)))


def test_masks_and_intervals():
    masks = torch.rand(4, 2, 12, 12) < 0.5
    pieces = [masks[b, :, :n, :n] for b, n in enumerate(LENGTHS)]
    check(qkv(), lambda q, k, v: pt.hstu_attention(q, k, v, OFFSETS, scaling_seqlen=N, mask=masks),
          lambda q, k, v: ref.attention(q, k, v, OFFSETS, scale=1 / N, masks=pieces))
    ends = torch.randint(-2, 14, (20, 4)).sort(1).values
    column = torch.arange(12)
    seen = ((column >= ends[:, :1]) & (column < ends[:, 1:2])) | ((column >= ends[:, 2:3]) & (column < ends[:, 3:]))
    pieces = [seen[lo:lo + n, :n] for lo, n in zip(OFFSETS[:-1], LENGTHS)]
    check(qkv(), lambda q, k, v: pt.hstu_attention(q, k, v, OFFSETS, scaling_seqlen=N, intervals=ends),
          lambda q, k, v: ref.attention(q, k, v, OFFSETS, scale=1 / N, masks=pieces))


def test_only_what_needs_a_gradient():
    q, k, v = qkv(grad=False)
    bias = torch.zeros(1, 1, 12, 12, requires_grad=True)
    v.requires_grad_()
    out = pt.hstu_attention(q, k, v, OFFSETS, scaling_seqlen=N, attn_bias=bias)
    out.sum().backward()
    assert q.grad is None and v.grad.abs().sum() > 0 and bias.grad.abs().sum() > 0


# ---- Layouts -------------------------------------------------------------------------------------

def test_slices_are_taken_as_they_are():
    buffer = torch.randn(20, 3, 2, 4, requires_grad=True)
    bare = buffer.detach().clone().requires_grad_()
    out = pt.hstu_attention(*buffer.unbind(1), OFFSETS, scaling_seqlen=N)
    expected = pt.hstu_attention(*(x.contiguous() for x in bare.unbind(1)), OFFSETS, scaling_seqlen=N)
    assert torch.equal(out, expected)
    out.sum().backward()  # with an expanded gradient
    expected.sum().backward()
    assert torch.equal(buffer.grad, bare.grad)


def test_transposed_dense():
    offsets = torch.tensor([0, 5, 10, 15])
    check(tensors(*[(3, 2, 5, 4)] * 3),
          lambda *x: pt.hstu_attention(*(t.transpose(1, 2) for t in x), scaling_seqlen=N).flatten(0, 1),
          lambda *x: ref.attention(*(t.transpose(1, 2).flatten(0, 1) for t in x), offsets, scale=1 / N))


def test_gradients_into_slices():
    q, k, v, dout = tensors(*[(20, 2, 4)] * 4, grad=False)
    buffer = torch.full((20, 4, 2, 4), torch.nan)
    options = dict(scaling_seqlen=N, num_targets=1, want=["ds"], seqused_q=torch.tensor([7, 0, 1, 9]))
    got = pt.hstu_backward(dout, q, k, v, OFFSETS, out=tuple(buffer[:, i] for i in (2, 0, 3)), **options)
    expected = pt.hstu_backward(dout, q, k, v, OFFSETS, **options)
    assert all(map(torch.equal, got, expected)) and torch.equal(buffer[:, 3], expected[2])
    assert buffer[:, 1].isnan().all()


def test_given_output():
    q, k, v = qkv(grad=False)
    expected = pt.hstu_attention(q, k, v, OFFSETS, scaling_seqlen=N)
    buffer = torch.zeros(20, 2, 8)
    assert torch.equal(pt.hstu_attention(q, k, v, OFFSETS, scaling_seqlen=N, out=buffer[..., 4:]), expected)
    assert torch.equal(buffer[..., 4:], expected) and not buffer[..., :4].any()
    with pytest.raises(RuntimeError, match="out: given, but an argument requires a gradient"):
        pt.hstu_attention(q.requires_grad_(), k, v, OFFSETS, scaling_seqlen=N, out=buffer[..., 4:])


@pytest.mark.parametrize("shape, offsets", [((0, 2, 4), [0]), ((0, 2, 4), [0, 0, 0]), ((3, 2, 4), [0, 0]),
                                            ((2, 0, 2, 4), None)])
def test_nothing_to_do(shape, offsets):
    q, k, v = tensors(shape, shape, shape)
    out = pt.hstu_attention(q, k, v, None if offsets is None else torch.tensor(offsets), scaling_seqlen=N)
    out.sum().backward()
    assert out.shape == shape and not out.any() and not q.grad.any() and q.grad.shape == shape


def test_pages():
    q, k, v = qkv(grad=False)
    options = dict(scaling_seqlen=N, num_targets=torch.tensor([2, 0, 1, 2]))
    full = pt.hstu_attention(q, k, v, OFFSETS, **options)
    k_pages, v_pages = torch.zeros(9, 2, 2, 3, 4).unbind(1)
    k_pages, v_pages = (x.transpose(1, 2) for x in (k_pages, v_pages))  # [pages, page_size 3, Hk, D]
    lists = dict(page_offsets=torch.tensor([0, 2, 2, 2, 6]), page_ids=torch.tensor([8, 1, 5, 0, 2, 7]))
    pt.hstu_kv_append(k, v, OFFSETS, torch.zeros(4, dtype=torch.int64), k_pages, v_pages, **lists,
                      num_targets=options["num_targets"])
    options.update(lists, k_pages=k_pages, v_pages=v_pages, last_page_lens=torch.tensor([2, 1, 1, 1]))
    assert torch.equal(pt.hstu_attention(q, k, v, OFFSETS, **options), full)
    with pytest.raises(RuntimeError, match="k_pages: paged keys have no backward pass"):
        pt.hstu_attention(q.requires_grad_(), k, v, OFFSETS, **options).sum().backward()


def test_same_bits_as_numpy_and_at_any_number_of_threads():
    q, k, v = qkv(400, dqk=32, dv=32, grad=False)
    offsets = torch.tensor([0, 300, 400])
    expected = pantile.hstu_forward(q, k, v, offsets, scaling_seqlen=N)
    threads = torch.get_num_threads()
    try:
        for n in (1, 2, 3):
            torch.set_num_threads(n)
            assert np.array_equal(pt.hstu_attention(q, k, v, offsets, scaling_seqlen=N).numpy(), expected)
    finally:
        torch.set_num_threads(threads)


# ---- torch's machinery ---------------------------------------------------------------------------

@pytest.mark.filterwarnings("ignore:Input #. requires gradient and is not a double")
def test_gradcheck():
    q, k, v = qkv(6, dqk=3, dv=2)
    offsets = torch.tensor([0, 4, 6])
    torch.autograd.gradcheck(lambda *x: pt.hstu_attention(*x, offsets, attn_scale=1.0), (q, k, v), eps=1e-2, atol=1e-2,
                             rtol=1e-2)


def test_opcheck():
    q, k, v = qkv(6, dqk=3, dv=2)
    bias = torch.randn(1, 1, 4, 4, requires_grad=True)
    offsets = torch.tensor([0, 4, 6])
    operators, check_operator = torch.ops.pantile, torch.library.opcheck
    check_operator(operators.hstu_forward.default, (q, k, v, offsets, N, 0.5), dict(attn_bias=bias, max_seqlen_q=4))
    q, k, v = (x.detach() for x in (q, k, v))
    check_operator(operators.hstu_backward.default, (v, q, k, v, offsets, N), dict(want_ds=True))
    gradients = [torch.empty_like(x) for x in (q, k, v)]
    check_operator(operators.hstu_backward_into.default, (v, q, k, v, *gradients, offsets, N))
    check_operator(operators.hstu_kv_append.default, (
        q, v, offsets, torch.tensor([0, 0]), torch.zeros(2, 4, 2, 3), torch.zeros(2, 4, 2, 2),
        torch.tensor([0, 1, 2]), torch.tensor([1, 0])))


def test_compile():
    """One program for all lengths, with everything that has a gradient; equal to eager calls."""

    def loss(q, k, v, pos, time, scale, offsets, times):
        out = pt.hstu_attention(q, k, v, offsets, alpha=0.5, num_targets=1, attn_scale=scale, pos_table=pos,
                                time_table=time, timestamps=times, time_thresholds=thresholds, time_query="own",
                                max_seqlen_q=q.shape[0])
        return (out * out).sum()

    thresholds = pt.hstu_time_thresholds("log", 1.0, 0.301, 8)
    compiled = torch.compile(loss, fullgraph=True, dynamic=True)
    for lengths in ([4, 3], [1, 1, 9], [12]):
        offsets = pt.jagged_complete_cumsum(torch.tensor(lengths))
        rows = sum(lengths)
        inputs = [*qkv(rows), *tensors((41,), (9,), (rows,))]
        times = torch.randint(0, 500, (rows,))
        results = []
        for fn in (loss, compiled):
            value = fn(*inputs, offsets, times)
            results.append((value, *torch.autograd.grad(value, inputs)))
        for eager, other in zip(*results):
            assert torch.allclose(eager, other, rtol=1e-5, atol=1e-7)


def test_export():
    class Module(torch.nn.Module):
        def forward(self, q, k, v, offsets):
            return pt.hstu_attention(q, k, v, offsets, scaling_seqlen=N, num_targets=1)

    rows, sequences = torch.export.Dim("rows"), torch.export.Dim("sequences")
    q, k, v = qkv(7, grad=False)
    program = torch.export.export(Module(), (q, k, v, torch.tensor([0, 4, 7])),
                                  dynamic_shapes=({0: rows}, {0: rows}, {0: rows}, {0: sequences}))
    assert "pantile.hstu_forward" in program.graph_module.code
    q, k, v = qkv(grad=False)
    offsets = torch.tensor([0, 6, 7, 8, 20])
    assert torch.equal(program.module()(q, k, v, offsets), Module()(q, k, v, offsets))


def test_inference_mode():
    q, k, v = qkv(grad=False)
    expected = pt.hstu_attention(q, k, v, OFFSETS, scaling_seqlen=N)
    with torch.inference_mode():
        out = pt.hstu_attention(q.clone(), k, v, OFFSETS, scaling_seqlen=N)
        assert out.is_inference() and torch.equal(out, expected)


# ---- Refusals ------------------------------------------------------------------------------------

@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("change, sentence", [
    (dict(q=lambda x: x.double()), "q: an element type that is none of float32, "),
    (dict(k=lambda x: x.half()), "k: f16"),
    (dict(v=lambda x: torch.randn(20, 2, 8)[..., ::2]), "v: stride 2 on the last axis, expected 1"),
    (dict(k=lambda x: torch.randn(20, 3, 4)), "k: 3 heads, but q has 2"),
    (dict(q=lambda x: x[None, None]), "q: 5 axes, expected at most 4"),
    (dict(seq_offsets_q=lambda x: x.float()), "seq_offsets_q: f32"),
    (dict(num_targets=lambda x: torch.ones(4, dtype=torch.int32)), "num_targets: i32, but another index tensor is i64"),
    (dict(scaling_seqlen=lambda x: -1), "scaling_seqlen: -1"),
])
def test_refusals(change, sentence, grad):
    q, k, v = qkv(grad=grad)
    arguments = dict(q=q, k=k, v=v, seq_offsets_q=OFFSETS, scaling_seqlen=N)
    for name, fn in change.items():
        arguments[name] = fn(arguments.get(name))
    with pytest.raises(RuntimeError) as refused:
        pt.hstu_attention(**arguments)
    assert sentence in str(refused.value)


def test_unknown_option():
    with pytest.raises(RuntimeError, match="scale"):
        pt.hstu_attention(*qkv(grad=False), OFFSETS, scaling_seqlen=N, scale=1.0)


def test_sparse_is_refused():
    with pytest.raises(NotImplementedError, match="SparseCPU"):
        pt.hstu_attention(torch.eye(4).to_sparse(), *qkv(grad=False)[1:], OFFSETS, scaling_seqlen=N)


def test_meta_tensors():
    q, k, v = (x.to("meta") for x in qkv(grad=False, dv=3))
    out = pt.hstu_attention(q, k, v, OFFSETS.to("meta"), scaling_seqlen=N)
    assert out.device.type == "meta" and out.shape == (20, 2, 3)
