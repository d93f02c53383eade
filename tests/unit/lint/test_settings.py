"""Values of variables: what does harm, names no interface of the site, or puts caches where all nodes write."""

from __future__ import annotations

import dataclasses

import pytest

from lumisite.findings.finding import Finding, Place
from lumisite.lint.rule_table import RULES, source_of
from lumisite.site.entries import Harmful, Setting, When
from lumisite.site.harmful_values import harms
from lumisite.site.load import embedded_sites, load_site
from lumisite.site.scalars import Line, VariableName
from lumisite.site.versions import parse_version_range
from tests.support.linted import LUMI, findings, found
from tests.support.sites import load_text, site_text

HEAD = "#!/bin/bash\n#SBATCH -p standard-g --gpus-per-node=8 --ntasks-per-node=8 -N {}\n"
SEVERAL, ONE = HEAD.format(4), HEAD.format(1)
R70 = "lumi-multitorch-full-u24r70f21m50t210-20260807_115122.sif"
R64 = "lumi-multitorch-full-u24r64f21m43t29-20260225_144743.sif"
R61 = "/appl/local/containers/sif-images/lumi-pytorch-rocm-6.1.3-python-3.12-pytorch-v2.4.1.sif"


def run(image: str) -> str:
    return f"srun singularity run {image} python x\n"


# ---------------------------------------------------------------- harmful values


@pytest.mark.parametrize(
    ("value", "image", "code"),
    [
        ("PHB", R70, "harmful-value"),
        ("phb", "$SIF", "value-may-harm"),
        ("${NCCL_NET_GDR_LEVEL:-PHB}", "lumi-multitorch-latest.sif", "value-may-harm"),
        ("'4'", R70, "harmful-value"),
        ("2", R70, ""),
        ("PXB", R70, ""),
        ("$LEVEL", R70, ""),
    ],
)
def test_gdr_levels_that_hang_and_others(value: str, image: str, code: str) -> None:
    assert found(f"{SEVERAL}export NCCL_NET_GDR_LEVEL={value}\n{run(image)}") == [f"3 {code}"] * bool(code)


@pytest.mark.parametrize(
    ("head", "expected"),
    [
        (SEVERAL, 1),
        (ONE, 0),
        ("#SBATCH -p standard-g\n", 0),
        ("#SBATCH -p dev-g --nodes=2-4\n", 1),
        ("#SBATCH -p booster -N 2\n", 0),
    ],
)
def test_the_number_of_nodes_must_be_known(head: str, expected: int) -> None:
    line = head.count("\n") + 1
    bad = [one for one in found(f"{head}export NCCL_NET_GDR_LEVEL=PHB\n./x\n") if "harm" in one]
    assert bad == [f"{line} value-may-harm"] * expected


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (f"export NCCL_NET_GDR_LEVEL=PHB\n{run(R61)}", []),
        (f"D=/appl/x\nS=$D/{R61.rpartition('/')[2]}\nexport NCCL_NET_GDR_LEVEL=PHB\n{run('-B /y $S')}", []),
        (f"export NCCL_NET_GDR_LEVEL=PHB\n{run(R61)}{run(R70)}", ["3 harmful-value"]),
        # its own command's image counts
        (f"{run(R70)}NCCL_NET_GDR_LEVEL=PHB srun singularity run {R61} x\n", []),
        (f"{run(R61)}NCCL_NET_GDR_LEVEL=PHB srun singularity run {R70} x\n", ["4 harmful-value"]),
        # so does its own step
        (f"NCCL_NET_GDR_LEVEL=PHB srun -N 1 singularity run {R70} x\n{run(R70)}", []),
        # taken back before anything starts
        (f"export NCCL_NET_GDR_LEVEL=PHB\nunset NCCL_NET_GDR_LEVEL\n{run(R70)}", []),
        (f"export NCCL_NET_GDR_LEVEL=PHB\n{run(R70)}unset NCCL_NET_GDR_LEVEL\n", ["3 harmful-value"]),
    ],
)
def test_which_image_and_step_a_setting_reaches(lines: str, expected: list[str]) -> None:
    assert found(SEVERAL + lines) == expected


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        ("NCCL_PROTO=LL128", 1),
        ("NCCL_PROTO=allreduce:LL128", 1),
        ("NCCL_PROTO=^LL128", 0),
        ("NCCL_MIN_NCHANNELS=32", 1),
        ("NCCL_MIN_NCHANNELS=", 0),
    ],
)
def test_harm_on_any_number_of_nodes(setting: str, expected: int) -> None:
    assert found(f"{ONE}export {setting}\n{run(R64)}") == ["3 harmful-value"] * expected
    assert found(f"#SBATCH -p elsewhere\nexport {setting}\n{run(R64)}") == []


