"""The page of symptoms: what users see, what it mostly comes from, and what to run next."""

from __future__ import annotations

from collections.abc import Iterator

from docs.markdown import notice
from lumisite.vendors.symptom import Symptom, load_symptoms

INTRODUCTION = """\
Find the text of the error here, or give it to `lumisite why "ERROR TEXT"`, or all that the job printed to
`lumisite why - <slurm-JOB.out`. Of a long log the first error counts: what comes after it mostly follows from it. A
text is a regular expression; the source is where it was found. Three jobs are followed to the end in
[From an error to its cause](../how-to/from-an-error-to-its-cause.md).

In the commands, IMAGE, SCRIPT and LOG are files of yours, and NODES are those of the job (`nid[000001-000002]`, as
`squeue` and `sacct -o NodeList` print them). `lumisite env` judges the variables of the shell that it runs in: where
the job script sets them, put it there, before `srun`."""
TITLES = {"slow": "It is slow", "hangs": "It hangs", "stops": "It stops with an error"}


def symptoms_page() -> str:
    """Return the page, by what is seen."""
    lines = ["# Errors and symptoms", notice("lumisite/vendors/symptoms/*.yaml"), INTRODUCTION]
    for kind, title in TITLES.items():
        lines.append(f"## {title}")
        for name, symptom in load_symptoms().items():
            if symptom.kind == kind:
                lines += _section(name, symptom)
    return "\n\n".join(lines) + "\n"


def _section(name: str, symptom: Symptom) -> Iterator[str]:
    yield f"### {name}"
    yield f"{symptom.title[:1].upper()}{symptom.title[1:]} ({symptom.program})."
    if symptom.follows:
        yield "This mostly follows from another error: look for the first one of the log."
    yield "\n".join(f"- ``{pattern}``" if "`" in pattern else f"- `{pattern}`" for pattern in symptom.patterns)
    if symptom.unless:
        yield f"It does not count where a line has {' or '.join(f'`{pattern}`' for pattern in symptom.unless)}."
    for cause in symptom.causes:
        codes = [f"[`{code}`](findings.md#{code})" for code in cause.codes]
        more = ", ".join((*(f"`{name}`" for name in cause.settings), *codes))
        yield f"- {cause.text}. Run: {cause.run if '`' in cause.run else f'`{cause.run}`'}. More: {more}"
    yield f"Source: <{symptom.source}>"
