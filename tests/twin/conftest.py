"""The fixtures of the twin, for the tests in this folder, and the order of its files."""

import pytest

from tests.twin.fixtures import twin

__all__ = ["twin"]

#: Files that take minutes begin first, so that no worker is left alone with one at the end. A worker has its next file
#: as soon as two tests are left of one.
LONGEST = (
    *("lumi_g", "maintenance", "rehearse", "lost_and_changed", "faults_of_one_node", "faults_of_a_run"),
    *("helper_steps", "validate", "communicators", "users_jobs", "machine", "lmod_modules", "report_page", "policy"),
    *("install", "check_host", "lmod_environment", "plugin_agreement"),
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    places = {f"test_{name}": place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(item.path.stem, len(places)))
