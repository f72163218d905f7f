"""HSTU attention and its layer in double, by torch's own operations and autograd, from docs/hstu.md; sparse attention
in NumPy's doubles, from docs/nsa.md. Shares nothing with the package."""

import hstu_numpy
import numpy as np
import torch
from torch.nn import functional as F

# Largest error of a tensor over its largest element (docs/hstu.md).
BOUNDS = {torch.float32: (5e-6, 1e-5), torch.float16: (2e-3, 2e-3), torch.bfloat16: (1.6e-2, 1.6e-2)}


def mask(uq, uk, **rule):
    return torch.from_numpy(hstu_numpy.valid(uq, uk, **rule))


def attention(q, k, v, offsets_q, offsets_k=None, *, scale, alpha=1.0, masks=None, biases=None, **rule):
    """out [Tq, Hq, Dv]. scale: a number, or [Tq]. masks, biases: one array ([H or 1, uq, uk]) per sequence; entries
    of rule may be lists, one number per sequence."""
    offsets_k = (offsets_q if offsets_k is None else offsets_k).tolist()
    offsets_q = offsets_q.tolist()
    repeat = q.shape[1] // k.shape[1]
    # Gradients exist where no sequence has a row.
    out = torch.zeros(*q.shape[:2], v.shape[2], dtype=q.dtype) + 0.0 * (q.sum() + k.sum() + v.sum())
    for b in range(len(offsets_q) - 1):
        rows, keys = slice(offsets_q[b], offsets_q[b + 1]), slice(offsets_k[b], offsets_k[b + 1])
        uq, uk = rows.stop - rows.start, keys.stop - keys.start
        if uq == 0:
            continue
        k_b, v_b = (x[keys].repeat_interleave(repeat, 1) for x in (k, v))
        s = alpha * torch.einsum("ihd,jhd->hij", q[rows], k_b)
        if biases is not None:
            s = s + biases[b]
        here = {name: value[b] if isinstance(value, list) else value for name, value in rule.items()}
        m = mask(uq, uk, **here) if masks is None else masks[b]
        sums = torch.einsum("hij,jhd->ihd", torch.where(m, F.silu(s), 0.0), v_b)
        row_scale = scale[rows][:, None, None] if isinstance(scale, torch.Tensor) and scale.dim() else scale
        out = torch.index_add(out, 0, torch.arange(rows.start, rows.stop), sums * row_scale)
    return out


def error(got, expected):
    """Largest difference over the largest |expected|."""
    if expected.numel() == 0:
        return 0.0
    worst = (got.double() - expected).abs().max().item()
    return worst / expected.abs().max().item() if worst else 0.0


def layer(p, x, offsets, heads, dqk, dv, scaling_seqlen, *, alpha, eps=1e-6, activation="u", norm_out="layer",
          combine="uay", residual=True, per_head=False, biases=None, **rule):
    """The HSTU layer from its parameters p by name, as spec'd in docs/python.md."""
    n = F.layer_norm(x, x.shape[-1:], p.get("norm_in.weight"), p.get("norm_in.bias"), eps)
    z = F.linear(n, p["uvqk.weight"], p.get("uvqk.bias"))
    if activation == "uvqk":
        z = F.silu(z)
    if per_head:
        u, v, q, k = z.view(len(x), heads, -1).split([dv, dv, dqk, dqk], -1)
    else:
        u, v, q, k = (part.reshape(len(x), heads, -1)
                      for part in z.split([heads * dv, heads * dv, heads * dqk, heads * dqk], -1))
    if activation == "u":
        u = F.silu(u)
    a = attention(q, k, v, offsets, scale=1.0 / scaling_seqlen, alpha=alpha, biases=biases, **rule)
    u, flat = u.reshape(len(x), -1), a.reshape(len(x), -1)
    weight, bias = p.get("norm_out_weight"), p.get("norm_out_bias")
    if norm_out == "group":
        normed = (F.layer_norm(a, (dv,), eps=eps) * weight + bias).reshape(len(x), -1)
    else:
        normed = F.layer_norm(flat, flat.shape[-1:], weight, bias, eps)
    y = u * normed
    y = {"y": y, "uay": torch.cat([u, flat, y], -1), "uny": torch.cat([u, normed, y], -1)}[combine]
    out = F.linear(y, p["out.weight"], p.get("out.bias"))
    return x + out if residual else out


# ---- Sparse attention: one sequence, rows one by one ----------------------------------------------
# q [Q, Hq, D] are the last rows of k [S, Hk, D], v [S, Hk, Dv].

def nsa_compress(x, block, stride, w=None, pe=0.0):
    x = np.asarray(x, float)
    n = 0 if len(x) < block else (len(x) - block) // stride + 1
    w = np.full((block, x.shape[1]), 1 / block) if w is None else w
    rows = [(w[:, :, None] * (x[i * stride:i * stride + block] + pe)).sum(0) for i in range(n)]
    return np.array(rows).reshape(n, *x.shape[1:])


