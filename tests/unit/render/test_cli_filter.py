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
    path = lay_out(tmp_path, lumi_like_files()) / "cli_filter.lua"
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
    """Run the filter for srun; return what it set and said, line by line."""
    script = HARNESS % {
        "options": table({"type": "srun", **(options or {})}),
        "argv": "{" + ", ".join(map(quote_lua, argv)) + "}",
        "broken": quote_lua(broken),
        "path": quote_lua(str(module)),
    }
    done = subprocess.run([lua, "-"], input=script, capture_output=True, text=True, env=dict(environment or {}))
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines.pop() == "answer nil"
    return lines


NAMES = ("task-prolog", "cpu-bind", "export", "gpu-bind", "gpus-per-task", "ntasks-per-gpu", "cpus-per-task")
CONTAINER = ["singularity", "exec", "x.sif"]


def test_the_prolog_is_attached_to_container_steps(lua: str, module: Path) -> None:
    attached = [f"set task-prolog={module.parent}/task_prolog"]
    for command in ("singularity", "apptainer", "/usr/bin/singularity", "./apptainer"):
        assert filtered(lua, module, argv=[command, "exec", "x.sif"]) == attached
    # An option that is not set is known in each form.
    for unset in ("", "unset", "-2", "0", "(null)", "invalid-context"):
        assert filtered(lua, module, dict.fromkeys(NAMES, unset)) == attached
    (module.parent / "task_prolog").unlink()
    assert [line.partition(":")[0] for line in filtered(lua, module)] == ["verbose"], "a prolog that is not there"


@pytest.mark.parametrize(
    ("argv", "options", "environment"),
    [
        *((argv, {}, {}) for argv in (["python"], ["my-singularity"], ["singularity.sh"], ["singularity/run"], [])),
        *((CONTAINER, {"type": command}, {}) for command in ("sbatch", "salloc")),
        (CONTAINER, {"gpus-per-task": "1"}, {"LUMISITE": "off"}),
    ],
    ids=str,
)
def test_other_steps_are_left_alone(
    lua: str, module: Path, argv: list[str], options: dict[str, str], environment: dict[str, str]
) -> None:
    assert filtered(lua, module, options, argv, environment=environment) == []


def test_a_job_keeps_the_release_that_it_started_with(lua: str, module: Path, tmp_path: Path) -> None:
    release = lumi_like_files()["spank/cli_filter.lua"].partition('site = {\n  release = "')[2].partition('"')[0]
    root = tmp_path / "root"
    (root / "releases").mkdir(parents=True)
    (root / "releases" / release).symlink_to(module.parent.parent)
    (root / "current").symlink_to(f"releases/{release}")
    (root / "policy").write_text("on default\n")
    lines = filtered(lua, root / "current/spank/cli_filter.lua")
    assert lines == [f"set task-prolog={root}/releases/{release}/spank/task_prolog"]


INSIDE = {"SLURM_STEP_ID": "0", "SLURM_CPU_BIND": "quiet,mask_cpu:0x1"}


@pytest.mark.parametrize(
    ("binding", "export", "environment", "after"),
    [
        *(
            (words, "", {}, "ALL,")
            for words in ("cores", "quiet,threads", "map_cpu:0,1", "mask_cpu:0xff", "rank", "ldoms")
        ),
        ("cores", "ALL,A=b", {}, "ALL,A=b,"),
        ("sockets", "NONE", {}, ""),
        *((words, "", {}, None) for words in ("none", "quiet", "verbose", "quiet,none", "")),
        # One that came from the step around it is nobody's wish; a batch script under Slurm 26.05 is no step.
        ("quiet,mask_cpu:0x1", "", INSIDE, None),
        ("cores", "", {**INSIDE, "SLURM_STEP_ID": "-5"}, "ALL,"),
    ],
)
def test_a_users_cpu_binding_is_marked(
    lua: str, module: Path, binding: str, export: str, environment: dict[str, str], after: str | None
) -> None:
    lines = filtered(lua, module, {"cpu-bind": binding, "export": export}, environment=environment)
    marks = [line for line in lines if "set export" in line]
    assert marks == ([] if after is None else [f"set export={after}LUMISITE_CPU_BIND=user"])


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
    by_module, attached, mine = (
        "/appl/lumisite/releases/x/spank/task_prolog",
        str(module.parent / "task_prolog"),
        "/home/me/p",
    )
    for named, argv, environment, lost in (
        (mine, ["python"], by_module, by_module),
        (mine, CONTAINER, by_module, by_module),
        (mine, CONTAINER, "", attached),
        (by_module, ["python"], by_module, None),
        (attached, CONTAINER, "", None),
        (mine, ["python"], "", None),
        (mine, ["python"], mine, None),
    ):
        lines = filtered(lua, module, {"task-prolog": named}, argv, environment={"SLURM_TASK_PROLOG": environment})
        found = [line.partition(": call that")[0] for line in lines if "in the place of" in line]
        assert found == ([f"info: lumisite: --task-prolog={named} comes in the place of {lost}"] if lost else [])


@pytest.mark.parametrize("broken", ["reading", "writing", "slurm"])
def test_it_never_fails_and_never_vetoes(lua: str, module: Path, broken: str) -> None:
    options = {"cpu-bind": "mask_cpu:1", "cpus-per-task": "7", "gpus-per-task": "1"}
    said = ("debug: ", "info: ", "set task-prolog=", "set export=")
    assert all(line.startswith(said) for line in filtered(lua, module, options, broken=broken))


LAIF = "/appl/local/laifs/containers/lumi-multitorch-latest.sif"


@pytest.mark.parametrize(
    ("words", "options", "mpi"),
    [
        (f"singularity exec {LAIF} python", {}, True),
        (f"/usr/bin/singularity -c x run -eB /a --bind /b --env=A=b --cleanenv {LAIF} python", {}, True),
        ("apptainer exec lumi-multitorch-mine.sif python", {}, True),
        ("singularity exec ../x/lumi-multitorch-mine.sif python", {}, True),
        (f"singularity exec --what-is-this {LAIF} python", {}, True),
        (f"apptainer instance start {LAIF} mine", {}, True),
        (f"singularity exec --bind /x:/y {'/x' * 3000}.sif python", {}, False),
        ("singularity exec /x/lumi-mpi4py-rocm-6.2.0-python-3.12.sif python", {}, False),
        # The first pattern that fits counts, also where it says nothing of an MPI.
        ("singularity exec /x/lumi-multitorch-libfabric-1.sif python", {}, False),
        ("singularity exec", {}, False),
        (f"python {LAIF}", {}, False),
        (f"singularity exec {LAIF} x", {"mpi": "none"}, False),  # the user's
        (f"singularity exec {LAIF} x", {"type": "salloc"}, False),
    ],
)
def test_the_mpi_of_an_image_is_asked_for_its_step(
    lua: str, module: Path, words: str, options: dict[str, str], *, mpi: bool
) -> None:
    assert ("set mpi=pmi2" in filtered(lua, module, options, words.split())) == mpi


def test_long_values_cost_nothing(lua: str, module: Path) -> None:
    """A pattern without an anchor takes a minute for the first, one with several stars for the second."""
    environment = {"SLURM_TASK_PROLOG": "/" * 120_000}
    word = "/lumi-pytorch-rocm-" * 6000
    assert len(filtered(lua, module, argv=["singularity", "exec", word], environment=environment)) == 1
