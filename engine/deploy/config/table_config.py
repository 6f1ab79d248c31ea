"""Tables in a job file."""

from collections.abc import Mapping, Sequence
from typing import Self

from pydantic import Field, field_validator, model_validator

from engine.deploy.config.section import Options, Section, hint, problem
from engine.types.sql_types import parse_sql_type
from filestore.types.data_types import DataField
from lsm.errors import InvalidInputError


class ColumnConfig(Section):
    """A column: its SQL type, and perhaps a comment. A plain text is the type alone."""

    type: str
    """SQL type: BIGINT, STRING, DECIMAL(10, 2), TIMESTAMP_LTZ(3), ARRAY<INT>, ROW<a INT>; NOT NULL may follow."""
    comment: str | None = None
    """Shown to users."""

    @model_validator(mode="before")
    @classmethod
    def _text_is_type(cls, given: object) -> object:
        return {"type": given} if isinstance(given, str) else given

    @field_validator("type")
    @classmethod
    def _is_a_type(cls, given: str) -> str:
        try:
            parse_sql_type(given)
        except InvalidInputError as error:
            raise problem("not a type", facts=f"value={given} reason={error} fix=an SQL type") from error
        return given


Columns = Mapping[str, ColumnConfig]


class TableConfig(Section):
    """A table that the job makes if it does not exist. If it exists, it must have these columns and keys."""

    columns: Columns
    """Columns in their order: name and type."""
    primary_key: tuple[str, ...] = ()
    """Rows of the same key replace each other; none: every row is kept. It holds the partition columns."""
    partition_by: tuple[str, ...] = ()
    """One directory for each value of these columns."""
    options: Options = Field(default_factory=dict)
    """Options of the table, as Paimon names them."""
    comment: str | None = None
    """Shown to users."""

    @model_validator(mode="after")
    def _keys_are_columns(self) -> Self:
        if not self.columns:
            raise problem("a table has columns", key="columns", facts="fix=name one")
        for key, names in (("primary_key", self.primary_key), ("partition_by", self.partition_by)):
            for name in names:
                if name not in self.columns:
                    raise problem("no such column", key=key, facts=f"column={name} {hint(name, self.columns)}")
        return self


def data_fields_of(columns: Columns, *, not_null: Sequence[str] = ()) -> list[DataField]:
    """The columns as the table format describes them; those of ``not_null`` are never null."""
    return [
        DataField(id=index, name=name, type=parse_sql_type(_type_text(name, spec, not_null)), description=spec.comment)
        for index, (name, spec) in enumerate(columns.items())
    ]


def _type_text(name: str, spec: ColumnConfig, not_null: Sequence[str]) -> str:
    is_said = spec.type.upper().endswith("NOT NULL")
    return f"{spec.type} NOT NULL" if name in not_null and not is_said else spec.type
