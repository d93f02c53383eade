"""Values of variables: what does harm, names no interface of the site, or puts caches where all nodes write."""

from __future__ import annotations

import dataclasses

import pytest

from lumisite.findings.finding import Place
from lumisite.lint.rules import source_of
from lumisite.site.entries import Harmful, Setting, When
from lumisite.site.evidence import harms
from lumisite.site.load import load_site
from lumisite.site.model import Site
from lumisite.site.scalars import Line, VariableName
from lumisite.site.versions import parse_version_range
from tests.support.linted import LUMI, findings, found

HEAD = "#!/bin/bash\n#SBATCH -p standard-g --gpus-per-node=8 --ntasks-per-node=8 -N {}\n"
SEVERAL, ONE = HEAD.format(4), HEAD.format(1)
R70 = "lumi-multitorch-full-u24r70f21m50t210-20260807_115122.sif"
R64 = "lumi-multitorch-full-u24r64f21m43t29-20260225_144743.sif"
R61 = "/appl/local/containers/sif-images/lumi-pytorch-rocm-6.1.3-python-3.12-pytorch-v2.4.1.sif"


def run(image: str) -> str:
    return f"srun singularity run {image} python x\n"


# ---------------------------------------------------------------- harmful values


@pytest.mark.parametrize("value", ["PHB", "phb", "SYS", "3", "4", "5", "'PHB'", "${NCCL_NET_GDR_LEVEL:-PHB}"])
@pytest.mark.parametrize("image", [R70, "lumi-multitorch-latest.sif", "$SIF"])
def test_gdr_levels_that_hang(value: str, image: str) -> None:
    code = "harmful-value" if image == R70 else "value-may-harm"
    assert found(f"{SEVERAL}export NCCL_NET_GDR_LEVEL={value}\n{run(image)}") == [f"3 {code}"]


@pytest.mark.parametrize("value", ["0", "1", "2", "LOC", "PIX", "PXB", "", "$LEVEL", "$NCCL_NET_GDR_LEVEL"])
def test_other_gdr_levels(value: str) -> None:
    assert found(f"{SEVERAL}export NCCL_NET_GDR_LEVEL={value}\n{run(R70)}") == []


@pytest.mark.parametrize(
    ("head", "expected"),
    [
        (SEVERAL, 1),
        (ONE, 0),
        ("#SBATCH -p standard-g\n", 0),
        ("#SBATCH -p standard-g -N $NODES\n", 0),
        ("#SBATCH -p dev-g --nodes=2-4\n", 1),
        ("#SBATCH -p dev-g -n 16 --ntasks-per-node=8\n", 1),
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
        (f"export NCCL_NET_GDR_LEVEL=PHB\n{run('$OPTIONS ' + R61)}", []),
        (f"export NCCL_NET_GDR_LEVEL=PHB\n{run(R61)}{run(R70)}", ["3 harmful-value"]),
        (f"export NCCL_NET_GDR_LEVEL=PHB\n{run(R61)}{run('$OTHER')}", []),
        # its own command's image counts
        (f"{run(R70)}NCCL_NET_GDR_LEVEL=PHB srun singularity run {R61} x\n", []),
        (f"{run(R61)}NCCL_NET_GDR_LEVEL=PHB srun singularity run {R70} x\n", ["4 harmful-value"]),
        # so does its own step
        (f"NCCL_NET_GDR_LEVEL=PHB srun -N 1 singularity run {R70} x\n{run(R70)}", []),
        # taken back before anything starts
        (f"export NCCL_NET_GDR_LEVEL=PHB\nunset NCCL_NET_GDR_LEVEL\n{run(R70)}", []),
        (f"export NCCL_NET_GDR_LEVEL=PHB\nexport NCCL_NET_GDR_LEVEL=LOC\n{run(R70)}", []),
        (f"export NCCL_NET_GDR_LEVEL=PHB\n{run(R70)}unset NCCL_NET_GDR_LEVEL\n", ["3 harmful-value"]),
        ("echo NCCL_NET_GDR_LEVEL=PHB\n# export NCCL_NET_GDR_LEVEL=PHB\n", []),
    ],
)
def test_which_image_and_step_a_setting_reaches(lines: str, expected: list[str]) -> None:
    assert found(SEVERAL + lines) == expected


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        ("NCCL_PROTO=LL128", 1),
        ("NCCL_PROTO=Simple,LL128", 1),
        ("NCCL_PROTO=allreduce:LL128", 1),
        ("NCCL_PROTO=^LL128", 0),
        ("NCCL_PROTO=LL", 0),
        ("NCCL_MIN_NCHANNELS=32", 1),
        ("NCCL_MIN_NCHANNELS=", 0),
        ("FI_MR_CACHE_MONITOR=userfaultfd", 0),
    ],
)
def test_harm_on_any_number_of_nodes(setting: str, expected: int) -> None:
    for head in (ONE, SEVERAL, "#SBATCH -p dev-g\n"):
        line = head.count("\n") + 1
        assert found(f"{head}export {setting}\n{run(R64)}") == [f"{line} harmful-value"] * expected
        assert found(f"#SBATCH -p elsewhere\nexport {setting}\n{run(R64)}") == []


