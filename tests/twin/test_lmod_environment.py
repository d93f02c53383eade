"""The user's own variables, before, while and after our modules are loaded."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from tests.twin.lmod import TREE, Lmod, Session, each_lmod, lumi_with_a_setting, render

pytestmark = [pytest.mark.lmod, pytest.mark.root]

AI, CPE, FILES = "singularity-AI-bindings", "singularity-CPEbits", "singularity-userfilesystems"
OURS = ["/pfs", "/scratch", "/projappl", "/project", "/flash", "/appl", "/opt/cray", "/usr/lib64/libcxi.so.1"]
BINDS = "SINGULARITY_BINDPATH"

#: What a user may have, and which of our binds are then the user's.
KEPT: dict[str | None, set[str]] = {
    None: set(),
    "/mine": set(),
    "/b,/a,/c": set(),
    "/with space,/ümläut,/1:/2:ro": set(),
    "/img.squashfs:/data:image-src=/x,ro": set(),
    "/scratch,/mine": {"/scratch"},
    "/flash,/mine,/opt/cray": {"/flash", "/opt/cray"},
    ",".join(OURS): set(OURS),
    "/mine:/scratch": {"/scratch"},
    "/scratch:/scratch:ro,/mine": {"/scratch"},
    "/scratch/project_1:/scratch/project_1": set(),
    "$(touch /tmp/x),`id`,a'b;c&d|e": set(),
}


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return render(tmp_path_factory.mktemp("tree") / "out", lumi_with_a_setting(), rocm=["6.4"])


def with_binds(value: str | None) -> dict[str, str]:
    return {} if value is None else {BINDS: value}


@each_lmod
def test_the_users_own_binds_come_first_and_are_given_back_exactly(version: str, tree: Path) -> None:
    runs = Lmod(version, {TREE: tree}).run_all(
        [Session(["true", f"module load {AI}", f"module unload {AI}"], with_binds(value)) for value in KEPT]
    )
    for (value, taken), (before, loaded, after) in zip(KEPT.items(), runs, strict=True):
        own = value.split(",") if value else []
        assert loaded.binds == own + [bind for bind in OURS if bind not in taken], value
        assert len(loaded.binds) == len(set(loaded.binds)), value
        assert after.variables == before.variables, value


#: What the user does between load and unload, and what must be left, starting with /mine.
EDITS = {
    f"export {BINDS}=${BINDS},/new": "/mine,/new",
    f"export {BINDS}=/new,${BINDS}": "/new,/mine",
    f"export {BINDS}=${{{BINDS}/,\\/flash/}}": "/mine",
    f"export {BINDS}=${{{BINDS}/\\/mine,/}}": None,
    f"export {BINDS}=/other": "/other",
    f"export {BINDS}=/other,/mine": "/other,/mine",
    f"export {BINDS}=${BINDS},/scratch": "/mine,/scratch",
    f"export {BINDS}=": None,
    f"unset {BINDS}": None,
    f"export {BINDS}=${{{BINDS}/\\/scratch/\\/scratch\\/sub:\\/scratch}}": "/mine,/scratch/sub:/scratch",
    # An entry that we added and the user typed again is one and the same: it goes.
    f"export {BINDS}=/other,/scratch": "/other",
}


@each_lmod
def test_what_the_user_changed_in_between_stays(version: str, tree: Path) -> None:
    runs = Lmod(version, {TREE: tree}).run_all(
        [Session(["true", f"module load {AI}", edit, f"module unload {AI}"], {BINDS: "/mine"}) for edit in EDITS]
    )
    for (edit, left), (before, _, edited, after) in zip(EDITS.items(), runs, strict=True):
        assert edited.code == 0, edited.output
        assert after.environment.get(BINDS) == left, edit
        assert {**after.variables, BINDS: ""} == {**before.variables, BINDS: ""}, edit


@each_lmod
def test_an_edited_list_survives_a_swap_and_a_reload(version: str, tmp_path: Path) -> None:
    tree = render(tmp_path / "out", rocm=["6.2", "6.4"], cpe=["all"])
    before, _, _, *steps, after = Lmod(version, {TREE: tree}).run(
        "true",
        f"module load {AI}",
        f"export {BINDS}=${BINDS},/new",
        f"module swap {AI} {AI}/25.09-rocm6.2",
        "module reload",
        f"module load {AI}/25.03-rocm6.4",
        "module purge",
        **{BINDS: "/mine"},
    )
    for step in steps:
        assert step.code == 0, step.output
        assert sorted(step.binds) == sorted(["/mine", "/new", *OURS]), step.command
    assert after.variables == {**before.variables, BINDS: "/mine,/new"}


NAMES = ("SITE_SETTING", "SLURM_TASK_PROLOG")
VALUES = ("pmix", "", "/home/me/my prolog,50% `x`")


@each_lmod
def test_the_users_own_value_wins_and_stays(version: str, tree: Path) -> None:
    own = list(itertools.product(NAMES, VALUES))
    commands = ["true", f"module load {AI}", f"module load {AI}", f"module unload {AI}"]
    runs = Lmod(version, {TREE: tree}).run_all([Session(commands, {name: value}) for name, value in own])
    for (name, value), (before, loaded, swapped, after) in zip(own, runs, strict=True):
        assert loaded.environment[name] == swapped.environment[name] == value, name
        assert after.variables == before.variables, (name, value)


@each_lmod
def test_a_value_that_the_user_changed_in_between_stays(version: str, tree: Path) -> None:
    changes: dict[str, tuple[str, str | None]] = {}
    for name in NAMES:
        changes[f"export {name}=mine"] = (name, "mine")
        changes[f"export {name}="] = (name, "")
        changes[f"unset {name}"] = (name, None)
    runs = Lmod(version, {TREE: tree}).run_all(
        [
            Session(["true", f"module load {AI}", change, f"module load {AI}", f"module unload {AI}"])
            for change in changes
        ]
    )
    for (change, (name, left)), (before, loaded, _, again, after) in zip(changes.items(), runs, strict=True):
        # A variable that was taken away is set anew by the next load.
        assert again.environment[name] == (loaded.environment[name] if left is None else left), change
        expected = {**before.variables, **({} if left is None else {name: left})}
        assert after.variables == expected, change


@each_lmod
def test_a_task_prolog_of_the_users_own_is_named_when_it_keeps_the_helper_off(version: str, tree: Path) -> None:
    load = [f"module load {AI}"]
    (own,), (none,) = Lmod(version, {TREE: tree}).run_all(
        [Session(load, {"SLURM_TASK_PROLOG": "/home/me/prolog"}), Session(load)]
    )
    assert "SLURM_TASK_PROLOG is your own (/home/me/prolog)" in own.words
    assert none.output == ""


@each_lmod
def test_a_shell_that_inherits_loaded_modules_can_unload_them(version: str, tree: Path) -> None:
    """As in a job, or in a shell below this one."""
    before, _, child = Lmod(version, {TREE: tree}).run(
        "true",
        f"module load {AI}",
        f"bash -c '. /usr/share/lmod/lmod/init/bash; module unload {AI}; env' | grep -v ^BASH_FUNC",
        **{BINDS: "/mine"},
    )
    assert f"{BINDS}=/mine\n" in child.output
    assert "LUMISITE" not in child.output
    assert "SLURM" not in child.output
    assert f"PATH={before.environment['PATH']}\n" in child.output


FOREIGN = {
    # As their EasyBuild recipes make them: the whole list at once, one family, and each names the others.
    "singularity-bindings/24.03": """
