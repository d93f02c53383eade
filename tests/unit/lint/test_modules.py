"""Modules that a script loads, and what was made with them."""

from __future__ import annotations

import pytest

from lumisite.findings.finding import Severity
from lumisite.lint.rule_table import lint_job, read_script
from tests.support.linted import LUMI, found


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ("module load singularity-AI-bindings/99.99", ["1 unknown-module"]),
        ("module --force load cray-python singularity-CPEbits/22.08", ["1 unknown-module"]),
        # what the site can have
        ("module load singularity-AI-bindings/default singularity-CPEbits/", []),
        ("module load singularity-AI-bindings/25.03-rocm6.2 singularity-CPEbits/25.09", []),
        # what is not the site's, or not loaded
        ("module load pytorch/99.99 LUMI/25.03", []),
        ("module use /project/me/modules\nmodule load singularity-AI-bindings/99.99", []),
        ("#SBATCH -p gpu\nmodule load singularity-AI-bindings/99.99", []),
    ],
)
def test_versions_of_modules(lines: str, expected: list[str]) -> None:
    assert found(f"{lines}\n") == expected


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ("module use /appl/local/training/modules/AI-20241126/\nml singularity-CPEbits", ["1 retired-folder"]),
        ("#module use /appl/local/training/modules/AI-20241126\nmodule load singularity-CPEbits", []),
    ],
)
def test_folders_of_past_courses(lines: str, expected: list[str]) -> None:
    assert found(f"{lines}\n") == expected


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ("module load singularity-AI-bindingss", ["1 unknown-module"]),
        ("ml singularity_CPEbits/25.03", ["1 unknown-module"]),
        ("module load singularity-bindings singularity-AI-bindings", ["1 conflicting-modules"]),
        ("ml singularity-userfilesystems\nml lumi-aif-singularity-bindings", ["2 conflicting-modules"]),
        # what is another one's, or gone before
        ("module use /project/me/modules\nmodule load singularity-AI-bindingss", []),
        ("module load singularity-CPEbits\nmodule swap singularity-CPEbits lumi-aif-singularity-bindings", []),
        ("module load singularity-bindings\nmodule purge\nmodule load singularity-AI-bindings", ["1 foreign-module"]),
    ],
)
def test_modules_that_are_misspelt_or_conflict(lines: str, expected: list[str]) -> None:
    assert found(f"{lines}\n") == expected


JOB = "#!/bin/bash\n#SBATCH -p small-g --gpus=1\n"


@pytest.mark.parametrize(
    ("lines", "hint"),
    [
        ("srun singularity exec my.sif python x", True),
        ("module load singularity-AI-bindings\nsrun singularity exec my.sif python x", False),
        ("module use /project/me/modules\nml mine\nsrun singularity exec my.sif python x", False),
        ("module load PyTorch/2.7.1-singularity\nsrun singularity exec $SIF python x", False),
        ("singularity build my.sif my.def", False),
        ("srun python x", False),
    ],
)
def test_a_container_without_the_module_is_a_hint(lines: str, hint: bool) -> None:
    bad = [
        one for one in lint_job(read_script((JOB + lines).encode(), "s", LUMI), "s") if one.code == "module-not-loaded"
    ]
    assert [one.severity for one in bad] == [Severity.INFO] * hint
    elsewhere = JOB.replace("small-g", "booster") + lines
    assert "module-not-loaded" not in [one.code for one in lint_job(read_script(elsewhere.encode(), "s", LUMI), "s")]
