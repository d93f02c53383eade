"""Comparing two files loads no code that looks at a live node."""

from __future__ import annotations

import subprocess
import sys

LIVE = {
    *("lumisite.machine.host", "lumisite.machine.live", "lumisite.machine.loader", "lumisite.machine.elf"),
    *("lumisite.facts.capture", "lumisite.facts.capture_libraries", "lumisite.facts.capture_system"),
    *("lumisite.images.sif", "lumisite.binds.plan"),
}  # fmt: skip


def test_comparing_loads_nothing_that_looks_at_a_node() -> None:
    script = "import sys, lumisite.facts.report; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert LIVE & set(done.stdout.split()) == set()


def test_the_commands_load_no_templates_before_they_write_any() -> None:
    """A node on which `lumisite facts` runs may have no Jinja."""
    script = "import sys, lumisite.cli.facts; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert "jinja2" not in done.stdout.split()
