"""Drop-in check, by `make test-peers`: the attention of torch-rechub's HSTUModel replaced by ours. The same logits and
gradients within bounds; times before and after are printed."""

import os
import sys
import time
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).resolve().parents[2]
os.environ.setdefault("PANTILE_LIBRARY_DIR", os.environ.get("PANTILE_BUILD", str(ROOT / "build")))
sys.path.insert(0, str(ROOT / "python"))

import pantile.torch as pt  # noqa: E402
from torch_rechub.basic.layers import HSTULayer  # noqa: E402
from torch_rechub.models.generative import HSTUModel  # noqa: E402


def forward(self, x, padding_mask=None, time_diffs=None):
    """HSTULayer.forward with the attention by pantile; padding is on the right."""
    h, dqk, dv = self.n_heads, self.dqk, self.dv
    q, k, u, v = torch.nn.functional.silu(self.proj1(self.norm_in(x))).split([h * dqk, h * dqk, h * dv, h * dv], -1)
    q, k, v = (part.unflatten(-1, (h, -1)) for part in (q, k, v))
    lengths = padding_mask.sum(1) if padding_mask is not None else None
    rab = self.rab
    unit = {"minutes": 60.0, "seconds": 1.0}[rab.time_bucket_unit]
    thresholds = pt.hstu_time_thresholds(rab.time_bucket_fn, unit, rab.time_bucket_divisor, rab.num_time_buckets)
    a = pt.hstu_attention(q, k, v, scaling_seqlen=self.max_seq_len, alpha=self.attn_alpha, seqused_q=lengths,
                          seqused_k=lengths, bias_scale=1.0, pos_table=rab.pos_w.t().contiguous(),
                          time_table=rab.ts_w.t().contiguous(), time_thresholds=thresholds, timestamps=time_diffs,
                          time_query="own")
    return self.proj2(self.dropout(self.norm_attn(a.flatten(2)) * u))


def batch(size, longest, items):
    lengths = torch.randint(longest // 8, longest + 1, (size,))
    lengths[0] = longest
    exists = torch.arange(longest) < lengths[:, None]
    ids = torch.where(exists, torch.randint(1, items, (size, longest)), 0)
    gaps = torch.randint(0, 100000, (size, longest))
    return ids, torch.where(exists, gaps.flip(1).cumsum(1).flip(1), 0)


def step(model, ids, times):
    model.zero_grad()
    start = time.perf_counter()
    logits = model(ids, times)
    seen = logits[ids != 0]
    seen.square().mean().backward()
    return time.perf_counter() - start, seen.detach(), {name: p.grad.clone() for name, p in model.named_parameters()}


@pytest.mark.parametrize("fn", ["sqrt", "log"])
def test_rechub(fn, monkeypatch, capsys):
    torch.manual_seed(0)
    model = HSTUModel(500, d_model=64, n_heads=2, n_layers=2, dqk=32, dv=32, max_seq_len=200, dropout=0.0,
                      time_bucket_fn=fn)
    ids, times = batch(16, 200, 500)
    results = {}
    for name in ("before", "after"):
        if name == "after":
            monkeypatch.setattr(HSTULayer, "forward", forward)
        runs = [step(model, ids, times) for _ in range(4)]
        results[name] = (min(run[0] for run in runs[1:]), *runs[-1][1:])
    for part in (1, 2):
        pairs = [(results["after"][1], results["before"][1])] if part == 1 else [
            (results["after"][2][key], grad) for key, grad in results["before"][2].items()]
        for ours, theirs in pairs:
            assert (ours - theirs).abs().max() <= 1e-4 * theirs.abs().max()
    with capsys.disabled():
        print(f"\n    training step, torch-rechub's attention {1e3 * results['before'][0]:.0f} ms, "
              f"with pantile's {1e3 * results['after'][0]:.0f} ms")