def test_a_finding_gives_the_reason_the_right_line_and_the_source_of_its_entry() -> None:
    (bad,) = findings(f"{ONE}export NCCL_PROTO=LL128\n")
    (harm,) = (one for one in harms(LUMI) if one.setting.name == "NCCL_PROTO")
    assert (bad.subject, bad.message, bad.advice) == ("NCCL_PROTO=LL128", harm.setting.why, "unset NCCL_PROTO")
    assert source_of(LUMI, bad).startswith(f"{str(harm.setting.source).partition(';')[0]}: ")
    assert "<http" in source_of(LUMI, bad)
    (finding,) = findings(f"{SEVERAL}export FI_MR_CACHE_MONITOR=memhooks\n")
    assert finding.advice == "export FI_MR_CACHE_MONITOR=userfaultfd"


def test_an_entry_is_data() -> None:
    """Every condition of an entry counts, and texts may have braces."""

    def with_entry(*, unknown_images: bool) -> Site:
        when = When(nodes="one", stacks={"rocm": parse_version_range("<6.2")}, family=("lumi-pytorch-conda",))
        harm = Harmful(value=Line("a*"), when=when, unknown_images=unknown_images)
        entry = Setting(name=VariableName("X"), leave=True, why=Line("{why}"), harmful=(harm,), source=Line("{s}"))
        return dataclasses.replace(LUMI, settings=(entry,))

    site = with_entry(unknown_images=False)
    assert found(f"{ONE}export X=Abc\n{run(R61)}", site) == ["3 harmful-value"]
    assert found(f"{SEVERAL}export X=Abc\n{run(R61)}", site) == []
    assert found(f"{ONE}export X=bca\n{run(R61)}", site) == []
    assert found(f"{ONE}export X=Abc\n{run(R64)}", site) == []
    assert found(f"{ONE}export X=Abc\n{run('lumi-jax-rocm-6.1.3.sif')}", site) == []
    assert found(f"{ONE}export X=Abc\n{run('other.sif')}", site) == []
    unknown = with_entry(unknown_images=True)
    assert found(f"{ONE}export X=Abc\n{run('other.sif')}", unknown) == ["3 value-may-harm"]
    assert found(f"{ONE}export X=Abc\n{run(R64)}", unknown) == []


def test_harm_is_claimed_only_of_images_that_are_known_to_have_the_release() -> None:
    harm = Harmful(value=Line("*"), when=When(stacks={"rocm": parse_version_range(">=7.0")}))
    below_nine = parse_version_range("<9")

    def reasons(image: str, *known: Harmful) -> list[str]:
        entries = [
            Setting(name=VariableName("X"), leave=True, why=Line("x"), harmful=(one,), source=Line("STUDY"))
            for one in known
        ]
        site = dataclasses.replace(LUMI, settings=tuple(entries))
        bad = [
            one
            for one in findings(f"{ONE}export X=1\n{run(image)}", site)
            if one.code in ("harmful-value", "value-may-harm")
        ]
        assert all((one.code == "harmful-value") == (one.message == "x") for one in bad)
        return [one.message.removeprefix("x") for one in bad]

    r714 = "lumi-multitorch-full-u26r714f23.sif"
    assert reasons(R70, harm) == reasons(R70.replace("r70", "r100"), harm) == [""]
    assert reasons(R64, harm) == reasons(R61, harm) == []
    for image in (
        "$SIF",
        "my.sif",
        "lumi-multitorch-latest.sif",
        r714,
        "docker://vllm/vllm-openai-rocm:nightly-rocm100",
    ):
        assert reasons(image, harm) == [" (only where rocm is >=7.0, which the script does not say)"], image
        assert reasons(image, dataclasses.replace(harm, unknown_images=False)) == []
    always, milder = (dataclasses.replace(harm, when=when) for when in (When(), When(stacks={"rocm": below_nine})))
    assert reasons("$SIF", harm, always) == [""], "what is certain comes first"
    assert reasons(R64, harm, milder) == [""]


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
    "setting",
    [
        "NCCL_SOCKET_IFNAME=hsn",
        "NCCL_SOCKET_IFNAME=hsn0",
        "NCCL_SOCKET_IFNAME=hsn,eth",
        "NCCL_SOCKET_IFNAME=^lo,nmn",
        "NCCL_SOCKET_IFNAME=$FAST",
        "NCCL_SOCKET_IFNAME=$(ls /sys/class/net | grep hsn)",
        "GLOO_SOCKET_IFNAME=hsn0",
    ],
)
def test_interfaces_of_the_site(setting: str) -> None:
    assert found(f"{SEVERAL}export {setting}\nsrun ./x\n") == []


