"""Record which Python runs and where its packages come from: one task for each rank, in the container.

`python_setup.py OUTDIR [--import MODULE]…`. Both probes `usersite` and `conda` read it. Nothing is imported: a package
is looked for as import would, so that a broken one is still found.
"""

# mypy: disable-error-code="import-not-found"
# lumisite_record stands beside this file in the job.

import importlib.util
import os
import shutil
import site
import sys
from pathlib import Path

import lumisite_record as record

#: More packages than these are counted, not named.
NAMED_PACKAGES = 50


def main() -> None:
    """Write the record."""
    mounted = record.mounts()
    # The first entry is the folder of this file.
    path = [Path(entry).resolve() for entry in sys.path[1:] if entry]
    user_site = site.getusersitepackages()
    facts = record.identity()
    facts.update(
        executable=place(sys.executable, mounted),
        prefix=record.shown(sys.prefix),
        version=".".join(map(str, sys.version_info[:3])),
        found={name: place(shutil.which(name) or "", mounted) for name in ("python", "python3")},
        frameworks={name: place(origin(name), mounted) for name in record.options("import")},
        user_site=record.shown(user_site),
        user_site_on_path=Path(user_site).resolve() in path,
        user_packages=packages(user_site),
        hidden=hidden(user_site, path),
        pythonpath=[
            {"path": record.shown(entry), "hidden": hidden(entry, path)}
            for entry in os.environ.get("PYTHONPATH", "").split(":")
            if entry
        ],
        environment=record.environment(("PYTHON", "CONDA_", "VIRTUAL_ENV", "WITH_CONDA", "PATH", "LUMISITE")),
    )
    record.leave(facts)


def place(path: str, mounted: "list[dict[str, str]]") -> "dict[str, object]":
    """Give a path, where it leads, and the mounts that the two are on."""
    if not path:
        return {"path": "", "real": ""}
    real = str(Path(path).resolve())
    return {
        "path": record.shown(path),
        "real": record.shown(real),
        "mount": record.mount_of(path, mounted),
        "real_mount": record.mount_of(real, mounted),
    }


def origin(name: str) -> str:
    """Tell where a package would be imported from; empty where there is none."""
    try:
        spec = importlib.util.find_spec(name)
    except Exception:
        spec = None
    return next(iter(spec.submodule_search_locations or [spec.origin or ""]), "") if spec else ""


def packages(folder: str) -> "list[str]":
    """List what a folder has to import."""
    try:
        entries = sorted(Path(folder).iterdir())
    except OSError:
        return []
    names = [
        entry.name.split(".")[0]
        for entry in entries
        if entry.suffix in (".py", ".so") or (not entry.suffix and entry.is_dir())
    ]
    return [record.shown(name) for name in names if name != "__pycache__"][:NAMED_PACKAGES]


def hidden(folder: str, path: "list[Path]") -> "list[str]":
    """List the packages of a folder that another folder of the path has too."""
    others = [entry for entry in path if entry != Path(folder).resolve()]
    return [
        name
        for name in packages(folder)
        if any((other / file).exists() for other in others for file in (name, f"{name}.py"))
    ]


if __name__ == "__main__":
    main()
