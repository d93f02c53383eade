"""Judge `usersite` and `conda`, which read the same records: whose packages a rank gets, and which Python.

Packages must come from the image, not from the user's home directory or PYTHONPATH; the Python that runs must be the
image's, or that of the environment that the image's family needs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from lumisite.site.ledger import decide
from lumisite.text import counted, some
from lumisite.validate.probes.probe import Expected, Plan, Record, Target, probe
from lumisite.validate.probes.ranks import Said, judge_each
from lumisite.validate.probes.records import in_image, rows, table, text, texts, value_at

FRAMEWORK = "torch"
SCRIPT = ("python_setup.py", "--import", FRAMEWORK)
#: Packages that a cause names; more are counted.
NAMED_PACKAGES = 6
_named = partial(some, most=NAMED_PACKAGES, between=", ")
#: What to do by the family's `activation`.
ACTIVATE = {
    "with-conda": "load the module, whose wrapper puts the environment first on PATH; by hand it is '$WITH_CONDA'",
    "runscript": "start the image by `singularity run`: its runscript activates the environment",
    "tykky": "start Python by the wrapper script in the environment's bin",
    "none": "look at PATH inside the container, and at the image's own environment",
}


@probe("Nothing of ~/.local is on Python's path.")
def usersite(target: Target) -> Plan:
    """Give the probe."""
    return (target.alone(*SCRIPT),), judge_each(partial(_packages, shuts_out(target)), _packages_passed)


def shuts_out(target: Target) -> bool:
    """Whether the ledger shuts the user site out."""
    won = (one.entry for one in decide(target.site, target.situation).settings if one.outcome == "wins")
    return any(setting.name == "PYTHONNOUSERSITE" and setting.value for setting in won)


def _packages_passed(records: Sequence[Record], _expected: Expected) -> str:
    kept_out = sorted({name for record in records for name in texts(record, "user_packages")})
    passed = f"no package of a user site or of PYTHONPATH stands before the image's for {counted(len(records), 'rank')}"
    return passed + (f"; kept out of ~/.local: {_named(kept_out)}" if kept_out else "")


def _packages(shut_out: bool, record: Record) -> Iterator[Said]:
    """Look where a rank's packages come from; `shut_out`: the ledger shuts the user site out."""
    folder = text(record, "user_site")
    variable = value_at(record, "environment", "PYTHONNOUSERSITE")
    if value_at(record, "user_site_on_path") is True:
        hidden, own = texts(record, "hidden"), texts(record, "user_packages")
        what = f"{_named(hidden)} there hides the image's own" if hidden else f"it has {_named(own) or 'no package'}"
        said = "not set" if variable is None else f"{variable!r}"
        yield (
            f"{folder} is on sys.path: {what} (PYTHONNOUSERSITE is {said})",
            f"leave PYTHONNOUSERSITE to the helper (1 is right), or move {folder} away",
        )
    elif shut_out and not variable:
        yield (
            "PYTHONNOUSERSITE is not set, so that packages of ~/.local would hide the image's once there are any",
            "LUMISITE_VERBOSE=1 srun … says what the helper made of it",
        )
    for entry in rows(record, "pythonpath"):
        path, hidden = text(entry, "path"), texts(entry, "hidden")
        if hidden:
            yield (
                f"PYTHONPATH has {path}: {_named(hidden)} there hides the image's own",
                f"take {path} out of PYTHONPATH",
            )


@probe("Python is the one of the image's environment.")
def conda(target: Target) -> Plan:
    """Give the probe."""
    return (target.alone(*SCRIPT),), judge_each(partial(_python, target), _python_passed)


def _python_passed(records: Sequence[Record], _expected: Expected) -> str:
    told = sorted({f"{text(record, 'executable', 'path')} {text(record, 'version')}" for record in records})
    return f"python3 is {', '.join(told)} for {counted(len(records), 'rank')}"


def _python(target: Target, record: Record) -> Iterator[Said]:
    places, activate = target.family.prepend_path, ACTIVATE[target.family.activation]
    executable = text(record, "executable", "path")
    met = f"python3 is {executable} (Python {text(record, 'version')}, prefix {text(record, 'prefix')})"
    if places and not any(executable.startswith(f"{path}/") for path in places):
        yield f"{met}; family {target.family_name} needs it from {' or '.join(places)}", activate
        return
    mounts = [table(record, "executable", mount) for mount in ("mount", "real_mount")]
    outside = [text(mount, "point") for mount in mounts if not in_image(mount)]
    if outside and not places:
        variables = f"PATH and {target.site.runtime.prefix}ENV_PREPEND_PATH"
        yield (
            f"{met} from {outside[0]}, which is bound from the host, not the image's own",
            f"look at {variables}: something stands before the image's Python",
        )
        return
    if not text(record, "frameworks", FRAMEWORK, "path"):
        yield f"{met}, which has no {FRAMEWORK}", activate
    for name, told in table(record, "found").items():
        path = text(told, "path")
        if path and text(told, "real") != text(record, "executable", "real"):
            yield f"{met}, but `{name}` is {path}", "look at PATH inside the container: two Pythons stand on it"
