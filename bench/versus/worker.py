"""One contender on one case, in a process of its own; or the canary, which only tells how fast the machine is just now.

Speaks JSON lines: first what preparing it gave, then for each line {"seconds": S} on stdin the times of its calls.
"""

import argparse
import json
import os
import statistics
import sys
import time

import numpy as np

import cases
import contenders
import reference


SLOW = 3  # seconds from which a call is not repeated before it is timed


def status(key):
    with open("/proc/self/status") as f:
        return next(1024 * int(line.split()[1]) for line in f if line.startswith(key + ":"))


def growth(call):
    """Bytes by which a call makes the process larger, at its peak."""
    with open("/proc/self/clear_refs", "w") as f:
        f.write("5")
    before = status("VmRSS")
    call()
    return max(0, status("VmHWM") - before)


def times_of(call, seconds):
    times = []
    while not times or sum(times) < seconds:
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return times


def canary():
    """A product that is no contender's: 1024 cubed, by NumPy."""
    a = np.ones((1024, 1024), np.float32)
    out = np.empty_like(a)
    return lambda: np.matmul(a, a, out=out)


def all_cases():
    return {case.name: case for case in [*cases.TINY, *cases.QUICK, *cases.FULL]}


def prepare(args):
    """What it says of itself, and times(seconds)."""
    if args.contender == "canary":
        call = canary()
        call()
        return {}, lambda seconds: times_of(call, seconds)
    case = all_cases()[args.case]
    contender = next(c for c in contenders.contenders_of(case) if c.name == args.contender)
    inputs = case.inputs()
    more = [getattr(args, contender.needs)] if contender.needs else []
    call, result = contender.make(case, inputs, args.threads, *more)
    results = []
    start = time.perf_counter()
    said = dict(bound=reference.BOUNDS[case.dtype], extra_bytes=growth(lambda: results.append(call())))
    slow = time.perf_counter() - start > SLOW
    results = result(results.pop())
    if case.family == "hstu":
        said["error"] = reference.hstu_error(case, inputs, results, contender.computes == "softmax")
    else:
        said["error"] = reference.nsa_error(case, inputs, results, contender.computes == "full")
    del results
    if said["error"] <= said["bound"] and not slow:  # the first call makes more than its results
        call()
        said["extra_bytes"] = growth(call)
    return said, lambda seconds: times_of(call, seconds)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("contender")
    parser.add_argument("case")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--generative-recommenders")
    args = parser.parse_args()
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print is no answer

    def answer(**fields):
        print(json.dumps(fields), file=answers, flush=True)

    try:
        said, times = prepare(args)
    except Exception as failure:
        return answer(failure=f"{type(failure).__name__}: {failure}"[:400])
    answer(**said)
    for line in sys.stdin:
        seconds = sorted(times(json.loads(line)["seconds"]))
        answer(min=seconds[0], median=statistics.median(seconds), calls=len(seconds))


if __name__ == "__main__":
    main()
