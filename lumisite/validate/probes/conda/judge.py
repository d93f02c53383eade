"""Judge `conda`: the Python that runs is the image's, or that of the environment that the image's family needs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from lumisite.validate.probes.probe import Expected, Probe, Record
from lumisite.validate.probes.ranks import Said, counted, judge_each
from lumisite.validate.probes.records import in_image, table, text
from lumisite.validate.probes.target import Target

FRAMEWORK = "torch"
#: What to do by the family's `activation`.
ACTIVATE = {
    "with-conda": "load the module, whose wrapper puts the environment first on PATH; by hand it is '$WITH_CONDA'",
    "runscript": "start the image by `singularity run`: its runscript activates the environment",
    "tykky": "start Python by the wrapper script in the environment's bin",
    "none": "look at PATH inside the container, and at the image's own environment",
}


def conda(target: Target) -> Probe:
    """Give the probe."""
    return Probe(
        "conda",
        "Python is the one of the image's environment.",
        (target.alone("python_setup.py", "--import", FRAMEWORK),),
        judge_each(partial(_of_rank, target), _passed),
    )


def _passed(records: Sequence[Record], _expected: Expected) -> str:
    told = sorted({f"{text(record, 'executable', 'path')} {text(record, 'version')}" for record in records})
    return f"python3 is {', '.join(told)} for {counted(len(records), 'rank')}"


def _of_rank(target: Target, record: Record) -> Iterator[Said]:
    places, activate = target.family.prepend_path, ACTIVATE[target.family.activation]
    executable = text(record, "executable", "path")
    met = f"python3 is {executable} (Python {text(record, 'version')}, prefix {text(record, 'prefix')})"
    if places and not any(executable.startswith(f"{path}/") for path in places):
        yield f"{met}; family {target.family_name} needs it from {' or '.join(places)}", activate
        return
    mounts = [table(record, "executable", mount) for mount in ("mount", "real_mount")]
    outside = [text(mount, "point") for mount in mounts if not in_image(mount)]
    if outside and not places:
        yield (
            f"{met} from {outside[0]}, which is bound from the host, not the image's own",
            "look at PATH and SINGULARITYENV_PREPEND_PATH: something stands before the image's Python",
        )
        return
    if not text(record, "frameworks", FRAMEWORK, "path"):
        yield f"{met}, which has no {FRAMEWORK}", activate
    for name, told in table(record, "found").items():
        path = text(told, "path")
        if path and text(told, "real") != text(record, "executable", "real"):
            yield f"{met}, but `{name}` is {path}", "look at PATH inside the container: two Pythons stand on it"
