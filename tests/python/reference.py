"""HSTU attention and its layer in double, by torch's own operations and autograd, from docs/hstu.md. Shares nothing
with the package."""

import hstu_numpy
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
