"""Trees of files to decide about, literal or random."""

from collections.abc import Sequence

from hypothesis import strategies as st

from lsm.levels import Levels, SortedFile


def file(
    name: str,
    *,
    level: int = 0,
    size: int = 100,
    keys: tuple[int, int] = (0, 99),
    sequences: tuple[int, int] = (0, 0),
    deletes: int = 0,
    created: int = 0,
) -> SortedFile:
    """A file with a one-column key."""
    return SortedFile(
        file_name=name,
        level=level,
        size_bytes=size,
        row_count=10,
        delete_count=deletes,
        min_key=(keys[0],),
        max_key=(keys[1],),
        min_sequence_number=sequences[0],
        max_sequence_number=sequences[1],
        creation_time_ms=created,
    )


def tree(*runs: tuple[int, int], level_count: int = 6) -> Levels:
    """A tree of (level, size) runs, newest first, each one file over all keys."""
    newest = len(runs)
    files = [
        file(f"f{index}", level=level, size=size, sequences=(newest - index, newest - index))
        for index, (level, size) in enumerate(runs)
    ]
    return Levels.of(files, level_count=level_count)


@st.composite
def trees(draw: st.DrawFn, *, level_count: int = 5) -> Levels:
    """A legal tree: overlapping files on level 0, disjoint ones below, deeper rows older."""
    files: list[SortedFile] = []
    sequence = 1000
    for index in range(draw(st.integers(0, 7))):
        low = draw(st.integers(0, 90))
        sequence -= 10
        files.append(
            file(
                f"l0-{index}",
                size=draw(st.integers(1, 1000)),
                keys=(low, draw(st.integers(low, 99))),
                sequences=(sequence, sequence + 9),
                deletes=draw(st.sampled_from([0, 0, 1])),
            )
        )
    for level in range(1, level_count):
        bounds = draw(st.lists(st.integers(0, 99), unique=True, max_size=8).map(sorted))
        for number, (low, high) in enumerate(zip(bounds[::2], bounds[1::2], strict=False)):
            files.append(
                file(
                    f"l{level}-{number}",
                    level=level,
                    size=draw(st.integers(1, 3000)),
                    keys=(low, high),
                    sequences=(100 - level, 100 - level),
                    deletes=draw(st.sampled_from([0, 0, 1])),
                )
            )
    return Levels.of(files, level_count=level_count)


def names(files: Sequence[SortedFile]) -> list[str]:
    """File names, in order."""
    return [each.file_name for each in files]
