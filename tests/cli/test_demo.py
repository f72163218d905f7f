"""`pantile demo`: its NSA part runs and agrees with itself; the HSTU part takes minutes and is run by hand."""

import re


def test_nsa_part(pantile):
    done = pantile("demo", "--nsa")
    assert (done.status, done.err) == (0, ""), done.out + done.err
    rows = re.findall(r"^(?:NSA, the whole|full causal|  (?:compressed|selected|a token)|\([a-h]\)).*$", done.out, re.M)
    assert len(rows) == 13
    assert [row[:3] for row in rows[5:]] == [f"({letter})" for letter in "abcdefgh"]
    assert all(re.search(r" \d+\.?\d* (us|ms|s) +\d+ ", row) for row in rows), rows
    assert rows[-1].split()[-2:] == ["bits", "-"]  # one call for two branches
    assert "drawn from a seed, not real ones" in done.out
    assert max(map(len, done.out.splitlines())) <= 96


def test_nsa_part_as_markdown(pantile):
    done = pantile("demo", "--nsa", "--md", "threads=1")
    assert done.status == 0
    assert re.search(r"^\|:---(\|---:){6}\|$", done.out, re.M)


def test_refusals(refused):
    refused("'--fast' is no option; pantile demo --help lists them", "demo", "--fast")
    refused("threads: 'x', expected 1 to 1024", "demo", "threads=x")
    refused("missing.inter: No such file or directory", "demo", "--hstu", "missing.inter")
