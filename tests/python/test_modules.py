"""HSTULayer and HSTUStack against the layer in double; recomputation, the cache, training."""

import pantile.torch as pt
import pytest
import reference as ref
import torch
from test_torch_hstu import table_biases

N, H, D, E = 16, 2, 4, 12
OFFSETS = torch.tensor([0, 7, 7, 8, 20])
TARGETS = [2, 0, 1, 3]
TIMES = torch.cat([torch.randint(0, 500, (n,), generator=torch.Generator().manual_seed(1)).sort().values
                   for n in OFFSETS.diff().tolist()])

OPTIONS = [
    dict(), dict(activation="uvqk", combine="y", eps=1e-5), dict(per_head=True, combine="uny", linear_dim=3),
    dict(norm_out="group"), dict(activation="none", residual=False, uvqk_bias=False, out_bias=True, alpha=1.0),
    pt.VARIANTS["nvidia"], pt.VARIANTS["research"]]


@pytest.mark.parametrize("recompute", [True, False])
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_layer(options, recompute):
    layer = pt.HSTULayer(E, H, D, scaling_seqlen=N, recompute=recompute, **options)
    for p in layer.parameters():
        torch.nn.init.normal_(p, std=0.5)
    x = torch.randn(20, E, requires_grad=True)
    out = layer(x, OFFSETS, num_targets=torch.tensor(TARGETS))

    exact = {name: p.detach().double().requires_grad_() for name, p in layer.named_parameters()}
    x_exact = x.detach().double().requires_grad_()
    names = {"activation", "combine", "norm_out", "residual", "per_head"}
    spec = {name: value for name, value in options.items() if name in names}
    expected = ref.layer(exact, x_exact, OFFSETS, H, D, options.get("linear_dim", D), N, targets=TARGETS,
                         alpha=options.get("alpha", D ** -0.5), eps=options.get("eps", 1e-6), **spec)
    dout = torch.randn_like(out)
    grads = torch.autograd.grad(out, (x, *layer.parameters()), dout)
    exact_grads = torch.autograd.grad(expected, (x_exact, *exact.values()), dout.double())
    assert ref.error(out, expected) < 1e-5
    for name, grad, exact_grad in zip(("x", *exact), grads, exact_grads):
        assert ref.error(grad, exact_grad) < 2e-4, name  # a norm of few numbers near 0 magnifies


@pytest.mark.parametrize("bias_per_head", [False, True])
def test_tables(bias_per_head):
    layer = pt.HSTULayer(E, H, D, scaling_seqlen=N, max_position=20, time_buckets=8, bias_per_head=bias_per_head)
    x = torch.randn(20, E)
    out = layer(x, OFFSETS, timestamps=TIMES)
    exact = {name: p.detach().double() for name, p in layer.named_parameters()}
    biases = table_biases(exact["pos_table"], exact["time_table"], TIMES, layer.time_thresholds, own=False)
    assert ref.error(out, ref.layer(exact, x.double(), OFFSETS, H, D, D, N, alpha=0.5, biases=biases)) < 1e-5
    out.sum().backward()
    assert layer.pos_table.grad.any() and layer.time_table.grad.any()


@pytest.mark.parametrize("options", [dict(dropout=0.4), dict(max_position=20, time_buckets=8), dict(linear_dim=3)],
                         ids=str)
def test_recomputing_changes_no_bit(options):
    layer = pt.HSTULayer(E, H, D, scaling_seqlen=N, **options)
    layer.norm_in.weight.requires_grad_(False)
    x = torch.randn(20, E, requires_grad=True)
    results = []
    for layer.recompute in (True, False):
        torch.manual_seed(1)
        out = layer(x, OFFSETS, timestamps=TIMES if "time_buckets" in options else None)
        torch.manual_seed(2)
        wanted = [x, *(p for p in layer.parameters() if p.requires_grad)]
        results.append((out, *torch.autograd.grad(out.square().sum(), wanted)))
    assert all(map(torch.equal, *results))


def test_recomputing_under_autocast():
    layer = pt.HSTULayer(E, H, D, scaling_seqlen=N)
    x = torch.randn(20, E, requires_grad=True)
    results = []
    for layer.recompute in (True, False):
        with torch.autocast("cpu", torch.bfloat16):
            out = layer(x, OFFSETS)
        results.append((out, *torch.autograd.grad(out.square().sum(), (x, *layer.parameters()))))
    assert all(map(torch.equal, *results))


def test_recomputing_keeps_less():
    stack = pt.HSTUStack(2, 64, 4, 16, scaling_seqlen=N)
    x = torch.randn(256, 64, requires_grad=True)
    kept = {}
    for recompute in (True, False):
        sizes = {}

        def keep(t):
            sizes[t.untyped_storage().data_ptr()] = t.untyped_storage().nbytes()
            return t

        for layer in stack.layers:
            layer.recompute = recompute
        with torch.autograd.graph.saved_tensors_hooks(keep, lambda t: t):
            stack(x, torch.tensor([0, 100, 256]))
        kept[recompute] = sum(sizes.values()) - sum(p.nbytes for p in stack.parameters())
    assert kept[True] < kept[False] / 3


def test_dense_layout():
    layer = pt.HSTULayer(E, H, D, scaling_seqlen=N)
    x = torch.randn(3, 5, E)
    assert torch.allclose(layer(x).flatten(0, 1), layer(x.flatten(0, 1), torch.tensor([0, 5, 10, 15])), atol=1e-6)


def test_options_reach_the_attention():
    layer = pt.HSTULayer(E, H, D, scaling_seqlen=N)
    x = torch.randn(20, E)
    bias = torch.randn(1, 1, 12, 12, requires_grad=True)
    layer(x, OFFSETS, attn_bias=bias, window_left=3).sum().backward()
    assert bias.grad.any()


