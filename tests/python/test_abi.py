"""The ctypes mirrors against the headers, by a compiled program; the words for enumerators."""

import ctypes
import os
import subprocess

import pantile
import pytest
from conftest import ROOT
from pantile import _abi, _library

STRUCTS = {"ptl_tensor": _abi.Tensor, "ptl_jagged": _abi.Jagged, "ptl_hstu_params": _abi.HstuParams,
           "ptl_hstu_grads": _abi.HstuGrads, "ptl_hstu_kv_append_params": _abi.HstuKvAppend,
           "ptl_jagged_position_time_params": _abi.JaggedPositionTime,
           "ptl_attention_params": _abi.AttentionParams, "ptl_nsa_params": _abi.NsaParams,
           "ptl_nsa_compress_params": _abi.NsaCompressParams, "ptl_nsa_append_params": _abi.NsaAppendParams,
           "ptl_context_options": _library._ContextOptions, "ptl_context_info": _library._ContextInfo}


def test_structs_are_those_of_the_headers(tmp_path):
    lines = [f'printf("{name} %zu\\n", sizeof(struct {name}));' for name in STRUCTS]
    lines += [f'printf("{name}.{field[0]} %zu\\n", offsetof(struct {name}, {field[0]}));'
              for name, struct in STRUCTS.items() for field in struct._fields_]
    source = tmp_path / "layout.c"
    body = "\n".join(lines)
    source.write_text(f"#include <pantile/pantile.h>\n#include <stdio.h>\nint main(void) {{\n{body}\n}}\n")
    subprocess.run([os.environ.get("CC", "cc"), "-I", ROOT / "include", source, "-o", tmp_path / "layout"], check=True)
    printed = subprocess.run([tmp_path / "layout"], capture_output=True, text=True, check=True).stdout
    for line in printed.splitlines():
        name, number = line.split()
        struct, _, field = name.partition(".")
        mirror = STRUCTS[struct]
        assert int(number) == (getattr(mirror, field).offset if field else ctypes.sizeof(mirror)), name


@pytest.mark.parametrize("word", ["executor", "isa"])
def test_context_words(word):
    with pytest.raises(pantile.Error, match=f"^{word}: 'x', expected one of auto") as refused:
        pantile.Context(**{word: "x"})
    assert refused.value.status == "PTL_ERR_PARAM"
