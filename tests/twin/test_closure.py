"""A plan against the truth: containers of the twin are started with it, and load exactly what it says.

Each image is planned against the real root of a compute node, the plan is reviewed, rendered and deployed, and the
image is started by srun through the wrapper. A small program in it opens the roots of the family by name; what the
loader says (`LD_DEBUG`) and what the kernel mapped (/proc/self/maps) are compared with the plan.
"""

from __future__ import annotations

import hashlib
import json
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from lumisite.cli import main
from tests.support.sites import site_text
from tests.twin.cluster import EXCHANGE, SITE_TREE, Cluster, ClusterPlan, running
from tests.twin.fixtures import require_twin
from tests.twin.helper_site import LOAD
from tests.twin.image import image
from tests.twin.node import first_process

pytestmark = [pytest.mark.root, pytest.mark.slurm, pytest.mark.apptainer, pytest.mark.lmod]

ROOTS = ("libcxi.so.1", "libfabric.so.1")
IMAGES = ("small", "own-network", "lib64-network", "older-libc", "torch")
#: Debian's file behind libfabric.so.1, over which a bind must be put.
OWN_FABRIC = "libfabric.so.1.27.0"
ACCEPTED = "one node is enough"

#: Opens libraries by name and tells what was mapped for it. LD_DEBUG is read at the start only, hence the second start.
PROBE = """
import ctypes, hashlib, json, os, sys
log = "/tmp/ld-debug-%d" % os.getpid()
if "LD_DEBUG" not in os.environ:
    os.environ.update(LD_DEBUG="libs", LD_DEBUG_OUTPUT=log, PROBE_LOG="%s.%d" % (log, os.getpid()))
    os.execv(sys.executable, [sys.executable, *sys.argv])
failed = {}
for name in sys.argv[1:]:
    try:
        ctypes.CDLL(name)
    except OSError as error:
        failed[name] = str(error)
mounts = [line.split()[4] for line in open("/proc/self/mountinfo")]
def mount_of(path):
    return max((one for one in mounts if path == one or path.startswith(one.rstrip("/") + "/")), key=len)
mapped = {line.split(None, 5)[5].rstrip("\\n") for line in open("/proc/self/maps") if line.count(None or "/")}
mapped = {path for path in mapped if ".so" in path}
said = {line.split("calling init: ")[1].strip() for line in open(os.environ["PROBE_LOG"]) if "calling init: " in line}
told = {
    "failed": failed,
    "mapped": {path: [mount_of(path), hashlib.sha256(open(path, "rb").read()).hexdigest()] for path in mapped},
    "said": sorted(map(os.path.realpath, said)),
}
text = json.dumps(told)
for begin in range(0, len(text), 500):
    print("TOLD", json.dumps(text[begin : begin + 500]), flush=True)
"""


@dataclass(frozen=True)
class Told:
    """What the probe said: `host` are the mapped files that do not come from the image, with their SHA-256."""

    failed: dict[str, str]
    host: dict[str, str]
    own: set[str]
    said: set[str]
    stderr: str


@dataclass(frozen=True)
class Planned:
    """A cluster with the plans of its images deployed: `lines` by image and SONAME."""

    cluster: Cluster
    lines: dict[str, dict[str, dict[str, str]]]

    @property
    def node(self) -> str:
        return self.cluster.nodes[0]

    @property
    def root(self) -> Path:
        """The root of the node as its own processes see it."""
        return Path(f"/proc/{first_process(self.cluster.node_folder(self.node)).pid}/root")

    def bound(self, name: str) -> dict[str, str]:
        """Give the hash of the host's file for each path at which the plan binds one."""
        lines = (line for line in self.lines[name].values() if line["decision"] == "bind")
        return {
            line["target"]: hashlib.sha256((self.root / line["source"][1:]).read_bytes()).hexdigest() for line in lines
        }

    def probe(self, name: str, *libraries: str, options: str = "", environment: str = "") -> Told:
        words = f"--bind {EXCHANGE} {options} /appl/images/{name}.sif python3 {EXCHANGE}/probe.py {' '.join(libraries)}"
        done = self.cluster.run(f"{LOAD}; {environment} srun -n1 singularity --quiet exec {words}").check()
        parts = [json.loads(line[5:]) for line in done.stdout.splitlines() if line.startswith("TOLD ")]
        told = json.loads("".join(parts))
        mapped = told["mapped"].items()
        return Told(
            failed=told["failed"],
            host={path: digest for path, (mount, digest) in mapped if mount != "/"},
            own={path for path, (mount, _) in mapped if mount == "/"},
            said=set(told["said"]),
            stderr=done.stderr,
        )


