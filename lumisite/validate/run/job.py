"""What is known of one job of a run while it goes on."""

from __future__ import annotations

from dataclasses import dataclass, field

from lumisite.validate.lines import Gate, GateOutcome, Sample
from lumisite.validate.run.script import JobPlan


@dataclass
class LiveJob:
    """What is known of one job while the run goes on. `state` is the last event of its journal (`EVENTS`)."""

    plan: JobPlan
    state: str = "new"
    id: str = ""
    attempt: int = 0
    lost: bool = False
    """Whether Slurm has said that it is over; its marks may still be on their way."""
    done_since: float = 0.0
    collected: set[str] = field(default_factory=set)
    samples: list[Sample] = field(default_factory=list)
    shown: str = ""
    """The group of steps that was last said to have begun, and what was last said of Slurm's."""
    told: str = ""

    @property
    def goes_on(self) -> bool:
        """Whether there is still something to come of it."""
        return self.state not in ("ended", "lost", "aside", "over")

    def gate(self, verdict: GateOutcome, cause: str, advice: str, time: float) -> Gate:
        """Give the line that says how it ended; where it shows nothing, it is of the nodes that the cause names."""
        named = [node for node in self.plan.nodes if verdict == "inconclusive" and node in cause.partition(": ")[0]]
        return Gate("job", verdict, cause, advice, self.plan.run, tuple(sorted(named or self.plan.nodes)), time)
