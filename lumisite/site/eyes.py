"""Characters that the eye of a reviewer takes for others, or does not see: of Unicode's UTS #39 what site files need.

A path or an interface with one of them is another than the one that is read. Text for people may have any script, but
no word of two that look alike; names are stricter.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator

#: Default_Ignorable_Code_Point of Unicode's DerivedCoreProperties.txt, separators of lines, and the empty Braille cell.
_HIDDEN = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f\u2800\u3164"
    "\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
#: Cyrillic, Greek, Armenian and phonetic letters that confusables.txt leads to one of a-z or A-Z.
_LOOK_ALIKES = frozenset(
    "аАЬВсСԁеҽЕԌһНіꙇӏјЈКІӀМоОрРԛгѕЅТѵѴѡԝԜхХуүУҮαΑΒϲϹΕϜΗιΙϳͿΚΜϺΝοσΟρϱΡΤυνΧγΥϒΖքցհոռօՕգզՏսՍաɑɡɪᴄᴏᴠᴡᴢᴜꜱʏ"  # noqa: RUF001
)
#: Scripts that stand beside Latin letters in one word, and signs that are letters to Unicode (`µs`).
_BESIDE_LATIN = (
    *("CJK", "HIRAGANA", "KATAKANA", "HANGUL", "BOPOMOFO", "IDEOGRAPHIC", "SUPERSCRIPT", "MODIFIER"),
    *("MICRO", "OHM", "MASCULINE", "FEMININE"),
)


def text_fault(text: str) -> str:
    """Say what in a text for people is not what it looks like; empty where nothing is."""
    if text.isascii():
        return ""
    if hidden := _HIDDEN.search(text):
        return f"contains {_called(hidden[0])}, which nobody sees (leave it out)"
    strangers = list(_strangers(text))
    words = re.findall(r"\w+", text)
    mixed = (one for word in words if _has_latin(word) for one in _strangers(word) if _is_odd(one))
    # A word that is foreign as a whole, in a text that is not.
    alone = (word[0] for word in words if len(word) > 1 and _LOOK_ALIKES.issuperset(word))
    odd = next(mixed, "") or (next(alone, "") if _has_latin(text) and _LOOK_ALIKES.issuperset(strangers) else "")
    return _confused(text, odd) if odd else ""


def name_fault(text: str) -> str:
    """Say what in a name, a path or a pattern is not what it looks like; empty where nothing is."""
    if text.isascii():
        return ""
    normal = unicodedata.normalize("NFKC", text)
    strangers = list(_strangers(text))
    if hidden := text_fault(text):
        return hidden
    if strangers and _LOOK_ALIKES.issuperset(strangers):
        return _confused(text, strangers[0])
    if normal != text:
        odd = next((one for one in text if unicodedata.normalize("NFKC", one) != one), "")
        said = f"contains {_called(odd)}, which looks like another character" if odd else "has a letter in two parts"
        return f"{text!a} {said} ({normal!r} would be right)"
    sign = next((one for one in text if not one.isascii() and unicodedata.category(one)[0] not in "LM"), "")
    return f"{text!a} contains {_called(sign)}, a sign that names do not have (leave it out)" if sign else ""


def _strangers(text: str) -> Iterator[str]:
    """Give the letters of scripts that Latin letters are not mixed with."""
    for one in text:
        script = unicodedata.name(one, "?").partition(" ")[0].partition("-")[0]
        if one in _LOOK_ALIKES or (one.isalpha() and script not in ("LATIN", *_BESIDE_LATIN)):
            yield one


def _is_odd(letter: str) -> bool:
    """Tell whether a letter confuses in a word of Latin ones; of Greek, formulas have some (`μs`, `Δt`)."""
    return letter in _LOOK_ALIKES or not unicodedata.name(letter, "").startswith("GREEK")


def _has_latin(text: str) -> bool:
    return any(unicodedata.name(one, "").startswith("LATIN") for one in text)


def _confused(text: str, letter: str) -> str:
    right = "letters of one script would be right"
    return f"{text!a} contains {_called(letter)} among letters that look like it ({right})"


def _called(character: str) -> str:
    return f"U+{ord(character):04X} {unicodedata.name(character, 'without a name')}"
