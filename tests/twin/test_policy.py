"""The policy in real steps: off and observe change nothing, the system log says what on does, and off acts at once."""

from __future__ import annotations

import contextlib
import difflib
import io
import re
from collections.abc import Iterator

import pytest

from lumisite.cli import main
from tests.twin.cluster import SITE_TREE, Cluster, ClusterPlan, running
from tests.twin.fixtures import require_twin
from tests.twin.helper_site import (
    CONTAINER,
    IMAGE,
    LOAD,
    PROLOG,
    TASK,
    deploy_site,
    start_system_log,
    told_by,
)
from tests.twin.test_helper_steps import FILTER, OWN_LIBRARIES, complete, install_filter

pytestmark = [pytest.mark.root, pytest.mark.slurm, pytest.mark.apptainer, pytest.mark.lmod]

#: A filter of a site that has no lumisite.
NO_FILTER = FILTER.replace("current/spank", "gone/spank")
PLAIN = "/scratch/plain-1.sif"
#: All that a program can see of how it was started, in an order that is always the same.
LOOK = """#!/bin/sh
{
    env -0 | sort -z | tr '\\0\\n' '\\n '
    grep Cpus_allowed_list /proc/self/status
    ulimit -a
    pwd
    umask
    cut -d ' ' -f 4- /proc/self/mountinfo | sed 's/ [a-z_]*:[0-9]* / /' | sort
    for process in $$ $PPID; do tr '\\0' ' ' </proc/$process/cmdline; done
} >"/scratch/seen/${SLURM_PROCID-clean}.$(uname -n).$(sed -n 's/Cpus_allowed_list:.//p' /proc/self/status)"
"""
#: Steps of each shape that users start: what srun is given, and what it starts.
SHAPES = [
    # Without PATH, srun finds no program by its name.
    "-n1 --export=NONE /usr/bin/singularity --quiet exec -B /scratch {image} /scratch/look",
    "-n1 --export=NONE --cpu-bind=cores /usr/bin/apptainer --quiet exec -B /scratch {plain} /scratch/look",
    *(
        f"{options} {command}"
        for options in (
            "-n1",
            "-N2 -n2",
            "-N2 -n4",
            "-N1 -n2 --cpu-bind=none",
            "-n2 -c1 --cpu-bind=cores",
            "-n1 --export=ALL,MINE=x",
            "-n1 --chdir=/tmp",
            "-p standard-g -N1 -n2",
            "-n2 --hint=nomultithread",
            "-N2 -n2 --distribution=cyclic",
        )
        for command in (
            "singularity --quiet exec -B /scratch {image} /scratch/look",
            "apptainer --quiet exec -B /scratch {image} /scratch/look",
            "singularity --quiet exec --cleanenv -B /scratch,/usr:/host {plain} /scratch/look",
            "/scratch/look",
            "sh -c 'exec /scratch/look'",
        )
    ),
]
#: What a step that acts is seen to be another by, without a bind of the user's that the helper has too.
TOUCHED = "singularity --quiet exec -B /scratch/seen {image} /scratch/look"
#: What Slurm leaves in a task where any prolog has run.
LEFT = re.compile(r"^SLURM_SCRIPT_CONTEXT=.*\n", re.MULTILINE)
#: What differs between any two steps.
VARYING = re.compile(
    r"^(SLURM_(JOB_?ID|JOB_SLUID|STEP_?ID|STEP_LAUNCHER_PORT|SRUN_COMM_PORT|TASK_PID|JOB_START_TIME|JOB_END_TIME)"
    r"|SLURMD_DEBUG|PMI_FD|SLURM_TOPOLOGY_ADDR\w*|PMIX?_\w+|RANDOM)=.*|(?<=slurmstepd: )\[[0-9.]+\]",
    re.MULTILINE,
)


@pytest.fixture(scope="module")
def filtered() -> Iterator[Cluster]:
    """A cluster whose cli_filter knows the policy."""
    require_twin()
    lines, etc = ("CliFilterPlugins=cli_filter/lua",), (("slurm/cli_filter.lua", "-- replaced below\n"),)
    with running(ClusterPlan(images=("small",), slurm_lines=lines, etc=etc)) as cluster:
        deploy_site(cluster, OWN_LIBRARIES)
        look = cluster.shared / "scratch/look"
        look.write_text(LOOK)
        look.chmod(0o755)
        cluster.run(f"mkdir -p /scratch/seen; ln -f {IMAGE} {PLAIN} || cp {IMAGE} {PLAIN}").check()
        yield cluster


