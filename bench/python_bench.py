#!/usr/bin/env python3
"""Times pantile from Python: the overhead of a call, and a training step of an HSTU layer beside the padded PyTorch
layer and torch.compile of it. Every contender runs in a process of its own. Not a test.

    python bench/python_bench.py overhead
    python bench/python_bench.py layer [--batch 32] [--mean 400] [--cap 2048] [--repeats 5]
"""

import argparse
import ctypes
import json
import math
import random
import resource
import statistics
import subprocess
import sys
import time


def best(fn, rounds=500, calls=50):
    """Least microseconds of a call, over rounds of calls."""
    fn()
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        for _ in range(calls):
            fn()
        times.append((time.perf_counter() - start) / calls)
    return 1e6 * min(times)


# ---- Overhead ------------------------------------------------------------------------------------

def overhead():
    """A call on two sequences of one row (sparse attention: of one), beside the same call of the C function, prepared once."""
    import numpy as np
    import pantile
    import pantile.torch as pt
    import torch
    from pantile import _abi, _library, _numpy

    x, offsets = torch.randn(2, 1, 4), torch.tensor([0, 1, 2])
    operator = _abi.OPERATORS["hstu_forward"]
    frame = operator.frame.from_buffer_copy(operator.template)
    array, index, out = x.numpy(), offsets.numpy(), np.empty_like(x.numpy())
    for name, value in dict(q=array, k=array, v=array, seq_offsets_q=index, out=out).items():
        setattr(frame, name, _numpy._describe(name, value))
    frame.scaling_seqlen = 8
    context, address = _library.context_of_thread()._as_parameter_, ctypes.c_void_p(ctypes.addressof(frame))
    in_c = best(lambda: operator.function(context, address)) - best(lambda: _library.LIBRARY.ptl_isa_available(1))
    thresholds = pt.hstu_time_thresholds("log", 1.0, 0.301, 8)
    tables = dict(pos_table=torch.zeros(7), time_table=torch.zeros(9), time_thresholds=thresholds,
                  timestamps=torch.tensor([5, 6]))
    rows = {"the C function": in_c}
    with torch.no_grad():
        rows["torch.empty_like, for comparison"] = best(lambda: torch.empty_like(x))
        rows["hstu_attention, no_grad"] = best(lambda: pt.hstu_attention(x, x, x, offsets, scaling_seqlen=8))
        rows["the same with a window and two tables"] = best(
            lambda: pt.hstu_attention(x, x, x, offsets, scaling_seqlen=8, window_left=3, **tables))
        row, gates = x[:1, None], torch.zeros(1, 1, 1, 3)
        caches, table = [torch.zeros(1, 4, 1, 4) for _ in range(4)], torch.tensor([[0]])
        small = dict(block=2, stride=1, select_block=2, topk=2, n_local=1, window=2)
        rows["attention_forward"] = best(lambda: pt.attention_forward(row, row, row))
        rows["nsa_forward"] = best(lambda: pt.nsa_forward(row, row, row, gates, **small))
        rows["nsa_decode on four caches"] = best(lambda: pt.nsa_decode(
            row, gates, offsets[:1], offsets[1:2], *caches, k=row, v=row, page_table=table, page_table_c=table, **small))
        rows["jagged_to_padded, no_grad"] = best(lambda: pt.jagged_to_padded(x, offsets, 2))
    x.requires_grad_()
    rows["hstu_attention, with autograd"] = best(lambda: pt.hstu_attention(x, x, x, offsets, scaling_seqlen=8))
    dout = torch.randn(2, 1, 4)

    def both():
        pt.hstu_attention(x, x, x, offsets, scaling_seqlen=8).backward(dout)

    def product():
        (x * x * x).backward(dout)

    rows["forward and backward"] = best(both)
    rows["x * x * x forward and backward, for comparison"] = best(product)
    rows["pantile.hstu_forward (NumPy)"] = best(
        lambda: pantile.hstu_forward(array, array, array, index, scaling_seqlen=8))
    return {name: f"{us:8.2f} us" + (f"   {us - in_c:6.2f} above C" if "hstu_attention" in name else "")
            for name, us in rows.items()}


