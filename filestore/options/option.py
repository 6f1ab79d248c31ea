"""How an option is declared, and the values that are in force where it is declared.

``TableOptions``, ``CatalogOptions``, ``WriterOptions`` and their like are classes of declarations. An object of such a
class is made of texts once and cannot change: ``options.write_only`` is a bool, ``WriterOptions.write_only`` is the
declaration, with its key, default and line of documentation. The option reference, ``fluvial config``, the JSON Schema
of job files, did-you-mean and the hiding of secrets come from these declarations.
"""

from collections.abc import Callable, Hashable, Mapping
from enum import Enum, Flag, auto
from typing import Any, ClassVar, Final, Generic, NoReturn, Self, TypeVar, overload

from filestore.options.parsing import Parser, not_valid
from lsm.errors import InvalidInputError
from lsm.secret_names import STARS, shown_address, shown_text

T = TypeVar("T")


class At(Flag):
    """The places where an option may be given, besides the table, catalog or source that declares it."""

    NOWHERE = 0
    BATCH_READ = auto()
    STREAM_READ = auto()
    BATCH_WRITE = auto()
    STREAM_WRITE = auto()
    READ = BATCH_READ | STREAM_READ
    WRITE = BATCH_WRITE | STREAM_WRITE


class Stored(Enum):
    """Who gives an option to a table, for all who use it: what a stored value may do follows from it.

    A table's files may be a stranger's. What its users store is harmless to who opens it: it says what the table is,
    and places outside of the table count only where the opener allows them.
    """

    BY_USERS = auto()
    BY_OPENER = auto()  # no one: who opens the table says it, and what a file says has no effect
    BY_ENGINE = auto()  # it follows from what was made with the table
    NEVER = auto()  # it is of one reader or writer


class Decides(Flag):
    """What may be otherwise with another value of an option, besides addresses, waiting, memory and permissions."""

    NOTHING = 0
    ROWS = auto()
    """Which rows, columns and values the table has, or a read of it returns."""
    CHANGES = auto()
    """Which changes its log, changelogs and streams deliver, from where on, and in which batches."""
    STORAGE = auto()
    """What its files hold and how long older states are kept; with every value the rows and changes are the same."""


NOTHING: Final = Decides.NOTHING
ROWS: Final = Decides.ROWS
CHANGES: Final = Decides.CHANGES
STORAGE: Final = Decides.STORAGE


class Option(Generic[T]):
    """One option: its key, how its text is understood, what holds when it is absent, and one line about it."""

    def __init__(
        self,
        key: str,
        parse: Parser[T],
        default: T,
        doc: str,
        decides: Decides,
        *,
        at: At = At.NOWHERE,
        stored: Stored = Stored.BY_USERS,
        essential: bool = False,
        immutable: bool = False,
        secret: bool = False,
        check: Callable[[str], None] | None = None,
    ) -> None:
        """Declare an option.

        Args:
            key: as users write it.
            parse: reads its text.
            default: the value where no text is given.
            doc: one line for the reference.
            decides: what may be otherwise with another value.
            at: readers and writers that may be given it as well.
            stored: who may give it to a table, of an option of tables.
            essential: a table whose text for it cannot be read is not opened; else it is refused once it is asked for.
            immutable: it cannot change once the table has rows, or the catalog is made.
            secret: it is never shown.
            check: raises ValueError with what is expected for values that are refused where the option is given, and by
                writers; a table of others that has one can be read.
        """
        self.key, self.parse, self.default, self.doc = key, parse, default, doc
        self.decides, self.at, self.stored = decides, at, stored
        self.derive: Callable[[Any], T] | None = None
        self.is_essential, self.is_immutable, self.is_secret = essential, immutable, secret
        self.check = check
        self.attribute = ""  # of the class that declares it

    def __set_name__(self, owner: type, name: str) -> None:
        assert not self.attribute, f"an option is declared once: {self.key}"
        self.attribute = name

    @property
    def decides_rows(self) -> bool:
        """Whether readers may get other rows or changes with another value."""
        return bool(self.decides & (Decides.ROWS | Decides.CHANGES))

    @overload
    def __get__(self, values: None, owner: type) -> Self: ...

    @overload
    def __get__(self, values: "OptionValues", owner: type) -> T: ...

    def __get__(self, values: "OptionValues | None", owner: type) -> "Self | T":
        """The declaration, of a class; of an object its value, which is kept there.

        Raises:
            InvalidInputError: the text cannot be read, and the option is not essential.
        """
        if values is None:
            return self
        value = self.read(values.texts_by_key())
        if self.derive is not None and (value is None or not values.gives(self)):
            value = self.derive(values)
        values.__dict__[self.attribute] = value
        return value

    def read(self, texts: Mapping[str, str]) -> T:
        """The value that texts give. Raises: InvalidInputError naming key, value and what is allowed."""
        text = texts.get(self.key)
        if text is None:
            return self.default
        try:
            return self.parse(text)
        except ValueError as error:
            raise not_valid(self.key, STARS if self.is_secret else shown_address(text), error) from error


