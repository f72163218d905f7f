"""Generated problem lines: what is accepted passes its check, what is refused says why."""

import re

import pytest

ACCEPTED = """
s=33 d=16
b=0 s=3 d=4
b=0 s=3 d=4 layout=dense
b=3 s=0 d=4
b=3 s=0 d=4 layout=dense view=bhsd
d=8 lengths=list:
b=3 h=4 hk=2 s=37 d=20 dv=12
b=3 h=4 hk=1 s=37 d=20 dv=12 layout=dense
b=3 h=4 hk=2 s=37 d=20 dv=12 view=bhsd
b=3 h=4 hk=2 s=37 d=20 dv=12 view=bhsd layout=dense
b=3 h=4 hk=2 s=37 d=20 dv=12 view=gap
b=3 h=4 hk=2 s=37 d=20 dv=12 view=gap layout=dense
b=3 h=4 s=37 d=20 dv=12 view=uvqk
b=3 h=4 s=37 d=20 dv=12 view=uvqk layout=dense
b=5 h=2 lengths=uniform:0,70 d=8 pad=9 view=gap index=i32
b=5 h=2 lengths=lognormal:40,100 d=8 pad=9 lengths_k=uniform:0,90
h=2 lengths=list:0,1,2,3,64 d=8 sk=65
b=5 h=2 sq=9 sk=20 d=8 num_targets=random:9 num_contexts=random:4 target_group_size=3 window_size=5,0 min_full_attn_seq_len=2
b=2 h=2 s=20 d=8 num_targets=list:0,20 num_contexts=7
b=5 h=2 sq=19 sk=20 d=8 seqused_q=random seqused_k=random attn_scale=token layout=dense
b=5 h=2 sq=19 sk=20 d=8 seqused_q=list:0,19,1,2,3 seqused_k=random attn_scale=-0.5 index=i32
b=3 sq=30 sk=20 d=8 rule=none
b=3 sq=30 sk=20 d=8 mask=random mask_batch=b h=3 mask_head=h
b=3 lengths=uniform:0,30 lengths_k=uniform:0,30 d=8 mask=causal mask_batch=b
b=3 s=20 d=8 mask=random:0.1 mask_batch=3 max_seqlen_q=33 max_seqlen_k=44
b=3 s=20 d=8 mask=random:0
b=3 s=20 d=8 rule=local:4,3
b=3 s=20 d=8 rule=local:-1,0 alpha=-2.5 scaling_seqlen=7 seed=99
b=3 s=20 d=8 dtype=f32 threads=3 isa=scalar executor=host cache=cold ms=0.125
b=9 h=3 s=70 d=8 threads=3 executor=pool
b=3 h=4 hk=2 s=37 d=20 dv=12 dtype=f16
b=3 h=4 hk=2 lengths=uniform:0,70 d=20 dv=12 dtype=bf16 view=gap num_targets=random:9
b=3 h=2 lengths=uniform:0,70 d=8 intervals=causal
b=3 h=2 lengths=uniform:0,70 lengths_k=uniform:0,70 d=8 intervals=3 dtype=f16
b=3 h=2 s=37 d=8 bias=dense bias_batch=b bias_head=h bias_scale=0.5 layout=dense
b=3 h=2 sq=20 sk=37 d=8 bias=dense bias_rows=key bias_dtype=same dtype=bf16
b=3 h=2 s=37 d=8 pos_table=h time_table=1 thresholds=5 time_query=own times=random
b=3 h=4 hk=2 sq=20 sk=70 d=16 page_size=7 num_targets=4
b=3 h=4 hk=2 sq=20 sk=70 d=16 page_size=16 num_targets=list:0,4,20 dtype=bf16 num_contexts=3 window_size=30,0
""".strip().splitlines()


@pytest.mark.parametrize("line", ACCEPTED)
def test_accepted(pantile, line):
    done = pantile("check", "hstu", *line.split())
    assert done.err == ""
    assert done.status == 0 and done.out.startswith("PASS: error "), done.out


