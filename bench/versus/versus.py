#!/usr/bin/env python3
"""Runs pantile side by side with what a user could run instead; report.py makes a page of the results. docs/versus.md
tells what each contender is and which results count.

    make versus              a quick set of nine cases
    make versus FULL=1       every shape; goes on where it was stopped
"""

import argparse
import bisect
import json
import os
import re
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import cases
import contenders
import machine

ROOT = Path(__file__).resolve().parents[2]
REUSE = "glibc.malloc.mmap_max=0:glibc.malloc.trim_threshold=34359738368:glibc.malloc.top_pad=67108864"
GATE = 0.85  # of the canary's good speed, which a tenth of its turns reach: between two slower ones a turn does not count
PAUSE = 0.3  # seconds until the pools of the last contender have stopped spinning
WAIT = 3  # seconds for a disturbed host to become quiet, before a turn is given up
LOST = 2.0  # times slower than the fastest that computes the same, the canary's slowness allowed for: one turn is enough
SLOW_FLOPS = 5e9  # what torch computes in a few seconds in bf16, where the CPU has no instructions for it
MEMORY = 0.6  # of what is available: the most that the workers of a group take together


class Worker:
    """A process of worker.py; `said` is its first answer."""

    def __init__(self, args, contender, case="", allocator="default"):
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("OPENBLAS_", "PTL_"))}
        blas = 1 if contender and contender.single_blas else args.threads
        environment |= dict(OMP_NUM_THREADS=str(args.threads), MKL_NUM_THREADS=str(args.threads),
                            OPENBLAS_NUM_THREADS=str(blas), PTL_NUM_THREADS=str(args.threads),
                            TORCHINDUCTOR_COMPILE_THREADS="1", PYTHONPATH=str(ROOT / "python"),
                            PANTILE_LIBRARY_DIR=str(args.build))
        if allocator == "reuse":
            environment["GLIBC_TUNABLES"] = REUSE
        command = [sys.executable, str(Path(__file__).with_name("worker.py")), contender.name if contender else "canary",
                   case, "--threads", str(args.threads)]
        if args.generative_recommenders:
            command += ["--generative-recommenders", args.generative_recommenders]
        self.contender, self.allocator, self.best = contender, allocator, float("inf")
        self.process = subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.said = self.answer()

    def answer(self):
        line = self.process.stdout.readline()
        return json.loads(line) if line else dict(failure=f"ended with status {self.process.wait()}")

    def times(self, seconds):
        try:
            self.process.stdin.write(json.dumps(dict(seconds=seconds)) + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass  # answer() tells
        return self.answer()

    def stop(self):
        self.process.stdin.close()
        self.process.wait()


class Canary:
    """How fast the machine is just now, against how fast it was at good times: never against a contender."""

    def __init__(self, args):
        self.worker, self.all, self.last = Worker(args, None), [], 0.0
        for _ in range(10):
            self.speed()

    def speed(self):
        time.sleep(PAUSE)
        seconds = self.worker.times(0.1)["median"]
        bisect.insort(self.all, seconds)
        self.last = self.all[len(self.all) // 10] / seconds
        return self.last

    def wait(self):
        """The speed, as soon as it is good, or at last; that after one turn is that before the next."""
        end = time.monotonic() + WAIT
        while self.last < GATE and time.monotonic() < end:
            self.speed()
        return self.last


class Results:
    def __init__(self, path, resume):
        self.path, self.done = path, set()
        path.parent.mkdir(parents=True, exist_ok=True)
        if resume and path.exists():
            self.done = {row["case"] for row in map(json.loads, path.open()) if row["kind"] == "done"}
        else:
            path.write_text("")

    def add(self, kind, **row):
        with self.path.open("a") as f:
            print(json.dumps(dict(kind=kind, **row)), file=f)


def available_bytes():
    with open("/proc/meminfo") as f:
        return next(1024 * int(line.split()[1]) for line in f if line.startswith("MemAvailable"))


def bytes_needed(case, contender):
    """About what its worker holds: Python with its libraries, inputs twice and the results, matrices of scores."""
    return (1 << 29) + 3 * case.input_bytes() + contender.squares * case.square_bytes()


def groups_of(args, case, results):
    """Lists of (contender, allocator) whose workers fit the memory together."""
    groups, left, limit = [], 0, MEMORY * available_bytes()
    for contender in contenders.contenders_of(case):
        if not re.search(args.contenders, contender.name) or contender.needs and not getattr(args, contender.needs):
            continue
        if contender.bf16_products and case.dtype == "bf16" and case.padded_flops() > SLOW_FLOPS and not machine.has_bf16():
            results.add("failure", case=case.name, contender=contender.name, allocator="any",
                        reason="left out: torch's bf16 products are some 100 times slower on a CPU without bf16 instructions")
            continue
        for allocator in contender.allocators:
            size = bytes_needed(case, contender)
            if size > limit:
                results.add("failure", case=case.name, contender=contender.name, allocator=allocator,
                            reason=f"would need {size / 2**30:.0f} GiB")
                continue
            if size > left:
                groups.append([])
                left = limit
            groups[-1].append((contender, allocator))
            left -= size
    return groups


def start_workers(args, case, results, group):
    """As many at once as there are threads; what preparing takes is not measured."""
    with ThreadPoolExecutor(args.threads) as pool:
        started = list(pool.map(lambda one: Worker(args, one[0], case.name, one[1]), group))
    workers = []
    for worker in started:
        label = dict(case=case.name, contender=worker.contender.name, allocator=worker.allocator)
        said = worker.said
        if "failure" not in said and not said["error"] <= said["bound"]:
            said = dict(failure=f"wrong result: error {said['error']:.1e}, at most {said['bound']:.0e} expected")
        if "failure" in said:
            worker.stop()
            results.add("failure", **label, reason=said["failure"])
            print(f"    {worker.contender.name} ({worker.allocator}): {said['failure']}")
        else:
            results.add("check", **label, **said)
            workers.append(worker)
    return workers


def turn(args, case, results, canary, worker, fastest):
    """Times the contender until a turn counts, at most args.tries times. False: it failed."""
    label = dict(case=case.name, contender=worker.contender.name, allocator=worker.allocator)
    for _ in range(args.tries):
        before = canary.wait()
        times = worker.times(args.seconds)
        if "failure" in times:
            results.add("failure", **label, reason=times["failure"])
            return False
        after = canary.speed()
        slowness = min(before, after)
        counts = slowness >= GATE or slowness * times["min"] > LOST * fastest
        results.add("turn", **label, counts=counts, canary=[round(before, 3), round(after, 3)], **times)
        if counts:
            worker.best = min(worker.best, times["min"])
            break
    return True


def run_case(args, case, results, canary):
    """A case in which some contender never had a turn that counts is not done: the next run repeats it."""
    done, fastest = args.rounds > 0 and not args.contenders, float("inf")
    for group in groups_of(args, case, results):
        workers = start_workers(args, case, results, group)
        for _ in range(args.rounds):
            for worker in list(workers):
                if LOST * fastest < worker.best < float("inf"):
                    continue
                if not turn(args, case, results, canary, worker, fastest):
                    worker.stop()
                    workers.remove(worker)
                elif worker.contender.computes == "the same":
                    fastest = min(fastest, worker.best)
        for worker in workers:
            worker.stop()
            done = done and worker.best < float("inf")
    if done:
        results.add("done", case=case.name)
    elif args.rounds and not args.contenders:
        print("    disturbed: not all contenders have a time that counts")


def describe(case):
    work = {c.name: case.flops(c.name) for c in contenders.contenders_of(case)}
    return dict(case=case.name, family=case.family, dtype=case.dtype, backward=case.backward, flops=work)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--set", choices=["tiny", "quick", "full"], default="quick")
    parser.add_argument("--only", default="", help="regular expression of case names")
    parser.add_argument("--contenders", default="", help="regular expression of their names, as in contenders.py")
    parser.add_argument("--build", type=Path, default=ROOT / "build")
    parser.add_argument("--out", type=Path, help="default: versus-SET.jsonl in the build folder")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=0.3, help="of calls in a turn; one call at least")
    parser.add_argument("--tries", type=int, default=4, help="of a turn that the canary rejects")
    parser.add_argument("--generative-recommenders", default=os.environ.get("GENERATIVE_RECOMMENDERS"),
                        help="a checkout of it")
    args = parser.parse_args()
    args.build = args.build.resolve()
    results = Results(args.out or args.build / f"versus-{args.set}.jsonl", args.set == "full")
    chosen = [case for case in getattr(cases, args.set.upper()) if re.search(args.only, case.name)]
    results.add("machine", **machine.facts(args.build / "pantile", args.threads))
    canary = Canary(args)
    for i, case in enumerate(chosen):
        if case.name in results.done and not args.contenders:
            continue
        print(f"[{i + 1}/{len(chosen)}] {case.name}", flush=True)
        results.add("case", **describe(case))
        run_case(args, case, results, canary)
    canary.worker.stop()
    print(results.path)


if __name__ == "__main__":
    main()
