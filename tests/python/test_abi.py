"""The ctypes mirrors against the headers, by a compiled program; the torch schemas in a file to be read."""

import ctypes
import os
import subprocess

import pytest
from conftest import ROOT

from pantile import _abi, _library

STRUCTS = {"ptl_tensor": _abi.Tensor, "ptl_jagged": _abi.Jagged, "ptl_hstu_params": _abi.HstuParams,
           "ptl_hstu_grads": _abi.HstuGrads, "ptl_hstu_kv_append_params": _abi.HstuKvAppend,
           "ptl_jagged_position_time_params": _abi.JaggedPositionTime,
           "ptl_context_options": _library._ContextOptions, "ptl_context_info": _library._ContextInfo}


def test_structs_are_those_of_the_headers(tmp_path):
    lines = [f'printf("{name} %zu\\n", sizeof(struct {name}));' for name in STRUCTS]
    lines += [f'printf("{name}.{field[0]} %zu\\n", offsetof(struct {name}, {field[0]}));'
              for name, struct in STRUCTS.items() for field in struct._fields_]
    source = tmp_path / "layout.c"
    source.write_text("\n".join(["#include <pantile/pantile.h>", "#include <stdio.h>", "int main(void) {", *lines, "}\n"]))
    subprocess.run([os.environ.get("CC", "cc"), "-I", ROOT / "include", source, "-o", tmp_path / "layout"], check=True)
    printed = subprocess.run([tmp_path / "layout"], capture_output=True, text=True, check=True).stdout
    for line in printed.splitlines():
        name, number = line.split()
        struct, _, field = name.partition(".")
        mirror = STRUCTS[struct]
        assert int(number) == (getattr(mirror, field).offset if field else ctypes.sizeof(mirror)), name


@pytest.mark.parametrize("word, status", [("executor", "PTL_ERR_PARAM"), ("isa", "PTL_ERR_PARAM")])
def test_context_words(word, status):
    import pantile
    with pytest.raises(pantile.Error, match=f"^{word}: 'x', expected one of auto") as refused:
        pantile.Context(**{word: "x"})
    assert refused.value.status == status
