"""Judge the probes `usersite` and `conda`: packages come from the image, and so does the Python that runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from lumisite.validate.probes.findings import (
    Fault,
    Finding,
    JobShape,
    Record,
    by_rank,
    counted,
    findings,
    in_image,
    missing,
    number,
    rows,
    table,
    text,
    value_at,
)

#: Packages that a cause names; more are counted.
NAMED_PACKAGES = 6


@dataclass(frozen=True)
class ExpectedUserSite:
    """Whether the site's ledger shuts the user site out (PYTHONNOUSERSITE)."""

    shut_out: bool


@dataclass(frozen=True)
class ExpectedPython:
    """What activates the family's Python; `prepend_path` is empty where the image's own PATH does."""

    family: str
    activation: str
    prepend_path: tuple[str, ...]
    frameworks: tuple[str, ...]


def judge_usersite(records: Sequence[Record], expected: ExpectedUserSite, job: JobShape) -> tuple[Finding, ...]:
    """Judge where each rank's packages come from."""
    faults = missing(records, job, each="gpu", what="the rank")
    for record in by_rank(records):
        found = (*_user_site(record, expected), *_python_path(record))
        faults += [Fault(cause, advice, text(record, "host"), number(record, "rank")) for cause, advice in found]
    kept_out = sorted({str(name) for record in records for name in rows(record, "user_packages")})
    passed = f"no package of a user site or of PYTHONPATH stands before the image's for {counted(len(records), 'rank')}"
    if kept_out:
        passed += f"; kept out of ~/.local: {_named(kept_out)}"
    return findings("usersite", faults, passed, job)


def _user_site(record: Record, expected: ExpectedUserSite) -> Iterator[tuple[str, str]]:
    folder = text(record, "user_site")
    variable = value_at(record, "environment", "PYTHONNOUSERSITE")
    if value_at(record, "user_site_on_path") is True:
        hidden = [str(name) for name in rows(record, "hidden")]
        own = [str(name) for name in rows(record, "user_packages")]
        what = f"{_named(hidden)} there hides the image's own" if hidden else f"it has {_named(own) or 'no package'}"
        said = "not set" if variable is None else f"{variable!r}"
        yield (
            f"{folder} is on sys.path: {what} (PYTHONNOUSERSITE is {said})",
            f"leave PYTHONNOUSERSITE to the helper (1 is right), or move {folder} away",
        )
    elif expected.shut_out and not variable:
        yield (
            "PYTHONNOUSERSITE is not set, so that packages of ~/.local would hide the image's once there are any",
            "LUMISITE_VERBOSE=1 srun … says what the helper made of it",
        )


def _python_path(record: Record) -> Iterator[tuple[str, str]]:
    version = text(record, "version").rpartition(".")[0]
    for entry in rows(record, "pythonpath"):
        path = text(entry, "path")
        hidden = [str(name) for name in rows(entry, "hidden")]
        if hidden:
            yield (
                f"PYTHONPATH has {path}: {_named(hidden)} there hides the image's own",
                f"take {path} out of PYTHONPATH",
            )
        elif value_at(entry, "exists") is not True:
            yield f"PYTHONPATH has {path}, which is not there", f"take {path} out of PYTHONPATH"
        elif "/python" in path and f"/python{version}/" not in f"{path}/" and "/python3/" not in f"{path}/":
            yield (
                f"PYTHONPATH has {path}, but this is Python {version}",
                f"take {path} out of PYTHONPATH: packages of another release fail when they are imported",
            )
    home = value_at(record, "environment", "PYTHONHOME")
    if home:
        yield f"PYTHONHOME is {home}, which moves the standard library", "unset PYTHONHOME"


def judge_conda(records: Sequence[Record], expected: ExpectedPython, job: JobShape) -> tuple[Finding, ...]:
    """Judge which Python each rank runs."""
    faults = missing(records, job, each="gpu", what="the rank")
    for record in by_rank(records):
        found = _of_python(record, expected)
        faults += [Fault(cause, advice, text(record, "host"), number(record, "rank")) for cause, advice in found]
    told = sorted({f"{text(record, 'executable', 'path')} {text(record, 'version')}" for record in records})
    passed = f"python3 is {', '.join(told)} for {counted(len(records), 'rank')}"
    return findings("conda", faults, passed, job)


def _of_python(record: Record, expected: ExpectedPython) -> Iterator[tuple[str, str]]:
    executable = text(record, "executable", "path")
    met = f"python3 is {executable} (Python {text(record, 'version')}, prefix {text(record, 'prefix')})"
    if expected.prepend_path and not any(executable.startswith(f"{path}/") for path in expected.prepend_path):
        yield (
            f"{met}; family {expected.family} needs it from {' or '.join(expected.prepend_path)}",
            _activate(expected),
        )
        return
    mounts = [table(record, "executable", mount) for mount in ("mount", "real_mount")]
    outside = [text(mount, "point") for mount in mounts if not in_image(mount)]
    if outside and not expected.prepend_path:
        yield (
            f"{met} from {outside[0]}, which is bound from the host, not the image's own",
            "look at PATH and SINGULARITYENV_PREPEND_PATH: something stands before the image's Python",
        )
        return
    for name in expected.frameworks:
        if not text(record, "frameworks", name, "path"):
            yield f"{met}, which has no {name}", _activate(expected)
    for name, told in table(record, "found").items():
        path = text(told, "path")
        if path and text(told, "real") != text(record, "executable", "real"):
            yield f"{met}, but `{name}` is {path}", "look at PATH inside the container: two Pythons stand on it"


def _activate(expected: ExpectedPython) -> str:
    return {
        "with-conda": "load the module, whose wrapper puts the environment first on PATH; by hand it is '$WITH_CONDA'",
        "runscript": "start the image by `singularity run`: its runscript activates the environment",
        "tykky": "start Python by the wrapper script in the environment's bin",
    }.get(expected.activation, "look at PATH inside the container, and at the image's own environment")


def _named(names: Sequence[str]) -> str:
    shown = ", ".join(names[:NAMED_PACKAGES])
    return shown if len(names) <= NAMED_PACKAGES else f"{shown} and {len(names) - NAMED_PACKAGES} more"
