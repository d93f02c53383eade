"""File systems where private caches go: what a description says of them, and what cannot be right."""

from __future__ import annotations

import pytest

from lumisite.errors import SiteError
from tests.support.sites import load_text, site_faults, site_text

TMP = "{path: /tmp, kind: node-local, writable: yes, in_memory: yes,"
PRIVATE = "needs a private directory, and users can make one in no file system"


@pytest.mark.parametrize(
    ("new", "faults"),
    [
        (
            "{path: /tmp, kind: shared, writable: yes,",
            ["file_systems[6].writable: has no effect without `kind: node-local`"],
        ),
        (
            "{path: /tmp, kind: node-local,",
            [
                f"settings[4].directory: MIOPEN_USER_DB_PATH {PRIVATE}",
                f"settings[5].directory: MIOPEN_CUSTOM_CACHE_DIR {PRIVATE}",
            ],
        ),
        (
            "{path: /tmp, kind: node-local, job_folder: /tmpx/$SLURM_JOB_ID,",
            ["file_systems[6].job_folder: /tmpx/$SLURM_JOB_ID is not below /tmp"],
        ),
        *(
            (
                f"{{path: /tmp, kind: node-local, job_folder: '{text}',",
                [f"file_systems[6].job_folder: '{text}' is not a job folder"],
            )
            for text in ("/tmp/x", "tmp/$USER", "/tmp//$USER", "/tmp/$USER/", "/tmp/../$USER", "$user", "/tmp/$(id)",
                         "${TMPDIR:-/tmp}", "/tmp/a b$USER", "$", "/tmp/$1")
        ),
    ],
)  # fmt: skip
def test_what_cannot_be_right(new: str, faults: list[str]) -> None:
    assert site_faults((TMP, new)) == faults


def test_a_fault_has_its_place_in_the_file() -> None:
    with pytest.raises(SiteError) as caught:
        load_text(site_text((TMP, "{path: /tmp, kind: node-local,")), "dir/site.yaml")
    first, second = caught.value.findings
    assert first.place
    assert (first.place.file, first.subject) == ("dir/site.yaml", "settings[4].directory")
    assert second.subject == "settings[5].directory"


def test_nothing_is_wanted_where_no_setting_names_a_directory() -> None:
    text = site_text((TMP, "{path: /tmp, kind: node-local,"))
    for name in ("db", "cache"):
        text = text.replace(f"    directory: miopen/{name}\n", "    leave: yes\n")
    assert load_text(text).site.private_places == ()


def test_places_are_in_the_order_of_the_file() -> None:
    more = "{path: /local, kind: node-local, job_folder: '${TMPDIR}/x', why: w, source: s}\n  - "
    places = load_text(site_text((TMP, more + TMP))).site.private_places
    assert [(one.path, one.job_folder) for one in places] == [("/local", "${TMPDIR}/x"), ("/tmp", None)]