def test_on_one_node_there_is_no_traffic_between_nodes() -> None:
    for value in ("lo", "nmn0"):
        assert found(f"{ONE}export NCCL_SOCKET_IFNAME={value} GLOO_SOCKET_IFNAME={value}\nsrun ./x\n") == []
        assert found(f"{SEVERAL}NCCL_SOCKET_IFNAME={value} srun -N 1 -n 1 ./x\n") == []
    assert found(f"{ONE}export NCCL_SOCKET_IFNAME=ib0\nsrun ./x\n") == ["3 wrong-interface"]
    assert found("#SBATCH -p dev-g\nexport NCCL_SOCKET_IFNAME=lo\nsrun ./x\n") == []


def test_another_site_has_other_interfaces() -> None:
    text = "#SBATCH -p standard-g -N 2\nexport NCCL_SOCKET_IFNAME=eth0 GLOO_SOCKET_IFNAME=hsn1\n"
    (finding,) = findings(text, load_site("twin").site)
    assert finding.message.startswith("eth0 is the management network")
    assert found("#SBATCH -p batch -N 2\nexport NCCL_SOCKET_IFNAME=ib0\n") == []


# ---------------------------------------------------------------- caches


@pytest.mark.parametrize("name", ["MIOPEN_USER_DB_PATH", "MIOPEN_CUSTOM_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR",
                                  "TRITON_CACHE_DIR", "TORCH_EXTENSIONS_DIR", "AITER_JIT_DIR"])  # fmt: skip
def test_caches_that_all_nodes_share(name: str) -> None:
    for path in (
        "/scratch/project_1/c",
        "$HOME/c",
        "${HOME}/c",
        "~/c",
        "/users/me/c",
        '"/flash/$USER/$X"',
        "$HOME",
        "/pfs",
    ):
        assert found(f"{ONE}export {name}={path}\nsrun ./x\n") == ["3 shared-cache"]
    for path in (
        "/tmp/c",
        "/tmp/$USER/c",
        "/dev/shm/c",
        "$TMPDIR/c",
        "/scratches/c",
        "$MIOPEN_DIR",
        "cache",
        "",
        "/tmp",
    ):
        assert found(f"{ONE}export {name}={path}\nsrun ./x\n") == []


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ("B=/scratch/p\nC=$B/$USER/c\nexport TRITON_CACHE_DIR=${C}/t\n", ["5 shared-cache"]),
        ("B=/scratch/p; B=/tmp/p\nexport TRITON_CACHE_DIR=$B/t\n", []),
        ("export TRITON_CACHE_DIR=${TRITON_CACHE_DIR:-$HOME/t}\n", ["3 shared-cache"]),
        ("export TRITON_CACHE_DIR=$HOME/t\nexport TRITON_CACHE_DIR=/tmp/t\nsrun x\n", []),
        ("srun singularity run --env TRITON_CACHE_DIR=/users/me/t,A=b x.sif y\n", ["3 shared-cache"]),
        ("srun singularity run x.sif bash -c 'export TRITON_CACHE_DIR=$HOME/t; y'\n", ["3 shared-cache"]),
        ("export HF_HOME=/scratch/p/hf TORCH_HOME=$HOME/t\n", []),
        ("cp -r $HOME/t /tmp/t; export TRITON_CACHE_DIR=/tmp/t\n", []),
    ],
)
def test_where_a_cache_is(lines: str, expected: list[str]) -> None:
    assert found(ONE + lines) == expected
