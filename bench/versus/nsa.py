"""The contenders of NSA: full attention, which NSA is to replace, and NSA itself. See hstu.py for what a contender is.
All start from ready compressed keys. results: out, and idx of the selection where there is one.
"""

from cases import from_bf16, to_bf16

ROWS = 64  # of a chunk: prefill in torch would else need [Sq, S] or [Sq, topk * select_block, D]


# ---- pantile -------------------------------------------------------------------------------------

def native(case, inputs, threads):
    """The inputs as pantile takes them, and a context."""
    import pantile as library

    x = {name: to_bf16(array) if case.dtype == "bf16" else array for name, array in inputs.items()}
    return library, x, dict(context=library.Context(num_threads=threads))


def as_floats(case, x):
    return from_bf16(x) if case.dtype == "bf16" else x


def pantile(case, inputs, threads):
    library, x, options = native(case, inputs, threads)
    arguments = x["q"], x["k"], x["v"], x["gates"]
    options |= dict(kc=x["kc"], vc=x["vc"])

    def result(out):
        return dict(out=as_floats(case, out), idx=library.nsa_forward(*arguments, want=("idx",), **options)["idx"])

    return lambda: library.nsa_forward(*arguments, **options), result


def pantile_full(case, inputs, threads):
    library, x, options = native(case, inputs, threads)
    return (lambda: library.attention_forward(x["q"], x["k"], x["v"], **options),
            lambda out: dict(out=as_floats(case, out)))


# ---- PyTorch -------------------------------------------------------------------------------------

def tensors(case, inputs):
    """[B, Hk, S, D], contiguous; q and gates by kv head, [B, Hk, G, Sq, ...]."""
    import torch

    dtype = torch.bfloat16 if case.dtype == "bf16" else torch.float32
    x = {name: torch.from_numpy(array).to(dtype).transpose(1, 2) for name, array in inputs.items()}
    for name in ("q", "gates"):
        x[name] = x[name].unflatten(1, (case.hk, -1))
    return {name: t.contiguous() for name, t in x.items()}


def to_rows(out):
    """[B, Hk, G, Sq, Dv] as [B, Sq, H, Dv]."""
    return out.flatten(1, 2).transpose(1, 2).float().numpy()


def full_sdpa(case, inputs, threads):
    """Decode: the heads of a group as rows of one head, far faster on CPUs than enable_gqa. Prefill: keys of each head."""
    from torch.nn.functional import scaled_dot_product_attention as attention

    x = tensors(case, inputs)
    q, k, v = x["q"], x["k"], x["v"]
    if case.sq == 1:
        folded = q[:, :, :, 0]
        return lambda: attention(folded, k, v), lambda out: dict(out=to_rows(out[:, :, :, None]))
    group = case.heads // case.hk
    q = q.flatten(1, 2)
    k, v = (t[:, :, None].expand(-1, -1, group, -1, -1).flatten(1, 2) for t in (k, v))
    return (lambda: attention(q, k, v, is_causal=True),
            lambda out: dict(out=to_rows(out.unflatten(1, (case.hk, group)))))


def full_matmul(case, inputs, threads):
    """Products and softmax, of as many rows at once as a chunk holds, up to the last key that they see."""
    import torch

    x = tensors(case, inputs)
    q, k, v = x["q"] * case.d ** -0.5, x["k"], x["v"]

    def chunk(i, end):
        seen = case.s - case.sq + end
        s = torch.matmul(q[:, :, :, i:end].flatten(2, 3), k[:, :, :seen].transpose(-1, -2))
        if case.sq > 1:
            s = s.unflatten(2, (-1, end - i))
            future = torch.arange(seen) > torch.arange(seen - (end - i), seen)[:, None]
            s = s.masked_fill_(future, -torch.inf).flatten(2, 3)
        return torch.matmul(torch.softmax(s, -1), v[:, :, :seen]).unflatten(2, (-1, end - i))

    def call():
        return torch.cat([chunk(i, min(i + ROWS, case.sq)) for i in range(0, case.sq, ROWS)], 3)

    return call, lambda out: dict(out=to_rows(out))


