"""Byte sizes and counts as text for people."""

from typing import Final

_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB")


def size_text(size_bytes: int) -> str:
    """``1.5 KiB``: bytes with a binary unit."""
    size = float(size_bytes)
    for unit in _UNITS[:-1]:
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} {_UNITS[-1]}"


def count_text(count: int) -> str:
    """``1,234,567``."""
    return f"{count:,}"


def many_text(count: int, one: str, many: str | None = None) -> str:
    """``1 file``, ``2 files``."""
    return f"{count_text(count)} {one if count == 1 else many or one + 's'}"


def age_text(age_ms: int) -> str:
    """``1.5 d``: a time with its largest unit."""
    for unit, size_ms in (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000)):
        if age_ms >= size_ms:
            return f"{age_ms / size_ms:.1f} {unit}"
    return f"{age_ms / 1000:.1f} s"
