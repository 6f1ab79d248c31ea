"""Reading a statement token by token. The grammar that is not Spark's is written with it."""

from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from sqlglot import Token, TokenType

from engine.dialect.grammar.places import SourceText, SqlSyntaxError
from lsm.errors import InvalidInputError

T = TypeVar("T")

_NOT_WORDS: Final = frozenset({TokenType.STRING, TokenType.IDENTIFIER, TokenType.NUMBER, TokenType.HINT})
_STRINGS: Final = frozenset({TokenType.STRING, TokenType.RAW_STRING})


class Cursor:
    """A place among the tokens of a text."""

    def __init__(self, source: SourceText, tokens: Sequence[Token]) -> None:
        """Start at the first of the tokens of ``source``."""
        self.source = source
        self.text = source.text
        self.tokens = tokens
        self.index = 0

    @property
    def token(self) -> Token | None:
        """The next token; None at the end."""
        return self.tokens[self.index] if self.index < len(self.tokens) else None

    def at_end(self) -> bool:
        """Whether nothing is left."""
        return self.index >= len(self.tokens)

    @property
    def start(self) -> int:
        """Offset of the next token, or of the end."""
        return len(self.text) if self.token is None else self.token.start

    @property
    def stop(self) -> int:
        """Offset after the last token that was taken."""
        return self.tokens[self.index - 1].end + 1 if self.index else 0

    def sees(self, *words: str) -> bool:
        """Whether these words or marks come next; upper case."""
        return all(self._word(self.index + ahead) == word for ahead, word in enumerate(words))

    def sees_any(self, *words: str) -> bool:
        """Whether one of these comes next."""
        return self._word(self.index) in words

    def take(self, *words: str) -> bool:
        """Go past these words if they come next."""
        if not self.sees(*words):
            return False
        self.index += len(words)
        return True

    def take_any(self, *words: str) -> str | None:
        """Go past one of these words and return it."""
        word = self._word(self.index)
        if word is None or word not in words:
            return None
        self.index += 1
        return word

    def expect(self, *words: str) -> None:
        """Go past these words. Raises: InvalidInputError when something else comes."""
        for word in words:
            if not self.take(word):
                raise self.problem(f"syntax error, expected {word}")

    def if_exists(self) -> bool:
        """Go past IF EXISTS."""
        return self.take("IF", "EXISTS")

    def if_not_exists(self) -> bool:
        """Go past IF NOT EXISTS."""
        return self.take("IF", "NOT", "EXISTS")

    def name(self, what: str = "a name") -> str:
        """One name: a word, or anything in backticks. Words may run together with ``-``."""
        token = self.token
        if token is None or not self.sees_name():
            raise self.problem(f"syntax error, expected {what}")
        self.index += 1
        return token.text

    def sees_name(self) -> bool:
        """Whether a word, or anything in backticks, comes next."""
        token = self.token
        return token is not None and (token.token_type is TokenType.IDENTIFIER or _is_plain_word(token))

    def word(self, what: str) -> str:
        """A word of the grammar in upper case, one space between its parts."""
        found = self._word(self.index)
        if found is None:
            raise self.problem(f"syntax error, expected {what}")
        self.index += 1
        return found

    def names(self, what: str = "a name") -> tuple[str, ...]:
        """Names with points between them."""
        found = [self.name(what)]
        while self.take("."):
            found.append(self.name(what))
        return tuple(found)

    def string(self, what: str = "a text in quotes") -> str:
        """A text in quotes; adjacent ones are one text, and a quote twice is one quote, as in Spark."""
        parts: list[str] = []
        before: int | None = None  # the last character of the text before
        while (token := self.token) is not None and token.token_type in _STRINGS:
            if before is not None and token.start == before + 1:
                parts.append(self.source.text[before])
            parts.append(token.text)
            before = token.end
            self.index += 1
        if not parts:
            raise self.problem(f"syntax error, expected {what}")
        return "".join(parts)

    def sees_string(self) -> bool:
        """Whether a text in quotes comes next."""
        return self.token is not None and self.token.token_type in _STRINGS

    def whole_number(self, what: str = "a number") -> int:
        """Digits. Raises: InvalidInputError."""
        token = self.token
        if token is None or token.token_type is not TokenType.NUMBER or not token.text.isdecimal():
            raise self.problem(f"syntax error, expected {what}")
        self.index += 1
        return int(token.text)

    def listed(self, read: Callable[["Cursor"], T]) -> list[T]:
        """``(item, item, ...)``, at least one."""
        self.expect("(")
        found = [read(self)]
        while self.take(","):
            found.append(read(self))
        self.expect(")")
        return found

    def rest(self) -> str:
        """The text from here to the end, which becomes the place."""
        found = self.text[self.start :].strip()
        self.index = len(self.tokens)
        return found

    def expect_end(self) -> None:
        """Raises: InvalidInputError when something is left."""
        if not self.at_end():
            raise self.problem("syntax error, expected the end of the statement")

    def problem(
        self,
        problem: str,
        start: int | None = None,
        stop: int | None = None,
        kind: type[SqlSyntaxError] = SqlSyntaxError,
    ) -> InvalidInputError:
        """An error at the next token, or at a span of the text."""
        if start is None:
            start = self.start
            stop = start if self.token is None else self.token.end + 1
        return self.source.problem(problem, start, start if stop is None else stop, kind)

    def _word(self, index: int) -> str | None:
        if index >= len(self.tokens):
            return None
        token = self.tokens[index]
        if token.token_type in _NOT_WORDS:
            return None
        return " ".join(token.text.upper().split())


def _is_plain_word(token: Token) -> bool:
    return token.token_type not in _NOT_WORDS and token.text.replace("_", "a").replace("$", "a").isalnum()
