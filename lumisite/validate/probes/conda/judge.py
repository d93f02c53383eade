"""Judge `conda`: the Python that runs is the image's, or that of the environment that the image's family needs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from lumisite.validate.probes.probe import Expected, Line, Probe, Record
from lumisite.validate.probes.ranks import Said, counted, faults_of_ranks, judge_records, tell
from lumisite.validate.probes.records import in_image, table, text
from lumisite.validate.probes.target import Target

FRAMEWORK = "torch"


@dataclass(frozen=True)
class ExpectedPython:
    """What activates the family's Python; `prepend_path` is empty where the image's own PATH does."""

    family: str
    activation: str
    prepend_path: tuple[str, ...]


def conda(target: Target) -> Probe:
    """Give the probe."""
    return Probe(
        "conda",
        "Python is the one of the image's environment.",
        (target.alone("python_setup.py", "--import", FRAMEWORK),),
        judge_records(partial(judge, expected_python(target))),
    )


def expected_python(target: Target) -> ExpectedPython:
    """Which Python the family's activation gives."""
    family = target.family
    return ExpectedPython(target.family_name, family.activation, tuple(family.prepend_path))


def judge(wanted: ExpectedPython, records: Sequence[Record], expected: Expected) -> list[Line]:
    """Judge which Python each rank runs."""
    told = sorted({f"{text(record, 'executable', 'path')} {text(record, 'version')}" for record in records})
    passed = f"python3 is {', '.join(told)} for {counted(len(records), 'rank')}"
    return tell(faults_of_ranks(records, expected, partial(_of_rank, wanted)), passed, expected)


def _of_rank(wanted: ExpectedPython, record: Record) -> Iterator[Said]:
    executable = text(record, "executable", "path")
    met = f"python3 is {executable} (Python {text(record, 'version')}, prefix {text(record, 'prefix')})"
    if wanted.prepend_path and not any(executable.startswith(f"{path}/") for path in wanted.prepend_path):
        cause = f"{met}; family {wanted.family} needs it from {' or '.join(wanted.prepend_path)}"
        yield cause, _activate(wanted)
        return
    mounts = [table(record, "executable", mount) for mount in ("mount", "real_mount")]
    outside = [text(mount, "point") for mount in mounts if not in_image(mount)]
    if outside and not wanted.prepend_path:
        yield (
            f"{met} from {outside[0]}, which is bound from the host, not the image's own",
            "look at PATH and SINGULARITYENV_PREPEND_PATH: something stands before the image's Python",
        )
        return
    if not text(record, "frameworks", FRAMEWORK, "path"):
        yield f"{met}, which has no {FRAMEWORK}", _activate(wanted)
    for name, told in table(record, "found").items():
        path = text(told, "path")
        if path and text(told, "real") != text(record, "executable", "real"):
            yield f"{met}, but `{name}` is {path}", "look at PATH inside the container: two Pythons stand on it"


def _activate(wanted: ExpectedPython) -> str:
    return {
        "with-conda": "load the module, whose wrapper puts the environment first on PATH; by hand it is '$WITH_CONDA'",
        "runscript": "start the image by `singularity run`: its runscript activates the environment",
        "tykky": "start Python by the wrapper script in the environment's bin",
    }.get(wanted.activation, "look at PATH inside the container, and at the image's own environment")
