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
        (("platform: 2026-01\nplat", "platform: 2026-02\nplat"), "platform: 2026-02 is not known here"),
        (("  24.03: {lib", "  24.o3: {lib"), "stacks.cpe.releases.24.o3: '24.o3' is not a version"),
        (("  nodes: 2\n  tasks", "  nodes: 1\n  tasks"), "validation.nodes: 1 is less than 2"),
        (("  baseline_why: a twin lives for less than a day\n", ""), "validation.baseline_days: 1 is less than 3"),
        (("partition: standard-g\n", "partition: standart-g\n"), "validation.partition: standart-g is not known here"),
        (
            ("  metrics:\n", "  metrics:\n    - {metric: a, spec: 1, floor: 1.5, source: here}\n"),
            "validation.metrics[0].floor: 1.5 is more than 1",
        ),
        (
            ("  metrics:\n", "  metrics:\n    - {metric: a, spec: 1e3, source: here}\n"),
            "validation.metrics[0].spec: '1e3' is not a number above 0",
        ),
        (("default: 25.03", "default: 25.04"), f"{CPE}.default: 25.04 is not known here"),
        (("default: 25.03", "default: 24.03"), f"{CPE}.default: 24.03 is not in `supported`"),
        (("supported: [25.03], ", ""), f"{CPE}.supported: is missing"),
        (("default: 6.2.4", "default: 6.0.3"), f"{ROCM}.default: 6.0.3 is outside the range >=6.1,<7.1 of the driver"),
        (
            ("    nics:", "    gpus: [{numa: 0, adapter: mlx5_0}]\n    nics:"),
            "node_kinds.twin.gpus[0].adapter: mlx5_0 is not known here",
        ),
        (("    nics:", "    gpus: [{numa: 5, l3: 0}]\n    nics:"), "node_kinds.twin.gpus[0].numa: 5 is not known here"),
        (("6.0.3: {found: image, ", "6.0.3: {"), "stacks.rocm.releases.6.0.3.found: is missing"),
        (("\nneeds:\n", "\nneeds:\n  - {this: A=b, why: c, source: S}\n"), "needs[0].needs: is missing"),
        (
            ("\nneeds:\n", "\nneeds:\n  - {this: A, needs: --x, why: c, source: S}\n"),
            "needs[0].this: 'A' is not a variable with a value, or srun option",
        ),
        (
            ("\nneeds:\n", "\nneeds:\n  - {this: --a, excludes: x, why: c, source: S}\n"),
            "needs[0]: 'x' is not a srun option",
        ),
        (("    version: [cpe]\n", "    version: []\n"), f"{BITS}: names nothing"),
        (
            ("template: singularity-CPEbits", "template: ai"),
            "modules.singularity-CPEbits.template: ai is not known here",
        ),
        (("    since: 2024-08\n", "    since: yesterday\n"), "platforms.2024-08.since: 'yesterday' is not a date"),
        (
            ("    os: Debian\n", "    os: Debian\n    gpu_bus_ids: {twin: [c1]}\n"),
            "platforms.2024-08.gpu_bus_ids.twin: has 1 entries, expected 0",
        ),
        (
            ("{cores: 0-1, numa: 0}", "{cores: 0-1, siblings: '2', numa: 0}"),
            "node_kinds.twin.l3[0].siblings: has 1 entries, expected 2",
        ),
        (("{cores: 0-1, numa: 0}", "{cores: '0,0', numa: 0}"), "node_kinds.twin.l3[0].cores: 0 is listed twice"),
        (
            ("      - {cores: 0-1, numa: 0}", "      - {cores: 0-1, numa: 0}\n      - {cores: 1-2, numa: 0}"),
            "node_kinds.twin.l3[1].cores: 1 is listed twice",
        ),
        (
            ("    memory_mib: 2048", "    memory_mib: 2048\n    reserved: '7'"),
            "node_kinds.twin.reserved: 7 is not known here",
        ),
        (("    nics:", "    gpus: [{l3: 1, numa: 0}]\n    nics:"), "node_kinds.twin.gpus[0].l3: 1 is more than 0"),
        (
            ("numa: 0}\n", "numa: 0, cache: 0}\n    gpus: [{l3: 0, numa: 0}]\n"),
            "node_kinds.twin.gpus[0].l3: L3 group 0 is a part of a cache that serves several NUMA domains",
        ),
        (
            ("{interface: hsn1, numa: 0}", "{interface: hsn1, numa: 1}"),
            "node_kinds.twin.nics[1].numa: 1 is not known here",
        ),
        (
            (
                "settings:\n",
                "settings:\n  - {name: A, leave: yes, when: {nodes: one, libfabric: '>=2'}, why: w, source: here}\n",
            ),
            "settings[0].when.libfabric: counts for an image in every step, so `when` cannot have nodes too",
        ),
        (
            (
                "settings:\n",
                (
                    "settings:\n  - {name: A, value: '1', when: {nodes: one}, why: w, source: here}\n"
                    "  - {name: A, leave: yes, when: {libfabric: '>=2'}, why: w, source: here}\n"
                ),
            ),
            "settings[1].when.libfabric: counts before settings[0], which sets the variable",
        ),
        (
            ("loads: [singularity-userfilesystems,", "loads: [singularity-AI-bindings,"),
            "modules.singularity-AI-bindings.loads: loads itself, through other modules",
        ),
        (
            ("    version: [platform]\n", "    version: [platform]\n    loads: [singularity-CPEbits]\n"),
            "modules.singularity-userfilesystems.loads: singularity-CPEbits has a version by cpe, which this module does not have",
        ),
        (
            ('where: singularity-userfilesystems, why: "project scratch', 'where: task, why: "project scratch'),
            "file_systems[0].where: task is not known here",
        ),
        (
            ("  - path: /opt/cray", "  - path: /scratch"),
            "binds[0].path: /scratch is bound by singularity-userfilesystems already",
        ),
        (
            new_setting("name: A, value: b, when: {nodes: one}, where: singularity-AI-bindings"),
            "settings[0].when.nodes: singularity-AI-bindings is loaded before nodes is known",
        ),
        (
            new_setting("name: A, value: b, when: {stacks: {rocm: '>6'}}, where: singularity-CPEbits"),
            "settings[0].when.stacks.rocm: singularity-CPEbits is loaded before rocm is known",
        ),
        (
            new_setting("name: A, unset: yes, where: singularity-AI-bindings"),
            "settings[0]: a module can only set a value, or leave it",
        ),
        (new_setting("name: A"), "settings[0]: A must have one of value, directory, computed, unset, leave"),
        (
            new_setting("name: A, value: b, unset: yes"),
            "settings[0]: A has value, unset, and must have one of value, directory, computed, unset, leave",
        ),
        (new_setting("name: A, directory: ../x"), "settings[0].directory: '../x' is not a plain relative path"),
        (new_setting("name: PATH, value: b"), "settings[0].name: PATH is reserved"),
        (new_setting("name: USE_LIBUV, value: b"), "settings[3]: never counts, because settings[0] comes first"),
        (new_setting("name: A, value: b;c"), "settings[0].value: 'b;c' contains ';'"),
        (
            ("    plugin: from-host\n", "    plugin: from-host\n    library_path: [libfabrik]\n"),
            "families.twin-torch.library_path: libfabrik is not known here",
        ),
        (new_setting("name: A, value: $HOME/x"), "settings[0].value: contains '$HOME', which nothing expands"),
        (("  - path: /opt/cray", "  - path: /opt/cr*"), "binds[0].path: contains '*', which nothing expands"),
    ],
)
def test_each_rule_names_key_fault_and_remedy(change: tuple[str, str], fault: str) -> None:
    assert fault in site_faults(change)


def test_private_caches_need_a_file_system_where_users_can_make_them() -> None:
    tmp = "{path: /tmp, kind: node-local, writable: yes, in_memory: yes,"
    assert site_faults((tmp, "{path: /tmp, kind: shared, writable: yes,")) == [
        "file_systems[6].writable: has no effect without `kind: node-local`"
    ]
    need = "needs a private directory, and users can make one in no file system"
    assert f"settings[4].directory: MIOPEN_USER_DB_PATH {need}" in site_faults((tmp, "{path: /tmp, kind: node-local,"))


def test_collectives_between_gpus_want_a_stack_that_says_whose() -> None:
    fault = "validation.backend: has no effect without a stack with `gpu`"
    nccl = ("  backend: gloo\n", "  backend: nccl\n")
    assert fault in site_faults(nccl, ("    gpu: amd\n", ""))
    load_text(site_text(nccl))


@pytest.mark.parametrize("sign", [":", "'", "\u00fc"])
def test_the_root_has_a_name_that_modules_can_have(sign: str) -> None:
    message = f"root: {f'/appl/a{sign}b'!r} contains {sign!r}"
    assert site_faults(("root: /appl/lumisite", f'root: "/appl/a{sign}b"')) == [message]
