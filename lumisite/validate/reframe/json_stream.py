"""Walk through a JSON text that comes in blocks, so that only one element of a long list is in memory at a time.

Own code, a small one: the standard library reads whole texts only, and the library that does not (ijson) is compiled.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterable, Iterator

#: A single value may not be longer than this, in characters.
VALUE_LIMIT = 1 << 26
_SPACE = re.compile(r"[ \t\n\r]*")
_DECODER = json.JSONDecoder()


class JsonError(ValueError):
    """What is wrong with the text, and in which line."""


class JsonStream:
    """A text and a place in it. Each method takes what it names and moves on."""

    def __init__(self, blocks: Iterable[bytes]) -> None:
        self._blocks = iter(blocks)
        self._decode = codecs.getincrementaldecoder("utf-8-sig")().decode
        self._text = ""
        self._at = 0
        self._line = 1
        self._more = True

    def members(self) -> Iterator[str]:
        """Take an object, key by key: who asks takes each key's value before the next."""
        self._take("{")
        while self._peek() != "}":
            key = self.value()
            if not isinstance(key, str):
                raise self._error("a key should be here")
            self._take(":")
            yield key
            self._next("}")
        self._take("}")

    def elements(self) -> Iterator[int]:
        """Take a list, element by element: who asks takes each value before the next. Gives its number."""
        self._take("[")
        number = 0
        while self._peek() != "]":
            yield number
            number += 1
            self._next("]")
        self._take("]")

    def value(self) -> object:
        """Take a whole value."""
        self._peek()
        while True:
            try:
                found, end = _DECODER.raw_decode(self._text, self._at)
            except RecursionError:
                raise self._error("nested too deeply") from None
            except ValueError as error:
                if self._more and len(self._text) - self._at < VALUE_LIMIT:
                    self._fill(2 * (len(self._text) - self._at))
                    continue
                raise self._error(getattr(error, "msg", str(error)), getattr(error, "pos", self._at)) from None
            if end == len(self._text) and self._more:  # a number may go on
                self._fill(2 * (end - self._at))
                continue
            self._line += self._text.count("\n", self._at, end)
            self._at = end
            return found

    def is_next(self, mark: str) -> bool:
        """Tell whether the next value is an object (`{`) or a list (`[`)."""
        return self._peek() == mark

    def end(self) -> None:
        """Make sure that nothing follows."""
        if self._peek():
            raise self._error("something follows the end")

    def _next(self, closing: str) -> None:
        if self._peek() == ",":
            self._take(",")
            if self._peek() == closing:
                raise self._error("a value should follow the comma")
        elif self._peek() != closing:
            raise self._error(f"a comma or {closing} should be here")

    def _take(self, mark: str) -> None:
        if self._peek() != mark:
            raise self._error(f"{mark} should be here")
        self._at += 1

    def _peek(self) -> str:
        """Pass over white space; give the character that follows, empty at the end."""
        while True:
            found = _SPACE.match(self._text, self._at)
            assert found is not None
            self._line += self._text.count("\n", self._at, found.end())
            self._at = found.end()
            if self._at < len(self._text):
                return self._text[self._at]
            if not self._more:
                return ""
            self._fill(1)

    def _fill(self, wanted: int) -> None:
        """Have at least `wanted` characters from here on, or all that there are."""
        parts = [self._text[self._at :]]
        size = len(parts[0])
        while size < wanted or len(parts) == 1:
            block = next(self._blocks, None)
            try:
                text = self._decode(block or b"", final=block is None)
            except UnicodeDecodeError:
                raise self._error("not UTF-8") from None
            parts.append(text)
            size += len(text)
            if block is None:
                self._more = False
                break
        self._text, self._at = "".join(parts), 0

    def _error(self, what: str, at: int | None = None) -> JsonError:
        line = self._line + (self._text.count("\n", self._at, at) if at is not None else 0)
        return JsonError(f"line {line}: {what}")
