"""What rules say of one vendor's variables and libraries, and where more is said: by the site and its vendors."""

from __future__ import annotations

import pytest

from lumisite.findings.finding import Finding
from lumisite.site.load import embedded_sites, load_site
from tests.support.linted import findings
from tests.support.sites import load_text, site_text

SITES = {name: load_site(name).site for name in embedded_sites()}
SITES["silent"] = load_text(site_text(("MIOPEN_CUSTOM_CACHE_DIR\n    directory: ", "OTHER\n    directory: "))).site


def found(site: str, text: str) -> list[Finding]:
    return findings(text, SITES[site])


def test_a_variable_that_nothing_reads_is_one_of_the_sites_vendor() -> None:
    text = "export MIOPEN_USER_DB=/tmp/x\nsrun x\n"
    (finding,) = found("lumi", text)
    assert finding.code == "misnamed-variable"
    assert finding.message == "nothing reads this variable, and MIOPEN_USER_DB_PATH keeps its default"
    assert finding.advice == "without this line: the module sets MIOPEN_USER_DB_PATH in each task"
    assert found("university", text) == []


@pytest.mark.parametrize(
    ("site", "name", "right"),
    [
        ("university", "CUDA_CACHE_PATH", "without this line: the module sets CUDA_CACHE_PATH in each task"),
        ("university", "MIOPEN_USER_DB_PATH", ""),
        # The site says nothing of it, its vendor does.
        ("silent", "MIOPEN_CUSTOM_CACHE_DIR", "export MIOPEN_CUSTOM_CACHE_DIR=/tmp/${USER}/miopen_custom_cache_dir, …"),
    ],
)
def test_a_folder_of_the_first_node_for_a_cache_that_the_site_has(site: str, name: str, right: str) -> None:
    bad = found(site, f"export {name}=$(mktemp -d)\nsrun x\n")
    assert [one.code for one in bad] == ["cache-by-mktemp"] * bool(right)
    assert all(one.advice.startswith(right.rstrip("…")) for one in bad)


def test_the_module_that_binds_what_fits_is_the_sites() -> None:
    text = "#SBATCH -p dev-g\nexport LD_LIBRARY_PATH=/opt/cray/libfabric/1.15.2.0/lib64\nsrun x\n"
    (finding,) = found("lumi", text)
    assert finding.advice.startswith("module load singularity-AI-bindings,")
