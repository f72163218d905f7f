"""What is compared: shapes, and the inputs of each, the same for every contender. It runs nothing.

Rows lie as users have them: jagged, q [Tq, H, D], k [Tk, H, D], v [Tk, H, Dv] of HSTU, sequence after sequence; dense
for NSA, q [B, Sq, H, D], k [B, S, Hk, D]. bf16 inputs are fp32 numbers that bf16 holds exactly.
"""

import math
import statistics
from dataclasses import dataclass

import numpy as np


def to_bf16(x):
    """The bits of the nearest bf16, ties to even."""
    bits = x.view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)


def from_bf16(bits):
    return (bits.astype(np.uint32) << 16).view(np.float32)


def normal(rng, shape, dtype):
    x = rng.standard_normal(shape, dtype=np.float32)
    return from_bf16(to_bf16(x)) if dtype == "bf16" else x


@dataclass(frozen=True)
class Hstu:
    """Causal HSTU attention; the q rows of a sequence are its last ones. The last `targets` rows of each sequence see
    the history and themselves. full: no mask at all. backward: a training step, forward and gradients."""

    name: str
    heads: int
    d: int
    dv: int
    lengths_q: tuple
    lengths_k: tuple
    dtype: str = "f32"
    targets: int = 0
    full: bool = False
    backward: bool = False
    family = "hstu"

    @property
    def alpha(self):
        return self.d ** -0.5

    @property
    def n(self):  # divides the result
        return max(max(self.lengths_q), max(self.lengths_k))

    @property
    def lower_triangle(self):
        """Whether the mask is that alone."""
        return self.lengths_q == self.lengths_k and not self.targets and not self.full

    def valid(self, b, rows, keys):
        """Whether row i sees key j, as [rows, keys]."""
        if self.full:
            return np.ones((len(rows), len(keys)), bool)
        sq, sk = self.lengths_q[b], self.lengths_k[b]
        position, history = np.asarray(rows)[:, None] + sk - sq, sk - self.targets
        keys = np.asarray(keys)
        return (keys <= position) & ((keys < history) | (keys == position))

    def pairs(self):
        total = 0
        for sq, sk in zip(self.lengths_q, self.lengths_k):
            seen = np.clip(np.arange(sq) + sk - sq + 1, 0, None)
            if self.full:
                seen[:] = sk
            if self.targets:
                seen[-self.targets:] = sk - self.targets + 1
            total += int(seen.sum())
        return total * self.heads

    def flops(self, contender):
        del contender  # all are measured by the work that the mask leaves
        return self.pairs() * 2 * (self.d + self.dv + (3 * self.d + 2 * self.dv if self.backward else 0))

    def padded_flops(self):
        """Of the products of the forward pass when they are padded and not masked."""
        return len(self.lengths_q) * self.heads * max(self.lengths_q) * max(self.lengths_k) * 2 * (self.d + self.dv)

    def square_bytes(self):
        """Of one padded matrix of scores."""
        size = 2 if self.dtype == "bf16" else 4
        return len(self.lengths_q) * self.heads * max(self.lengths_q) * max(self.lengths_k) * size

    def shapes(self):
        tq, tk, h = sum(self.lengths_q), sum(self.lengths_k), self.heads
        found = dict(q=(tq, h, self.d), k=(tk, h, self.d), v=(tk, h, self.dv))
        return found | dict(dout=(tq, h, self.dv)) if self.backward else found

    def input_bytes(self):
        """As fp32, padded as most contenders hold them."""
        rows = len(self.lengths_q) * self.heads * max(max(self.lengths_q), max(self.lengths_k))
        return 4 * rows * 2 * (self.d + self.dv)

    def inputs(self):
        rng = np.random.default_rng(1)
        return {name: normal(rng, shape, self.dtype) for name, shape in self.shapes().items()}


