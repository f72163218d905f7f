"""`pantile replay`: logged calls again. Times are not judged."""

import re

import pytest

HEAD = "| calls |    old ms |    new ms | new / old | call |\n|------:|----------:|----------:|----------:|:-----|\n"


@pytest.fixture
def replay(pantile):
    def run(*arguments):
        done = pantile("replay", *arguments, "--reps", "2", "--time", "0.01")
        assert (done.status, done.err) == (0, "")
        assert done.out.startswith(HEAD)
        return [[cell.strip() for cell in line.split("|")[1:-1]] for line in done.out.splitlines()[2:]]

    return run


def logged(pantile, *line):
    return pantile("check", *line, PTL_VERBOSE="1").err


@pytest.mark.parametrize("line", [
    ["hstu", "b=3", "h=2", "s=20", "d=8", "num_targets=2", "isa=scalar", "threads=1"],
    ["hstu_backward", "s=20", "d=8", "dtype=bf16"],
    ["nsa_decode", "h=4", "hk=2", "s=99", "d=16", "block=8", "stride=4", "select_block=8"],
    ["attention", "h=4", "hk=2", "s=99", "d=16"],
])
def test_a_line(pantile, replay, line):
    call = logged(pantile, *line).strip()
    ((calls, old, new, ratio, text),) = replay(call)
    assert (calls, text) == ("1", re.sub(r" ms=.*", "", call))
    assert old == re.search(r"ms=(.*)", call)[1]
    assert float(new) > 0 and float(ratio) == pytest.approx(float(new) / float(old), rel=0.1, abs=0.01)
    assert replay(*call.split())[0][4] == text


def test_a_log(pantile, replay, tmp_path):
    call = logged(pantile, "hstu", "s=20", "d=8", "threads=1").strip()
    other = logged(pantile, "attention", "h=2", "s=20", "d=8").strip()
    without = re.sub(r" ms=.*", "", call)
    lines = ["server: up", f"{without} ms=0.500", "", other, "WARNING x=1 ms=3", f"{without} ms=0.250", "hstu is a word"]
    (tmp_path / "calls.log").write_text("\n".join(lines))
    first, second = replay("@calls.log")
    assert (first[0], first[1], first[4]) == ("2", "0.250", without)
    assert second[0] == "1" and other.startswith(second[4])


def test_a_summary_is_refused_and_the_rest_runs(pantile, tmp_path):
    many = logged(pantile, "hstu", "b=65", "s=3", "d=4")
    (tmp_path / "calls.log").write_text(many + logged(pantile, "hstu", "s=3", "d=4"))
    done = pantile("replay", "@calls.log", "--reps", "1", "--time", "0")
    assert done.status == 2 and len(done.out.splitlines()) == 3
    assert done.err == ("pantile: lengths: a summary cannot be run again, expected list:, uniform: or lognormal:\n")


def test_refusals(refused, tmp_path):
    (tmp_path / "empty.log").write_text("nothing\n")
    refused("line: empty, expected an operator and key=value words", "replay")
    refused("ms: not in the line, expected a logged call", "replay", "hstu", "s=3", "d=4")
    refused("ms: 'x', expected a finite number", "replay", "hstu", "s=3", "d=4", "ms=x")
    refused("empty.log: no logged call in it", "replay", "@empty.log")
    refused("missing.log: No such file or directory", "replay", "@missing.log")
    refused("'-o': unknown option, see 'pantile help replay'", "replay", "@empty.log", "-o", "md")
