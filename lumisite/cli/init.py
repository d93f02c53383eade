"""`init`: a site description from the machine itself."""

from __future__ import annotations

import argparse
import os
import socket
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from lumisite.cli.facts import load_facts
from lumisite.cli.output import print_note, write_whole
from lumisite.errors import LumisiteError, ResolveError, ToolError
from lumisite.facts.facts import Facts
from lumisite.findings.catalogue import make_finding
from lumisite.findings.finding import Finding
from lumisite.findings.writers import line
from lumisite.init.answer import NodeAnswer, collector, parse_answer
from lumisite.init.describe import Seen, describe_site
from lumisite.init.describe_kind import gpu_finding
from lumisite.init.known import IMAGE_FOLDERS
from lumisite.init.node import Node, node_of
from lumisite.init.slurm import Cluster, SlurmNodeKind, is_name, partitions_of, read_cluster
from lumisite.machine.host import DiskTree, names_of_this_node, silent_paths
from lumisite.machine.program import run_program
from lumisite.machine.tree import names_of
from lumisite.site.cpus import CpusetError, parse_number_list
from lumisite.site.load import parse_site
from lumisite.text import counted, printable
from lumisite.validate.run.slurm import query

#: How long Slurm may take to allocate a node, and the node to answer.
_WAIT_S, _ANSWER_S = 60, 120
#: Variables of a surrounding job that stay: they name Slurm's configuration and the account.
_SLURM_KEPT = ("SLURM_CONF", "SLURM_CLUSTERS", "SLURM_ACCOUNT")
_MOST_TRIED = 2


