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
from lumisite.findings.catalogue import catalogue
from lumisite.site.load import embedded_sites, load_site

DOCS = Path(__file__).parent
#: Where each shell looks for completions below a prefix.
COMPLETIONS = {
    "bash": "bash-completion/completions/lumisite",
    "zsh": "zsh/site-functions/_lumisite",
    "fish": "fish/vendor_completions.d/lumisite.fish",
}
#: The releases of the root that is typed before them.
RELEASES = """lumisite releases "$before" --json 2>/dev/null | sed -n 's/^ *"release": "\\(.*\\)",*$/\\1/p'"""


def share(top: Path) -> None:
    """Write the files below `top`/share."""
    parser = build_parser()
    completed = _completed()
    texts = {path: shtab.complete(completed, shell) for shell, path in COMPLETIONS.items()}
    texts["man/man1/lumisite.1"] = _man_page(parser)
    texts["lumisite/site.schema.json"] = site_schema()
    pages = (*DOCS.rglob("*.md"), *DOCS.rglob("pictures/*.svg"))
    texts |= {f"doc/lumisite/{path.relative_to(DOCS)}": path.read_text() for path in sorted(pages)}
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
                vars(action)["complete"] = _words_of(name, action) or shtab.FILE
    return parser


def _words_of(command: str, action: argparse.Action) -> dict[str, object] | None:
    """Return how shells complete names of sites, releases of a root, and what `why` explains; None for other words."""
    if action.metavar == "NAME|FILE":
        return _completion("sites", f"printf '%s\\n' {' '.join(embedded_sites())}", files=True)
    if (command, action.metavar) == ("rollback", "ID"):
        return _completion("releases", RELEASES)
    if (command, action.metavar) == ("why", "NAME"):
        variables = {str(setting.name) for name in embedded_sites() for setting in load_site(name).site.settings}
        return _completion("names", f"printf '%s\\n' {' '.join(sorted(variables) + sorted(catalogue()))}", files=True)
    return None


def _completion(name: str, words: str, *, files: bool = False) -> dict[str, object]:
    """Return a completion by the words that a shell command prints, and by `files`; `$before` is the word before."""
    function = f"_lumisite_{name}"
    bash = 'before=${COMP_WORDS[COMP_CWORD-1]}; compgen -W "$(' + words + ')" -- "$1"'
    zsh = "before=$words[CURRENT-1]; compadd -- $(" + words + ")"
    fish = "set before (commandline -opc)[-1]; " + words
    if files:
        bash, zsh, fish = (
            f'{bash}; compgen -f -- "$1"',
            f"{zsh}; _files",
            f"{fish}; __fish_complete_path (commandline -ct)",
        )
    return {
        "bash": function,
        "zsh": function,
        "fish": f"({function})",
        "preamble": {
            "bash": f"{function}() {{ {bash}; }}",
            "zsh": f"{function}() {{ {zsh}; }}",
            "fish": f"function {function}; {fish}; end",
        },
    }


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
