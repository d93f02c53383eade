"""One folder with everything that commands read, and commands that see nothing of this machine."""

from __future__ import annotations

import contextlib
import functools
import io
import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from unittest import mock

from lumisite import __version__
from lumisite.cli import main
from lumisite.machine.host import DiskTree
from lumisite.site.load import load_site
from lumisite.validate.run.folder import create_run
from lumisite.validate.run.plan import JobPlan, plans_of
from tests.support.dict_trees import Link, write_tree
from tests.support.example_runs import Maintenance, write_runs
from tests.support.images import PARTITION, PRIMARY, SQUASHFS, laif, sif, squash
from tests.support.nodes import AFTER, BEFORE, lumi_node
from tests.support.records import DATA
from tests.support.rendered_trees import NEW, OLD, tree, written
from tests.support.requests import LOADED, a_request

#: Runs a command line, for what commands write themselves.
Call = Callable[[str], object]
NODES = ("nid000001", "nid000002")
_SLURM = {
    "squeue": "7|COMPLETED|None\n",
    "sinfo": "".join(f"{name}|idle\n" for name in NODES),
    "scontrol": "\n".join(NODES) + "\n",
    "sbatch": "7\n",
    "sacct": "COMPLETED\n",
    "scancel": "",
}
_JOB = (
    "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --gpus-per-node=8\n#SBATCH --mem=480G\n#SBATCH --time=10:00\n"
    "export MASTER_PORT=29500\nmodule load LUMI/24.03 rocm\nexport NCCL_SOCKET_IFNAME=hsn0\n"
    "cat <<'END'\nx $(y\nEND\nfor i in 1 2; do srun --het-group=1 -N2 --cpu-bind=mask_cpu:0xfe,0xfe00 \\\n"
    "  singularity exec -B /pfs:/pfs x.sif bash -c 'python \"a.py\"'; done\n"
)


@contextlib.contextmanager
def command_files(top: Path) -> Iterator[Path]:
    """Lay all out that commands read, let nothing of this machine be seen, and work in that folder."""
    before = Path.cwd()
    with mock.patch.dict(os.environ):
        for name in [name for name in os.environ if name.startswith(("LUMISITE", "SLURM", "NCCL", "SINGULARITY"))]:
            del os.environ[name]
        _at_edges()
        try:
            _lay_out(top / "files", lambda words: call(words.split()))
            yield top / "files"
        finally:
            mock.patch.stopall()
            os.chdir(before)


