"""What a maintenance changed, what that touches, and what is to be done: in words for admins and users, and as JSON."""

from __future__ import annotations

import posixpath
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from lumisite.errors import ResolveError, shown
from lumisite.facts.capture import asked_stems
from lumisite.facts.change import BootConfig, Change, Kind, known, parted
from lumisite.facts.compare import compare
from lumisite.facts.draft import draft_lines
from lumisite.facts.facts import Facts
from lumisite.facts.site import Context, Touch, families_borrowing, make_context
from lumisite.facts.touch import touches
from lumisite.machine.library_names import stem
from lumisite.site.images import family_by_path
from lumisite.site.model import Site
from lumisite.site.plans import LoadedPlan
from lumisite.vendors import all_software

#: Of these a node has one, even where no file tells which.
_ALWAYS_THERE = ("os", "kernel", "glibc", "slurm", "release", "cpus")

#: Where this is all that changed; other kinds that are not named below are told by their own names.
_PLAIN_TITLES: Mapping[Kind, str] = {
    **dict.fromkeys(("gpu-count", "gpu-place", "release", "os", "kernel", "glibc", "slurm"), "{}"),
    "stack": "{} on the host",
    "runtime": "container runtime",
    "cpus": "CPUs by L3@NUMA",
    "module-default": "default version of the modules in {}",
    "slurm-conf": "Slurm's {}",
}


@dataclass(frozen=True)
class Consequence:
    """A change, and all that it touches."""

    change: Change[Any]
    touches: tuple[Touch, ...]


@dataclass(frozen=True)
class Report:
    """What changed between two captures of a site's node. `was` and `now` are the platforms that they fit, if any."""

    site: str
    was: str
    now: str | None
    changes: tuple[Consequence, ...]
    draft: tuple[str, ...]
    users: tuple[str, ...]


def make_report(before: Facts, after: Facts, site: Site, plans: Iterable[LoadedPlan] = ()) -> Report:
    """Compare two captures; `plans` are the site's stored ones. Raises `ResolveError` for captures of another site."""
    for facts in (before, after):
        if facts.site != site.name:
            raise ResolveError(
                f"--site: the facts are of site {facts.site!r}, this is {site.name} (give the same site)"
            )
    context = make_context(site, before, after, plans)
    changes = [Consequence(one, touches(one, context)) for one in compare(before, after, asked_stems(site))]
    return Report(
        site.name,
        context.was,
        context.now,
        tuple(changes),
        draft_lines(context),
        user_lines(changes, context),
    )


def report_lines(report: Report) -> list[str]:
    """Give the whole report for people: changes with what they touch, the draft, the text for users."""
    if not report.changes:
        return ["nothing changed"]
    now = f"fits platform {report.now}" if report.now else "fits no platform that is described"
    count = f"{len(report.changes)} {'change' if len(report.changes) == 1 else 'changes'}"
    lines = [f"{count}; the node was platform {report.was}, and now {now}", ""]
    for one in report.changes:
        lines.append(shown(words(one.change)))
        together: dict[tuple[str, str], list[str]] = {}  # what is touched for the same reason
        for touch in one.touches:
            together.setdefault((touch.what, touch.why), []).append(touch.name)
        for (what, why), names in together.items():
            lines += [shown(f"  {what + ':':8} {', '.join(names)}"), shown(f"           {why}")]
        if not one.touches:
            lines.append("  touches nothing that the site describes")
    lines += ["", "-- draft for the site description", *report.draft]
    return [*lines, "", "-- text for users", *report.users]


def to_json(report: Report) -> dict[str, Any]:
    """Give the report as JSON values."""
    return {
        "site": report.site,
        "platform_before": report.was,
        "platform_after": report.now,
        "changes": [
            {**told(one.change), "touches": [asdict(touch) for touch in one.touches]} for one in report.changes
        ],
        "draft": "\n".join(report.draft) + "\n",
        "users": "\n".join(report.users) + "\n",
    }


def told(change: Change[Any]) -> dict[str, Any]:
    """Give a change as JSON values."""
    what = shown(words(change))
    return {"kind": change.kind, "subject": change.subject, "before": change.was, "after": change.now, "what": what}


