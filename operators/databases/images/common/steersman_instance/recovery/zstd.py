"""Decompression of zstd by the library of PostgreSQL's packages.

Python 3.13 lacks it.

Source: zstd's API, ZSTD_decompressStream.
"""

from __future__ import annotations

import ctypes

LIBRARY = "libzstd.so.1"


class InvalidZstd(ValueError):
    """The data are not one zstd frame, or are too large."""


class _InBuffer(ctypes.Structure):
    _fields_ = (("data", ctypes.c_char_p), ("size", ctypes.c_size_t), ("position", ctypes.c_size_t))


class _OutBuffer(ctypes.Structure):
    _fields_ = (("data", ctypes.c_void_p), ("size", ctypes.c_size_t), ("position", ctypes.c_size_t))


def decompress(data: bytes, limit: int) -> bytes:
    """Return the content of a frame.

    Args:
        limit: bytes that the content may have.

    Raises:
        InvalidZstd: the frame is damaged, cut, or larger than the limit.
        OSError: the library is not installed.
    """
    library = ctypes.CDLL(LIBRARY)
    library.ZSTD_createDStream.restype = ctypes.c_void_p
    library.ZSTD_decompressStream.restype = ctypes.c_size_t
    library.ZSTD_decompressStream.argtypes = (
        ctypes.c_void_p,
        ctypes.POINTER(_OutBuffer),
        ctypes.POINTER(_InBuffer),
    )
    library.ZSTD_freeDStream.argtypes = (ctypes.c_void_p,)
    # One more byte than allowed shows that there is more.
    content = ctypes.create_string_buffer(limit + 1)
    given = _InBuffer(data, len(data), 0)
    found = _OutBuffer(ctypes.addressof(content), limit + 1, 0)
    stream = library.ZSTD_createDStream()
    try:
        left = 1
        while left and given.position < given.size and found.position < found.size:
            left = library.ZSTD_decompressStream(stream, ctypes.byref(found), ctypes.byref(given))
            if library.ZSTD_isError(ctypes.c_size_t(left)):
                raise InvalidZstd("the data are damaged")
    finally:
        library.ZSTD_freeDStream(stream)
    if left or found.position > limit:
        raise InvalidZstd("the data are incomplete" if found.position <= limit else f"more than {limit} bytes")
    return content.raw[: found.position]
