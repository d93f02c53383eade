"""What `make dist` builds, installed where admins install it: by EasyBuild, and on a machine with nothing but Python."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from lumisite import __version__
from tests.support.easybuild import EB, environment_of_easybuild
from tests.twin.cache import cached, remove_tree
from tests.twin.roots import bootstrap

pytestmark = [pytest.mark.lmod, pytest.mark.root]

TOP = Path(__file__).parents[2]
SUITES = ("bookworm", "trixie")
LUMI = "site-out/MANIFEST.json"


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    done = said(sys.executable, ".ci/dist.py", str(folder), cwd=TOP)
    assert f"lumisite-{__version__}" in done
    return folder


def said(*argv: str, cwd: Path, environment: dict[str, str] | None = None) -> str:
    done = subprocess.run(argv, cwd=cwd, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def bare_machine(suite: str) -> Path:
    """Give a root that has Python and nothing that it needs not."""

    def build(partial: Path) -> None:
        bootstrap(suite, ("python3-minimal", "libpython3-stdlib"), partial / "tree")
        remove_tree(partial / "tree/var/lib/apt")

    return cached(f"bare-python-{suite}", {"version": 1}, build) / "tree"


@pytest.mark.parametrize("suite", SUITES)
def test_one_file_is_all_that_a_machine_with_python_needs(suite: str, dist: Path, tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "lumisite.pyz").write_bytes((dist / "lumisite.pyz").read_bytes())
    inside = (
        f'mount --bind {home} "$1/mnt" && exec chroot "$1" env -i HOME=/mnt PATH=/usr/bin:/bin sh -c "cd /mnt && $2"'
    )
    command = "python3 lumisite.pyz render --rocm 6.2 && python3 lumisite.pyz --version"
    done = said("unshare", "--mount", "sh", "-c", inside, "sh", str(bare_machine(suite)), command, cwd=tmp_path)
    commit = said("git", "rev-parse", "--short=12", "HEAD", cwd=TOP).strip()
    assert done.endswith(f"{LUMI}\nlumisite {__version__} (commit {commit})\n")
    assert (home / LUMI).is_file()


def test_one_file_has_what_each_python_needs_compiled(dist: Path) -> None:
    names = zipfile.ZipFile(dist / "lumisite.pyz").namelist()
    found = {name.split(".cpython-")[1].split("-")[0] for name in names if "/zstd/_zstd.cpython-" in name}
    assert found == {"310", "311", "312", "313"}


@pytest.mark.parametrize("room", ["rw", "ro"])
def test_one_file_runs_where_it_cannot_unpack_itself_at_home(dist: Path, room: str) -> None:
    inside = (
        f"mount --bind {dist} /mnt && for one in /tmp /var/tmp; do mount -t tmpfs -o {room} none $one; done && cd /proc && "
        "env -i HOME=/proc /usr/bin/python3 -IS /mnt/lumisite.pyz --version && ls -A /tmp"
    )
    done = subprocess.run(["unshare", "--mount", "sh", "-c", inside], capture_output=True, text=True, check=False)
    if room == "rw":
        assert re.fullmatch(rf"lumisite {__version__} \(commit \w+\)\n", done.stdout), done.stderr
        assert done.stderr == ""
    else:
        assert (done.returncode, done.stdout) == (1, "")
        assert re.fullmatch(r"lumisite: cannot unpack itself: .*/proc/\.shiv.* SHIV_ROOT\)\n", done.stderr)


def test_a_python_that_is_too_old_is_named(dist: Path, tmp_path: Path) -> None:
    preamble = zipfile.ZipFile(dist / "lumisite.pyz").read("site-packages/bin/preamble.py").decode()
    old = preamble.replace("sys.version_info", "(3, 6, 15)")
    done = subprocess.run([sys.executable, "-c", old], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.split(":")[0]) == (1, "lumisite needs Python 3.10 or newer, this is 3.6")


def test_easybuild_installs_the_easyconfig(dist: Path, tmp_path: Path) -> None:
    environment = dict(environment_of_easybuild())
    words = (*EB, f"--prefix={tmp_path / 'eb'}", f"--sourcepath={dist}", str(dist / f"lumisite-{__version__}.eb"))
    assert "COMPLETED" in said(*words, cwd=tmp_path, environment=environment)
    load = (
        f". /usr/share/lmod/lmod/init/sh; module use {tmp_path / 'eb/modules/all'}; module load lumisite; "
        f"lumisite render --rocm 6.2 >/dev/null 2>&1; test -f {LUMI}; man -w lumisite; echo $SHIV_ROOT"
    )
    home = tmp_path / "user"
    home.mkdir()
    page, unpacked = said("sh", "-ec", load, cwd=tmp_path, environment={**environment, "HOME": str(home)}).split()
    assert page.endswith("share/man/man1/lumisite.1")
    assert Path(unpacked).is_dir()
    assert not (home / ".shiv").exists()


def test_the_wheel_brings_what_is_installed_beside_the_program(dist: Path) -> None:
    with zipfile.ZipFile(dist / f"lumisite-{__version__}-py3-none-any.whl") as wheel:
        named = (name.partition(".data/data/share/") for name in wheel.namelist())
        beside = {path: wheel.read(f"{top}{between}{path}") for top, between, path in named if path}
    assert {
        "bash-completion/completions/lumisite",
        "zsh/site-functions/_lumisite",
        "fish/vendor_completions.d/lumisite.fish",
        "man/man1/lumisite.1",
        "lumisite/site.schema.json",
        "doc/lumisite/tutorial/first-site.md",
    } <= set(beside)
    links = [
        (page, link)
        for page, text in beside.items()
        if page.endswith(".md")
        for link in re.findall(r"\]\((?!\w+:)([^)#]+)", text.decode())
    ]
    assert len(links) > 100
    assert [(page, link) for page, link in links if os.path.normpath(f"{page}/../{link}") not in beside] == []


@pytest.fixture(scope="module")
def deployed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    top = tmp_path_factory.mktemp("deployed")
    lumisite = str(Path(sys.executable).parent / "lumisite")
    said(lumisite, "render", "--site", "lumi", cwd=top)
    said(lumisite, "deploy", "site-out", "root", "--apply", cwd=top)
    return top / "root"


#: What completes the last word of a line in each shell; zsh does so for a person at a terminal, which `script` gives it.
ASK = {
    "bash": """source "$1"; read -ra COMP_WORDS <<<"lumisite $2"; COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
        $(complete -p lumisite | sed 's/.*-F //; s/ .*//'); echo "${COMPREPLY[@]}" """,
    "zsh": r"""export TERM=dumb; cp "$1" _lumisite; { printf '%s\n' "fpath=($PWD \$fpath); autoload -Uz compinit; compinit -u"
        sleep 2; printf "lumisite $2\t"; sleep 2; printf '\x01echo GOT \n'; sleep 1; echo exit; } |
        script -qec 'zsh -f' /dev/null | grep '^GOT' | sed 's/.* //'""",
    "fish": """fish --no-config -c "source '$1'; complete -C 'lumisite $2'" | cut -f1""",
}


@pytest.mark.parametrize(
    ("typed", "whole"),
    [
        ("trans", "transport"),
        ("deploy a-tr", "a-tree"),
        ("why --root a-tr", "a-tree"),
        ("masks --site universty", "university"),
        ("check --site a-tr", "a-tree"),
        ("why NCCL_CROSS_N", "NCCL_CROSS_NIC"),
        ("why gpu-mo", "gpu-moved"),
        ("rollback a-root 2026", ""),
    ],
)
@pytest.mark.parametrize("shell", ASK)
def test_a_shell_completes_commands_and_files(
    shell: str, typed: str, whole: str, dist: Path, deployed: Path, tmp_path: Path
) -> None:
    with zipfile.ZipFile(dist / f"lumisite-{__version__}-py3-none-any.whl") as wheel:
        name = next(one for one in wheel.namelist() if f"/share/{shell}" in one)
        wheel.extract(name, tmp_path)
    (tmp_path / "a-tree").mkdir()
    (tmp_path / "a-root").symlink_to(deployed)
    path = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    whole = (deployed / "current").readlink().name if typed.startswith("rollback") else whole
    found = said("bash", "-c", ASK[shell], "bash", str(tmp_path / name), typed, cwd=tmp_path, environment=path).split()
    assert [one.rstrip("/") for one in found[:1]] == [whole]
