"""Random tables, rows, conditions and changes as texts of SQL, of all types, from one seed."""

import random
from dataclasses import dataclass
from typing import Final

TYPES: Final = {
    "TINYINT": ("0Y", "1Y", "-1Y", "127Y", "-128Y", "9Y"),
    "INT": ("0", "1", "-1", "2147483647", "-2147483648", "16777217", "9"),
    "BIGINT": ("0L", "1L", "9007199254740993L", "9007199254740992L", "9223372036854775807L", "-1L", "9L"),
    "FLOAT": ("0.1F", "1.1F", "0.5F", "float('-0.0')", "16777216F", "float('NaN')", "float('Infinity')", "1e-40F"),
    "DOUBLE": ("0.1D", "1.1D", "0.5D", "double('-0.0')", "9.99D", "double('NaN')", "double('-Infinity')", "5e-324D",
               "9007199254740992D"),
    "DECIMAL(10,2)": ("9.99", "0.10", "5.00", "-9.99", "99999999.99", "0.50", "0.00"),
    "DECIMAL(38,18)": ("CAST('0.0000001' AS DECIMAL(38,18))", "CAST(1.1 AS DECIMAL(38,18))",
                       "CAST(0 AS DECIMAL(38,18))",
                       "CAST('12345678901234567890.000000000000000001' AS DECIMAL(38,18))"),
    "BOOLEAN": ("true", "false"),
    "STRING": ("''", "'a'", "'A'", "'b'", "'é'", "'a '", "'9.99'", "'2024-01-31'", "repeat('x', 40)"),
    "VARCHAR(5)": ("''", "'a'", "'abcde'", "'é'"),
    "DATE": ("DATE '1970-01-01'", "DATE '2024-01-31'", "DATE '1969-12-31'", "DATE '2024-02-29'"),
    "TIMESTAMP": ("TIMESTAMP '2024-01-31 12:30:00.123456'", "TIMESTAMP '1970-01-01 00:00:00'",
                  "TIMESTAMP '1969-12-31 23:59:59.999'", "TIMESTAMP '2024-03-31 02:30:00'"),
    "TIMESTAMP_NTZ": ("TIMESTAMP_NTZ '2024-01-31 12:30:00.123456'", "TIMESTAMP_NTZ '1970-01-01 00:00:00'",
                      "TIMESTAMP_NTZ '2024-03-31 02:30:00'"),
    "BINARY": ("X''", "X'00'", "X'FF00'", "CAST('a' AS BINARY)"),
}  # fmt: skip
EARLY: Final = "TIMESTAMP '1969-12-31 23:59:59.999'"
"""ORC files hold times before 1970 in whole seconds."""
STRUCT: Final = "STRUCT<x: INT, y: STRING, z: STRUCT<w: DOUBLE>>"
LIST: Final = "ARRAY<INT>"
MAP: Final = "MAP<STRING, INT>"
NESTED: Final = {
    STRUCT: (
        "named_struct('x', 1, 'y', 'a', 'z', named_struct('w', 0.1D))",
        "named_struct('x', CAST(NULL AS INT), 'y', CAST(NULL AS STRING), 'z', CAST(NULL AS STRUCT<w: DOUBLE>))",
        "named_struct('x', 9, 'y', '', 'z', named_struct('w', CAST(NULL AS DOUBLE)))",
        "named_struct('x', 1, 'y', 'b', 'z', named_struct('w', double('NaN')))",
    ),
    LIST: ("array(1, 2)", "CAST(array() AS ARRAY<INT>)", "array(9, CAST(NULL AS INT))"),
    MAP: ("map('a', 1)", "CAST(map() AS MAP<STRING, INT>)", "map('a', CAST(NULL AS INT), 'b', 9)"),
}
_NUMBERS: Final = ("TINYINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "DECIMAL(10,2)", "DECIMAL(38,18)")
_TEXTS: Final = ("STRING", "VARCHAR(5)")
_TIMES: Final = ("DATE", "TIMESTAMP", "TIMESTAMP_NTZ")
_PEERS: Final = {each: group for group in (_NUMBERS, _TEXTS, _TIMES) for each in group}
_MORE: Final = (
    "9.99", "1.1", "0.1", "3", "2.5", "1e-1", "9007199254740993D", "CAST(2.5 AS INT)", "CAST(9.995 AS DECIMAL(10,2))",
    "CAST(9.99 AS FLOAT)", "CAST(1.1F AS DOUBLE)", "-1.1", "1E-7BD", "'9'", "CAST('9.99' AS DOUBLE)", "128", "NULL",
    "double('Infinity')", "float('NaN')",
)  # fmt: skip
_OPS: Final = ("=", "<", "<=", ">", ">=", "<>", "<=>", "=")
PARAMETERS: Final = (9.99, 0.1, 9, 1.1, "a", True, None, 2**53 + 1, float("nan"), 0.5)


@dataclass(frozen=True)
class Column:
    """Of a table."""

    name: str
    type: str

    @property
    def leaves(self) -> list["Column"]:
        """The column or, of a struct, its parts: what is compared."""
        if self.type == STRUCT:
            found = [Column(f"{self.name}.x", "INT"), Column(f"{self.name}.y", "STRING")]
            return [*found, Column(f"{self.name}.z.w", "DOUBLE")]
        if self.type == LIST:
            return [Column(f"{self.name}[0]", "INT"), Column(f"size({self.name})", "INT")]
        if self.type == MAP:
            return [Column(f"{self.name}['a']", "INT")]
        return [self]


class Draw:
    """What one seed gives."""

    def __init__(self, seed: int) -> None:
        """Of a seed."""
        self.random = random.Random(seed)
        self.parameter: object = None
        self.left_out: frozenset[str] = frozenset()  # values that the table's files cannot hold

    def pick(self, values: "tuple[str, ...] | list[str]") -> str:
        """One of some texts."""
        return self.random.choice(values)

    def chance(self, share: float) -> bool:
        """True in a share of calls."""
        return self.random.random() < share

    def columns(self) -> list[Column]:
        """The key, the partition and some others, of types at random."""
        kinds = self.random.sample(sorted(TYPES), 5) + self.random.sample(sorted(NESTED), 1)
        return [Column("id", "INT"), Column("p", "INT"), *(Column(f"c{at}", kind) for at, kind in enumerate(kinds))]

    def value(self, kind: str, null: float = 0.2) -> str:
        """A constant of exactly a type."""
        if self.chance(null):
            return f"CAST(NULL AS {kind})"
        return f"CAST({self.pick([each for each in (TYPES | NESTED)[kind] if each not in self.left_out])} AS {kind})"

    def row(self, columns: list[Column], key: int) -> str:
        """The values of a row."""
        values = {"id": str(key), "p": str(key % 3)}
        return ", ".join(f"{values.get(each.name) or self.value(each.type)} AS {each.name}" for each in columns)

    def rows(self, columns: list[Column], keys: list[int]) -> str:
        """A query of rows of exactly the columns' types, of different keys."""
        found = " UNION ALL ".join(f"SELECT {self.row(columns, key)}" for key in keys)
        return found or f"SELECT {self.row(columns, 0)} LIMIT 0"

    def constant(self, kind: str) -> str:
        """Something to compare a column of a type with: of its type, of one beside it, of any form."""
        if kind in _NUMBERS and self.chance(0.4):
            return self.pick(_MORE)
        if self.chance(0.08):
            self.parameter = self.random.choice(PARAMETERS)
            return ":p"
        peer = self.pick(_PEERS.get(kind, (kind,))) if self.chance(0.5) else kind
        return self.pick(TYPES[peer]) if self.chance(0.95) else "NULL"

    def comparison(self, columns: list[Column]) -> str:
        """One column and constants."""
        column = self.random.choice([leaf for each in columns for leaf in each.leaves])
        name, form = column.name, self.random.random()
        if form < 0.5:
            return f"{name} {self.pick(_OPS)} {self.constant(column.type)}"
        if form < 0.6:
            return f"{self.constant(column.type)} {self.pick(_OPS)} {name}"
        if form < 0.7:
            return f"{name} BETWEEN {self.constant(column.type)} AND {self.constant(column.type)}"
        if form < 0.85:
            values = ", ".join(self.constant(column.type) for _ in range(self.random.randint(1, 3)))
            return f"{name} {'NOT ' * self.chance(0.3)}IN ({values})"
        if form < 0.95:
            return f"{name} IS {'NOT ' * self.chance(0.5)}NULL"
        return f"{column.name} = {self.random.choice([each.name for each in columns if each.type == 'INT'])}"

    def condition(self, columns: list[Column], depth: int = 2) -> str:
        """A condition; it has one parameter at most, ``parameter`` is its value."""
        if depth == 0 or self.chance(0.5):
            return self.comparison(columns)
        form = self.random.random()
        first = self.condition(columns, depth - 1)
        if form < 0.3:
            return f"NOT ({first})"
        second = self.condition(columns, depth - 1)
        return f"({first}) {'AND' if form < 0.65 else 'OR'} ({second})"

    def plain_condition(self, columns: list[Column]) -> str:
        """A condition without a parameter."""
        while ":p" in (found := self.condition(columns)):
            pass
        return found

    def assigned(self, columns: list[Column]) -> dict[str, str]:
        """What an UPDATE sets: a column or a field of a struct, by name; values are computed from the row."""
        column = self.random.choice(columns[2:])
        if column.type == STRUCT and self.chance(0.6):
            return {f"{column.name}.x": self.pick(["5", f"{column.name}.x + 1", "CAST(NULL AS INT)", "id"])}
        if column.type in ("INT", "BIGINT", "DOUBLE") and self.chance(0.5):
            return {column.name: f"CASE WHEN {column.name} < 100 THEN {column.name} + 1 ELSE {column.name} END"}
        return {column.name: self.value(column.type)}
