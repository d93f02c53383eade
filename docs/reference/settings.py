"""The page about LUMI's settings and binds, from its description."""

from __future__ import annotations

from docs.markdown import notice, plain, table
from lumisite.site.load import EMBEDDED, load_site
from lumisite.site.model import Bind, FileSystem, Setting
from lumisite.site.rules import TASK
from lumisite.site.settings import describe_action, describe_conditions

INTRODUCTION = """\
Of several entries for one variable, the first whose condition holds wins. The user's own value wins over all of them.
[The settings ledger](../explanation/settings-ledger.md) says how to read the table; [`lumisite why`](cli.md#why)
explains one variable or path."""


def settings_page() -> str:
    """Write LUMI's settings ledger and binds as tables."""
    loaded = load_site("lumi")
    names = [setting.name for setting in loaded.site.settings]
    settings = [
        _setting_row(setting, first=setting.name not in names[:index])
        for index, setting in enumerate(loaded.site.settings)
    ]
    binds = [*map(_bind_row, loaded.site.file_systems), *map(_bind_row, loaded.site.binds)]
    head = (EMBEDDED / loaded.file).read_text(encoding="utf-8").split("\n\n")[0]
    lines = [
        "# LUMI's settings and binds",
        notice("lumisite/sites/lumi.yaml"),
        INTRODUCTION,
        "## Settings",
        table(["variable", "what", "when", "where", "why", "source", "confirmed", "checked"], settings),
        "## Binds",
        table(["path", "when", "where", "why", "source", "confirmed"], binds),
        "## Sources",
        "\n".join(["```text", *(line.removeprefix("#").removeprefix(" ") for line in head.splitlines()), "```"]),
    ]
    return "\n\n".join(lines) + "\n"


def _setting_row(setting: Setting, *, first: bool) -> list[str]:
    anchor = f'<a id="{setting.name}"></a>' if first else ""
    return [
        f"{anchor}`{setting.name}`",
        plain(describe_action(setting)),
        plain(describe_conditions(setting.when)),
        _place(setting.where),
        plain(setting.why),
        plain(setting.source),
        _confirmed(setting.confirmed),
        plain(f"{setting.checked.date} on {setting.checked.platform}") if setting.checked else "never",
    ]


def _bind_row(bind: Bind | FileSystem) -> list[str]:
    spec, when = (bind.spec, describe_conditions(bind.when)) if isinstance(bind, Bind) else (bind.path, "always")
    row = [f"`{spec}`", plain(when), _place(bind.where), plain(bind.why), plain(bind.source)]
    return [*row, _confirmed(bind.confirmed)]


def _place(place: str | None) -> str:
    return "not bound" if place is None else "task prolog" if place == TASK else f"`{place}`"


def _confirmed(confirmed: bool) -> str:
    return "yes" if confirmed else "**no**"
