"""The pages' blocks ```` ```console twin ````: typed on the twin's login node, one shell for a page, and compared."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.consoles import PROMPT, find_blocks, find_commands, matches, rewritten
from tests.twin.cluster import Cluster, ClusterPlan, running
from tests.twin.fixtures import require_twin
from tests.twin.login_node import install_command

pytestmark = [pytest.mark.root, pytest.mark.slurm, pytest.mark.apptainer, pytest.mark.lmod]

DOCS = Path(__file__).parents[2] / "docs"
PAGES = [path for path in sorted(DOCS.rglob("*.md")) if "```console twin" in path.read_text()]
#: Stands between what two commands print.
END = "=== the next command ==="
#: For lumisite, and for Lmod.
WIDE = {"COLUMNS": "100", "LMOD_TERM_WIDTH": "100", "PYTHONUNBUFFERED": "1"}


@pytest.fixture(scope="module")
def machine() -> Iterator[Cluster]:
    require_twin()
    with running(ClusterPlan(cpus=4)) as cluster:
        install_command(cluster)
        yield cluster


def test_there_are_transcripts() -> None:
    assert PAGES


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.stem)
def test_a_transcript_is_what_one_sees(page: Path, machine: Cluster, pytestconfig: pytest.Config) -> None:
    text = page.read_text()
    blocks = [block for block in find_blocks(text) if "twin" in block.words]
    commands = [command for block in blocks for command in find_commands(block)]
    script = "exec 2>&1\n" + "".join(f"{command.text}\necho {shlex.quote(END)}\n" for command in commands)
    printed = machine.run(script, environment=WIDE).stdout.split(f"{END}\n")
    actual = [[line.rstrip() for line in one.splitlines()] for one in printed[:-1]]
    assert len(actual) == len(commands), printed[-1]
    if pytestconfig.getoption("--update-golden"):
        page.write_text(with_output(text, actual))
    for command, lines in zip(commands, actual, strict=True):
        assert matches(command.expected, lines), f"$ {command.text}\n" + "\n".join(lines)


def with_output(text: str, actual: list[list[str]]) -> str:
    """Write what the commands of the blocks printed into a page."""
    lines, found = text.splitlines(), iter(actual)
    new = [
        (
            block,
            [
                line
                for command in find_commands(block)
                for line in (PROMPT + command.text, *rewritten(command.expected, next(found)))
            ],
        )
        for block in find_blocks(text)
        if "twin" in block.words
    ]
    for block, content in reversed(new):
        lines[block.line : block.line + len(block.lines)] = content
    return "\n".join(lines) + "\n"
