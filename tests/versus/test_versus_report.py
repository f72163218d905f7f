"""The page and its Markdown, made of lines by hand."""

import re
import sys

import pytest

import report
import tables


@pytest.fixture
def made(lines, monkeypatch, capsys, sketches):
    """made(*options): the HTML and the Markdown."""

    def make(*options):
        markdown = lines.path.with_suffix(".md")
        monkeypatch.setattr(sys, "argv", ["report.py", str(lines.path), "--md", str(markdown), *map(str, options)])
        report.main()
        page = lines.path.with_suffix(".html")
        assert capsys.readouterr().out.split() == [str(page), str(markdown)]
        return page.read_text(), markdown.read_text()

    return make


def test_losses_stand_above_wins(lines, made):
    lines.case("won f32", pantile=1.0, eager=4.0)
    lines.case("lost f32", pantile=1.0, eager=0.5, sdpa=0.25)
    html, markdown = made()
    assert "1 loss, 1 win." in html and "1 loss, 1 win." in markdown
    rows = [line for line in markdown.splitlines() if re.match(r"\| (won|lost) f32 \| 1000 ", line)]
    assert [row.split(" | ")[0] for row in rows] == ["| lost f32", "| won f32"]
    assert html.index("<td class=left>lost f32") < html.index("<td class=left>won f32")
    assert "| lost f32 | torch SDPA, padded: softmax | 250 | 0.25x |" in markdown


def test_what_is_missing_and_what_failed_is_said(lines, made):
    lines.case("half f32", pantile=1.0)
    lines.failure("half f32", "eager", "wrong result: <nan> & more", "reuse")
    lines.check("half f32", "compiled")
    lines.turn("half f32", "compiled", 1.0, counts=False)
    html, markdown = made()
    assert "Without a pair of times that count: half f32." in markdown
    assert "PyTorch eager, padded, as in the article (reuse): wrong result: &lt;nan&gt; &amp; more" in html
    assert "No turn counts, the host was disturbed: torch.compile of eager (default)" in html


def test_the_page_needs_nothing_else(lines, made):
    lines.case("a f32", pantile=1.0, eager=4.0)
    html, _ = made()
    assert html.startswith("<!doctype html>")
    assert not re.search(r'(src|href)="(?!data:|#)|@import|url\(', html)
    assert html.count("data:image/png;base64,") == 2  # all factors, and the case
    for name in re.findall(r'href="#(\w+)"', html):
        assert f"id={name}>" in html


def test_several_machines_are_refused(lines, made, capsys):
    lines.case("a f32", pantile=1.0, eager=4.0)
    lines.machine("another CPU")
    with pytest.raises(SystemExit):
        made()
    assert "of several CPUs: another CPU, some CPU" in capsys.readouterr().err


def test_a_roofline_of_another_machine_is_refused(lines, made, tmp_path, capsys):
    lines.case("a f32", pantile=1.0, eager=4.0)
    roofs = tmp_path / "roofline.jsonl"
    roofs.write_text('{"part": "operators", "label": "x", "x": 0, "level": "avx2", "line": "x", "cpu": "another CPU", '
                     '"isa": "avx2", "threads": 1, "min_ms": 1, "median_ms": 1, "gflops": 1, "bandwidth_fraction": 1, '
                     '"peak_gflops": 1, "read_gbps": 1, "copy_gbps": 1, "disturbed": false}\n')
    with pytest.raises(SystemExit):
        made("--roofline", roofs)
    assert "of several CPUs: another CPU, some CPU" in capsys.readouterr().err


def test_a_table_twice():
    table = tables.Table(("<name", "ms"), [("loss", ("a|b<c", 1.5))])
    assert table.markdown() == "| name | ms |\n| :--- | ---: |\n| a\\|b<c | 1.5 |"
    assert '<tr class="loss"><td class=left>a|b&lt;c</td><td>1.5</td></tr>' in table.html()


@pytest.mark.parametrize("seconds, text", [(0.5, "500"), (0.01234, "12.34"), (0.0001234, "0.123")])
def test_milliseconds(seconds, text):
    assert tables.milliseconds(seconds) == text


def test_a_page_of_nothing_but_failures(lines, made):
    lines.case("a f32")
    lines.failure("a f32", "pantile", "no library")
    html, markdown = made()
    assert "No case has a pair of times yet." in html and "pantile, its Python package (default): no library" in html
    assert "0 losses, 0 wins. Without a pair of times that count: a f32." in markdown


def test_one_turn_has_no_spread(lines, made):
    lines.case("a f32", pantile=[1.0, 1.1], eager=4.0)
    _, markdown = made()
    assert "| a f32 | 1000 | 10 % | 4000 | one turn | PyTorch eager, padded, as in the article | 4.00x |" in markdown
