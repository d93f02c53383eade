"""Small rendered trees that are consistent with their manifests, and the deployment root `ROOT` for them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from lumisite.cli import main
from lumisite.release.files import write_tree
from lumisite.release.tree import load_tree
from lumisite.render.manifest import MANIFEST, Manifest, ModuleSummary, RenderedFile, file_entries, format_manifest

OLD, NEW, THIRD = "2025-06-0123456789ab", "2026-01-ba9876543210", "2026-07-aaaaaaaaaaaa"


def tree(release: str = NEW, *, libfabric: str = "1.22.0", cpe: str = "25.03") -> dict[str, RenderedFile]:
    """A tree of one module, one prolog and one wrapper with a link to it, which name their release."""
    files = {
        f"modules/singularity-CPEbits/{cpe}.lua": RenderedFile(
            f'-- release {release}\nhelp("é")\nappend_path("SINGULARITY_BINDPATH", "/opt/cray")\n'
            f'setenv("FI_VERSION", "{libfabric}")\n'
        ),
        "modules/singularity-CPEbits/.modulerc.lua": RenderedFile(f'module_version("{cpe}", "default")\n'),
        "spank/task_prolog": RenderedFile(f"#!/bin/sh\n# {release}\nexit 0\n", executable=True),
        "spank/bin/singularity": RenderedFile("#!/bin/sh\nexit 0\n", executable=True),
        "spank/bin/apptainer": RenderedFile("singularity", is_link=True),
    }
    return with_manifest(files, manifest(release, libfabric=libfabric, cpe=cpe))


def manifest(release: str = NEW, *, libfabric: str = "1.22.0", cpe: str = "25.03") -> Manifest:
    return Manifest(
        release=release,
        lumisite="0.1.0",
        site="lumi",
        platform=release.rpartition("-")[0],
        stacks={"cpe": (cpe,), "rocm": ("6.2.4",)},
        inputs={"lumi.yaml": "0" * 64},
        modules={
            f"singularity-CPEbits/{cpe}": ModuleSummary(
                binds=("/opt/cray",),
                provides=(f"/opt/cray/libfabric/{libfabric}",),
                conflicts=("singularity-bindings",),
                environment={"FI_VERSION": libfabric},
            )
        },
    )


def with_manifest(files: Mapping[str, RenderedFile], described: Manifest) -> dict[str, RenderedFile]:
    rest = {path: file for path, file in files.items() if path != MANIFEST}
    text = format_manifest(replace(described, files=file_entries(rest)))
    return {**rest, MANIFEST: RenderedFile(text)}


def written(path: Path, files: Mapping[str, RenderedFile] | None = None) -> Path:
    write_tree(files or tree(), path)
    return path


def everything(top: Path) -> dict[str, tuple[int, int, bytes | str]]:
    """All below a folder: relative path to mode, mtime in ns, and content or link target."""
    found: dict[str, tuple[int, int, bytes | str]] = {}
    for path in sorted(top.rglob("*")):
        status = path.lstat()
        content: bytes | str = b""
        if path.is_symlink():
            content = str(path.readlink())
        elif path.is_file():
            content = path.read_bytes()
        found[str(path.relative_to(top))] = (status.st_mode, status.st_mtime_ns, content)
    return found


def deploy(*names: str) -> None:
    for name in names:
        assert main(["deploy", name, "ROOT", "--apply"]) == 0


def current() -> str:
    """Return the release that users load, which must be whole."""
    link = Path("ROOT/current")
    assert not load_tree(link).faults
    return link.readlink().name


def many(modules: int, release: str = NEW) -> dict[str, RenderedFile]:
    """A tree of many modules with one version each."""
    names: Iterable[str] = (f"module{number:05}" for number in range(modules))
    files = {f"modules/{name}/1.0.lua": RenderedFile(f'help("{name}")\n' * 20) for name in names}
    summaries = {path[8:-4]: ModuleSummary(binds=("/opt/cray",)) for path in files}
    return with_manifest(files, replace(manifest(release), modules=summaries))