@pytest.fixture(scope="module")
def site_wide() -> Iterator[Cluster]:
    """A cluster where slurm.conf names the prolog, for all steps."""
    require_twin()
    plan = ClusterPlan(images=("small",), slurm_lines=(f"TaskProlog={PROLOG}",))
    with running(plan) as cluster:
        deploy_site(cluster)
        yield cluster


def policy(cluster: Cluster, *words: str) -> None:
    root = cluster.shared / SITE_TREE.removeprefix("/")
    with contextlib.redirect_stdout(io.StringIO()):
        assert main(["policy", str(root), *words]) == 0


#: What srun says where the node of the step before is not free yet.
QUEUED = re.compile(r"srun: job \d+ (queued and waiting for resources|has been allocated resources)\n")


def seen(cluster: Cluster, shape: str, before: str = "") -> dict[str, str]:
    """Run a step; give what each of its tasks saw."""
    folder = cluster.shared / "scratch/seen"
    for path in folder.iterdir():
        path.unlink()
    words = shape.format(image=IMAGE, plain=PLAIN)
    done = cluster.run(f"{before} cd /scratch; srun {words}").check()
    assert (done.stdout, QUEUED.sub("", done.stderr)) == ("", "")
    found = {path.name: VARYING.sub(r"\\1", LEFT.sub("", path.read_text())) for path in folder.iterdir()}
    assert found
    return found


def differences(before: dict[str, str], after: dict[str, str]) -> list[str]:
    """Give the lines of tasks that differ."""
    found = [] if before.keys() == after.keys() else [f"tasks {sorted(before)} and {sorted(after)}"]
    for task in before.keys() & after.keys():
        lines = difflib.unified_diff(before[task].split("\n"), after[task].split("\n"), lineterm="", n=0)
        found += [f"{task}: {line}" for line in lines if not line.startswith(("---", "+++", "@@"))]
    return found


def test_observed_steps_are_as_steps_without_lumisite(filtered: Cluster) -> None:
    # The thousand steps have all shapes.
    for shape in SHAPES[::8]:
        install_filter(filtered, NO_FILTER)
        expected = seen(filtered, shape)
        install_filter(filtered)
        for mode in ("off", "observe"):
            policy(filtered, mode)
            assert differences(expected, seen(filtered, shape)) == [], (mode, shape)
    expected = seen(filtered, f"-n1 {TOUCHED}")
    policy(filtered, "on")
    assert differences(expected, seen(filtered, f"-n1 {TOUCHED}")), (
        "a step for which it is on differs, or nothing is compared"
    )


def test_observed_steps_of_the_whole_site_are_untouched(site_wide: Cluster) -> None:
    look = site_wide.shared / "scratch/look"
    look.write_text(LOOK)
    look.chmod(0o755)
    site_wide.run(f"mkdir -p /scratch/seen; ln -f {IMAGE} {PLAIN} || cp {IMAGE} {PLAIN}").check()
    root = site_wide.shared / SITE_TREE.removeprefix("/")
    prolog = (root / "current").resolve() / "spank/task_prolog"
    text = prolog.read_text()
    for shape in SHAPES[1::20]:
        prolog.write_text("#!/bin/sh\n")
        expected = seen(site_wide, shape)
        prolog.write_text(text)
        for mode in ("off", "observe"):
            policy(site_wide, mode)
            assert differences(expected, seen(site_wide, shape)) == [], (mode, shape)
    (root / "policy").unlink()
    assert seen(site_wide, SHAPES[0]) == seen(site_wide, SHAPES[0]), "without a policy it is off"
    policy(site_wide, "on")


