#!/usr/bin/env python3
"""Runs the test programs of a build and sums what they report.

Every program ends with a line "N passed, N failed[, N skipped]"; pytest's own summary counts too. A program
that crashes, times out, exits nonzero without a failure, or reports no test at all is one failure. The last
line of this script is the sum, and the exit status is 0 when nothing failed.
"""

import argparse
import os
import re
import shlex
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
WORD = r"(\d+) (passed|failed|skipped|errors?|xfailed|xpassed|deselected|warnings?)"
COUNT = re.compile(WORD)
SUMMARY = re.compile(rf"=* ?{WORD}(, {WORD})*( in .*)?")
ALOUD = re.compile(r"levels tested|NOT TESTED|skip |SKIPPED")


def count(output):
    """(passed, failed, skipped) of the last summary line, or None."""
    for line in reversed(output.splitlines()):
        if SUMMARY.fullmatch(line):
            n = {word.rstrip("s"): int(number) for number, word in COUNT.findall(line)}
            return (n.get("passed", 0), n.get("failed", 0) + n.get("error", 0) + n.get("xpassed", 0),
                    n.get("skipped", 0) + n.get("xfailed", 0))
    return None


def run(name, command, env, timeout):
    start = time.monotonic()
    try:
        done = subprocess.run(command, cwd=ROOT, env=env, timeout=timeout, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        output, status = done.stdout.decode(errors="replace"), done.returncode
    except subprocess.TimeoutExpired as late:
        output = (late.stdout or b"").decode(errors="replace") + f"\nstopped after {timeout} s"
        status = -1
    counts = count(output)
    passed, failed, skipped = counts or (0, 0, 0)
    if status != 0 and failed == 0:
        output += f"\n{name}: exit status {status} without a failed test"
        failed = 1
    elif passed + failed + skipped == 0:
        output += f"\n{name}: reported no test"
        failed = 1
    line = f"{passed} passed, {failed} failed" + (f", {skipped} skipped" if skipped else "")
    # After a failure everything but successes is shown; otherwise only what was left out.
    for text in output.splitlines():
        if not text.startswith("ok ") if failed else ALOUD.match(text):
            print("    " + text)
    print(f"{'FAIL' if failed else 'ok':4}  {name:12} {line:32} {time.monotonic() - start:6.1f} s", flush=True)
    return passed, failed, skipped


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build", type=Path, help="build folder")
    parser.add_argument("--quick", action="store_true", help="the small subset, for slow builds")
    parser.add_argument("--prefix", default="", help="command in front of the C tests: an emulator")
    parser.add_argument("--python", help="interpreter with pytest: run the Python tests too")
    parser.add_argument("--timeout", type=float, default=900, help="seconds per program")
    args = parser.parse_args()

    build = args.build.resolve()
    env = dict(os.environ, PANTILE_BUILD=str(build))
    quick = ["--quick"] if args.quick else []
    suites = [("C", [*shlex.split(args.prefix), str(build / "pantile_tests"), *quick])]
    if args.python:
        for folder in sorted({path.parent for path in (ROOT / "tests").rglob("test_*.py")}):
            command = [args.python, "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", str(folder)]
            suites.append((folder.name, command))

    total = [0, 0, 0]
    for name, command in suites:
        total = [a + b for a, b in zip(total, run(name, command, env, args.timeout))]
    passed, failed, skipped = total
    print(f"{passed} passed, {failed} failed" + (f", {skipped} skipped" if skipped else ""))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
