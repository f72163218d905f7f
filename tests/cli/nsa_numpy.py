"""NSA in NumPy float64, a sequence and a row at a time: what `pantile run` must compute. Written from docs/nsa.md, apart
from ref/."""

import numpy as np


def n_compressed(s, block, stride):
    return 0 if s < block else (s - block) // stride + 1


def compress(x, block, stride, w=None, pe=None):
    """x [S, H, D] -> [N, H, D]."""
    w = np.full((block, x.shape[1]), 1 / block) if w is None else w
    pe = np.zeros((block, *x.shape[1:])) if pe is None else pe
    return np.array([np.einsum("rh,rhd->hd", w, x[i * stride:i * stride + block] + pe)
                     for i in range(n_compressed(len(x), block, stride))]).reshape(-1, *x.shape[1:])


def softmax_attention(q, k, v, scale):
    """q [D], k [n, D], v [n, Dv]: out, lse, P."""
    if len(k) == 0:
        return np.zeros(v.shape[1]), -np.inf, np.zeros(0)
    s = scale * k.astype(float) @ q.astype(float)
    lse = s.max() + np.log(np.exp(s - s.max()).sum())
    p = np.exp(s - lse)
    return p @ v.astype(float), lse, p


def pool(p, n_blocks, block, stride, select_block, score="overlap", mode="sum"):
    """p [N], summed over the group: scores of the selection blocks."""
    a, b = select_block // stride, block // stride
    weights = np.convolve(np.ones(a), np.ones(b))
    first = {"overlap": 1 - b, "plus": 0, "ascend": 2 - b}[score]
    out = np.zeros(n_blocks) if mode == "sum" else np.full(n_blocks, -np.inf)
    for j in range(n_blocks):
        for w, i in zip(weights, range(a * j + first, a * j + first + a + b - 1)):
            if 0 <= i < len(p):
                out[j] = out[j] + w * p[i] if mode == "sum" else max(out[j], p[i])
    return out


def select(importance, t, select_block, topk, n_init, n_local, order="index"):
    own = t // select_block
    rank = sorted(range(own + 1), key=lambda j: (not (j < n_init or j > own - n_local), -importance[j], j))[:topk]
    blocks = sorted(rank) if order == "index" else rank
    return np.array(blocks + [-1] * (topk - len(blocks)), np.int32)


def selected_tokens(idx, t, select_block):
    """Token numbers of a row, a block listed twice counted twice."""
    return np.array([s for j in idx if 0 <= j * select_block <= t
                     for s in range(j * select_block, min((j + 1) * select_block, t + 1))], int)


def forward(q, k, v, gates, block, stride, select_block, topk, n_init, n_local, window, scale=None, kc=None, vc=None,
            **scores):
    """One sequence, q [Q, Hq, D], its last rows; all results in a dict."""
    n_rows, heads, dim = q.shape
    n_tokens, kv_heads, dv = v.shape
    group, scale = heads // kv_heads, dim**-0.5 if scale is None else scale
    order = scores.pop("order", "index")
    kc, vc = (compress(x, block, stride) if c is None else c for x, c in ((k, kc), (v, vc)))
    n_blocks = -(-n_tokens // select_block)
    r = {f"out_{x}": np.zeros((n_rows, heads, dv)) for x in ("cmp", "slc", "swa")}
    r |= {f"lse_{x}": np.zeros((n_rows, heads)) for x in ("cmp", "slc", "swa")}
    r["importance"] = np.zeros((n_rows, kv_heads, n_blocks))
    r["idx"] = np.zeros((n_rows, kv_heads, topk), np.int32)
    for i in range(n_rows):
        t = n_tokens - n_rows + i
        seen = n_compressed(t + 1, block, stride)
        for g in range(kv_heads):
            total = np.zeros(seen)
            for h in range(g * group, (g + 1) * group):
                r["out_cmp"][i, h], r["lse_cmp"][i, h], p = softmax_attention(q[i, h], kc[:seen, g], vc[:seen, g], scale)
                total += p
            r["importance"][i, g] = pool(total, n_blocks, block, stride, select_block, **scores)
            r["idx"][i, g] = select(r["importance"][i, g], t, select_block, topk, n_init, n_local, order)
            at = selected_tokens(r["idx"][i, g], t, select_block)
            near = np.arange(max(0, t - window + 1), t + 1) if window else at[:0]
            for h in range(g * group, (g + 1) * group):
                r["out_slc"][i, h], r["lse_slc"][i, h], _ = softmax_attention(q[i, h], k[at, g], v[at, g], scale)
                r["out_swa"][i, h], r["lse_swa"][i, h], _ = softmax_attention(q[i, h], k[near, g], v[near, g], scale)
    r["nsel"] = (r["idx"] >= 0).sum(-1).astype(np.int32)
    r["out"] = sum(gates[..., x, None] * r[f"out_{name}"] for x, name in enumerate(("cmp", "slc", "swa")))
    return r


def attention(q, k, v, scale=None, window=0):
    n_rows, heads, dim = q.shape
    group, scale = heads // k.shape[1], dim**-0.5 if scale is None else scale
    out, lse = np.zeros((n_rows, heads, v.shape[2])), np.zeros((n_rows, heads))
    for i in range(n_rows):
        t = len(k) - n_rows + i
        first = max(0, t - window + 1) if window else 0
        for h in range(heads):
            out[i, h], lse[i, h], _ = softmax_attention(q[i, h], k[first:t + 1, h // group], v[first:t + 1, h // group],
                                                        scale)
    return out, lse
