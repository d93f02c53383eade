"""What a user's own variables do to jobs: which are named, and which are none of the user's."""

from __future__ import annotations

from pathlib import Path

import pytest

from lumisite.cli import main
from lumisite.findings.finding import Severity
from lumisite.lint.own_variables import judge_own_variables
from lumisite.site.load import load_site


def codes(variables: dict[str, str], nodes: int = 2) -> list[tuple[str, str]]:
    found = judge_own_variables(load_site("twin").site, "small-g", nodes, variables)
    return [(finding.code, finding.subject) for finding in found]


@pytest.mark.parametrize(
    ("variables", "found"),
    [
        ({"GLOO_SOCKET_IFNAME": "ib0"}, [("wrong-interface", "GLOO_SOCKET_IFNAME=ib0")]),
        ({"MASTER_ADDR": "localhost"}, [("local-master", "MASTER_ADDR=localhost")]),
        ({"PYTHONPATH": "/scratch/packages"}, [("value-may-harm", "PYTHONPATH")]),
        # The runtime gives containers its own, unless they are told another way.
        ({"LD_LIBRARY_PATH": "/x", "PATH": "/x"}, []),
        ({"SINGULARITYENV_LD_LIBRARY_PATH": "/x"}, [("value-may-harm", "SINGULARITYENV_LD_LIBRARY_PATH")]),
        # Of other faults of job scripts, `env` prints what the ledger knows.
        ({"MASTER_PORT": "29500", "MIOPEN_USER_DB_PATH": "/scratch/x"}, []),
        ({"GLOO_SOCKET_IFNAME": "ib0\n", "MASTER_ADDR": "x" * 100_000}, []),
        ({"GLOO_SOCKET_IFNAME": "'; exit $(x)"}, []),
    ],
)
def test_what_of_a_shell_breaks_jobs_or_may(variables: dict[str, str], found: list[tuple[str, str]]) -> None:
    assert codes(variables) == found


def test_what_needs_an_option_of_srun_is_named() -> None:
    site = load_site("lumi").site
    (bad,) = judge_own_variables(site, "small-g", 2, {"FI_CXI_RDZV_PROTO": "alt_read"})
    assert (bad.code, bad.severity, bad.advice) == (
        "missing-partner",
        Severity.DOUBT,
        "srun --network=disable_rdzv_get",
    )
    with_partner = {"FI_CXI_RDZV_PROTO": "alt_read", "SLURM_NETWORK": "disable_rdzv_get"}
    assert list(judge_own_variables(site, "small-g", 2, with_partner)) == []


def test_on_one_node_each_rank_finds_the_others_at_its_own_address() -> None:
    assert codes({"MASTER_ADDR": "localhost"}, nodes=1) == []


def test_env_prints_them_first(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "ib0")
    assert main(["env", "--site", "twin", "image.sif"]) == 1
    assert capsys.readouterr().out.startswith("GLOO_SOCKET_IFNAME=ib0: ")
