#!/usr/bin/env python3
"""One self-contained HTML file of what versus.py and roofline.py measured: the losses beside the wins, tables, plots.

    python bench/versus/report.py build/versus-quick.jsonl [--ladder build/ladder.md] [--roofline build/roofline.jsonl]
                                  [--out build/versus.html] [--md build/versus.md]      --md: the tables as Markdown
"""

import argparse
import base64
import html
import json
import tempfile
from pathlib import Path

import ladder
import plots
import roofline
from results import by_factor, groups, read
from tables import (case_table, counted, factor_table, floor_table, group_table, machine_table, milliseconds,
                    operator_table, percent, ratio_table, sweep_table, yardstick_table)

STYLE = """
:root { --ink: #23272b; --soft: #6b7278; --line: #e3e5e7; --ours: #b5462f; --loss: #a3123f; --win: #1b6e3a }
body { font: 15px/1.5 "Helvetica Neue", Helvetica, Arial, "DejaVu Sans", sans-serif; max-width: 66em; margin: 0 auto;
       padding: 2em 1.2em 6em; color: var(--ink) }
h1 { font-size: 1.9em; margin: 0 } h2 { margin: 2.2em 0 .4em; padding-top: .5em; border-top: 2px solid var(--ink) }
h3 { margin: 1.6em 0 .3em; font-size: 1.02em } p { max-width: 50em } nav a { margin-right: 1.2em }
a { color: var(--ours) } .note { color: var(--soft); font-size: .9em } .scroll { overflow-x: auto }
table { border-collapse: collapse; margin: .7em 0; font-size: .88em; font-variant-numeric: tabular-nums }
th { color: var(--soft); font-weight: normal; border-bottom: 1px solid var(--ink); vertical-align: bottom }
td, th { padding: .22em .8em .22em 0; text-align: right } td { border-bottom: 1px solid var(--line) }
.left { text-align: left } td:first-child { white-space: nowrap }
.ours { font-weight: bold } .yardstick, .none { color: var(--soft) } .loss, .missed { color: var(--loss) }
.win td:last-child, .met td:last-child { color: var(--win) }
.loss td:last-child, .missed td:last-child { font-weight: bold }
img { max-width: 100%; height: auto; display: block; margin: .8em 0 }
.two { display: grid; grid-template-columns: 1fr 1fr; gap: 0 1em }
@media (max-width: 50em) { .two { grid-template-columns: 1fr } }
details { border-bottom: 1px solid var(--line); padding: .35em 0 } summary { cursor: pointer }
summary .note { float: right } @media print { details { break-inside: avoid } }"""

INTRODUCTION = """Every contender computed the same thing from the same inputs, in a process of its own, and was held to
double arithmetic before it was timed. Contenders took turns of a fraction of a second; where it may change who is
fastest, a turn counts only if the machine was at its usual speed before and after it, which a product that is no
contender's tells. A time is the fastest call of all turns that count, with the better of two allocators. A factor is
the time of the fastest other contender to pantile's: above 1 pantile is faster. Differences below the spreads of the
two are none."""

NOTES = """min: the fastest call of all turns that count; median: of the turns' medians; spread: by how much the slowest
turn's fastest call exceeds it. GFLOP/s counts the work that the mask leaves, also of padded contenders; of peak: of the
FMA peak of fp32, probed in the same run, for bf16, too. +MiB: by how much a call makes the process larger; with page
reuse memory that was kept hides there. error: to double, on a sample. allocator: the better of the default one and page
reuse. rejected: turns that the canary refused; who has lost clearly has one turn. Grey rows compute something else:
softmax attention beside HSTU, full attention beside NSA."""

ROOFS = """An operator is limited by arithmetic or by memory, whichever roof is lower at its operations a byte.
Operations are those on the pairs that the mask leaves, bytes are inputs and outputs once; both roofs, fp32 multiply-
adds on registers and reading a large buffer, were probed next to each line. What was in the caches is evicted before
each call of an operator, not in the sweeps of HSTU. Halves are held to the peak of fp32. A share above 100 % means that
the probe was disturbed, or that bytes were read from a cache; * marks lines that pantile bench calls disturbed."""


