#!/usr/bin/env python3
"""One self-contained HTML file of what versus.py measured: the losses beside the wins, tables, plots, the machine.

    python bench/versus/report.py build/versus-quick.jsonl [--ladder build/ladder.md] [--out build/versus.html]
"""

import argparse
import base64
import html
import json
import statistics
import tempfile
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

import contenders
import ladder
import plots

STYLE = """body { font: 15px/1.45 sans-serif; max-width: 62em; margin: 2em auto; padding: 0 1em; color: #222 }
table { border-collapse: collapse; margin: .6em 0 } td, th { padding: .15em .7em; border-bottom: 1px solid #ddd; text-align: right }
td:first-child, th:first-child { text-align: left } .ours { font-weight: bold } .yardstick { color: #777 }
.loss { color: #b00020 } .win { color: #1b6e3a } img { max-width: 100% }"""


@dataclass
class Entry:
    """A contender on a case, with the better of its allocators."""

    name: str
    allocator: str
    turns: list
    rejected: int
    check: dict

    @property
    def best(self):
        return min(t["min"] for t in self.turns)

    @property
    def median(self):
        return statistics.median(t["median"] for t in self.turns)

    @property
    def spread(self):
        """By how much the slowest turn's fastest call exceeds the fastest turn's."""
        return max(t["min"] for t in self.turns) / self.best - 1


@dataclass
class Case:
    facts: dict
    entries: list = field(default_factory=list)  # fastest first
    failures: dict = field(default_factory=dict)  # (contender, allocator): reason
    unmeasured: list = field(default_factory=list)  # no turn counts

    def computes(self, name):
        family = contenders.HSTU if self.facts["family"] == "hstu" else contenders.NSA
        return next(c.computes for c in family if c.name == name)

    @property
    def ours(self):
        return next((e for e in self.entries if e.name == "pantile"), None)

    @property
    def rival(self):
        """The fastest that computes the same."""
        return next((e for e in self.entries if e.name != "pantile" and self.computes(e.name) == "the same"), None)


def read(path):
    """The machines, and the cases by name."""
    machines, cases, turns, checks, rejected = [], {}, defaultdict(list), {}, defaultdict(int)
    for row in map(json.loads, path.open()):
        key = tuple(row.get(name) for name in ("case", "contender", "allocator"))
        if row["kind"] == "machine":
            machines.append(row)
        elif row["kind"] == "case":
            cases.setdefault(row["case"], Case(row))
        elif row["kind"] == "check":
            checks[key] = row
            cases[row["case"]].failures.pop(key[1:], None)  # an earlier run's
        elif row["kind"] == "failure":
            cases[row["case"]].failures[key[1:]] = row["reason"]
        elif row["kind"] == "turn" and row["counts"]:
            turns[key].append(row)
        elif row["kind"] == "turn":
            rejected[key] += 1
    for key in checks:
        case, contender, allocator = key
        entries = cases[case].entries
        if not turns[key]:
            cases[case].unmeasured.append(f"{contender} ({allocator})")
            continue
        entry = Entry(contender, allocator, turns[key], rejected[key], checks[key])
        other = next((e for e in entries if e.name == contender), None)
        if other and other.best <= entry.best:
            continue
        if other:
            entries.remove(other)
        entries.append(entry)
    for case in cases.values():
        case.entries.sort(key=lambda e: e.best)
    return machines, cases


def peak(machine):
    return machine["probes"][str(machine["threads"])]["peak_gflops"]


