"""What a wheel holds beside the package: its commit, and what `python -m docs.share build` wrote, if it did."""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class Hook(BuildHookInterface):  # type: ignore[type-arg]
    """Runs before a wheel is built."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the files; in a source that is no checkout there is no commit to tell."""
        if version == "editable":
            return
        argv = ["git", "-C", self.root, "rev-parse", "--short=12", "HEAD"]
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        if done.returncode == 0:
            with tempfile.NamedTemporaryFile("w", delete=False) as file:
                file.write(done.stdout)
            build_data["force_include"][file.name] = "lumisite/COMMIT"
        if (share := Path(self.root) / "build/share").is_dir():
            build_data["shared_data"][str(share)] = "share"
