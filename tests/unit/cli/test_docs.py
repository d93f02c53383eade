"""The pages say what is true: generated ones are fresh, examples are run, links lead somewhere."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import click
import pytest
import yaml

from docs.generate import DOCS, PAGES, stale_pictures
from docs.pictures.draw import PICTURES, drawn
from docs.reference.cli import commands_by_name, exit_codes, help_of
from docs.reference.site import fields_of, site_sections
from lumisite.cli.commands import COMMANDS
from lumisite.errors import LumisiteError
from tests.support.command_lines import parsed
from tests.support.consoles import EXAMPLES, find_blocks, find_commands, matches, refusal, rewritten, work_through
from tests.support.example_runs import SHOWN, write_runs

TOP = DOCS.parent
GENERATED = {DOCS / name: make() for name, make in PAGES.items()}
TEXTS = {str(path.relative_to(TOP)): path for path in [TOP / "README.md", *sorted(DOCS.rglob("*.md"))]}


@pytest.fixture(params=TEXTS, name="page")
def _page(request: pytest.FixtureRequest) -> Path:
    return TEXTS[request.param]


# Generated pages


def test_pictures_are_fresh() -> None:
    assert list(stale_pictures(DOCS)) == [], "run `make docs`"


def test_every_command_and_argument_has_help() -> None:
    for name, command in commands_by_name().items():
        assert command.help, f"{name} has no help"
        for parameter in command.params:
            assert re.fullmatch(r"[A-Z`-].*\.", help_of(parameter)), f"{name}: {parameter.name}: {help_of(parameter)!r}"


def test_every_exit_code_is_said() -> None:
    codes = dict(exit_codes())
    assert list(codes) == ["0", "1", "2", "3", "4", "5"]
    kinds: list[type[LumisiteError]] = [LumisiteError, *LumisiteError.__subclasses__()]
    assert {str(kind.exit_code) for kind in kinds} <= set(codes)


def test_every_site_key_says_what_it_is() -> None:
    for section in site_sections().values():
        assert (section.kind.__doc__ or "").endswith(".")
        for item, _ in fields_of(section.kind):
            doc = item.metadata.get("doc", "")
            assert re.fullmatch(r"[A-Z`].*\.", doc), f"{section.name}.{item.name}: {doc!r} is not a sentence"


# Examples


@pytest.mark.thorough
def test_examples_are_true(page: Path, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    text = page.read_text()
    new, differences = work_through(text, tmp_path)
    if request.config.getoption("--update-docs"):
        page.write_text(new)
    else:
        assert not differences, "\n\n".join([*differences, "`pytest --update-docs` rewrites the pages"])


def test_what_cannot_run_here_at_least_parses(page: Path) -> None:
    for block in find_blocks(page.read_text()):
        if block.language in ("sh", "bash"):
            typed = [line for line in block.lines if line.startswith("lumisite ")]
        elif "no-run" in block.words:
            typed = [command.text for command in find_commands(block)]
            assert any(map(refusal, typed)), f"line {block.line}: all of this can run: take `no-run` away"
        else:
            continue
        for command in typed:
            words = shlex.split(re.split(r"[|>&]", command)[0], comments=True)
            if words[0] == "lumisite":
                _parse(words[1:])


def test_commands_in_prose_exist(page: Path) -> None:
    commands = {*COMMANDS, "--version", "--help"}
    targets = set(re.findall(r"^([a-z-]+):", (TOP / "Makefile").read_text(), re.MULTILINE))
    prose = _without_blocks(page.read_text())
    for name in re.findall(r"`lumisite ([\w-]+)", prose):
        assert name in commands
    for name in re.findall(r"`make ([\w-]+)", prose):
        assert name in targets


def _parse(words: list[str]) -> None:
    try:
        parsed(words)
    except (click.UsageError, LumisiteError) as error:
        pytest.fail(f"lumisite {' '.join(words)}: {error}")


# How examples are compared


def test_a_wrong_example_is_seen_and_corrected(tmp_path: Path) -> None:
    text = "```console\n$ echo new\nold\n$ lumisite check nowhere.yaml\n$ echo $?\n0\n```\nend\n"
    new, differences = work_through(text, tmp_path)
    assert len(differences) == 3
    assert new == (
        "```console\n$ echo new\nnew\n$ lumisite check nowhere.yaml\n"
        "nowhere.yaml: cannot be read: No such file or directory (check the path and its permissions) [file-unreadable]\nlumisite: 1 fault\n$ echo $?\n2\n```\nend\n"
    )
    assert work_through(new, tmp_path) == (new, [])


def test_dots_stand_for_what_is_left_out_and_stay_when_a_page_is_rewritten() -> None:
    assert matches(["a", "...", "release 2026-…"], ["a", "b", "c", "release 2026-01-abc"])
    assert not matches(["a", "..."], ["b", "a"])
    assert not matches(["a.c"], ["abc"])
    old = ["head", "old", "...", "id 1-…", "tail"]
    assert rewritten(old, ["head", "new", "x", "y", "id 1-abc", "tail"]) == ["head", "new", "...", "id 1-…", "tail"]


@pytest.mark.parametrize(
    ("command", "is_run"),
    [
        ("rm -rf site-out", False),
        ("lumisite check | sh", False),
        ("ls $(pwd)", False),
        ("echo x > /etc/motd", False),
        ("lumisite deploy site-out /appl/local/lumisite --apply", False),
        ("lumisite render --out ../up", False),
        ("lumisite why /var/spool/slurmd", True),
        ("mkdir a && ls site-out | cat > list", True),
    ],
)
def test_only_harmless_commands_are_run(command: str, is_run: bool) -> None:
    assert (refusal(command) == "") == is_run


@pytest.mark.parametrize("text", ["- a\n\n  ```console\n  $ ls\n  ```\n", "~~~\n~~~\n", "```console norun\n```\n"])
def test_a_block_that_would_not_be_run_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match="line"):
        find_blocks(text)


# Pages


def test_the_readme_is_short() -> None:
    assert len((TOP / "README.md").read_text().splitlines()) <= 80


def test_the_pages_have_the_two_lines_to_type_that_module_help_has() -> None:
    module = TOP / "tests/golden/lumi/2026-01/modules/singularity-AI-bindings/25.03-rocm6.2.lua"
    typed = re.search(r"\nType:\n  (module load .+)\n  (srun .+)\n", module.read_text())
    assert typed is not None
    for name in ("README.md", "docs/how-to/run-a-job.md"):
        assert f"```sh\n{typed[1]}\n{typed[2]}\n```\n" in TEXTS[name].read_text(), name
    assert f"$ {typed[2].replace('singularity', 'apptainer')}\n" in TEXTS["docs/tutorial/first-site.md"].read_text()


def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", _without_blocks(page.read_text())):
        if re.match(r"https?://|mailto:", target):
            continue
        name, _, anchor = target.partition("#")
        linked = (page.parent / name).resolve() if name else page
        assert linked.exists() or (linked in GENERATED and page != TOP / "README.md"), f"{target} is not there"
        if anchor:
            text = GENERATED[linked] if linked in GENERATED else linked.read_text()
            assert anchor in _anchors(text), f"{target}: there is no such heading or anchor"


def test_every_page_is_two_clicks_from_the_first() -> None:
    reached = {DOCS / "index.md"}
    for _ in range(2):
        links = [
            (page, link)
            for page in reached
            if page.exists()
            for link in re.findall(r"\]\(([^)#\s]+)", page.read_text())
        ]
        reached |= {(page.parent / link).resolve() for page, link in links if "://" not in link}
    assert [str(page) for page in [*DOCS.rglob("*.md"), *GENERATED] if page not in reached] == []


def test_every_room_is_explained() -> None:
    page = (DOCS / "explanation/shape.md").read_text()
    rooms = {path.parent.name for path in (TOP / "lumisite").glob("*/__init__.py")}
    assert rooms <= set(re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE))


def test_the_table_of_contents_lists_every_page() -> None:
    listed = list(_names(yaml.safe_load((TOP / "mkdocs.yml").read_text())["nav"]))
    assert sorted(listed) == sorted([*PAGES, *(str(path.relative_to(DOCS)) for path in DOCS.rglob("*.md"))])


@pytest.mark.thorough
def test_the_pages_build(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "public")]
    built = subprocess.run(command, cwd=TOP, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    assert "--platform" in (tmp_path / "public/reference/cli/index.html").read_text()
    html = (tmp_path / "public/tutorial/first-site/index.html").read_text()
    assert 'class="language-yaml ' in html
    assert "content.code.copy" in html
    assert not re.findall(r"<(?:script|img)[^>]*https?://|<link[^>]*stylesheet[^>]*https?://", html)
    assert "file=site.yaml" not in html
    assert [path.name for path in tmp_path.rglob("*.py*")] == ["lumisite_reframe.py"]


def _without_blocks(text: str) -> str:
    return re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)


def _anchors(text: str) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", _without_blocks(text), re.MULTILINE)
    slugs = {re.sub(r"\s", "-", re.sub(r"[^\w\s-]", "", heading.lower())) for heading in headings}
    return slugs | set(re.findall(r'<a id="([^"]+)">', text))


def _names(nav: object) -> list[str]:
    if isinstance(nav, str):
        return [nav]
    items = nav.values() if isinstance(nav, dict) else nav if isinstance(nav, list) else []
    return [name for item in items for name in _names(item)]


def test_the_examples_are_what_their_program_writes(tmp_path: Path) -> None:
    write_runs(tmp_path, SHOWN)
    written, kept = (
        {str(path.relative_to(top)): path.read_text() for path in top.rglob("*.json*")} for top in (tmp_path, EXAMPLES)
    )
    assert written == kept


def test_every_file_that_contributors_are_sent_to_is_there() -> None:
    names = {"sites": "lumi", "cli": "why", "probes": "pairs", "modulefiles_src": "singularity-AI-bindings"}
    text = re.sub(r"(\w+)/NAME", lambda match: f"{match[1]}/{names[match[1]]}", (TOP / "CONTRIBUTING.md").read_text())
    paths = []
    for line in text.splitlines():
        folder = TOP
        for path, name in re.findall(r"`(?:([\w-]+/[^` ]*)|(\w+\.(?:py|yaml|md)))`", line):
            if path and not path.endswith("/"):
                folder = (TOP / path).parent
            elif path:
                folder = TOP / path
            paths.append(TOP / path if path else folder / name)
    assert len(paths) > 25
    assert [str(path) for path in paths if not path.exists()] == []


def test_the_tests_that_pages_name_are_there() -> None:
    texts = "".join(path.read_text() for path in TEXTS.values())
    named = re.findall(r"\b(tests/[\w/]+\.py)(?:::(test_\w+))?", texts)
    assert len(named) > 20
    there = {path: (TOP / path).read_text() if (TOP / path).is_file() else "" for path, _ in named}
    assert [(path, test) for path, test in named if not there[path] or f"def {test}" not in there[path]] == []


# Pictures


def test_a_picture_is_drawn_anew_when_its_source_changes() -> None:
    for name, picture in PICTURES.items():
        kept = (DOCS / name).read_text()
        assert drawn(name, picture.args[1], lambda text: "other") == kept
        assert drawn(name, lambda: "x", lambda text: f"<svg>{text}</svg>").endswith("\n<svg>x</svg>")
        assert not re.findall(r"(?:src|href|url)\W+https?:", kept), "it fetches something"


def test_the_index_has_every_command() -> None:
    page = (DOCS / "index.md").read_text()
    assert [name for name in COMMANDS if f"`lumisite {name}" not in page] == []