def nsa_rows(case, q, gates, k, v, kc, vc, weights, first):
    """Rows at positions first, first + 1, ... of all heads; scores in fp32, as a careful user keeps them."""
    import torch

    n_rows, blocks = q.shape[3], k.shape[2] // case.select_block
    t = torch.arange(first, first + n_rows)
    last = first + n_rows - 1  # nothing behind it is looked at
    n = max((last + 1 - case.block) // case.stride + 1, 0)

    # compressed, and the importance of blocks: key 4j - 1 + x has weights[x]
    s = torch.matmul(q, kc[:, :, None, :n].transpose(-1, -2)).float()
    s = s.masked_fill(torch.arange(n) * case.stride + case.block - 1 > t[:, None], -torch.inf)
    p = torch.nan_to_num(torch.softmax(s, -1))  # a row before the first compressed key sees none
    out = gates[..., 0:1] * torch.matmul(p.to(q.dtype), vc[:, :, None, :n])
    per_block = case.select_block // case.stride
    p = torch.nn.functional.pad(p.sum(2), (1, per_block * (blocks + 2) - n))
    importance = torch.matmul(p.unfold(-1, len(weights), per_block)[..., :blocks, :], weights)

    # the selection: blocks 0, own and the one before in any case
    block, own = torch.arange(blocks), t[:, None] // case.select_block
    importance = importance.masked_fill((block == 0) | (block > own - 2), torch.inf)
    importance = importance.masked_fill(block > own, -torch.inf)
    best = importance.topk(min(case.topk, blocks), -1)
    idx = torch.where(best.values > -torch.inf, best.indices, -1)  # [B, Hk, rows, topk]
    tokens = (idx[..., None] * case.select_block + torch.arange(case.select_block)).flatten(-2)
    hidden = (tokens < 0) | (tokens > t[:, None])
    at = tokens.clamp(0).flatten(2, 3)[..., None]
    k_slc, v_slc = (x.gather(2, at.expand(-1, -1, -1, x.shape[-1])).unflatten(2, tokens.shape[2:]) for x in (k, v))
    s = torch.matmul(q.transpose(2, 3), k_slc.transpose(-1, -2)).float()
    p = torch.softmax(s.masked_fill(hidden[:, :, :, None], -torch.inf), -1).to(q.dtype)
    out = out + gates[..., 1:2] * torch.matmul(p, v_slc).transpose(2, 3)

    # the window
    begin = max(0, first + 1 - case.window)
    seen = torch.arange(begin, last + 1)
    s = torch.matmul(q, k[:, :, None, begin:last + 1].transpose(-1, -2)).float()
    s = s.masked_fill((seen > t[:, None]) | (seen <= t[:, None] - case.window), -torch.inf)
    return out + gates[..., 2:3] * torch.matmul(torch.softmax(s, -1).to(q.dtype), v[:, :, None, begin:last + 1]), idx


def nsa_contender(case, inputs, rows):
    import torch

    x, weights = tensors(case, inputs), torch.tensor([1.0, 2, 2, 2, 1])
    pad = -case.s % case.select_block  # the last block may be short; its missing tokens are behind every row
    x["k"], x["v"] = (torch.nn.functional.pad(x[name], (0, 0, 0, pad)) for name in "kv")
    x["q"] = x["q"] * case.d ** -0.5

    def call():
        parts = [rows(case, x["q"][:, :, :, i:i + ROWS], x["gates"][:, :, :, i:i + ROWS], x["k"], x["v"], x["kc"], x["vc"],
                      weights, case.s - case.sq + i) for i in range(0, case.sq, ROWS)]
        return torch.cat([out for out, _ in parts], 3), torch.cat([idx for _, idx in parts], 2)

    def result(results):
        out, idx = results
        return dict(out=to_rows(out), idx=idx.transpose(1, 2).numpy())

    return call, result


def nsa_eager(case, inputs, threads):
    return nsa_contender(case, inputs, nsa_rows)


def nsa_compiled(case, inputs, threads):
    import torch

    return nsa_contender(case, inputs, torch.compile(nsa_rows, dynamic=False if case.sq == 1 else None))
