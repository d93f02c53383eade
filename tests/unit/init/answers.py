"""What Slurm and nodes say, as they are known to say it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lumisite.errors import ToolError
from lumisite.init.answer import NodeAnswer, parse_answer
from lumisite.init.node import Node, node_of
from lumisite.init.slurm import Run
from tests.support.dict_trees import Files, Link

MOUNT = "{id} 1 0:{id} / {point} rw,relatime shared:1 - {kind} {source} rw\n"
ROUTES = "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\n"
CONFIG = """Configuration data as of 2026-11-22T14:19:00
ClusterName             = skerry
MpiDefault              = pmix
Prolog                  = (null)
SelectType              = select/cons_tres
SlurmdSpoolDir          = /var/spool/slurmd
SLURM_VERSION           = 24.11.5
TaskProlog              = /etc/slurm/task prolog.sh

Slurmctld(primary) at uan01 is UP
"""
PARTITION = (
    "PartitionName={name} AllowGroups=ALL AllowAccounts=ALL AllowQos=ALL AllocNodes=ALL Default=NO QoS=N/A "
    "DefaultTime=NONE RootOnly=NO ReqResv=NO OverSubscribe={share} MaxNodes={most} State=UP TotalCPUs=4 "
    "JobDefaults=(null) TRES=cpu=4,mem=4000M,node=2,billing=4\n"
)
#: As `scontrol --oneliner show node` prints it; 24.11 puts two spaces after some values.
NODE = (
    "NodeName={name} Arch=x86_64 CoresPerSocket={cores}  CPUAlloc=0 CPUEfctv=2 CPUTot={total} CPULoad=9.80 "
    "AvailableFeatures=(null) Gres={gres} NodeAddr={name} NodeHostName={name} Version=24.11.5 "
    "OS=Linux 5.14.0-570.el9.x86_64 #1 SMP PREEMPT_DYNAMIC  RealMemory={memory} AllocMem=0 Sockets={sockets} Boards=1"
    "{special} State={state} ThreadsPerCore={threads} TmpDisk=0 MCS_label=N/A Partitions={partitions}  "
    "BootTime=2026-11-22T00:54:08 CfgTRES=cpu=2 AllocTRES= {reason}\n"
)


def partition(name: str, share: str = "NO", most: str = "UNLIMITED") -> str:
    return PARTITION.format(name=name, share=share, most=most)


def node(name: str, **changes: object) -> str:
    usual = {"cores": 1, "sockets": 2, "threads": 1, "memory": 2000, "gres": "(null)", "state": "IDLE"}
    usual |= {"partitions": "all", "special": "", "reason": "", "total": 2}
    return NODE.format(name=name, **(usual | changes))


#: CPUs, GRES and reserved cores as these machines have them. LUMI-G: its slurm.conf as users have published it; dccn: the
#: Donders Institute's cluster, bamboo: the University of Geneva's, as their users have printed their nodes.
LUMI_G = node(
    "nid005000", sockets=8, cores=8, threads=2, total=128, memory=491520, partitions="standard-g",
    gres="gpu:mi250:8", special=" CPUSpecList=0,16,32,48,64,80,96,112",
)  # fmt: skip
DCCN = node(
    "dccn-c083", sockets=2, cores=32, total=64, memory=515578, partitions="gpu,batch", state="MIXED",
    gres="cpu:amd:1,gpu:nvidia_a100-sxm4-40gb:4(S:0-1)", special=" CoreSpecCount=1 CPUSpecList=63 MemSpecLimit=4096",
)  # fmt: skip
BAMBOO = node(
    "gpu010", sockets=4, cores=24, total=96, memory=384000, partitions="private-kalousis-gpu,shared-gpu",
    gres="gpu:nvidia_geforce_rtx_5090:4(S:0-3),VramPerGpu:no_consume:32G", state="IDLE+DRAIN",
    special=" CoreSpecCount=2 CPUSpecList=71,95", reason="Reason=health_ps___blocked [root@2026-04-29T03:06:18]",
)  # fmt: skip


def slurm(partitions: str, nodes: str, config: str = CONFIG) -> Run:
    answers = {"config": config, "partition": partitions, "node": nodes}

    def ask(argv: Sequence[str]) -> str:
        return answers[argv[-1]]

    return ask


def no_slurm(argv: Sequence[str]) -> str:
    raise ToolError(f"{argv[0]} is not on PATH")


def told(files: Files, end: str = "END\n") -> NodeAnswer:
    """Give a node that has these files as its answer."""
    text = "Welcome to the machine\n"
    for path, content in files.items():
        if isinstance(content, Link):
            text += f"L {path}\t{content.to}\n"
        else:
            lines = content.decode(errors="replace").removesuffix("\n").split("\n")
            text += f"F {path}\n" + "".join(f"|{line}\n" for line in lines)
    return parse_answer(text + end, "node")


def network(**interfaces: tuple[int, str]) -> dict[str, bytes | Link]:
    """Give interfaces by name, with speed (Mbit/s) and the first three bytes of their address."""
    files: dict[str, bytes | Link] = {}
    for number, (name, (speed, _)) in enumerate(interfaces.items()):
        device = f"/sys/devices/pci0000:00/0000:0{number}:00.0"
        files |= {f"/sys/class/net/{name}/operstate": b"up\n", f"/sys/class/net/{name}/speed": f"{speed}\n".encode()}
        files |= {f"{device}/numa_node": b"0\n", f"/sys/class/net/{name}/device": Link(device)}
    return files | {"/proc/net/route": routes(**{name: address for name, (_, address) in interfaces.items()})}


def routes(**addresses: str) -> bytes:
    """Give the kernel's table of routes; of an interface that has an address its first three bytes."""
    table = ROUTES + "eth0\t00000000\t0101010A\t0003\t0\t0\t0\t00000000\n"
    for name, address in addresses.items():
        if address:
            packed = bytes(map(int, address.split(".")))[::-1].hex().upper()
            table += f"{name}\t00{packed}\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n"
    return table.encode()


