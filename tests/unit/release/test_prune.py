"""Old releases go with a deploy: all but the newest, where rollback goes, and what jobs may use."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lumisite.release import prune
from tests.support.rendered_trees import current, deploy, tree, written
from tests.unit.release.conftest import Run

IDS = [f"2026-0{number}-00000000000{number}" for number in range(1, 9)]
RELEASES = Path("ROOT/releases")


@pytest.fixture
def eight(tmp_path: Path, run: Run) -> Run:
    """Eight rendered trees, of which seven were deployed one after the other, all this minute."""
    for number, name in enumerate(IDS):
        written(tmp_path / name, tree(name, libfabric=f"1.{number}"))
    deploy(*IDS[:7])
    return run


def age(*names: str) -> None:
    """Let releases have been left a year ago."""
    steps = [json.loads(line) for line in Path("ROOT/history").read_text().splitlines()]
    for step in steps:
        if step["before"] in names:
            step["time"] = "2025-01-01T00:00:00Z"
    Path("ROOT/history").write_text("".join(f"{json.dumps(step)}\n" for step in steps))


def there() -> list[str]:
    return sorted(path.name for path in RELEASES.iterdir())


def test_what_jobs_may_still_use_stays(eight: Run) -> None:
    assert there() == IDS[:7]
    age(IDS[0])
    assert eight("deploy", IDS[7], "ROOT", "--apply")[1].endswith(f"\nremoved {IDS[0]}\n")
    assert there() == IDS[1:]


def test_the_newest_five_stay_however_old_they_are(eight: Run) -> None:
    age(*IDS)
    _, out, err = eight("deploy", IDS[7], "ROOT")
    gone = [f"lumisite: would be removed: {Path('ROOT').resolve()}/releases/{name}" for name in reversed(IDS[:3])]
    assert [line for line in err.splitlines() if "removed" in line] == gone
    assert there() == IDS[:7]
    assert json.loads(eight("deploy", IDS[7], "ROOT", "--json", "--keep", "3")[1])["removed"] == IDS[4::-1]
    assert eight("deploy", IDS[7], "ROOT", "--apply")[0] == 0
    assert there() == IDS[3:]
    assert current() == IDS[7]
    assert eight("rollback", "ROOT")[0] == 0
    assert "would be removed" not in out


def test_what_is_edited_or_not_of_the_history_stays(eight: Run) -> None:
    age(*IDS)
    (RELEASES / IDS[1] / "modules/mine.lua").write_text("-- mine")
    (RELEASES / IDS[0]).rename(RELEASES / "2026-01-aaaaaaaaaaaa")
    assert eight("deploy", IDS[7], "ROOT", "--apply", "--keep", "1")[0] == 0
    assert there() == ["2026-01-aaaaaaaaaaaa", IDS[1], *IDS[6:]], "the one before the new one is where rollback goes"


def test_where_rollback_goes_stays_after_a_rollback(eight: Run) -> None:
    age(*IDS)
    assert eight("rollback", "ROOT", IDS[2])[0] == 0
    age(*IDS)
    assert eight("deploy", IDS[7], "ROOT", "--apply", "--keep", "1")[0] == 0
    assert {IDS[2], IDS[7]} <= {*there()}
    assert eight("rollback", "ROOT")[0] == 0
    assert current() == IDS[2]


def test_no_release_is_too_few_to_keep(run: Run) -> None:
    assert run("deploy", "new", "ROOT", "--keep", "0")[0] == 2
    assert prune.KEPT == 5
