"""Rules between the keys of a site description: each one broken once, with the message it gives."""

from __future__ import annotations

import pytest

from lumisite.site.load import embedded_sites, load_site
from tests.support.sites import load_text, site_faults, site_text

SETTING = "settings:\n"
CPE, ROCM = (f"platforms.2026-01.stacks.{stack}" for stack in ("cpe", "rocm"))
AMONG, FOUND = "the default among them", "Where the release is found: `image`, `host` or `both`"
BITS = "modules.singularity-CPEbits.version"


def new_setting(text: str) -> tuple[str, str]:
    return (SETTING, f"{SETTING}  - {{{text}, why: w, source: here}}\n")


@pytest.mark.parametrize("name", embedded_sites())
def test_the_embedded_sites_have_no_faults(name: str) -> None:
    assert load_site(name).site.name == name


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (
            ("platform: 2026-01\nplat", "platform: 2026-02\nplat"),
            "platform: 2026-02 is not described (did you mean 2026-01?)",
        ),
        (
            ("  24.03: {lib", "  24.o3: {lib"),
            "stacks.cpe.releases.24.o3: '24.o3' is not a version (6.2.4 or 25.03 would be right)",
        ),
        (
            ("    os: Debian\n", "    os: Debian\n    gpu_bus_ids: {twin: [first]}\n"),
            "platforms.2024-08.gpu_bus_ids.twin[0]: 'first' is not a PCI bus (c1 or 0000:c1:00.0 would be right)",
        ),
        (
            ("  nodes: 2\n  tasks", "  nodes: 1\n  tasks"),
            "validation.nodes: 1 is not several (2 would be right)",
        ),
        (
            ("  baseline_why: a twin lives for less than a day\n", ""),
            "validation.baseline_days: 1 is few (3 would be right, or say `baseline_why`)",
        ),
        (
            ("  baseline_days: 1\n", "  baseline_days: 0\n"),
            "validation.baseline_days: 0 days have no jobs (3 would be right)",
        ),
        (
            ("partition: standard-g\n", "partition: standart-g\n"),
            "validation.partition: standart-g is not described (did you mean standard-g?)",
        ),
        (
            ("  metrics:\n", "  metrics:\n    - {metric: a, spec: 1, floor: 1.5, source: here}\n"),
            "validation.metrics[0].floor: 1.5 is more than all of the spec (0.6 would be right)",
        ),
        (
            ("  metrics:\n", "  metrics:\n    - {metric: a, source: here}\n    - {metric: a, source: here}\n"),
            "validation.metrics[1].metric: never counts: metrics[0] is for a already",
        ),
        (
            ("  metrics:\n", "  metrics:\n    - {metric: a, spec: 1e3, source: here}\n"),
            "validation.metrics[0].spec: '1e3' is not a number above 0 (0.05 would be right)",
        ),
        (("  6.2.4: {", "  6.0.3.0: {"), "stacks.rocm.releases.6.0.3.0: is the same version as 6.0.3"),
        (("default: 25.03", "default: 25.04"), f"{CPE}.default: 25.04 is not described (did you mean 25.03?)"),
        (("default: 25.03", "default: 24.03"), f"{CPE}.default: 24.03 is the default but not among `supported`"),
        (("leftover: [24.03]", "leftover: [25.03]"), f"{CPE}.leftover: 25.03 is also among `supported`"),
        (("supported: [25.03], ", ""), f"{CPE}.supported: is missing (Installed releases that are supported, {AMONG})"),
        (
            ("supported: [25.03]", "runs: '>1', supported: [25.03]"),
            f"{CPE}.runs: is for a stack with `gpu`, of which a driver decides what runs",
        ),
        (
            ("runs: '>=6.1,<7.1'", "supported: [6.2.4]"),
            f"{ROCM}.supported: is for a stack without `gpu`, which the host has (`runs` would be right)",
        ),
        (
            ("default: 6.2.4", "default: 6.0.3"),
            f"{ROCM}.default: 6.0.3 is outside what the driver supports (>=6.1,<7.1)",
        ),
        (
            ("runs: '>=6.1,<7.1'", "kinds: [twin]"),
            f"{ROCM}.kinds[0]: nodes of the kind twin have no GPUs",
        ),
        (
            ("small-g: {node_kind: twin,", "small-g: {node_kind: twin, qos: '',"),
            "partitions.small-g.qos: has no text",
        ),
        (
            ("    nics:", "    gpus: [{numa: 0, adapter: mlx5_0}]\n    nics:"),
            "node_kinds.twin.gpus[0].adapter: mlx5_0 is not described (there are none)",
        ),
        (
            ("    nics:", "    adapters: [mlx5_1]\n    gpus: [{numa: 0, adapter: mlx5_0}]\n    nics:"),
            "node_kinds.twin.gpus[0].adapter: mlx5_0 is not described (did you mean mlx5_1?)",
        ),
        (
            ("title: the twin\n", "title: the twin\nknown_by: ['*']\n"),
            "known_by[0]: * fits every machine (a path or a host name of this one would be right)",
        ),
        (("    title: CPE\n", "    titel: CPE\n"), "stacks.cpe.titel: is not a key here (did you mean title?)"),
        (("6.0.3: {found: image, ", "6.0.3: {"), f"stacks.rocm.releases.6.0.3.found: is missing ({FOUND})"),
        (
            ("    version: [cpe]\n", "    version: []\n"),
            f"{BITS}: names nothing (stacks, or [platform], would be right)",
        ),
        (("    version: [cpe]\n", "    version: [cep]\n"), f"{BITS}: cep is not described (did you mean cpe?)"),
        (("    version: [cpe]\n", "    version: [cpe, cpe]\n"), f"{BITS}: cpe stands there twice"),
        (
            ("    os: Debian\n", "    os: Debian\n    gpu_bus_ids: {twin: [c1]}\n"),
            "platforms.2024-08.gpu_bus_ids.twin: 1 bus ids for 0 GPUs",
        ),
        (
            ("    os: Debian\n", "    os: Debian\n    gpu_bus_ids: {twn: []}\n"),
            "platforms.2024-08.gpu_bus_ids: twn is not described (did you mean twin?)",
        ),
        (
            ("{cores: 0-1, numa: 0}", "{cores: 0-1, siblings: '2', numa: 0}"),
            "node_kinds.twin.l3[0].siblings: 1 siblings for 2 cores",
        ),
        (
            ("{cores: 0-1, numa: 0}", "{cores: '0,0', numa: 0}"),
            "node_kinds.twin.l3[0].cores: '0,0' names a number twice",
        ),
        (
            ("      - {cores: 0-1, numa: 0}", "      - {cores: 0-1, numa: 0}\n      - {cores: 1-2, numa: 0}"),
            "node_kinds.twin.l3[1].cores: a CPU is named twice: 1",
        ),
        (
            ("    memory_mib: 2048", "    memory_mib: 2048\n    reserved: '7'"),
            "node_kinds.twin.reserved: CPU 7 is in no L3 group",
        ),
        (
            ("    nics:", "    gpus: [{l3: 1, numa: 0}]\n    nics:"),
            "node_kinds.twin.gpus[0].l3: there is no L3 group 1 (have 0 to 0)",
        ),
        (
            ("numa: 0}\n", "numa: 0, cache: 0}\n    gpus: [{l3: 0, numa: 0}]\n"),
            "node_kinds.twin.gpus[0].l3: its cache serves several NUMA domains (`numa` alone would be right)",
        ),
        (("    nics:", "    gpus: [{numa: 3}]\n    nics:"), "node_kinds.twin.gpus[0].numa: there is no NUMA domain 3"),
        (
            ("{interface: hsn1, numa: 0}", "{interface: hsn1, numa: 1}"),
            "node_kinds.twin.nics[1].numa: there is no NUMA domain 1",
        ),
        (
            ("small-g: {node_kind: twin", "small-g: {node_kind: twon"),
            "partitions.small-g.node_kind: twon is not described (did you mean twin?)",
        ),
        (
            ("default_for: {rocm: '>=5'}", "default_for: {rocm: '>=6.1'}"),
            "families: no family is the default for ROCm 6.0.3 (give one `default_for`)",
        ),
        (
            ("    modules: [singularity-CPEbits,", "    modules: [singularity-CPEbit,"),
            "families.twin-torch.modules: singularity-CPEbit is not described (did you mean singularity-CPEbits?)",
        ),
        (
            ("loads: [singularity-userfilesystems,", "loads: [singularity-AI-bindings,"),
            "modules.singularity-AI-bindings.loads: the module loads itself in the end",
        ),
        (
            ("    version: [cpe]\n", "    version: [cpe]\n    systems: []\n"),
            "modules.singularity-CPEbits.systems: no module system could load it (one of lmod, tcl, or both)",
        ),
        (
            ("    version: [cpe]\n", "    version: [cpe]\n    systems: [tcl]\n"),
            (
                "modules.singularity-AI-bindings.systems: singularity-CPEbits, which singularity-AI-bindings loads, is "
                "not written for lmod"
            ),
        ),
        (
            ("    version: [platform]\n", "    version: [platform]\n    loads: [singularity-CPEbits]\n"),
            "modules.singularity-userfilesystems.loads: singularity-CPEbits has a version by cpe, which singularity-userfilesystems lacks",
        ),
        (
            ("conflicts: [singularity-bindings, lumi", "conflicts: [singularity-CPEbits, lumi"),
            "modules.singularity-userfilesystems.conflicts: singularity-CPEbits is a module of this site (its versions replace each other)",
        ),
        (
            ("old_versions: [24.03]", "old_versions: [../x]"),
            "modules.singularity-AI-bindings.old_versions: '../x' is not a version name",
        ),
        (
            ("old_versions: [24.03]", f"old_versions: [{'9' * 101}]"),
            f"modules.singularity-AI-bindings.old_versions: '{'9' * 101}' is not a version name",
        ),
        (
            ("  singularity-userfilesystems:\n", "  .hidden:\n"),
            "modules..hidden: a module's name cannot start with . or -",
        ),
        (
            ('where: singularity-userfilesystems, why: "project scratch', 'where: task, why: "project scratch'),
            "file_systems[0].where: task is not described (have singularity-userfilesystems, singularity-CPEbits, singularity-AI-bindings)",
        ),
        (("    where: task\n", "    where: tusk\n"), "binds[2].where: tusk is not described (did you mean task?)"),
        (
            ("  - path: /opt/cray", "  - path: /scratch"),
            "binds[0].path: /scratch is bound by singularity-userfilesystems already (one place for each path)",
        ),
        (
            new_setting("name: A, value: b, when: {family: [twin-tarch]}"),
            "settings[0].when.family: twin-tarch is not described (did you mean twin-torch?)",
        ),
        (
            new_setting("name: A, value: b, when: {partition: [big]}"),
            "settings[0].when.partition: big is not described (have standard-g, small-g)",
        ),
        (
            new_setting("name: A, value: b, when: {platform: ['2025']}"),
            "settings[0].when.platform: 2025 is not described (have 2024-08, 2026-01)",
        ),
        (
            new_setting("name: A, value: b, when: {nodes: one}, where: singularity-AI-bindings"),
            "settings[0].when.nodes: the module singularity-AI-bindings cannot know this before the step exists (where: task)",
        ),
        (
            new_setting("name: A, value: b, when: {rocm: '>6'}, where: singularity-CPEbits"),
            "settings[0].when.rocm: the module singularity-CPEbits is loaded before any image is known (where: task, which the image decides)",
        ),
        (
            new_setting("name: A, unset: yes, where: singularity-AI-bindings"),
            "settings[0]: a module can only set a value or leave it (where: task)",
        ),
        (
            new_setting("name: A"),
            "settings[0]: A says nothing (one of value, directory, computed, unset, leave would be right)",
        ),
        (
            new_setting("name: A, value: b, unset: yes"),
            "settings[0]: A says value and unset (one of value, directory, computed, unset, leave would be right)",
        ),
        (
            new_setting("name: A, directory: ../x"),
            "settings[0].directory: '../x' is not a relative path of plain names",
        ),
        (
            new_setting("name: PATH, value: b"),
            "settings[0].name: PATH is not for the ledger: lumisite manages it itself, or it is unsafe",
        ),
        (
            new_setting("name: SINGULARITY_BIND, value: b"),
            "settings[0].name: SINGULARITY_BIND is not for the ledger: lumisite manages it itself, or it is unsafe",
        ),
        (
            new_setting("name: USE_LIBUV, value: b"),
            "settings[3]: never wins: settings[0] sets USE_LIBUV without conditions before it",
        ),
        (
            new_setting("name: A, value: b;c"),
            "settings[0].value: contains ';', which separates what the helper remembers of its own settings",
        ),
        (
            ("    plugin: from-host\n", "    plugin: from-host\n    library_path: [libfabrik]\n"),
            "families.twin-torch.library_path: libfabrik is not described (did you mean libfabric?)",
        ),
    ],
)
def test_each_rule_names_key_fault_and_remedy(change: tuple[str, str], fault: str) -> None:
    assert fault in site_faults(change)


