"""Write what is installed beside the program: `python -m docs.share FOLDER` makes FOLDER/share.

Man page, completions for bash, zsh and fish, the schema of the site description for editors, and the docs' pages.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path

import shtab
from argparse_manpage.manpage import Manpage

from docs.reference.schema import site_schema
from lumisite import __version__
from lumisite.cli.commands import COMMANDS, build_parser

DOCS = Path(__file__).parent
#: Where each shell looks for completions below a prefix.
COMPLETIONS = {
    "bash": "bash-completion/completions/lumisite",
    "zsh": "zsh/site-functions/_lumisite",
    "fish": "fish/vendor_completions.d/lumisite.fish",
}


def share(top: Path) -> None:
    """Write the files below `top`/share."""
    parser = build_parser()
    completed = _completed()
    texts = {path: shtab.complete(completed, shell) for shell, path in COMPLETIONS.items()}
    texts["man/man1/lumisite.1"] = _man_page(parser)
    texts["lumisite/site.schema.json"] = site_schema()
    texts |= {f"doc/lumisite/{path.relative_to(DOCS)}": path.read_text() for path in sorted(DOCS.rglob("*.md"))}
    for name, text in texts.items():
        path = top / "share" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def _completed() -> argparse.ArgumentParser:
    """Give the parser as completions need it: a value may be a file, and of a command its line of help is shown."""
    parser = build_parser()
    (commands,) = (action for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    for name, own in commands.choices.items():
        own.description = COMMANDS[name].help
        for action in own._actions:
            if action.nargs != 0 and not action.choices:
                vars(action)["complete"] = shtab.FILE
    return parser


def _man_page(parser: argparse.ArgumentParser) -> str:
    about = {
        "prog": "lumisite",
        "version": __version__,
        "manual_title": "lumisite",
        "description": "modulefiles, srun helper and validation for containers on a Slurm site",
        "long_description": parser.description,
    }
    see = "\n.SH SEE ALSO\nThe pages in share/doc/lumisite beside this one, tutorial/first-site.md first.\n"
    return f"{Manpage(parser, about)}{see}"


if __name__ == "__main__":
    shutil.rmtree(Path(sys.argv[1]) / "share", ignore_errors=True)
    share(Path(sys.argv[1]))
