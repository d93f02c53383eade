# ruff: noqa: RUF001 - look-alikes are what is tested
"""Characters that a reviewer does not see, or takes for others, are faults with their place."""

from __future__ import annotations

import pytest

from lumisite.errors import SiteError
from lumisite.site.eyes import name_fault, text_fault
from tests.support.sites import load_text, site_faults, site_text

NAMES = [
    "/opt/\u0261cc",
    "hsn\u0660",
    "hsn\u200b0",
    "\ufeffhsn0",
    "hsn\u202e0",
    "h\u00adsn0",
    "hsn0\u3164",
    "/fla\u0455h",
    "\u0430\u0440\u0440",
]
NAMES += ["/\u0430\u0440\u0440", "\u04bb\u0455\u05780", "hsn\u2070", "\uff48sn0", "/opt\u2044cray", "/opt/cray\u2010pe"]
NAMES += ["/opt/\ufb02ash", "/a\u00a0b", "\U0001d5c1sn0", "/a\u2015b", "\u0126sn0\ufe0f", "/\u13daap"]
TEXTS = [
    "the \u200dtwin",
    "the tw\u0456n",
    "\u041d\u0420\u0415 Cray",
    "\U0001d5dfUMI",
    "a \u2066b\u2069",
    "g\u0456thub.com",
]
GOOD_NAMES = [
    "/данные",
    "/scratch/данные",
    "/项目/数据",
    "/データ/a",
    "/größe",
    "/kayıt",
    "/π",
    "hsn0",
    "/ελλάδα",
    "日本語a",
]
GOOD_TEXTS = [
    "5 µs, 3 μs, Δt, σ of π",
    "для НРС Cray",
    "naïve – “quoted”\u00a0… 🚀 m² 1º",
    "日本語とLUMI",
    "α and β",
    "хор Cray сорт",
]
INTERFACES = "interfaces: [hsn0"


@pytest.mark.parametrize("name", NAMES)
def test_a_name_that_is_not_what_it_looks_like_is_a_fault(name: str) -> None:
    assert "U+" in name_fault(name)
    (fault,) = site_faults((INTERFACES, f'interfaces: ["{name}"'))
    assert fault.startswith("fabric.interfaces[0]: ")


def test_a_letter_that_is_written_in_two_parts_is_another_name() -> None:
    assert name_fault("/e\u0301") == "'/e\\u0301' has a letter in two parts ('/\u00e9' would be right)"


@pytest.mark.parametrize("text", TEXTS)
def test_so_is_a_word_for_people(text: str) -> None:
    assert "U+" in text_fault(text)
    found = site_faults(("summary: ", f'summary: "{text}" #'))
    assert len(found) == 1
    assert ".summary: " in found[0]


@pytest.mark.parametrize("text", [*GOOD_NAMES, *GOOD_TEXTS])
def test_any_script_and_formula_is_text(text: str) -> None:
    assert text_fault(text) == ""
    assert text in GOOD_TEXTS or name_fault(text) == ""


@pytest.mark.parametrize(
    ("old", "new", "key", "fault"),
    [
        ("title: the twin", "title: the tw\u0456n", "title", "'the tw\\u0456n' contains U+0456 CYRILLIC SMALL LETTER"),
        (
            "  - {path: /scratch",
            "  - {path: /scr\u0430tch",
            "file_systems[0].path",
            "'/scr\\u0430tch' contains U+0430 CYR",
        ),
        ("value: ", "value: \u200b", "value", "contains U+200B ZERO WIDTH SPACE, which nobody sees (leave it out)"),
        ("\npartitions:\n  ", "\npartitions:\n  \u0441", "partitions", "contains U+0441 CYRILLIC SMALL LETTER ES"),
    ],
)
def test_the_place_of_the_fault_is_told(old: str, new: str, key: str, fault: str) -> None:
    with pytest.raises(SiteError) as caught:
        load_text(site_text((old, new)))
    line = site_text().partition(old)[0].count("\n") + 1 + old.count("\n")
    problem = next(one for one in caught.value.problems if fault in one.message)
    assert problem.line == line
    assert problem.column > 1
    assert key in problem.key
