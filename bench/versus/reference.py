"""What every contender must compute, in double, on a sample of rows. It never sees a contender's time.

An error is the largest difference over the largest expected value of the sample.
"""

import numpy as np

BOUNDS = {"f32": 1e-4, "bf16": 4e-2}
SAMPLE = 24  # rows of a sequence and head, of up to SEQUENCES of them
SEQUENCES = 6


def spread(n, most):
    """Up to `most` of 0..n-1, the first and the last among them."""
    return np.unique(np.linspace(0, n - 1, min(n, most)).round().astype(int)) if n else np.empty(0, int)


class Worst:
    def __init__(self):
        self.difference = self.largest = 0.0

    def add(self, got, expected):
        if not np.isfinite(got).all():
            self.difference = np.inf
        self.difference = max(self.difference, np.abs(got - expected).max(initial=0.0))
        self.largest = max(self.largest, np.abs(expected).max(initial=0.0))

    def error(self):
        return self.difference / self.largest if self.largest else self.difference


def softmax(scores, valid):
    scores = np.where(valid, scores, -np.inf)
    top = scores.max(-1, keepdims=True)
    e = np.exp(scores - np.where(np.isfinite(top), top, 0.0))
    return e / np.maximum(e.sum(-1, keepdims=True), 1e-300)


def hstu_error(case, inputs, results, softmax_instead=False):
    """results: out, and dq, dk, dv of a training step, in the layout of the inputs."""
    offsets = [np.concatenate([[0], np.cumsum(x)]) for x in (case.lengths_q, case.lengths_k)]
    worst = {name: Worst() for name in results}
    for b in spread(len(case.lengths_q), SEQUENCES):
        rows_b, keys_b = (slice(o[b], o[b + 1]) for o in offsets)
        for h in spread(case.heads, 2):
            q, k, v = (inputs[name][at, h].astype(float) for name, at in (("q", rows_b), ("k", keys_b), ("v", keys_b)))
            rows, keys = spread(len(q), SAMPLE), spread(len(k), SAMPLE)
            all_rows, all_keys = np.arange(len(q)), np.arange(len(k))
            valid = case.valid(b, rows, all_keys)
            s = case.alpha * q[rows] @ k.T
            if softmax_instead:
                # A row that sees nothing has no softmax; torch gives NaN there.
                some = valid.any(-1)
                worst["out"].add(results["out"][rows_b][rows[some], h], (softmax(s, valid) @ v)[some])
                continue
            p = np.where(valid, s / (1 + np.exp(-s)), 0) / case.n
            worst["out"].add(results["out"][rows_b][rows, h], p @ v)
            if not case.backward:
                continue
            dout = inputs["dout"][rows_b, h].astype(float)
            ds = np.where(valid, silu_gradient(s), 0) / case.n * (dout[rows] @ v.T)
            worst["dq"].add(results["dq"][rows_b][rows, h], case.alpha * ds @ k)
            valid = case.valid(b, all_rows, keys)
            s = case.alpha * q @ k[keys].T
            p = np.where(valid, s / (1 + np.exp(-s)), 0) / case.n
            ds = np.where(valid, silu_gradient(s), 0) / case.n * (dout @ v[keys].T)
            worst["dv"].add(results["dv"][keys_b][keys, h], p.T @ dout)
            worst["dk"].add(results["dk"][keys_b][keys, h], case.alpha * ds.T @ q)
    return max(w.error() for w in worst.values())


def silu_gradient(s):
    sigmoid = 1 / (1 + np.exp(-s))
    return sigmoid * (1 + s * (1 - sigmoid))


def importance(case, p, t):
    """Of the blocks 0..t // select_block, from P [G, compressed]: score=overlap (docs/nsa.md)."""
    a, weights = case.select_block // case.stride, (1, 2, 2, 2, 1)
    sums = np.concatenate([[0.0], p.sum(0), np.zeros(a + len(weights))])  # key -1 first
    return np.array([sum(w * sums[j * a + x] for x, w in enumerate(weights)) for j in range(t // case.select_block + 1)])


def nsa_error(case, inputs, results, full=False):
    """Without `full` results has idx, too, [B, Sq, Hk, topk]: out is compared on the contender's own selection (in
    bf16 a near tie falls either way), and the selection must not fall short of the best by more than its scores' error.
    """
    worst, short = Worst(), 0.0
    q, k, v, kc, vc, gates = (inputs[name] for name in ("q", "k", "v", "kc", "vc", "gates"))
    group, scale, tokens = case.heads // case.hk, case.d ** -0.5, np.arange(case.s)
    for b in range(min(case.batch, 2)):
        for i in spread(case.sq, SAMPLE // 4):
            t = case.s - case.sq + i
            for h in spread(case.hk, 2):
                heads = slice(h * group, (h + 1) * group)
                rows = q[b, i, heads].astype(float)
                k_h, v_h = k[b, :t + 1, h].astype(float), v[b, :t + 1, h].astype(float)

                def attend(seen):
                    return softmax(scale * rows @ k_h[seen].T, True) @ v_h[seen]

                if full:
                    worst.add(results["out"][b, i, heads], attend(tokens[:t + 1]))
                    continue
                n = max((t + 1 - case.block) // case.stride + 1, 0)
                p = softmax(scale * rows @ kc[b, :n, h].astype(float).T, True) if n else np.zeros((group, 0))
                idx = results["idx"][b, i, h]
                idx = idx[(idx >= 0) & (idx <= t // case.select_block)]
                short = max(short, shortfall(case, importance(case, p, t), idx, t))
                selected = np.concatenate([tokens[j * case.select_block:(j + 1) * case.select_block] for j in idx])
                branches = (p @ vc[b, :n, h].astype(float), attend(selected[selected <= t]),
                            attend(tokens[max(0, t + 1 - case.window):t + 1]))
                worst.add(results["out"][b, i, heads], sum(
                    gates[b, i, heads, x, None].astype(float) * branch for x, branch in enumerate(branches)))
    return max(worst.error(), short)


def shortfall(case, scores, idx, t):
    """By how much the weakest block that was taken lies below the strongest that was left out, over the largest."""
    own = t // case.select_block
    forced = {0, own, max(own - 1, 0)}
    wanted = min(case.topk, own + 1)
    if len(set(idx)) != wanted or not forced <= set(idx):
        return np.inf
    left, taken = set(range(own + 1)) - set(idx), set(idx) - forced
    if not left or not taken:
        return 0.0
    gap = max(scores[list(left)]) - min(scores[list(taken)])
    return max(gap, 0.0) / scores.max()