BACKWARD = """
s=33 d=16
b=0 s=3 d=4
b=3 h=4 hk=2 lengths=uniform:0,50 d=20 dv=12 pad=5 num_targets=random:9 num_contexts=random:4
b=3 h=4 hk=2 s=37 d=20 dv=12 layout=dense dtype=bf16 ds=1
b=3 h=2 s=37 d=8 bias=dense bias_head=h pos_table=h time_table=h ds=1 attn_scale=token
b=3 h=2 s=37 d=8 bias=dense bias_dtype=same dtype=f16 pos_table=1 intervals=2
b=2 h=2 s=37 d=8 mask=random:0.3 view=uvqk
""".strip().splitlines()


@pytest.mark.parametrize("line", BACKWARD)
def test_backward(pantile, line):
    done = pantile("check", "hstu_backward", *line.split())
    assert done.err == ""
    outputs = ["dq", "dk", "dv"]
    outputs += [f"d{bias}" for bias in ("bias", "pos_table", "time_table") if f"{bias}=" in line.replace("bias_", "_")]
    outputs += ["ds"] if "ds=1" in line else []
    bound = {"bf16": "0.016", "f16": "0.002"}.get(dict(w.split("=") for w in line.split()).get("dtype"), "1e-05")
    errors = ", ".join(rf"{name} \S+" for name in outputs)
    assert re.match(rf"PASS: {errors}, bound {bound}, all \d+ rows; ", done.out), done.out


def test_backward_samples_what_takes_too_long(pantile):
    done = pantile("check", "hstu_backward", "h=4", "hk=2", "b=2", "s=1500", "d=96", "num_targets=4", "bias=dense")
    assert re.match(r"PASS: dq \S+, dk \S+, dv \S+, bound 1e-05, \d+ of 18000 rows, sampled; ", done.out), done.out


