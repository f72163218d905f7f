"""The tables of the report, as HTML and as Markdown: rows of text, no figures."""

import html
from dataclasses import dataclass

from results import by_factor, groups, peak, verdicts


@dataclass
class Table:
    """Cells are plain text. A column whose head begins with < is text, others are numbers."""

    head: tuple
    rows: list  # (class, cells)

    def names(self):
        return [name.lstrip("<") for name in self.head]

    def html(self):
        def line(tag, cells, kind=""):
            made = (f'<{tag}{" class=left" * name.startswith("<")}>{html.escape(str(cell))}</{tag}>'
                    for cell, name in zip(cells, self.head))
            return f'<tr class="{kind}">{"".join(made)}</tr>'

        body = (line("td", cells, kind) for kind, cells in self.rows)
        return "\n".join(["<div class=scroll><table>", line("th", self.names()), *body, "</table></div>"])

    def markdown(self):
        lines = [self.names(), [":---" if name.startswith("<") else "---:" for name in self.head]]
        lines += [[str(cell).replace("|", "\\|") for cell in cells] for _, cells in self.rows]
        return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


def milliseconds(seconds):
    ms = 1e3 * seconds
    return f"{ms:.0f}" if ms >= 100 else f"{ms:.2f}" if ms >= 1 else f"{ms:.3f}"


def percent(share):
    return f"{100 * share:.0f} %"


def spread(entry):
    return percent(entry.spread) if len(entry.turns) > 1 else "one turn"


def counted(n, noun, plural="s"):
    return f"{n} {noun}{plural * (n != 1)}"


# ---- Cases ---------------------------------------------------------------------------------------

def group_table(cases):
    rows = [("", (g.name, g.dtype, len(g.cases), f"{g.mean:.2f}x", f"{g.cases[0].factor:.2f}x", g.cases[0].name,
                  f"{g.cases[-1].factor:.2f}x", g.cases[-1].name, g.losses)) for g in groups(cases)]
    return Table(("<", "<type", "cases", "geometric mean", "least", "<case", "most", "<case", "losses"), rows)


def floor_table(cases):
    rows = [(v.word if v.n else "none", (v.promise, v.floor, v.weakest, f"{v.kept} of {v.n}" if v.n else "-", v.word))
            for v in verdicts(cases)]
    return Table(("<floor", "<at least", "<weakest case", "cases", "<"), rows)


def factor_table(cases):
    """Losses on top."""
    rows = [("loss" if case.factor < 1 else "win", (
        case.name, milliseconds(case.ours.best), spread(case.ours), milliseconds(case.rival.best), spread(case.rival),
        case.titles[case.rival.name], f"{case.factor:.2f}x")) for case in by_factor(cases)]
    return Table(("<case", "pantile, ms", "spread", "fastest other, ms", "spread", "<which is", "factor"), rows)


def yardstick_table(cases):
    """Those that are faster than pantile."""
    rows = [("yardstick", (case.name, case.titles[e.name], milliseconds(e.best), f"{e.best / case.ours.best:.2f}x"))
            for case in cases.values() if case.ours for e in case.yardsticks if e.best < case.ours.best]
    return Table(("<case", "<", "ms", "its time to pantile's"), rows)


def case_table(case, machine):
    rows = []
    for e in case.entries:
        gflops = 1e-9 * case.facts["flops"][e.name] / e.best
        rows.append(("ours" if e.name == "pantile" else "" if case.same(e.name) else "yardstick", (
            case.titles[e.name], milliseconds(e.best), milliseconds(e.median), spread(e),
            f"{e.best / case.ours.best:.2f}x" if case.ours else "-", f"{gflops:.1f}", percent(gflops / peak(machine)),
            f"{e.check['extra_bytes'] / 2**20:.1f}", f"{e.check['error']:.0e}", e.allocator, e.rejected)))
    return Table(("<", "min ms", "median", "spread", "to pantile", "GFLOP/s", "of peak", "+MiB", "error", "<allocator",
                  "rejected"), rows)


def machine_table(machine):
    rows = [("", (name, machine[name])) for name in ("cpu", "levels", "level", "threads", "system", "date")]
    for n, probe in machine["probes"].items():
        rows.append(("", (f"probed, {counted(int(n), 'thread')}", f"{probe['peak_gflops']:.0f} GFLOP/s FMA, "
                          f"{probe['read_gbps']:.1f} GB/s read, {probe['copy_gbps']:.1f} GB/s copy")))
    rows += [("", (name, version)) for name, version in machine["versions"].items()]
    return Table(("<", "<"), rows)


# ---- Roofline and scaling ------------------------------------------------------------------------

def operator_table(rows, level):
    found = []
    for row in (row for row in rows if row.part == "operators" and row.level == level):
        work = "---"  # a dash for each
        if row.gflops:
            intensity = f"{row.intensity:.0f}" if row.intensity >= 10 else f"{row.intensity:.1f}"
            work = f"{row.gflops:.1f}", intensity, percent(row.gflops / row.peak)
        found.append(("", (row.label, row.line, f"{row.ms:.3g}", *work, f"{row.gbps:.1f}",
                           percent(row.gbps / (row.read if row.gflops else row.copy)), row.bound,
                           percent(row.share) + " *" * row.disturbed)))
    return Table(("<operator", "<line", "min ms", "GFLOP/s", "flop/byte", "of peak", "GB/s", "of bandwidth", "<roof",
                  "of its roof"), found)


def sweep_table(rows):
    found = [("", (row.part, row.label, row.line, f"{row.ms:.3g}", f"{row.median_ms:.3g}", f"{row.gflops:.1f}",
                   percent(row.gflops / row.peak) + " *" * row.disturbed)) for row in rows if row.part != "operators"]
    return Table(("<sweep", "<", "<line", "min ms", "median", "GFLOP/s", "of peak"), found)


def ratio_table(ratios, name):
    """ratios: as roofline.ratios; name: of a length."""
    return Table(("<S", *(name(x) for x, *_ in ratios)), [
        ("", ("NSA is faster by", *(f"{factor:.1f}" for _, factor, _ in ratios))),
        ("", ("tokens attended, fewer by", *(f"{fewer:.1f}" for *_, fewer in ratios)))])
