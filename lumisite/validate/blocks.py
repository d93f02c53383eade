"""Cut files that are read in blocks into whole lines."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator


def whole_lines(blocks: Iterable[bytes], keep: Callable[[bytes], bytes]) -> Iterator[bytes]:
    """Cut blocks after a newline; the last one gets a newline if it has none.

    `keep` is asked, while a line has no end yet, what of it is kept; it may raise.
    """
    rest = b""
    for block in blocks:
        end = block.rfind(b"\n") + 1
        if end:
            yield rest + block[:end]
            rest = block[end:]
        else:
            rest = keep(rest + block)
    if rest:
        yield rest + b"\n"