def test_a_finding_gives_the_reason_the_right_line_and_the_source_of_its_entry() -> None:
    (bad,) = findings(f"{ONE}export NCCL_PROTO=LL128\n")
    (harm,) = (one for one in harms(LUMI) if one.setting.name == "NCCL_PROTO")
    assert (bad.subject, bad.message, bad.advice) == ("NCCL_PROTO=LL128", harm.setting.why, "unset NCCL_PROTO")
    assert source_of(LUMI, bad).startswith(f"{str(harm.setting.source).partition(';')[0]}: ")
    assert "<http" in source_of(LUMI, bad)
    assert source_of(LUMI, bad).endswith(next(rule.source for rule in RULES if rule.code == bad.code))
    (finding,) = findings(f"{SEVERAL}export FI_MR_CACHE_MONITOR=memhooks\n")
    assert finding.advice == "export FI_MR_CACHE_MONITOR=userfaultfd"


@pytest.mark.parametrize(
    ("image", "when", "unknown_images", "reason"),
    [
        (R70, {"rocm": ">=7.0"}, True, "why"),
        (R64, {"rocm": ">=7.0"}, True, None),
        ("$SIF", {"rocm": ">=7.0"}, True, "why (only where rocm is >=7.0, which the script does not say)"),
        (
            "docker://a/b:nightly-rocm100",
            {"rocm": ">=7.0"},
            True,
            "why (only where rocm is >=7.0, which the script does not say)",
        ),
        ("$SIF", {"rocm": ">=7.0"}, False, None),
        ("$SIF", {}, True, "why"),
    ],
)
def test_harm_is_claimed_only_of_images_that_are_known_to_have_the_release(
    image: str, when: dict[str, str], unknown_images: bool, reason: str | None
) -> None:
    stacks = {name: parse_version_range(text) for name, text in when.items()}
    harm = Harmful(value=Line("a*"), when=When(stacks=stacks), unknown_images=unknown_images)
    entry = Setting(name=VariableName("X"), leave=True, why=Line("why"), harmful=(harm,), source=Line("STUDY"))
    site = dataclasses.replace(LUMI, settings=(entry,))
    assert [one.message for one in findings(f"{ONE}export X=Abc\n{run(image)}", site)] == ([reason] if reason else [])
    assert found(f"{ONE}export X=bca\n{run(image)}", site) == []


# ---------------------------------------------------------------- interfaces


@pytest.mark.parametrize(
    ("setting", "fault"),
    [
        ("NCCL_SOCKET_IFNAME=ib0", "begins with"),
        ("NCCL_SOCKET_IFNAME=nmn0", "management network"),
        ("GLOO_SOCKET_IFNAME=hsn", "is called"),
        ("TP_SOCKET_IFNAME=ib0", "is called"),
    ],
)
def test_interfaces_that_the_site_does_not_have_for_traffic(setting: str, fault: str) -> None:
    (finding,) = findings(f"{SEVERAL}export {setting}\nsrun ./x\n")
    assert (finding.place, finding.code) == (Place("s", 3), "wrong-interface")
    assert fault in finding.message
    assert finding.advice.endswith("hsn0,hsn1,hsn2,hsn3" if setting.startswith("NCCL") else "=hsn0")


