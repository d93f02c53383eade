"""Names that a root has offered before and a new release has not: each leads to what replaces it, or says why.

`deploy` alone knows the earlier releases, so it adds to what was rendered, and to its manifest. What it adds begins
with a dot: hidden modulefiles, as those of a site's own old names, and lines in `.modulerc`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from lumisite.release.tree import RenderedTree
from lumisite.render.manifest import FileEntry, Manifest, format_manifest, path_fault, sha256_of
from lumisite.render.module_help import paragraph
from lumisite.render.modules import TEMPLATES
from lumisite.render.templates import load_templates, make_environment, quote_lua, quote_tcl
from lumisite.site.model import MODULEFILES


@dataclass(frozen=True)
class _Name:
    """A name that is not offered any more, the `target` that replaces it, if any, and what users read on a load."""

    name: str
    target: str
    notice: str

    @property
    def module(self) -> str:
        """The name without its version."""
        return self.name.rpartition("/")[0]

    @property
    def version(self) -> str:
        """The version in the name."""
        return self.name.rpartition("/")[2]


def with_earlier_names(out: RenderedTree, earlier: Iterable[Manifest]) -> RenderedTree:
    """Return a tree that also has every name that `earlier` releases have offered."""
    names = list(_removed_names(out.manifest, earlier))
    if not names:
        return out
    added = _files(out, names)
    files = {path: FileEntry(sha256_of(content), "0644") for path, content in added.items()}
    manifest = replace(
        out.manifest,
        names={**out.manifest.names, **{name.name: name.target for name in names}},
        rendered=out.rendered,
        files={**out.manifest.files, **files},
    )
    contents = {**out.contents, **added}
    return RenderedTree(out.path, manifest, format_manifest(manifest).encode(), contents, out.faults)


def _removed_names(new: Manifest, earlier: Iterable[Manifest]) -> Iterable[_Name]:
    modules: dict[str, str] = {}
    others: dict[str, str] = {}
    for manifest in earlier:  # the platform that a module was last for counts
        modules = {**dict.fromkeys(manifest.modules, manifest.platform), **modules}
        others |= dict.fromkeys(manifest.names, "")
    offered = {*new.modules, *new.names}
    template = make_environment(load_templates()).get_template("_earlier_name.txt.j2")
    stacks = ", ".join(f"{stack} {' and '.join(versions)}" for stack, versions in new.stacks.items() if versions)
    for name, platform in sorted({**others, **modules}.items()):
        if name in offered or "/." in name or path_fault(name):
            continue
        target = _replacement(new, name)
        before = "" if platform == new.platform else platform
        notice = template.render(name=name, earlier=before, platform=new.platform, stacks=stacks, target=target)
        yield _Name(name, target, notice)


def _replacement(new: Manifest, name: str) -> str:
    """Return the version that has most parts of the version in a name, in doubt the default; empty where there is none.

    Versions are those of one module, so that each does the same for what its parts name.
    """
    module, _, version = name.rpartition("/")
    default = new.names.get(module, "")
    others = sorted(other for other in new.modules if other.rpartition("/")[0] == module)

    def alike(other: str) -> tuple[int, bool]:
        return len({*version.split("-")}.intersection(other.rpartition("/")[2].split("-"))), other == default

    return max(others, key=alike, default="")


def _files(out: RenderedTree, names: Iterable[_Name]) -> dict[str, bytes]:
    """Return the hidden modulefiles, and the `.modulerc` of each module with more lines than it was rendered with."""
    folders = {path.partition("/")[0] for path in out.manifest.files}
    files: dict[str, bytes] = {}
    lines: defaultdict[str, str] = defaultdict(str)
    defaults: dict[str, str] = {}  # where nothing but a message is left, it is for the bare name too
    for system, form in MODULEFILES.items():
        if form.partition("/")[0] not in folders:
            continue
        for name in names:
            if not name.module or (name.target and form.format(name.target) not in out.manifest.files):
                continue
            hidden, rc = f"{name.module}/.{name.version}", form.format(f"{name.module}/.modulerc")
            if system == "lmod" or not name.target:
                files[form.format(hidden)] = _hidden_modulefile(system, name)
            if system == "lmod":
                lines[rc] += f"module_version({quote_lua(hidden)}, {quote_lua(name.version)})\n"
                defaults[rc] = "" if name.target else f'module_version({quote_lua(hidden)}, "default")\n'
            else:
                lines[rc] += f"module-alias {quote_tcl(name.name)} {quote_tcl(name.target or hidden)}\n"
                lines[rc] += f"module-hide {quote_tcl(name.name)}\n"
                defaults[rc] = "" if name.target else f"module-version {quote_tcl(hidden)} default\n"
    for rc, more in lines.items():
        first = b"#%Module5.0\n" if rc.startswith("modules-tcl/") else b""
        files[rc] = out.contents.get(rc, first) + more.encode() + defaults[rc].encode()
    return files


def _hidden_modulefile(system: str, name: _Name) -> bytes:
    template = f"{'_old_name' if name.target else '_gone'}.{TEMPLATES[system]}.j2"
    values: Mapping[str, str] = {
        "origin": f"modulefiles_src/{template} and the names that earlier releases have offered",
        "full_name": name.target,
        "notice": name.notice,
        "help": f"{paragraph(name.notice)}\n",
    }
    return make_environment(load_templates()).get_template(template).render(**values).encode()
