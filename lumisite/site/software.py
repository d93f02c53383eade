"""What a site description says of software and of the fabric below it: runtimes, stacks and their releases.

As in `model`, annotations are real types, and the classes go without `__eq__` and `__repr__`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from lumisite.site.decode import key
from lumisite.site.entries import Known, Stated
from lumisite.site.scalars import AbsolutePath, Flag, Line, Name, ReleaseName
from lumisite.site.versions import Version, VersionRange, parse_version

#: The vendors of GPUs: each has a file in this folder.
GPU_FOLDER = Path(__file__).parent.parent / "vendors/gpu"
GPU_VENDORS = tuple(sorted(path.stem for path in GPU_FOLDER.glob("*.yaml")))
if TYPE_CHECKING:
    GpuVendor = str
else:
    GpuVendor = Literal[GPU_VENDORS]

#: What begins the names of the variables that one runtime reads, and no other.
PREFIXES = ("SINGULARITY", "APPTAINER")


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class Runtime(Stated):
    """A container runtime on the compute nodes, by the command that users type."""

    executable: AbsolutePath | None = key(
        "The real program, which the wrapper executes; none: the next of its name on PATH, as a module may bring it.",
        default=None,
    )
    variant: Line = key("Product and version, for people: `SingularityCE 4.1.3`.")
    prefix: Literal["SINGULARITY", "APPTAINER"] = key(
        "Prefix of the variables that carry binds. Apptainer ignores SINGULARITY_* where APPTAINER_* differs."
    )
    avoid: tuple[Flag, ...] = key(
        "Flags for GPUs, without dashes, that do harm: they bring host libraries in that do not fit the images.",
        default=(),
    )


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class Fabric(Known):
    """The high-speed network, as libraries name it."""

    carrier: Name = key(
        "What must carry traffic: a provider of libfabric, such as `verbs`, or NCCL's own transport, `IB`."
    )
    adapters: tuple[Name, ...] = key("Its adapters, as their driver names them: `[adapter0, adapter1]`.", default=())
    interfaces: tuple[Name, ...] = key("High-speed interfaces, in order: `[ib0, ib1]`.")
    host_suffix: Name | None = key(
        "What to append to a host name where nodes do not reach each other by the plain one: `MASTER_ADDR` has it.",
        default=None,
    )
    speed_mbit: int | None = key("Speed of each interface, in Mbit/s: `200000`.", least=1, default=None)
    mtu: int | None = key("MTU of each interface, in bytes: `9000`.", least=1, default=None)
    management: tuple[Name, ...] = key("Interfaces that must not carry traffic.", default=())
    require_gdr: bool = key("Whether a log must prove GPU Direct RDMA, by `/GDRDMA` on every channel.", default=False)

    @property
    def nics(self) -> int:
        """How many adapters of a node traffic should use."""
        return len(self.adapters or self.interfaces)


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class Release(Stated):
    """A release of a stack."""

    found: Literal["image", "host", "both"] | None = key(
        "Where a release of a stack with `gpu` is found: `image`, `host` or `both`.", default=None
    )
    libraries: Mapping[str, AbsolutePath] = key(
        "Host directories of the release by what they hold: `mpich: /opt/mpich/8.1.32`.",
        default_factory=dict,
    )


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class Stack:
    """Software whose versions matter to containers: what the host has installed, or what a GPU driver must run."""

    title: Line = key("Its name, for people.")
    gpu: GpuVendor | None = key(
        "Whose GPUs it is for. Images bring it, and the driver decides which releases run; none: the host has it.",
        default=None,
    )
    releases: Mapping[ReleaseName, Release] = key("Its releases, by version.")

    @property
    def versions(self) -> list[Version]:
        """Its releases, the oldest first."""
        return sorted(map(parse_version, self.releases))


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class PlatformStack:
    """What a platform has of a stack: of one with `gpu` what its driver runs, of another what is installed."""

    default: Version = key("The release that is the default.")
    supported: tuple[Version, ...] = key("Installed releases that are supported, the default among them.", default=())
    leftover: tuple[Version, ...] = key("Installed releases that are no longer supported.", default=())
    driver: Line | None = key("The GPU driver.", default=None)
    runs: VersionRange | None = key(
        "The releases that the vendor supports with the driver: `'>=6.1,<7.1'`.", default=None
    )
    compat: VersionRange | None = key(
        "The releases that run where the image brings packages for forward compatibility: `'<14'`.", default=None
    )
    in_use: tuple[Version, ...] = key(
        "Releases outside those ranges that run here all the same: said, and not refused.", default=()
    )

    @property
    def installed(self) -> tuple[Version, ...]:
        """The releases that the host has, of a stack without `gpu`."""
        return (*self.supported, *self.leftover)

    def in_range(self, version: Version) -> bool:
        """Return whether the driver itself supports a release; any, where its range is not described."""
        return self.runs is None or version in self.runs

    def has(self, version: Version) -> bool:
        """Return whether containers can have a release on the platform."""
        if self.supported:
            return version in self.installed
        return self.in_range(version) or version in self.in_use or (self.compat is not None and version in self.compat)
