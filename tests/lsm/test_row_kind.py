"""Row kinds."""

from lsm.row_kind import ROW_KIND_SYMBOLS, RowKind


def test_kinds_are_known_by_number_and_symbol() -> None:
    assert [(int(kind), kind.symbol) for kind in RowKind] == [(0, "+I"), (1, "-U"), (2, "+U"), (3, "-D")]
    assert ROW_KIND_SYMBOLS.to_pylist() == ["+I", "-U", "+U", "-D"]


def test_minus_takes_back() -> None:
    assert [kind.symbol for kind in RowKind if kind.is_retract] == ["-U", "-D"]
