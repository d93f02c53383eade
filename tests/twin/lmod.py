"""Real Lmod in a throw-away copy of a root: what each command says, and the environment that it leaves.

The root itself stays as it is: a room is a mount name space with an overlay over the root, and it ends with
the process that made it.
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, TypeAlias

import pytest

from lumisite.errors import ToolError
from lumisite.release.files import write_tree
from lumisite.render.manifest import MANIFEST, ModuleSummary, parse_manifest
from lumisite.render.render import render_tree
from lumisite.render.templates import load_templates
from lumisite.site.load import EMBEDDED, LoadedSite, load_site
from lumisite.site.selection import resolve_selection
from tests.support.sites import load_text
from tests.twin.process import run_tool
from tests.twin.roots import HOME, USER, USER_ID, node_root

#: The Debian release that each version of Lmod comes from (observed in November 2026).
VERSIONS: Mapping[str, str] = {"8.6": "bookworm", "8.7": "trixie"}

each_lmod = pytest.mark.parametrize("version", VERSIONS)

LMOD = "/usr/share/lmod/lmod"
TREE = "/site"
"""Where the sessions of a tree see it."""

ENVIRONMENT: Mapping[str, str] = {
    "USER": USER,
    "HOME": HOME,
    "LANG": "C.UTF-8",
    "TERM": "dumb",
    "PATH": "/usr/local/bin:/usr/bin:/bin",
    "LMOD_PAGER": "none",
    # What `tput` says of such a terminal; Lmod asks it and `stty` at each call that has no such variable.
    "LMOD_TERM_WIDTH": "80",
    "MODULEPATH": f"{TREE}/modules",
}

#: What Lmod notes for itself; every other variable must be as it was.
BOOKKEEPING = re.compile(
    r"LOADEDMODULES|_LMFILES_|__MODULES_\w+|_ModuleTable\d{3}_|_ModuleTable_Sz_"
    r"|__LMOD_REF_COUNT_(MODULEPATH|PATH|SINGULARITY_BINDPATH)"
)

# The shells run beside each other; each has a home of its own.
_ROOM = r"""
set -eu
room=$1 root=$2 jobs=$3
mount -t tmpfs -o mode=755 tmpfs "$room/layers"
mkdir "$room/layers/upper" "$room/layers/work"
mount -t overlay -o "lowerdir=$root,upperdir=$room/layers/upper,workdir=$room/layers/work" overlay "$room/root"
mount -t proc proc "$room/root/proc"
mount --rbind /dev "$room/root/dev"
mount -t tmpfs -o mode=1777 tmpfs "$room/root/tmp"
mkdir "$room/root/session"
mkdir -p "$room/root$4"
mount --bind "$room/session" "$room/root/session"
while IFS='	' read -r mode source target; do
    mkdir -p "$room/root$target"
    mount --bind "$source" "$room/root$target"
    [ "$mode" = rw ] || mount -o remount,bind,ro "$room/root$target"
done <"$room/binds"
ls "$room/session" | chroot "$room/root" xargs -P "$jobs" -I{} unshare --mount sh /session/{}/start
"""

Done: TypeAlias = tuple[str, ...]
"""What a shell has done: how the environment was set, then one command after the other."""

TOOLS = ("mmdebstrap", "unshare", "setpriv", "chroot")


@dataclass(frozen=True)
class Step:
    """What a command of a session left behind; `output` is its stdout and stderr as they came."""

    command: str
    code: int
    output: str
    environment: Mapping[str, str]

    @property
    def variables(self) -> dict[str, str]:
        """The environment without Lmod's notes."""
        return {name: value for name, value in self.environment.items() if not BOOKKEEPING.fullmatch(name)}

    @property
    def binds(self) -> list[str]:
        """The entries of the bind variable."""
        value = self.environment.get("SINGULARITY_BINDPATH", "")
        return value.split(",") if value else []

    @property
    def modules(self) -> list[str]:
        """The loaded modules, sorted."""
        return sorted(filter(None, self.environment.get("LOADEDMODULES", "").split(":")))

    @property
    def words(self) -> str:
        """The output with each run of white space as one space: Lmod breaks lines where it likes."""
        return " ".join(self.output.split())


@dataclass(frozen=True)
class Session:
    """Commands for one shell, one after the other, and what its environment has before the first."""

    commands: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)
    shell: str = "bash"

    @property
    def done(self) -> Done:
        """All that the shell does after its start."""
        exports = (f"export {name}={shlex.quote(value)}" for name, value in self.environment.items())
        return ("; ".join(exports) or ":", *self.commands)


@dataclass(frozen=True)
class Lmod:
    """One version of Lmod, and folders of this machine as its shells see them: path in there to path here."""

    version: str
    folders: Mapping[str, Path] = field(default_factory=dict)
    writable: Mapping[str, Path] = field(default_factory=dict)
    init: ClassVar[str] = f"{LMOD}/init"
    variables: ClassVar[Mapping[str, str]] = ENVIRONMENT

    @property
    def layers(self) -> str:
        """The folders that the room's root is made of, the uppermost first."""
        return str(node_root(VERSIONS[self.version]))

    def run(self, *commands: str, shell: str = "bash", **environment: str) -> list[Step]:
        """Run commands in one shell; the keywords are variables that it has from the start."""
        return self.run_all([Session(commands, environment, shell)])[0]

    def run_all(self, sessions: Sequence[Session]) -> list[list[Step]]:
        """Run sessions; those of one shell share the folders, a home, and the steps that they begin with.

        Such a step runs once, and where sessions part, each goes on in a copy of the shell, in their order: it finds
        the files as those before it have left them. Raises `ToolError` when a session does not come to its end.
        """
        require_lmod()
        layers = self.layers
        with tempfile.TemporaryDirectory(prefix="lumisite-lmod-") as name:
            room = Path(name)
            _write_room(room, self, sessions)
            jobs = str(os.cpu_count() or 1)
            run_tool(["unshare", "--mount", "sh", "-c", _ROOM, "room", str(room), layers, jobs, HOME]).check()
            return [_read_steps(room, session) for session in sessions]


