"""CDI devices: what a container of a family, or of a plan's image, gets on a node kind, in files that runtimes read.

Sources: SPEC.md and schema/ of cncf-tags/container-device-interface (05ae4b5, 2026-08-21), and pkg/cdi there at v0.5.0,
which is what podman 4.3 reads. No file has hooks: a runtime would run them on the host.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from lumisite.errors import ResolveError
from lumisite.findings.catalogue import make_finding
from lumisite.findings.writers import message
from lumisite.render.manifest import RenderedFile
from lumisite.site.cdi_names import SEVERAL, kind_of
from lumisite.site.entries import HostPath, Setting
from lumisite.site.images import Holds, has_plugin
from lumisite.site.ledger import Decision, Situation, Verdict, decide, decided_by_image, describe_action, of_modules
from lumisite.site.library_path import library_path
from lumisite.site.model import Site
from lumisite.site.plans import ImagePlan, LoadedPlan
from lumisite.site.scalars import TASK
from lumisite.site.selection import Selection
from lumisite.site.software import prefix_of
from lumisite.vendors import fabrics_of, gpu_of

#: The newest version that podman 4.3 reads; nothing newer is needed.
VERSION = "0.5.0"
#: Where a tree has the devices of a kind: the name that the specification's own library would choose.
FILE = "cdi/{}.json"
#: The variable by which a container knows the device that it was started with; no device may be empty.
MARKER = "LUMISITE_DEVICE"
#: Options of a bind that mean the same to every runtime.
_OPTIONS = ("ro", "rw")


@dataclass(frozen=True)
class CdiMount:
    """A bind mount; `entry` is the key of the site description, or the file of the plan, that has it."""

    source: str
    target: str
    options: tuple[str, ...]
    entry: str
    why: str


@dataclass(frozen=True)
class CdiDevice:
    """What a container gets that is started with a device; `lost` is what a file cannot say.

    `settings` are the entries that win, by variable; `nodes` are device nodes. `passed` are entries whose variables the
    task prolog sets on the node, which the container has to be given; `others` are devices of vendors' own files.
    """

    kind: str
    name: str
    settings: Mapping[str, Verdict[Setting]]
    mounts: tuple[CdiMount, ...]
    nodes: tuple[str, ...]
    passed: Mapping[str, Verdict[Setting]]
    others: tuple[str, ...]
    lost: tuple[str, ...]

    @property
    def full_name(self) -> str:
        """The name by which users ask for it."""
        return f"{self.kind}={self.name}"

    @property
    def options(self) -> list[str]:
        """The options by which podman gives a container all that it can have."""
        devices = [f"--device={device}" for device in (self.full_name, *self.others)]
        return [*devices, *(f"--env={name}" for name in self.passed)]

    @property
    def environment(self) -> dict[str, str]:
        """The variables that it sets."""
        values = {name: str(verdict.entry.value) for name, verdict in self.settings.items()}
        return {MARKER: self.full_name, **values}

    @property
    def document(self) -> dict[str, object]:
        """The device as the specification has it."""
        edits = {
            "env": [f"{name}={value}" for name, value in self.environment.items()],
            "deviceNodes": [{"path": path} for path in self.nodes],
            "mounts": [
                {"hostPath": mount.source, "containerPath": mount.target, "options": ["rbind", *mount.options]}
                for mount in self.mounts
            ],
        }
        return {"name": self.name, "containerEdits": {key: entries for key, entries in edits.items() if entries}}


def cdi_files(site: Site, selection: Selection, plans: Sequence[LoadedPlan]) -> dict[str, RenderedFile]:
    """Return a file for each kind of devices, by path; none for a site without `emit: cdi`."""
    by_kind: dict[str, list[CdiDevice]] = {}
    for device in cdi_devices(site, selection, plans) if "cdi" in site.emitters else ():
        by_kind.setdefault(device.kind, []).append(device)
    files = {}
    for kind, devices in by_kind.items():
        content = {"cdiVersion": VERSION, "kind": kind, "devices": [device.document for device in devices]}
        text = json.dumps(content, indent=2, ensure_ascii=False)
        lost = dict.fromkeys(chain.from_iterable(device.lost for device in devices))
        files[FILE.format(kind.replace("/", "-"))] = RenderedFile(f"{text}\n", lost=tuple(lost))
    return files


def cdi_devices(site: Site, selection: Selection, plans: Sequence[LoadedPlan]) -> Iterator[CdiDevice]:
    """Yield the devices of each kind: for each node kind, for steps on one node and on several.

    Of a selection with several releases of the host, all but the default are in the names.
    """
    installed_by = (of_modules(site, combination) for combination in selection.combinations)
    situations = {tuple(situation.stacks.values()): situation for situation in installed_by}
    for kind, (holds, plan) in _images(site, selection, plans).items():
        for node_kind, described in site.node_kinds.items():
            for index, installed in enumerate(situations.values()):
                releases = [f"{stack}{version}" for stack, version in installed.stacks.items()]
                name = "-".join([node_kind, *(releases if index else [])])
                known = {**vars(holds), "stacks": {**installed.stacks, **holds.stacks}}
                situation = replace(installed, **known, gpus=bool(described.gpus), kind=node_kind)
                yield _device(site, replace(situation, nodes="one"), plan, kind, name)
                yield _device(site, replace(situation, nodes="several"), plan, kind, f"{name}{SEVERAL}")


def _images(site: Site, selection: Selection, plans: Sequence[LoadedPlan]) -> dict[str, tuple[Holds, ImagePlan | None]]:
    """Return what is known of the images that there are devices for, by kind, and their plan.

    That an image is of a family is the user's word; what a plan says of one was read. Raises `ResolveError` where two
    would have one kind.
    """
    found: dict[str, tuple[Holds, ImagePlan | None]] = {}
    for name in site.families:
        found[kind_of(site, name)] = Holds(name, {}, has_plugin(site, name), guessed=True), None
    for loaded in plans:
        plan, kind = loaded.plan, kind_of(site, loaded.plan.family, loaded.file)
        if plan.platform == selection.platform:
            if kind in found:
                raise ResolveError(make_finding("kind-taken", loaded.file, kind=kind))
            found[kind] = Holds(plan.family, plan.holds.stacks, plan.holds.plugin), plan
    return found


def _device(site: Site, situation: Situation, plan: ImagePlan | None, kind: str, name: str) -> CdiDevice:
    decision, family = decide(site, situation), site.families[str(situation.family)]
    needed = [*site.loaded_with(family.modules), TASK]
    helper = [] if site.helper_module is None else site.loaded_with([site.helper_module])
    settings, passed, lost = _variables(site, decision, {*needed, *helper})
    mounts, unbound = _mounts(decision, needed, plan)
    nodes, others, unknown = _device_nodes(site, str(situation.kind))
    folders = plan.library_path if plan else library_path(site, situation.platform, str(situation.family))
    # A container has one PATH and one LD_LIBRARY_PATH: to set them here would take the image's own away.
    searched = [f"LD_LIBRARY_PATH = {':'.join(folders)}"] if folders else []
    searched += [f"PATH = {':'.join(family.prepend_path)} first"] if family.prepend_path else []
    jobs = [f"the bind {system.job_folder}" for system in site.file_systems if system.job_folder and not system.where]
    every = ["CPU masks of tasks", *lost, *searched, *unbound, *jobs, *unknown]
    return CdiDevice(kind, name, settings, mounts, nodes, passed, others, tuple(dict.fromkeys(every)))


def _variables(
    site: Site, decision: Decision, places: set[str]
) -> tuple[dict[str, Verdict[Setting]], dict[str, Verdict[Setting]], list[str]]:
    """Return what is set, what the task prolog sets on the node, and what is lost."""
    found: dict[str, Verdict[Setting]] = {}
    passed: dict[str, Verdict[Setting]] = {}
    lost: list[str] = []
    undecided: set[str] = set()
    for verdict in decision.settings:
        setting = verdict.entry
        unread = verdict.reason.code == "image-not-read"
        if setting.where not in places or prefix_of(setting.name) or not (verdict.applies or unread):
            continue
        is_open = verdict.outcome == "may win" or setting.name in undecided
        reason = f" ({message(verdict.reason)})" if unread or verdict.outcome == "may win" else ""
        if setting.name in passed:
            continue
        if _is_set_by_the_prolog(site, setting, is_open=is_open):
            passed[setting.name] = verdict
        elif setting.leave:
            undecided.update([setting.name] if is_open else [])
        elif unread or is_open or setting.value is None:
            lost.append(f"{setting.name} {describe_action(setting)}{reason}")
            undecided.update([] if unread else [setting.name])
        else:
            found[setting.name] = verdict
    return found, passed, [*lost, *(f"{name} (--env={name})" for name in passed)]


def _is_set_by_the_prolog(site: Site, setting: Setting, *, is_open: bool) -> bool:
    """Return whether the prolog of a task has set a variable on the node."""
    at_node = setting.where == TASK and not decided_by_image(site, setting) and not setting.directory
    return at_node and (setting.computed is not None or (is_open and setting.value is not None))


def _mounts(
    decision: Decision, places: Sequence[str], plan: ImagePlan | None
) -> tuple[tuple[CdiMount, ...], list[str]]:
    """Return the binds of modules, of tasks and of a plan, folders before what is in them, and those that are lost.

    A runtime refuses to start a container whose device has a path that the node lacks: so only what every node of the
    kind must have is in it.
    """
    found: dict[str, CdiMount] = {}
    lost: list[str] = []
    unwanted = {line.without for line in plan.lines} if plan else set()
    for verdict in (verdict for place in places for verdict in decision.binds if verdict.entry.where == place):
        bind: HostPath = verdict.entry
        if not verdict.applies or (bind.where != TASK and bind.path in unwanted):
            continue
        if verdict.outcome == "may win":
            lost.append(f"the bind {bind.spec} ({message(verdict.reason)})")
        elif not bind.required:
            lost.append(f"the bind {bind.spec} (`required: no`)")
        else:
            source, target, options, *_ = *bind.spec.split(":", 2), "", ""
            requested = list(filter(None, options.split(",")))
            lost += [f"{option} of the bind {bind.spec}" for option in requested if option not in _OPTIONS]
            known = tuple(option for option in requested if option in _OPTIONS)
            mount = CdiMount(source, target or source, known, verdict.key, bind.why)
            found[mount.target] = mount
    for line in plan.lines if plan else ():
        if line.spec is not None and line.by is None:
            mount = CdiMount(str(line.source), str(line.target), (), f"plan: {line.library}", line.reason)
            found[mount.target] = mount
    return tuple(sorted(found.values(), key=lambda mount: mount.target.count("/"))), lost


def _device_nodes(site: Site, name: str) -> tuple[tuple[str, ...], tuple[str, ...], list[str]]:
    """Return the device nodes that a node kind surely has, devices of vendors' own files, and what is lost."""
    kind = site.node_kinds[name]
    nodes: list[str] = []
    others: list[str] = []
    lost: list[str] = []
    vendor = site.vendor_of(name)
    gpu = None if vendor is None else gpu_of(vendor)
    if gpu is not None and gpu.nodes:
        nodes += chain.from_iterable(_numbered(path, len(kind.gpus)) for path in gpu.nodes)
    elif gpu is not None and gpu.cdi:
        others.append(gpu.cdi)
        lost.append(f"GPUs (--device={gpu.cdi})")
    number = len(kind.nics) or len(site.fabric_of(name).adapters)
    for adapters in fabrics_of(site.fabric.carrier):
        if adapters.nodes and not number:
            lost.append(f"device nodes of {adapters.title} (`nics` of {name} lists no adapter)")
        for path in adapters.nodes if number else ():
            nodes += _numbered(path, number)
    return tuple(dict.fromkeys(nodes)), tuple(others), lost


def _numbered(first: str, count: int) -> list[str]:
    """Return the paths of devices that are numbered from the first one on; of one without a number only itself.

    >>> _numbered("/dev/adapter7", 2), _numbered("/dev/all", 2)
    (['/dev/adapter7', '/dev/adapter8'], ['/dev/all'])
    """
    start = first.rstrip("0123456789")
    number = first.removeprefix(start)
    return [f"{start}{int(number) + index}" for index in range(count)] if number else [first]
