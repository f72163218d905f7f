"""ladder.py on what `pantile demo --md` prints, shortened."""

import ladder

DEMO = """pantile 0.1.0 on some CPU, level avx2, 2 threads

## HSTU attention forward, fp32 but for (f) and (g), causal, 4 heads of 64

### Sampled histories: 943 users, 97,742 events

|  | time | runs | vs (a) | total | above i/o | error | vs (d) |
|:---|---:|---:|---:|---:|---:|---:|---:|
| (a) naive, padded, scores in memory | 5.19 s | 1 | 1.00x | 1.67 GiB | 727 MiB | 2.2e-07 | 3.0e-07 |
| (b) fused, padded, mask an input | 6.09 s | 1 | 0.85x | 985 MiB | 0.48 MiB | 2.2e-07 | 3.0e-07 |
| (e) (d), three stages interleaved | 148 ms | 10 | 35.1x | 79 MiB | 0.48 MiB | 2.0e-07 | same bits |

(a) to (c) take the users in 2 batches of up to 94, each padded to its longest.

### The article's shape: (b,n,s,d) = (3,4,4096,64), b scaled down from 16 to stay short

|  | time | runs | vs (a) | total | above i/o | error | vs (d) |
|:---|---:|---:|---:|---:|---:|---:|---:|
| (a) naive, padded, scores in memory | 3.79 s | 1 | 1.00x | 1.55 GiB | 770 MiB | 1.8e-07 | same bits |
| (c) fused, padded, mask a rule | 1.08 s | 2 | 3.49x | 49 MiB | 0.56 MiB | 1.8e-07 | same bits |

## NSA: one token over 64K, fp32, 64 query heads on 1 kv head, D 192 and 128

|  | time | runs | vs full | GFLOP/s | memory | error |
|:---|---:|---:|---:|---:|---:|---:|
| full causal attention | 188 ms | 3 | 1.00x | 14 | 80 MiB | 6.4e-08 |
| NSA, the whole decode step | 13.6 ms | 3 | 13.8x | 17 | 6.99 MiB | 6.9e-07 |

|  | time | runs | vs (a) | above i/o | out | score |
|:---|---:|---:|---:|---:|---:|---:|
| (a) S, P in memory, score by sums | 5.6 ms | 3 | 1.00x | 2.20 MiB | 1.9e-07 | 5.6e-09 |
| (b) score a product with a block W | 5.6 ms | 3 | 1.00x | 1.51 MiB | 1.9e-07 | 5.6e-09 |
| (f) ptl_nsa_compressed_attention | 2.6 ms | 3 | 2.12x | 1.28 MiB | same bits | - |
| (g) selected, sliding: two calls | 1.3 ms | 3 | 1.00x | 0.50 MiB | same bits | - |
| (h) both in one call | 1.1 ms | 3 | 1.19x | 0.71 MiB | same bits | - |
"""


def test_ladders():
    found = ladder.ladders(DEMO)
    assert [(one.title[:20], [(name[:3], round(power, 6)) for name, power in one.rungs]) for one in found] == [
        ("Sampled histories: 9", [("(a)", 100), ("(b)", 85), ("(e)", 3510)]),
        ("The article's shape:", [("(a)", 100), ("(c)", 349)]),
        ("NSA: one token over ", [("(a)", 100), ("(b)", 100), ("(f)", 212)]),
        ("NSA: one token over ", [("(g)", 100), ("(h)", 119)])]
    assert found[0].rungs[0][0] == "(a) naive, padded, scores in memory"


def test_text_without_a_ladder():
    assert ladder.ladders("# Title\n\n| a | b |\n|---|---|\n| (a) x | 1 |\n") == []


def test_figures(tmp_path):
    paths = [path for _, path in ladder.figures(DEMO, tmp_path)]
    assert [path.name for path in paths] == [f"ladder-{i}.png" for i in (1, 2, 3, 4)]
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in paths)
