"""Shapes and inputs of the comparison: what is counted, by brute force."""

import numpy as np
import pytest

import cases
from cases import Hstu, Nsa

SMALL = [Hstu("plain", 3, 8, 8, (7, 7), (7, 7)), Hstu("ragged", 2, 8, 4, (5, 1, 9), (5, 1, 9)),
         Hstu("delta", 1, 8, 8, (3, 3), (8, 5)), Hstu("targets", 2, 8, 8, (9,), (9,), targets=4),
         Hstu("all targets but one", 1, 8, 8, (4, 6), (4, 6), targets=3), Hstu("full", 2, 8, 8, (6,), (4,), full=True)]


@pytest.mark.parametrize("case", SMALL, ids=lambda case: case.name)
def test_pairs(case):
    seen = sum(int(case.valid(b, np.arange(sq), np.arange(sk)).sum())
               for b, (sq, sk) in enumerate(zip(case.lengths_q, case.lengths_k)))
    assert case.pairs() == case.heads * seen
    assert case.flops("any") == case.pairs() * 2 * (case.d + case.dv)


def test_valid_is_causal_and_targets_see_the_history_and_themselves():
    case = Hstu("", 1, 8, 8, (4,), (5,), targets=2)
    assert case.valid(0, np.arange(4), np.arange(5)).astype(int).tolist() == [
        [1, 1, 0, 0, 0], [1, 1, 1, 0, 0], [1, 1, 1, 1, 0], [1, 1, 1, 0, 1]]


def test_a_training_step_counts_five_more_products():
    step = Hstu("", 2, 8, 4, (6,), (6,), backward=True)
    assert step.flops("any") == step.pairs() * 2 * ((8 + 4) + (3 * 8 + 2 * 4))


def tokens(case, t):
    """Of a row at position t: compressed keys, tokens of the selected blocks, of the window."""
    compressed = sum(i * case.stride + case.block <= t + 1 for i in range(t + 1))
    own = t // case.select_block
    blocks = range(own + 1) if own < case.topk else [*range(case.topk - 1), own]
    selected = sum(min((j + 1) * case.select_block, t + 1) - j * case.select_block for j in blocks)
    return compressed + selected + min(case.window, t + 1)


@pytest.mark.parametrize("s, sq", [(40, 40), (1500, 600), (3000, 1)])
def test_keys_seen(s, sq):
    case = Nsa("", s, sq, 4, 1, 8, 8)
    assert case.keys_seen("pantile") == sum(tokens(case, t) for t in range(s - sq, s))
    assert case.keys_seen("full_sdpa") == sum(t + 1 for t in range(s - sq, s))


def test_lognormal():
    lengths = cases.lognormal(64, 500, 4096)
    assert lengths == cases.lognormal(64, 500, 4096)
    assert len(lengths) == 64 and 1 <= min(lengths) and max(lengths) <= 4096
    assert 0.8 * 500 < np.mean(lengths) < 1.2 * 500
    assert list(lengths) != sorted(lengths)
    assert max(cases.lognormal(64, 500, 600)) == 600


@pytest.mark.parametrize("bits, rounded", [
    (0x3F800000, 0x3F80),  # 1, exact
    (0x3F807FFF, 0x3F80), (0x3F808001, 0x3F81),  # just below and above the middle
    (0x3F808000, 0x3F80), (0x3F818000, 0x3F82),  # the middle: to even
    (0xBF818000, 0xBF82), (0x3FFFFFFF, 0x4000), (0x80000000, 0x8000)])
def test_to_bf16(bits, rounded):
    assert cases.to_bf16(np.array([bits], np.uint32).view(np.float32))[0] == rounded


def test_bf16_inputs_are_numbers_of_bf16():
    arrays = Hstu("", 2, 8, 8, (5,), (5,), dtype="bf16").inputs()
    for array in arrays.values():
        assert array.dtype == np.float32
        assert np.array_equal(cases.from_bf16(cases.to_bf16(array)), array)


def test_names_are_unique():
    for chosen in (cases.TINY, cases.QUICK, cases.FULL):
        names = [case.name for case in chosen]
        assert len(set(names)) == len(names)
