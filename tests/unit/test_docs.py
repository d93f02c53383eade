"""The pages say what is true: generated ones are fresh."""

from __future__ import annotations

import argparse
import re
from pathlib import Path

import pytest

from docs.generate import DOCS, main, stale_pages
from docs.markdown import plain, table
from docs.reference.cli import commands_of, exit_codes, help_text, shown_arguments, usage
from docs.reference.site import fields_of, rule_text, site_sections
from lumisite.cli.parser import build_parser
from lumisite.errors import LumisiteError
from lumisite.site.rules import STAGES

# Generated pages


def test_generated_pages_are_fresh() -> None:
    assert list(stale_pages(DOCS)) == [], "run `make docs`"


def test_check_names_the_stale_page_and_writes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("docs.generate.DOCS", tmp_path)
    assert main([]) == 0
    assert main(["--check"]) == 0
    page = tmp_path / "reference/cli.md"
    page.write_text(page.read_text().replace("render", "rinder"))
    capsys.readouterr()
    assert main(["--check"]) == 1
    assert capsys.readouterr().out.startswith("docs/reference/cli.md: is stale")
    assert "rinder" in page.read_text()
    assert main([]) == 0
    assert "rinder" not in page.read_text()


def test_every_command_and_argument_has_help() -> None:
    parser = build_parser()
    arguments = [(one, parser) for one in shown_arguments(parser)]
    for name, (summary, command) in commands_of(parser).items():
        assert summary, f"{name} has no help"
        arguments += [(one, command) for one in shown_arguments(command)]
    for argument, owner in arguments:
        assert help_text(argument, owner).strip(), f"{owner.prog}: {argument.dest} has no help"


def test_every_option_is_in_the_reference() -> None:
    page = (DOCS / "reference/cli.md").read_text()
    for name, (_, command) in commands_of(build_parser()).items():
        section = page.partition(f"\n## {name}\n")[2].partition("\n## ")[0]
        for argument in shown_arguments(command):
            for spelling in argument.option_strings or [str(argument.metavar or argument.dest)]:
                assert spelling in section, f"{name}: {spelling}"


def test_every_exit_code_is_said() -> None:
    codes = dict(exit_codes(build_parser()))
    assert list(codes) == ["0", "1", "2", "3", "4", "5"]
    kinds: list[type[LumisiteError]] = [LumisiteError, *LumisiteError.__subclasses__()]
    assert {str(kind.exit_code) for kind in kinds} <= set(codes)


def test_every_site_key_says_what_it_is() -> None:
    for section in site_sections().values():
        assert (section.kind.__doc__ or "").endswith(".")
        for item, _ in fields_of(section.kind):
            doc = item.metadata.get("doc", "")
            assert re.fullmatch(r"[A-Z`].*\.", doc), f"{section.name}.{item.name}: {doc!r} is not a sentence"


def test_every_rule_says_what_it_demands() -> None:
    assert all(rule_text(rule).endswith(".") for stage in STAGES for rule in stage)


def test_usage_is_as_people_write_it() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="+", metavar="NAME")
    parser.add_argument("--value", action="append")
    parser.add_argument("-o", "--out", required=True, metavar="FILE")
    either = parser.add_mutually_exclusive_group()
    either.add_argument("--node", metavar="KIND")
    either.add_argument("--topology", metavar="XML")
    parser.add_argument("--threads", choices=(1, 2))
    parser.add_argument("--secret", help=argparse.SUPPRESS)
    parser.add_argument("--json", action="store_true")
    assert usage("lumisite test", parser) == [
        "lumisite test [--value VALUE]... -o FILE [--node KIND | --topology XML]",
        "              [--threads {1,2}] [--json] NAME [NAME ...]",
    ]


def test_text_survives_markdown() -> None:
    assert plain("a|b *c* E_F __d [x] <i> `<g>` `<g|h>`") == (
        r"a&#124;b \*c\* E_F \_\_d \[x\] &lt;i> `<g>` <code>&lt;g&#124;h></code>"
    )
    assert table(["a", "b"], [["1", "2"]]) == "| a | b |\n| --- | --- |\n| 1 | 2 |"
