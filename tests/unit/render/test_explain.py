"""`why`: the winner, the rule, the reason, the source, and what lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from lumisite.cli import main
from lumisite.errors import ResolveError
from lumisite.render.explain import Explanation, explain, references
from lumisite.site.images import Holds
from lumisite.site.load import load_site
from lumisite.site.selection import resolve_selection
from lumisite.site.versions import parse_version

LUMI = load_site("lumi")


def why(name: str, rocm: str = "6.2", **options: object) -> Explanation:
    return explain(LUMI, resolve_selection(LUMI.site, rocm=[rocm]), name, **options)  # type: ignore[arg-type]


OLD, NEW = (Holds("lumi-pytorch", {"rocm": parse_version(rocm)}, True) for rocm in ("6.1.3", "7.0.2"))


def test_a_setting_names_value_rule_reason_and_source_and_what_lost() -> None:
    explanation = why("NCCL_NET_GDR_LEVEL", nodes="several", partition="standard-g", holds=OLD)
    assert [entry.outcome for entry in explanation.entries] == ["wins", "lost"]
    winner = explanation.entries[0]
    assert winner.value == "NCCL_NET_GDR_LEVEL = PHB"
    assert winner.rule.startswith("when: rocm <6.2, family easybuild or lumi-pytorch")
    assert winner.where == "the wrapper, which sees the image"
    assert "HPE" in winner.source
    newer = why("NCCL_NET_GDR_LEVEL", nodes="several", partition="standard-g", holds=NEW)
    assert newer.entries[0].value == "NCCL_NET_GDR_LEVEL is not set"
    assert newer.entries[1].rule.endswith("; needs rocm <6.2, here it is 7.0.2")


def test_evidence_and_sources_can_be_followed() -> None:
    entries = why("FI_MR_CACHE_MONITOR", nodes="several", partition="standard-g").entries
    entry = next(one for one in entries if one.value.endswith("= userfaultfd"))
    assert "0 of 18 attempts stalled with userfaultfd and 21 of 23 without it" in entry.evidence
    study = next(source for source in entry.sources if source.id == "STUDY")
    assert study.address.startswith("https://github.com/")
    assert any(source.place == "issue 44" for source in entry.sources if source.id == "LCR")


def test_what_was_measured_is_said() -> None:
    text = str(why("NCCL_CROSS_NIC", nodes="several", partition="standard-g"))
    assert "No effect on speed on 4 nodes in 2026-09, 40 runs each" in text
    bug, page = references(load_site("lumi").site, "SCHEDMD bug 17875; TORCH")
    assert str(bug).endswith(", bug 17875 <https://support.schedmd.com>")
    assert str(page) == "TORCH: torch.distributed <https://docs.pytorch.org/docs/stable/distributed.html>"


def test_what_is_left_open_is_shown_with_what_wins_otherwise() -> None:
    assert [e.outcome for e in why("NCCL_NET_GDR_LEVEL").entries] == ["may win", "wins otherwise"]


def test_a_path_below_a_bind_is_explained_by_it() -> None:
    explanation = why("/opt/cray/libfabric/1.22.0")
    assert (explanation.kind, explanation.entries[0].value) == ("bind", "/opt/cray")


def test_a_bind_that_does_not_apply_says_so() -> None:
    assert why("/usr/lib64/libjansson.so.4").entries[0].outcome == "does not apply"


def test_a_file_system_that_no_module_binds_says_so() -> None:
    assert why("/users").entries[0].outcome == "not bound"


def test_a_module_says_its_version_binds_and_loads() -> None:
    assert why("singularity-CPEbits").entries[0].value == "binds /opt/cray, /usr/lib64/libcxi.so.1"
    bindings = why("singularity-AI-bindings").entries[0]
    assert bindings.outcome == "singularity-AI-bindings/25.03-rocm6.2"
    assert "singularity-CPEbits" in bindings.where


def test_what_no_source_confirms_is_marked() -> None:
    assert why("GLOO_SOCKET_IFNAME").entries[0].source.endswith("(not confirmed for this site)")


@pytest.mark.parametrize(
    ("name", "code", "advice"),
    [
        ("NCCL_NETT", "name-unknown", "did you mean NCCL_NET?"),
        ("/opt/crya", "name-unknown", "did you mean /opt/cray?"),
        (
            "singularity-CPEbits/24.03",
            "release-unavailable",
            "choose other releases with --platform, --cpe",
        ),
    ],
)
def test_an_unknown_name_is_one_error_that_comes_close(name: str, code: str, advice: str) -> None:
    with pytest.raises(ResolveError) as caught:
        why(name)
    finding = caught.value.finding
    assert (finding.code, finding.subject, finding.advice) == (code, name, advice)


def test_an_unknown_partition_is_refused() -> None:
    with pytest.raises(ResolveError) as caught:
        why("NCCL_NET", partition="dev")
    assert (caught.value.finding.code, caught.value.finding.subject) == ("name-unknown", "--partition")


def test_a_setting_that_works_only_with_a_partner_says_so() -> None:
    assert "needs   FI_CXI_RDZV_PROTO=alt_read: srun --network=disable_rdzv_get\n" in str(why("FI_CXI_RDZV_PROTO"))
    assert "needs" not in str(why("FI_CXI_RDZV_GET_MIN"))


def test_text_shows_every_part() -> None:
    text = str(why("NCCL_CROSS_NIC", nodes="several", partition="standard-g"))
    for part in (
        "NCCL_CROSS_NIC = 1",
        "when: nodes several, gpus yes",
        "set by  the task prolog",
        "why ",
        "source ",
        "evidence No effect on speed on 4 nodes in 2026-09, 40 runs each",
    ):
        assert part in text


def test_a_file_is_no_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    for name, reader in (("slurm-12.out", "transport"), ("train.sbatch", "lint")):
        Path(name).touch()
        assert main(["why", name]) == 2
        assert f"(`lumisite {reader} {name}` reads it)" in capsys.readouterr().err