def picture(path, alt):
    data = base64.b64encode(path.read_bytes()).decode()
    return f'<img alt="{html.escape(alt, quote=True)}" src="data:image/png;base64,{data}">'


def paragraph(text, kind=""):
    return f'<p class="{kind}">{html.escape(text)}</p>'


def folded(title, *parts, kind="", note="", is_open=False):
    head = f'<summary class="{kind}">{html.escape(title)}<span class=note>{html.escape(note)}</span></summary>'
    return "\n".join([f"<details{' open' * is_open}>{head}", *parts, "</details>"])


# ---- Cases ---------------------------------------------------------------------------------------

def facts_line(machine):
    probe, versions = machine["probes"][str(machine["threads"])], machine["versions"]
    return (f"{machine['cpu']}, level {machine['level']}, {counted(machine['threads'], 'thread')}, probed "
            f"{probe['peak_gflops']:.0f} GFLOP/s FMA and {probe['read_gbps']:.0f} GB/s read; pantile "
            f"{versions['pantile']}, torch {versions.get('torch', 'not installed')}; {machine['date']}.")


def result_line(cases):
    ordered, missing = by_factor(cases), [case.name for case in cases.values() if not case.compared]
    losses = sum(case.factor < 1 for case in ordered)
    text = ("Against the fastest other contender of each case that computes the same: "
            f"{counted(losses, 'loss', 'es')}, {counted(len(ordered) - losses, 'win')}.")
    return text + (f" Without a pair of times that count: {', '.join(missing)}." if missing else "")


def factor_figure(cases, folder):
    parts = []
    for group in groups(cases):
        rows = [(case.name, case.factor, [e.best / case.ours.best for e in case.yardsticks])
                for case in reversed(group.cases)]
        parts.append((f"{group.name}, {group.dtype}", rows))
    title = ("Times as fast as the fastest other contender of each case, logarithmic\n"
             "Circles: the time of softmax attention beside HSTU and of full attention beside NSA, to pantile's")
    plots.factors(parts, title, folder / "factors.png")
    return picture(folder / "factors.png", "factors of all cases")


def summary_part(cases, folder):
    parts = ["<h2 id=summary>Summary</h2>", paragraph(result_line(cases))]
    if by_factor(cases):
        parts += [group_table(cases).html(), factor_figure(cases, folder)]
    parts += ["<h2 id=floors>Floors</h2>", paragraph("A floor is met when every case of its kind keeps it."),
              floor_table(cases).html(), "<h2 id=cases>Losses and wins</h2>"]
    parts.append(factor_table(cases).html() if by_factor(cases) else paragraph("No case has a pair of times yet."))
    faster = yardstick_table(cases)
    if faster.rows:
        parts += [paragraph("Something else, softmax or full attention, but faster than pantile:"), faster.html()]
    return parts


def case_part(case, machine, folder):
    table = case_table(case, machine)
    parts = [table.html()]
    if case.entries:
        colors = dict(ours=plots.OURS, yardstick=plots.YARDSTICK)
        plots.bars([cells[0] for _, cells in table.rows], [1e3 * e.best for e in case.entries],
                   [f"{milliseconds(e.best)} ms" for e in case.entries],
                   [colors.get(kind, plots.OTHERS) for kind, _ in table.rows], f"{case.name}: ms, lower is better",
                   folder / "case.png", log=True)
        parts.append(picture(folder / "case.png", case.name))
    for (name, allocator), reason in case.failures.items():
        parts.append(paragraph(f"{case.titles[name]} ({allocator}): {reason}"))
    if case.unmeasured:
        parts.append(paragraph("No turn counts, the host was disturbed: " + ", ".join(
            f"{case.titles[name]} ({allocator})" for name, allocator in case.unmeasured)))
    if not case.compared:
        return folded(case.name, *parts, note="no pair of times that count", is_open=True)
    lost = case.factor < 1
    return folded(case.name, *parts, kind="loss" * lost, note=f"{case.factor:.2f}x, {case.titles[case.rival.name]}",
                  is_open=lost)


