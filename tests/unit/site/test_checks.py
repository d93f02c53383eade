"""Rules between the keys of a site description: each one broken once, with the message it gives."""

from __future__ import annotations

import pytest

from lumisite.site.load import embedded_sites, load_site
from tests.support.sites import load_text, site_faults, site_text

SETTING = "settings:\n"
CPE, ROCM = (f"platforms.2026-01.stacks.{stack}" for stack in ("cpe", "rocm"))
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
            "platform: unknown-name",
        ),
        (
            ("  24.03: {lib", "  24.o3: {lib"),
            "stacks.cpe.releases.24.o3: wrong-type",
        ),
        (
            ("    os: Debian\n", "    os: Debian\n    gpu_bus_ids: {twin: [first]}\n"),
            "platforms.2024-08.gpu_bus_ids.twin[0]: wrong-type",
        ),
        (
            ("  nodes: 2\n  tasks", "  nodes: 1\n  tasks"),
            "validation.nodes: value-out-of-range",
        ),
        (
            ("  baseline_why: a twin lives for less than a day\n", ""),
            "validation.baseline_days: value-out-of-range",
        ),
        (
            ("  baseline_days: 1\n", "  baseline_days: 0\n"),
            "validation.baseline_days: value-out-of-range",
        ),
        (
            ("partition: standard-g\n", "partition: standart-g\n"),
            "validation.partition: unknown-name",
        ),
        (
            ("  metrics:\n", "  metrics:\n    - {metric: a, spec: 1, floor: 1.5, source: here}\n"),
            "validation.metrics[0].floor: value-out-of-range",
        ),
        (
            ("  metrics:\n", "  metrics:\n    - {metric: a, source: here}\n    - {metric: a, source: here}\n"),
            "validation.metrics[1].metric: entry-never-used",
        ),
        (
            ("  metrics:\n", "  metrics:\n    - {metric: a, spec: 1e3, source: here}\n"),
            "validation.metrics[0].spec: wrong-type",
        ),
        (("  6.2.4: {", "  6.0.3.0: {"), "stacks.rocm.releases.6.0.3.0: named-twice"),
        (("default: 25.03", "default: 25.04"), f"{CPE}.default: unknown-name"),
        (("default: 25.03", "default: 24.03"), f"{CPE}.default: default-not-supported"),
        (("leftover: [24.03]", "leftover: [25.03]"), f"{CPE}.leftover: named-twice"),
        (("supported: [25.03], ", ""), f"{CPE}.supported: key-missing"),
        (
            ("supported: [25.03]", "runs: '>1', supported: [25.03]"),
            f"{CPE}.runs: key-without-effect",
        ),
        (
            ("runs: '>=6.1,<7.1'", "supported: [6.2.4]"),
            f"{ROCM}.supported: key-without-effect",
        ),
        (
            ("default: 6.2.4", "default: 6.0.3"),
            f"{ROCM}.default: default-not-supported",
        ),
        (
            ("small-g: {node_kind: [twin],", "small-g: {node_kind: [twin], qos: [''],"),
            "partitions.small-g.qos[0]: value-empty",
        ),
        (
            ("    nics:", "    gpus: [{numa: 0, adapter: mlx5_0}]\n    nics:"),
            "node_kinds.twin.gpus[0].adapter: unknown-name",
        ),
        (
            ("    nics:", "    adapters: [mlx5_1]\n    gpus: [{numa: 0, adapter: mlx5_0}]\n    nics:"),
            "node_kinds.twin.gpus[0].adapter: unknown-name",
        ),
        (("    title: CPE\n", "    titel: CPE\n"), "stacks.cpe.titel: key-unknown"),
        (
            ("    nics:", "    gpus: [{numa: 5, l3: 0}]\n    nics:"),
            "node_kinds.twin.gpus[0].numa: numa-mismatch",
        ),
        (("6.0.3: {found: image, ", "6.0.3: {"), "stacks.rocm.releases.6.0.3.found: key-missing"),
        (("\nmodules:\n", "\nneeds: [{this: A=b, why: c, source: S}]\nmodules:\n"), "needs[0].needs: key-missing"),
        (
            ("\nmodules:\n", "\nneeds: [{this: A, needs: --x, why: c, source: S}]\nmodules:\n"),
            "needs[0].this: wrong-type",
        ),
        (
            ("\nmodules:\n", "\nneeds: [{this: --a, excludes: x, why: c, source: S}]\nmodules:\n"),
            "needs[0]: wrong-type",
        ),
        (
            ("    version: [cpe]\n", "    version: []\n"),
            f"{BITS}: list-empty",
        ),
        (("    version: [cpe]\n", "    version: [cep]\n"), f"{BITS}: unknown-name"),
        (("    version: [cpe]\n", "    version: [cpe, cpe]\n"), f"{BITS}: named-twice"),
        (
            ("    os: Debian\n", "    os: Debian\n    gpu_bus_ids: {twin: [c1]}\n"),
            "platforms.2024-08.gpu_bus_ids.twin: wrong-count",
        ),
        (
            ("    os: Debian\n", "    os: Debian\n    gpu_bus_ids: {twn: []}\n"),
            "platforms.2024-08.gpu_bus_ids: unknown-name",
        ),
        (
            ("{cores: 0-1, numa: 0}", "{cores: 0-1, siblings: '2', numa: 0}"),
            "node_kinds.twin.l3[0].siblings: wrong-count",
        ),
        (
            ("{cores: 0-1, numa: 0}", "{cores: '0,0', numa: 0}"),
            "node_kinds.twin.l3[0].cores: named-twice",
        ),
        (
            ("      - {cores: 0-1, numa: 0}", "      - {cores: 0-1, numa: 0}\n      - {cores: 1-2, numa: 0}"),
            "node_kinds.twin.l3[1].cores: named-twice",
        ),
        (
            ("    memory_mib: 2048", "    memory_mib: 2048\n    reserved: '7'"),
            "node_kinds.twin.reserved: unknown-name",
        ),
        (
            ("    nics:", "    gpus: [{l3: 1, numa: 0}]\n    nics:"),
            "node_kinds.twin.gpus[0].l3: value-out-of-range",
        ),
        (
            ("numa: 0}\n", "numa: 0, cache: 0}\n    gpus: [{l3: 0, numa: 0}]\n"),
            "node_kinds.twin.gpus[0].l3: l3-shared",
        ),
        (("    nics:", "    gpus: [{numa: 3}]\n    nics:"), "node_kinds.twin.gpus[0].numa: unknown-name"),
        (
            ("{interface: hsn1, numa: 0}", "{interface: hsn1, numa: 1}"),
            "node_kinds.twin.nics[1].numa: unknown-name",
        ),
        (
            ("small-g: {node_kind: [twin]", "small-g: {node_kind: [twon]"),
            "partitions.small-g.node_kind: unknown-name",
        ),
        (
            ("default_for: {rocm: '>=5'}", "default_for: {rocm: '>=6.1'}"),
            "families: default-family-missing",
        ),
        (
            ("    modules: [singularity-CPEbits,", "    modules: [singularity-CPEbit,"),
            "families.twin-torch.modules: unknown-name",
        ),
        (
            ("loads: [singularity-userfilesystems,", "loads: [singularity-AI-bindings,"),
            "modules.singularity-AI-bindings.loads: module-loads-itself",
        ),
        (
            ("    version: [platform]\n", "    version: [platform]\n    loads: [singularity-CPEbits]\n"),
            "modules.singularity-userfilesystems.loads: module-version-unknown",
        ),
        (
            ("conflicts: [singularity-bindings, lumi", "conflicts: [singularity-CPEbits, lumi"),
            "modules.singularity-userfilesystems.conflicts: conflict-with-own-module",
        ),
        (
            ("modules:\n", "modules:\n  .hidden: {template: t, version: [platform], summary: s}\n"),
            "modules..hidden: wrong-type",
        ),
        (
            ('where: singularity-userfilesystems, why: "project scratch', 'where: task, why: "project scratch'),
            "file_systems[0].where: unknown-name",
        ),
        (("    where: task\n", "    where: tusk\n"), "binds[2].where: unknown-name"),
        (
            ("  - path: /opt/cray", "  - path: /scratch"),
            "binds[0].path: bind-repeated",
        ),
        (
            new_setting("name: A, value: b, when: {family: [twin-tarch]}"),
            "settings[0].when.family: unknown-name",
        ),
        (
            new_setting("name: A, value: b, when: {partition: [big]}"),
            "settings[0].when.partition: unknown-name",
        ),
        (
            new_setting("name: A, value: b, when: {platform: ['2025']}"),
            "settings[0].when.platform: unknown-name",
        ),
        (
            new_setting("name: A, value: b, when: {nodes: one}, where: singularity-AI-bindings"),
            "settings[0].when.nodes: condition-unknowable",
        ),
        (
            new_setting("name: A, value: b, when: {stacks: {rocm: '>6'}}, where: singularity-CPEbits"),
            "settings[0].when.stacks.rocm: condition-unknowable",
        ),
        (
            new_setting("name: A, unset: yes, where: singularity-AI-bindings"),
            "settings[0]: setting-unfit-for-module",
        ),
        (
            new_setting("name: A"),
            "settings[0]: setting-ambiguous",
        ),
        (
            new_setting("name: A, value: b, unset: yes"),
            "settings[0]: setting-ambiguous",
        ),
        (
            new_setting("name: A, directory: ../x"),
            "settings[0].directory: wrong-type",
        ),
        (
            new_setting("name: PATH, value: b"),
            "settings[0].name: name-reserved",
        ),
        (
            new_setting("name: SINGULARITY_BIND, value: b"),
            "settings[0].name: name-reserved",
        ),
        (
            new_setting("name: USE_LIBUV, value: b"),
            "settings[3]: entry-never-used",
        ),
        (
            new_setting("name: A, value: b;c"),
            "settings[0].value: character-unfit",
        ),
        (
            ("    plugin: from-host\n", "    plugin: from-host\n    library_path: [libfabrik]\n"),
            "families.twin-torch.library_path: unknown-name",
        ),
    ],
)
def test_each_rule_names_key_fault_and_remedy(change: tuple[str, str], fault: str) -> None:
    assert fault in site_faults(change)