# ---- Layer ---------------------------------------------------------------------------------------

HEADS, DIM, WIDTH = 4, 64, 256


def lengths_of(args):
    """Log-normal lengths (sigma 1, of the given mean before they are capped): evenly spaced quantiles, shuffled."""
    normal = statistics.NormalDist(math.log(args.mean) - 0.5, 1.0)
    quantiles = [normal.inv_cdf((i + 0.5) / args.batch) for i in range(args.batch)]
    lengths = [min(round(math.exp(x)), args.cap) for x in quantiles]
    random.Random(0).shuffle(lengths)
    return lengths


def padded_layer(layer, n_positions):
    """The layer as it is written in PyTorch: padded, scores in memory, mask by multiplication."""
    import torch
    from torch.nn import functional as F

    mask = torch.ones(n_positions, n_positions).tril()

    def forward(x):  # [B, S, E]
        u, v, q, k = layer.uvqk(layer.norm_in(x)).split(HEADS * DIM, -1)
        q, k, v = (t.unflatten(-1, (HEADS, DIM)).transpose(1, 2) for t in (q, k, v))
        s = x.shape[1]
        a = (F.silu(layer.alpha * q @ k.transpose(2, 3)) / layer.scaling_seqlen * mask[:s, :s]) @ v
        a, u = a.transpose(1, 2).flatten(2), F.silu(u)
        y = u * F.layer_norm(a, (HEADS * DIM,), layer.norm_out_weight, layer.norm_out_bias, layer.eps)
        return x + layer.out(torch.cat([u, a, y], -1))

    return forward


def layer_step(args):
    import pantile.torch as pt
    import torch

    torch.manual_seed(0)
    lengths = lengths_of(args)
    offsets = torch.tensor([0, *lengths]).cumsum(0)
    layer = pt.HSTULayer(WIDTH, HEADS, DIM, scaling_seqlen=args.cap)
    x = torch.randn(sum(lengths), WIDTH)
    if args.contender == "pantile":
        fn, arguments = layer, (x.requires_grad_(), offsets)
    else:
        fn, arguments = padded_layer(layer, args.cap), (pt.jagged_to_padded(x, offsets, max(lengths)).requires_grad_(),)
        if args.contender == "compiled":
            fn = torch.compile(fn)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    times = []
    for i in range(args.repeats + 1):
        start = time.perf_counter()
        fn(*arguments).square().sum().backward()
        times.append(time.perf_counter() - start)
        if sys.stderr.isatty():
            print(f"\r{args.contender}: {i}/{args.repeats}", end="", file=sys.stderr)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    return dict(first=times[0], min=min(times[1:]), median=statistics.median(times[1:]), peak_mib=peak / 1024,
                lengths=f"{len(lengths)} sequences, {sum(lengths)} rows, longest {max(lengths)}")


def run_alone(args, contender):
    done = subprocess.run([sys.executable, *sys.argv, "--contender", contender], stdout=subprocess.PIPE, text=True)
    return json.loads(done.stdout.splitlines()[-1]) if done.returncode == 0 else None


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["overhead", "layer"])
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--mean", type=float, default=400)
    parser.add_argument("--cap", type=int, default=2048)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--contender", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.contender:
        print(json.dumps(layer_step(args)))
    elif args.what == "overhead":
        for name, text in overhead().items():
            print(f"{name:48} {text}")
    else:
        ours = run_alone(args, "pantile")
        print(f"{ours['lengths']}; H {HEADS}, D {DIM}, E {WIDTH}; forward and backward, {args.repeats} times")
        print(f"{'':10} {'first':>9} {'min':>9} {'median':>9} {'memory':>10} {'min / ours':>11}")
        for contender in ("pantile", "padded", "compiled"):
            r = ours if contender == "pantile" else run_alone(args, contender)
            print(f"{contender:10}", "failed" if r is None else
                  f"{r['first']:8.3f}s {r['min']:8.3f}s {r['median']:8.3f}s {r['peak_mib']:6.0f} MiB "
                  f"{r['min'] / ours['min']:10.1f}x")


if __name__ == "__main__":
    main()