setenv("SINGULARITY_BIND", "/opt/cray,/var/spool,/run/cxi")
setenv("SINGULARITYENV_LD_LIBRARY_PATH", "/lib64:/opt/cray/pe/mpich/8.1.29/ofi/gnu/12.3/lib-abi-mpich")
family("containerbindings")
conflict("singularity-AI-bindings", "singularity-CPEbits", "singularity-userfilesystems")
""",
    # Not public; this is what its documentation says that it does.
    "lumi-aif-singularity-bindings/1": """
setenv("SINGULARITY_BIND", "/pfs,/scratch,/projappl,/project,/flash,/appl,/var/spool/slurmd")
setenv("SLURM_MPI_TYPE", "pmi2")
""",
    "singularity-AI-bindings/23.12": """
setenv("SINGULARITY_BIND", "/var/spool/slurmd,/opt/cray,/usr/lib64/libcxi.so.1,/pfs,/scratch")
family("containerbindings")
conflict("singularity-bindings", "singularity-CPEbits", "singularity-userfilesystems")
""",
}


@pytest.fixture
def both(tree: Path, tmp_path: Path) -> dict[str, Path]:
    """Our tree and one of foreign modules."""
    for name, text in FOREIGN.items():
        path = tmp_path / "foreign" / f"{name}.lua"
        path.parent.mkdir(parents=True)
        path.write_text(text)
    return {TREE: tree, "/foreign": tmp_path / "foreign"}


PATHS = f"{TREE}/modules:/foreign"


@each_lmod
def test_a_foreign_module_that_overwrites_the_list_keeps_ours_out(version: str, both: dict[str, Path]) -> None:
    pairs = list(itertools.product(("singularity-bindings", "lumi-aif-singularity-bindings"), (AI, CPE, FILES)))
    runs = Lmod(version, both).run_all(
        [Session([f"module load {foreign}", f"module load {name}"], {"MODULEPATH": PATHS}) for foreign, name in pairs]
    )
    for (foreign, name), (loaded, refused) in zip(pairs, runs, strict=True):
        assert refused.code != 0, (foreign, name)
        assert f'Cannot load module "{name}/' in refused.words
        assert foreign in refused.words
        assert refused.variables == loaded.variables, (foreign, name)
        assert refused.modules == loaded.modules


@each_lmod
def test_an_older_namesake_is_replaced_cleanly(version: str, both: dict[str, Path]) -> None:
    before, _, ours, theirs, after = Lmod(version, both).run(
        "true",
        f"module load {AI}/23.12",
        f"module load {AI}/25.03-rocm6.4",
        f"module load {AI}/23.12",
        f"module unload {AI}",
        MODULEPATH=PATHS,
    )
    assert ours.code == 0, ours.output
    assert ours.binds == OURS
    assert "SINGULARITY_BIND" not in ours.environment
    assert theirs.binds == []
    assert theirs.modules == [f"{AI}/23.12"]
    assert after.variables == before.variables


@each_lmod
def test_a_foreign_module_that_appends_composes(version: str, tree: Path, tmp_path: Path) -> None:
    path = tmp_path / "foreign/singularity-slurm-bindings/1.lua"
    path.parent.mkdir(parents=True)
    path.write_text(f'append_path("{BINDS}", "/etc/slurm,/run/munge", ",")\n')
    lmod = Lmod(version, {TREE: tree, "/foreign": tmp_path / "foreign"})
    theirs = "singularity-slurm-bindings"
    orders = ((AI, theirs), (theirs, AI))
    sessions = [
        Session(
            ["true", *(f"module {verb} {name}" for verb in ("load", "unload") for name in order)],
            {"MODULEPATH": PATHS, BINDS: "/mine"},
        )
        for order in orders
    ]
    for (_, second), (before, _, loaded, left, after) in zip(orders, lmod.run_all(sessions), strict=True):
        assert sorted(loaded.binds) == sorted(["/mine", *OURS, "/etc/slurm", "/run/munge"])
        assert left.binds == ["/mine", *(OURS if second == AI else ["/etc/slurm", "/run/munge"])]
        assert after.variables == before.variables


SETTINGS = ("LMOD_DUPLICATE_PATHS", "LMOD_TMOD_PATH_RULE", "LMOD_DOWNSTREAM_CONFLICTS", "LMOD_EXACT_MATCH")


@each_lmod
def test_the_site_may_have_set_lmod_up_otherwise(version: str, tree: Path) -> None:
    load = f"module load {AI}/25.03-rocm6.4"
    commands = ["true", load, load, f"module unload {AI}"]
    runs = Lmod(version, {TREE: tree}).run_all(
        [Session(commands, {setting: "yes", BINDS: "/mine,/scratch"}) for setting in SETTINGS]
    )
    for setting, (before, loaded, again, after) in zip(SETTINGS, runs, strict=True):
        assert loaded.code == 0, loaded.output
        assert loaded.binds == ["/mine", "/scratch", *(bind for bind in OURS if bind != "/scratch")], setting
        assert again.variables == loaded.variables, setting
        # With Tcl's rule a path stays where it is, and Lmod counts on; nothing of ours is left.
        assert after.variables == before.variables, setting