def plan_and_deploy(cluster: Cluster, work: Path) -> dict[str, dict[str, dict[str, str]]]:
    """Plan each image against the node's root, accept what it cannot have, render and deploy."""
    pid = first_process(cluster.node_folder(cluster.nodes[0])).pid
    (work / "plans").mkdir()
    names = ", ".join(f"plans/{name}.yaml" for name in IMAGES)
    (work / "twin.yaml").write_text(site_text())
    lines = {}
    for name in IMAGES:
        file = work / f"plans/{name}.yaml"
        where = ["--site", str(work / "twin.yaml"), "--host-root", f"/proc/{pid}/root"]
        main(["binds", str(image(name)), *where, "--path", f"/appl/images/{name}.sif", "--write", str(file)])
        file.write_text(re.sub(r"(decision: (?:refuse|missing)\n)", rf"\1  accepted: {ACCEPTED}\n", file.read_text()))
        lines[name] = {line["library"]: line for line in yaml.safe_load(file.read_text())["lines"]}
    (work / "twin.yaml").write_text(site_text(("modules:\n  sing", f"plans: [{names}]\nmodules:\n  sing")))
    out, root = work / "out", cluster.shared / SITE_TREE.removeprefix("/")
    assert main(["render", "--site", str(work / "twin.yaml"), "--rocm", "6.2", "--out", str(out)]) == 0
    assert main(["deploy", str(out), str(root), "--apply"]) == 0
    (cluster.exchange / "probe.py").write_text(PROBE)
    return lines


@pytest.fixture(scope="module")
def planned(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Planned]:
    require_twin()
    with running(ClusterPlan(nodes=1, images=IMAGES)) as cluster:
        yield Planned(cluster, plan_and_deploy(cluster, tmp_path_factory.mktemp("plans")))


def decisions(planned: Planned, name: str) -> dict[str, str]:
    return {library: line["decision"] for library, line in planned.lines[name].items()}


def loads_exactly_what_is_planned(planned: Planned, name: str) -> Told:
    """Open the roots; the host's files that are loaded are those of the plan, to the byte, no more and no less."""
    told = planned.probe(name, *ROOTS)
    assert told.failed == {}
    assert told.host == planned.bound(name)
    assert set(told.host) <= told.said, "the loader itself says the same"
    assert told.said - {path for path in told.said if "/ld-linux" in path} <= {*told.host, *told.own}
    assert told.stderr == ""
    return told


BOUND = [
    "libcxi.so.1",
    "libfabric.so.1",
    "libyaml-0.so.2",
    "libnl-3.so.200",
    "libjson-c.so.5",
    "libhsa-runtime64.so.1",
]


def test_an_image_that_lacks_all_gets_all_and_nothing_else(planned: Planned) -> None:
    assert [name for name, one in decisions(planned, "small").items() if one == "bind"] == BOUND
    loads_exactly_what_is_planned(planned, "small")


def test_without_its_plan_the_same_image_finds_nothing(planned: Planned) -> None:
    """The modules bind /opt/cray and libcxi, where this image's loader does not look."""
    told = planned.probe("small", *ROOTS, environment="LUMISITE_FAMILY=twin-torch")
    assert set(told.failed) == set(ROOTS)
    assert all("cannot open shared object file" in text for text in told.failed.values())


def test_an_image_that_brings_its_own_loads_nothing_of_the_host(planned: Planned) -> None:
    assert set(decisions(planned, "own-network").values()) == {"skip"}
    told = loads_exactly_what_is_planned(planned, "own-network")
    assert told.host == {}
    names = {Path(path).name.partition(".so")[0] for path in told.own}
    assert {"libcxi", "libfabric"} <= names


