"""What rules say of one vendor's variables and libraries, and where more is said: by the site and its vendors."""

from __future__ import annotations

import pytest

from lumisite.findings.finding import Finding
from lumisite.lint.rules import RULES, source_of
from lumisite.site.load import embedded_sites, load_site
from tests.support.linted import findings
from tests.support.sites import load_text, site_text

SITES = {name: load_site(name).site for name in embedded_sites()}
SITES["silent"] = load_text(site_text(("MIOPEN_CUSTOM_CACHE_DIR\n    directory: ", "OTHER\n    directory: "))).site
TMP = "{path: /tmp, kind: node-local, writable: yes,"
SITES["of jobs"] = load_text(site_text((TMP, "{path: /tmp, kind: node-local, job_folder: $TMPDIR,"))).site


def found(site: str, text: str) -> list[Finding]:
    return findings(text, SITES[site])


def test_a_variable_that_nothing_reads_is_one_of_the_sites_vendor() -> None:
    text = "export MIOPEN_USER_DB=/tmp/x\nsrun x\n"
    (finding,) = found("lumi", text)
    assert finding.code == "misnamed-variable"
    assert finding.message == "nothing reads this variable, and MIOPEN_USER_DB_PATH keeps its default"
    assert finding.advice.startswith("export MIOPEN_USER_DB_PATH=/tmp/${USER}/miopen-user-db,")
    assert found("university", text) == []


@pytest.mark.parametrize(
    ("site", "name", "right"),
    [
        ("university", "CUDA_CACHE_PATH", "/local/${USER}/cuda-cache"),
        ("university", "TRITON_CACHE_DIR", "/local/${USER}/triton-cache"),
        ("university", "MIOPEN_USER_DB_PATH", ""),
        ("of jobs", "MIOPEN_CUSTOM_CACHE_DIR", "$TMPDIR/miopen-custom-cache"),
        # The site says nothing of it, its vendor does.
        ("silent", "MIOPEN_CUSTOM_CACHE_DIR", "/tmp/${USER}/miopen-custom-cache"),
    ],
)
def test_a_folder_of_the_first_node_for_a_cache_that_the_site_has(site: str, name: str, right: str) -> None:
    bad = found(site, f"export {name}=$(mktemp -d)\nsrun x\n")
    assert [one.code for one in bad] == ["cache-by-mktemp"] * bool(right)
    assert all(one.advice == f"export {name}={right}, and mkdir -p it in the task" for one in bad)


def test_the_module_that_binds_what_fits_is_the_sites() -> None:
    text = "#SBATCH -p dev-g\nexport LD_LIBRARY_PATH=/opt/cray/libfabric/1.15.2.0/lib64\nsrun x\n"
    (finding,) = found("lumi", text)
    assert finding.advice.startswith("module load singularity-AI-bindings,")


def test_the_site_says_where_more_is_said_of_a_rule() -> None:
    text = "export MASTER_ADDR=$(echo $SLURM_NODELIST | cut -d, -f1)\nsrun x\n"
    (lumi,), (university,) = found("lumi", text), found("university", text)
    source = source_of(SITES["lumi"], lumi)
    assert source.startswith("LCT: tests of the LUMI AI Factory images <https://")
    assert source.endswith("; sbatch(1) and scontrol(1)")
    assert source_of(SITES["university"], university) == "sbatch(1) and scontrol(1)"


def test_a_binding_of_gpus_is_wrong_where_the_site_says_that_it_does_harm() -> None:
    text = "#SBATCH -p {}\nsrun -n 4 -N 1 --gpu-bind=closest x\n"
    assert [one.code for one in found("lumi", text.format("dev-g"))] == ["missing-partner"]
    assert found("university", text.format("gpu")) == []


@pytest.mark.parametrize("name", [name for name in SITES if SITES[name].lint])
def test_what_a_site_says_is_of_rules_that_there_are(name: str) -> None:
    assert set(SITES[name].lint) <= {rule.code for rule in RULES}
