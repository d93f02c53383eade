"""From `--rocm 6.2` to exact releases; refusals name the range, the reason and the nearest that would do."""

from __future__ import annotations

import pytest

from lumisite.errors import ResolveError
from lumisite.findings.finding import Finding
from lumisite.site.load import load_site
from lumisite.site.selection import resolve_selection

LUMI = load_site("lumi").site


def chosen(**options: object) -> tuple[str, list[str], list[str]]:
    selection = resolve_selection(LUMI, **options)  # type: ignore[arg-type]
    cpe, rocm = (list(map(str, selection.stacks[stack])) for stack in ("cpe", "rocm"))
    return selection.platform, cpe, rocm


def refusal(**options: object) -> Finding:
    with pytest.raises(ResolveError) as caught:
        chosen(**options)
    assert "\n" not in str(caught.value)
    return caught.value.finding


@pytest.mark.parametrize(
    ("options", "result"),
    [
        ({}, ("2026-01", ["25.03"], ["6.3.4"])),
        ({"rocm": ["6.2"]}, ("2026-01", ["25.03"], ["6.2.4"])),
        ({"rocm": ["6.2.1"]}, ("2026-01", ["25.03"], ["6.2.1"])),
        ({"rocm": ["6"]}, ("2026-01", ["25.03"], ["6.4.4"])),
        ({"rocm": ["7"]}, ("2026-01", ["25.03"], ["7.2"])),
        ({"rocm": ["6.2"], "platform": "2024-08"}, ("2024-08", ["24.03"], ["6.2.4"])),
        ({"rocm": ["6.2"], "cpe": ["24.03"]}, ("2026-01", ["24.03"], ["6.2.4"])),
        ({"rocm": ["6.2", "6.3", "6.2.4"]}, ("2026-01", ["25.03"], ["6.3.4", "6.2.4"])),
        ({"rocm": ["all"]}, ("2026-01", ["25.03"], ["6.3.4", "6.1.3", "6.2.4", "6.4.4", "7.0.3", "7.2"])),
        ({"rocm": ["6.2"], "cpe": ["all"]}, ("2026-01", ["25.03", "25.09"], ["6.2.4"])),
        ({"rocm": ["6.2"], "cpe": ["25.09", "25.3"]}, ("2026-01", ["25.03", "25.09"], ["6.2.4"])),
    ],
)
def test_what_is_requested_gives_exact_releases_the_default_first(
    options: dict[str, object], result: tuple[str, list[str], list[str]]
) -> None:
    assert chosen(**options) == result


def test_a_release_outside_the_drivers_range_is_refused_with_the_nearest_that_would_do() -> None:
    finding = refusal(rocm=["6.0"])
    assert (finding.code, finding.subject) == ("release-unavailable", "--rocm")
    driver = "driver amdgpu 6.3.60300-2084815 of platform 2026-01"
    assert finding.message == f"ROCm 6.0 is outside the range >=6.1,<7.1 that {driver} supports"
    assert finding.advice == "use 6.1.3, or platform 2024-08"


def test_a_release_that_the_site_lacks_is_refused_with_what_there_is() -> None:
    finding = refusal(rocm=["6.5"])
    assert (finding.code, finding.advice) == ("release-unavailable", "use 6.4.4")
    assert finding.message.startswith("lumi has no ROCm 6.5 (has 5.")


@pytest.mark.parametrize(
    ("options", "code", "subject", "advice"),
    [
        ({"rocm": ["six"]}, "value-wrong", "--rocm", "example: 6.2.4 or 25.03"),
        ({"rocm": [""]}, "value-wrong", "--rocm", "example: 6.2.4 or 25.03"),
        ({"cpe": ["x"]}, "value-wrong", "--cpe", "example: 6.2.4 or 25.03"),
        ({"platform": "2026-1"}, "name-unknown", "--platform", "did you mean 2026-01?"),
        ({"cpe": ["25.06"]}, "release-unavailable", "--cpe", "use 25.09"),
        ({"cpe": ["25.03"], "platform": "2024-08"}, "release-unavailable", "--cpe", "use 24.03"),
    ],
)
def test_other_refusals_are_one_line(options: dict[str, object], code: str, subject: str, advice: str) -> None:
    finding = refusal(**options)
    assert (finding.code, finding.subject, finding.advice) == (code, subject, advice)


def test_every_release_of_the_site_has_the_reason_why_it_was_chosen_or_lost() -> None:
    selection = resolve_selection(LUMI, rocm=["6.2"])
    reasons = {(c.kind, c.name): (c.chosen, c.reason) for c in selection.candidates}
    assert len(reasons) == len(LUMI.platforms) + sum(len(stack.releases) for stack in LUMI.stacks.values())
    driver = "range >=6.1,<7.1"
    assert reasons["rocm", "6.2.4"] == (True, f"in {driver} of the driver, found in: image and host")
    assert reasons["rocm", "7.2"] == (
        False,
        f"outside the {driver} that is supported with the driver, and in use here; 6.2.4 chosen",
    )
    assert reasons["rocm", "6.0.3"] == (False, f"outside the {driver} that the driver of platform 2026-01 supports")
    assert reasons["cpe", "24.03"] == (False, "still installed on platform 2026-01, no longer supported; 25.03 chosen")
    assert reasons["cpe", "25.03"] == (True, "the default of platform 2026-01")
    assert reasons["platform", "2024-08"] == (False, "in force from 2024-08")
    assert reasons["platform", "2026-01"] == (True, "in force since 2026-01-21, the current one")
    earlier = resolve_selection(LUMI, platform="2024-08").candidates
    assert "--platform 2024-08" in next(c.reason for c in earlier if c.name == "2024-08")
    assert "not installed on platform 2024-08" in {c.reason for c in earlier if c.kind == "cpe"}
    newest = {c.name: c.reason for c in resolve_selection(LUMI, rocm=["7.2"]).candidates}
    assert newest["7.2"].endswith("and in use here, found in: image")
