#!/usr/bin/env python3
"""Where each operator stands under the two roofs of the machine, at every level, and how HSTU and NSA scale. Appends
lines of JSON, one for each `pantile bench`; report.py makes tables and figures of them.

    python bench/versus/roofline.py            under 8 minutes on two quiet cores; stopped and called again, it goes on
    python bench/versus/roofline.py --quick    a part of the same, under a minute
    python bench/versus/roofline.py --again    once more what was disturbed
"""

import argparse
import json
import os
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


# ---- What is measured ----------------------------------------------------------------------------

@dataclass(frozen=True)
class Point:
    part: str  # operators, or the sweep
    label: str  # the operator, or the curve
    line: str
    x: float = 0.0  # where on the curve
    quick: bool = False


DECODE = "h=64 hk=1 d=192 dv=128"
PREFILL = "h=16 hk=1 d=64"
USERS = "b=64 lengths=uniform:16,400"


def operators():
    """From memory, so that both roofs are real ones; small enough for the scalar level."""
    hstu, nsa = "h=4 s=1024 d=64", f"s=32768 {DECODE}"
    quick = [("hstu f32", f"hstu {hstu}"), ("hstu bf16", f"hstu {hstu} dtype=bf16"),
             ("hstu f32, 52 new rows", "hstu b=16 h=4 sq=52 sk=1000 d=64"),
             ("hstu f32, short users", "hstu b=512 h=2 d=64 lengths=uniform:1,50"),
             ("hstu_backward f32", f"hstu_backward {hstu}"),
             ("nsa_decode f32", f"nsa_decode {nsa}"), ("nsa_decode bf16", f"nsa_decode {nsa} dtype=bf16"),
             ("nsa_forward f32, 32 rows", f"nsa_forward s=16384 sq=32 {PREFILL} kc=1"),
             ("attention_decode f32", f"attention_decode {nsa}"),
             ("attention_decode f32, a key head each", "attention_decode s=16384 h=8 hk=8 d=128"),
             ("jagged_to_padded", f"jagged_to_padded {USERS} d=256"),
             ("nsa_compress", "nsa_compress s=65536 hk=1 d=128")]
    more = [("hstu f16", f"hstu {hstu} dtype=f16"), ("hstu_backward bf16", f"hstu_backward {hstu} dtype=bf16"),
            ("nsa_decode f32, a key head each", "nsa_decode s=16384 h=8 hk=8 d=128"),
            ("nsa_compressed_attention f32", f"nsa_compressed_attention sq=1 {nsa}"),
            ("nsa_attend f32", f"nsa_attend sq=1 {nsa}"),
            ("attention f32, 32 rows", f"attention s=16384 sq=32 {PREFILL}"),
            ("attention_decode bf16", f"attention_decode {nsa} dtype=bf16"),
            ("padded_to_jagged", f"padded_to_jagged {USERS} d=256"), ("concat_jagged", f"concat_jagged {USERS} d=256"),
            ("split_jagged", f"split_jagged {USERS} d=256"), ("position_time", f"position_time {USERS} d=256"),
            ("position_time_backward", f"position_time_backward {USERS} d=256"),
            ("hstu_kv_append", f"hstu_kv_append {USERS} h=4 d=64"),
            ("nsa_append", "nsa_append b=64 s=512 hk=1 d=192 dv=128"),
            ("nsa_select", f"nsa_select s=16384 sq=4096 {PREFILL}"),
            ("nsa_combine", "nsa_combine s=2048 h=16 hk=1 d=128")]
    return [Point("operators", label, f"{line} cache=cold", quick=lines is quick)
            for lines in (quick, more) for label, line in lines]


def thread_counts(threads):
    return sorted({n for n in range(1, threads + 1) if threads <= 8 or n & (n - 1) == 0} | {threads})


def sweeps(threads):
    """What changes is the last word of a line; `x` is what the figure has on its axis."""
    points = []
    for label in ("hstu f32", "hstu bf16", "hstu_backward f32"):
        op, dtype = label.split()
        line, longest = f"{op} dtype={dtype} h=2", 8192 if op == "hstu_backward" else 16384
        points += [Point("length", label, f"{line} d=64 s={s}", s, label == "hstu f32" and s in (256, 1024, 4096))
                   for s in (64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384) if s <= longest]
        points += [Point("head size", label, f"{line} s=1024 d={d}", d)
                   for d in (16, 25, 32, 48, 64, 96, 128, 192, 256)]
        points += [Point("batch", label, f"{line} s=256 d=64 b={b}", b) for b in (1, 2, 4, 8, 16, 32, 64, 128)]
    for label, words in (("hstu f32", "hstu h=4 s=2048 d=64"), ("hstu_backward f32", "hstu_backward h=4 s=2048 d=64"),
                         ("hstu f32, ragged users", "hstu b=32 h=2 d=64 lengths=lognormal:300,2048"),
                         ("nsa_decode f32", f"nsa_decode s=65536 {DECODE}")):
        points += [Point("threads", label, f"{words} threads={n}", n) for n in thread_counts(threads)]
    for x, word in [(w, f"window_size={w},0") for w in (15, 31, 63, 127, 255, 511, 1023, 2047)] + [
            (4095, "rule=causal"), (4096, "rule=none")]:  # x: keys before a row that it sees
        points.append(Point("mask", "hstu f32", f"hstu h=2 s=4096 d=64 {word}", x, x in (127, 1023, 4095, 4096)))
    for s in (4096, 8192, 16384, 32768, 65536, 131072, 262144, 524288):
        points += [Point("decode", label, f"{op} {DECODE} cache=cold s={s}", s, s in (4096, 16384, 65536))
                   for label, op in (("NSA", "nsa_decode"), ("full attention", "attention_decode"))]
    for s in (4096, 16384, 65536):
        points += [Point("prefill", label, f"{op} sq=128 {PREFILL} s={s}", s)
                   for label, op in (("NSA", "nsa_forward kc=1"), ("full attention", "attention"))]
    return points


