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
    path = [entry for entry in sys.path[1:] if entry]
    user_site = site.getusersitepackages()
    facts = record.identity()
    facts.update(
        executable=place(sys.executable, mounted),
        prefix=record.shown(sys.prefix),
        version=".".join(map(str, sys.version_info[:3])),
        found={name: place(shutil.which(name) or "", mounted) for name in ("python", "python3")},
        frameworks={name: origin(name, mounted) for name in record.options("import")},
        path=[place(entry, mounted) for entry in path],
        home=record.shown(str(Path.home())),
        user_site=record.shown(user_site),
        user_site_on_path=on_path(user_site, path),
        user_packages=packages(user_site),
        hidden=hidden([user_site], path),
        pythonpath=[entry_of(entry, path) for entry in os.environ.get("PYTHONPATH", "").split(":") if entry],
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


def origin(name: str, mounted: "list[dict[str, str]]") -> "dict[str, object]":
    """Tell where a package would be imported from; no path where there is none."""
    try:
        spec = importlib.util.find_spec(name)
    except Exception:
        spec = None
    places = list(spec.submodule_search_locations or [spec.origin or ""]) if spec else [""]
    return place(places[0] if places else "", mounted)


def on_path(folder: str, path: "list[str]") -> bool:
    """Tell whether a folder is searched for packages."""
    return Path(folder).resolve() in [Path(entry).resolve() for entry in path]


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


def hidden(folders: "list[str]", path: "list[str]") -> "list[str]":
    """List the packages of some folders that another folder of the path has too."""
    own = [Path(folder).resolve() for folder in folders]
    others = [entry for entry in path if Path(entry).resolve() not in own]
    return [name for folder in folders for name in packages(folder) if any(has(entry, name) for entry in others)]


def has(folder: str, name: str) -> bool:
    """Tell whether a folder has a package or module of that name."""
    return (Path(folder) / name).exists() or (Path(folder) / f"{name}.py").exists()


def entry_of(entry: str, path: "list[str]") -> "dict[str, object]":
    """Describe one entry of PYTHONPATH."""
    return {"path": record.shown(entry), "exists": Path(entry).exists(), "hidden": hidden([entry], path)}


if __name__ == "__main__":
    main()
