"""DDP on two nodes of the twin: with the module and nothing set by the user, against the right interface set by hand."""

from __future__ import annotations

from tests.bench.measure import Row, in_turn, table
from tests.twin.cluster import ClusterPlan, running
from tests.twin.helper_site import deploy_site
from tests.twin.training import by_hand, train, with_module

STEPS, PAIRS = 30, 9


def run() -> list[Row]:
    """Measure everything of this module."""
    with running(ClusterPlan(images=("torch",))) as cluster:
        deploy_site(cluster)

        def speed(command: str) -> float:
            return train(cluster, command).steps_per_s

        hand = by_hand(cluster, "hsn0", STEPS)
        ratio, module, set_by_hand = in_turn(lambda: speed(with_module(STEPS)), lambda: speed(hand), PAIRS)
        nothing = speed(by_hand(cluster, None))
        detail = f"{module:.1f} and {set_by_hand:.1f} steps/s; without either {nothing:.1f}; {PAIRS} pairs"
        return [Row("DDP: module / GLOO_SOCKET_IFNAME=hsn0 by hand", ratio, 0.95, detail, at_least=True)]


if __name__ == "__main__":
    print(table(run()))
