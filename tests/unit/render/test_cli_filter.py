"""The cli_filter module, compiled and run by real Lua against a made-up `slurm` table and options."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from lumisite.render.templates import quote_lua
from tests.support.prologs import lay_out, lumi_like_files

#: Options as cli_filter/lua gives them: reading one that Slurm does not know, or setting nil, raises; argv is read-only.
HARNESS = """
local given, argv, broken = %(options)s, %(argv)s, %(broken)s
slurm = { SUCCESS = 0, ERROR = -1 }
for _, level in ipairs({ "info", "verbose", "debug", "error" }) do
  slurm["log_" .. level] = function(format, ...) print(level .. ": " .. string.format(format, ...)) end
end
local options = setmetatable({}, {
  __index = function(_, name)
    if broken == "reading" then error("broken option " .. name) end
    if name == "argv" then return argv end
    return given[name]
  end,
  __newindex = function(_, name, value)
    if type(value) ~= "string" or broken == "writing" then error("cannot set " .. name) end
    print("set " .. name .. "=" .. value)
    given[name] = value
  end,
})
if broken == "slurm" then slurm = nil end
local lumisite = dofile(%(path)s)
local answer = lumisite.pre_submit(options, 0)
print("answer " .. tostring(answer))
"""


@pytest.fixture
def module(tmp_path: Path) -> Path:
    spank = lay_out(tmp_path, lumi_like_files())
    path = spank / "cli_filter.lua"
    path.chmod(0o644)
    return path


def table(values: Mapping[str, str]) -> str:
    return "{" + ", ".join(f"[{quote_lua(name)}] = {quote_lua(value)}" for name, value in values.items()) + "}"


def filtered(
    lua: str,
    module: Path,
    options: Mapping[str, str] | None = None,
    argv: Sequence[str] = ("singularity", "exec", "x.sif", "python"),
    broken: str = "",
    environment: Mapping[str, str] | None = None,
) -> list[str]:
    """Run the filter for srun; give what it set and said, line by line."""
    script = HARNESS % {
        "options": table({"type": "srun", **(options or {})}),
        "argv": "{" + ", ".join(map(quote_lua, argv)) + "}",
        "broken": quote_lua(broken),
        "path": quote_lua(str(module)),
    }
    done = subprocess.run(
        [lua, "-"], input=script, capture_output=True, text=True, env=dict(environment or {}), timeout=20
    )
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines.pop() == "answer nil"
    return lines


@pytest.mark.parametrize("command", ["singularity", "apptainer", "/usr/bin/singularity", "./apptainer"])
def test_the_prolog_is_attached_to_container_steps(lua: str, module: Path, command: str) -> None:
    assert filtered(lua, module, argv=[command, "exec", "x.sif"]) == [f"set task-prolog={module.parent}/task_prolog"]


@pytest.mark.parametrize(
    ("argv", "options", "environment"),
    [
        *((argv, {}, {}) for argv in (["python"], ["my-singularity"], ["singularity.sh"], ["singularity/run"], [])),
        *((["singularity", "exec", "x.sif"], {"type": command}, {}) for command in ("sbatch", "salloc")),
        (["singularity", "exec", "x.sif"], {"gpus-per-task": "1"}, {"LUMISITE": "off"}),
    ],
    ids=str,
)
def test_other_steps_are_left_alone(
    lua: str, module: Path, argv: list[str], options: dict[str, str], environment: dict[str, str]
) -> None:
    assert filtered(lua, module, options, argv, environment=environment) == []


NAMES = ("task-prolog", "cpu-bind", "export", "gpu-bind", "gpus-per-task", "ntasks-per-gpu", "cpus-per-task")


@pytest.mark.parametrize("unset", ["", "unset", "-2", "0", "(null)", "invalid-context"])
def test_an_option_that_is_not_set_is_known_in_each_form(lua: str, module: Path, unset: str) -> None:
    assert filtered(lua, module, dict.fromkeys(NAMES, unset)) == [f"set task-prolog={module.parent}/task_prolog"]


def test_a_prolog_that_is_not_there_is_not_attached(lua: str, module: Path) -> None:
    (module.parent / "task_prolog").unlink()
    assert [line.partition(":")[0] for line in filtered(lua, module)] == ["verbose"]


def test_a_job_keeps_the_release_that_it_started_with(lua: str, module: Path, tmp_path: Path) -> None:
    release = lumi_like_files()["spank/cli_filter.lua"].partition('site = {\n  release = "')[2].partition('"')[0]
    root = tmp_path / "root"
    (root / "releases").mkdir(parents=True)
    (root / "releases" / release).symlink_to(module.parent.parent)
    (root / "current").symlink_to(f"releases/{release}")
    (root / "policy").write_text("on default\n")
    lines = filtered(lua, root / "current/spank/cli_filter.lua")
    assert lines == [f"set task-prolog={root}/releases/{release}/spank/task_prolog"]


@pytest.mark.parametrize(
    ("binding", "export", "after"),
    [
        *((words, "", "ALL,") for words in ("cores", "quiet,threads", "map_cpu:0,1", "mask_cpu:0xff", "rank", "ldoms")),
        ("cores", "ALL,A=b", "ALL,A=b,"),
        ("sockets", "NONE", ""),
        ("cores", "A", "A,"),
        *((words, "", None) for words in ("none", "quiet", "verbose", "quiet,none", "")),
    ],
)
def test_a_users_cpu_binding_is_marked(lua: str, module: Path, binding: str, export: str, after: str | None) -> None:
    marks = [one for one in filtered(lua, module, {"cpu-bind": binding, "export": export}) if "set export" in one]
    assert marks == ([] if after is None else [f"set export={after}LUMISITE_CPU_BIND=user"])


def test_a_binding_that_came_from_the_step_around_it_is_not_the_users(lua: str, module: Path) -> None:
    inside = {"SLURM_STEP_ID": "0", "SLURM_CPU_BIND": "quiet,mask_cpu:0x1"}
    lines = filtered(lua, module, {"cpu-bind": "quiet,mask_cpu:0x1"}, environment=inside)
    assert not any("LUMISITE_CPU_BIND" in line for line in lines)
    script = {**inside, "SLURM_STEP_ID": "-5"}  # a batch script under Slurm 26.05
    assert any("LUMISITE_CPU_BIND" in line for line in filtered(lua, module, {"cpu-bind": "cores"}, environment=script))


HIDDEN = "--gres-flags=allow-task-sharing"
PROTO = {"FI_CXI_RDZV_PROTO": "alt_read"}


@pytest.mark.parametrize(
    ("options", "variables", "said"),
    [
        ({"gpus-per-task": "1"}, {}, HIDDEN),
        ({"gpu-bind": "verbose,Per_Task:1"}, {}, HIDDEN),
        ({"gpu-bind": "map:4,5,2,3,6,7,0,1"}, {}, HIDDEN),
        ({"ntasks-per-gpu": "1"}, {}, HIDDEN),
        ({"gpu-bind": "single:1", "gres-flags": "enforce-binding"}, {}, HIDDEN),
        ({"gpu-bind": "single:1", "gres-flags": "allow-task-sharing"}, {}, None),
        ({"gpu-bind": "none", "gpus-per-task": "1"}, {}, None),
        ({"gpus-per-node": "8"}, {}, None),
        ({"gpus-per-task": "-2"}, {}, None),
        ({"gpus-per-task": "8", "ntasks-per-node": "1"}, {}, None),
        ({"gpu-bind": "closest", "gres-flags": "allow-task-sharing"}, {}, "does not go together with --gpu-bind=closest"),
        ({}, PROTO, "FI_CXI_RDZV_PROTO=alt_read needs --network=disable_rdzv_get: "),
        ({"network": "no_vni,disable_rdzv_get"}, PROTO, None),
        ({}, {"FI_CXI_RDZV_PROTO": "default"}, None),
        ({"cpu-bind": "mask_cpu:0xff", "cpus-per-task": "7"}, {}, "leave out one of them"),
        ({"cpu-bind": "cores", "cpus-per-task": "7"}, {}, None),
        ({"cpu-bind": "mask_cpu:0xff", "cpus-per-task": "-2"}, {}, None),
        ({"task-prolog": "/x%s%n"}, {}, "/x%s%n"),  # no format
    ],
    ids=str,
)  # fmt: skip
def test_it_warns_of_what_does_not_go_together_or_lacks_its_partner(
    lua: str, module: Path, options: dict[str, str], variables: dict[str, str], said: str | None
) -> None:
    lines = [line for line in filtered(lua, module, options, environment=variables) if line.startswith("info")]
    assert [line.startswith("info: lumisite: ") and str(said) in line for line in lines] == [True] * (said is not None)


def test_it_tells_of_an_own_prolog_in_the_place_of_ours(lua: str, module: Path) -> None:
    module_prolog = "/appl/lumisite/releases/x/spank/task_prolog"
    mine, container = {"task-prolog": "/home/me/prolog"}, ["singularity", "exec", "x.sif"]
    attached = str(module.parent / "task_prolog")

    def said(options: dict[str, str], argv: list[str], environment: str) -> list[str]:
        lines = filtered(lua, module, options, argv, environment={"SLURM_TASK_PROLOG": environment})
        return [line for line in lines if "in the place of" in line]

    for argv, environment, lost in (
        (["python"], module_prolog, module_prolog),
        (container, module_prolog, module_prolog),
        (container, "", attached),
    ):
        (line,) = said(mine, argv, environment)
        assert line.startswith(f"info: lumisite: --task-prolog=/home/me/prolog comes in the place of {lost}: ")
    assert said({"task-prolog": module_prolog}, ["python"], module_prolog) == []
    assert said({"task-prolog": attached}, container, "") == []
    assert said(mine, ["python"], "") == []
    assert said(mine, ["python"], "/home/me/prolog") == []


@pytest.mark.parametrize("broken", ["reading", "writing", "slurm"])
def test_it_never_fails_and_never_vetoes(lua: str, module: Path, broken: str) -> None:
    options = {"cpu-bind": "mask_cpu:1", "cpus-per-task": "7", "gpus-per-task": "1"}
    said = ("debug: ", "info: ", "set task-prolog=", "set export=")
    assert all(line.startswith(said) for line in filtered(lua, module, options, broken=broken))


def test_a_site_can_require_it(lua: str, module: Path) -> None:
    script = f"package.path = {quote_lua(str(module.parent))} .. '/?.lua'; print(require('cli_filter').release)"
    done = subprocess.run([lua, "-e", script], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("2026-01-")


# ---- the MPI that an image needs


LAIF = "/appl/local/laifs/containers/lumi-multitorch-latest.sif"


@pytest.mark.parametrize(
    ("words", "mpi"),
    [
        (f"singularity exec {LAIF} python", True),
        (f"/usr/bin/singularity -c x run -eB /a --bind /b --env=A=b --cleanenv {LAIF} python", True),
        ("apptainer exec lumi-multitorch-mine.sif python", True),
        ("singularity exec ../x/lumi-multitorch-mine.sif python", True),
        (f"singularity exec --what-is-this {LAIF} python", True),
        (f"apptainer instance start {LAIF} mine", True),
        (f"singularity exec --bind /x:/y {'/x' * 3000}.sif python", False),
        ("singularity exec /x/lumi-mpi4py-rocm-6.2.0-python-3.12.sif python", False),
        # The first pattern that fits counts, also where it says nothing of an MPI.
        ("singularity exec /x/lumi-multitorch-libfabric-1.sif python", False),
        ("singularity exec", False),
        (f"python {LAIF}", False),
    ],
)
def test_the_mpi_of_an_image_is_asked_for_its_step(lua: str, module: Path, words: str, *, mpi: bool) -> None:
    assert ("set mpi=pmi2" in filtered(lua, module, argv=words.split())) == mpi


def test_the_mpi_that_the_user_asks_for_stays(lua: str, module: Path) -> None:
    argv = f"singularity exec {LAIF} x".split()
    assert "set mpi=pmi2" not in filtered(lua, module, {"mpi": "none"}, argv)
    assert "set mpi=pmi2" not in filtered(lua, module, {"type": "salloc"}, argv)
    assert all(line.startswith("debug: ") for line in filtered(lua, module, argv=argv, broken="writing"))


def test_long_values_cost_nothing(lua: str, module: Path) -> None:
    """A pattern without an anchor takes a minute for the first, one with several stars for the second."""
    environment = {"SLURM_TASK_PROLOG": "/" * 120_000}
    word = "/lumi-pytorch-rocm-" * 6000
    assert len(filtered(lua, module, argv=["singularity", "exec", word], environment=environment)) == 1