_DURATION: Final = "duration"
_BARE_MS: Final = 1000  # who means less writes ms


def check_text(option: Option[Any], text: str) -> None:
    """Refuse a text that is given for an option, see ``Option``. Raises: InvalidInputError."""
    value = option.read({option.key: text})
    if option.parse.kind == _DURATION and text.strip().isdecimal() and 0 < value < _BARE_MS:
        raise InvalidInputError(
            f"a number without a unit is milliseconds: option={option.key} value={text} "
            f"fix='write the unit, as {text.strip()} d or {text.strip()} ms'"
        )
    if option.check is not None:
        try:
            option.check(text)
        except ValueError as error:
            raise not_valid(option.key, text, error) from error


def derived(
    key: str,
    parse: Parser[Any],
    default: Any,
    doc: str,
    decides: Decides,
    *,
    by: Callable[[Any], T],
    immutable: bool = False,
) -> Option[T]:
    """Declare an essential option that follows from others where it is not given, or its text is read as None.

    Args:
        key: as users write it.
        parse: reads its text.
        default: what the reference says.
        doc: one line for the reference.
        decides: what may be otherwise with another value.
        by: the value that follows from the object's others.
        immutable: it cannot change once the table has rows.
    """
    option: Option[T] = Option(key, parse, default, doc, decides, essential=True, immutable=immutable)
    option.derive = by
    return option


class OptionValues:
    """The values of declared options: those that texts give, parsed once, and defaults for the rest."""

    declared: ClassVar[Mapping[str, Option[Any]]] = {}
    """By key, in the order of declaration."""

    def __init_subclass__(cls) -> None:
        """Collect the declarations."""
        found: dict[str, Option[Any]] = {}
        for base in cls.__mro__:
            found |= {each.key: each for each in vars(base).values() if isinstance(each, Option)}
        cls.declared = found

    def __init__(self, texts: Mapping[str, str], *, lenient: bool = False, described: bool = False) -> None:
        """Parse texts by key; keys that are not declared are kept, and found by their prefix.

        Args:
            texts: by key.
            lenient: a text that cannot be read is refused only when its option is essential, or asked for.
            described: a text that cannot be read is refused only when its option is asked for.

        Raises:
            InvalidInputError: a text cannot be read.
        """
        self.__dict__["_texts"] = dict(texts)
        for key in texts:
            option = self.declared.get(key)
            if option is not None and not described and (option.is_essential or not lenient):
                getattr(self, option.attribute)

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"options cannot change: {name}")

    def __getitem__(self, option: Option[T]) -> T:
        """The value of a declared option."""
        value: T = getattr(self, option.attribute)
        return value

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and isinstance(other, OptionValues) and self._identity() == other._identity()

    def __hash__(self) -> int:
        return hash(self._identity())

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.shown()})"

    def _identity(self) -> Hashable:
        """A value that is equal for equal options."""
        return tuple(sorted(self.texts_by_key().items()))

    def texts_by_key(self) -> Mapping[str, str]:
        """The given texts by key, secrets included: to make other options of them, never to show."""
        texts: Mapping[str, str] = self.__dict__["_texts"]
        return texts

    def gives(self, option: Option[Any]) -> bool:
        """Whether an option was given, even if with its default."""
        return option.key in self.texts_by_key()

    def behind(self, prefix: str) -> dict[str, str]:
        """Texts of the keys that begin with a prefix, by the rest of their key."""
        return {key.removeprefix(prefix): text for key, text in self.texts_by_key().items() if key.startswith(prefix)}

    def free(self, key: str) -> str | None:
        """The text of a key that is not declared: what is behind a free prefix."""
        return None if key in self.declared else self.texts_by_key().get(key)

    def shown(self) -> dict[str, str]:
        """The given texts by key, with stars for secrets."""
        return {
            key: STARS if (option := self.declared.get(key)) is not None and option.is_secret
            else shown_text(key, text, is_declared=option is not None)
            for key, text in self.texts_by_key().items()
        }  # fmt: skip