def test_collectives_between_gpus_want_a_stack_that_says_whose() -> None:
    fault = "validation.backend: nccl is for GPUs (gloo, or a stack with `gpu`)"
    nccl = ("  backend: gloo\n", "  backend: nccl\n")
    assert fault in site_faults(nccl, ("    gpu: amd\n", ""))
    load_text(site_text(nccl))


def test_two_default_families_for_one_rocm() -> None:
    family = "  other:\n    {title: o, paths: [], default_for: {rocm: '>=6.1'}, modules: [], plugin: none, why: w, source: here}\n"
    assert site_faults(("\nbinds:\n", f"\n{family}\nbinds:\n")) == [
        "families.other.default_for.rocm: ROCm 6.2.4 has twin-torch as its default family already"
    ]


def test_a_hundred_faults_come_in_one_run() -> None:
    lines = "".join(f"  - {{name: V{n}, valu: x, why: w, source: here}}\n" for n in range(100))
    found = site_faults((SETTING, SETTING + lines))
    assert len([fault for fault in found if "is not a key here (did you mean value?)" in fault]) == 100


def test_the_position_is_that_of_the_key() -> None:
    text = site_text(("{default: 25.03", "{default: 25.04"))
    line = text.split("default: 25.04")[0].count("\n") + 1
    from lumisite.errors import SiteError
    from tests.support.sites import load_text

    with pytest.raises(SiteError) as caught:
        load_text(text)
    assert (caught.value.problems[0].line, caught.value.problems[0].column) == (line, 22)


@pytest.mark.parametrize("sign", [":", " ", "%", "'", "$", "\u00fc"])
def test_the_root_has_a_name_that_modules_can_have(sign: str) -> None:
    message = f"root: {f'/appl/a{sign}b'!r} contains {sign!r} (letters, digits and ._+@=- would be right)"
    assert site_faults(("root: /appl/lumisite", f'root: "/appl/a{sign}b"')) == [message]