def call(words: Sequence[str]) -> tuple[int, str]:
    """Run a command line; returns its exit code and what it prints."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
        return main(words), out.getvalue()


def _at_edges() -> None:
    """Put files in the place of Slurm and of this node, and let nothing wait."""
    import lumisite.cli.masks as masks
    import lumisite.cli.validate as validate
    from lumisite.validate.run import new_request, runner, slurm

    quick = functools.partial(runner.Runner, marks_s=0, slurm_s=0, grace_s=0)
    for module, name, instead in (
        (slurm, "_run", slurm_says),
        (runner, "Runner", quick),
        (validate, "Runner", quick),
        (masks, "DiskTree", lambda _: DiskTree("node")),
        (new_request, "require_shared", lambda *_: None),
    ):
        mock.patch.object(module, name, instead).start()


def _lay_out(scene: Path, call: Call) -> None:
    """Lay it out in a new folder, and go there."""
    scene.mkdir()
    os.chdir(scene)
    os.environ["LUMISITE_SITE"] = "lumi"  # as an admin names it for good
    _sites()
    write_runs(scene / "runs", Maintenance(nodes=4, failed_gate="transport"))
    _nodes(scene, call)
    _images(scene, call)
    data = DATA.parent
    for name, source in (
        ("node.xml", "nodes/lumi-g.xml"),
        ("rank.log", "transport/pass-rccl218-aws-ofi-rccl14-cxi.log"),
        ("fail.log", "transport/fail-two-nics-of-four.log"),
    ):
        shutil.copyfile(data / source, scene / name)
    Path("job.sh").write_text(_JOB)
    written(scene / "new", tree(NEW))
    for release, libfabric in ((OLD, "1.15.2.0"), ("2026-07-aaaaaaaaaaaa", "2.0")):
        written(scene / "kept", tree(release, libfabric=libfabric))
        call("deploy kept root --apply")
        shutil.rmtree(scene / "kept")
    call("policy root observe --partition standard-g")
    call("render --site site.yaml --out rendered")
    call("deploy rendered host-root --apply")
    _run(scene / "resumed")


def slurm_says(argv: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """Answer as Slurm."""
    return subprocess.CompletedProcess(list(argv), 0, _SLURM[argv[0]], "")


def _sites() -> None:
    Path("site.yaml").write_bytes(LOADED.data)
    text = load_site("lumi").data.decode()
    Path("lumi.yaml").write_text(
        text.replace("\nimages:\n", "\nimages:\n  lock: images.lock\n") + "\nplans: [plan.yaml]\n"
    )


def _nodes(scene: Path, call: Call) -> None:
    for name, versions in (("facts", BEFORE), ("later", AFTER)):
        shutil.rmtree(scene / "node", ignore_errors=True)
        files = lumi_node(versions)
        files["/proc/self/mountinfo"] = files["/proc/mounts"] = b"21 1 0:19 / / rw - tmpfs tmpfs rw\n"
        files["/etc/ld.so.cache"] = b""
        files["/etc/ld.so.conf"] = b"include /etc/ld.so.conf.d/*.conf\n/usr/lib64\n"
        files["/etc/ld.so.conf.d/x.conf"] = b"/opt/cray/pe/lib64\n"
        files["/etc/slurm/slurm.conf"] = b"SlurmctldHost=x\nInclude /etc/slurm/more.conf\nTaskProlog=/x\n"
        files["/etc/slurm/more.conf"] = b"Prolog=/appl/x\n"
        files["/etc/slurm/plugstack.conf"] = b"include /etc/slurm/plugstack.conf.d/*\n"
        files["/etc/slurm/plugstack.conf.d/a.conf"] = b"required /usr/lib64/slurm/libslurmfull.so\n"
        write_tree(scene / "node", files)
        if ldconfig := shutil.which("ldconfig", path="/sbin:/usr/sbin"):
            subprocess.run([ldconfig, "-r", str(scene / "node")], check=False, capture_output=True)
        call(f"facts --root node -o {name}.json")


def _images(scene: Path, call: Call) -> None:
    packed = {"image": "gzip", "xz": "xz", "zstd": "zstd"}
    files = laif() | {"/usr/lib/x86_64-linux-gnu/libc.so.6": b"\x7fELF" + bytes(30_000) + b"version 2.39.\n"}
    (scene / "sifs").mkdir()
    for name, compression in packed.items():
        folder = write_tree(scene / "work", files | {f"/{name}": Link("/etc")})
        for number in range(40):
            (folder / f"opt/{number:03}").write_text("x" * number)
        (folder / ".singularity.d").mkdir()
        (folder / ".singularity.d/labels.json").write_text('{"org.x.version": "1"}')
        squash(folder, scene / "work.squash", "-comp", compression, "-b", "16K")
        content = sif((PARTITION, (scene / "work.squash").read_bytes(), SQUASHFS, PRIMARY), (0x4005, b"{}", 0, 0))
        (scene / f"sifs/{name}.sif").write_bytes(content)
        (scene / "work.squash").unlink()
        shutil.rmtree(folder)
    (scene / "sifs/latest.sif").symlink_to("image.sif")
    write_tree(scene / "image", files)
    call(f"images --site lumi --lock images.lock {scene}/sifs")
    call("binds image --host-root node --site lumi --write plan.yaml")


def _run(folder: Path) -> None:
    """Lay out a run whose job has ended, and whose marks nobody has read."""
    request = replace(
        a_request(),
        lumisite=__version__,
        image_digest="",
        folder=str(folder),
        jobs=1,
        node_sets=(NODES,),
        probes=(),
        before=(),
    )
    create_run(request)
    (plan,) = plans_of(request, LOADED)
    (folder / "samples.jsonl").write_bytes(Path("runs/after/samples.jsonl").read_bytes())
    (folder / "lock").touch()
    _fill(folder, plan)


def _fill(folder: Path, plan: JobPlan) -> None:
    """Write what the steps of a job leave behind."""
    job = folder / "jobs" / plan.run
    for step in (step for group in plan.groups for step in group.steps):
        (job / step.folder / "records").mkdir(parents=True)
        (job / step.folder / "began").write_text("100.0\n")
        (job / step.folder / "exit").write_text("0 200.5\n")
        (job / step.folder / "stderr").write_text("no words\n")
        (job / step.folder / "stdout").write_text("# out-of-place\n 1048576 262144 float sum -1 100.0 1.0 2.0 0\n")
        kept = DATA / f"{step.probe}.json"
        records = json.loads(kept.read_text()) if kept.exists() else []
        for rank in range(step.ranks):
            told = {"rank": rank, "local_rank": 0, "host": step.nodes[0], "node": 0, "now": 1.0, "started": 1}
            told |= {"paths": {}, "files": {}, "sent": {}, "moved": 0, "faults": [], "alone": {"width": 1, "bytes": 8}}
            record = records[rank] if rank < len(records) else told
            (job / step.folder / "records" / f"{rank}.json").write_text(json.dumps(record))
        (job / step.folder / "records/0.at").write_text('{"rank": 0, "at": "x"}')
    (job / "job.sh").write_text("#!/bin/sh\n")
    (job / "done").write_text("7 0 1000\n")
    (job / "left-out").write_text("NCCL_DEBUG=INFO\n")
    (job / "facts.json").write_bytes(Path("facts.json").read_bytes())
