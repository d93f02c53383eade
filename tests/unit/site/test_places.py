"""File systems where private caches go: what a description says of them, and what cannot be right."""

from __future__ import annotations

import pytest

from tests.support.sites import site_faults

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
    ],
)
def test_what_cannot_be_right(new: str, faults: list[str]) -> None:
    assert site_faults((TMP, new)) == faults