REFUSED = {
    "d=20": "s: missing, expected s, sq and sk, or lengths",
    "s=20": "d: missing, expected the head size",
    "d=20 sk=5": "s: missing, expected s, sq and sk, or lengths",
    "d=20 s=4 s=5": "s: given twice, expected once",
    "d=20 s=4 sq=5": "sq: given together with s, expected one of them",
    "d=20 lengths=list:4 s=5": "lengths: given together with s, expected one of them",
    "d=20 s=4 foo=5": "foo: unknown key, see 'pantile help hstu'",
    "d=20 foo": "'foo': expected a word of the form key=value",
    "d=20 =5": "'=5': expected a word of the form key=value",
    "d=20 s=": "s: '', expected a whole number from 0 to 68719476736",
    "d=0 s=4": "d: '0', expected a whole number from 1 to 4096",
    "d=20 s=4 b=-2": "b: '-2', expected a whole number from 0 to 16777216",
    "d=20 s=4 b=2x": "b: '2x', expected a whole number from 0 to 16777216",
    "d=20 s=4 b=+2": "b: '+2', expected a whole number from 0 to 16777216",
    "d=20 s=99999999999999999999": "s: '99999999999999999999', expected a whole number from 0 to 68719476736",
    "d=20 s=4 h=3 hk=2": "hk: 2, expected a divisor of h, which is 3",
    "d=20 s=4 dtype=f64": "dtype: 'f64', expected f32, f16 or bf16",
    "d=20 s=4 layout=sparse": "layout: 'sparse', expected jagged or dense",
    "d=20 s=4 view=nice": "view: 'nice', expected plain, uvqk, bhsd or gap",
    "d=20 s=4 view=uvqk h=4 hk=2": "view: uvqk with hk=2, expected hk equal to h",
    "d=20 sq=5 sk=6 view=uvqk": "view: uvqk, expected the same rows for queries and keys",
    "d=20 b=2 lengths=summary:1,2.0,3": "lengths: a summary cannot be run again, expected list:, uniform: or lognormal:",
    "d=20 b=2 lengths=list:1,2,3": "lengths: 3 numbers, expected 2 (b)",
    "d=20 lengths=list:1,,3": "lengths: '1,,3', expected whole numbers from 0 to 68719476736 with commas between",
    "d=20 lengths=uniform:4,2": "lengths: 'uniform:4,2', expected uniform:lo,hi with lo at most hi",
    "d=20 lengths=uniform:4": "lengths: '4', expected uniform:lo,hi, whole numbers from 0 to 68719476736",
    "d=20 lengths=lognormal:0,4": "lengths: '0,4', expected lognormal:mean,max, whole numbers from 1 to 68719476736",
    "d=20 lengths=5": "lengths: '5', expected uniform:lo,hi or lognormal:mean,max or list:a,b,...",
    "d=20 lengths=list:5 layout=dense":
        "lengths: given with layout=dense, expected layout=jagged (dense takes sq, sk and seqused)",
    "d=20 s=5 seqused_q=5": "seqused_q: '5', expected random or list:a,b,...",
    "d=20 b=2 s=5 seqused_q=list:3,9": "seqused_q: 9 for sequence 1, expected 0 to 5",
    "d=20 b=2 s=5 seqused_k=list:3,5":
        "lengths: 5 queries in sequence 0, more than its 3 keys; only rule=none, mask and intervals take that",
    "d=20 sq=5 sk=4":
        "lengths: 5 queries in sequence 0, more than its 4 keys; only rule=none, mask and intervals take that",
    "d=20 s=5 rule=foo": "rule: 'foo', expected causal, none or local:W,R",
    "d=20 s=5 rule=local:5": "rule: '5', expected local:W,R, whole numbers from -1 to 68719476736",
    "d=20 s=5 window_size=1": "window_size: '1', expected left,right, whole numbers from -1 to 68719476736",
    "d=20 s=5 window_size=1,0 rule=causal": "window_size: given together with rule, expected one of them",
    "d=20 s=5 rule=causal mask=causal": "rule: given together with mask, expected one of them",
    "d=20 s=5 num_targets=9": "num_targets: 9 in sequence 0, more than its 5 keys",
    "d=20 s=5 num_targets=2 rule=none":
        "num_targets: given with window_right -1, expected window_right 0 (causal)",
    "d=20 s=5 num_targets=some": "num_targets: 'some', expected a whole number from 0 to 68719476736",
    "d=20 s=5 num_targets=2 mask=random":
        "mask: given together with num_targets; it excludes the rule's options",
    "d=20 s=5 mask=full": "mask: 'full', expected random, random:density or causal",
    "d=20 s=5 mask=random:2": "mask: density '2', expected 0 to 1",
    "d=20 s=5 mask_batch=1": "mask_batch: given without mask, expected mask=random or mask=causal",
    "d=20 s=5 b=2 mask=random mask_batch=3": "mask_batch: 3, expected 1 or 2",
    "d=20 b=2 lengths=list:3,4 mask=causal sk=4":
        "mask_batch: 1 with mask=causal, but sequences differ in keys less queries, expected mask_batch=b",
    "d=20 s=5 alpha=nan": "alpha: 'nan', expected a finite number",
    "d=20 s=5 alpha=1e300": "alpha: '1e300', expected a number that fits fp32",
    "d=20 s=5 attn_scale=x": "attn_scale: 'x', expected a finite number",
    "d=20 s=5 attn_scale=1 scaling_seqlen=4": "attn_scale: given together with scaling_seqlen, expected one of them",
    "d=20 s=5 scaling_seqlen=0": "scaling_seqlen: '0', expected a whole number from 1 to 9223372036854775807",
    "d=4 s=4 bias_head=h": "bias_head: given without bias",
    "d=4 s=4 bias=sparse": "bias: 'sparse', expected dense",
    "d=4 s=4 b=3 bias=dense bias_batch=2": "bias_batch: 2, expected 1 or 3",
    "d=4 s=4 bias=dense bias_scale=1e300": "bias_scale: '1e300', expected a number that fits fp32",
    "d=4 s=4 h=4 pos_table=2": "pos_table: 2, expected 1 or 4",
    "d=4 s=4 times=random": "times: given without time_table",
    "d=4 sq=5 sk=4 rule=none time_table=1":
        "lengths: 5 queries in sequence 0, more than its 4 keys; only rule=none, mask and intervals take that, "
        "without time_table and bias_rows=key",
    "d=4 s=4 intervals=x": "intervals: 'x', expected a whole number from 0 to 1048576",
    "d=4 s=4 intervals=1 mask=random": "intervals: given together with mask, expected one of them",
    "d=4 s=4 ds=1": "ds: given with hstu, expected hstu_backward",
    "d=4 s=4 page_size=0": "page_size: '0', expected a whole number from 1 to 68719476736",
    "d=4 s=4 layout=dense page_size=3":
        "page_size: given with layout=dense, expected layout=jagged (dense takes sq, sk and seqused)",
    "d=4 sq=4 sk=9 page_size=3 num_targets=5":
        "page_size: 5 targets in sequence 0, expected at most its 4 rows and 9 keys",
    "d=4 sq=4 sk=4 page_size=3 seqused_k=random": "seqused_k: given together with page_size, expected one of them",
    "d=4 dv=5 s=4 page_size=2": "v_pages: 5 on axis 3, expected 4 (head size of k)",
    "d=20 s=5 threads=2000": "threads: '2000', expected a whole number from 0 to 1024",
    "d=20 s=5 isa=sse": "isa: 'sse', expected auto, scalar, avx2, avx512, neon or avx512bf16",
    "d=20 s=5 executor=openmp": "executor: 'openmp', expected auto, serial, pool or host",
    "d=20 s=5 max_seqlen_k=4": "max_seqlen_k: 4, but a sequence has 5 rows",
    "d=4000 h=65536 b=1000 s=68719476736": "q: more than 2^63 elements",
    "d=1000 s=3 b=1 lengths_k=list:68719476736 h=64": "k: no memory for 17592186044416000 bytes",
    "d=2000 s=5": "q: head size 2000, expected 1 to 1024",
}


