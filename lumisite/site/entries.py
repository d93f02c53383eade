"""The entries of a site description that say what jobs get: file systems, binds, and the settings ledger.

As in `model`, annotations are real types, and the classes go without `__eq__` and `__repr__`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal, TypeAlias

from lumisite.site.decode import key
from lumisite.site.scalars import AbsolutePath, Line, Place, Value, VariableName, source_ids
from lumisite.site.versions import VersionRange


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class Known:
    """What comes from somewhere."""

    source: Line = key("Where this is known from.", names="sources", split=source_ids)


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class Stated(Known):
    """What may be written down before anybody confirms it."""

    confirmed: bool = key("`no` when no source confirms all of it.", default=True)


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class When:
    """Conditions; all that are given must hold. Those about a stack with `gpu` and the next three are of the image."""

    stacks: Mapping[str, VersionRange] = key(
        "Releases of stacks, by name: `{mystack: '>=6.2,<7'}`.", names="stacks", default_factory=dict
    )
    family: tuple[str, ...] | None = key("Image families by name.", names="families", default=None)
    plugin: bool | None = key(
        "Whether the image holds the OFI plugin for NCCL, and the plugin finds a libfabric: known of images that were "
        "read.",
        default=None,
    )
    libfabric: VersionRange | None = key(
        "The release of the libfabric that the plugin finds, for `leave` and `harmful` alone: `'>=2.5'`. Known of "
        "images that were read.",
        default=None,
    )
    platform: tuple[str, ...] | None = key("Platforms by name.", names="platforms", default=None)
    nodes: Literal["one", "several"] | None = key("Whether the job step has one node or several.", default=None)
    gpus: bool | None = key("Whether the step's nodes have GPUs.", default=None)
    kind: tuple[str, ...] | None = key("Node kinds by name.", names="node_kinds", default=None)


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class Harmful:
    """Values of an entry's variable that do harm, and where they do."""

    value: Line = key("The values, as shell patterns parted by `|`.")
    when: When = key("In which situations.", default=When())
    unknown_images: bool = key("`no` where it counts only for images that are known to fit `when`.", default=True)


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class FileSystem(Stated):
    """A file system that users work on."""

    path: AbsolutePath = key("Mount point, or the link that users type.")
    kind: Literal["shared", "node-local"] = key("Seen by all nodes, or by one node only.")
    why: Line = key("What it is for.")
    where: Place | None = key("The module that binds it (not bound when left out).", names="modules", default=None)
    exact: bool = key("Whether `$` and `*` stand for themselves, which nothing fills in.", default=False)
    writable: bool = key(
        "Whether users can make directories in it (node-local ones only). Private caches go to the first such that a "
        "node has.",
        default=False,
    )
    in_memory: bool = key("Whether what is in it takes the node's memory.", default=False)
    # It is bound without conditions and under its own path: what `Bind` says beside is no key here.
    target: ClassVar[None] = None
    when: ClassVar[When] = When()
    required: ClassVar[bool] = True

    @property
    def spec(self) -> str:
        """The bind as `--bind` takes it."""
        return self.path


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class Bind(Stated):
    """A host path that containers need, beside the file systems."""

    path: AbsolutePath = key("Path on the host.")
    target: AbsolutePath | None = key("Path in the container, if another.", default=None)
    options: Line | None = key("Options of the bind: `ro`.", default=None)
    where: Place = key("The module that binds it, or `task` when only the srun helper may.", names="places")
    when: When = key("Conditions; none means always.", default=When())
    required: bool = key("Whether a node that lacks it cannot run at full speed.", default=True)
    why: Line = key("The reason, as users read it.")
    exact: bool = key("Whether `$` and `*` stand for themselves, which nothing fills in.", default=False)

    @property
    def spec(self) -> str:
        """The bind as `--bind` takes it: `source[:target[:options]]`."""
        if self.options:
            return f"{self.path}:{self.target or self.path}:{self.options}"
        return f"{self.path}:{self.target}" if self.target else self.path


#: An entry that may bind a host path: both kinds say `path`, `target`, `spec`, `where`, `when`, `required` and `why`.
HostPath: TypeAlias = FileSystem | Bind


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class Setting(Stated):
    """One entry of the settings ledger; of several entries for one name, the first whose `when` holds wins."""

    name: VariableName = key("The environment variable.")
    value: Value | None = key(
        "The value to set where the user has none.",
        default=None,
    )
    exact: bool = key("Whether `$` and `*` stand for themselves, which nothing fills in.", default=False)
    directory: Line | None = key(
        "Set it to this directory, made private below the user's node-local one: `kernels`. `{rank}` in it is the "
        "task's number on its node.",
        default=None,
    )
    with_directories: tuple[Line, ...] = key("Directories to make in it, which programs do not make.", default=())
    computed: Literal["master-address", "master-port"] | None = key(
        "Set it to something that the helper works out on the compute node.", default=None
    )
    unset: bool = key("Take the variable away.", default=False)
    leave: bool = key("Known, and not touched: `why` says the reason.", default=False)
    where: Place = key("`task`, or the name of the module that sets it.", names="places", default=Place("task"))
    when: When = key("Conditions; none means always.", default=When())
    why: Line = key("The reason.")
    evidence: Line | None = key(
        "What is known of its effect, in one sentence: what was measured, on what, when.", default=None
    )
    harmful: tuple[Harmful, ...] = key("Values of the variable that do harm.", default=())
