"""A cluster with the twin's site deployed, and one line that tells what a task and its container have."""

from __future__ import annotations

import contextlib
import io
import json
import shlex
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from lumisite.cli import main
from lumisite.site.load import EMBEDDED
from tests.twin.cluster import EXCHANGE, SITE_TREE, Cluster
from tests.twin.process import Result

GENERATIONS = ("bookworm", "trixie", "sid")
IMAGE = "/appl/images/small.sif"
PROLOG = f"{SITE_TREE}/current/spank/task_prolog"
LOAD = f"module use {SITE_TREE}/current/modules; module load singularity-AI-bindings"

#: Runs in a task or in its container; `places` are looked at there. Lines of less than 1 KiB reach srun whole.
TELL = """
import json, os, socket, stat
def mode(path):
    try:
        found = os.stat(path)
        return [oct(stat.S_IMODE(found.st_mode)), found.st_uid]
    except OSError:
        return None
places = ["/scratch", "/project", "/opt/cray", "/usr/lib64/libcxi.so.1", "/var/spool/slurmd", "/.singularity.d"]
prefixes = ("NCCL_", "GLOO_", "MIOPEN_", "MASTER_", "PYTHON", "LUMISITE_", "SINGULARITY_B", "LD_", "PATH", "SLURM_STEP_",
    "SLURM_PROCID", "SLURM_LOCALID", "HOME")
environment = {name: value for name, value in os.environ.items() if name.startswith(prefixes)}
told = {"node": socket.gethostname(), "environment": environment, "user": os.getuid()}
told["places"] = [place for place in places if os.path.exists(place)]
told["private"] = mode(os.environ.get("MIOPEN_USER_DB_PATH", ""))
text = json.dumps(told)
who = f"{told['node']}/{environment.get('SLURM_STEP_ID')}/{os.getpid()}"
for begin in range(0, len(text), 500):
    print("TOLD", who, begin, json.dumps(text[begin : begin + 500]), flush=True)
"""

#: Starts a program with an environment from a file, which may hold what no command line can.
LAUNCH = """
import json, os, sys
with open(sys.argv[1], encoding="utf-8", errors="surrogateescape") as stream:
    changes = {os.fsencode(name): os.fsencode(value) for name, value in json.load(stream).items()}
environment = {**os.environb, **changes}
os.execvpe(sys.argv[2], sys.argv[2:], environment)
"""


@dataclass(frozen=True)
class Told:
    """What one task or container said of itself."""

    node: str
    environment: dict[str, str]
    places: list[str]
    private: list[object] | None
    user: int

    @property
    def binds(self) -> list[str]:
        return self.environment.get("SINGULARITY_BINDPATH", "").split(",")

    @property
    def ours(self) -> dict[str, str]:
        """The variables of the helper's own, but for the modules'."""
        return {n: v for n, v in self.environment.items() if n.startswith("LUMISITE_") and n != "LUMISITE_STACK"}


def deploy_site(cluster: Cluster, changes: Mapping[str, str] = {}) -> None:
    """Render the twin's site, with words of its description changed, and deploy it where its nodes see it.

    The scripts above are put where nodes see them too.
    """
    with (
        tempfile.TemporaryDirectory() as work,
        contextlib.redirect_stdout(io.StringIO()),
        contextlib.redirect_stderr(io.StringIO()),
    ):
        out, root = Path(work) / "out", cluster.shared / SITE_TREE.removeprefix("/")
        text = (EMBEDDED / "twin.yaml").read_text()
        for old, new in changes.items():
            assert old in text
            text = text.replace(old, new, 1)
        site = Path(work) / "twin.yaml"
        site.write_text(text)
        assert main(["render", "--site", str(site), "--rocm", "6.2", "--out", str(out)]) == 0
        assert main(["deploy", str(out), str(root), "--apply"]) == 0
        assert main(["policy", str(root), "on"]) == 0
    (cluster.exchange / "tell.py").write_text(TELL)
    (cluster.exchange / "launch.py").write_text(LAUNCH)


#: A system log: what programs send to /dev/log goes to a file.
_SYSTEM_LOG = """
import os, socket, sys
stream = open(sys.argv[1], "a")
os.path.lexists("/dev/log") and os.unlink("/dev/log")
log = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
log.bind("/dev/log")
os.chmod("/dev/log", 0o666)
while True:
    stream.write(log.recv(65536).decode() + "\\n")
    stream.flush()
"""


def start_system_log(cluster: Cluster, node: str, file: str) -> None:
    """Let a node have a system log, in a file that it sees; it ends with the node."""
    (cluster.exchange / "log.py").write_text(_SYSTEM_LOG)
    start = f"python3 {EXCHANGE}/log.py {file} >/dev/null 2>&1 & until [ -S /dev/log ]; do sleep 0.1; done"
    cluster.run(["sh", "-c", f"rm -f /dev/log; {start}"], node=node, user="root").check()


TASK = f"python3 {EXCHANGE}/tell.py"
CONTAINER = f"singularity --quiet exec --bind {EXCHANGE} {IMAGE} python3 {EXCHANGE}/tell.py"


def told_by(done: Result) -> list[Told]:
    """Read what tasks said, ordered by node and rank; whatever they ran in must have gone well."""
    parts: dict[str, dict[int, str]] = {}
    for line in done.check().stdout.splitlines():
        if line.startswith("TOLD "):
            _, who, begin, part = line.split(" ", 3)
            parts.setdefault(who, {})[int(begin)] = json.loads(part)
    found = [Told(**json.loads("".join(text for _, text in sorted(each.items())))) for each in parts.values()]
    return sorted(found, key=lambda told: (told.node, int(told.environment.get("SLURM_PROCID", "0"))))


def run_with(cluster: Cluster, changes: Mapping[str, str], command: str) -> Result:
    """Run a command on the login node with an environment that a shell could not even start with."""
    name = cluster.exchange / "environment.json"
    name.write_text(json.dumps(dict(changes)))
    words = ["python3", "-SEs", f"{EXCHANGE}/launch.py", f"{EXCHANGE}/environment.json", *shlex.split(command)]
    return cluster.run(words)
