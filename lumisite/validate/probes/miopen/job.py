"""Record where caches and databases go: `miopen.py OUTDIR --variable NAME…`, in each rank, in the container."""

# mypy: disable-error-code="import-not-found"
# lumisite_record stands beside this file in the job.

import os
import stat
from pathlib import Path

import lumisite_record as record


def main() -> None:
    """Write the record."""
    mounted = record.mounts()
    facts = record.identity()
    facts.update(
        user=os.getuid(),
        directories={name: directory(os.environ.get(name), mounted) for name in record.options("variable")},
        environment=record.environment(("LUMISITE",)),
    )
    record.leave(facts)


def directory(path: "str | None", mounted: "list[dict[str, str]]") -> "dict[str, object]":
    """Tell what a variable leads to: whose directory it is, on which mount, and whether a file can be made there."""
    if path is None:
        return {"set": False}
    real = str(Path(path).resolve())
    found = {
        "set": True,
        "path": record.shown(path),
        "real": record.shown(real),
        "mount": record.mount_of(real, mounted),
    }
    try:
        status = Path(path).stat()
    except (OSError, ValueError) as error:
        found.update(exists=False, error=str(error))
        return found
    found.update(
        exists=True,
        directory=stat.S_ISDIR(status.st_mode),
        owner=status.st_uid,
        mode=f"{stat.S_IMODE(status.st_mode):o}",
        writing=writing(path),
    )
    return found


def writing(folder: str) -> str:
    """Make a file and remove it; give the system's refusal, or nothing."""
    file = Path(folder) / ".lumisite-{}-{}".format(record.number("SLURM_PROCID"), os.getpid())
    try:
        file.write_text("x")
        file.unlink()
    except OSError as error:
        return error.strerror or str(error)
    return ""


if __name__ == "__main__":
    main()
