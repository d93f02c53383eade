"""What the commands load."""

from __future__ import annotations

import subprocess
import sys


def test_the_commands_load_no_templates_before_they_write_any() -> None:
    """A node on which `lumisite facts` runs may have no Jinja."""
    script = "import sys, lumisite.cli.facts; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert "jinja2" not in done.stdout.split()