def softmax(q, keys, values, scale, lse=None):
    """(out [G, Dv], lse [G], P [G, n]) of the heads q [G, D] over keys [n, D]; lse given: normalises instead."""
    s = scale * q @ keys.T
    if lse is None:
        top = s.max(1, initial=-np.inf, keepdims=True)
        with np.errstate(divide="ignore", invalid="ignore"):
            lse = (top + np.log(np.exp(s - top).sum(1, keepdims=True)))[:, 0] if len(keys) else np.full(len(q), -np.inf)
    p = np.where(np.isneginf(lse)[:, None], 0.0, np.exp(s - np.where(np.isneginf(lse), 0.0, lse)[:, None]))
    return p @ values, lse, p


def heads_of(x, group):
    """The last but one axis as [Hk, G]."""
    return x.reshape(*x.shape[:-2], -1, group, x.shape[-1])


def nsa_scores(q, kc, vc, length, *, block, stride, select_block, scale, score="overlap", pool="sum", lse_in=None):
    """out_cmp, lse_cmp, importance [Q, Hk, blocks]."""
    n_rows, n_kv, group = len(q), kc.shape[1], q.shape[1] // kc.shape[1]
    a, b = select_block // stride, block // stride
    first = {"overlap": 1 - b, "plus": 0, "ascend": 2 - b}[score]
    out, lse = np.zeros((n_rows, n_kv, group, vc.shape[2])), np.zeros((n_rows, n_kv, group))
    importance = np.zeros((n_rows, n_kv, -(-length // select_block)))
    for i, g in np.ndindex(n_rows, n_kv):
        t = length - n_rows + i
        n = max(0, (t + 1 - block) // stride + 1)
        given = None if lse_in is None else lse_in.reshape(n_rows, n_kv, group)[i, g]
        out[i, g], lse[i, g], p = softmax(heads_of(q, group)[i, g], kc[:n, g], vc[:n, g], scale, given)
        p = p.sum(0)
        for j in range(importance.shape[2]):
            taken = [(min(x + 1, a, b, a + b - 1 - x), p[a * j + first + x]) for x in range(a + b - 1)
                     if 0 <= a * j + first + x < n]
            importance[i, g, j] = (sum(c * value for c, value in taken) if pool == "sum" else
                                   max((value for _, value in taken), default=-np.inf))
    return out.reshape(*q.shape[:2], vc.shape[2]), lse.reshape(q.shape[:2]), importance


def nsa_select(importance, length, *, select_block, topk, n_init, n_local, order="index", count=None):
    idx = np.full((*importance.shape[:2], topk), -1)
    for i, g in np.ndindex(importance.shape[:2]):
        own = (length - len(importance) + i) // select_block
        rank = sorted(range(own + 1), key=lambda j: (not (j < n_init or j > own - n_local), -importance[i, g, j], j))
        taken = rank[:topk if count is None else min(topk, count[i, g])]
        idx[i, g, :len(taken)] = sorted(taken) if order == "index" else taken
    return idx


def nsa_attend(q, k, v, idx, *, select_block, window, scale, dense_len=0, k_swa=None, v_swa=None):
    """out_slc, lse_slc, out_swa, lse_swa."""
    k_swa, v_swa = (k, v) if k_swa is None else (k_swa, v_swa)
    n_rows, n_kv, group = len(q), k.shape[1], q.shape[1] // k.shape[1]
    outs, sums = np.zeros((2, n_rows, n_kv, group, v.shape[2])), np.zeros((2, n_rows, n_kv, group))
    for i, g in np.ndindex(n_rows, n_kv):
        t = len(k) - n_rows + i
        blocks = range(t // select_block + 1) if t + 1 < dense_len else [j for j in idx[i, g] if 0 <= j * select_block <= t]
        selected = [s for j in blocks for s in range(j * select_block, min((j + 1) * select_block, t + 1))]
        sliding = list(range(max(0, t + 1 - window), t + 1))
        for branch, (tokens, keys, values) in enumerate([(selected, k, v), (sliding, k_swa, v_swa)]):
            outs[branch, i, g], sums[branch, i, g], _ = softmax(heads_of(q, group)[i, g], keys[tokens, g], values[tokens, g], scale)
    shape = q.shape[:2]
    return (outs[0].reshape(*shape, v.shape[2]), sums[0].reshape(shape),
            outs[1].reshape(*shape, v.shape[2]), sums[1].reshape(shape))


def full_attention(q, k, v, scale, window=None):
    """out, lse."""
    return nsa_attend(q, k, v, np.full((len(q), k.shape[1], 1), -1), select_block=1, window=window or len(k), scale=scale)[2:]
