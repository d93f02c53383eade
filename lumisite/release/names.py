"""Names that a root has offered before and a new release has not: each leads to what replaces it, or says why.

`deploy` alone knows the earlier releases, so it adds to what was rendered, and to its manifest. What it adds begins
with a dot: hidden modulefiles, as those of a site's own old names, and lines in `.modulerc`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace

from lumisite.release.tree import Tree
from lumisite.render.manifest import FileEntry, Manifest, format_manifest, path_fault, sha256_of
from lumisite.render.module_help import paragraph
from lumisite.render.modules import TEMPLATES
from lumisite.render.templates import load_templates, make_environment, quote_lua, quote_tcl
from lumisite.site.model import MODULEFILES

_NOTHING = "Nothing replaces it; `module avail` lists what there is."


def with_earlier_names(out: Tree, earlier: Iterable[Manifest]) -> Tree:
    """Give a tree that also has every name that `earlier` releases have offered."""
    gone = _gone(out.manifest, earlier)
    if not gone:
        return out
    led = {name: _replacement(out.manifest, name) for name in gone}
    added = _files(out, led, {name: _why(out.manifest, name, was) for name, was in gone.items()})
    files = {path: FileEntry(sha256_of(content), "0644") for path, content in added.items()}
    manifest = replace(
        out.manifest,
        names={**out.manifest.names, **led},
        rendered=out.rendered,
        files={**out.manifest.files, **files},
    )
    contents = {**out.contents, **added}
    return Tree(out.path, manifest, format_manifest(manifest).encode(), contents, out.faults)


def _gone(new: Manifest, earlier: Iterable[Manifest]) -> dict[str, str]:
    """Give the names that are not offered any more, and the platform that each was last for, where that is known."""
    gone: dict[str, str] = {}
    carried: dict[str, str] = {}
    for one in earlier:
        gone = {**dict.fromkeys(one.modules, one.platform), **gone}
        carried |= dict.fromkeys(one.names, "")
    kept = {*new.modules, *new.names}
    known = sorted({**carried, **gone}.items())
    return {
        name: platform for name, platform in known if name not in kept and "/." not in name and not path_fault(name)
    }


def _replacement(new: Manifest, name: str) -> str:
    """Give the version that has most parts of the version asked for, in doubt the default; empty where there is none.

    Versions are those of one module, so that each does the same for what its parts name.
    """
    module, _, version = name.rpartition("/")
    default = new.names.get(module, "")
    others = sorted(one for one in new.modules if one.rpartition("/")[0] == module)

    def alike(other: str) -> tuple[int, bool]:
        return len({*version.split("-")}.intersection(other.rpartition("/")[2].split("-"))), other == default

    return max(others, key=alike, default="")


def _why(new: Manifest, name: str, was: str) -> str:
    stacks = ", ".join(f"{stack} {' and '.join(versions)}" for stack, versions in new.stacks.items() if versions)
    since = f"it was for platform {was}, and " if was not in ("", new.platform) else ""
    return f"{name} is gone: {since}this is platform {new.platform}{f' with {stacks}' if stacks else ''}."


def _files(out: Tree, led: Mapping[str, str], whys: Mapping[str, str]) -> dict[str, bytes]:
    """Give the hidden modulefiles, and the `.modulerc` of each module with more lines than it was rendered with."""
    environment = make_environment(load_templates())
    folders = {path.partition("/")[0] for path in out.manifest.files}
    files: dict[str, bytes] = {}
    lines: defaultdict[str, str] = defaultdict(str)
    defaults: dict[str, str] = {}  # where nothing but a message is left, it is for the bare name too
    for system, form in MODULEFILES.items():
        if form.partition("/")[0] not in folders:
            continue
        for name, to in led.items():
            module, _, version = name.rpartition("/")
            if not module or (to and form.format(to) not in out.manifest.files):
                continue
            hidden, rc = f"{module}/.{version}", form.format(f"{module}/.modulerc")
            if system == "lmod" or not to:
                template = f"{'_old_name' if to else '_gone'}.{TEMPLATES[system]}.j2"
                notice = f"{whys[name]} {f'{to} is loaded instead.' if to else _NOTHING}"
                values = {"full_name": to, "notice": notice, "help": f"{paragraph(notice)}\n"}
                origin = f"modulefiles_src/{template} and the names that earlier releases have offered"
                text = environment.get_template(template).render(origin=origin, **values)
                files[form.format(hidden)] = text.encode()
            if system == "lmod":
                lines[rc] += f"module_version({quote_lua(hidden)}, {quote_lua(version)})\n"
                defaults[rc] = "" if to else f'module_version({quote_lua(hidden)}, "default")\n'
            else:
                lines[rc] += (
                    f"module-alias {quote_tcl(name)} {quote_tcl(to or hidden)}\nmodule-hide {quote_tcl(name)}\n"
                )
                defaults[rc] = "" if to else f"module-version {quote_tcl(hidden)} default\n"
    for rc, more in lines.items():
        first = b"#%Module5.0\n" if rc.startswith("modules-tcl/") else b""
        files[rc] = out.contents.get(rc, first) + more.encode() + defaults[rc].encode()
    return files