@pytest.mark.parametrize("line", REFUSED)
def test_refused(refused, line):
    refused(REFUSED[line], "check", "hstu", *line.split())


def test_unknown_operator(refused):
    refused("'gdn_decode': unknown operator, see 'pantile help'", "check", "gdn_decode", "s=5")


def test_too_many_words(refused):
    refused("x64: more than 64 words", "check", "hstu", *[f"x{i}=1" for i in range(65)])


def test_levels_that_are_not_here(pantile):
    levels = pantile("info").out.splitlines()[2].split()[1:]
    for isa in ("scalar", "avx2", "avx512", "neon", "avx512bf16"):
        done = pantile("check", "hstu", "s=40", "d=12", f"isa={isa}")
        if isa in levels:
            assert done.status == 0 and re.search(rf"; {isa}, ", done.out)
        else:
            assert (done.status, done.out) == (2, "")
            assert done.err == f"pantile: options.isa: {isa}, which this CPU lacks or PTL_CPU excludes\n"


def test_what_ran(pantile):
    def ran(*words):
        return pantile("check", "hstu", "s=40", "d=12", "isa=scalar", *words).out.split("; ")[1]

    assert ran("executor=serial", "threads=5") == "scalar, serial, 1 thread\n"
    assert ran("executor=pool", "threads=5") == "scalar, pool, 5 threads\n"
    assert ran("executor=host", "threads=2") == "scalar, host, 2 threads\n"
    assert ran("threads=1") == "scalar, serial, 1 thread\n"


def test_long_problems_are_sampled(pantile):
    done = pantile("check", "hstu", "h=64", "s=3000", "d=8", "rule=local:3,0")
    assert done.status == 0
    assert re.match(r"PASS: error \S+, bound 5e-06, \d+ of 192000 rows, sampled; ", done.out)


def test_results_depend_on_the_problem_alone(pantile, tmp_path):
    """Contents belong to their place: view, padding and threads change nothing, bit for bit; the seed does."""
    line = ["hstu", "b=3", "h=2", "lengths=list:70,0,31", "d=12", "isa=scalar"]

    def result(*words):
        assert pantile("run", *line, *words, "out=@out.npy").status == 0
        return (tmp_path / "out.npy").read_bytes()

    plain = result()
    assert plain == result("view=bhsd") == result("view=gap", "threads=3") == result("view=uvqk", "index=i32")
    assert result("pad=2")[128:len(plain)] == plain[128:]
    assert plain != result("seed=2")


def test_mismatch(pantile):
    """Sums that overflow fp32 but not double: the one honest way to fail."""
    done = pantile("check", "hstu", "s=40", "d=8", "alpha=3e38", "attn_scale=2", "isa=scalar", "threads=1")
    assert (done.status, done.err) == (1, "")
    assert done.out == "FAIL: error inf, bound 5e-06, all 40 rows; scalar, serial, 1 thread\n"
