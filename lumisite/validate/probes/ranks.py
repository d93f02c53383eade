"""What must hold of the ranks of every step before their numbers mean anything."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from lumisite.validate.lines import Gate
from lumisite.validate.probes.probe import Ended, Expected, Record

#: A rank says once a second that it lives; one that is silent for longer than this is frozen, in seconds.
SILENT_S = 5.0


def finished(records: Sequence[Record]) -> list[Record]:
    """Give the records of ranks that came to their end, by rank; of the others there is only where they were."""
    return sorted((record for record in records if "local_rank" in record), key=rank_of)


def rank_of(record: Record) -> int:
    """Give the number of a rank."""
    rank = record.get("rank")
    return rank if isinstance(rank, int) else -1


def counted(count: int, thing: str) -> str:
    """Count something.

    >>> counted(1, "rank"), counted(2, "rank")
    ('1 rank', '2 ranks')
    """
    return f"{count} {thing}" if count == 1 else f"{count} {thing}s"


def number(record: Record, key: str) -> float | None:
    """Read a number of a record, if it is one."""
    value = record.get(key)
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def numbers(record: Record, key: str) -> list[float]:
    """Read a list of numbers of a record; what is none is left out."""
    value = record.get(key)
    if not isinstance(value, list):
        return []
    return [float(each) for each in value if isinstance(each, int | float) and not isinstance(each, bool)]


def part(record: Record, key: str) -> Record:
    """Read an object inside a record; empty if there is none."""
    value = record.get(key)
    return value if isinstance(value, dict) else {}


def trouble(ended: Ended, expected: Expected) -> Gate | None:
    """Say what kept the ranks from finishing, if anything did: a wrong number, an error, a rank that hangs."""
    whole = finished(ended.records)
    return (
        _wrong_number(whole, expected)
        or _failed(whole, expected)
        or _late(ended, expected)
        or _ended(ended, whole, expected)
        or _shared_device(whole, expected)
    )


def _wrong_number(whole: Sequence[Record], expected: Expected) -> Gate | None:
    told = {record.get("world_size", record.get("tasks")) for record in whole} - {None, expected.ranks}
    if not told:
        return None
    per_node = Counter(str(record.get("host")) for record in whole)
    each = ", ".join(f"{count} on {host}" for host, count in sorted(per_node.items()))
    met = ", ".join(str(count) for count in sorted(told, key=str))
    return expected.gate(
        "fail",
        f"{met} ranks worked together where {expected.ranks} should ({expected.tasks} on each node; reported: {each})",
        "look for what changes the number of tasks on a node: the site's cli_filter, SLURM_NTASKS_PER_NODE, a prolog",
    )


def _failed(whole: Sequence[Record], expected: Expected) -> Gate | None:
    errors = [record for record in whole if record.get("error")]
    if not errors:
        return None
    first = min(errors, key=lambda record: (number(record, "error_time") or 0.0, rank_of(record)))
    more = f" ({len(errors)} ranks in all)" if len(errors) > 1 else ""
    return expected.gate(
        "fail",
        f"rank {rank_of(first)} on {first.get('host')} failed while {first.get('error_at')}: {first['error']}{more}",
        "read the stderr of the step",
        rank_of(first),
    )


def _late(ended: Ended, expected: Expected) -> Gate | None:
    if not ended.late:
        return None
    open_ranks = _unfinished(ended.records)
    advice = "look at the node of that rank; a rank that is silent is frozen or lost"
    limit = f"not done after {ended.step.limit_s} s"
    if not open_ranks:
        return expected.gate("fail", f"{limit}: {_missing(ended.records, expected)}", advice)
    last = max(number(record, "time") or 0.0 for record in open_ranks)
    silent = [record for record in open_ranks if last - (number(record, "time") or 0.0) > SILENT_S]
    stuck = silent or open_ranks
    state = "fell silent" if silent else "hung"
    first = stuck[0]
    where = f"rank {rank_of(first)} on {first.get('host')} {state} while {first.get('phase')}"
    more = f" ({len(stuck)} ranks in all)" if len(stuck) > 1 else ""
    return expected.gate("fail", f"{limit}: {where}{more}", advice, rank_of(first))


def _ended(ended: Ended, whole: Sequence[Record], expected: Expected) -> Gate | None:
    if len(whole) == expected.ranks and ended.exit_code == 0:
        return None
    words = f": {ended.words}" if ended.words else ""
    if ended.exit_code != 0:
        return expected.gate("fail", f"srun ended with exit code {ended.exit_code}{words}", "read the step's stderr")
    return expected.gate("fail", f"{_missing(whole, expected)}{words}", "read the step's stderr")


def _shared_device(whole: Sequence[Record], expected: Expected) -> Gate | None:
    seen: dict[tuple[str, str], int] = {}
    for record in whole:
        if not record.get("device"):
            continue
        key = (str(record.get("host")), str(record["device"]))
        other = seen.setdefault(key, rank_of(record))
        if other != rank_of(record):
            return expected.gate(
                "fail",
                f"ranks {other} and {rank_of(record)} use the same GPU of {key[0]}: {key[1]}",
                "each rank needs a GPU of its own: look at --gpus-per-task, --gpu-bind and ROCR_VISIBLE_DEVICES",
                rank_of(record),
            )
    return None


def _unfinished(records: Sequence[Record]) -> list[Record]:
    ended = {rank_of(record) for record in finished(records)}
    return sorted((each for each in records if "phase" in each and rank_of(each) not in ended), key=rank_of)


def _missing(records: Sequence[Record], expected: Expected) -> str:
    missing = sorted(set(range(expected.ranks)) - {rank_of(record) for record in finished(records)})
    shown = ", ".join(str(rank) for rank in missing[:8]) + (" and more" if len(missing) > 8 else "")
    return f"{len(missing)} of {expected.ranks} ranks wrote nothing: rank {shown}" if missing else "no rank is left"
