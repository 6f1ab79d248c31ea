"""The options of a table, parsed once: past this module there are no option texts and no second defaults.

Sizes are in bytes, durations in milliseconds. ``parse`` in its strict form is for tables that are being created or
altered; opening a table that another engine made uses ``strict=False``, which only insists on what reading and writing
depend on.
Source: Paimon CoreOptions; ``log.*``, ``compaction.style`` and its three options: FLIP-188; the rest is Fluvial's.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from filestore.options.not_built import NOT_BUILT, no_effect, not_built, seems_to_decide
from filestore.options.option import ROWS, At, Option, Stored, check_text
from filestore.options.parsing import verbatim
from filestore.options.rules import ALIASES, COMPUTED_PREFIX, ELSEWHERE, FREE_PREFIXES
from filestore.options.stored_expressions import check_computed
from filestore.options.table.columns import FieldOptions
from filestore.options.table.combinations import check_together
from filestore.options.table.groups import SCHEMA_VERSION, TableValues, split_field_key
from lsm.errors import InvalidInputError
from lsm.nearest_names import close_names
from lsm.secret_names import shown_text

SESSION_PREFIX: Final = "table-storage."


class TableOptions(TableValues):
    """The options in force for a table."""

    @classmethod
    def parse(
        cls,
        options: Mapping[str, str],
        *,
        strict: bool = True,
        primary_key: Sequence[str] = (),
        schema_version: int = SCHEMA_VERSION,
    ) -> "TableOptions":
        """Understand the options of a table.

        Args:
            options: texts as the user or a schema file gives them; session prefix and old spellings are fine.
            strict: refuse unknown keys that are no notes of users, values that no one uses, and combinations that
                make no sense.
            primary_key: the key columns of the table; defaults and checks depend on there being any.
            schema_version: of the schema file; before 3 missing keys meant something else.

        Raises:
            InvalidInputError: names the option, its value and the fix.
        """
        texts = canonical_options(options)
        if strict:
            for key, text in texts.items():
                check_property(key, text)
        parsed = cls(texts, lenient=not strict, has_key=bool(primary_key), schema_version=schema_version)
        if strict:
            parsed.check_together()
        return parsed

    @classmethod
    def described(cls, options: Mapping[str, str], *, primary_key: Sequence[str]) -> "TableOptions":
        """The options of a table whose rows no one reaches: what cannot be read is refused when it is asked for."""
        return cls(canonical_options(options), described=True, has_key=bool(primary_key))

    def with_texts(self, texts: Mapping[str, str]) -> "TableOptions":
        """The same options but for these. Raises: InvalidInputError."""
        return self.with_only({**self.texts_by_key(), **texts})

    def with_only(self, texts: Mapping[str, str]) -> "TableOptions":
        """The same table with these options instead. Raises: InvalidInputError."""
        return TableOptions(
            texts,
            lenient=True,
            has_key=self.has_key,
            schema_version=self.schema_version,
            row_group_rows=self.row_group_rows,
        )

    def check_together(self) -> None:
        """Refuse combinations that make no sense. Raises: InvalidInputError."""
        check_together(self)


def canonical_options(options: Mapping[str, str]) -> dict[str, str]:
    """Session prefix stripped, old spellings replaced by today's, values as text.

    Raises: InvalidInputError when two spellings of one option say different things.
    """
    canonical: dict[str, str] = {}
    for given, value in options.items():
        key = given.removeprefix(SESSION_PREFIX)
        key = ALIASES.get(key, key)
        text = value if isinstance(value, str) else _text_of(value)
        if key == "log.scan.startup.mode":
            key, text = "log.scan", {"initial": "full", "latest-offset": "latest"}.get(text, text)
        if canonical.setdefault(key, text) != text:
            values = [
                shown_text(key, each, is_declared=key in TableOptions.declared) for each in (canonical[key], text)
            ]
            raise InvalidInputError(f"option is given twice: option={key} values={values}")
    return canonical


def _text_of(value: object) -> str:
    # Schema files by other writers hold numbers and booleans.
    return str(value).lower() if isinstance(value, bool) else str(value)


def check_option(key: str, text: str) -> None:
    """Refuse what is no option of a table, or no value of one. Raises: InvalidInputError with similar keys."""
    if key in TableOptions.declared:
        check_text(TableOptions.declared[key], text)
        return
    if key.startswith(FREE_PREFIXES) and key not in FREE_PREFIXES:
        if key.startswith(COMPUTED_PREFIX):
            check_text(Option(key, verbatim, None, "", ROWS, check=check_computed), text)
        return
    split = split_field_key(key)
    if split is not None:
        suffix = FieldOptions.declared[split[1]]
        Option(key, suffix.parse, None, suffix.doc, suffix.decides).read({key: text})
        return
    if (found := not_built(key, text)) is not None:
        raise no_effect(key, text, found)
    if key in NOT_BUILT:
        return
    if key in ELSEWHERE:
        raise InvalidInputError(f"option is not a table's: option={key} belongs_to='{ELSEWHERE[key]}'")
    raise InvalidInputError(
        f"unknown option: option={key} did_you_mean={_near(key)} fix='a note of your own on a table: my.{key}'"
    )


def check_property(key: str, text: str) -> None:
    """As ``check_option``, of what a table stores: it keeps what is a user's own too.

    Raises: InvalidInputError with similar keys.
    """
    if not is_users_own(key):
        check_option(key, text)


def is_users_own(key: str) -> bool:
    """Whether a property of a table is a note of its users, and no option that is misspelt or of a later version.

    No option begins with its first word, up to the point; and none is spelt much like it.
    """
    first, point, _ = key.partition(".")
    if (first in _OWN_WORDS if point else key in _CLAUSES) or seems_to_decide(key):
        return False
    return not close_names(key, _OWN_KEYS, likeness=_PREFIXED if point else _MISSPELT)


def given_to_table(own: Mapping[str, str], defaults: Mapping[str, str]) -> dict[str, str]:
    """The options of a new table, before a catalog's defaults; none of a log where it is to have none.

    Raises:
        InvalidInputError: an option that users do not give to a table.
    """
    given = {**defaults, **own}
    check_storable(given)
    if given.get("log.system") != "none":
        return given
    return {key: text for key, text in given.items() if not key.startswith("log.") or key == "log.system"}


def check_storable(options: Mapping[str, str]) -> None:
    """Refuse what users do not give to a table. Raises: InvalidInputError naming the option, and who it is for."""
    for key, text in options.items():
        option = TableOptions.declared.get(key)
        if option is not None and option.stored in _NOT_GIVEN:
            value = shown_text(key, text, is_declared=True)
            raise InvalidInputError(f"{_NOT_GIVEN[option.stored]}: option={key} value={value} fix='leave it out'")


_NOT_GIVEN: Final = {
    Stored.NEVER: "no table has this option, which a reader or writer is given",
    Stored.BY_ENGINE: "a table has this option from the engine, with what it is about",
}


_CLAUSES: Final = frozenset(
    {
        "provider",
        "owner",
        "location",
        "external",
        "is_managed_location",
        "table_type",
        "collation",
        "comment",
        "connector",
    }
)
"""Properties that Spark or Flink says in clauses, and keeps to itself."""
_MISSPELT: Final = 0.7  # see ``close_names``: mergeengine, file_format, bukets
_PREFIXED: Final = 0.85  # of a key with a prefix: snapsht.time-retained, but not my.version
_OWN_KEYS: Final = (*TableOptions.declared, *ALIASES, *NOT_BUILT, *ELSEWHERE)
_OWN_WORDS: Final = frozenset(key.partition(".")[0] for key in (*_OWN_KEYS, *FREE_PREFIXES, "fields.") if "." in key)


def _near(key: str) -> list[str]:
    if key.startswith("fields."):
        column = key.removeprefix("fields.").split(".")[0]
        return close_names(key, [f"fields.{column}.{suffix}" for suffix in FieldOptions.declared], 3)
    return close_names(key, [*TableOptions.declared, *ALIASES], 3)


def keys_at(at: At) -> tuple[str, ...]:
    """Keys of the table's options that may be given at a place."""
    return tuple(key for key, option in TableOptions.declared.items() if option.at & at)