def stacked(stack: Mapping[str, tuple[str, ...]], fast: str, adapter: str = "") -> dict[str, bytes | Link]:
    """Give a slow eth0, and two fast devices on which `stack` lies; only eth0 and `fast` have an address.

    An adapter is that of the first fast device.
    """
    slow = {"eth0": (1000, "10.1.0"), "ens1": (100000, ""), "ens2": (100000, "")}
    files = network(**{**slow, fast: (100000, "10.2.0")})
    for name, parts in stack.items():
        files.pop(f"/sys/class/net/{name}/device", None)
        files |= {f"/sys/class/net/{name}/operstate": b"up\n", f"/sys/class/net/{name}/speed": b"100000\n"}
        files |= {f"/sys/class/net/{name}/lower_{part}": Link(f"/sys/class/net/{part}") for part in parts}
    if adapter:
        here = f"/sys/class/infiniband/{adapter}"
        files |= {f"{here}/ports/1/link_layer": b"Ethernet\n", f"{here}/ports/1/state": b"4: ACTIVE\n"}
        files[f"{here}/device"] = files["/sys/class/net/ens1/device"]
    return files


def mounts(stamps: Mapping[str, str], **kinds: str) -> dict[str, bytes | Link]:
    """Give a table of mounts; `stamps` say which folder stands at each, and when it was changed."""
    points = {f"/{name.replace('_', '/')}": kind for name, kind in kinds.items()}
    table = "".join(
        MOUNT.format(id=at, point=point.replace(" ", "\\040"), kind=kind, source="x")
        for at, (point, kind) in enumerate(points.items())
    )
    rights = "".join(f"{'drwxrwxrwt' if kind == 'tmpfs' else 'drwxr-xr-x'} {point}\n" for point, kind in points.items())
    stats = "".join(f"{stamps.get(point, '7 2026-01-01 00:00:00.1 +0000')} directory {point}\n" for point in points)
    return {
        "/proc/self/mountinfo": table.encode(),
        "/output/stat": stats.encode(),
        "/output/rights": rights.encode(),
    }


def small(**changes: Files) -> Node:
    files: dict[str, bytes | Link] = {"/sys/devices/system/cpu/online": b"0-1\n", "/proc/sys/kernel/hostname": b"n1\n"}
    files |= {f"/sys/devices/system/cpu/cpu{cpu}/topology/physical_package_id": b"0\n" for cpu in (0, 1)}
    for more in changes.values():
        files |= more
    return node_of(told(files), "skerry", [])