# A change in words


def words(change: Change[Any]) -> str:
    """Say what changed, in one line that may hold any character of the facts."""
    name, (was, now) = change.subject, _states(change)
    is_new, is_gone = change.before is None, change.after is None
    match change.kind:
        case "product":
            how = f"new directory, {now}" if is_new else f"directory gone, {was}"
            return f"{posixpath.basename(name)}: {how if is_new or is_gone else f'directory renamed, {was} -> {now}'}"
        case "default":
            return f"{f'{name}/default' if name.startswith('/') else f'default {name}'}: {was} -> {now}"
        case "dangling":
            return f"link mended: {name} {was} no more" if is_gone else f"dangling link: {name} {now}"
        case "path":
            return f"{name}: was {_stands(change.before)}, is {_stands(change.after)}"
        case "driver":
            return f"GPU driver: {was} -> {now}{'; built anew' if was == now else ''}"
        case "gpu-bus":
            return f"GPU bus ids: {moved_buses(change)}"
        case "interface":
            return f"interface {_device(change)}"
        case "nic":
            return f"network adapter {_device(change)}"
        case "kernel-config":
            return _kernel_config(change)
        case "image":
            if is_new or is_gone:
                said, leads = (f"new image: {name}", now) if is_new else (f"image gone: {name}", was)
                return said if name == leads else f"{said} (-> {leads})"
            replaced, led = f"image replaced under its name: {name}", f"image alias {name} leads elsewhere"
            return replaced if was == now else f"{led}: {was} -> {now}"
        case "edited":
            how = "was added to" if is_new else "was removed from" if is_gone else "was edited by hand in"
            return f"{name} {how} the deployed release {getattr(change.after or change.before, 'release', None)}"
        case "unreadable":
            return f"users can read {name} again" if is_gone else f"users cannot read {name} ({now})"
        case "links":
            lost, got = parted(was.split(", "), now.split(", "))
            return f"{name} leads elsewhere: {', '.join(lost)} -> {', '.join(got)}"
        case kind:
            plain = _PLAIN_TITLES.get(kind, f"{kind.replace('-', ' ')} {{}}").format(name)
            return _library(change) or f"{plain}: {was} -> {now}"


def _states(change: Change[Any]) -> tuple[str, str]:
    nothing = "not known" if change.kind in _ALWAYS_THERE else "none"
    return change.was or nothing, change.now or nothing


def moved_buses(change: Change[tuple[str, ...]]) -> str:
    """Say which GPUs have another PCI bus id."""
    pairs = enumerate(zip(change.before or (), change.after or (), strict=True))
    return ", ".join(f"GPU {index} {was} -> {now}" for index, (was, now) in pairs if was != now)


def _stands(one: Any) -> str:
    if one.kind == "none":
        return "not there"
    if one.kind in ("dangling", "unreadable"):
        return f"a link that {one.real}"
    what = "something else" if one.kind == "other" else f"a {one.kind}"
    return f"{what} at {one.real}" if one.real else what


def _device(change: Change[Any]) -> str:
    if change.before is None or change.after is None:
        return f"{change.subject} is {'new' if change.before is None else 'gone'}"
    if isinstance(change.after, str):
        return f"{change.subject} is called {change.after} now"
    pairs = ((key, was, getattr(change.after, key)) for key, was in vars(change.before).items())
    fields = (f"{key} {known(was)} -> {known(now)}" for key, was, now in pairs if was != now)
    return f"{change.subject}: {', '.join(fields)}"


def _kernel_config(change: Change[BootConfig]) -> str:
    was, now = change.before or BootConfig(), change.after or BootConfig()
    if now.options is None:
        wanted = now.path or "a file for an unknown kernel"
        there = ", ".join(now.there) or "none is"
        return f"kernel configuration: {was.path} -> {wanted}, which is not there ({there})"
    if change.subject != now.path:
        return f"kernel configuration moved: {was.path} -> {now.path}"
    old, new = (", ".join(map("=".join, sorted((one.options or {}).items()))) or "none" for one in (was, now))
    return f"kernel options for DMA-BUF in {now.path}: {old} -> {new}"


