"""What no job script has as much of: it is refused with its line, and what is below that takes no longer than it is."""

from __future__ import annotations

import re
import time

import pytest

from lumisite.lint.job import Job
from lumisite.lint.rules import lint_script
from lumisite.lint.script import MOST_COMMANDS, MOST_WORDS, read_commands, with_lines
from lumisite.validate import InputError
from tests.support.linted import LUMI


def refused(text: str) -> tuple[str, int, dict[str, object]]:
    with pytest.raises(InputError) as error:
        lint_script(text.encode(), "job.sh", LUMI)
    finding = error.value.finding
    assert finding.place is not None
    return finding.code, finding.place.line, dict(finding.values)


@pytest.mark.parametrize(
    ("text", "line", "limit"),
    [
        ("true\n" * (MOST_COMMANDS + 50), MOST_COMMANDS + 1, {"most_commands": MOST_COMMANDS}),
        ("true" + " x" * (MOST_WORDS + 50) + "\n", 1, {"most_words": MOST_WORDS}),
        ("true\n" * 3 + "bash -c '" + "true;" * (MOST_COMMANDS + 50) + "'\n", 4, {"most_commands": MOST_COMMANDS}),
        ("cat " + "<<END " * (MOST_COMMANDS + 50) + "\n", 1, {"most_commands": MOST_COMMANDS}),
    ],
)
def test_more_than_any_job_script_has_is_refused_with_its_line(text: str, line: int, limit: dict[str, int]) -> None:
    assert refused(f"{text}") == ("script-too-large", line, limit)


def test_values_that_grow_are_refused_as_a_product_of_names_and_letters() -> None:
    value = "x" * 4000
    many = "".join(f"A{number}={value}\n" for number in range(100))
    assert lint_script(many.encode(), "job.sh", LUMI) == ()
    longer = many + "".join(f"B{number}=$A1\n" for number in range(400))
    assert refused(f"{longer}module load $B1\n")[0] == "script-too-large"
    used = f"A={value}\n" + "module load " + "$A/" * 4500 + "\n"
    assert refused(used)[2] == {"most_letters": 1 << 24}


def test_the_lines_of_matches_are_those_of_the_text() -> None:
    (command,) = read_commands('echo "a\n$X\n\n$X $X"\n', 7)
    pattern = re.compile(r"\$X")
    assert [line for _, line in command.words[1].matches(pattern)] == [8, 10, 10]
    assert [line for _, line in with_lines(pattern, "$X\n\n$X", 1)] == [1, 3]


@pytest.mark.parametrize(
    "make",
    [
        lambda n: "export NCCL_NET_GDR_LEVEL=PHB\nsingularity exec /x/y.sif true\n" * n,
        lambda n: "srun -N2 --cpu-bind=map_cpu:1 singularity exec x.sif $WITH_CONDA true\n" * n,
        lambda n: "module load rocm/9.9\n" * n,
        lambda n: "A=1 " * (8 * n) + "true\n",
        lambda n: "singularity exec " + "-B /x " * (8 * n) + "x.sif true\n",
    ],
)
def test_twice_as_much_takes_twice_as_long(make: object) -> None:
    assert callable(make)
    texts = [("#!/bin/bash\n" + make(n)).encode() for n in (600, 2400)]
    took = []
    for text in texts:
        start = time.process_time()
        lint_script(text, "job.sh", LUMI)
        took.append(time.process_time() - start)
    assert took[1] < 4 * 2 * took[0] + 0.3  # four times as much; a square takes sixteen times as long


def test_a_variable_that_stands_for_many_partitions_is_read_up_to_a_number() -> None:
    names = ",".join(f"p{number}" for number in range(50_000))
    job = Job(LUMI, f"#!/bin/bash\n#SBATCH --partition={names}\n" + "srun true\n" * 500)
    assert len(job.partitions) == 100
