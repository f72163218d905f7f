"""Lines that PTL_VERBOSE=1 prints can be checked again as they are."""

import re

import pytest

LINES = """
s=33 d=16
b=3 h=4 hk=2 s=37 d=20 dv=12 layout=dense
b=5 h=2 lengths=uniform:0,70 d=8 pad=9 view=gap index=i32
b=5 h=2 lengths=uniform:0,50 lengths_k=uniform:0,90 d=8 num_targets=random:9 num_contexts=random:4 target_group_size=3
b=4 s=40 d=8 window_size=5,0 num_contexts=3 min_full_attn_seq_len=2
b=4 sq=19 sk=20 d=8 seqused_q=random seqused_k=random attn_scale=token layout=dense
b=4 s=20 d=8 mask=random attn_scale=0.25
b=2 s=20 d=8 rule=none alpha=0.3
b=0 s=4 d=8 seqused_q=random num_targets=random:3
b=2 s=20 d=8 dtype=bf16 intervals=3
b=2 h=2 s=20 d=8 dtype=f16 bias=dense bias_head=h bias_rows=key bias_dtype=same bias_scale=0.5
b=2 h=2 s=20 d=8 pos_table=h time_table=1 thresholds=5 time_query=own
b=2 h=2 sq=5 sk=20 d=8 page_size=3 num_targets=2
""".strip().splitlines()

BACKWARD = """
b=5 h=4 hk=2 lengths=uniform:0,50 d=8 dv=4 num_targets=random:9 num_contexts=random:4
b=2 h=2 s=20 d=8 dtype=bf16 bias=dense pos_table=1 ds=1 layout=dense
""".strip().splitlines()

NSA = """
nsa_compress hk=2 b=3 lengths=list:0,31,300 d=12 page_size=7 mode=weighted pe=1 dtype=bf16
nsa_compress hk=2 s=99 d=8 block=8 stride=4
nsa_append hk=2 b=3 lengths=list:5,31,300 sq=4 d=12 dv=8
nsa_compressed_attention h=6 hk=2 b=2 s=300 sq=9 d=12 dv=8 page_size=5 score=ascend order=score
nsa_select hk=2 s=300 sq=9 d=1 topk=5 n_init=2
nsa_attend h=4 hk=2 s=700 sq=9 d=16 page_size=16 window=40
nsa_combine h=4 s=50 d=16 gate_act=sigmoid
nsa_forward h=4 hk=2 lengths=list:900,3 lengths_q=list:1,3 d=16 score=plus pool=max scale=0.3 dtype=f16
nsa_decode h=4 hk=2 s=99 d=16 block=8 stride=4 select_block=8
attention h=4 hk=2 s=99 d=16 layout=dense
attention_decode h=4 hk=2 b=2 s=99 d=16 window=5 dtype=bf16
""".strip().splitlines()


def words(line):
    return dict(word.split("=", 1) for word in line.split()[1:])


@pytest.mark.parametrize("op, line", [("hstu", x) for x in LINES] + [("hstu_backward", x) for x in BACKWARD] +
                         [line.split(" ", 1) for line in NSA])
def test_a_logged_call_runs_again(pantile, op, line):
    first = pantile("check", op, *line.split(), PTL_VERBOSE="1")
    assert first.status == 0
    logged = first.err.splitlines()
    called = {"attention_decode": "attention"}.get(op, op)
    assert len(logged) == 1 and logged[0].startswith(f"{called} ")
    again = pantile("check", *logged[0].split(), PTL_VERBOSE="1")
    assert again.status == 0, again.err
    before, after = words(logged[0]), words(again.err)
    before.pop("ms"), after.pop("ms")
    assert before == after


def test_a_summary_does_not(pantile, refused):
    done = pantile("check", "hstu", "b=65", "s=3", "d=4", PTL_VERBOSE="1")
    assert "lengths=summary:3,3.0,3" in done.err
    refused("lengths: a summary cannot be run again, expected list:, uniform: or lognormal:", "check",
            *done.err.split())


def test_quiet_without_it(pantile):
    assert pantile("check", "hstu", "s=3", "d=4").err == ""
    assert re.search(r" ms=\d+\.\d{3}\n$", pantile("check", "hstu", "s=3", "d=4", PTL_VERBOSE="1").err)