@pytest.mark.measures
def test_a_thousand_observed_steps_are_as_without_lumisite(filtered: Cluster) -> None:
    policy(filtered, "observe")
    count = 0
    while count < 1000:
        for shape in SHAPES:
            install_filter(filtered, NO_FILTER)
            expected = seen(filtered, shape)
            install_filter(filtered)
            for _ in range(10):
                assert differences(expected, seen(filtered, shape)) == [], shape
                count += 1
    policy(filtered, "on")


def test_off_acts_in_the_next_step_on_all_nodes(filtered: Cluster) -> None:
    install_filter(filtered)
    policy(filtered, "on")
    for told in told_by(filtered.run(f"{LOAD}; srun -N2 {CONTAINER}")):
        complete(told, filtered)
    script = f"{LOAD}; srun -N2 {CONTAINER}; touch /scratch/first; until [ -e /scratch/go ]; do sleep 0.1; done; srun -N2 {TASK}"
    for node in filtered.nodes:
        filtered.run(["tee", "/etc/slurm/cli_filter.lua"], node=node, user="root", stdin=FILTER).check()
    for name in ("first", "go"):
        (filtered.shared / "scratch" / name).unlink(missing_ok=True)
    (filtered.shared / "scratch/job.sh").write_text(
        f"#!/bin/bash -l\n#SBATCH -N2 --ntasks-per-node=1 -o /scratch/kill.out\n{script}\n"
    )
    filtered.run("sbatch --quiet /scratch/job.sh").check()
    filtered.run("for i in $(seq 1500); do [ ! -e /scratch/first ] || exit 0; sleep 0.2; done; exit 1").check()
    policy(filtered, "off")
    (filtered.shared / "scratch/go").touch()
    done = filtered.run('for i in $(seq 1500); do [ "$(squeue -h)" ] || break; sleep 0.2; done; cat /scratch/kill.out')
    steps: dict[str, list[bool]] = {}
    for each in told_by(done):
        steps.setdefault(each.environment["SLURM_STEP_ID"], []).append("LUMISITE_DONE" in each.environment)
    assert steps == {"0": [True, True], "1": [False, False]}
    policy(filtered, "on")


def test_a_system_log_that_does_not_answer_delays_no_task(filtered: Cluster) -> None:
    """The socket's queue is full, so a program that writes to it waits for ever."""
    install_filter(filtered)
    policy(filtered, "observe")
    block = (
        "import os, socket, time\n"
        "if os.path.lexists('/dev/log'): os.unlink('/dev/log')\n"
        "s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM); s.bind('/dev/log'); os.chmod('/dev/log', 0o666)\n"
        "c = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM); c.connect('/dev/log'); c.setblocking(False)\n"
        "try:\n    while True: c.send(b'x')\nexcept BlockingIOError: pass\n"
        "open('/run/blocked', 'w'); time.sleep(3600)\n"
    )
    node = filtered.nodes[0]
    filtered.run(
        ["sh", "-c", f'python3 -c "{block}" >/dev/null 2>&1 & until [ -e /run/blocked ]; do sleep 0.1; done'],
        node=node,
        user="root",
    ).check()
    (told,) = told_by(filtered.run(f"srun -w {node} -n1 {CONTAINER}"))
    assert "LUMISITE_DONE" not in told.environment
    filtered.run("pkill -f [s]ocket.SOCK_DGRAM", node=node, user="root").check()
    policy(filtered, "on")


def test_the_system_log_has_what_the_task_would_get(filtered: Cluster) -> None:
    install_filter(filtered)
    node = filtered.nodes[1]
    start_system_log(filtered, node, "/run/logged")
    step = f"srun -w {node} -n1 {CONTAINER}"
    policy(filtered, "observe")
    exports: dict[str, str] = {}
    # Lines that a busy machine does not take in time are lost.
    for _ in range(10):
        filtered.run(step).check()
        text = filtered.run("sleep 0.5; cat /run/logged", node=node, user="root").check().stdout
        exports = dict(re.findall(r"lumisite\[[0-9.]+\]: export (\w+)=(.*)", text))
        if "LUMISITE_EXPORTS" in exports:
            break
    policy(filtered, "on")
    (told,) = told_by(filtered.run(step))
    names = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME", "MIOPEN_USER_DB_PATH", "LUMISITE_STEP")
    assert {name: exports.get(name) for name in names} == {name: told.environment.get(name) for name in names}, text
