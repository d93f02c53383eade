"""The site description: what an admin states once, and from which everything else follows.

Annotations are real types here, not text: `decode` reads them, and evaluating text takes longer than all the rest.
The classes go without `__eq__` and `__repr__`, which nothing asks for: to generate them is a tenth of a render.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Literal, cast

from lumisite.site.decode import key
from lumisite.site.entries import Bind, FileSystem, HostPath, Known, Setting, Stated
from lumisite.site.nodes import NodeKind, Partition
from lumisite.site.scalars import AbsolutePath, Date, Line, Name, PciBus, RelativePath, RootPath
from lumisite.site.software import Fabric, PlatformStack, Release, Runtime, Stack
from lumisite.site.validation import Validation
from lumisite.site.versions import Version, VersionRange


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class Source:
    """Something that a reader can open: a repository, a document, an issue."""

    title: Line = key("What it is: `the vendor's settings for NCCL on its network`.")
    address: Line = key("Where it is: `https://github.com/HewlettPackard/shs-ccl-docs`.")
    date: Line | None = key("When it was written or read: `2026-04-30`.", default=None)


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class Support:
    """Whom users ask for help."""

    name: Line = key("Who supports the modules.")
    contact: Line = key("How to reach them: a page or an address.")


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class Platform(Stated):
    """The machine as a maintenance left it."""

    since: Date = key("The day from which it is in force: `2026-01-21`.")
    os: Line = key("Operating system of the compute nodes.")
    slurm: Version | None = key("Slurm release.", default=None)
    kernel: Line | None = key("Kernel release string, if known.", default=None)
    stacks: Mapping[str, PlatformStack] = key(
        "What there is of the site's stacks, by name.", names="stacks", default_factory=dict
    )
    libraries: Mapping[str, AbsolutePath] = key(
        "Host directories that come with the system, not with a release: `libfabric: /opt/libfabric/1.22.0`.",
        default_factory=dict,
    )
    gpu_bus_ids: Mapping[str, tuple[PciBus, ...]] = key(
        "By node kind, the PCI bus of each GPU in the order of its index.", names="node_kinds", default_factory=dict
    )

    @property
    def defaults(self) -> dict[str, Version]:
        """The default release of each stack."""
        return {name: stack.default for name, stack in self.stacks.items()}


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class Family(Stated):
    """Images that are built alike and so need the same from the host."""

    title: Line = key("What it is, for people.")
    paths: tuple[Name, ...] = key(
        "Shell patterns that recognise an image by its path; `*` also matches `/`. The first family that matches wins."
    )
    labels: Mapping[str, Line] = key(
        "Labels of the image that recognise it when the path does not, as shell patterns.", default_factory=dict
    )
    contains: tuple[AbsolutePath, ...] = key("Paths inside that recognise an image when its own does not.", default=())
    default_for: Mapping[str, VersionRange] | None = key(
        "By stack, the releases for which this is the family of an image that none recognises.",
        names="stacks",
        default=None,
    )
    modules: tuple[str, ...] = key("Modules whose binds its images need.", names="modules")
    libraries: tuple[Line, ...] = key("SONAMEs that must come from the host, as roots of the closure.", default=())
    activation: Literal["none", "with-conda", "runscript", "tykky"] = key(
        "What makes its Python the active one: nothing, `$WITH_CONDA` typed first, the runscript (`run`, not `exec`), "
        "or the container wrapper's own scripts.",
        default="none",
    )
    prepend_path: tuple[AbsolutePath, ...] = key(
        "Directories in the image that go first on PATH inside, where that is what activates its Python.", default=()
    )
    plugin: Literal["in-image", "from-host", "none"] | None = key(
        "Where its OFI plugin for NCCL comes from, as its recipe has it (left out: its recipe does not say).",
        default=None,
    )
    release_after: Mapping[str, Line] = key(
        "By stack, a shell pattern of what stands before its release in paths of images, where that is not the name of "
        "the stack: `*-u24r` for `-u24r70`, which is 7.0. For advice alone: no setting goes by a name.",
        names="stacks",
        default_factory=dict,
    )
    library_path: tuple[Line, ...] = key(
        "Host libraries, by their names in `libraries` of a platform, whose `lib64` its loader must search first. "
        "In the container they are where a bind of the family's modules has them.",
        default=(),
    )
    mpi: Line | None = key("`srun --mpi` type that it needs, if not the site's default.", default=None)
    why: Line = key("What sets it apart.")


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class Deprecated:
    """Why users should move on, and where to."""

    successor: Line = key("The module to use instead.")
    reason: Line = key("Why, in one sentence.")


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class Module:
    """A modulefile to render."""

    template: str = key("The template in `modulefiles_src/`, without `.lua.j2`.", names="templates")
    version: tuple[str, ...] = key(
        "What its version is made of: `[platform]` for `2026-01`, the name of a stack for its release, or of several.",
        names="version_parts",
        example="[platform], or stacks",
    )
    summary: Line = key("One sentence, for `module spider` and `module whatis`.")
    keywords: tuple[Line, ...] = key("Words that `module keyword` finds it by.", default=())
    loads: tuple[str, ...] = key("Modules that it needs, in their matching versions.", names="modules", default=())
    conflicts: tuple[Line, ...] = key("Foreign modules that overwrite the bind list.", default=())
    helper: bool = key("Whether it switches the srun helper on.", default=False)
    deprecated: Deprecated | None = key("Say so on load and name the successor.", default=None)


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class ImageFolder(Stated):
    """A directory that holds images, or names of images, for all users."""

    path: AbsolutePath = key("The directory.")
    patterns: tuple[Name, ...] = key(
        "Shell patterns of the names below it that are images; `*` does not match `/`.", default=(Name("*.sif"),)
    )


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class Images:
    """The container images of the site."""

    folders: tuple[ImageFolder, ...] = key("Where they are.")
    lock: RelativePath | None = key(
        "A lock that `lumisite images --lock` wrote: what it knows of an image counts more than the image's name.",
        default=None,
    )


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class Requirement(Known):
    """A setting or an option of srun that works only together with another option, or without it."""

    this: Line = key(
        "What it is: `NAME=VALUE` of a variable, or an option of srun as `--NAME=VALUE`. VALUE is a shell pattern, or "
        "several parted by `|`."
    )
    needs: Line | None = key(
        "The option of srun that must be there, or one of several: `--network=a`, `--gpu-bind=none or --network=a`.",
        default=None,
    )
    excludes: Line | None = key("The option of srun that must not be there: `--gpu-bind=closest`.", default=None)
    several_tasks: bool = key("Whether that counts only where a node has several tasks.", default=False)
    why: Line = key("What happens otherwise.")

    @property
    def variable(self) -> str:
        """The variable that it is about; empty for an option."""
        return "" if self.this.startswith("--") else self.this.partition("=")[0]

    @property
    def option(self) -> str:
        """The option of srun that it is about, without dashes; empty for a variable."""
        return "" if self.variable else self.this[2:].partition("=")[0]

    @property
    def title(self) -> str:
        """What it is, without a list of patterns."""
        return self.this.partition("=")[0] if set("|*?[") & set(self.this) else self.this

    @property
    def partners(self) -> tuple[str, ...]:
        """The options of srun of which one must be there, or none may be."""
        return tuple((self.needs or self.excludes or "").split(" or "))

    @property
    def partner(self) -> str:
        """What srun must have, or must not have, as text."""
        return f"srun {self.needs}" if self.needs else f"srun without {self.excludes}"


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class Site:
    """A site description."""

    lumisite: Literal["2"] = key("Version of this format.")
    name: Name = key("Short name of the site.")
    title: Line = key("Name of the site, for people.")
    tried: Literal["no", "twin", "yes"] = key(
        "Where it was run: `no`: nowhere, all is from documents; `twin`: on a cluster in miniature; `yes`: there.",
        default="yes",
    )
    root: RootPath = key("Where releases are deployed.")
    support: Support = key("Whom users ask.")
    sources: Mapping[str, Source] = key(
        "What `source` keys refer to, by a short name. Where there are any, each `source` is one or more of these "
        "names, each with the place in it, parted by `;`: `DOC README; TM 205-Containers`. `here` is the machine "
        "itself.",
        default_factory=dict,
    )
    stacks: Mapping[str, Stack] = key("The software whose versions matter to containers, by name; `{}` for none.")
    runtimes: Mapping[str, Runtime] = key(
        "The container runtimes, by command; the first is the default.", example="singularity"
    )
    fabric: Fabric = key("The high-speed network.")
    file_systems: tuple[FileSystem, ...] = key("File systems that users work on.")
    platform: str = key("The platform that is in force now.", names="platforms")
    platforms: Mapping[str, Platform] = key("The machine as each maintenance left it, by name.")
    node_kinds: Mapping[str, NodeKind] = key("Node kinds, by name.")
    partitions: Mapping[str, Partition] = key("Slurm partitions, by name.")
    other_partitions: tuple[Name, ...] = key("All partitions beside: `lint` reports what is neither.", default=())
    accounts: tuple[Name, ...] = key("Shell patterns of the accounts of jobs: `project_46*`.", default=())
    families: Mapping[str, Family] = key(
        "Image families, by name; the first that recognises an image wins.", example="pytorch"
    )
    binds: tuple[Bind, ...] = key("Host paths that containers need.", default=())
    settings: tuple[Setting, ...] = key("The settings ledger.", default=())
    needs: tuple[Requirement, ...] = key("What works only together with an option of srun, or without one.", default=())
    modules: Mapping[str, Module] = key("The modulefiles, by name.")
    retired_modules: tuple[Line, ...] = key("Shell patterns of module folders that are not kept up.", default=())
    plans: tuple[RelativePath, ...] = key("Reviewed plans of `lumisite binds --write`, beside this file.", default=())
    validation: Validation | None = key("What is validated after a change, and how.", default=None)
    images: Images | None = key("The container images of the site.", default=None)

    @property
    def command(self) -> str:
        """What users type for the default runtime, which is the first."""
        return next(iter(self.runtimes))

    @property
    def runtime(self) -> Runtime:
        """The default runtime."""
        return self.runtimes[self.command]

    @property
    def gpu_stack(self) -> str | None:
        """The stack that images bring, with the GPUs of the site."""
        return next((name for name, stack in self.stacks.items() if stack.gpu is not None), None)

    @property
    def gpu_vendor(self) -> str | None:
        """The vendor of the site's GPUs."""
        return None if self.gpu_stack is None else self.stacks[self.gpu_stack].gpu

    @property
    def host_stacks(self) -> tuple[str, ...]:
        """The stacks that the host has."""
        return tuple(name for name, stack in self.stacks.items() if stack.gpu is None)

    @property
    def helper_module(self) -> str | None:
        """The module that switches the srun helper on, and so loads all that containers need; none where none does."""
        switches = (name for name, module in self.modules.items() if module.helper and module.deprecated is None)
        return next(switches, None)

    def releases(self, stack: str) -> Mapping[str, Release]:
        """Return the releases of a stack; none where the site has no such stack."""
        return cast("Mapping[str, Release]", self.stacks[stack].releases) if stack in self.stacks else {}

    def libraries(self, platform: str, releases: Mapping[str, Version]) -> dict[str, AbsolutePath]:
        """Return the host directories of a platform's libraries, and of those that come with releases."""
        chosen = (self.releases(stack).get(str(version)) for stack, version in releases.items())
        found = dict(self.platforms[platform].libraries)
        for release in chosen:
            found |= release.libraries if release is not None else {}
        return found

    @property
    def not_proved(self) -> str:
        """Where this description was not run yet, as a sentence; empty where it was run at the site itself."""
        if self.tried == "no":
            return f"{self.title} was never run with this: its description is from documents, so try it first"
        return f"proved on a twin, not yet run on {self.title} or on a GPU machine" if self.tried == "twin" else ""

    @property
    def private_places(self) -> tuple[FileSystem, ...]:
        """The file systems where private caches may be, in the order in which they are tried."""
        return tuple(system for system in self.file_systems if system.writable)

    @property
    def host_paths(self) -> dict[str, HostPath]:
        """File systems and binds, as one kind of entry, by their keys: `file_systems[0]`."""
        lists: dict[str, tuple[HostPath, ...]] = {"file_systems": self.file_systems, "binds": self.binds}
        return {f"{name}[{index}]": entry for name, entries in lists.items() for index, entry in enumerate(entries)}

    def kinds_of(self, *partitions: str) -> dict[str, NodeKind]:
        """Return the node kinds of the nodes of partitions, by name; partitions that are not described have none."""
        known = (self.partitions[name] for name in self.partitions if name in partitions)
        return {partition.node_kind: self.node_kinds[partition.node_kind] for partition in known}

    def kind_of(self, partition: str) -> NodeKind:
        """Return the node kind of a described partition."""
        return self.node_kinds[self.partitions[partition].node_kind]

    def fabric_of(self, kind: str) -> Fabric:
        """Return the fabric, with the adapters that nodes of a kind have."""
        adapters = self.node_kinds[kind].adapters
        return self.fabric if adapters is None else replace(self.fabric, adapters=adapters)

    def vendor_of(self, kind: str) -> str | None:
        """Return the vendor of the GPUs of a node kind, if the platform in force has its stack; `None` without any."""
        has_gpus = self.node_kinds[kind].gpus and self.gpu_stack in self.platforms[self.platform].stacks
        return self.gpu_vendor if has_gpus else None

    @property
    def nics(self) -> int | None:
        """How many adapters of a node traffic should use; not known where nodes with GPUs have different ones."""
        counts = {self.fabric_of(name).nics for name, kind in self.node_kinds.items() if kind.gpus}
        return (counts or {self.fabric.nics}).pop() if len(counts) < 2 else None

    def loaded_with(self, names: Iterable[str]) -> list[str]:
        """Return modules by name, and all that they load; names that are not described load nothing."""
        known = list(dict.fromkeys(names))
        for name in known:
            more = self.modules[name].loads if name in self.modules else ()
            known += [other for other in dict.fromkeys(more) if other not in known]
        return known
