"""CDI devices: what their files say, checked by the published schema, and what is said to be lost."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft7Validator
from referencing import Registry, Resource
from referencing.jsonschema import DRAFT7

from lumisite.cli import main
from lumisite.errors import ResolveError
from lumisite.render.manifest import RenderedFile
from lumisite.render.render import losses, render_tree
from lumisite.render.templates import load_templates
from lumisite.site.load import EMBEDDED, LoadedSite, load_plans, load_site
from lumisite.site.selection import resolve_selection
from tests.support.sites import load_text, site_faults, site_text

RUNTIME = "    prefix: SINGULARITY\n"
CDI = ("\nfabric:", "  podman: {emit: cdi, variant: 4.3, source: here}\n\nfabric:")
BINDS = "binds:\n"
SETTINGS = "settings:\n"
FAMILY = "cdi/twin-twin-torch.json"
PLAN = Path(__file__).parents[2] / "golden/plans/small.yaml"
SCHEMA = Path(__file__).parents[2] / "data/cdi"
#: The keys that the specification has of a device's edits, without hooks. Runtimes refuse a file with others.
KEYS = {"env": str, "deviceNodes": {"path"}, "mounts": {"hostPath", "containerPath", "options"}}


def twin(*changes: tuple[str, str]) -> LoadedSite:
    return load_text(site_text(CDI, *changes))


def setting(text: str) -> tuple[str, str]:
    return SETTINGS, f"{SETTINGS}  - {{{text}, why: w, source: here}}\n"


def bind(text: str) -> tuple[str, str]:
    return BINDS, f"{BINDS}  - {{{text}, why: w, source: here}}\n"


def render(loaded: LoadedSite, *plans: Path, **asked: Any) -> dict[str, RenderedFile]:
    selection = resolve_selection(loaded.site, **asked)
    return render_tree(loaded, selection, load_templates(), load_plans(loaded, plans))


def devices(files: Mapping[str, RenderedFile], path: str = FAMILY) -> dict[str, Any]:
    """Return the edits of each device of a file, by its name."""
    return {one["name"]: one["containerEdits"] for one in json.loads(files[path].text)["devices"]}


def edits(*changes: tuple[str, str], name: str = "twin") -> Any:
    return devices(render(twin(*changes)))[name]


def environment(*changes: tuple[str, str], name: str = "twin") -> dict[str, str]:
    return dict(text.split("=", 1) for text in edits(*changes, name=name)["env"])


def lost(*changes: tuple[str, str]) -> list[str]:
    return [text.removeprefix("cdi/: ") for text in losses(render(twin(*changes)))]


# ---- what the specification wants


@pytest.fixture(scope="module")
def schema() -> Draft7Validator:
    read = {name: json.loads((SCHEMA / name).read_text()) for name in ("schema.json", "defs.json")}
    defs = Resource.from_contents(read["defs.json"], default_specification=DRAFT7)
    return Draft7Validator(read["schema.json"], registry=Registry().with_resource("defs.json", defs))


def faults(schema: Draft7Validator, text: str) -> Iterator[str]:
    """Yield what a strict reader of version 0.5.0 refuses of a file."""
    document = json.loads(text)
    assert yaml.safe_load(text) == document, "podman reads it as YAML"
    yield from (error.message for error in schema.iter_errors(document))
    if set(document) != {"cdiVersion", "kind", "devices"} or document["cdiVersion"] != "0.5.0":
        yield f"keys or version: {sorted(document)}"
    if not re.fullmatch(r"[a-z][a-z0-9.-]*[a-z0-9]/[A-Za-z][A-Za-z0-9_-]*[A-Za-z0-9]", document["kind"]):
        yield f"kind {document['kind']}"
    names = [device["name"] for device in document["devices"]]
    if len(names) != len(set(names)) or not names:
        yield f"names {names}"
    for device in document["devices"]:
        if not re.fullmatch("[A-Za-z0-9][A-Za-z0-9_.-]*[A-Za-z0-9]", device["name"]):
            yield f"name {device['name']}"
        for key, entries in device["containerEdits"].items():
            known = KEYS.get(key)
            if not entries or any(type(entry) is not known and set(entry) != known for entry in entries):
                yield f"{key} of {device['name']}: {entries}"
        if any("=" not in entry[1:] for entry in device["containerEdits"]["env"]):
            yield f"env of {device['name']}"


@pytest.mark.parametrize("name", sorted(path.stem for path in EMBEDDED.glob("*.yaml")))
def test_each_site_can_have_devices_as_the_schema_wants_them(name: str, schema: Draft7Validator) -> None:
    text = (EMBEDDED / f"{name}.yaml").read_text()
    text = (
        text
        if "emit: cdi" in text
        else text.replace("\nruntimes:\n", "\nruntimes:\n  podman: {emit: cdi, variant: x, source: here}\n", 1)
    )
    text = re.sub(r"^plans:.*\n(  .*\n)*", "", text, flags=re.MULTILINE)
    files = {path: file.text for path, file in render(load_text(text)).items() if path.startswith("cdi/")}
    assert len(files) == len(load_site(name).site.families)
    assert {path: list(faults(schema, text)) for path, text in files.items()} == {path: [] for path in files}


def test_the_check_of_the_schema_finds_faults(schema: Draft7Validator) -> None:
    text = render(twin())[FAMILY].text
    for old, new in (
        ('"hostPath"', '"hostpath"'),
        ('"cdiVersion": "0.5.0"', '"cdiVersion": "9"'),
        ('"kind": "twin/twin-torch"', '"kind": "twin/twin.torch"'),
        ('"mounts"', '"hooks"'),
        ("twin-several", "twin"),
    ):
        assert old in text
        assert list(faults(schema, text.replace(old, new))), new


# ---- what a device has


def test_a_device_has_the_binds_of_the_familys_modules_and_of_tasks_and_what_is_known_before_the_step() -> None:
    found = edits()
    places = ["/scratch", "/project", "/projappl", "/flash", "/appl", "/opt/cray", "/usr/lib64/libcxi.so.1"]
    assert {mount["hostPath"] for mount in found["mounts"]} == {*places, "/var/spool/slurmd"}
    assert {"hostPath": "/opt/cray", "containerPath": "/opt/cray", "options": ["rbind"]} in found["mounts"]
    assert environment() == {
        "LUMISITE_DEVICE": "twin/twin-torch=twin",
        "NCCL_SOCKET_IFNAME": "hsn0,hsn1,hsn2,hsn3",
        "GLOO_SOCKET_IFNAME": "hsn0",
        "USE_LIBUV": "0",
        "PYTHONNOUSERSITE": "1",
    }


def test_a_device_for_steps_on_several_nodes_has_what_they_need_besides() -> None:
    one, several = environment(), environment(name="twin-several")
    assert several == {**one, "LUMISITE_DEVICE": "twin/twin-torch=twin-several", "NCCL_NET_GDR_LEVEL": "PHB"}


def test_each_node_kind_has_its_own_device() -> None:
    kinds = ("node_kinds:\n", "node_kinds:\n  bare: {memory_mib: 1000, l3: [], source: here}\n")
    change = setting("name: BARE, value: x, when: {kind: [bare]}")
    assert "BARE" in environment(kinds, change, name="bare")
    assert "BARE" not in environment(kinds, change)


def test_other_releases_of_the_host_are_in_the_names() -> None:
    change = setting("name: OLD, value: x, when: {cpe: '<25'}")
    found = devices(render(twin(change), cpe=["25.03", "24.03"]))
    assert list(found) == [f"twin{release}{end}" for release in ("", "-cpe24.03") for end in ("", "-several")]
    assert [name for name, edits in found.items() if "OLD=x" in edits["env"]] == [
        "twin-cpe24.03",
        "twin-cpe24.03-several",
    ]


def test_a_mount_keeps_its_target_and_ro_and_comes_behind_what_it_is_in() -> None:
    found = edits(bind("path: /a, target: /opt/cray/in/it, options: ro, where: singularity-CPEbits"))["mounts"]
    assert {"hostPath": "/a", "containerPath": "/opt/cray/in/it", "options": ["rbind", "ro"]} in found
    depths = [mount["containerPath"].count("/") for mount in found]
    assert depths == sorted(depths)


def test_the_vendor_is_the_sites_domain_or_its_name() -> None:
    found = render(twin(("\nfabric:", "\ncdi_vendor: hpc.twin.example\n\nfabric:")))
    assert json.loads(found["cdi/hpc.twin.example-twin-torch.json"].text)["kind"] == "hpc.twin.example/twin-torch"


def test_a_plan_has_devices_of_its_own() -> None:
    """What was read in the image is known, its libraries are bound, and what it must not have is not."""
    known = setting("name: READ, value: x, when: {plugin: yes}")
    text = PLAN.read_text().replace("library_path:", "holds: {plugin: yes}\nlibrary_path:")
    Path("small.v2.yaml").write_text(text)
    files = render(twin(known), Path("small.v2.yaml"))
    found = devices(files, "cdi/twin-plan-small-v2.json")["twin"]
    mounts = {mount["containerPath"]: mount["hostPath"] for mount in found["mounts"]}
    assert mounts["/usr/lib/x86_64-linux-gnu/libfabric.so.1"] == "/opt/cray/libfabric/1.22.0/lib64/libfabric.so.1"
    assert "/usr/lib64/libcxi.so.1" not in mounts
    assert "/opt/cray" in mounts
    assert "READ=x" in found["env"]
    assert "READ=x" not in devices(files)["twin"]["env"]
    assert "cdi/: LD_LIBRARY_PATH = /opt/cray/libfabric/1.22.0/lib64" in losses(files)


def test_two_plans_of_one_kind_are_refused() -> None:
    for name, path in (("a.b.yaml", "/one.sif"), ("a-b.yaml", "/two.sif")):
        text = re.sub(r"paths: .*", f"paths: [{path}]", PLAN.read_text())
        Path(name).write_text(text)
    with pytest.raises(ResolveError) as caught:
        render(twin(), Path("a.b.yaml"), Path("a-b.yaml"))
    assert (caught.value.finding.code, caught.value.finding.values["kind"]) == ("kind-taken", "twin/plan-a-b")


LUMI = (
    (EMBEDDED / "lumi.yaml")
    .read_text()
    .replace("runtimes:\n", "runtimes:\n  podman: {emit: cdi, variant: x, source: UG}\n", 1)
)


def test_device_nodes_are_those_that_a_node_kind_surely_has() -> None:
    files = render(load_text(LUMI))
    found = devices(files, "cdi/lumi-laif-mpich.json")
    paths = [node["path"] for node in found["lumi-g"]["deviceNodes"]]
    gpus = [f"/dev/dri/renderD{number}" for number in range(128, 136)]
    assert paths == ["/dev/kfd", *gpus, "/dev/cxi0", "/dev/cxi1", "/dev/cxi2", "/dev/cxi3"]
    assert "deviceNodes" not in found["lumi-c"]
    assert "cdi/: device nodes of Slingshot (`nics` of lumi-c lists no adapter)" in losses(files)


def test_gpus_of_a_vendor_with_a_file_of_its_own_are_left_to_that() -> None:
    files = render(load_site("perlmutter"))
    found = devices(files, "cdi/perlmutter-any.json")["a100"]
    assert not [node for node in found["deviceNodes"] if "nvidia" in node["path"]]
    assert "cdi/: GPUs (--device=nvidia.com/gpu=all)" in losses(files)


# ---- what it cannot have


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (None, "CPU masks of tasks"),
        (None, "MASTER_PORT (--env=MASTER_PORT)"),
        (None, "MIOPEN_USER_DB_PATH = a private node-local directory, miopen/db"),
        (setting("name: GONE, unset: yes"), "GONE is unset"),
        (setting("name: X, value: y, when: {partition: [small-g]}"), "X (--env=X)"),
        (setting("name: X, value: y, when: {plugin: yes}"), None),
        (setting("name: X, value: y, when: {rocm: '>=6'}"), "X = y (where rocm is >=6)"),
        (bind("path: /a, where: task, required: no"), "the bind /a (`required: no`)"),
        (bind("path: /a, where: task, when: {partition: [small-g]}"), "the bind /a (where partition is small-g)"),
        (bind("path: /a, where: task, options: 'ro,image-src=/b'"), "image-src=/b of the bind /a:/a:ro,image-src=/b"),
        (
            ("    plugin: from-host\n", "    plugin: from-host\n    library_path: [libfabric]\n"),
            "LD_LIBRARY_PATH = /opt/cray/libfabric/1.22.0/lib64",
        ),
        (("    plugin: from-host\n", "    plugin: from-host\n    prepend_path: [/env/bin]\n"), "PATH = /env/bin first"),
    ],
)
def test_what_a_device_cannot_have_is_listed_once(change: tuple[str, str] | None, text: str | None) -> None:
    changes = [change] if change else []
    found = lost(*changes)
    assert text is None or text in found
    assert len(found) == len(set(found))
    assert "X" not in environment(*changes)
    assert not {"/a"} & {mount["hostPath"] for mount in edits(*changes)["mounts"] if mount["options"] == ["rbind"]}


def test_a_variable_whose_first_entry_only_the_step_decides_is_not_set_at_all() -> None:
    changes = setting("name: X, value: otherwise"), setting("name: X, value: y, when: {partition: [small-g]}")
    assert "X" not in environment(*changes)


def test_a_variable_whose_first_entry_the_image_decides_is_not_set_to_what_would_come_behind() -> None:
    changes = setting("name: X, value: otherwise"), setting("name: X, value: y, when: {rocm: '>=6'}")
    assert "X" not in environment(*changes)
    assert {"X = y (where rocm is >=6)", "X (--env=X)"} <= set(lost(*changes))


def test_what_may_be_left_alone_is_lost_only_where_another_entry_would_set_it() -> None:
    left = "  - {name: X, leave: yes, when: {variable: {A: b}}, why: w, source: here}\n"
    for more, is_lost in (("", False), ("  - {name: X, directory: y, why: w, source: here}\n", True)):
        change = (SETTINGS, f"{SETTINGS}{left}{more}")
        assert any(one.startswith("X ") for one in lost(change)) == is_lost
        assert "X" not in environment(change)


def test_a_family_is_the_users_word_and_no_value_that_harms_a_wrong_image_follows_from_it() -> None:
    harm = "evidence: [{effect: harmful, by: documented, of: y, when: {plugin: no}, source: here}]"
    changes = (
        SETTINGS,
        SETTINGS
        + "  - {name: X, value: y, when: {plugin: yes}, why: w, source: here}\n"
        + f"  - {{name: X, leave: yes, why: w, {harm}}}\n",
    )
    inside = ("    plugin: from-host\n", "    plugin: in-image\n")
    assert "X" not in environment(changes, inside)
    assert "X = y (needs an image that was read, here only its name is known)" in lost(changes, inside)


def test_signs_that_a_shell_reads_stay_as_they_are() -> None:
    value = "100% of $5 {a} \\d, `e` ümläut *"
    assert environment(setting(f"name: PRICE, value: '{value}', exact: yes"))["PRICE"] == value
    assert environment(setting("name: EMPTY, value: ''"))["EMPTY"] == ""


# ---- around it


def test_a_site_that_wants_no_devices_has_none_and_loses_nothing() -> None:
    files = render(load_text(site_text()))
    assert losses(files) == []
    assert not [path for path in files if path.startswith("cdi/")]


def test_render_says_what_is_lost_and_strictly_writes_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    Path("site.yaml").write_text(site_text(CDI))
    assert main(["render", "--site", "site.yaml", "--strict"]) == 1
    assert not Path("site-out").exists()
    assert main(["render", "--site", "site.yaml"]) == 0
    told = capsys.readouterr().err
    assert told.count("lumisite: cannot be said in cdi/: CPU masks of tasks\n") == 2
    assert "nothing was written" in told
    assert f"try it:    ln -s {Path.cwd()}/site-out/cdi/*.json /etc/cdi/\n" in told
    assert main(["deploy", "site-out", "root", "--apply"]) == 0
    assert (Path("root/current") / FAMILY).read_text() == (Path("site-out") / FAMILY).read_text()
    assert main(["deploy", "site-out", "root"]) == 0
    (Path("site-out") / FAMILY).write_text("edited\n")
    assert main(["deploy", "site-out", "root"]) == 1


def test_a_site_with_devices_alone_has_a_prolog_and_no_wrapper() -> None:
    files = render(twin((RUNTIME, "    emit: cdi\n")))
    assert {path.split("/")[0] for path in files} == {"cdi", "spank", "MANIFEST.json"}
    assert not [path for path in files if path.startswith("spank/bin")]


VENDOR = ("\nfabric:", "\ncdi_vendor: {}\n\nfabric:")


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ([CDI, (VENDOR[0], VENDOR[1].format("Twin"))], "cdi_vendor: wrong-type"),
        ([CDI, (VENDOR[0], VENDOR[1].format("hpc..example"))], "cdi_vendor: wrong-type"),
        ([CDI, ("name: twin\n", "name: 2twin\n")], "name: wrong-type"),
        ([CDI, ("  twin-torch:\n", "  twin.torch:\n")], "families.twin.torch: wrong-type"),
        (
            [CDI, ("node_kinds:\n", "node_kinds:\n  a-several: {memory_mib: 1000, l3: [], source: here}\n")],
            "node_kinds.a-several: name-reserved",
        ),
        ([(VENDOR[0], VENDOR[1].format("hpc.example"))], "cdi_vendor: key-without-effect"),
        ([(RUNTIME, "")], "runtimes.singularity.prefix: key-missing"),
    ],
)
def test_names_that_no_runtime_takes_are_faults(changes: list[tuple[str, str]], fault: str) -> None:
    assert site_faults(*changes) == [fault]


def test_jobs_of_a_validation_load_from_the_folder_that_the_site_has() -> None:
    only_tcl = [
        (f"    template: singularity-{name}\n", f"    template: singularity-{name}\n    systems: [tcl]\n")
        for name in ("userfilesystems", "CPEbits", "AI-bindings")
    ]
    assert load_text(site_text(*only_tcl)).site.module_folder == "modules-tcl"
    assert load_text(site_text()).site.module_folder == "modules"
