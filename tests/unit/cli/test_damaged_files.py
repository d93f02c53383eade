"""Damaged text files, through the command that reads each: an exit code that is documented, never a traceback."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.command_files import call, command_files
from tests.support.damaged import mutated
from tests.support.images import needs_mksquashfs

pytestmark = [pytest.mark.thorough, needs_mksquashfs]

#: What is damaged, and the command that reads it. Libraries, images and ld.so.cache have such tests beside their readers.
READERS = {
    "site.yaml": "check site.yaml",
    "plan.yaml": "env x.sif --site lumi.yaml",
    "images.lock": "env x.sif --site lumi.yaml",
    "facts.json": "changes facts.json later.json --site lumi",
    "new/MANIFEST.json": "deploy new root",
    "root/policy": "policy root",
    "node.xml": "masks --topology node.xml",
    "node/etc/slurm/slurm.conf": "facts --root node --site twin",
    "runs/after/samples.jsonl": "verdict --before runs/before/samples.jsonl --after runs/after/samples.jsonl",
    "resumed/run.json": "report resumed",
    "rank.log": "transport rank.log",
    "job.sh": "lint job.sh --site lumi",
}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with command_files(tmp_path_factory.mktemp("damaged").resolve()) as folder:
        yield folder


@pytest.mark.parametrize("name", READERS)
@settings(max_examples=60)
@given(choose=st.randoms(use_true_random=False))
def test_a_damaged_file_is_an_answer_or_an_error(name: str, files: Path, choose: random.Random) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(files)
        whole = Path(name).read_bytes()
        try:
            Path(name).write_bytes(mutated(whole, choose))
            assert call(READERS[name].split())[0] in (0, 1, 2, 3, 4, 5)
        finally:
            Path(name).write_bytes(whole)


def test_whole_files_are_read(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(files)
    assert {name: call(words.split())[0] for name, words in READERS.items() if call(words.split())[0] in (2, 3)} == {}
