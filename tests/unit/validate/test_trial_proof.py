"""Whether a setting took effect: by what ranks recorded on both sides, and by nothing that is missing on one."""

from __future__ import annotations

import json
from typing import Any

import pytest

from lumisite.validate.run.script import RECORDS
from lumisite.validate.trial.design import Arm, TrialSetting
from lumisite.validate.trial.proof import Signs, find_proof
from lumisite.validate.trial.results import results_of
from tests.unit.validate.test_trial_jobs import NEW, Left, _left

__all__ = ["_left"]

ARM = Arm("A_B=1", "variant", (TrialSetting("A_B", "1"),), TrialSetting("A_B", "1"))
NOT_REACHED = {"rank": 1, "name": "A_B", "actual": "2", "setting": "A_B=1"}
LACKS: dict[str, Any] = {"rank": 1, "given": {"A_B": None}}
SILENT = {"name": "A_B", "ranks": (1,)}
REACHED = [{"rank": 0, "given": {"A_B": "1"}}, {"rank": 1, "given": {"A_B": "1"}}]


@pytest.mark.parametrize(
    ("records", "signs", "took_effect", "code", "values"),
    [
        ([], Signs(), "unknown", "setting-not-recorded", {"name": "A_B", "ranks": (0, 1)}),
        (REACHED[1:], Signs({"A_B": "x"}), "unknown", "setting-not-recorded", {"name": "A_B", "ranks": (0,)}),
        (REACHED, None, "unknown", "setting-not-shown", {}),
        (REACHED, Signs(), "unknown", "setting-not-shown", {"name": "A_B"}),
        (REACHED, Signs({"A_B": "liba.so"}), "yes", "library-names-setting", {"file": "liba.so", "name": "A_B"}),
        (REACHED, Signs(log=("INFO A_B=1",)), "yes", "library-logs-setting", {"line": "INFO A_B=1"}),
        (REACHED, Signs(carried={0: {"eth0": 9}}), "yes", "carrier-changed", {"carrier": "eth0", "reference": "hsn0"}),
        (
            REACHED,
            Signs(cpus={0: "0-3", 1: "0-3"}),
            "yes",
            "cpus-changed",
            {"rank": 0, "cpus": "0-3", "reference": "1"},
        ),
        (REACHED, Signs(cpus={1: "2"}), "unknown", "setting-not-shown", {"name": "A_B"}),
        (
            REACHED,
            Signs(devices={1: frozenset({"anon_inode:x"})}),
            "yes",
            "devices-changed",
            {"devices": ("anon_inode:x",)},
        ),
        (REACHED, Signs(log=("A_B=1 not available",)), "unknown", "setting-refused", {"line": "A_B=1 not available"}),
        ([REACHED[0], {"rank": 1, "given": {"A_B": "2"}}], Signs(), "no", "setting-not-reached", NOT_REACHED),
        ([REACHED[0], LACKS], Signs(), "no", "setting-not-reached", NOT_REACHED | {"actual": None}),
        ([REACHED[0], {"rank": 1, "given": {}}], Signs(), "unknown", "setting-not-recorded", SILENT),
    ],
)
def test_what_proves_that_a_setting_took_effect(
    records: list[dict[str, Any]], signs: Signs | None, took_effect: str, code: str, values: dict[str, object]
) -> None:
    reference = Signs(devices={1: frozenset()}, carried={0: {"hsn0": 9}}, cpus={0: "1", 1: "2"})
    state, (finding, *_) = find_proof(ARM, records, 2, signs, reference)
    assert (state, finding.code, finding.values) == (took_effect, code, values)


def test_an_absence_that_no_rank_recorded_is_no_proof_of_it() -> None:
    gone = Arm("A_B unset", "variant", (TrialSetting("A_B"),), TrialSetting("A_B"), "1")
    records = [{"rank": 0, "given": {"A_B": None}}, {"rank": 1, "given": "torn"}]
    state, (finding,) = find_proof(gone, records, 2, Signs({"A_B": "liba.so"}), Signs())
    assert (state, finding.code, finding.values) == ("unknown", "setting-not-recorded", SILENT)


