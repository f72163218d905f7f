"""The shared library: where it is, errors, contexts, calls. Knows no array type."""

from __future__ import annotations

import ctypes
import os
import threading
from pathlib import Path
from typing import Any, Callable

from . import _abi

# PANTILE_LIBRARY_DIR: a build folder instead of the libraries in the package.
FOLDER = Path(os.environ.get("PANTILE_LIBRARY_DIR") or Path(__file__).parent).resolve()

EXECUTORS = ("auto", "serial", "pool", "host")
LEVELS = ("auto", "scalar", "avx2", "avx512", "neon", "avx512bf16")


class Error(ValueError):
    """What the library refused: str() is its sentence, `status` its code ("PTL_ERR_SHAPE")."""

    __module__ = "pantile"

    def __init__(self, status: str, message: str):
        super().__init__(message)
        self.status = status


def load(name: str) -> ctypes.CDLL:
    path = FOLDER / name
    if not path.exists():
        raise ImportError(f"pantile: {path} does not exist; install the package, or name a build folder "
                          "with PANTILE_LIBRARY_DIR")
    return ctypes.CDLL(str(path))


LIBRARY = load("libpantile.so")
LIBRARY.ptl_version.restype = LIBRARY.ptl_message.restype = ctypes.c_char_p
LIBRARY.ptl_status_name.restype = LIBRARY.ptl_isa_name.restype = ctypes.c_char_p
for _operator in _abi.OPERATORS.values():
    _operator.load(LIBRARY)


def check(status: int) -> None:
    if status:
        raise Error(LIBRARY.ptl_status_name(status).decode(), LIBRARY.ptl_message().decode())


class _ContextOptions(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_size_t), ("executor", ctypes.c_int), ("num_threads", ctypes.c_int32),
                ("isa", ctypes.c_int), ("parallel_for", ctypes.c_void_p), ("host", ctypes.c_void_p)]


class _ContextInfo(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_size_t), ("executor", ctypes.c_int), ("isa", ctypes.c_int),
                ("num_threads", ctypes.c_int32), ("scratch_bytes", ctypes.c_size_t)]


class Context:
    """Threads and scratch memory of NumPy calls. Calls on one context are serialised; without one, a call
    uses the context of its own thread.

    num_threads 0: PTL_NUM_THREADS, else what the machine allows. executor "auto", "serial" or "pool". isa
    "auto" or a level of info()["levels"].
    """

    def __init__(self, num_threads: int = 0, executor: str = "auto", isa: str = "auto"):
        self._as_parameter_ = ctypes.c_void_p()
        options = _ContextOptions()
        LIBRARY.ptl_context_options_init(ctypes.byref(options))
        options.num_threads = num_threads
        options.executor = word("executor", executor, EXECUTORS[:3])
        options.isa = word("isa", isa, LEVELS)
        check(LIBRARY.ptl_context_create(ctypes.byref(self._as_parameter_), ctypes.byref(options)))

    def __del__(self) -> None:
        LIBRARY.ptl_context_destroy(self._as_parameter_)

    def info(self) -> dict[str, Any]:
        """executor, level, threads, scratch_bytes."""
        raw = _ContextInfo(ctypes.sizeof(_ContextInfo))
        check(LIBRARY.ptl_context_get_info(self, ctypes.byref(raw)))
        return {"executor": EXECUTORS[raw.executor], "level": LEVELS[raw.isa], "threads": raw.num_threads,
                "scratch_bytes": raw.scratch_bytes}


_of_thread = threading.local()


def context_of_thread() -> Context:
    try:
        return _of_thread.context
    except AttributeError:
        _of_thread.context = Context()
        return _of_thread.context


def info() -> dict[str, Any]:
    """What runs here: version, levels that the CPU has, and the executor, level and threads of this
    thread's context."""
    levels = [name for i, name in enumerate(LEVELS) if i and LIBRARY.ptl_isa_available(i)]
    return {"version": LIBRARY.ptl_version().decode(), "levels": levels, **context_of_thread().info()}


def word(name: str, value: str, words: tuple[str, ...]) -> int:
    """The number of an enumerator by its word."""
    if value not in words:
        raise Error("PTL_ERR_PARAM", f"{name}: {value!r}, expected one of {', '.join(words)}")
    return words.index(value)


def _field(name: str, kind: _abi.Kind, value: Any, describe: Callable[[str, Any], _abi.Tensor]) -> Any:
    """The value as it lies in a frame."""
    if kind.is_number:
        try:
            return _abi.NUMBERS[kind](value)
        except TypeError:
            raise Error("PTL_ERR_PARAM", f"{name}: {value!r}, expected a number") from None
    tensor = describe(name, value)
    return ctypes.c_void_p(tensor.data) if kind is _abi.Kind.DATA else tensor


def call(operator: _abi.Operator, context: Context | None, values: dict[str, Any],
         describe: Callable[[str, Any], _abi.Tensor]) -> None:
    """Calls the operator with the values (arguments and results, by name) that are not None.
    describe(name, array) makes the struct of an array."""
    frame = operator.frame.from_buffer_copy(operator.template)
    address = ctypes.addressof(frame)
    for name, value in values.items():
        if value is None:
            continue
        offset, kind = operator.places[name]
        field = _field(name, kind, value, describe)
        ctypes.memmove(address + offset, ctypes.byref(field), ctypes.sizeof(field))
    for source, target, size in operator.copies:
        ctypes.memmove(address + target, address + source, size)
    parameters = [ctype.from_address(address + offset) if by_value else ctypes.c_void_p(address + offset)
                  for offset, ctype, by_value in operator.parameters]
    if operator.context:
        parameters.insert(0, context or context_of_thread())
    check(operator.function(*parameters))