# ---- Roofline and scaling ------------------------------------------------------------------------

def levels_of(rows):
    return list(dict.fromkeys(row.level for row in rows if row.part == "operators"))


def family(label):
    return "HSTU" if label.startswith("hstu") else "NSA" if label.startswith("nsa") else "full attention"


def operator_figures(rows, level, folder):
    """The roofline of a level, and the operators that copy and so have no place on it."""
    here, path, parts = [row for row in rows if row.part == "operators" and row.level == level], folder / "roof.png", []
    computing, copying = [row for row in here if row.gflops], [row for row in here if not row.gflops]
    if computing:
        plots.roofline([(family(row.label), row.label, row.intensity, row.gflops, row.share) for row in computing],
                       max(row.peak for row in here), max(row.read for row in here),
                       f"Operators on level {level}, {counted(here[0].threads, 'thread')}", path)
        parts.append(picture(path, f"roofline of level {level}"))
    if copying:
        copying.sort(key=lambda row: -row.gbps)
        title = f"Operators that copy, level {level}: GB/s read and written, and the share of the copy bandwidth"
        plots.bars([row.label for row in copying], [row.gbps for row in copying],
                   [f"{row.gbps:.1f}, {percent(row.share)}" for row in copying], [plots.OTHERS] * len(copying), title,
                   path)
        parts.append(picture(path, title))
    return parts


def sweep_figures(rows, folder):
    parts, path, limit = [], folder / "sweep.png", "fewer tokens attended"

    def curves(part, y, x=lambda row: row.x):
        return {label: [(x(row), y(row)) for row in curve] for label, curve in roofline.curves(rows, part).items()}

    def draw(part, curves, title, x_label, y_label, **more):
        if any(len(points) > 1 for points in curves.values()):
            if part != "mask":
                more["x_ticks"] = sorted({row.x for row in rows if row.part == part})
            plots.lines(curves, title, x_label, y_label, path, **more)
            parts.append(f"<div>{picture(path, title)}</div>")

    for part, title, x_label in (("length", "HSTU and the length", "rows of a sequence, S"),
                                 ("head size", "HSTU and the head size, S = 1024", "D"),
                                 ("batch", "HSTU and the batch, S = 256", "sequences, B")):
        of_peak = curves(part, lambda row: row.gflops / row.peak)
        draw(part, of_peak, title, x_label, "share of the FMA peak", percent="y")
    threads = roofline.curves(rows, "threads")
    gains = {label: [(row.x, curve[0].ms / row.ms) for row in curve] for label, curve in threads.items()}
    if threads:
        first = next(iter(threads.values()))
        gains["FMA peak"] = [(row.x, row.peak / first[0].peak) for row in first]
    draw("threads", gains, "Threads", "threads", "times as fast as one", log_x=False, dashed=["FMA peak"])
    for full in roofline.curves(rows, "mask").get("hstu f32", [])[-1:]:  # without a mask
        pairs = curves("mask", lambda row: row.ms / full.ms, lambda row: row.work / full.work)
        pairs["as the pairs"] = [(x, x) for x, _ in pairs["hstu f32"]]
        draw("mask", pairs, "HSTU and the mask: windows, S = 4096", "share of the pairs that the mask leaves",
             "share of the time without a mask", log_y=True, dashed=["as the pairs"], percent="xy")
    draw("decode", curves("decode", lambda row: row.ms), "Decode, one token, from memory", "tokens before it, S", "ms",
         log_y=True)
    for part, title in (("decode", "NSA to full attention, decode"), ("prefill", "NSA to full attention, 128 rows")):
        found = roofline.ratios(rows, part)
        draw(part, {"measured": [(x, factor) for x, factor, _ in found], limit: [(x, fewer) for x, _, fewer in found]},
             title, "tokens, S", "times as fast", dashed=[limit])
    return ["<div class=two>", *parts, "</div>"]