def add_init(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `init`."""
    parser.description = (
        "Ask Slurm, this node, and one compute node of each kind through a short job, and write what they say: values"
        " with sources, guesses with the command that would tell, and questions. Compute nodes need no Python."
    )
    parser.add_argument(
        "--from",
        metavar="FACTS",
        action="append",
        default=[],
        dest="facts",
        help="a facts file instead of a job; may be given several times",
    )
    parser.add_argument("--name", metavar="N", help="name of the site (default: Slurm's ClusterName)")
    parser.add_argument(
        "--out", metavar="FILE", type=Path, help="where to write, if nothing is there (default: NAME.yaml)"
    )
    parser.add_argument(
        "--partition",
        metavar="P",
        action="append",
        default=[],
        help="only this partition and its nodes; may be given several times",
    )
    parser.add_argument(
        "--srun",
        metavar="OPTION",
        action="append",
        default=[],
        help="one more option for srun, such as --srun=--account=project",
    )


def run_init(arguments: argparse.Namespace) -> int:
    """Query Slurm and one node of each kind, and write the site description."""
    if arguments.name is not None and not is_name(arguments.name):
        raise ResolveError(make_finding("site-name-unusable", printable(arguments.name)))
    _refuse_existing(arguments.out)
    cluster = _cluster(arguments.partition)
    _, host = names_of_this_node()
    name = next(filter(is_name, (arguments.name or "", cluster.config.get("ClusterName", ""), host)), "site")
    out = arguments.out or Path(f"{name}.yaml")
    _refuse_existing(out)
    findings = [*cluster.findings]
    print_note(f"asking this node, {host}")
    spool = cluster.config.get("SlurmdSpoolDir", "/")
    login = node_of(_collect([], [spool]), name, findings)
    if arguments.facts:
        nodes = _from_facts(cluster, [_facts_with_cpus(file) for file in arguments.facts])
    elif cluster.kinds:
        answers = {
            kind.name: _query_kind(cluster, kind, name, [spool], arguments.srun, findings) for kind in cluster.kinds
        }
        nodes = {kind: node for kind, node in answers.items() if node is not None}
    else:
        nodes = {"gpu" if login.facts.gpus else "cpu": login}
    kinds = {kind.name: kind for kind in cluster.kinds}
    gpus = (gpu_finding(kinds.get(kind, SlurmNodeKind(kind, ())), node) for kind, node in nodes.items())
    for finding in (*findings, *filter(None, gpus)):
        print_note(line(finding))
    seen = Seen(name, time.strftime("%Y-%m-%d"), cluster, login, nodes, _address, _image_folders, tuple(findings))
    description = describe_site(seen)
    data = description.text.encode()
    _refuse_existing(out)
    write_whole(out, data)
    questions, guesses = counted(description.questions, "question"), counted(description.guesses, "guessed value")
    print_note(f"wrote {out}: {questions} to answer, {guesses} to confirm")
    parse_site(data, out)
    return 0


def _refuse_existing(out: Path | None) -> None:
    if out is not None and os.path.lexists(out):
        raise ResolveError(make_finding("description-exists", str(out)))


def _cluster(partitions: Sequence[str]) -> Cluster:
    """Read the partitions that `--partition` names, or all; where there is no Slurm and none is named, none."""
    print_note("asking Slurm for its partitions and nodes")
    try:
        cluster = read_cluster(query, partitions)
    except ToolError as error:
        if partitions:
            raise
        print_note(str(error))
        print_note(line(make_finding("slurm-absent", "scontrol")))
        return Cluster({}, {}, ())
    if missing := [name for name in partitions if name not in cluster.partitions]:
        raise ResolveError(make_finding("partition-unknown", "--partition", names=tuple(missing)))
    return cluster


def _query_kind(
    cluster: Cluster, kind: SlurmNodeKind, site: str, paths: list[str], options: Sequence[str], findings: list[Finding]
) -> Node | None:
    """Query one node of a kind, and another where that does not answer; return `None` where none does."""
    reason = ""
    for slurm in [node for node in kind.nodes if node.ready][:_MOST_TRIED]:
        partition = next(name for name in cluster.partitions if name in partitions_of(slurm))
        print_note(
            f"asking {slurm.name} (kind {kind.name}, {counted(len(kind.nodes), 'node')}) through a job in {partition}"
        )
        srun = ["srun", f"--immediate={_WAIT_S}", "--time=3", "--nodes=1", "--ntasks=1", "--job-name=lumisite-init"]
        srun += ["--chdir=/", f"--partition={partition}", f"--nodelist={slurm.name}", *options]
        try:
            return node_of(_collect(srun, paths), site, findings)
        except LumisiteError as error:
            reason = str(error.finding.values.get("reason") or error)
    findings.append(make_finding("node-kind-silent", kind.name, reason=reason))
    return None


def _collect(prefix: Sequence[str], paths: Sequence[str]) -> NodeAnswer:
    """Run the collector on this node, or through the command `prefix`. Raises `ToolError`."""
    kept = {name: value for name, value in os.environ.items() if name[:6] != "SLURM_" or name in _SLURM_KEPT}
    argv = [*prefix, "sh", "-c", collector(), "lumisite", *paths]
    try:
        done = run_program(argv, _WAIT_S + _ANSWER_S, kept)
    except subprocess.TimeoutExpired:
        raise ToolError(make_finding("collector-failed", argv[0], seconds=_WAIT_S + _ANSWER_S)) from None
    if done.returncode:
        words = done.stderr.decode(errors="replace").strip().splitlines() or [f"exit code {done.returncode}"]
        raise ToolError(make_finding("collector-failed", argv[0], reason=words[0]))
    return parse_answer(done.stdout.decode(errors="replace"), argv[0])


def _facts_with_cpus(file: str) -> Facts:
    """Read facts whose lists of CPUs can be read too; they stay as the kernel wrote them."""
    facts = load_facts(file)
    try:
        for text in (*(group.cpus for group in facts.cpus), *(gpu.cpus or "" for gpu in facts.gpus)):
            parse_number_list(text)
    except CpusetError as error:
        raise ResolveError(make_finding("facts-cpus-unreadable", file, reason=str(error))) from None
    return facts


def _from_facts(cluster: Cluster, files: Iterable[Facts]) -> Mapping[str, Node]:
    """Return nodes of facts files by their kinds, with Slurm's names where it knows them."""
    found: dict[str, Node] = {}
    for facts in files:
        node = Node(facts, NodeAnswer(facts.host or "facts"))
        known = (kind.name for kind in cluster.kinds if node.name in {slurm.name for slurm in kind.nodes})
        name = next(known, "gpu" if facts.gpus else "cpu")
        while name in found:
            name += "-other"
        found[name] = node
    return found


def _address(name: str) -> str | None:
    try:
        return socket.gethostbyname(name)
    except (OSError, UnicodeError):
        return None


def _image_folders(tops: Iterable[str]) -> tuple[str, ...]:
    """Return folders of images below file systems, by their usual names."""
    tree, found = DiskTree("/"), []
    tops = list(tops)
    silent = silent_paths(tops, 5.0)
    for top in (path for path in tops if path not in silent):
        for folder in (f"{top}/{name}" for name in IMAGE_FOLDERS):
            if any(name.endswith(".sif") for name in names_of(tree, folder)):
                found.append(folder)
    return tuple(found)
