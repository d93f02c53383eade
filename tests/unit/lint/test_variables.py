"""Values of variables: what does harm, names no interface of the site, or puts caches where all nodes write."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from lumisite.cli import main
from lumisite.findings.finding import Finding, Severity
from lumisite.lint.own_variables import judge_own_variables
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
        (f"D=/appl/x\nS=$D/{R61.rpartition('/')[2]}\nexport NCCL_NET_GDR_LEVEL=PHB\n{run('-B /y $S')}", []),
        (f"export NCCL_NET_GDR_LEVEL=PHB\n{run(R61)}{run(R70)}", ["3 harmful-value"]),
        # its own command's image counts
        (f"{run(R70)}NCCL_NET_GDR_LEVEL=PHB srun singularity run {R61} x\n", []),
        (f"{run(R61)}NCCL_NET_GDR_LEVEL=PHB srun singularity run {R70} x\n", ["4 harmful-value"]),
        # so does its own step
        (f"NCCL_NET_GDR_LEVEL=PHB srun -N 1 singularity run {R70} x\n{run(R70)}", []),
        # taken back before anything starts
        (f"export NCCL_NET_GDR_LEVEL=PHB\nunset NCCL_NET_GDR_LEVEL\n{run(R70)}", []),
        (f"export NCCL_NET_GDR_LEVEL=PHB\necho NCCL_NET_GDR_LEVEL\n{run(R70)}", ["3 harmful-value"]),
        (f"export NCCL_NET_GDR_LEVEL=PHB\n{run(R70)}unset NCCL_NET_GDR_LEVEL\n", ["3 harmful-value"]),
    ],
)
def test_which_image_and_step_a_setting_reaches(lines: str, expected: list[str]) -> None:
    assert found(SEVERAL + lines) == expected


@pytest.mark.parametrize(
    ("setting", "expected"),
    [("NCCL_PROTO=allreduce:LL128", 1), ("NCCL_PROTO=^LL128", 0), ("NCCL_MIN_NCHANNELS=", 0)],
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


UNSAID = "why (only where rocm is >=7.0, which the script does not say)"


@pytest.mark.parametrize(
    ("image", "when", "unknown_images", "reason"),
    [
        (R70, {"rocm": ">=7.0"}, True, "why"),
        (R64, {"rocm": ">=7.0"}, True, None),
        ("$SIF", {"rocm": ">=7.0"}, True, UNSAID),
        ("docker://a/b:nightly-rocm100", {"rocm": ">=7.0"}, True, UNSAID),
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
    ("setting", "fault", "right"),
    [
        ("NCCL_SOCKET_IFNAME=ib0", "begins with", "hsn0,hsn1,hsn2,hsn3"),
        ("NCCL_SOCKET_IFNAME=nmn0", "management network", "hsn0,hsn1,hsn2,hsn3"),
        ("GLOO_SOCKET_IFNAME=hsn", "is called", "=hsn0"),
        ("TP_SOCKET_IFNAME=ib0", "is called", "=hsn0"),
    ],
)
def test_interfaces_that_the_site_does_not_have_for_traffic(setting: str, fault: str, right: str) -> None:
    (finding,) = findings(f"{SEVERAL}export {setting}\nsrun ./x\n")
    assert finding.code == "wrong-interface"
    assert fault in finding.message
    assert finding.advice.endswith(right)


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
        ("${TRITON_CACHE_DIR:-$HOME/t}", True),
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
        ("export TRITON_CACHE_DIR=$HOME/t\nexport TRITON_CACHE_DIR=/tmp/t\nsrun x\n", []),
        ("srun singularity run x.sif bash -c 'export TRITON_CACHE_DIR=$HOME/t; y'\n", ["3 shared-cache"]),
        ("D=$(mktemp -d); E=$D/x; export MIOPEN_USER_DB_PATH=$E/db\n", ["3 cache-by-mktemp"]),
        ("srun singularity exec --env MIOPEN_USER_DB_PATH=$(mktemp -d) x.sif python y\n", ["3 cache-by-mktemp"]),
        ("srun singularity exec x.sif bash -c 'export MIOPEN_USER_DB_PATH=$(mktemp -d); python y'\n", []),
        ("D=$(mktemp -d); export MIOPEN_USER_DB_PATH=/tmp/$USER; cp x $D\n", []),
        ("for i in 1 2; do MIOPEN_USER_DB=/tmp/x srun y; done\n", ["3 misnamed-variable"]),
        ("srun --export=ALL,MIOPEN_USER_DB=/tmp/x y\n", ["3 misnamed-variable"]),
    ],
)
def test_where_a_cache_is_and_which_variable_is_read(lines: str, expected: list[str]) -> None:
    assert found(ONE + lines) == expected


# ---------------------------------------------------------------- the vendors of a site

SITES = {name: load_site(name).site for name in embedded_sites()}
SITES["silent"] = load_text(site_text(("MIOPEN_CUSTOM_CACHE_DIR\n    directory: ", "OTHER\n    directory: "))).site


def found_at(site: str, text: str) -> list[Finding]:
    return findings(text, SITES[site])


def test_a_variable_that_nothing_reads_is_one_of_the_sites_vendor() -> None:
    text = "export MIOPEN_USER_DB=/tmp/x\nsrun x\n"
    (finding,) = found_at("lumi", text)
    assert finding.message == "nothing reads this variable, and MIOPEN_USER_DB_PATH keeps its default"
    assert found_at("university", text) == []


@pytest.mark.parametrize(
    ("site", "name", "right"),
    [
        ("university", "CUDA_CACHE_PATH", "without this line: the module sets CUDA_CACHE_PATH in each task"),
        ("university", "MIOPEN_USER_DB_PATH", ""),
        # The site says nothing of it, its vendor does.
        ("silent", "MIOPEN_CUSTOM_CACHE_DIR", "export MIOPEN_CUSTOM_CACHE_DIR=/tmp/${USER}/miopen_custom_cache_dir, "),
    ],
)
def test_a_folder_of_the_first_node_for_a_cache_that_the_site_has(site: str, name: str, right: str) -> None:
    bad = found_at(site, f"export {name}=$(mktemp -d)\nsrun x\n")
    assert [one.code for one in bad] == ["cache-by-mktemp"] * bool(right)
    assert all(one.advice.startswith(right) for one in bad)


def test_the_module_that_binds_what_fits_is_the_sites() -> None:
    text = "#SBATCH -p dev-g\nexport LD_LIBRARY_PATH=/opt/cray/libfabric/1.15.2.0/lib64\nsrun x\n"
    (finding,) = found_at("lumi", text)
    assert finding.subject == "/opt/cray/libfabric/1.15.2.0"
    assert finding.advice.startswith("module load singularity-AI-bindings,")


def test_what_turns_a_plugin_or_adapters_off_is_wrong_where_traffic_needs_them() -> None:
    def codes(site: str, setting: str) -> list[str]:
        partition = next(name for name in SITES[site].partitions if SITES[site].kinds_of(name))
        return [one.code for one in found_at(site, f"#SBATCH -p {partition} -N 2\nexport {setting}\nsrun x\n")]

    assert "leftover-setting" in codes("lumi", "NCCL_NET=IB")
    assert "leftover-setting" not in codes("university", "NCCL_NET=IB")
    assert "leftover-setting" in codes("university", "NCCL_IB_DISABLE=1")
    assert "leftover-setting" not in codes("lumi", "NCCL_IB_DISABLE=1")


# ---------------------------------------------------------------- the user's own shell, which `env` reads


@pytest.mark.parametrize(
    ("variables", "expected"),
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
def test_what_of_a_shell_breaks_jobs_or_may(variables: dict[str, str], expected: list[tuple[str, str]]) -> None:
    bad = judge_own_variables(SITES["twin"], "small-g", 2, variables)
    assert [(finding.code, finding.subject) for finding in bad] == expected
    on_one_node = judge_own_variables(SITES["twin"], "small-g", 1, variables)
    assert "local-master" not in [finding.code for finding in on_one_node], "each rank finds the others there"


def test_what_needs_an_option_of_srun_is_named() -> None:
    (bad,) = judge_own_variables(LUMI, "small-g", 2, {"FI_CXI_RDZV_PROTO": "alt_read"})
    advice = "srun --network=disable_rdzv_get"
    assert (bad.code, bad.severity, bad.advice) == ("missing-partner", Severity.DOUBT, advice)
    with_partner = {"FI_CXI_RDZV_PROTO": "alt_read", "SLURM_NETWORK": "disable_rdzv_get"}
    assert list(judge_own_variables(LUMI, "small-g", 2, with_partner)) == []


def test_env_prints_them_first(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "ib0")
    assert main(["env", "--site", "twin", "image.sif"]) == 1
    assert capsys.readouterr().out.startswith("GLOO_SOCKET_IFNAME=ib0: ")