def plan(levels, threads, quick):
    """(level, point), the highest level first; lower ones have no sweeps, and nothing that is quick."""
    highest = [*operators(), *sweeps(threads)]
    if quick:
        return [(levels[-1], point) for point in highest if point.quick]
    lower = [(level, point) for level in levels[-2::-1] for point in operators()]
    return [(levels[-1], point) for point in highest] + lower


# ---- What a line of the results says -------------------------------------------------------------

@dataclass
class Row:
    part: str
    label: str
    x: float
    level: str
    line: str
    threads: int
    ms: float
    median_ms: float
    gflops: float  # None: it copies
    gbps: float  # inputs and outputs once
    peak: float
    read: float
    copy: float
    disturbed: bool

    @property
    def intensity(self):
        """Operations a byte that has to pass."""
        return self.gflops / self.gbps

    @property
    def bound(self):
        if self.gflops is None:
            return "copy"
        return "memory" if self.intensity * self.read < self.peak else "arithmetic"

    @property
    def share(self):
        """Of the lower roof at its intensity."""
        if self.gflops is None:
            return self.gbps / self.copy
        return self.gflops / min(self.peak, self.intensity * self.read)

    @property
    def work(self):
        return 1e6 * self.gflops * self.ms


def row_of(record):
    bandwidth = record["copy_gbps" if record["gflops"] is None else "read_gbps"]
    return Row(record["part"], record["label"], record["x"], record["isa"], record["line"], record["threads"],
               record["min_ms"], record["median_ms"], record["gflops"], record["bandwidth_fraction"] * bandwidth,
               record["peak_gflops"], record["read_gbps"], record["copy_gbps"], record["disturbed"])


def records(path):
    return [json.loads(line) for line in path.open()] if path.exists() else []


def read(path):
    """Rows, and failures (level, line, reason). A point that was measured several times counts by its fastest row that
    was not disturbed, as in `pantile compare`."""
    best, failures = {}, {}
    for record in records(path):
        key = record["part"], record["label"], record["x"], record["level"]
        if "failure" in record:
            failures[key] = record["level"], record["line"], record["failure"]
            continue
        row = row_of(record)
        failures.pop(key, None)
        if key not in best or (row.disturbed, row.ms) < (best[key].disturbed, best[key].ms):
            best[key] = row
    return list(best.values()), list(failures.values())


def curves(rows, part):
    """{label: its rows by x}."""
    found = {}
    for row in sorted((row for row in rows if row.part == part), key=lambda row: row.x):
        found.setdefault(row.label, []).append(row)
    return found


def ratios(rows, part):
    """[(x, time of full attention to that of NSA, tokens fewer by)]."""
    both = [{row.x: row for row in curves(rows, part).get(label, [])} for label in ("full attention", "NSA")]
    return [(x, full.ms / both[1][x].ms, full.work / both[1][x].work) for x, full in both[0].items() if x in both[1]]


# ---- Measuring -----------------------------------------------------------------------------------

def machine(command):
    done = subprocess.run([command, "info"], check=True, capture_output=True, text=True)
    return dict(line.split(": ", 1) for line in done.stdout.splitlines()[1:])


def question(level, point, threads):
    """What a record says of itself; without a failure and undisturbed, it need not be asked again."""
    line = point.line if "threads=" in point.line else f"{point.line} threads={threads}"
    return dict(part=point.part, label=point.label, x=point.x, level=level, line=line)


def answer(command, asked, seconds):
    done = subprocess.run([command, "bench", *asked["line"].split(), "--time", str(seconds), "-o", "jsonl"], text=True,
                          capture_output=True, env={**os.environ, "PTL_CPU": asked["level"]})
    if done.returncode:
        said = done.stderr.strip() or f"ended with status {done.returncode}"
        return dict(failure="error above its bound" if done.returncode == 1 else said)
    return json.loads(done.stdout)


def told(record):
    if "failure" in record:
        return record["failure"]
    row = row_of(record)
    return f"{row.ms:.3g} ms, {100 * row.share:.0f} % of {row.bound}{', disturbed' * row.disturbed}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=Path, default=ROOT / "build")
    parser.add_argument("--out", type=Path, help="default: roofline.jsonl in the build folder")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--seconds", type=float, default=0.2, help="of calls for each line; three calls at least")
    parser.add_argument("--quick", action="store_true", help="the highest level and few lines")
    parser.add_argument("--again", action="store_true", help="measure lines that were disturbed once more")
    args = parser.parse_args()
    command, out = args.build.resolve() / "pantile", args.out or args.build / "roofline.jsonl"
    facts = machine(command)
    measured = [record for record in records(out) if "failure" not in record]
    if any(record["cpu"] != facts["cpu"] for record in measured):
        parser.error(f"{out}: of another CPU, {measured[0]['cpu']}; delete it, or choose another --out")
    done = [{name: record[name] for name in ("part", "label", "x", "level", "line")} for record in measured
            if not (args.again and record["disturbed"])]
    planned, start = plan(facts["levels"].split(), args.threads, args.quick), time.monotonic()
    asked = [question(level, point, args.threads) for level, point in planned]
    for i, ask in enumerate(asked):
        if ask in done:
            continue
        record = ask | answer(command, ask, args.seconds)
        with out.open("a") as f:
            print(json.dumps(record), file=f)
        print(f"[{i + 1}/{len(asked)}] {ask['level']} {ask['line']}: {told(record)}", flush=True)
    print(f"{out}, {time.monotonic() - start:.0f} s")


if __name__ == "__main__":
    main()
