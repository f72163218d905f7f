"""The list of contenders: what each is called, what it computes, which cases it takes, and about how much memory."""

from dataclasses import dataclass, field
from typing import Callable

import hstu
import nsa


@dataclass(frozen=True)
class Contender:
    name: str
    title: str
    make: Callable
    computes: str = "the same"  # or softmax: a yardstick of another function; or full: what NSA is to replace
    dtypes: tuple = ("f32", "bf16")
    backward: bool = False
    squares: float = 0  # matrices of scores that it holds at once
    needs: str = ""  # an option of versus.py that it needs, handed to make
    bf16_products: bool = False  # in torch: slow without instructions for them
    single_blas: bool = False  # brings its own threads
    allocators: tuple = ("default", "reuse")  # where one is known to be the better, that
    without: frozenset = field(default_factory=frozenset)  # of the traits of a case

    def takes(self, case):
        return (case.dtype in self.dtypes and (self.backward or not case.backward) and
                not self.without & traits(case))


def traits(case):
    """What some contenders cannot do, or need not."""
    if case.family == "nsa":
        return set()
    found = {"one user"} if len(case.lengths_q) == 1 else set()
    return found | {"delta"} if case.lengths_q != case.lengths_k else found


BOTH, DEFAULT, REUSE = ("default", "reuse"), ("default",), ("reuse",)

HSTU = (
    Contender("pantile", "pantile, its Python package", hstu.pantile, backward=True),
    Contender("eager", "PyTorch eager, padded, as in the article", hstu.eager, allocators=REUSE, bf16_products=True,
              backward=True, squares=4),
    Contender("eager_in_place", "PyTorch eager, padded, in place", hstu.eager_in_place, allocators=REUSE,
              bf16_products=True, squares=1.5),
    Contender("compiled", "torch.compile of eager", hstu.compiled, allocators=REUSE, bf16_products=True, backward=True,
              squares=2),
    Contender("loop_eager", "loop over users, eager (in place)", hstu.loop_eager, bf16_products=True, backward=True,
              squares=3, without=frozenset({"one user"})),
    Contender("loop_tiled", "loop over users, heads and tiles of torch calls", hstu.loop_tiled, bf16_products=True,
              backward=True),
    Contender("loop_tiled_f32", "loop over tiles of torch calls in fp32, of bf16", hstu.loop_tiled_f32, dtypes=("bf16",),
              backward=True),
    Contender("openblas", "loop over users, heads and tiles of OpenBLAS (NumPy)", hstu.openblas, dtypes=("f32",),
              backward=True, single_blas=True),
    Contender("onnxruntime", "ONNX Runtime, MatMul and QuickGelu graph, padded", hstu.onnxruntime, allocators=DEFAULT,
              dtypes=("f32",), squares=3),
    Contender("generative_recommenders", "generative-recommenders' PyTorch reference", hstu.generative_recommenders,
              allocators=REUSE, bf16_products=True, backward=True, squares=4, needs="generative_recommenders",
              without=frozenset({"delta"})),
    Contender("sdpa", "torch SDPA, padded: softmax", hstu.sdpa, computes="softmax", backward=True, allocators=DEFAULT),
    Contender("flex", "torch flex_attention: softmax", hstu.flex, computes="softmax", squares=0.5, allocators=DEFAULT),
    Contender("loop_sdpa", "loop over users, SDPA: softmax", hstu.loop_sdpa, computes="softmax", backward=True,
              allocators=DEFAULT, without=frozenset({"one user"})))

NSA = (
    Contender("pantile", "pantile, its Python package", nsa.pantile),
    Contender("nsa_eager", "NSA in PyTorch, eager", nsa.nsa_eager, bf16_products=True, squares=1),
    Contender("nsa_compiled", "NSA in PyTorch, compiled", nsa.nsa_compiled, bf16_products=True, squares=1),
    Contender("full_sdpa", "full attention, torch SDPA", nsa.full_sdpa, computes="full", allocators=DEFAULT),
    Contender("full_matmul", "full attention, matmul and softmax", nsa.full_matmul, computes="full", allocators=REUSE,
              bf16_products=True, squares=3),
    Contender("full_pantile", "full attention, pantile", nsa.pantile_full, computes="full", allocators=DEFAULT))


def contenders_of(case):
    return [c for c in (HSTU if case.family == "hstu" else NSA) if c.takes(case)]


def titles(family):
    return {c.name: c.title for c in (HSTU if family == "hstu" else NSA)}
