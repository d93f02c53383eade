"""The page about LUMI's settings and binds, from its description."""

from __future__ import annotations

from collections.abc import Iterator

from docs.markdown import plain, table
from lumisite.site.entries import HostPath, Setting
from lumisite.site.harmful_values import HERE
from lumisite.site.ledger import depends_on_image, describe_action, describe_conditions
from lumisite.site.load import load_site
from lumisite.site.model import Site
from lumisite.site.scalars import TASK, source_ids

INTRODUCTION = """\
Of several entries for one variable, the first whose condition holds wins. The user's own value wins over all of them.
[The settings ledger](../explanation/settings-ledger.md) says how to read the entries;
[`lumisite why`](cli.md#why) explains one variable or path, and
[`lumisite env`](cli.md#env) shows what a rank finds."""


def settings_page() -> str:
    """Write LUMI's settings ledger, binds and sources."""
    loaded = load_site("lumi")
    site = loaded.site
    binds = [_bind_row(site, one) for one in site.host_paths.values()]
    sources = [
        [
            f'<a id="{name}"></a>{name}',
            f"[{plain(one.title)}]({one.address})",
            one.date or "",
        ]
        for name, one in site.sources.items()
    ]
    lines = [
        "# LUMI's settings and binds",
        INTRODUCTION,
        "## Settings",
        *_settings(site),
        "## Binds",
        table(["path", "when", "where", "why", "source", "confirmed"], binds),
        "## Sources",
        table(["name", "what", "date"], sources),
    ]
    return "\n\n".join(lines) + "\n"


def _settings(site: Site) -> Iterator[str]:
    seen = set()
    for setting in site.settings:
        if setting.name not in seen:
            yield f'### <a id="{setting.name}"></a>{setting.name}'
            seen.add(setting.name)
        yield "\n".join(_entry(site, setting))


def _entry(site: Site, setting: Setting) -> Iterator[str]:
    action, conditions = describe_action(setting), describe_conditions(setting.when)
    said = [f"**{plain(action)}**, {plain(conditions)}", _setter(site, setting)]
    said += [] if setting.confirmed else ["**not confirmed for LUMI**"]
    yield f"{'; '.join(part for part in said if part)}. {_capital(plain(setting.why))}."
    yield ""
    if setting.evidence:
        yield f"- evidence: {plain(setting.evidence)}"
    yield f"- source: {_sources(site, setting.source)}"


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _setter(site: Site, setting: Setting) -> str:
    if setting.leave:
        return ""
    if setting.where != TASK:
        return f"set by `{setting.where}`"
    by_image = depends_on_image(site, setting.when)
    return "set by the wrapper, which sees the image" if by_image else "set by the task prolog"


def _sources(site: Site, text: str) -> str:
    """Write a source with links to the table of sources."""
    parts = []
    for name, part in zip(source_ids(text), text.split(";"), strict=True):
        rest = part.strip()[len(name) :]
        known = name != HERE and name in site.sources
        parts.append(f"[{name}](#{name}){plain(rest)}" if known else plain(part.strip()))
    return "; ".join(parts)


def _bind_row(site: Site, bind: HostPath) -> list[str]:
    row = [
        f"`{bind.spec}`",
        plain(describe_conditions(bind.when)),
        _place(bind.where),
        plain(bind.why),
        _sources(site, bind.source),
    ]
    return [*row, "yes" if bind.confirmed else "**no**"]


def _place(place: str | None) -> str:
    return "not bound" if place is None else "task prolog" if place == TASK else f"`{place}`"
