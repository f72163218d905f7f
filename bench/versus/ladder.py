#!/usr/bin/env python3
"""The article's figure 5.3 on this CPU: the relative power of every rung of the ladders, naive = 100, as PNG files.

    python bench/versus/ladder.py [DEMO.md] [--out build]       DEMO.md: an output of `pantile demo --md`; without it the
                                                                demo runs, and its output is kept beside the figures
"""

import argparse
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

import plots

ROOT = Path(__file__).resolve().parents[2]


@dataclass
class Ladder:
    title: str
    rungs: list  # (name, relative power)


def ladders(markdown):
    """Tables whose rows begin with (a), under the heading that stands before them. A factor of 1 begins a comparison of
    its own: the second one of NSA's table."""
    found, title, column = [], "", None
    for line in markdown.splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if line.startswith("#"):
            title, column = line.lstrip("# "), None
        elif line.startswith("|") and "vs (a)" in cells:
            column = cells.index("vs (a)")
        elif column and (rung := re.match(r"\((\w)\) ", cells[0])):
            power = 100 * float(cells[column].rstrip("x"))
            if rung[1] == "a" or found and power == 100 and "two calls" in cells[0]:
                found.append(Ladder(title, []))
            found[-1].rungs.append((cells[0], power))
        elif not line.startswith("|"):
            column = None
    return found


def figures(markdown, folder):
    """Writes a figure for each ladder; returns their titles and paths."""
    paths = []
    for i, ladder in enumerate(ladders(markdown)):
        path = folder / f"ladder-{i + 1}.png"
        plots.powers(ladder.rungs, f"Relative processing power, first rung = 100\n{ladder.title}", path)
        paths.append((ladder.title, path))
    return paths


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("demo", nargs="?", type=Path)
    parser.add_argument("--out", type=Path, default=ROOT / "build", help="the build folder")
    args = parser.parse_args()
    if args.demo:
        text = args.demo.read_text()
    else:
        text = subprocess.run([args.out / "pantile", "demo", "--md"], check=True, stdout=subprocess.PIPE, text=True).stdout
        (args.out / "ladder.md").write_text(text)
    for title, path in figures(text, args.out):
        print(f"{path}: {title}")


if __name__ == "__main__":
    main()
