"""Jagged operations on tensors: the same values as the NumPy functions, and gradients by differences."""

import numpy as np
import pantile
import pantile.torch as pt
import pytest
import torch

LEFT, RIGHT = torch.tensor([0, 3, 3, 5]), torch.tensor([0, 1, 4, 6])
TIMES = torch.tensor([0, 3600, 7200, 50, 50])


def numbers(*shape):
    return torch.randn(shape, requires_grad=True)


# name: (function of tensors, inputs); the function takes tensors or arrays.
CASES = {
    "to_padded": (lambda m, x: m.jagged_to_padded(x, LEFT, 2, pad=0.5), [(5, 2)]),
    "to_padded_end": (lambda m, x: m.jagged_to_padded(x, LEFT, 4, align="end"), [(5, 2, 3)]),
    "to_jagged": (lambda m, x: m.padded_to_jagged(x, LEFT), [(3, 2, 2)]),
    "to_jagged_with_room": (lambda m, x: m.padded_to_jagged(x, LEFT, 7), [(3, 4, 2)]),
    "resize": (lambda m, x: m.jagged_resize(x, LEFT, RIGHT, align="end"), [(5, 2)]),
    "concat": (lambda m, x, y: m.jagged_concat(x, y, LEFT, RIGHT, n_prefix=1), [(5, 2), (6, 2)]),
    "concat_dense": (lambda m, x, y: m.jagged_concat(x, y, None, RIGHT), [(3, 2, 2), (6, 2)]),
    "split": (lambda m, x: m.jagged_split(x, LEFT, RIGHT, n_prefix=2), [(11, 2)]),
    "split_dense": (lambda m, x: m.jagged_split(x, None, RIGHT, n_left=1), [(9, 2)]),
    "replace_last": (lambda m, x, y: m.jagged_replace_last(x, y, RIGHT, torch.tensor([0, 1, 2, 4])), [(6, 2), (4, 2)]),
    "replace_last_dense": (lambda m, x, y: m.jagged_replace_last(x, y, RIGHT), [(6, 2), (3, 1, 2)]),
    "broadcast_add": (lambda m, x, d: m.jagged_broadcast_add(x, d, LEFT), [(5, 2), (3, 2)]),
    "broadcast_add_dense": (lambda m, x, d: m.jagged_broadcast_add(x, d), [(3, 4, 2), (3, 2)]),
    "sum": (lambda m, x: m.jagged_sum(x, LEFT), [(5, 2)]),
    "sum_dense": (lambda m, x: m.jagged_sum(x), [(3, 4, 2)]),
    "position": (lambda m, x, w: m.jagged_position_time(x, w, LEFT, num_targets=1, alpha=0.5), [(5, 2), (4, 2)]),
    "position_time": (lambda m, x, w, t: m.jagged_position_time(x, w, LEFT, ts_w=t, timestamps=TIMES, num_contexts=1),
                      [(5, 2), (4, 2), (12, 2)]),
}


@pytest.mark.parametrize("name", CASES)
def test_values(name):
    fn, shapes = CASES[name]
    inputs = [numbers(*shape) for shape in shapes]
    got, expected = fn(pt, *inputs), fn(pantile, *(x.detach().numpy() for x in inputs))
    for a, b in zip(got, expected) if isinstance(got, tuple) else [(got, expected)]:
        assert a.shape == b.shape and np.array_equal(a.detach().numpy(), b)


