"""Images that a script runs, and how; and what is in them by name or by the lock."""

from __future__ import annotations

from pathlib import Path

import pytest

from lumisite.cli import main
from lumisite.images.lock import Lock, LockedImage, format_lock
from lumisite.lint.job import Job
from lumisite.lint.programs import known_image, starts_of
from lumisite.site.load import load_site
from tests.support.linted import LUMI, findings, found
from tests.support.sites import lumi_with_lock

TWIN = load_site("twin").site
GPUS = "#SBATCH -p dev-g --gpus=2\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("srun -N 2 /usr/bin/apptainer --debug run --nv -B /x --bind=/y -eB /z -B/w a.sif x", [("run", "a.sif")]),
        ("singularity -c conf shell --env A=b,C=d --cleanenv -- a.sif", [("shell", "a.sif")]),
        ("D=/d; S=$D/a.sif; T=${S}; singularity exec ${T} x", [("exec", "/d/a.sif")]),
        ("O='-B /x --rocm'; singularity exec $O a.sif x", [("exec", "a.sif")]),
        ("singularity exec $O a.sif x", [("exec", "a.sif")]),
        ("singularity exec --new-option a.sif x", [("exec", "")]),
        ("R='singularity exec -B /x a.sif'\nsrun $R x", [("exec", "a.sif")]),
        ("echo singularity exec a.sif; module load singularity; which singularity", []),
        ("singularity exec", [("exec", None)]),
    ],
)
def test_the_containers_that_a_script_starts(text: str, expected: list[tuple[str, str | None]]) -> None:
    assert [(start.action, start.image) for start in starts_of(Job(LUMI, text))] == expected


@pytest.mark.parametrize(
    ("image", "expected"),
    [
        ("docker://rocm/dev-ubuntu-24.04:rocm7.1", 1),
        ("/x/lumi-multitorch-u24r70f21m50t210-20260415_130625.sif", 0),
        ("$SIF", 0),
    ],
)
def test_images_outside_the_range_of_the_driver(image: str, expected: int) -> None:
    for head in ("", "#SBATCH -p small-g\n"):
        line = head.count("\n") + 2
        assert found(f"{head}I={image}\nsingularity run $I x\n") == [f"{line} image-outside-range"] * expected
    assert found(f"#SBATCH -p small\nsingularity run {image} x\n") == []
    assert findings(f"#SBATCH -p small-g\nsingularity run {image} x\n", TWIN) == []


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("singularity exec lumi-multitorch-latest.sif x", 1),
        ("singularity run lumi-multitorch-latest.sif x", 0),
        ("singularity exec lumi-jax-rocm-6.2.0-python-3.12-jax-0.4.28.sif x", 0),
    ],
)
def test_exec_of_an_image_that_its_runscript_prepares(command: str, expected: int) -> None:
    assert found(f"{GPUS}{command}\n") == ["2 skipped-runscript"] * expected
    assert found(f"#SBATCH -p dev-g\n{command}\n") == [], "without GPUs it does not matter"
    assert "2 skipped-runscript" not in found(f"#SBATCH -p gpu --gpus=2\n{command}\n")


@pytest.mark.parametrize(
    ("image", "maker"),
    [
        ("docker://nvcr.io/nvidia/pytorch:24.10-py3", "NVIDIA"),
        ("torch2.4-cu121-py310.sif", "NVIDIA"),
        ("/scratch/nvidia/cuda12/mine.sif", None),
        ("my-barracuda12.sif", None),
        ("from-cuda12-to-rocm6.2.sif", None),
        ("docker://rocm/pytorch:rocm6.3_ubuntu22.04", None),
    ],
)
def test_an_image_for_gpus_of_another_vendor(image: str, maker: str | None) -> None:
    bad = findings(f"{GPUS}singularity run {image} x\n")
    expected = (image.rpartition("/")[2], f"built for GPUs of {maker}, but the job gets GPUs of AMD")
    assert [(one.subject, one.message) for one in bad] == [expected] * (maker is not None)
    assert found(f"#SBATCH -p small\nsingularity run {image} x\n") == [], "without GPUs it does not matter"
    assert found(f"singularity pull a.sif {image}\n") == []


def test_what_the_lock_has_counts_more_than_the_name() -> None:
    locked = {
        "/x/mine.sif": LockedImage(target="/y/file.sif", versions={"torch": "2.5.1+cu124"}),
        "/x/lumi-rocm-rocm-6.0.3.sif": LockedImage(family="lumi-rocm", versions={"rocm": "6.2.4"}),
        "/x/cuda12.sif": LockedImage(versions={"rocm": "6.2.4"}),
        "/x/stranger.sif": LockedImage(family="laif-multitorch", versions={"rocm": "6.2.4"}),
        "/x/lumi-multitorch-u24r64f2.sif": LockedImage(family="gone", versions={"rocm": "5.7.3"}),
        "/x/lumi-rocm-rocm-5.6.1.sif": LockedImage(fault="cannot be read", versions={"rocm": "6.2.4"}),
    }

    def rules(image: str) -> list[str]:
        return [one.code for one in findings(f"{GPUS}singularity run {image} x\n", LUMI, locked)]

    assert rules("/x/mine.sif") == rules("/y/file.sif") == ["image-for-other-gpus"]
    assert rules("/x/lumi-rocm-rocm-6.0.3.sif") == rules("/x/cuda12.sif") == []
    assert rules("/x/lumi-multitorch-u24r64f2.sif") == rules("/x/lumi-rocm-rocm-5.6.1.sif") == ["image-outside-range"]
    job = Job(LUMI, "", locked)
    assert (
        known_image(job, "/x/lumi-rocm-rocm-6.0.3.sif").holds.family,
        known_image(job, "/x/mine.sif").holds.plugin,
    ) == ("lumi-rocm", None)
    assert known_image(job, "/x/lumi-multitorch-u24r64f2.sif").holds.family is None
    assert known_image(job, "/x/stranger.sif").holds.family is None, "it only stands for what no family recognises"


def test_a_plugin_that_cannot_load_its_libfabric_is_no_plugin() -> None:
    versions = {"rocm": "6.2.4", "ofi_plugin": "1.7.4"}
    locked = {
        f"/x/{has}.sif": LockedImage(
            versions=versions,
            libfabric="/usr/lib64/libfabric.so.1",
            libfabric_versions={"needs": "FABRIC_1.7", "has": has},
        )
        for has in ("FABRIC_1.6", "FABRIC_1.8")
    }

    def codes(image: str) -> list[str]:
        job = f"#SBATCH --nodes=2\nexport NCCL_NET='AWS Libfabric'\nsrun -N 2 singularity run {image} x\n"
        return [one.code for one in findings(f"{GPUS}{job}", LUMI, locked)]

    assert "harmful-value" in codes("/x/FABRIC_1.6.sif")
    assert "harmful-value" not in codes("/x/FABRIC_1.8.sif")


def test_the_lock_of_the_site_counts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lock, script = tmp_path / "lock", tmp_path / "job.sh"
    lock.write_text(format_lock(Lock("lumi", (), {"/x/mine.sif": LockedImage(versions={"torch": "2.5.1+cu124"})})))
    script.write_text(f"{GPUS}singularity run /x/mine.sif x\n")
    assert main(["lint", "--site", "lumi", str(script)]) == 0
    assert main(["lint", "--site", lumi_with_lock(), str(script)]) == 1
    assert "image-for-other-gpus" in capsys.readouterr().out
    lock.unlink()
    assert main(["lint", "--site", "with-lock.yaml", str(script)]) == 3