def _library(change: Change[Any]) -> str:
    """Say what changed of a library; nothing of a change of anything else."""
    name, was, now = change.subject, change.was, change.now
    before: Any = change.before
    after: Any = change.after
    match change.kind:
        case "soname":
            return f"{stem(posixpath.basename(name)).removesuffix('.so.')}: SONAME changed, {was} -> {now}"
        case "library-gone":
            lacking = f"; {name} is needed by {', '.join(before.needed_by)}, and the node has none"
            return f"library gone: {name} (was {before.path}){lacking if before.needed_by else ''}"
        case "library-new":
            return f"new library: {name} ({after.path})"
        case "damaged":
            return f"{name} can be loaded again; it was: {was}" if after is None else f"{name}: {now}"
        case "library" if before.path != after.path:
            return f"{name}: {before.path} -> {after.path}"
        case "library":
            sizes = f"{before.size_bytes} -> {after.size_bytes} bytes"
            if before.size_bytes == after.size_bytes:
                digests = f"{(before.sha256 or '')[:12]} -> {(after.sha256 or '')[:12]}"
                sizes = f"other content of the same size, sha256 {digests}"
            return f"{name}: another file under the same name, {before.path} ({sizes})"
        case "needs":
            parts = [*(f"+ {one}" for one in after or ()), *(f"- {one}" for one in before or ())]
            return f"{name} needs {', '.join(parts)}"
        case "wants" if after is None:
            return f"{name} wants no {before.group} now"
        case "wants":
            return f"{name} wants {after} (before: {before.version if before else 'none'})"
        case "gives":
            said = [f"has no {was} now"] * bool(was) + [f"has {now} now"] * bool(now)
            return f"{name} {' and '.join(said)}"
        case "missing" if after is None:
            return f"{name} was needed by {was} and not there; nothing lacks it now"
        case "missing":
            return f"{name} is needed by {now}, and the node has none"
    return ""


# The text for users

CHANGED, REBUILD, SCRIPTS = "What changed", "What you must rebuild", "What to look at in job scripts"
_TITLES: Mapping[Kind, str] = {
    "os": "Operating system",
    "kernel": "Kernel",
    "slurm": "Slurm",
    "glibc": "glibc",
    "runtime": "Container runtime",
}


def user_lines(changes: Iterable[Consequence], context: Context) -> tuple[str, ...]:
    """Write the text, ready to be sent: users read of every change that touches anything."""
    site = context.site
    found: dict[str, list[str]] = {CHANGED: [], REBUILD: [], SCRIPTS: []}
    replaced: dict[str, None] = {}
    for one in changes:
        change, own = one.change, list(_for_users(one.change, context))
        for title, line in own:
            found[title].append(line)
        if one.touches and change.kind in ("library", "needs"):
            replaced[change.subject] = None
        elif one.touches and not own:
            shut = f"{change.subject} can be read by users {'again' if change.after is None else 'no more'}"
            found[CHANGED].append(f"{shut if change.kind == 'unreadable' else words(change)}.")
    if replaced:
        found[CHANGED].append(f"Libraries of the host that images take are other files now: {', '.join(replaced)}.")
    for stack in context.driven if context.updated is not None else ():
        if context.updated is not None and (leaving := context.leaving(stack)):
            supported = f"the new GPU driver supports {context.updated.stacks[stack].runs}"
            found[REBUILD].append(f"Images with {site.stacks[stack].title} {', '.join(leaving)}: {supported}.")
    support = f"Support: {site.support.name}, {site.support.contact}"
    if not any(found.values()):
        return (f"Nothing changed on {site.title} that containers depend on.", "", support)
    found[REBUILD] = found[REBUILD] or ["Nothing that we know of."]
    modules = [name for name, module in site.modules.items() if module.helper] or [*site.modules]
    found[SCRIPTS] += [f"Load {name} anew in each job; do not set its variables by hand." for name in modules[:1]]
    lines = [f"{site.title} was updated. This is what it means for containers.", ""]
    wrap = textwrap.TextWrapper(
        78, initial_indent="- ", subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
    )
    for title, entries in found.items():
        if entries:
            lines += [title, *(line for entry in dict.fromkeys(entries) for line in wrap.wrap(entry)), ""]
    return (*lines, support)