def test_a_bind_that_would_hide_the_images_newer_library_is_taken_away(planned: Planned) -> None:
    """The module binds the host's libcxi to the path at which this image has its own."""
    line = planned.lines["lib64-network"]["libcxi.so.1"]
    assert (line["decision"], line["without"]) == ("skip", "/usr/lib64/libcxi.so.1")
    told = loads_exactly_what_is_planned(planned, "lib64-network")
    assert told.host == {}
    assert [path for path in told.own if path.startswith("/usr/lib64/libcxi.so.1")]
    hidden = planned.probe("lib64-network", *ROOTS, environment="LUMISITE_FAMILY=twin-torch")
    assert set(hidden.failed) == set(ROOTS), (
        "without its plan it gets the host's copy, which needs what this image lacks"
    )
    assert all("libyaml-0.so.2: cannot open shared object file" in text for text in hidden.failed.values())


def by_hand(planned: Planned, *libraries: str) -> str:
    """Give options that bind libraries of the node where a Debian image's loader looks."""
    folder = "/usr/lib/x86_64-linux-gnu"
    lines = {name: line for lines in planned.lines.values() for name, line in lines.items() if "source" in line}
    return " ".join(f"--bind {shlex.quote(lines[name]['source'] + f':{folder}/{name}')}" for name in libraries)


def test_what_the_plan_refuses_the_real_loader_refuses_for_the_same_reason(planned: Planned) -> None:
    lines = planned.lines["older-libc"]
    assert decisions(planned, "older-libc") == dict.fromkeys(ROOTS, "refuse")
    version = re.search(r"needs (GLIBC_\S+) of libc\.so\.6", lines["libcxi.so.1"]["reason"])
    assert version is not None
    told = planned.probe("older-libc", *ROOTS, options=by_hand(planned, *BOUND))
    assert set(told.failed) == set(ROOTS)
    for text in told.failed.values():
        assert f"version `{version[1]}' not found" in text


def test_a_refused_library_is_not_there_and_users_are_told_why(planned: Planned) -> None:
    told = planned.probe("older-libc", *ROOTS)
    assert told.host == {}
    assert all("cannot open shared object file" in text for text in told.failed.values())
    for name in ROOTS:
        said = f"lumisite: /appl/images/older-libc.sif runs without the host's {name} here: {ACCEPTED}\n"
        assert told.stderr.count(said) == 1


def test_a_distributions_newer_libfabric_is_refused_and_neither_copy_would_do(planned: Planned) -> None:
    """Debian's libfabric has no cxi provider; the host's stand-in lacks what Debian's Open MPI wants of it."""
    line = planned.lines["torch"]["libfabric.so.1"]
    assert line["decision"] == "refuse"
    assert "built without libcxi.so.1, so its traffic would go over TCP" in line["reason"]
    assert re.search(
        r"the host's copy lacks FABRIC_1\.\d, which lib(mpi|open-pal)\.so\.\d+ of the image needs", line["reason"]
    )
    own = planned.probe("torch", "libfabric.so.1", "libmpi.so.40")
    assert own.failed == {}
    assert [path for path in own.own if "/libfabric.so" in path]
    assert not [path for path in {*own.own, *own.host} if "/libcxi" in path]
    instead = by_hand(planned, "libfabric.so.1", "libcxi.so.1", "libjson-c.so.5", "libhsa-runtime64.so.1")
    over = instead.replace("/libfabric.so.1 ", f"/{OWN_FABRIC} ")
    told = planned.probe("torch", "libmpi.so.40", options=over, environment="SINGULARITYENV_LD_BIND_NOW=1")
    assert "undefined symbol: fi_" in told.failed["libmpi.so.40"]


def test_what_else_the_image_gets_is_as_planned(planned: Planned) -> None:
    told = planned.probe("torch", "libcxi.so.1")
    assert told.failed == {}
    assert told.host == planned.bound("torch")
    skipped = {line["target"] for line in planned.lines["torch"].values() if line["decision"] == "skip"}
    assert {Path(path).name for path in skipped} == {"libyaml-0.so.2", "libnl-3.so.200", "libc.so.6"}
