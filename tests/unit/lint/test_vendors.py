"""What rules say of one vendor's variables and libraries, and where more is said: by the site and its vendors."""

from __future__ import annotations

import pytest

from lumisite.findings.finding import Finding
from lumisite.lint.rules import ANYWHERE, OF_SITE, lint_script
from lumisite.site.load import embedded_sites, load_site
from tests.support.linted import findings
from tests.support.sites import load_text, site_text

SITES = {name: load_site(name).site for name in embedded_sites()}
SITES["silent"] = load_text(site_text(("MIOPEN_CUSTOM_CACHE_DIR\n    directory: ", "OTHER\n    directory: "))).site
TMP = "{path: /tmp, kind: node-local, writable: yes,"
SITES["of jobs"] = load_text(site_text((TMP, "{path: /tmp, kind: node-local, job_folder: $TMPDIR,"))).site


def found(site: str, text: str) -> list[Finding]:
    return findings(text, SITES[site])


@pytest.mark.parametrize(
    ("site", "partition", "library", "variable"),
    [
        ("lumi", "dev-g", "RCCL", "ROCR_VISIBLE_DEVICES"),
        ("university", "gpu", "NCCL", "CUDA_VISIBLE_DEVICES"),
    ],
)
def test_a_binding_of_gpus_names_what_fails_and_what_to_set(
    site: str, partition: str, library: str, variable: str
) -> None:
    (finding,) = found(site, f"#SBATCH -p {partition}\nsrun -n 4 -N 1 --gpu-bind=closest x\n")
    assert finding.code == "gpu-binding"
    assert (finding.values["library"], finding.values["variable"]) == (library, variable)


def test_a_variable_that_nothing_reads_is_one_of_the_sites_vendor() -> None:
    text = "export MIOPEN_USER_DB=/tmp/x\nsrun x\n"
    (finding,) = found("lumi", text)
    assert finding.code == "misnamed-variable"
    assert finding.values == {"expected": "MIOPEN_USER_DB_PATH", "directory": "/tmp/${USER}/miopen-user-db"}
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
    assert all((one.subject, one.values["directory"]) == (name, right) for one in bad)


def test_the_module_that_binds_what_fits_is_the_sites() -> None:
    text = "#SBATCH -p dev-g\nexport LD_LIBRARY_PATH=/opt/cray/libfabric/1.15.2.0/lib64\nsrun x\n"
    (finding,) = found("lumi", text)
    assert finding.values["module"] == "singularity-AI-bindings"


def test_the_site_says_where_more_is_said_of_a_rule() -> None:
    text = "#SBATCH -p {}\nsrun -n 4 -N 1 --gpu-bind=closest x\n"
    (lumi,) = lint_script(text.format("dev-g").encode(), "s", SITES["lumi"])
    (university,) = lint_script(text.format("gpu").encode(), "s", SITES["university"])
    source = str(lumi.values["source"])
    assert source.startswith("TM: LUMI training materials, 2day-20260422 202-Binding <https://")
    assert source.endswith("srun(1), --gpu-bind")
    assert university.values["source"] == "srun(1), --gpu-bind"


@pytest.mark.parametrize("name", [name for name in SITES if SITES[name].lint])
def test_what_a_site_says_is_of_rules_that_there_are(name: str) -> None:
    assert set(SITES[name].lint) <= {*ANYWHERE, *OF_SITE}
