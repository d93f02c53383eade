"""What a short description unfolds into is charged where it is read, and refused with its line and the limit."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from lumisite.errors import MOST_PRINTED, SiteError
from lumisite.findings.finding import Finding
from lumisite.site.cpus import CpusetError, parse_number_list
from lumisite.site.document import MAX_PATH_LETTERS, MAX_UNFOLDED, MAX_VALUES, parse_yaml
from lumisite.site.load import EMBEDDED, parse_site
from lumisite.text import MOST_COMPARED, alternatives, first_repeated, nearest_name

LUMI = (EMBEDDED / "lumi.yaml").read_text()


def refused(text: str) -> Finding:
    start = time.process_time()
    with pytest.raises(SiteError) as error:
        parse_site(text.encode(), Path("site.yaml"))
    assert time.process_time() - start < 15
    assert str(error.value).startswith("site.yaml:")
    return error.value.findings[-1]


@pytest.mark.parametrize(
    ("more", "limit"),
    [
        ("many: [" + "x," * MAX_VALUES + "x]\n", {"most_values": MAX_VALUES}),
        (f"? {'k' * 100_000}\n: [{'x,' * 1000}x]\n", {"most_letters": MAX_PATH_LETTERS}),
        (f"a: &a [{'x,' * 900}x]\n? {'b' * 5_000}\n: [{'*a,' * 10}*a]\n", {"most_letters": MAX_PATH_LETTERS}),
    ],
)
def test_values_and_their_key_paths_are_counted_as_they_are_read(more: str, limit: dict[str, int]) -> None:
    found = refused(LUMI + more)
    assert (found.code, found.values) == ("yaml-unsupported", limit)
    assert found.place is not None
    assert found.place.line > LUMI.count("\n")


def test_unknown_keys_are_told_up_to_a_number_each_with_what_was_meant() -> None:
    found = refused(LUMI + "".join(f"partitios{number}: x\n" for number in range(10_000)))
    assert (found.code, found.values) == ("too-many-faults", {"limit": MOST_PRINTED - 1})


def test_ranges_and_references_are_charged_for_what_they_unfold_into() -> None:
    lists = ", ".join(f"{{cores: 0-8191, numa: {number}}}" for number in range(150))
    found = refused(LUMI.replace("\nnode_kinds:\n", f"\nnode_kinds:\n  x: {{memory_mib: 1, l3: [{lists}]}}\n", 1))
    assert (found.code, found.values) == ("yaml-unsupported", {"most_unfolded": MAX_UNFOLDED})
    reference = "{support.name}" * 60_000
    found = refused(LUMI.replace("\nsettings:\n", f'\nsettings:\n  - {{name: X, value: "={reference}"}}\n', 1))
    assert (found.code, found.values) == ("yaml-unsupported", {"most_unfolded": MAX_UNFOLDED})


def test_more_kinds_of_a_partition_than_a_helper_tells_apart_are_refused() -> None:
    start = LUMI.index("\npartitions:\n")
    kinds = ", ".join(["lumi-g"] * 17)
    name = LUMI[start:].split("node_kind: ")[1].split("\n")[0].split(",")[0].split("}")[0]
    text = LUMI[:start] + LUMI[start:].replace(f"node_kind: {name}", f"node_kind: [{kinds}]", 1)
    with pytest.raises(SiteError) as error:
        parse_site(text.encode(), Path("site.yaml"))
    values = [dict(found.values) for found in error.value.findings if found.code == "value-out-of-range"]
    assert values == [{"value": 17, "most": 16}]


def test_ranges_over_and_over_end_at_the_first_number_that_is_there_twice() -> None:
    with pytest.raises(CpusetError) as error:
        parse_number_list("0-8191," * 400_000)
    assert (error.value.finding.code, error.value.finding.values) == ("named-twice", {"name": 0})
    assert first_repeated([3, 1, 1, 3]) == 1


def test_the_search_for_what_was_meant_takes_no_longer_than_it_is_worth() -> None:
    start = time.process_time()
    assert nearest_name("x" * 1_000_000, ["y" * 1_000_000]) is None
    assert nearest_name("", ["a"]) is None
    names = [f"{'a' * 50}{number}" for number in range(100_000)]
    assert len(alternatives("z", names)["known"]) == MOST_COMPARED
    assert nearest_name(f"{'a' * 50}x", names) in names
    assert time.process_time() - start < 5


def test_a_position_is_looked_for_in_a_few_steps() -> None:
    start = time.process_time()
    assert parse_yaml(b"a: 1\n", "x").position("a" + ".b" * 1_000_000) == (0, 0)
    assert parse_yaml(b"a: 1\n", "x").position("a.b.c") == (1, 4)
    assert time.process_time() - start < 5