def table(head, rows):
    """rows: (class of the row, cells); cells are HTML."""
    lines = ["<table><tr>" + "".join(f"<th>{cell}</th>" for cell in head) + "</tr>"]
    lines += [f'<tr class="{kind}">' + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>" for kind, cells in rows]
    return "\n".join([*lines, "</table>"])


def milliseconds(seconds):
    ms = 1e3 * seconds
    return f"{ms:.0f}" if ms >= 100 else f"{ms:.2f}" if ms >= 1 else f"{ms:.3f}"


def picture(path):
    return f'<img src="data:image/png;base64,{base64.b64encode(path.read_bytes()).decode()}">'


def machine_part(machine):
    rows = [("", (name, html.escape(str(machine[name])))) for name in ("cpu", "levels", "level", "threads", "system", "date")]
    rows += [("", (f"probed, {n} thread{'s' * (n != '1')}", f"{p['peak_gflops']:.0f} GFLOP/s FMA, {p['read_gbps']:.1f} GB/s read, "
                   f"{p['copy_gbps']:.1f} GB/s copy")) for n, p in machine["probes"].items()]
    rows += [("", (name, version)) for name, version in machine["versions"].items()]
    return "<h2>Machine</h2>" + table(("", ""), rows)


def summary_part(cases):
    """pantile against the fastest that computes the same, losses first; then those that compute something else."""
    rows, others, missing = [], [], []
    for name, case in cases.items():
        if not case.ours or not case.rival:
            missing.append(name)
            continue
        titles, factor = contenders.titles(case.facts["family"]), case.rival.best / case.ours.best
        rows.append((factor, ("loss" if factor < 1 else "win", (
            name, milliseconds(case.ours.best), titles[case.rival.name], milliseconds(case.rival.best), f"{factor:.2f}x"))))
        others += [(name, titles[e.name], milliseconds(e.best), f"{e.best / case.ours.best:.2f}x") for e in case.entries
                   if case.computes(e.name) != "the same" and e.best < case.ours.best]
    rows.sort(key=lambda row: row[0])
    losses = sum(factor < 1 for factor, _ in rows)
    text = f"<h2>Losses and wins</h2><p>{losses} losses, {len(rows) - losses} wins, against the fastest other contender of each case."
    if missing:
        text += " Without a pair of times that count: " + ", ".join(map(html.escape, missing)) + "."
    text += "</p>" + table(("case", "pantile ms", "fastest other", "ms", "pantile is faster"), [row for _, row in rows])
    if others:
        text += "<p>Something else, but faster than pantile (softmax or full attention):</p>" + table(
            ("case", "", "ms", "its time to pantile's"), [("yardstick", cells) for cells in others])
    return text


def case_part(case, machine, folder):
    facts, titles = case.facts, contenders.titles(case.facts["family"])
    rows = []
    for e in case.entries:
        gflops = 1e-9 * facts["flops"][e.name] / e.best
        kind = "ours" if e.name == "pantile" else "" if case.computes(e.name) == "the same" else "yardstick"
        rows.append((kind, (
            titles[e.name], milliseconds(e.best), milliseconds(e.median), f"{100 * e.spread:.0f} %",
            f"{e.best / case.ours.best:.2f}x" if case.ours else "-", f"{gflops:.1f}", f"{100 * gflops / peak(machine):.0f} %",
            f"{e.check['extra_bytes'] / 2**20:.1f}", f"{e.check['error']:.0e}", e.allocator, str(e.rejected))))
    text = f"<h3>{html.escape(facts['case'])}</h3>" + table(
        ("", "min ms", "median", "spread", "to pantile", "GFLOP/s", "of peak", "+MiB", "error", "allocator", "rejected"), rows)
    if case.entries:
        path = folder / "case.png"
        colors = [plots.OURS if kind == "ours" else plots.OTHERS if not kind else plots.YARDSTICK for kind, _ in rows]
        plots.bars([titles[e.name] for e in case.entries], [1e3 * e.best for e in case.entries],
                   [f"{milliseconds(e.best)} ms" for e in case.entries], colors, f"{facts['case']}: ms, lower is better", path,
                   log=True)
        text += picture(path)
    failed = [f"{titles[name]} ({allocator}): {reason}" for (name, allocator), reason in case.failures.items()]
    if case.unmeasured:
        failed.append("No turn counts, the host was disturbed: " + ", ".join(case.unmeasured))
    return text + "".join(f"<p>{html.escape(line)}</p>" for line in failed)


NOTES = """<p>min: the fastest call of all turns that count; median: of the turns' medians; spread: by how much the slowest turn's
fastest call exceeds it. GFLOP/s counts the work that the mask leaves, also of padded contenders; of peak: of the FMA peak of
fp32, probed in the same run, for bf16, too. +MiB: by how much a call makes the process larger; with page reuse memory that was
kept hides there. error: to double, on a sample. allocator: the better of the default one and page reuse. rejected: turns that the
canary refused. Grey rows compute something else: softmax attention beside HSTU, full attention beside NSA.</p>"""


def page(machines, cases, ladder_text, folder):
    parts = [f"<!doctype html><meta charset=utf-8><title>pantile versus</title><style>{STYLE}</style>",
             "<h1>pantile, side by side</h1>", summary_part(cases)]
    if ladder_text:
        parts.append("<h2>The ladder</h2>")
        parts += [picture(path) for _, path in ladder.figures(ladder_text, folder)]
    parts += ["<h2>Cases</h2>", NOTES, *(case_part(case, machines[-1], folder) for case in cases.values()),
              *map(machine_part, {json.dumps(m, sort_keys=True): m for m in machines}.values())]
    return "\n".join(parts)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("results", type=Path)
    parser.add_argument("--ladder", type=Path, help="an output of pantile demo --md")
    parser.add_argument("--out", type=Path, help="default: the results' name with .html")
    args = parser.parse_args()
    machines, cases = read(args.results)
    if len({m["cpu"] for m in machines}) > 1:
        parser.error(f"{args.results}: of several CPUs: {', '.join(sorted({m['cpu'] for m in machines}))}")
    out = args.out or args.results.with_suffix(".html")
    with tempfile.TemporaryDirectory() as folder:
        text = page(machines, cases, args.ladder.read_text() if args.ladder and args.ladder.exists() else "", Path(folder))
    out.write_text(text)
    print(out)


if __name__ == "__main__":
    main()
