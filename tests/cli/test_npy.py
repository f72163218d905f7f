"""What `q=@file.npy` takes and refuses. All files are made byte by byte or by NumPy."""

import io
import struct

import numpy as np
import pytest

GOOD = np.arange(24, dtype=np.float32).reshape(3, 2, 4)


def npy(header, data=b"", version=(1, 0)):
    """A file with this header, whatever it says."""
    text = header.encode("latin1")
    size = struct.pack("<H" if version[0] == 1 else "<I", len(text))
    return b"\x93NUMPY" + bytes(version) + size + text + data


def header(descr="'<f4'", order="False", shape="(3, 2, 4)"):
    return f"{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}, }}\n"


def saved(array):
    f = io.BytesIO()
    np.save(f, array)
    return f.getvalue()


@pytest.fixture
def line(tmp_path):
    """line(bytes): a line whose q is this file."""
    np.save(tmp_path / "k.npy", GOOD)

    def write(content):
        (tmp_path / "q.npy").write_bytes(content)
        return ["run", "hstu", "q=@q.npy", "k=@k.npy", "v=@k.npy", "seq_offsets_q=list:0,3", "scaling_seqlen=1"]

    return write


ACCEPTED = {
    "version 1": npy(header(), GOOD.tobytes()),
    "version 2": npy(header(), GOOD.tobytes(), (2, 0)),
    "version 3": npy(header(), GOOD.tobytes(), (3, 0)),
    "by numpy": saved(GOOD),
    "other order and spacing": npy("{\"shape\":(3,2,4),\"fortran_order\":False,\"descr\":\"<f4\"}", GOOD.tobytes()),
    "comma behind the shape": npy(header(shape="(3, 2, 4,)"), GOOD.tobytes()),
}


@pytest.mark.parametrize("content", ACCEPTED.values(), ids=ACCEPTED)
def test_accepted(pantile, line, content):
    done = pantile(*line(content), "out=@out.npy")
    assert (done.status, done.out, done.err) == (0, "out.npy: (3, 2, 4) float32\n", "")


REFUSED = {
    "empty": (b"", "not a .npy file"),
    "text": (b"hello, this is no array", "not a .npy file"),
    "zip": (b"PK\x03\x04" + bytes(60), "not a .npy file"),
    "version 0": (npy(header(), version=(0, 0)), ".npy version 0, expected 1 to 3"),
    "version 4": (npy(header(), version=(4, 0)), ".npy version 4, expected 1 to 3"),
    "no header length": (b"\x93NUMPY\x01\x00\x10", "ends inside its header"),
    "half a header": (b"\x93NUMPY\x01\x00\x80\x00{'descr'", "ends inside its header"),
    "a header of 4 GB": (b"\x93NUMPY\x02\x00\xff\xff\xff\xff", "a header of 4294967295 bytes, expected at most 65536"),
    "a zero in the header": (npy(header() + "\0"), "a zero byte in its header"),
    "Fortran order": (saved(np.asfortranarray(GOOD)),
                      "Fortran order, expected C order; save np.ascontiguousarray of it"),
    "big-endian": (saved(GOOD.astype(">f4")), "big-endian ('>f4'), expected little-endian"),
    "float64": (saved(GOOD.astype("f8")), "float64, expected float32; convert it with astype('float32')"),
    "complex": (saved(GOOD.astype("c8")),
                "type '<c8', expected float32, float16, int32, int64, uint8, bool or uint16 (bf16)"),
    "text array": (saved(np.array(["ab"])),
                   "type '<U2', expected float32, float16, int32, int64, uint8, bool or uint16 (bf16)"),
    "structured": (saved(np.zeros(3, [("a", "f4")])), "a structured array, expected plain numbers"),
    "five axes": (saved(np.zeros((1, 1, 3, 2, 4), np.float32)), "more than 4 axes, expected at most 4"),
    "truncated": (saved(GOOD)[:-1], "truncated, 95 of 96 bytes of data"),
    "no data": (npy(header()), "truncated, 0 of 96 bytes of data"),
    "trailing bytes": (saved(GOOD) + b"abc", "3 bytes behind its data, expected none"),
    "an exabyte": (npy(header(shape="(1073741824, 1073741824)")),
                   "truncated, 0 of 4611686018427387904 bytes of data"),
    "more than 64 bits": (npy(header(shape="(4294967296, 4294967296)")), "more than 2^63 bytes"),
    "an extent of 2^64": (npy(header(shape="(18446744073709551616,)")), "an extent above 2^63"),
}
NO_DICTIONARY = "its header is no dictionary of descr, fortran_order and shape"
for name, text in {
    "no dictionary": "[1, 2]", "empty dictionary": "{}", "no shape": "{'descr': '<f4', 'fortran_order': False}",
    "a key twice": header().replace("'shape'", "'descr': '<f4', 'shape'"), "unknown key": header().replace("descr", "dtype"),
    "negative extent": header(shape="(-1, 2)"), "a number as shape": header(shape="(3)"), "a list as shape": header(shape="[3]"),
    "no comma": header(shape="(3 2 4)"), "unclosed": header()[:-4], "words behind": header() + "x",
    "order as number": header(order="0"), "escape in a string": header(descr=r"'\x3cf4'"), "code": header(shape="(3, 2, 2+2)"),
    "long string": header(descr="'" + "f" * 1000 + "'"), "no colon": header().replace("': False", "' False"),
}.items():
    REFUSED[name] = (npy(text, GOOD.tobytes()), NO_DICTIONARY)


@pytest.mark.parametrize("content, sentence", REFUSED.values(), ids=REFUSED)
def test_refused(refused, line, content, sentence):
    refused(f"q.npy: {sentence}", *line(content))


def test_wrong_types_are_refused_by_name(refused, line):
    refused("q: uint16, expected float32 or float16, or dtype=bf16 on the line", *line(saved(GOOD.astype("u2"))))
    refused("q: f32, but the line says dtype=bf16", *line(saved(GOOD)), "dtype=bf16")
    refused("k: f32, but q is f16; all must be alike", *line(saved(GOOD.astype("f2"))))
    refused("q: i32, expected f32, f16 or bf16", *line(saved(GOOD.astype("i4"))))
    refused("q: shape (3,), expected 3 axes (jagged) or 4 (dense)", *line(saved(GOOD[:, 0, 0].copy())))
    refused("q: shape (), expected 3 axes (jagged) or 4 (dense)", *line(saved(np.float32(1))))


def test_not_a_regular_file(refused, line, tmp_path):
    words = line(saved(GOOD))
    (tmp_path / "folder").mkdir()
    refused("folder: not a .npy file", *[w.replace("q=@q.npy", "q=@folder") for w in words])


def test_what_is_written(pantile, line, tmp_path):
    assert pantile(*line(saved(GOOD)), "out=@out.npy").status == 0
    content = (tmp_path / "out.npy").read_bytes()
    start = b"\x93NUMPY\x01\x00\x76\x00{'descr': '<f4', 'fortran_order': False, 'shape': (3, 2, 4), }"
    assert content.startswith(start) and content[127:128] == b"\n" and len(content) == 128 + 96
    assert content == saved(np.load(tmp_path / "out.npy"))
