"""What a site expects of metrics, which of them decide, which jobs may be compared, and what a baseline has."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from lumisite.cli import main
from lumisite.findings.finding import Finding, Severity
from lumisite.site.validation import MetricRule
from lumisite.validate.lines import Sample, line_json
from lumisite.validate.samples import Recorded, Series, read_lines
from lumisite.validate.verdict.baseline import baseline_size
from lumisite.validate.verdict.deciding_metrics import decides
from lumisite.validate.verdict.metric import MetricVerdict, judge_metric
from lumisite.validate.verdict.system import SystemVerdict, Terms, judge_system
from tests.support.series import SETS, STEADY, after, codes, scaled, series, write
from tests.support.simulation import DECIDING
from tests.support.sites import site_text

Output = pytest.CaptureFixture[str]
DAY_S = 86400
NODES = tuple(node for names in SETS for node in names)


def rule(metric: str = "m", **changed: object) -> MetricRule:
    return MetricRule(metric=metric, source="test", **changed)  # type: ignore[arg-type]


def system(before: Series | None, new: Series | None, *rules: MetricRule, **terms: object) -> SystemVerdict:
    old, now = (Recorded({one.metric: one} if one else {}) for one in (before, new))
    return judge_system(old, now, Terms(tuple(rules), **terms))  # type: ignore[arg-type]


def one(before: Series | None, new: Series | None, *rules: MetricRule, **terms: object) -> MetricVerdict:
    return system(before, new, *rules, **terms).metrics[0]


# ---- which metrics decide

USUAL = {*DECIDING}
ONE_NUMBER = ("samples_per_s", "step_time_p90_s")


def test_eight_metrics_decide_and_the_site_may_name_others() -> None:
    shown = {
        *(f"ddp/{quantity}/{model}/{shape}" for quantity in (*ONE_NUMBER, "exposed_communication")
          for model in ("comm", "compute") for shape in ("1g", "1n", "2n")),
        *(f"collectives/{name}_busbw/{size}/{shape}" for name in ("all_reduce", "all_gather")
          for size in ("1MiB", "128MiB", "1GiB") for shape in ("1n", "2n")),
        *(f"pairs/{name}/1n" for name in ("gemm", "copy_bw", "from_host_bw")),
        "communicators/next_group_s/2n", "communicators/first_group_s/1n",
    }  # fmt: skip
    assert {name for name in shown | USUAL if decides(name)} == USUAL
    assert decides("collectives/all_reduce_busbw/1MiB/12n")
    assert {name for name in shown if decides(name, ("pairs/gemm/*",))} == {"pairs/gemm/1n"}
    # What somebody else measures is judged where the site names nothing.
    assert decides("m")
    assert not decides("m", ("x",))
    # A share near zero never is: an unchanged one was inconclusive in two of three cases.
    assert not decides("ddp/exposed_communication/comm/2n", ("ddp/*",))


def test_a_metric_that_does_not_decide_is_shown_only() -> None:
    found = system(series(STEADY), after(scaled(0.7, 10)), deciding=("x",))
    assert (found.metrics[0].verdict, found.metrics[0].decides) == ("shown", False)
    assert found.metrics[0].change == pytest.approx(-0.3, abs=0.005)
    # Nothing is left that decides.
    assert found.exit_code == 4
    fine = {"m": series(STEADY), "x": replace(series(STEADY), metric="x")}
    now = {"m": after(scaled(0.7, 5)), "x": replace(after(scaled(1.0, 5)), metric="x")}
    whole = judge_system(Recorded(fine), Recorded(now), Terms(deciding=("x",)))
    assert whole.exit_code == 0


# ---- what the site expects

FIRST_LOW, BETTER = [*scaled(1.15, 5), *scaled(1.3, 5)], [*scaled(0.79, 5), *scaled(1.4, 5)]
LIMIT = ", the limit for the 200 that the site expects"


@pytest.mark.parametrize(
    ("before", "new", "better", "spec", "verdict", "reason"),
    [
        # Below the floor of what is expected fails, whatever the baseline says, and without one.
        (STEADY, scaled(1.0, 5), "higher", 200.0, "unconfirmed", f"100 is below 120{LIMIT}; it missed that before the"),
        (STEADY, scaled(1.0, 10), "higher", 200.0, "fail", "; confirmed by 5 more jobs"),
        (scaled(1.3, 10), FIRST_LOW, "higher", 200.0, "warn", "; not confirmed by 5 more jobs: "),
        ([], scaled(1.0, 5), "higher", 200.0, "unconfirmed", f"100 is below 120{LIMIT}; 0 of 5 jobs"),
        ([], scaled(1.0, 10), "higher", 200.0, "fail", "; confirmed by 5 more jobs"),
        ([], [*scaled(1.0, 5), *scaled(3.0, 5)], "higher", 200.0, "warn", "; not confirmed by 5 more jobs"),
        # What is expected and reached is no baseline.
        ([], scaled(1.0, 10), "higher", 101.0, "inconclusive", "not measured before"),
        # Where lower is better it is a ceiling.
        (
            STEADY,
            scaled(1.0, 10),
            "lower",
            50.0,
            "fail",
            " is above 83.333, the limit for the 50 that the site expects",
        ),
        (STEADY, scaled(1.0, 10), "lower", 61.0, "pass", "no drop of "),
        # What is better in all is no warning, whatever the first jobs were.
        (STEADY, BETTER, "higher", None, "pass", "; not confirmed by 5 more jobs: "),
        (STEADY, BETTER, "higher", 133.0, "pass", "; not confirmed by 5 more jobs: "),
    ],
)
def test_what_the_site_expects_is_judged_beside_the_baseline(
    before: list[float], new: list[float], better: str, spec: float | None, verdict: str, reason: str
) -> None:
    found = one(series(before, better=better) if before else None, after(new, better=better), rule(spec=spec))
    assert (found.verdict, found.more_jobs) == (verdict, 5 if verdict == "unconfirmed" else 0)
    assert reason in found.reason
    if "the limit for" in reason:
        assert found.below_spec
        assert codes(found)[0] == "metric-slower"


def test_the_floor_of_what_is_expected_can_be_set_and_bad_nodes_alone_do_not_fail_it() -> None:
    assert one(series(STEADY), after(scaled(1.0, 10)), rule(spec=200.0, floor=0.4)).verdict == "pass"
    unmeasured = Finding("metric-unmeasured", Severity.DOUBT, "not measured before")
    found = judge_metric(unmeasured, after(scaled(1.0, 10)), rule(spec=200.0), slow_after=frozenset(NODES))
    assert (found.verdict, found.on_slow_nodes, found.more_jobs) == ("inconclusive", True, 5)


# ---- unlike jobs


def marked(values: Series, **marks: str) -> Series:
    return replace(values, jobs=tuple(replace(job, **marks) for job in values.jobs))  # type: ignore[arg-type]


def joined(*parts: Series) -> Series:
    return Series("m", "higher", tuple(job for part in parts for job in part.jobs))


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        (
            series(STEADY),
            joined(marked(after(scaled(1.0, 5)), spec="a"), marked(series(STEADY, at=300), spec="b")),
            "the jobs after the change are of several specs (a, b)",
        ),
        (series(STEADY), series(STEADY), "run j0 is before and after the change: one of the files is wrong"),
        (series(STEADY), after(STEADY, better="lower"), "higher is better before and lower after"),
        (
            replace(series(STEADY), unit="s"),
            replace(after(scaled(1.0, 5)), unit="ms"),
            "in s before and in ms after",
        ),
    ],
)
def test_what_is_not_alike_is_not_compared(old: Series, new: Series, reason: str) -> None:
    found = one(old, new)
    assert (found.verdict, codes(found), found.reason) == ("inconclusive", ["metric-unlike"], reason)


def test_of_a_baseline_of_two_kinds_the_right_one_is_compared() -> None:
    both = joined(marked(series(scaled(1.2, 10)), spec="a"), marked(series(STEADY, at=50), spec="b"))
    found = system(both, marked(after(scaled(1.0, 5)), spec="b"))
    assert (found.exit_code, found.metrics[0].jobs_before) == (0, 10)
    assert "10 of 20 jobs before the change measured another thing and are left out" in found.notes


@pytest.mark.parametrize(
    ("expected", "state", "reason"),
    [
        (100.0, "pass", "100 is within what the site expects, 100"),
        (None, "shown", "no baseline, and the site expects no number"),
    ],
)
def test_without_a_baseline_the_site_decides(expected: float | None, state: str, reason: str) -> None:
    alone = judge_system(None, Recorded({"m": after(scaled(1.0, 5))}), Terms((rule(spec=expected),)))
    assert (alone.metrics[0].verdict, alone.metrics[0].reason) == (state, reason)


@pytest.mark.parametrize("what", ["image", "spec"])
def test_jobs_with_another_image_or_spec_are_not_compared(what: str) -> None:
    old, new = marked(series(STEADY), **{what: "a"}), marked(after(scaled(0.88, 10)), **{what: "b"})
    refused = one(old, new)
    assert refused.verdict == "inconclusive"
    assert codes(refused) == ["metric-unlike"]
    assert refused.reason.endswith(f": {what} a before, b after")
    assert one(old, new, allow_image_change=True).verdict == {"image": "fail", "spec": "inconclusive"}[what]
    assert one(old, marked(new, **{what: "a"})).verdict == "fail"
    assert one(old, marked(new, **{what: ""})).verdict == "fail"
    assert one(series(STEADY), new).verdict == "fail"


# ---- the command


def test_the_command_reads_the_sites_rules(capsys: Output) -> None:
    name = "collectives/all_reduce_busbw/128MiB/1n"
    write("before", replace(series(scaled(0.5, 10)), metric=name))
    write("after", replace(after(scaled(0.5, 10)), metric=name))
    command = ["verdict", "--before", "before", "--after", "after"]
    assert main(command) == 0
    assert main([*command, "--site", "lumi"]) == 1
    assert " that the site expects; it missed that before the change too" in capsys.readouterr().out
    # A site without a section about validation has no rules.
    text = site_text()
    Path("site.yaml").write_text(text[: text.index("validation:")] + text[text.index("images:\n  folders:") :])
    assert main([*command, "--site", "site.yaml"]) == 0


def test_the_command_compares_images_only_when_told(capsys: Output) -> None:
    for side, lines in (("before", write("x", series(STEADY))), ("after", write("x", after(scaled(1.0, 5))))):
        Path(side).write_text("\n".join(json.dumps({**json.loads(line), "image": side}) for line in lines))
    command = ["verdict", "--before", "before", "--after", "after"]
    assert main(command) == 4
    assert "used another image: image before before, after after" in capsys.readouterr().out
    assert main([*command, "--allow-image-change"]) == 0


# ---- what a baseline has and lacks


def baseline(*parts: list[tuple[int, str]], metrics: Sequence[str] = "mmm", days: int = 3) -> tuple[str, list[int]]:
    """Return the finding's code, and the jobs, days and node sets that it counts; each job is a day and its nodes."""
    lines = [
        line_json(Sample(metric, 1.0, "higher", f"r{n}", tuple(nodes.split()), day * DAY_S))
        for metric, jobs in zip(metrics, parts, strict=False)
        for n, (day, nodes) in enumerate(jobs)
    ]
    found = baseline_size(read_lines([("f", ["\n".join(lines).encode()])]), days)
    assert bool(found.advice) == (found.code == "baseline-poor")
    return found.code, [*map(int, re.findall(r"(\d+) of ", found.message))]


