"""Nodes to dataclasses: every fault of a file in one run, each with its position and what would be right."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

import pytest

from lumisite.errors import SiteError, UnfitError
from lumisite.findings.finding import Finding
from lumisite.site.decode import contradiction, decode, key
from lumisite.site.scalars import SCALARS, AbsolutePath, Line, VariableName
from lumisite.site.versions import Version, VersionRange
from lumisite.text import suggestion


@dataclass(frozen=True, kw_only=True)
class Port:
    name: Line = key("The name. More follows.")
    speed: int = key("Speed.", default=1)


@dataclass(frozen=True, kw_only=True)
class Thing:
    title: Line = key("The title.")
    version: Version = key("The version.")
    fits: VersionRange | None = key("The range.", default=None)
    path: AbsolutePath | None = key("The path.", default=None)
    variable: VariableName | None = key("The variable.", default=None)
    colour: Literal["red", "green"] = key("The colour.", default="red")
    good: bool = key("Whether.", default=True)
    ports: Mapping[str, Port] = key("Ports.", default_factory=dict)
    words: tuple[Line, ...] = key("Words.", default=())


def read(text: str) -> Thing:
    return decode(text.encode(), Thing, file="t.yaml")


def faults(text: str) -> list[str]:
    with pytest.raises(SiteError) as caught:
        read(text)
    return [f"{finding.place}: {finding.subject}: {finding.code}" for finding in caught.value.findings]


def test_types_give_text_its_meaning() -> None:
    thing = read(
        "title: on\nversion: 6.10\nfits: '>=6,<7'\npath: /opt\nvariable: A_1\ncolour: green\ngood: no\n"
        "ports: {a: {name: b, speed: 200}}\nwords: [no, 010]\n"
    )
    assert (thing.title, str(thing.version), thing.colour, thing.good) == ("on", "6.10", "green", False)
    assert thing.version in (thing.fits or ())
    assert thing.ports["a"] == Port(name=Line("b"), speed=200)
    assert thing.words == ("no", "010")


def test_all_faults_come_in_one_run_and_in_order() -> None:
    assert faults("titel: a\nversion: six\ngood: maybe\nports: {a: {speed: fast}, b: 3}\nwords: one\n") == [
        "t.yaml:1:1: titel: key-unknown",
        "t.yaml:2:10: version: value-wrong",
        "t.yaml:3:7: good: value-wrong",
        "t.yaml:4:12: ports.a.name: key-missing",
        "t.yaml:4:20: ports.a.speed: value-wrong",
        "t.yaml:4:30: ports.b: value-wrong",
        "t.yaml:5:8: words: value-wrong",
    ]


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("title: again", "t.yaml:3:1: title: key-repeated"),
        ("good:", "t.yaml:3:6: good: value-wrong"),
        ("colour: gren", "t.yaml:3:9: colour: value-wrong"),
        ("fits: about 6", "t.yaml:3:7: fits: value-wrong"),
        ("path: opt", "t.yaml:3:7: path: value-wrong"),
        ("path: /a/../b", "t.yaml:3:7: path: value-wrong"),
        ("path: /a,b", "t.yaml:3:7: path: value-wrong"),
        ("variable: A-B", "t.yaml:3:11: variable: value-wrong"),
        ("words: [{a: b}]", "t.yaml:3:9: words[0]: value-wrong"),
        ("ports: [a]", "t.yaml:3:8: ports: value-wrong"),
        ('words: ["a\\nb"]', "t.yaml:3:9: words[0]: value-wrong"),
        ('words: ["\\0"]', "t.yaml:3:9: words[0]: value-wrong"),
        ('words: ["\u202e"]', "t.yaml:3:9: words[0]: value-wrong"),
        ('words: [""]', "t.yaml:3:9: words[0]: value-wrong"),
    ],
)
def test_each_fault_names_place_key_value_and_remedy(line: str, fault: str) -> None:
    assert faults(f"title: a\nversion: 1\n{line}\n") == [fault]


def test_half_of_a_character_is_refused_which_yaml_without_libyaml_lets_through() -> None:
    for kind in (Line, AbsolutePath):
        with pytest.raises(UnfitError, match="contains U"):
            SCALARS[kind]("/a\ud800")


def test_a_folded_block_is_one_line() -> None:
    assert read("title: >\n  two\n  lines\nversion: 1\n").title == "two lines"


def test_rules_run_only_on_sound_values() -> None:
    def rule(thing: Thing) -> Iterator[Finding]:
        yield contradiction("ports.a.name", "is not the title", "make it the title")

    def run(text: bytes) -> str:
        with pytest.raises(SiteError) as caught:
            decode(text, Thing, file="t.yaml", rules=(rule,))
        return "\n".join(f"{one.place}: {one.subject}: {one.code}" for one in caught.value.findings)

    assert run(b"title: a\nversion: 1\n") == "t.yaml:1:1: ports.a.name: keys-contradict"
    assert run(b"title: a\nversion: x\n") == "t.yaml:2:10: version: value-wrong"


def test_a_suggestion_comes_close_or_lists_what_there_is() -> None:
    assert suggestion("lum", ["lumi", "twin"]) == "did you mean lumi?"
    assert suggestion("x", ["lumi", "twin"]) == "have lumi, twin"
    assert suggestion("x", []) == "there are none"
    assert suggestion("x", [f"name{n}" for n in range(20)]).endswith("and 5 more")
