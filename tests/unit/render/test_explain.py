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
STEP = {"nodes": "several", "partition": "standard-g"}


def why(name: str, rocm: str = "6.2", **options: object) -> Explanation:
    return explain(LUMI, resolve_selection(LUMI.site, rocm=[rocm]), name, **options)  # type: ignore[arg-type]


OLD, NEW = (Holds("lumi-pytorch", {"rocm": parse_version(rocm)}, True) for rocm in ("6.1.3", "7.0.2"))


def test_a_setting_names_value_rule_reason_and_source_and_what_lost() -> None:
    explanation = why("NCCL_NET_GDR_LEVEL", **STEP, holds=OLD)
    assert [entry.outcome for entry in explanation.entries] == ["wins", "lost"]
    winner = explanation.entries[0]
    assert winner.value == "NCCL_NET_GDR_LEVEL = PHB"
    assert winner.rule.startswith("when: rocm <6.2, family easybuild or lumi-pytorch")
    assert winner.where == "the wrapper, which sees the image"
    assert "HPE" in winner.source
    newer = why("NCCL_NET_GDR_LEVEL", **STEP, holds=NEW)
    assert newer.entries[0].value == "NCCL_NET_GDR_LEVEL is not set"
    assert newer.entries[1].rule.endswith("; needs rocm <6.2, here it is 7.0.2")
    assert [entry.outcome for entry in why("NCCL_NET_GDR_LEVEL").entries] == ["may win", "wins otherwise"]


def test_text_shows_every_part() -> None:
    text = str(why("NCCL_CROSS_NIC", **STEP))
    for part in (
        "NCCL_CROSS_NIC = 1",
        "when: nodes several, gpus yes",
        "set by  the task prolog",
        "why ",
        "source ",
        "evidence No effect on speed on 4 nodes in 2026-09, 40 runs each",
    ):
        assert part in text
    assert "needs   FI_CXI_RDZV_PROTO=alt_read: srun --network=disable_rdzv_get\n" in str(why("FI_CXI_RDZV_PROTO"))
    assert "needs" not in str(why("FI_CXI_RDZV_GET_MIN"))


def test_evidence_and_sources_can_be_followed_and_what_no_source_confirms_is_marked() -> None:
    entries = why("FI_MR_CACHE_MONITOR", **STEP).entries
    entry = next(one for one in entries if one.value.endswith("= userfaultfd"))
    assert "0 of 18 attempts stalled with userfaultfd and 21 of 23 without it" in entry.evidence
    study = next(source for source in entry.sources if source.id == "STUDY")
    assert study.address.startswith("https://github.com/")
    assert any(source.place == "issue 44" for source in entry.sources if source.id == "LCR")
    bug, page = references(LUMI.site, "SCHEDMD bug 17875; TORCH")
    assert str(bug).endswith(", bug 17875 <https://support.schedmd.com>")
    assert str(page) == "TORCH: torch.distributed <https://docs.pytorch.org/docs/stable/distributed.html>"
    assert why("GLOO_SOCKET_IFNAME").entries[0].source.endswith("(not confirmed for this site)")


@pytest.mark.parametrize(
    ("name", "kind", "outcome", "value", "where"),
    [
        ("/opt/cray/libfabric/1.22.0", "bind", "wins", "/opt/cray", "the module singularity-CPEbits"),
        (
            "/usr/lib64/libjansson.so.4",
            "bind",
            "does not apply",
            "/usr/lib64/libjansson.so.4",
            "the module singularity-CPEbits",
        ),
        ("/users", "bind", "not bound", "/users", ""),
        ("singularity-CPEbits", "module", "singularity-CPEbits/25.03", "binds /opt/cray, /usr/lib64/libcxi.so.1", ""),
        (
            "singularity-AI-bindings",
            "module",
            "singularity-AI-bindings/25.03-rocm6.2",
            "binds nothing",
            "loads singularity-userfilesystems, singularity-CPEbits",
        ),
    ],
)
def test_a_bind_and_a_module_say_what_they_are(name: str, kind: str, outcome: str, value: str, where: str) -> None:
    explanation = why(name)
    entry = explanation.entries[0]
    assert (explanation.kind, entry.outcome, entry.value, entry.where) == (kind, outcome, value, where)


@pytest.mark.parametrize(
    ("name", "options", "code", "subject", "advice"),
    [
        ("NCCL_NETT", {}, "name-unknown", "NCCL_NETT", "did you mean NCCL_NET?"),
        ("/opt/crya", {}, "name-unknown", "/opt/crya", "did you mean /opt/cray?"),
        ("NCCL_NET", {"partition": "dev"}, "name-unknown", "--partition", "did you mean dev-g?"),
        (
            "singularity-CPEbits/24.03",
            {},
            "release-unavailable",
            "singularity-CPEbits/24.03",
            "choose other releases with --platform, --cpe",
        ),
    ],
)
def test_an_unknown_name_is_one_error_that_comes_close(
    name: str, options: dict[str, str], code: str, subject: str, advice: str
) -> None:
    with pytest.raises(ResolveError) as caught:
        why(name, **options)
    finding = caught.value.finding
    assert (finding.code, finding.subject, finding.advice) == (code, subject, advice)


def test_a_file_is_no_name(capsys: pytest.CaptureFixture[str]) -> None:
    for name, reader in (("slurm-12.out", "transport"), ("train.sbatch", "lint")):
        Path(name).touch()
        assert main(["why", name]) == 2
        assert f"(`lumisite {reader} {name}` reads it)" in capsys.readouterr().err
