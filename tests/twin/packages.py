"""Single packages from a suite of Debian that is neither the machine's nor the root's.

apt gets a configuration of its own for this, so that the suite enters neither of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tests.twin.process import run_or_refuse


@dataclass(frozen=True)
class Archive:
    """A suite that packages can be fetched from, with its index in `folder`."""

    folder: Path
    options: tuple[str, ...]

    def download(self, package: str) -> Path:
        """Fetch a package's file. Raises `ToolError` if there is none."""
        run_or_refuse(["apt-get", "-qq", *self.options, "download", package], cwd=self.folder / "deb")
        return next((self.folder / "deb").glob(f"{package}_*.deb"))

    def first_dependency(self, package: str) -> str:
        """Give the first package that `package` depends on: the real one, of one that only stands for it."""
        shown = run_or_refuse(["apt-cache", *self.options, "--important", "depends", package])
        return shown.split("Depends:")[1].split()[0]


def open_archive(suite: str, root: Path, folder: Path) -> Archive:
    """Read the index of `suite` into a new folder, from the mirror that `root` was made from."""
    for name in ("lists/partial", "cache/archives/partial", "deb"):
        (folder / name).mkdir(parents=True)
    # One line of a Debian root: deb MIRROR SUITE COMPONENTS; its first is the suite itself.
    kind, mirror, _, *components = (root / "etc/apt/sources.list").read_text().splitlines()[0].split()
    (folder / "sources.list").write_text(" ".join([kind, mirror, suite, *components]) + "\n")
    (folder / "status").touch()
    settings = {
        "Dir::Etc::SourceList": folder / "sources.list",
        "Dir::Etc::SourceParts": "/dev/null",
        "Dir::Etc::PreferencesParts": "/dev/null",
        "Dir::State::Lists": folder / "lists",
        "Dir::State::Status": folder / "status",
        "Dir::Cache": folder / "cache",
        # sid's index has been seen past its date.
        "Acquire::Check-Valid-Until": "false",
        "Acquire::Languages": "none",
        "APT::Sandbox::User": "root",
    }
    options = tuple(word for key, value in settings.items() for word in ("-o", f"{key}={value}"))
    run_or_refuse(["apt-get", "-qq", *options, "update"])
    return Archive(folder, options)