@pytest.mark.parametrize(
    ("head", "line", "code"),
    [
        (SEVERAL, "export NCCL_SOCKET_IFNAME=hsn,eth", ""),
        (SEVERAL, "export NCCL_SOCKET_IFNAME=^lo,nmn", ""),
        (SEVERAL, "export NCCL_SOCKET_IFNAME=$FAST", ""),
        (SEVERAL, "export GLOO_SOCKET_IFNAME=hsn0", ""),
        # on one node there is no traffic between nodes
        (ONE, "export NCCL_SOCKET_IFNAME=nmn0 GLOO_SOCKET_IFNAME=lo", ""),
        (SEVERAL, "NCCL_SOCKET_IFNAME=nmn0 srun -N 1 -n 1 ./x", ""),
        (ONE, "export NCCL_SOCKET_IFNAME=ib0", "wrong-interface"),
    ],
)
def test_interfaces_that_are_right(head: str, line: str, code: str) -> None:
    assert found(f"{head}{line}\nsrun ./x\n") == [f"3 {code}"] * bool(code)


# ---------------------------------------------------------------- caches


@pytest.mark.parametrize(
    ("path", "shared"),
    [
        ("/scratch/project_1/c", True),
        ("${HOME}/c", True),
        ("~/c", True),
        ('"/flash/$USER/$X"', True),
        ("/tmp/$USER/c", False),
        ("/scratches/c", False),
        ("cache", False),
    ],
)
def test_caches_that_all_nodes_share(path: str, shared: bool) -> None:
    assert found(f"{ONE}export TRITON_CACHE_DIR={path}\nsrun ./x\n") == ["3 shared-cache"] * shared


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ("B=/scratch/p\nC=$B/$USER/c\nexport TRITON_CACHE_DIR=${C}/t\n", ["5 shared-cache"]),
        ("export TRITON_CACHE_DIR=${TRITON_CACHE_DIR:-$HOME/t}\n", ["3 shared-cache"]),
        ("export TRITON_CACHE_DIR=$HOME/t\nexport TRITON_CACHE_DIR=/tmp/t\nsrun x\n", []),
        ("srun singularity run --env TRITON_CACHE_DIR=/users/me/t,A=b x.sif y\n", ["3 shared-cache"]),
        ("srun singularity run x.sif bash -c 'export TRITON_CACHE_DIR=$HOME/t; y'\n", ["3 shared-cache"]),
    ],
)
def test_where_a_cache_is(lines: str, expected: list[str]) -> None:
    assert found(ONE + lines) == expected


# ---------------------------------------------------------------- the vendors of a site

SITES = {name: load_site(name).site for name in embedded_sites()}
SITES["silent"] = load_text(site_text(("MIOPEN_CUSTOM_CACHE_DIR\n    directory: ", "OTHER\n    directory: "))).site


def found_at(site: str, text: str) -> list[Finding]:
    return findings(text, SITES[site])


def test_a_variable_that_nothing_reads_is_one_of_the_sites_vendor() -> None:
    text = "export MIOPEN_USER_DB=/tmp/x\nsrun x\n"
    (finding,) = found_at("lumi", text)
    assert finding.code == "misnamed-variable"
    assert finding.message == "nothing reads this variable, and MIOPEN_USER_DB_PATH keeps its default"
    assert found_at("university", text) == []


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
    bad = found_at(site, f"export {name}=$(mktemp -d)\nsrun x\n")
    assert [one.code for one in bad] == ["cache-by-mktemp"] * bool(right)
    assert all(one.advice.startswith(right.rstrip("…")) for one in bad)


def test_the_module_that_binds_what_fits_is_the_sites() -> None:
    text = "#SBATCH -p dev-g\nexport LD_LIBRARY_PATH=/opt/cray/libfabric/1.15.2.0/lib64\nsrun x\n"
    (finding,) = found_at("lumi", text)
    assert finding.advice.startswith("module load singularity-AI-bindings,")
