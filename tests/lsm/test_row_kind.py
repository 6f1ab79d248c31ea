"""Row kinds."""

from lsm.row_kind import ROW_KIND_OF_SYMBOL, RowKind


def test_kinds_are_known_by_number_and_symbol() -> None:
    assert [(int(kind), kind.symbol) for kind in RowKind] == [(0, "+I"), (1, "-U"), (2, "+U"), (3, "-D")]
    assert all(ROW_KIND_OF_SYMBOL[kind.symbol] is kind for kind in RowKind)


def test_minus_takes_back() -> None:
    assert [kind.symbol for kind in RowKind if kind.is_retract] == ["-U", "-D"]
