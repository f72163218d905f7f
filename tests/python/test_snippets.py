"""Python in README.md and docs/: sessions print what they show, programs run. Blocks of a page share their names."""

import doctest
import re

import pytest
from conftest import ROOT

PAGES = [ROOT / "README.md", ROOT / "docs/python.md", ROOT / "docs/migrating.md"]
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.S | re.M)


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_python(page):
    text = page.read_text()
    names = {}
    for block in BLOCK.finditer(text):
        line = text[:block.start()].count("\n") + 1
        if ">>>" in block[1]:
            test = doctest.DocTestParser().get_doctest(block[1], names, f"{page.name}:{line}", str(page), line)
            printed = []
            runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE)
            runner.run(test, out=printed.append, clear_globs=False)
            assert not runner.failures, "".join(printed)
            names = test.globs
        else:
            exec(compile(block[1], f"{page.name}:{line}", "exec"), names)
    assert names
