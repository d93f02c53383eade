"""What the ReFrame module is told of a job: whether its gates hold, the numbers, and lumisite's own lines of it."""

from __future__ import annotations

from collections.abc import Sequence

from lumisite.validate.lines import Gate, Sample, gate_json, sample_json
from lumisite.validate.probes.probe import rounded
from lumisite.validate.samples import read_lines
from lumisite.validate.verdict.nodes import job_value


def answer(lines: Sequence[Sample | Gate]) -> dict[str, object]:
    """Give the answer, as JSON may have it. A metric of several nodes has one number, as a verdict has.

    `lines` is a text with no `|` in it, which cuts the columns of perflogs.
    """
    gates = [line for line in lines if isinstance(line, Gate)]
    bad = [gate for gate in gates if gate.verdict != "pass"]
    states = {gate.verdict for gate in gates}
    texts = [gate_json(line) if isinstance(line, Gate) else sample_json(line) for line in lines]
    recorded = read_lines([("samples.jsonl", [f"{text}\n".encode() for text in texts])])
    return {
        "verdict": "fail" if "fail" in states else "inconclusive" if "inconclusive" in states or not gates else "pass",
        "causes": [_told(gate) for gate in bad] or ([] if gates else ["inconclusive: the job left nothing to judge"]),
        "performance": {
            metric: [rounded(job_value(job, series.better)), series.unit, series.better]
            for metric, series in recorded.series.items()
            for job in series.jobs
        },
        "lines": f"[{', '.join(texts)}]".replace("|", "\\u007c"),
    }


def _told(gate: Gate) -> str:
    cause = gate.cause if gate.verdict == "fail" else f"inconclusive: {gate.cause}"
    return f"{cause} ({gate.advice})" if gate.advice else cause