def roofline_part(rows, failures, folder):
    parts = ["<h2 id=roofline>Roofline and scaling</h2>", paragraph(ROOFS)]
    for level in levels_of(rows):
        parts += [f"<h3>Level {level}</h3>", *operator_figures(rows, level, folder),
                  folded("Table", operator_table(rows, level).html())]
    sweeps = sweep_table(rows)
    if sweeps.rows:
        parts += ["<h3>Scaling</h3>", *sweep_figures(rows, folder), folded("Table", sweeps.html())]
    return parts + [paragraph(f"{level}, {line}: {reason}", "loss") for level, line, reason in failures]


# ---- All of it -----------------------------------------------------------------------------------

def page(machines, cases, ladder_text, roofs, folder):
    """roofs: what roofline.read gave, or None."""
    links = [("summary", "Summary"), ("floors", "Floors"), ("cases", "Losses and wins")]
    links += [("ladder", "The ladder")] * bool(ladder_text) + [("roofline", "Roofline and scaling")] * bool(roofs)
    links += [("each", "Every case"), ("machine", "Machine")]
    parts = ["<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width'>",
             f"<title>pantile, side by side</title><style>{STYLE}</style>", "<h1>pantile, side by side</h1>",
             paragraph(facts_line(machines[-1]), "note"),
             "<nav>" + "".join(f'<a href="#{name}">{title}</a>' for name, title in links) + "</nav>",
             paragraph(INTRODUCTION), *summary_part(cases, folder)]
    if ladder_text:
        parts += ["<h2 id=ladder>The ladder</h2>", paragraph("From the naive form to the library's, by pantile demo: "
                                                             "the relative power of each rung, the first being 100.")]
        parts += [picture(path, title) for title, path in ladder.figures(ladder_text, folder)]
    if roofs:
        parts += roofline_part(*roofs, folder)
    parts += ["<h2 id=each>Every case</h2>", paragraph(NOTES, "note"),
              *(case_part(case, machines[-1], folder) for case in cases.values()), "<h2 id=machine>Machine</h2>"]
    parts += [machine_table(m).html() for m in {json.dumps(m, sort_keys=True): m for m in machines}.values()]
    return "\n".join(parts)


def markdown(machines, cases, roofs):
    """The tables of the first sections, for the documents."""
    tables = [table(cases) for table in (group_table, floor_table, factor_table)]
    parts = [facts_line(machines[-1]), result_line(cases), *(table.markdown() for table in tables if table.rows)]
    faster = yardstick_table(cases)
    if faster.rows:
        parts += ["Something else, softmax or full attention, but faster than pantile:", faster.markdown()]
    rows = roofs[0] if roofs else []
    for level in levels_of(rows):
        parts += [f"Operators on level {level}, from memory:", operator_table(rows, level).markdown()]
    for part in ("decode", "prefill"):
        found = roofline.ratios(rows, part)
        if found:
            parts += [f"NSA to full attention, {part}:", ratio_table(found, plots.short).markdown()]
    return "\n\n".join(parts) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("results", type=Path)
    parser.add_argument("--ladder", type=Path, help="an output of pantile demo --md")
    parser.add_argument("--roofline", type=Path, help="an output of roofline.py")
    parser.add_argument("--out", type=Path, help="default: the results' name with .html")
    parser.add_argument("--md", type=Path, help="write the tables as Markdown, too")
    args = parser.parse_args()
    machines, cases = read(args.results)
    ladder_text = args.ladder.read_text() if args.ladder and args.ladder.exists() else ""
    roofs, records = None, machines
    if args.roofline and args.roofline.exists():
        roofs, records = roofline.read(args.roofline), machines + roofline.records(args.roofline)
    cpus = sorted({record["cpu"] for record in records if "cpu" in record})
    if len(cpus) > 1:
        parser.error(f"{args.results}: of several CPUs: {', '.join(cpus)}")
    out = args.out or args.results.with_suffix(".html")
    with tempfile.TemporaryDirectory() as folder:
        out.write_text(page(machines, cases, ladder_text, roofs, Path(folder)))
    print(out)
    if args.md:
        args.md.write_text(markdown(machines, cases, roofs))
        print(args.md)


if __name__ == "__main__":
    main()
