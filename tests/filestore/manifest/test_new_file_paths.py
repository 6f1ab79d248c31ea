"""How a new data file gets one of the table's external places."""

from collections import Counter

import pytest

from filestore.hashing.murmur import murmur3
from filestore.manifest.new_file_paths import NewFilePaths, is_in_directory_of, own_directories
from filestore.options.table.places import ExternalPlaces, external_places
from filestore.options.table_options import TableOptions
from lsm.errors import InvalidInputError

PLACES = "data-file.external-paths"


def places_by(strategy: str, paths: str = "file:///a,file:///b", **more: str) -> ExternalPlaces | None:
    texts = {f"{PLACES}.{key.replace('_', '-')}": text for key, text in more.items()}
    return external_places(TableOptions({PLACES: paths, f"{PLACES}.strategy": strategy, **texts}))


@pytest.mark.parametrize(
    ("text", "hashed"),
    [("", 0), ("a", 1009084850), ("hello", 613153351), ("world", 2**32 - 74040069), ("test", 2**32 - 1167338989)],
)
def test_the_hash_of_a_name_is_guavas(text: str, hashed: int) -> None:
    assert murmur3(text.encode()) == hashed


def test_places_take_turns() -> None:
    place = NewFilePaths("/t/bucket-0", outside=["file:/a", "file:/b", "file:/c"])
    roots = [str(place.external_path(f"data-{number}.orc"))[:7] for number in range(9)]
    assert roots[:3] * 3 == roots
    assert sorted(roots[:3]) == ["file:/a", "file:/b", "file:/c"]


def test_places_are_chosen_by_weight_and_the_same_for_a_name() -> None:
    def chosen() -> list[str]:
        place = NewFilePaths("/t/bucket-0", outside=["/a", "/b", "/c"], weights=[1, 2, 5])
        return [str(place.external_path(f"data-{number}.orc"))[:2] for number in range(8000)]

    counts = Counter(chosen())
    assert all(abs(counts[root] - 1000 * weight) < 150 for root, weight in (("/a", 1), ("/b", 2), ("/c", 5)))
    assert chosen() == chosen()


def test_hashed_names_are_spread_over_directories_as_in_java() -> None:
    place = NewFilePaths("/t/bucket-0", outside=["file:/a/p=x/bucket-0"], is_hashed=True)
    assert place.external_path("hello") == "file:/a/p=x/bucket-0/1011/1111/1010/01000111/hello"


def test_without_places_files_are_in_the_bucket() -> None:
    assert NewFilePaths("/t/bucket-0").external_path("x") is None
    assert places_by("none", "not even an address") is None
    assert external_places(TableOptions({f"{PLACES}.strategy": "round-robin"})) is None


def test_the_options_say_which_places_are_used() -> None:
    assert places_by("round-robin", " file:///a/ , s3://b/c,, ") == ExternalPlaces(("file:///a", "s3://b/c"))
    assert places_by("specific-fs", "file:///a,S3://b,s3://c", specific_fs="s3") == ExternalPlaces(("S3://b", "s3://c"))
    assert places_by("weight-robin", weights="1, 3,") == ExternalPlaces(("file:///a", "file:///b"), (1, 3))
    assert places_by("weight-robin") == ExternalPlaces(("file:///a", "file:///b"))
    assert places_by("weight-robin", "file:///a", weights="7") == ExternalPlaces(("file:///a",))
    assert places_by("entropy-inject") == ExternalPlaces(("file:///a", "file:///b"), is_hashed=True)


@pytest.mark.parametrize(
    "paths",
    [
        *("/a", "a", "file:///", "s3://", ":/a", "/a:b/c"),
        *("file:///a/../b", "file:///a//b", "file:///a,,file:///b", "file:///a\0"),
    ],
)
def test_an_address_that_is_none_is_refused(paths: str) -> None:
    with pytest.raises(InvalidInputError, match=rf"option={PLACES} value=.* fix="):
        places_by("round-robin", paths)
    with pytest.raises(InvalidInputError, match=rf"option={PLACES} value=.* fix="):
        TableOptions.parse({PLACES: paths, f"{PLACES}.strategy": "round-robin"})


@pytest.mark.parametrize("weights", ["1", "1,2,3", "0,1", "-1,2", "x,2", "1.5,2", ""])
def test_weights_that_fit_no_paths_are_refused(weights: str) -> None:
    with pytest.raises(InvalidInputError, match=rf"option={PLACES}.weights value="):
        places_by("weight-robin", weights=weights or " ")


@pytest.mark.parametrize("file_system", [None, "oss"])
def test_a_file_system_without_a_path_is_refused(file_system: str | None) -> None:
    with pytest.raises(InvalidInputError, match=rf"option={PLACES}.specific-fs value={file_system}"):
        places_by("specific-fs", **({} if file_system is None else {"specific_fs": file_system}))


def test_a_table_has_directories_of_its_own() -> None:
    places = ExternalPlaces(("s3://x", "s3://y/db.db/t", "s3://y/adb.db/t"))
    assert own_directories(places, table="db.t", table_id="i/d") == (
        "s3://x/db.db/t/i%2Fd", "s3://y/db.db/t/i%2Fd", "s3://y/adb.db/t/db.db/t/i%2Fd",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("path", "is_own"),
    [
        ("file:/x/db.db/t/bucket-0/f", True),
        ("/x/a/db.db/t/f", True),
        ("/x/db.db/t", False),
        ("/x/db.db/t2/f", False),
        ("/x/adb.db/t/f", False),
        ("/x/db.db/t/../u/f", False),
        ("/y/db.db/t/f", False),
        ("/xy/db.db/t/f", False),
        ("", False),
    ],
)
def test_a_file_in_it_is_below_an_allowed_root_too(path: str, is_own: bool) -> None:
    assert is_in_directory_of("db.t", path, ["/x"]) == is_own
    assert not is_in_directory_of("db.t", path, [])
