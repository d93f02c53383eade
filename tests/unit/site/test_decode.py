"""Nodes to dataclasses: every fault of a file in one run, each with its position and what would be right."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

import pytest

from lumisite.errors import SiteError
from lumisite.site.decode import UnfitError, decode, key, suggestion
from lumisite.site.scalars import SCALARS, AbsolutePath, Line, VariableName
from lumisite.site.versions import Version, VersionRange


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
    return decode(text.encode(), Thing, file="t.yaml", scalars=SCALARS)


def faults(text: str) -> list[str]:
    with pytest.raises(SiteError) as caught:
        read(text)
    return [str(problem) for problem in caught.value.problems]


def test_types_give_text_its_meaning() -> None:
    thing = read(
        "title: on\nversion: 6.10\nfits: '>=6,<7'\npath: /opt\nvariable: A_1\ncolour: green\ngood: no\n"
        "ports: {a: {name: b, speed: 200}}\nwords: [no, 010]\n"
    )
    assert (thing.title, str(thing.version), thing.colour, thing.good) == (
        "on",
        "6.10",
        "green",
        False,
    )
    assert thing.version in (thing.fits or ())
    assert thing.ports["a"] == Port(name=Line("b"), speed=200)
    assert thing.words == ("no", "010")


def test_decoded_mappings_cannot_be_changed() -> None:
    thing = read("title: a\nversion: 1\nports: {a: {name: b}}\n")
    with pytest.raises(TypeError):
        thing.ports["a"] = Port(name=Line("c"))  # type: ignore[index]


def test_all_faults_come_in_one_run_and_in_order() -> None:
    assert faults("titel: a\nversion: six\ngood: maybe\nports: {a: {speed: fast}, b: 3}\nwords: one\n") == [
        "t.yaml:1:1: titel: is not a key here (did you mean title?)",
        "t.yaml:1:1: title: is missing (The title)",
        "t.yaml:2:10: version: 'six' is not a version (6.2.4 or 25.03 would be right)",
        "t.yaml:3:7: good: 'maybe' is neither yes nor no",
        "t.yaml:4:12: ports.a.name: is missing (The name)",
        "t.yaml:4:20: ports.a.speed: 'fast' is not a whole number (491520 would be right)",
        "t.yaml:4:30: ports.b: is a single value (keys and values would be right)",
        "t.yaml:5:8: words: is a single value (a list would be right: [a, b])",
    ]


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("title: again", "t.yaml:3:1: title: is given twice (first in line 1)"),
        ("good:", "t.yaml:3:6: good: has no value (write one, or leave the key out)"),
        ("colour: gren", "t.yaml:3:9: colour: 'gren' is not known here (did you mean green?)"),
        ("colour: blue", "t.yaml:3:9: colour: 'blue' is not known here (have red, green)"),
        ("fits: about 6", "t.yaml:3:7: fits: 'about 6' is not a range of versions ('>=6.1,<7.1' would be right)"),
        ("path: opt", "t.yaml:3:7: path: 'opt' is not an absolute path (it must start with /)"),
        ("path: /opt/", "t.yaml:3:7: path: '/opt/' is not in its shortest form (/opt would be right)"),
        ("path: /a/../b", "t.yaml:3:7: path: '/a/../b' is not in its shortest form (/b would be right)"),
        ("path: //a", "t.yaml:3:7: path: '//a' is not in its shortest form (/a would be right)"),
        ("path: /a,b", "t.yaml:3:7: path: '/a,b' contains ',', which no container runtime takes in a bind"),
        ("path: /a^b", "t.yaml:3:7: path: '/a^b' contains '^', which no container runtime takes in a bind"),
        ("path: /a:b", "t.yaml:3:7: path: '/a:b' contains ':', which no container runtime takes in a bind"),
        (
            "variable: A-B",
            "t.yaml:3:11: variable: 'A-B' is not the name of a variable (letters, digits and _ would be right)",
        ),
        ("words: [{a: b}]", "t.yaml:3:9: words[0]: is a mapping (one value would be right)"),
        ("ports: [a]", "t.yaml:3:8: ports: is a list (a mapping of names would be right)"),
        (
            "ports: {'a b': {name: x}}",
            "t.yaml:3:9: ports: 'a b' is not a name (letters, digits, and . _ + - would be right)",
        ),
        (
            f"ports: {{{'a' * 101}: {{name: x}}}}",
            "t.yaml:3:9: ports: is a name of 101 bytes (at most 100 fit into names of files)",
        ),
        (
            'words: ["a\\nb"]',
            "t.yaml:3:9: words[0]: contains a line break (one line of text would be right; >- folds lines)",
        ),
        (
            'words: ["\\0"]',
            "t.yaml:3:9: words[0]: contains the control character U+0000 (one line of text would be right; >- folds lines)",
        ),
        (
            'words: ["\u202e"]',
            "t.yaml:3:9: words[0]: contains the control character U+202E (one line of text would be right; >- folds lines)",
        ),
        ('words: [""]', "t.yaml:3:9: words[0]: has no text"),
        (
            "ports: {a: {name: x, speed: 010}}",
            "t.yaml:3:29: ports.a.speed: '010' is not a whole number (491520 would be right)",
        ),
    ],
)
def test_each_fault_names_place_key_value_and_remedy(line: str, fault: str) -> None:
    assert faults(f"title: a\nversion: 1\n{line}\n") == [fault]


def test_half_of_a_character_is_refused_which_yaml_without_libyaml_lets_through() -> None:
    for kind in (Line, AbsolutePath):
        with pytest.raises(UnfitError, match=r"contains the control character U\+D800"):
            SCALARS[kind]("/a\ud800")


def test_a_folded_block_is_one_line() -> None:
    assert read("title: >\n  two\n  lines\nversion: 1\n").title == "two lines"


def test_rules_run_only_on_sound_values_and_stop_after_a_stage_with_faults() -> None:
    def first(thing: Thing) -> Iterator[tuple[str, str]]:
        yield "ports.a.name", "first"

    def second(thing: Thing) -> Iterator[tuple[str, str]]:
        yield "title", "second"

    def run(text: bytes) -> str:
        with pytest.raises(SiteError) as caught:
            decode(text, Thing, file="t.yaml", scalars=SCALARS, stages=((first,), (second,)))
        return str(caught.value)

    assert run(b"title: a\nversion: 1\n") == "t.yaml:1:1: ports.a.name: first"
    assert run(b"title: a\nversion: x\n").startswith("t.yaml:2:10: version:")


def test_a_suggestion_comes_close_or_lists_what_there_is() -> None:
    assert suggestion("lum", ["lumi", "twin"]) == "did you mean lumi?"
    assert suggestion("x", ["lumi", "twin"]) == "have lumi, twin"
    assert suggestion("x", []) == "there are none"
    assert suggestion("x", [f"name{n}" for n in range(20)]).endswith("and 5 more")
