"""Evidence goes into the text of a description, of which all else stays as it was."""

from __future__ import annotations

from pathlib import Path

import pytest

from lumisite.errors import ResolveError, SiteError
from lumisite.site.evidence_writer import with_evidence
from lumisite.site.load import site_of
from tests.support.sites import load_text, site_text

FOUND = {
    "effect": "needed",
    "by": "measured",
    "what": "5, and {6}",
    "nodes": "2",
    "date": "2026-11-22",
    "source": "here",
}
LINE = "{effect: needed, by: measured, what: '5, and {6}', nodes: '2', date: '2026-11-22', source: here}"
HEAD = """\
  - name: USE_LIBUV
    value: "0"
    why: Debian's PyTorch is built without libuv, and its TCPStore asks for it
"""
SOURCE = "    source: tests/twin\n"
ENTRY = HEAD + SOURCE
ADDED = f"{HEAD}    evidence:\n      - {LINE}\n{SOURCE}"
KNOWN = "{effect: unknown, by: inferred, source: here}"


def added(entry: str, value: str | None = None, name: str = "USE_LIBUV", effect: str = "needed") -> tuple[str, str]:
    """Give a description before and after evidence was added."""
    before = site_text((ENTRY, entry))
    data = with_evidence(load_text(before), name, value, FOUND | {"effect": effect}, "site.yaml")
    return before, data.decode()


@pytest.mark.parametrize("value", [None, "0"])
@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        (ENTRY, ADDED),
        (f"{ENTRY}    # last words\n\n", f"{ADDED}    # last words\n\n"),
        (
            f"{ENTRY}    evidence: # known\n    # the first\n      - {KNOWN}\n",
            f"{ENTRY}    evidence: # known\n    # the first\n      - {LINE}\n      - {KNOWN}\n",
        ),
        (f"{ENTRY}    evidence: [{KNOWN}]\n", f"{ENTRY}    evidence: [{LINE}, {KNOWN}]\n"),
        ('  - {name: USE_LIBUV, value: "0", why: x, source: y} # z\n', f'  - {{name: USE_LIBUV, value: "0", why: x, evidence: [{LINE}], source: y}} # z\n'),
        (
            f'  - {{name: USE_LIBUV, value: "0", why: x, evidence: [{KNOWN}]}}\n',
            f'  - {{name: USE_LIBUV, value: "0", why: x, evidence: [{LINE}, {KNOWN}]}}\n',
        ),
    ],
)  # fmt: skip
def test_evidence_is_put_first_and_all_else_stays(entry: str, expected: str, value: str | None) -> None:
    before, after = added(entry, value)
    assert after == before.replace(entry, expected)
    settings = site_of(after.encode(), Path("site.yaml")).site.settings
    (found,) = (one for one in settings if one.name == "USE_LIBUV")
    assert (found.evidence[0].effect, found.evidence[0].what) == ("needed", "5, and {6}")


def test_of_several_entries_the_one_with_this_value_gets_it() -> None:
    left = "  - {name: USE_LIBUV, leave: yes, when: {nodes: one}, why: x, source: y}\n"
    before, after = added(left + ENTRY, "0")
    assert after == before.replace(ENTRY, ADDED)
    _, after = added(left + ENTRY, "7")
    assert load_text(after).site.settings[2].evidence[0].of == "7"


def test_of_another_value_the_evidence_says_which() -> None:
    _, after = added(ENTRY, "a|[b]*", effect="harmful")
    (found,) = (one for one in load_text(after).site.settings if one.name == "USE_LIBUV")
    assert found.evidence[0].of == "a?[[]b][*]"


def test_a_variable_without_an_entry_gets_one_that_leaves_it_alone() -> None:
    before, after = added(ENTRY, "1", "A_B")
    assert (
        after.replace(after[after.index("  - name: A_B") : after.index("  - name: NCCL_SOCKET_IFNAME")], "") == before
    )
    found = load_text(after).site.settings[0]
    assert (found.name, found.leave, found.evidence[0].of) == ("A_B", True, "1")


def test_what_the_ledger_forbids_is_told_with_its_place() -> None:
    _, after = added(ENTRY, "0", effect="harmful")
    with pytest.raises(SiteError, match=r"site.yaml:\d+:\d+: settings\[2\].evidence\[0\]: .* \[harmful-value-set\]"):
        site_of(after.encode(), Path("site.yaml"))


def test_evidence_of_two_entries_at_once_is_not_touched() -> None:
    other = f'  - {{name: X, value: "0", why: x, evidence: &both [{KNOWN}]}}\n'
    with pytest.raises(ResolveError, match=r"\[evidence-shared\]"):
        added(f"{other}{ENTRY}    evidence: *both\n")


def test_the_source_stays_beside_the_evidence() -> None:
    from lumisite.site.evidence import evidence_of

    _, after = added(ENTRY)
    (found,) = (one for one in load_text(after).site.settings if one.name == "USE_LIBUV")
    assert [one.source for one in evidence_of(found)] == ["here", "tests/twin"]