WHOLE = [(day, nodes) for day in range(3) for nodes in ("a b", "c d")] * 2


@pytest.mark.parametrize(
    ("jobs", "code", "has"),
    [
        (WHOLE, "baseline-size", [12, 3, 2]),
        (WHOLE[:6], "baseline-poor", [6, 3, 2]),
        ([(0, "a b")] * 10, "baseline-poor", [10, 1, 1]),
        ([(day, nodes) for day in range(3) for nodes in ("a b", "b c", "a c", "a b d")], "baseline-poor", [12, 3, 1]),
        # The first shares a node with each of the others, which share none.
        ([(day, nodes) for day in range(3) for nodes in ("b c", "a b", "c d")] * 2, "baseline-size", [18, 3, 2]),
    ],
)
def test_a_baseline_has_jobs_days_and_node_sets(jobs: list[tuple[int, str]], code: str, has: list[int]) -> None:
    assert baseline(jobs) == (code, has)


def test_of_a_baseline_the_metric_that_fewest_jobs_have_counts_and_what_each_node_has_needs_one_set() -> None:
    assert baseline(WHOLE, WHOLE[:1], metrics=("m", "rare")) == ("baseline-poor", [1, 1, 1])
    ring = [[(0, nodes)] * 10 for nodes in ("a b", "b c", "a c")]
    assert baseline(*ring, days=1) == ("baseline-size", [10, 1, 1])