def test_collectives_between_gpus_want_a_stack_that_says_whose() -> None:
    fault = "validation.backend: key-without-effect"
    nccl = ("  backend: gloo\n", "  backend: nccl\n")
    assert fault in site_faults(nccl, ("    gpu: amd\n", ""))
    load_text(site_text(nccl))


def test_two_default_families_for_one_rocm() -> None:
    family = "  other:\n    {title: o, paths: [], default_for: {rocm: '>=6.1'}, modules: [], plugin: none, why: w, source: here}\n"
    assert site_faults(("\nbinds:\n", f"\n{family}\nbinds:\n")) == [
        "families.other.default_for.rocm: default-family-repeated"
    ]


def test_a_version_of_the_platform_and_releases_is_one_fault() -> None:
    assert site_faults(("    version: [cpe]\n", "    version: [platform, cpe]\n")) == [f"{BITS}: unknown-name"]


def test_a_hundred_faults_come_in_one_run() -> None:
    lines = "".join(f"  - {{name: V{n}, valu: x, why: w, source: here}}\n" for n in range(100))
    found = site_faults((SETTING, SETTING + lines))
    assert len([fault for fault in found if "key-unknown" in fault]) == 100


def test_the_position_is_that_of_the_key() -> None:
    text = site_text(("{default: 25.03", "{default: 25.04"))
    line = text.split("default: 25.04")[0].count("\n") + 1
    from lumisite.errors import SiteError
    from tests.support.sites import load_text

    with pytest.raises(SiteError) as caught:
        load_text(text)
    place = caught.value.findings[0].place
    assert place
    assert (place.line, place.column) == (line, 22)


@pytest.mark.parametrize("sign", [":", " ", "%", "'", "$", "\u00fc"])
def test_the_root_has_a_name_that_modules_can_have(sign: str) -> None:
    message = "root: character-unfit"
    assert site_faults(("root: /appl/lumisite", f'root: "/appl/a{sign}b"')) == [message]
