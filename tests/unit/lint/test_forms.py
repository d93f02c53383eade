"""The forms that users give to a job: what is written to files, submitted in a line, or kept in variables."""

from __future__ import annotations

import pytest

from tests.support.linted import found

#: A job on a part of a node, and one on whole nodes.
PART = "#!/bin/bash\n#SBATCH -p small-g -N 1 --gpus-per-node=2 --ntasks-per-node=2 -c 7\n"
WHOLE = "#!/bin/bash\n#SBATCH -p standard-g -N 2 --gpus-per-node=8 --ntasks-per-node=8 -c 7\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("sbatch <<'EOF'\n#!/bin/bash\n#SBATCH -p dev-g\n#SBATCH -n 8 -N 1 -c 8\nsrun x\nEOF\n", []),
        (
            PART + "cat > j <<'EOF'\n#SBATCH -p standard-g\nexport MASTER_PORT=4000\nEOF\nexport MASTER_PORT=29500\n",
            ["7 fixed-port"],
        ),
        ("sbatch -p small-g --wrap='MASTER_PORT=4000 python x'\n", []),
    ],
)
def test_jobs_that_a_script_writes_or_submits_are_scripts_of_their_own(text: str, expected: list[str]) -> None:
    assert found(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (WHOLE + 'S="srun -N 2 \\\n  --gpus-per-task=1"\n$S x\n', ["3 missing-partner"]),
        (WHOLE + "O='--mpi=pmi2 --gpus-per-task=1'\nsrun \"$O\" x\n", []),
        (PART + 'A=(--master_port=4000)\ntorchrun "${A[@]}" x\n', ["3 fixed-port"]),
        (WHOLE + "if true; then srun --gpus-per-task=1 x; fi\n", ["3 missing-partner"]),
        (WHOLE + "echo srun --gpus-per-task=1 x\ncommand -v srun\n", []),
        (PART + "for i in 1 2; do MIOPEN_USER_DB=/tmp/x srun y; done\n", ["3 misnamed-variable"]),
        (PART + "srun --export=ALL,MIOPEN_USER_DB=/tmp/x y\n", ["3 misnamed-variable"]),
    ],
)
def test_what_stands_in_variables_and_after_reserved_words(text: str, expected: list[str]) -> None:
    assert found(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("#SBATCH -p small-g -N 1 -n 8 -c 7\n#SBATCH hetjob\n#SBATCH -p small -N 1 -n 8 -c 16\n", []),
        ("#SBATCH -p small\n#SBATCH hetjob\n#SBATCH -p dev-g\nsrun -n 8 -N 1 --gpus-per-task=1 b\n", []),
        (
            "#SBATCH -p small\n#SBATCH hetjob\n#SBATCH -p dev-g\nsrun -p dev-g -n 8 --gpus-per-task=1 b\n",
            ["4 missing-partner"],
        ),
        ("#SBATCH -p standard-g,small-g -N 1 -n 8 -c 8\n", ["1 too-many-cores"]),
        ("#SBATCH -p standard-g,unknown -N 1 -n 8 -c 8\n", []),
    ],
)
def test_several_components_and_partitions(text: str, expected: list[str]) -> None:
    assert found(text) == expected


@pytest.mark.parametrize("head", ["#SBATCH -p batch\n", "#SBATCH --partition=booster --gres=gpu:4\n"])
def test_the_machine_of_another_site_is_not_this_one(head: str) -> None:
    body = (
        "#SBATCH --ntasks-per-node=8 -c 16 --gpus-per-task=1 --gpu-bind=closest\nexport MASTER_PORT=29500 CXI_FORK_SAFE=1\n"
        "export LD_LIBRARY_PATH=/opt/cray/libfabric/2.3.1/lib64\nsrun -c 16 --cpu-bind=map_cpu:1,2 ./app\n"
    )
    assert found(head + body) == []
    assert found("#SBATCH -p <partition>\n" + body) != []


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("export MASTER_PORT=${MASTER_PORT:-29400}", 1),
        (': "${MASTER_PORT:=29400}"', 1),
        ('torchrun --rdzv-endpoint="$HOST:29400" x', 1),
        ("accelerate launch --main_process_port 29400 x", 1),
        ("torchrun --master_port 0 --rdzv-endpoint=localhost:0 x", 0),
        ("export MASTER_PORT=$((20000 + SLURM_JOB_ID % 20000))", 0),
    ],
)
def test_ports(line: str, expected: int) -> None:
    assert found(PART + line + "\n") == ["3 fixed-port"] * expected
    assert [one for one in found(WHOLE + line + "\n") if "port" in one] == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("$WITH_CONDA\nsrun singularity exec x.sif python y\n", ["3 with-conda"]),
        ('C="$WITH_CONDA; python y"\nsrun singularity exec x.sif bash -c "$C"\n', ["3 with-conda"]),
        ("cat > r.sh <<EOF\n$WITH_CONDA\npython y\nEOF\n", ["4 with-conda"]),
        ("cat > r.sh <<EOF\n\\$WITH_CONDA\npython y\nEOF\n", []),
        ("srun singularity exec x.sif bash -c 'bash -c \"$WITH_CONDA; python y\"'\n", []),
        ('echo "activate with $WITH_CONDA"\n', []),
    ],
)
def test_conda_is_activated_inside(text: str, expected: list[str]) -> None:
    assert found(PART + text) == expected


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("D=$(mktemp -d); E=$D/x; export MIOPEN_USER_DB_PATH=$E/db", 1),
        ("export MIOPEN_CUSTOM_CACHE_DIR=`mktemp -d`", 1),
        ("srun singularity exec --env MIOPEN_USER_DB_PATH=$(mktemp -d) x.sif python y", 1),
        ("srun singularity exec x.sif bash -c 'export MIOPEN_USER_DB_PATH=$(mktemp -d); python y'", 0),
        ("D=$(mktemp -d); export MIOPEN_USER_DB_PATH=/tmp/$USER; cp x $D", 0),
    ],
)
def test_where_mktemp_runs(line: str, expected: int) -> None:
    assert found(PART + line + "\n") == ["3 cache-by-mktemp"] * expected


def test_the_list_of_one_node_is_its_name() -> None:
    line = "export MASTER_ADDR=$(echo $SLURM_NODELIST | cut -d, -f1)\n"
    assert found("#SBATCH -p standard-g -N 1\n" + line) == []
    assert found("#SBATCH -p standard-g -N 4\n" + line) == ["2 nodelist"]
    cut = '#SBATCH -p standard-g -N 4\nH="nid$(echo $SLURM_STEP_NODELIST | grep -Eo [0-9]+ | head -n 1)"\n'
    assert found(cut + "torchrun --rdzv_endpoint=$H:$PORT x\n") == ["2 nodelist"]
    assert found(cut + "echo $H\n") == []


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ("P=4000\nQ=$P\nexport MASTER_PORT=${Q}\n", ["5 fixed-port"]),
        ("P=4000\nP=$((P + 1))\nexport MASTER_PORT=$P\n", []),
        ("A0=xxxx\n" + "".join(f"A{n + 1}=$A{n}$A{n}\n" for n in range(60)) + "true $A60\n", []),
    ],
)
def test_variables_that_are_made_of_others(lines: str, expected: list[str]) -> None:
    assert found(PART + lines) == expected


@pytest.mark.parametrize("text", ["$(" * 20_000, "A=(" + "$(" * 20_000])
def test_the_deepest_nesting_is_read_to_the_end(text: str) -> None:
    assert found(text) == []
