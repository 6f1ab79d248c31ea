"""zstd and snappy: other libraries read what is written, and the other way round; damage is an error."""

import io
import zlib

import cramjam
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from filestore.format import avro_blocks, compression
from filestore.format.compression import pack_snappy, pack_zstd, unpack_snappy, unpack_zstd

REPEATED = st.builds(lambda piece, count: piece * count, st.binary(), st.integers(0, 2000))
BODIES = st.one_of(st.binary(max_size=300), REPEATED)


@pytest.mark.sweep
@given(BODIES)
def test_other_libraries_read_and_write_the_same(body: bytes) -> None:
    assert zstandard.decompress(pack_zstd(body)) == body
    assert unpack_zstd(zstandard.compress(body)) == body
    assert unpack_zstd(pack_zstd(body, 9)) == body
    assert bytes(cramjam.snappy.decompress_raw(pack_snappy(body))) == body
    assert unpack_snappy(bytes(cramjam.snappy.compress_raw(body))) == body


def test_frames_without_their_size_are_read() -> None:
    """As Java's stream writes them."""
    body = bytes(range(256)) * 1000
    packed = io.BytesIO()
    with zstandard.ZstdCompressor(write_content_size=False).stream_writer(packed, closefd=False) as stream:
        stream.write(body)
    assert zstandard.get_frame_parameters(packed.getvalue()).content_size != len(body)
    assert unpack_zstd(packed.getvalue()) == body


@pytest.mark.parametrize("cut", [0, 1, 5, -4, -1])
def test_what_is_cut_off_is_refused(cut: int) -> None:
    body = b"some text, " * 100
    for pack, unpack in ((pack_zstd, unpack_zstd), (pack_snappy, unpack_snappy)):
        with pytest.raises(ValueError, match=r"zstandard frame|snappy block"):
            unpack(pack(body)[:cut])


@pytest.mark.parametrize("claimed", [b"\xff\xff\xff\xff\x0f", b"\xff\xff\xff\xff\xff\xff", b"\x80\x80\x01"])
def test_a_snappy_block_that_claims_too_much_takes_no_memory(claimed: bytes) -> None:
    with pytest.raises(ValueError, match="snappy block"):
        unpack_snappy(claimed + b"xx")


def test_a_small_block_does_not_unpack_to_all_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compression, "_MOST_UNPACKED", 1 << 20)
    monkeypatch.setattr(compression, "_MOST_RATIO", 8)
    body = bytes(8 << 20)
    squeezed = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    deflated = squeezed.compress(body) + squeezed.flush()
    for unpack, packed in ((unpack_zstd, pack_zstd(body)), (avro_blocks._inflate, deflated)):
        with pytest.raises(ValueError, match="unpacks to too much"):
            unpack(packed)
    assert unpack_zstd(pack_zstd(bytes(1 << 20))) == bytes(1 << 20)