def short_step(left: Left, arm: str, **changes: object) -> None:
    """Change what rank 0 recorded in an arm's short step; None is what it did not record."""
    design, _, _, job = left
    number = next(at for at, one in enumerate(design.arms) if one.name == arm)
    path = job / f"v{number:02}-sign-2n/{RECORDS}/0.json"
    record = {**json.loads(path.read_text()), "named": {}, **changes}
    path.write_text(json.dumps({name: value for name, value in record.items() if value is not None}))


@pytest.mark.parametrize(
    ("sign", "recorded"),
    [("cpus", [0, 1]), ("devices", ["/dev/kfd"]), ("carried", {"hsn0": 10})],
)
@pytest.mark.parametrize("lacking", ["reference", str(NEW)])
def test_what_one_side_did_not_record_is_no_proof_and_is_named(
    left: Left, sign: str, recorded: object, lacking: str
) -> None:
    design, run, plans, job = left
    for path in job.glob(f"v*-sign-2n/{RECORDS}/1.json"):
        path.unlink()
    for arm in ("reference", str(NEW)):
        short_step(left, arm, **{"carried": None, sign: None if arm == lacking else recorded})
    (tried,) = (one for one in results_of(design, run, plans) if one.run.arm == str(NEW))
    assert (tried.took_effect, tried.proof[0].code) == ("unknown", "setting-not-shown")
    (missing,) = (one for one in tried.proof if one.values.get("sign") == sign)
    side = "reference" if lacking == "reference" else "variant"
    assert missing.code == "sign-missing"
    assert missing.values == {"sign": sign, "ranks": (0,), "sides": (side,)}


@pytest.mark.parametrize(
    ("code", "sides"),
    [
        ("cpus-changed", ({"cpus": [0]}, {"cpus": [1]})),
        ("devices-changed", ({"devices": []}, {"devices": ["/dev/kfd"]})),
        ("carrier-changed", ({"carried": {"eth0": 9, "hsn0": 1}}, {"carried": {"eth0": 1, "hsn0": 9}})),
    ],
)
def test_what_differs_is_a_proof_though_ranks_reported_where_they_were(
    left: Left, code: str, sides: tuple[dict[str, object], dict[str, object]]
) -> None:
    design, run, plans, job = left
    for step in job.glob(f"v*-sign-2n/{RECORDS}"):
        for rank in (0, 1):
            (step / f"{rank}.at").write_text(json.dumps({"rank": rank, "host": "n1", "phase": "moving", "time": 1.0}))
    for arm, changes in zip(("reference", str(NEW)), sides, strict=True):
        short_step(left, arm, **changes)
    for path in job.glob(f"v*-sign-2n/{RECORDS}/1.json"):
        path.unlink()
    (tried,) = (one for one in results_of(design, run, plans) if one.run.arm == str(NEW))
    assert (tried.took_effect, [one.code for one in tried.proof]) == ("yes", [code])


def test_the_devices_of_a_rank_without_a_record_are_no_difference(left: Left) -> None:
    """Rank 0 of the reference left no record: the GPU of that rank is not open on one side only."""
    design, run, plans, job = left
    for folder in ("v00-sign-2n", "v03-sign-2n"):
        for rank in (0, 1):
            path = job / folder / RECORDS / f"{rank}.json"
            record = {**json.loads(path.read_text()), "named": {}, "cpus": [rank], "devices": [f"/dev/gpu{rank}"]}
            path.write_text(json.dumps(record))
    (job / "v00-sign-2n" / RECORDS / "0.json").unlink()
    (tried,) = (one for one in results_of(design, run, plans) if one.run.arm == str(NEW))
    assert tried.took_effect == "unknown"
    missing = [one.values for one in tried.proof if one.code == "sign-missing"]
    assert {"sign": "cpus", "ranks": (0,), "sides": ("reference",)} in missing
