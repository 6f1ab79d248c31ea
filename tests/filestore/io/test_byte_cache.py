"""Values that never change, kept up to a number of bytes."""

import pytest

from filestore.io.byte_cache import ByteCache


def cache_of(most_bytes: int, *, keeps_newest: bool = False) -> ByteCache[str]:
    return ByteCache(most_bytes, size_of=len, keeps_newest=keeps_newest)


def test_the_cache_keeps_its_bound_and_what_was_used_last() -> None:
    cache, made = cache_of(100), []

    def get(name: str, size_bytes: int = 40) -> None:
        def make() -> str:
            made.append(name)
            return name.ljust(size_bytes)

        assert cache.get(name, make).strip() == name
        assert cache.size_bytes <= 100

    for name in ("a", "b", "a", "c", "a", "b"):
        get(name)
    assert made == ["a", "b", "c", "b"], "a was used last when c came, so b went"
    get("large", 101)
    get("large", 101)
    assert made[4:] == ["large", "large"]
    assert cache.size_bytes == 80


def test_a_value_that_is_too_large_is_kept_alone_where_the_newest_counts() -> None:
    cache = cache_of(100, keeps_newest=True)
    cache.keep("small", "x" * 10)
    cache.keep("large", "x" * 500)
    assert (cache.find("small"), len(cache), cache.size_bytes) == (None, 1, 500)
    cache.keep("small", "x" * 10)
    assert (cache.find("large"), len(cache), cache.size_bytes) == (None, 1, 10)


@pytest.mark.parametrize("keeps_newest", [False, True])
def test_bytes_are_those_of_what_is_kept(keeps_newest: bool) -> None:
    cache = cache_of(100, keeps_newest=keeps_newest)
    cache.keep("a", "x" * 10)
    cache.keep("a", "x" * 30)
    assert (len(cache), cache.size_bytes) == (1, 30)
    cache.keep("b", "y" * 5)
    cache.drop("a")
    cache.drop("a")
    assert (cache.find("a"), cache.find("b"), cache.size_bytes) == (None, "yyyyy", 5)
    cache.clear()
    assert (len(cache), cache.size_bytes) == (0, 0)


def test_what_was_not_used_for_long_goes_when_another_value_comes() -> None:
    """A manifest that was merged away, in a process that lives for weeks."""
    now_s = 0.0
    cache: ByteCache[str] = ByteCache(1000, size_of=len, idle_s=10, clock=lambda: now_s)
    for now_s in (0.0, 4.0, 8.0):
        cache.keep(now_s, "x")
    now_s = 9.0
    assert cache.find(0.0) == "x", "used"
    now_s = 100.0
    assert (cache.find(8.0), len(cache)) == ("x", 3), "nothing comes, nothing goes"
    cache.keep("new", "x")
    assert [cache.find(each) for each in (0.0, 4.0, 8.0, "new")] == [None, None, "x", "x"]
    assert cache.size_bytes == 2
