"""zstd and snappy as PyArrow has them, for blocks and payloads that say nothing or little of their size."""

import pyarrow as pa

_ZSTD_LEVEL = 3
_MOST_EXPANSION = 64
"""Of snappy: a copy of 64 bytes takes 3."""
_VARINT_BYTES = 5
_MOST_UNPACKED = 64 << 20
_MOST_RATIO = 1024


def pack_zstd(body: bytes, level: int = _ZSTD_LEVEL) -> bytes:
    """One frame, with its size in the header."""
    packed: bytes = pa.Codec("zstd", compression_level=level).compress(body, asbytes=True)
    return packed


def unpack_zstd(packed: bytes) -> bytes:
    """The content of frames; those written by Java lack their size.

    Raises: ValueError: cut off, no zstd, or far more than what metadata and rows unpack to.
    """
    if not packed:
        raise ValueError("zstandard frame is truncated")
    try:
        with pa.CompressedInputStream(pa.BufferReader(packed), "zstd") as stream:
            most = most_unpacked(packed)
            body: bytes = stream.read(most + 1)
    except (OSError, pa.ArrowException) as error:
        raise ValueError(f"zstandard frame cannot be read: {error}") from error
    if len(body) > most:
        raise ValueError(f"zstandard frame unpacks to too much: bytes={len(packed)} most={most}")
    return body


def most_unpacked(packed: bytes) -> int:
    """How many bytes may be in a block: what is written is far below, and a bomb far above."""
    return max(_MOST_UNPACKED, _MOST_RATIO * len(packed))


def pack_snappy(body: bytes) -> bytes:
    """A raw block of snappy, which begins with its size."""
    packed: bytes = pa.Codec("snappy").compress(body, asbytes=True)
    return packed


def unpack_snappy(packed: bytes) -> bytes:
    """The content of a raw block. Raises: ValueError: no snappy, or another size than it says."""
    size = _size_of_snappy(packed)
    if size > _MOST_EXPANSION * len(packed):
        raise ValueError(f"snappy block says that it is too large: bytes={len(packed)} size={size}")
    try:
        body: bytes = pa.Codec("snappy").decompress(packed, size, asbytes=True)
    except (OSError, pa.ArrowException) as error:
        raise ValueError(f"snappy block cannot be read: {error}") from error
    return body


def _size_of_snappy(packed: bytes) -> int:
    """The number at the start: seven bits per byte, low bits first."""
    size = 0
    for index, byte in enumerate(packed[:_VARINT_BYTES]):
        size |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return size
    raise ValueError("snappy block has no size")