@pytest.mark.filterwarnings("ignore:Input #. requires gradient and is not a double")
@pytest.mark.parametrize("name", CASES)
def test_gradients(name):
    # Everything here is linear, so wide steps lose nothing.
    fn, shapes = CASES[name]
    inputs = [numbers(*shape) for shape in shapes]
    torch.autograd.gradcheck(lambda *x: fn(pt, *x), inputs, eps=0.25, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("name", ["to_padded", "concat", "split", "replace_last", "broadcast_add", "sum",
                                  "position_time"])
def test_compile(name):
    fn, shapes = CASES[name]
    inputs = [numbers(*shape) for shape in shapes]

    def squares(*x):
        # How many rows a split makes is in the offsets, which a program does not look into.
        result = pt.jagged_split(*x, LEFT, RIGHT, n_left=5, n_right=6) if name == "split" else fn(pt, *x)
        return sum((y * y).sum() for y in (result if isinstance(result, tuple) else [result]))

    # The backend that traces as inductor does, without its compiler.
    compiled = torch.compile(squares, fullgraph=True, dynamic=True, backend="aot_eager")
    for eager, other in zip(*(torch.autograd.grad(f(*inputs), inputs) for f in (squares, compiled))):
        assert torch.equal(eager, other)


def test_opcheck():
    x, y, w, t = numbers(5, 2), numbers(6, 2), numbers(4, 2), numbers(12, 2)
    ops, check = torch.ops.pantile, torch.library.opcheck
    utils = ("test_schema", "test_autograd_registration", "test_faketensor", "test_aot_dispatch_dynamic")
    for operator, arguments, named in [
            (ops.jagged_complete_cumsum, (torch.tensor([3, 0, 2]), [4]), {}),
            (ops.jagged_resize, (x, [3, 2, 2]), dict(x_offsets=LEFT)),
            (ops.jagged_concat, (x, y, [11, 2], LEFT, RIGHT, 1), {}),
            (ops.jagged_split, (numbers(11, 2), [5, 2], [6, 2], 0, LEFT, RIGHT), {}),
            (ops.jagged_replace_last, (y, numbers(3, 1, 2), RIGHT), {}),
            (ops.jagged_broadcast_add, (x, numbers(3, 2), LEFT), {}),
            (ops.jagged_sum, (x, [3, 2], LEFT), {}),
            (ops.jagged_position_time_forward, (x, w, LEFT), dict(ts_w=t, timestamps=TIMES)),
            (ops.jagged_position_time_backward, (x.detach(), w.detach(), LEFT), dict(want_dpos_w=True))]:
        check(operator.default, arguments, named, test_utils=utils)


@pytest.mark.parametrize("dtype", [torch.int64, torch.uint8, torch.bool, torch.bfloat16])
def test_copies_of_any_type(dtype):
    x = torch.arange(5).to(dtype)
    assert pt.jagged_to_padded(x, LEFT, 2).tolist() == [x[:2].tolist(), [0, 0], x[3:].tolist()]


def test_padded_rows_have_no_gradient():
    x = numbers(5, 2)
    pt.jagged_to_padded(x, LEFT, 2).sum().backward()
    assert x.grad[:, 0].tolist() == [1, 1, 0, 1, 1]


def test_slices():
    wide = torch.randn(5, 6, requires_grad=True)
    got = pt.jagged_to_padded(wide[:, 2:4], LEFT, 3)
    assert torch.equal(got, pt.jagged_to_padded(wide[:, 2:4].contiguous(), LEFT, 3))
    got.sum().backward()
    assert wide.grad.sum(0).tolist() == [0, 0, 5, 5, 0, 0]


@pytest.mark.parametrize("call, sentence", [
    (lambda x: pt.jagged_to_padded(x, LEFT.float(), 2), "x.offsets: f32"),
    (lambda x: pt.jagged_to_padded(x.double(), LEFT, 2), "x: an element type that is none of"),
    (lambda x: pt.jagged_to_padded(x, LEFT, -2), "result 0: a negative extent on axis 1"),
    (lambda x: pt.jagged_concat(x, x.int(), LEFT, LEFT), "right: i32"),
    (lambda x: pt.jagged_to_padded(x[:, ::2], LEFT, 2), "x: stride 2 on the last axis, expected 1"),
    (lambda x: pt.jagged_sum(x, torch.tensor([0, 4, 3, 5])), "x.offsets: entry 2 is 3, less than 4"),
])
def test_refusals(call, sentence):
    with pytest.raises(RuntimeError) as refused:
        call(torch.randn(5, 4))
    assert str(refused.value).startswith(sentence), refused.value
