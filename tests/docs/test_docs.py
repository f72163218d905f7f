"""Programs in README.md, docs/ and examples/ compile as they stand, run, and print what the text shows; links lead
somewhere. What the texts say beyond that is not checked here."""

import os
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("PANTILE_BUILD", ROOT / "build"))
CC = os.environ.get("CC", "cc")
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
EXAMPLES = sorted((ROOT / "examples").glob("*.c"))
PROGRAM = re.compile(r"^```c\n(.*?)^```\n(?:\nprints\n\n```text\n(.*?)^```\n)?", re.S | re.M)
LINK = re.compile(r"\[[^][]*\]\(([^)\s]+)\)")


def programs():
    """(page:line, source, expected output or None) of every C block with a main function."""
    for page in PAGES:
        text = page.read_text()
        for block in PROGRAM.finditer(text):
            if "int main(" in block[1]:
                yield pytest.param(block[1], block[2], id=f"{page.name}:{text[:block.start()].count(chr(10)) + 1}")


def run(source, folder):
    program = folder / "program"
    done = subprocess.run([CC, "-std=c11", "-Wall", "-Wextra", "-Werror", "-pedantic", f"-I{ROOT / 'include'}", source,
                           BUILD / "libpantile.a", "-pthread", "-lm", "-o", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    done = subprocess.run([program], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("source, output", programs())
def test_program_in_text(source, output, tmp_path):
    file = tmp_path / "program.c"
    file.write_text(source)
    printed = run(file, tmp_path)
    assert output is None or printed == output


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda e: e.name)
def test_example(example, tmp_path):
    assert run(example, tmp_path)


def anchors(page):
    headings = re.findall(r"^#+ (.*)$", re.sub(r"^```.*?^```", "", page.read_text(), flags=re.S | re.M), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links(page):
    for link in LINK.findall(page.read_text()):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link
