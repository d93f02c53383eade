"""What a wheel holds beside the package: its commit."""

from __future__ import annotations

import subprocess
import tempfile
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class Hook(BuildHookInterface):  # type: ignore[type-arg]
    """Runs before a wheel is built."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the file; in a source that is no checkout there is no commit to write."""
        if version == "editable":
            return
        argv = ["git", "-C", self.root, "rev-parse", "--short=12", "HEAD"]
        if commit := subprocess.run(argv, capture_output=True, text=True, check=False).stdout.strip():
            with tempfile.NamedTemporaryFile("w", delete=False) as file:
                file.write(f"{commit}\n")
            build_data["force_include"][file.name] = "lumisite/COMMIT"