@pytest.mark.parametrize("name, value", [("activation", "silu"), ("norm_out", "rms"), ("combine", "u")])
def test_words(name, value):
    with pytest.raises(ValueError, match=f"{name}: '{value}', expected one of"):
        pt.HSTULayer(E, H, D, scaling_seqlen=N, **{name: value})


# ---- Cache ---------------------------------------------------------------------------------------

def rows_of(lengths, begin, end):
    """Row numbers of tokens begin[b] .. end[b]-1 of every sequence, and their offsets."""
    rows = [torch.arange(lo + b, lo + e) for lo, b, e in zip(OFFSETS.tolist(), begin, end)]
    return torch.cat(rows), pt.jagged_complete_cumsum(torch.tensor([len(r) for r in rows]))


@pytest.mark.parametrize("page_size", [1, 2, 64])
def test_cache_on_and_off(page_size):
    stack = pt.HSTUStack(3, E, H, D, scaling_seqlen=N, max_position=20, time_buckets=8, time_query="own").eval()
    x = torch.randn(20, E)
    lengths = OFFSETS.diff().tolist()
    history = [n - t for n, t in zip(lengths, TARGETS)]
    with torch.no_grad():
        expected = stack(x, OFFSETS, timestamps=TIMES, num_targets=torch.tensor(TARGETS))
    cache = stack.new_cache(4, page_size)
    nothing, some = [0] * 4, [3, 0, 0, 4]
    for call, begin, end in ((stack.prefill, nothing, some), (stack.append, some, history),
                             (stack.score, history, lengths), (stack.score, history, lengths)):
        rows, offsets = rows_of(lengths, begin, end)
        got = call(x[rows], offsets, cache, timestamps=TIMES[rows])
        assert torch.allclose(got, expected[rows], atol=1e-6)
    assert cache.lengths.tolist() == history
    rows = torch.arange(17, 20)  # one user alone
    got = stack.score(x[rows], torch.tensor([0, 3]), cache, timestamps=TIMES[rows], sequences=[3])
    assert torch.allclose(got, expected[rows], atol=1e-6)


def test_cache_gives_pages_back():
    stack = pt.HSTUStack(1, E, H, D, scaling_seqlen=N)
    cache = stack.new_cache(2, page_size=4)
    x, offsets, pages = torch.randn(100, E), torch.tensor([0, 40, 100]), []
    for _ in range(3):
        out = stack.prefill(x, offsets, cache)
        pages.append(cache.k_pages[0].shape[0])
    assert cache.lengths.tolist() == [40, 60] and pages[0] == pages[2]
    assert torch.allclose(out, stack(x, offsets), atol=1e-6)


def test_cache_refusals():
    stack = pt.HSTUStack(1, E, H, D, 3, scaling_seqlen=N)
    with pytest.raises(ValueError, match="linear_dim: 3, but a cache needs that of attention_dim, 4"):
        stack.new_cache(1)
    stack = pt.HSTUStack(1, E, H, D, scaling_seqlen=N, time_buckets=8)
    cache, x = stack.new_cache(2), torch.randn(2, E)
    with pytest.raises(ValueError, match="seq_offsets: 1 sequences, expected 2"):
        stack.append(x, torch.tensor([0, 2]), cache)
    with pytest.raises(ValueError, match="time_query"):
        stack.append(x, torch.tensor([0, 1, 2]), cache, timestamps=torch.tensor([1, 2]))
    with pytest.raises(ValueError, match="num_contexts"):
        stack.append(x, torch.tensor([0, 1, 2]), cache, num_contexts=1)


# ---- Training ------------------------------------------------------------------------------------

class Recommender(torch.nn.Module):
    def __init__(self, items, layers=2):
        super().__init__()
        self.items = torch.nn.Embedding(items, 32)
        self.stack = pt.HSTUStack(layers, 32, 2, 16, scaling_seqlen=N, max_position=N)

    def loss(self, ids, offsets, targets):
        x = self.stack(self.items(ids), offsets)
        return torch.nn.functional.cross_entropy(x @ self.items.weight.t(), targets)


def users(count, items, seed=0):
    """Jagged histories, and the item that follows each event."""
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(2, N, (count,), generator=generator)
    sequences = [torch.randint(0, items, (n + 1,), generator=generator) for n in lengths.tolist()]
    events, following = (torch.cat([s[part] for s in sequences]) for part in (slice(None, -1), slice(1, None)))
    return events, pt.jagged_complete_cumsum(lengths), following


def test_a_compiled_training_step_is_the_eager_one():
    batch = users(8, 50)
    results = []
    for compiled in (False, True):
        torch.manual_seed(3)
        model = Recommender(50, layers=1)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
        loss_of = torch.compile(model.loss, fullgraph=True, dynamic=True) if compiled else model.loss
        for _ in range(2):
            optimizer.zero_grad()
            loss = loss_of(*batch)
            loss.backward()
            optimizer.step()
        results.append((loss, *model.parameters()))
    for eager, other in zip(*results):
        assert torch.allclose(eager, other, rtol=1e-3, atol=1e-5)


def test_overfits_100_users():
    ids, offsets, targets = users(100, 40)
    model = Recommender(40)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-2, weight_decay=0.0)
    first = None
    for step in range(150):
        optimizer.zero_grad()
        loss = model.loss(ids, offsets, targets)
        first = loss.item() if first is None else first
        if loss.item() < 0.1 * first:
            break
        loss.backward()
        optimizer.step()
    assert loss.item() < 0.1 * first, (step, first, loss.item())
