"""HSTU forward and backward in float64 NumPy, from the definition in docs/hstu.md. Shares nothing with the library."""

import numpy as np


def silu(x):
    with np.errstate(over="ignore"):
        return x / (1.0 + np.exp(-x))


def valid(uq, uk, window=(-1, 0), contexts=0, targets=0, group=1, min_full=0):
    """[uq, uk] booleans of the mask rule."""
    left, right = window
    h = uk - targets
    c = min(contexts, h)
    p = np.arange(uq)[:, None] + uk - uq
    j = np.arange(uk)[None, :]

    def place(x):
        if c > 0:
            x = np.maximum(x, c - 1)
        return np.minimum(x, h) if targets else x

    not_right = (right < 0) | (j <= p + right)
    in_window = (left < 0) | (place(p) - place(j) <= left) | ((min_full > 0) & (p >= h - min_full))
    one_group = ~((p >= h) & (j >= h)) | ((j - h) // group == (p - h) // group)
    context = (p >= 0) & (p < c) & (j < h)
    return (not_right & in_window & one_group) | context


def sequence(q, k, v, mask, alpha, scale, bias=0.0):
    """q [uq, Hq, D], k [uk, Hk, D], v [uk, Hk, Dv]; mask [uq, uk] or [Hq, uq, uk]; scale a number or [uq].
    bias, which bias_scale is in already, like mask."""
    q, k, v = (np.asarray(x, np.float64) for x in (q, k, v))
    repeat = q.shape[1] // k.shape[1]
    k, v = (np.repeat(x, repeat, axis=1) for x in (k, v))
    f = silu(alpha * np.einsum("ihd,jhd->hij", q, k) + bias)
    out = np.einsum("hij,jhd->ihd", np.where(mask, f, 0.0), v)
    return out * np.broadcast_to(np.asarray(scale, np.float64), q.shape[:1])[:, None, None]


def gradients(q, k, v, dout, mask, alpha, scale, bias=0.0):
    """dq, dk, dv, dS [Hq, uq, uk] and ds [uq] of `sequence`; dS is the gradient of the argument of silu."""
    q, k, v, dout = (np.asarray(x, np.float64) for x in (q, k, v, dout))
    n_k = k.shape[1]
    repeat = q.shape[1] // n_k
    k, v = (np.repeat(x, repeat, axis=1) for x in (k, v))
    s = alpha * np.einsum("ihd,jhd->hij", q, k) + bias
    sigmoid = 1.0 / (1.0 + np.exp(-s))
    f = np.where(mask, s * sigmoid, 0.0)
    scale = np.broadcast_to(np.asarray(scale, np.float64), q.shape[:1])
    dp = np.einsum("ihd,jhd->hij", dout, v)
    d_score = np.where(mask, scale[:, None] * dp * sigmoid * (1.0 + s * (1.0 - sigmoid)), 0.0)
    dq = alpha * np.einsum("hij,jhd->ihd", d_score, k)
    dk = alpha * np.einsum("hij,ihd->jhd", d_score, q)
    dv = np.einsum("hij,ihd->jhd", f * scale[:, None], dout)
    dk, dv = (x.reshape(x.shape[0], n_k, repeat, x.shape[2]).sum(2) for x in (dk, dv))
    return dq, dk, dv, d_score, (f * dp).sum((0, 2))


def positions(table, uq, uk):
    """[uq, uk] or [H, uq, uk] entries of a position table for queries that are the last uq of uk keys."""
    n = (table.shape[-1] + 1) // 2
    p = np.arange(uq)[:, None] + uk - uq
    return table[..., n - 1 + np.arange(uk)[None, :] - p]


def buckets(times, thresholds, uq, own=False):
    """[uq, uk] entries of the time table: thresholds that |time of the query - time of the key| reaches."""
    times, uk = np.asarray(times), len(times)
    p = np.arange(uq) + uk - uq
    if not own:
        p = np.minimum(p + 1, uk - 1)
    return np.searchsorted(thresholds, np.abs(times[p][:, None] - times[None, :]), side="right")


def to_bf16(x):
    """float32 as the bits of bf16, ties to even; x has no NaN."""
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def from_bf16(x):
    return (x.astype(np.uint32) << 16).view(np.float32)


def jagged(q, k, v, offsets_q, offsets_k=None, used_q=None, used_k=None, scale=1.0, alpha=1.0, masks=None, **rule):
    """out [Tq, Hq, Dv]. Entries of rule may be lists, one per sequence; masks: one array per sequence."""
    offsets_k = offsets_q if offsets_k is None else offsets_k
    out = np.zeros((*q.shape[:2], v.shape[2]))
    for b in range(len(offsets_q) - 1):
        uq = offsets_q[b + 1] - offsets_q[b] if used_q is None else used_q[b]
        uk = offsets_k[b + 1] - offsets_k[b] if used_k is None else used_k[b]
        rows = slice(offsets_q[b], offsets_q[b] + uq)
        keys = slice(offsets_k[b], offsets_k[b] + uk)
        here = {name: value[b] if isinstance(value, (list, np.ndarray)) else value for name, value in rule.items()}
        mask = valid(uq, uk, **here) if masks is None else masks[b]
        row_scale = scale[rows] if np.ndim(scale) else scale
        out[rows] = sequence(q[rows], k[keys], v[keys], mask, alpha, row_scale)
    return out


def error(got, expected):
    """Largest difference over the largest |expected|."""
    if expected.size == 0:
        return 0.0
    worst = np.abs(got - expected).max()
    return worst / np.abs(expected).max() if worst else 0.0
