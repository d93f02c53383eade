"""slurm.conf and its neighbours, for each Slurm generation."""

from __future__ import annotations

from collections.abc import Sequence

GPUS_PER_NODE = 8

# Slurm renamed the parameter between these (slurm.conf(5) of 22.05 and of 24.11).
_CREDENTIAL = {"bookworm": "CryptoType=crypto/munge"}


def slurm_conf(
    generation: str,
    controller: str,
    nodes: Sequence[str],
    cpus: int,
    extra: Sequence[str] = (),
    gpus: int = GPUS_PER_NODE,
) -> str:
    """Give slurm.conf for a controller and its nodes, each with as many CPUs and GPUs; `extra` lines come last.

    Two partitions as on LUMI: standard-g hands out whole nodes, small-g (the default) shares them.
    """
    names, gres = ",".join(nodes), f" Gres=gpu:{gpus}" if gpus else ""
    lines = [
        "ClusterName=twin",
        f"SlurmctldHost={controller}",
        "SlurmUser=slurm",
        "AuthType=auth/munge",
        _CREDENTIAL.get(generation, "CredType=cred/munge"),
        "StateSaveLocation=/var/spool/slurmctld",
        "SlurmdSpoolDir=/var/spool/slurmd",
        "SlurmctldPidFile=/run/slurmctld.pid",
        "SlurmdPidFile=/run/slurmd.pid",
        "SlurmctldLogFile=/var/log/slurm/slurmctld.log",
        "SlurmdLogFile=/var/log/slurm/slurmd.log",
        # There is no cgroup to delegate inside the twin.
        "ProctrackType=proctrack/linuxproc",
        "TaskPlugin=task/affinity",
        "JobAcctGatherType=jobacct_gather/none",
        "SelectType=select/cons_tres",
        "SelectTypeParameters=CR_CPU",
        "MpiDefault=none",
        "GresTypes=gpu",
        # Short, so that a test of a lost node need not wait for minutes.
        "SlurmdTimeout=10",
        # Long, so that no answer comes too late where the machine is busy; the second must be five times the first.
        "MessageTimeout=30",
        "UnkillableStepTimeout=150",
        "InactiveLimit=0",
        "KillWait=2",
        "MinJobAge=600",
        "ReturnToService=2",
        "SchedulerParameters=batch_sched_delay=0,sched_interval=2,bf_interval=2",
        f"NodeName={names} CPUs={cpus} RealMemory=2000{gres} State=UNKNOWN",
        f"PartitionName=small-g Nodes={names} Default=YES MaxTime=1-0 State=UP",
        f"PartitionName=standard-g Nodes={names} OverSubscribe=EXCLUSIVE MaxTime=1-0 State=UP",
        *extra,
    ]
    return "".join(f"{line}\n" for line in lines)


def gres_conf(gpus: int = GPUS_PER_NODE) -> str:
    """Give gres.conf: GPUs as device files; Slurm sets ROCR_VISIBLE_DEVICES for them as for AMD's."""
    last = 128 + gpus - 1
    return "" if not gpus else f"Name=gpu File=/dev/dri/renderD[128-{last}] Flags=amd_gpu_env\n"


def cgroup_conf(generation: str) -> str:
    """Give cgroup.conf; 22.05 knows no plugin name for having none."""
    return "" if generation == "bookworm" else "CgroupPlugin=disabled\n"