@dataclass(frozen=True)
class Nsa:
    """NSA from ready compressed keys: the last sq tokens of s attend. Defaults of docs/nsa.md."""

    name: str
    s: int
    sq: int
    heads: int
    hk: int
    d: int
    dv: int
    batch: int = 1
    dtype: str = "f32"
    backward = False
    family = "nsa"
    block, stride, select_block, topk, window = 32, 16, 64, 16, 512

    @property
    def n_compressed(self):
        return (self.s - self.block) // self.stride + 1

    def keys_seen(self, contender):
        t = np.arange(self.s - self.sq, self.s)
        if contender.startswith("full"):
            return int((t + 1).sum())
        compressed = np.clip((t + 1 - self.block) // self.stride + 1, 0, None)
        selected = np.minimum(t + 1, self.topk * self.select_block - (self.select_block - 1 - t % self.select_block))
        return int((compressed + selected + np.minimum(t + 1, self.window)).sum())

    def flops(self, contender):
        return self.batch * self.heads * self.keys_seen(contender) * 2 * (self.d + self.dv)

    def padded_flops(self):
        return self.flops("nsa")

    def square_bytes(self):
        """Of the scores of the 64 rows that a contender looks at together."""
        return self.batch * self.heads * min(self.sq, 64) * self.s * (2 if self.dtype == "bf16" else 4)

    def shapes(self):
        b, hk = self.batch, self.hk
        return dict(q=(b, self.sq, self.heads, self.d), k=(b, self.s, hk, self.d), v=(b, self.s, hk, self.dv),
                    kc=(b, self.n_compressed, hk, self.d), vc=(b, self.n_compressed, hk, self.dv))

    def input_bytes(self):
        return 4 * sum(math.prod(shape) for shape in self.shapes().values())

    def inputs(self):
        rng = np.random.default_rng(1)
        arrays = {name: normal(rng, shape, self.dtype) for name, shape in self.shapes().items()}
        gates = rng.random((self.batch, self.sq, self.heads, 3), dtype=np.float32)
        arrays["gates"] = from_bf16(to_bf16(gates)) if self.dtype == "bf16" else gates
        return arrays


def lognormal(n, mean, longest):
    """Evenly spaced quantiles of a log-normal (sigma 1), shuffled: no draw is luckier than another."""
    quantile = statistics.NormalDist(math.log(mean) - 0.5, 1.0).inv_cdf
    lengths = [max(1, min(longest, round(math.exp(quantile((i + 0.5) / n))))) for i in range(n)]
    return tuple(int(x) for x in np.random.default_rng(1).permutation(lengths))


def dense(name, b, h, d, sq, sk=None, dv=None, **more):
    return Hstu(name, h, d, dv or d, (sq,) * b, (sk or sq,) * b, **more)


def jagged(name, b, **more):
    lengths = lognormal(b, 500, 4096)
    return Hstu(name, 4, 64, 64, lengths, lengths, **more)


def both(make, *arguments, **more):
    name = arguments[0]
    return [make(f"{name} {dtype}", *arguments[1:], dtype=dtype, **more) for dtype in ("f32", "bf16")]


def decode(name, s, heads=64, hk=1, d=192, dv=128, **more):
    return Nsa(name, s, 1, heads, hk, d, dv, **more)


def prefill(name, s, **more):
    return Nsa(name, s, s, 16, 1, 64, 64, **more)


TINY = [dense("tiny dense f32", 2, 2, 16, 70), dense("tiny delta f32", 2, 2, 16, 30, 50, dv=8),
        dense("tiny more queries f32", 2, 2, 16, 50, 40, full=True), dense("tiny targets f32", 2, 2, 16, 70, targets=20),
        dense("tiny dense bf16", 2, 2, 16, 70, dtype="bf16"),
        Hstu("tiny jagged f32", 2, 16, 16, (5, 70, 1, 33), (5, 70, 1, 33)),
        dense("tiny step f32", 2, 2, 16, 70, backward=True),
        decode("tiny decode f32", 3000, heads=8, hk=2, d=32, dv=16),
        decode("tiny decode bf16", 3000, heads=8, hk=2, d=32, dv=16, dtype="bf16"),
        Nsa("tiny prefill f32", 1500, 1500, 4, 1, 16, 16)]

QUICK = [*both(dense, "article b=1", 1, 4, 64, 4096), *both(jagged, "jagged b=16", 16),
         dense("delta b=16 f32", 16, 4, 64, 501, 1000),
         dense("step b=1 f32", 1, 4, 64, 2048, backward=True),
         *both(decode, "decode 64K", 65536), prefill("prefill 4K f32", 4096)]

FULL = sorted([*both(dense, "article b=4", 4, 4, 64, 4096), *both(dense, "small b=4", 4, 4, 64, 1024),
        *both(jagged, "jagged b=32", 32),
        *both(dense, "b=256 h=4 d=64 (52,1000)", 256, 4, 64, 52, 1000),
        *both(dense, "b=16 h=4 d=64 (501,1000)", 16, 4, 64, 501, 1000),
        *both(dense, "b=1 h=8 d=128 (8000,8000)", 1, 8, 128, 8000),
        *both(dense, "b=512 h=2 d=256 (32,32)", 512, 2, 256, 32),
        *both(dense, "b=8 h=2 d=256 (512,3072)", 8, 2, 256, 512, 3072),
        *both(dense, "b=16 h=4 d=64,32 (32,499)", 16, 4, 64, 32, 499, 32),
        *both(dense, "b=4 h=4 d=128,48 (1001,901)", 4, 4, 128, 1001, 901, 48, full=True),
        *both(dense, "b=16 h=3 d=256 (674,674)", 16, 3, 256, 674),
        *both(dense, "2048 candidates, history 6.5k", 1, 4, 128, 8548, targets=2048),
        *both(dense, "step b=1 s=2048", 1, 4, 64, 2048, backward=True),
        *both(dense, "step b=4 s=1024", 4, 4, 64, 1024, backward=True),
        *both(jagged, "step jagged b=16", 16, backward=True),
        *[case for k in (8, 32, 64, 256, 1024) for case in both(decode, f"decode {k}K", 1024 * k)],
        *both(decode, "decode b=4 32K", 32768, heads=32, hk=4, d=128, dv=128, batch=4),
        *[case for k in (4, 16, 64) for case in both(prefill, f"prefill {k}K", 1024 * k)]], key=lambda case: case.dtype != "f32")
