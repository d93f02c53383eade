"""Modules that a script loads, and what was made with them."""

from __future__ import annotations

import pytest

from tests.support.linted import findings, found


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ("module load singularity-AI-bindings/99.99", ["1 unknown-version"]),
        ("ml singularity-AI-bindings/25.03-rocm9.9", ["1 unknown-version"]),
        ("module load singularity-AI-bindings/25.03", ["1 unknown-version"]),
        ("module --force load cray-python singularity-CPEbits/22.08", ["1 unknown-version"]),
        ("V=99.99; module load singularity-AI-bindings/$V", ["1 unknown-version"]),
        ("module use /appl/local/lumisite/current/modules\nml singularity-CPEbits/1", ["2 unknown-version"]),
        ("module load singularity-userfilesystems/2024-08", ["1 unknown-version"]),
        # what the site can have
        ("module load singularity-AI-bindings", []),
        ("module load singularity-AI-bindings/default singularity-CPEbits/", []),
        ("module load singularity-AI-bindings/25.03-rocm6.2 singularity-CPEbits/25.09", []),
        ("module load singularity-AI-bindings/24.03-rocm6.3 singularity-userfilesystems/2026-01", []),
        ("module load singularity-AI-bindings/$VERSION", []),
        # what is not the site's, or not loaded
        ("module load pytorch/99.99 LUMI/25.03", []),
        ("module unload singularity-AI-bindings/99.99; ml -singularity-AI-bindings/99.99", []),
        ("module use /project/me/modules\nmodule load singularity-AI-bindings/99.99", []),
        ("module use $HOME/modules\nmodule load singularity-AI-bindings/99.99", []),
        ("#SBATCH -p gpu\nmodule load singularity-AI-bindings/99.99", []),
        ("echo module load singularity-AI-bindings/99.99", []),
    ],
)
def test_versions_of_modules(lines: str, expected: list[str]) -> None:
    assert found(f"{lines}\n") == expected


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ("module use /appl/local/training/modules/AI-20241126/\nml singularity-CPEbits", ["1 retired-folder"]),
        (
            "F=/appl/local/training/modules\nmodule use $F/AI-20240529\nmodule load cotainr singularity-CPEbits",
            ["2 retired-folder"],
        ),
        ("module use /appl/local/training/modules/AI-20241126\nmodule load cotainr", []),
        ("module load singularity-CPEbits\nmodule use /appl/local/training/modules/AI-20241126", []),
        ("#module use /appl/local/training/modules/AI-20241126\nmodule load singularity-CPEbits", []),
        ("module use /appl/local/laifs/modules\nmodule load lumi-aif-singularity-bindings", []),
        ("module use /appl/local/containers/ai-modules\nmodule load singularity-AI-bindings", []),
    ],
)
def test_folders_of_past_courses(lines: str, expected: list[str]) -> None:
    assert found(f"{lines}\n") == expected


def test_what_to_load_instead_is_said() -> None:
    text = "module use /appl/local/training/modules/AI-20241126\nmodule load cotainr singularity-CPEbits/default\n"
    (finding,) = findings(text)
    assert finding.values["modules"] == "singularity-CPEbits"
    (finding,) = findings("ml singularity-AI-bindings/99.99\n")
    assert finding.values["example"] == "25.03-rocm6.3"


MAKE = "module load cray-python/3.11.7\npython3 -m venv --system-site-packages /projappl/p/venv\n"


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (MAKE + "singularity exec x.sif bash -c 'source /projappl/p/venv/bin/activate; python x'", ["3 host-venv"]),
        (MAKE + "V=/projappl/p/venv\nsrun singularity run x.sif $V/bin/python x", ["4 host-venv"]),
        (
            "ml python\nV=/p/venv\npython -m venv $V --system-site-packages\nsingularity run x bash -c '. $V/bin/activate'",
            ["4 host-venv"],
        ),
        # used on the host, or another one used
        (MAKE + "source /projappl/p/venv/bin/activate\nsingularity exec x.sif python y", []),
        (MAKE + "singularity exec x.sif bash -c 'source /projappl/p/other/bin/activate; python x'", []),
        (MAKE.replace("--system-site-packages ", "") + "singularity exec x.sif /projappl/p/venv/bin/python x", []),
        # made in the container, or by a Python of which nothing is known
        (
            "ml cray-python\nsingularity exec x.sif python -m venv --system-site-packages /p/v\nsingularity exec x.sif /p/v/bin/python",
            [],
        ),
        (
            "ml cray-python\nsingularity exec x.sif bash -c 'python -m venv --system-site-packages /p/v; . /p/v/bin/activate'",
            [],
        ),
        (MAKE.replace("load", "unload") + "singularity exec x.sif /projappl/p/venv/bin/python x", []),
        (MAKE.replace("cray-python", "PyTorch") + "singularity exec x.sif /projappl/p/venv/bin/python x", []),
        (MAKE.replace("\n", "\nmodule purge\n", 1) + "singularity exec x.sif /projappl/p/venv/bin/python x", []),
    ],
)
def test_a_venv_of_the_host_in_a_container(lines: str, expected: list[str]) -> None:
    assert found(f"{lines}\n") == expected