def _for_users(change: Change[Any], context: Context) -> Iterator[tuple[str, str]]:
    """Give what users read of a change, each line with the title that it stands below."""
    name, was, now = change.subject, change.was, change.now
    match change.kind:
        case kind if kind in _TITLES:
            yield CHANGED, f"{_TITLES[kind]}: {' -> '.join(_states(change))}."
        case "stack":
            title = next((one.on_host for _, one in all_software() if one.title == name), name)
            yield CHANGED, f"{title}: {' -> '.join(_states(change))}."
        case "product" if was:
            if now:
                yield CHANGED, f"{posixpath.basename(name)}: {posixpath.basename(was)} -> {posixpath.basename(now)}."
            instead = f" (now {now})" if now else ""
            yield REBUILD, f"Images and job scripts that name {was}{instead}: the directory is gone."
        case "soname" | "library-gone":
            has = f"has {now} instead" if now else "has it no more"
            gone = change.before or () if change.kind == "soname" else [name]
            yield REBUILD, f"Images that take {was} from the host: the host {has}.{_families(context, gone)}"
        case "gives" if was:
            cannot = f"Images and libraries that need {was} of the host's {name}: it has that no more."
            yield REBUILD, f"{cannot}{_families(context, [name])}"
        case "wants" if now:
            cannot = f"Images without {now} that take libraries from the host: these cannot be loaded."
            yield REBUILD, f"{cannot}{_families(context, [name])}"
        case "missing" if now:
            yield REBUILD, f"Nothing yet: {name} is missing on the host, and we are at it."
        case "interface" if now is None or isinstance(change.after, str):
            how = f"is called {now} now" if now else "is gone"
            yield SCRIPTS, f"The network interface {name} {how}: do not name it (NCCL_SOCKET_IFNAME)."
        case "gpu-place":
            masks = "CPU masks that are written into scripts are wrong"
            yield SCRIPTS, f"GPUs are nearer to other cores than before: {masks}."
        case "cpus":
            yield SCRIPTS, "CPUs are grouped in another way: CPU masks that are written into scripts may be wrong."
        case "gpu-bus":
            yield CHANGED, f"The PCI bus ids of GPUs: {moved_buses(change)}."
            yield SCRIPTS, "PCI bus ids of GPUs that are written into scripts are wrong."
        case "release":
            yield from _names(context)
        case "image" if was == now:
            yield CHANGED, f"{name} was replaced by another image."
        case "image" if was:
            yield CHANGED, f"{name} now leads to {now}." if now else f"{name} is gone."
            yield from _stay(name, was, context)


def _names(context: Context) -> Iterator[tuple[str, str]]:
    """Say which versions of modules are gone with their release, and what has their place."""
    before, now = context.before.deployed.names, context.after.deployed.names
    for name in sorted(name for name, was in before.items() if was == name != now.get(name)):
        instead = f"{now[name]} has its place" if now.get(name) else "nothing has its place"
        yield SCRIPTS, f"{name} is gone: {instead}."


def _families(context: Context, sonames: Iterable[str]) -> str:
    names = [name for name, _ in families_borrowing(context, sonames)]
    return f" This concerns {', '.join(names)}." if names else ""


def _stay(name: str, was: str, context: Context) -> Iterator[tuple[str, str]]:
    """Say how to go on with the image that a name led to."""
    images = context.after.images.items()
    there = {one.target or f"{folder}/{image}" for folder, found in images for image, one in found.items()}
    family = family_by_path(context.site, was, name)
    advice = f"name {was}" if was in there else f"nothing is left: {was} is gone"
    if was != name:
        yield SCRIPTS, f"To stay with the image that {name} was{f' (family {family})' if family else ''}: {advice}."
