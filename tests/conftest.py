"""Options of the whole test run."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# Machines are shared, and a slow one finds nothing wrong.
settings.register_profile("shared", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("shared")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--no-skips", action="store_true", help="a skipped test fails the run (as in CI)")
    parser.addoption("--update-golden", action="store_true", help="write the golden trees anew")
    parser.addoption("--no-skips-as-root", action="store_true", help="the same, but only where root runs the tests")
    parser.addoption("--update-docs", action="store_true", help="write into the pages what their examples print")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, exitstatus: int, config: pytest.Config) -> None:
    if _skips_forbidden(config) and terminalreporter.stats.get("skipped"):
        terminalreporter.write_line("skipped tests are failures here: install what they name", red=True)


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if _skips_forbidden(session.config) and reporter is not None and reporter.stats.get("skipped"):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def _skips_forbidden(config: pytest.Config) -> bool:
    return bool(config.getoption("--no-skips") or (config.getoption("--no-skips-as-root") and os.geteuid() == 0))


@pytest.fixture
def at_lumi(monkeypatch: pytest.MonkeyPatch) -> None:
    """Name the site as an admin does for good."""
    monkeypatch.setenv("LUMISITE_SITE", "lumi")


@pytest.fixture(autouse=True)
def own_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every test runs in a directory of its own."""
    monkeypatch.chdir(tmp_path)