def require_lmod() -> None:
    """Skip the test and say what is missing, if this machine cannot make a room."""
    if os.geteuid() != 0:
        pytest.skip("real Lmod needs root: its root file system is mounted")
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    if missing:
        pytest.skip(f"real Lmod needs {', '.join(missing)} (.ci/packages installs them)")


def render(
    out: Path,
    site: str | LoadedSite = "lumi",
    *,
    platform: str | None = None,
    **asked: Sequence[str],
) -> Path:
    """Render a tree of a site (its name, or one already read) into `out`; releases are asked for by stack."""
    loaded = load_site(site) if isinstance(site, str) else site
    selection = resolve_selection(loaded.site, platform=platform, **asked)
    write_tree(render_tree(loaded, selection, load_templates()), out)
    return out


def render_all(out: Path, loaded: LoadedSite) -> Mapping[str, ModuleSummary]:
    """Render all that a site's platform can have, its leftover CPE releases too; give the manifest's modules."""
    stacks = loaded.site.platforms[loaded.site.platform].stacks
    asked: dict[str, Any] = {name: ["all"] for name in stacks}
    if "cpe" in stacks:
        asked["cpe"] = list(map(str, stacks["cpe"].installed))
    render(out, loaded, **asked)
    return parse_manifest((out / MANIFEST).read_bytes(), MANIFEST).modules


def lumi_with_a_setting() -> LoadedSite:
    """Give LUMI with a variable that its module sets; what LUMI's own ledger sets depends on the step or the image."""
    text = (EMBEDDED / "lumi.yaml").read_text()
    entry = "  - {name: SITE_SETTING, value: of the site, where: singularity-AI-bindings, why: test, source: here}\n"
    return load_text(text.replace("\nsettings:\n", f"\nsettings:\n{entry}", 1), "lumi.yaml")


def _write_room(room: Path, lmod: Lmod, sessions: Sequence[Session]) -> None:
    room.chmod(0o755)
    for folder in ("layers", "root", "session"):
        (room / folder).mkdir()
    for shell in {session.shell for session in sessions}:
        _write_shell(lmod, room / "session" / shell, [session.done for session in sessions if session.shell == shell])
    rows = [f"ro\t{source}\t{target}\n" for target, source in lmod.folders.items()]
    rows += [f"rw\t{source}\t{target}\n" for target, source in lmod.writable.items()]
    (room / "binds").write_text("".join(rows))


def _write_shell(lmod: Lmod, folder: Path, sessions: Sequence[Done]) -> None:
    (folder / "out").mkdir(parents=True)
    (folder / "home").mkdir()
    place = f"/session/{folder.name}"
    become = ["setpriv", f"--reuid={USER_ID}", f"--regid={USER_ID}", "--clear-groups", "env", "-i"]
    shell = [*become, *(f"{key}={value}" for key, value in lmod.variables.items()), folder.name, f"{place}/script"]
    _write(folder / "start", f"mount --bind {place}/home {HOME} && cd {HOME} && exec {shlex.join(shell)}\n")
    _write(folder / "script", f". {lmod.init}/{folder.name}\n" + _script((), sessions, f"{place}/out"))
    for path in (folder / "out", folder / "home"):
        path.chmod(0o777)


def _script(done: Done, sessions: Sequence[Done], out: str) -> str:
    """Write what sessions do after what they all have done; where they part, each goes on in a copy of the shell."""
    ways = dict.fromkeys(session[: len(done) + 1] for session in sessions if len(session) > len(done))
    texts = []
    for way in ways:
        text = f"{{ {way[-1]}\n}} >{out}/{_name(way)}.text 2>&1; echo $? >{out}/{_name(way)}.code"
        text += f"; env -0 >{out}/{_name(way)}.env\n"
        texts.append(text + _script(way, [session for session in sessions if session[: len(way)] == way], out))
    return "".join(texts if len(texts) < 2 else (f"(\n{text})\n" for text in texts))


def _name(done: Done) -> str:
    """Name the files of a step, by all that its shell has done."""
    return hashlib.sha256("\0".join(done).encode("utf-8", "surrogateescape")).hexdigest()


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8", errors="surrogateescape")


def _read_steps(room: Path, session: Session) -> list[Step]:
    out = room / "session" / session.shell / "out"
    return [
        _read_step(out / _name(session.done[:end]), session.done[end - 1]) for end in range(2, len(session.done) + 1)
    ]


def _read_step(out: Path, command: str) -> Step:
    text, code, environment = (out.with_suffix(f".{end}") for end in ("text", "code", "env"))
    said = text.read_bytes() if text.exists() else b""
    if not environment.exists():
        raise ToolError(f"the shell ended in {command!r}: {said.decode(errors='replace').strip()}")
    return Step(
        command,
        int(code.read_text()),
        said.decode("utf-8", "surrogateescape"),
        _parse_environment(environment.read_bytes()),
    )


def _parse_environment(dump: bytes) -> dict[str, str]:
    entries = (entry.decode("utf-8", "surrogateescape").partition("=") for entry in dump.split(b"\0") if entry)
    return {name: value for name, _, value in entries}
