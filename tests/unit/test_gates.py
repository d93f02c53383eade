"""What the gate probes of a site are: derived from its description, and nothing of LUMI in the code."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest

import lumisite
from lumisite.errors import ResolveError
from lumisite.site.load import load_site
from lumisite.site.model import Site
from lumisite.site.selection import resolve_selection
from lumisite.validate.probes import gate_expectations as expect
from lumisite.validate.probes.findings import Fault, Finding, JobShape, findings, missing
from lumisite.validate.probes.gates import GateProbe, gate_probes, step_command
from tests.unit.sites import load_text, site_text

PACKAGE = Path(lumisite.__file__).parent


def probes_of(site: Site, **options: str) -> dict[str, GateProbe]:
    selection = resolve_selection(site, rocm=["6.2"])
    return {probe.name: probe for probe in gate_probes(site, selection, **options)}


def asked(name: str, image: str | None = None, rocm: str = "6.2") -> expect.Question:
    site = load_site(name).site
    return expect.question(site, resolve_selection(site, rocm=[rocm]), image)


def test_the_probes_come_in_their_order() -> None:
    twin = load_site("twin").site
    assert list(probes_of(twin)) == ["modules", "binds", "affinity", "miopen", "usersite", "conda"]
    assert list(probes_of(twin, jax_image="/j.sif", wrapper="/env"))[6:] == ["jax", "wrapper"]


def test_a_site_without_validation_is_refused() -> None:
    twin = dataclasses.replace(load_site("twin").site, validation=None)
    with pytest.raises(ResolveError, match="twin does not say what is validated"):
        gate_probes(twin, resolve_selection(twin))


def test_commands_are_what_a_user_would_type() -> None:
    probes = probes_of(load_site("twin").site, wrapper="/scratch/env")

    def words(name: str, step: int = 0) -> str:
        probe = probes[name]
        return " ".join(step_command(probe, probe.steps[step], runtime="singularity", probes="/p", out="/o"))

    assert words("modules") == (
        "bash /p/modules.sh /o /appl/lumisite/current/modules SINGULARITY_BINDPATH=/etc/hostname:/lumisite-probe -- "
        "singularity-userfilesystems/2026-01 singularity-CPEbits/25.03 singularity-AI-bindings/25.03-rocm6.2"
    )
    assert words("binds").startswith("sh /p/binds_host.sh /o /opt/cray /usr/lib64/libcxi.so.1 /scratch ")
    assert words("affinity") == "singularity exec --bind /p,/o /appl/images/torch.sif python3 /p/affinity.py /o"
    assert words("miopen").endswith("--variable MIOPEN_USER_DB_PATH --variable MIOPEN_CUSTOM_CACHE_DIR")
    assert words("wrapper", 1) == "/scratch/env/bin/python /p/wrapper.py /o --part wrapper --backend gloo --steps 2"


def test_the_same_step_serves_usersite_and_conda() -> None:
    probes = probes_of(load_site("twin").site)
    assert probes["usersite"].steps == probes["conda"].steps


def test_every_script_is_there() -> None:
    probes = probes_of(load_site("twin").site, jax_image="/j.sif", wrapper="/env")
    wanted = {file for probe in probes.values() for step in probe.steps for file in step.files}
    assert {name for name in wanted if not (PACKAGE / "validate/probes/jobside" / name).is_file()} == set()


def test_lumis_own_image_brings_its_network_and_is_started_by_its_runscript() -> None:
    probes = probes_of(load_site("lumi").site)
    assert probes["binds"].action == "run"
    binds = expect.expected_binds(asked("lumi", rocm="6.4"))
    assert binds.family == "laif-multitorch"
    assert binds.plugins == ("librccl-net.so", "libnccl-net.so")
    assert (binds.plugin_from, binds.library_from) == ("image", {"libfabric.so.1": "image"})
    assert "/opt/cray" not in [bind.path for bind in binds.binds]
    assert "/var/spool/slurmd" in [bind.path for bind in binds.binds]


def test_an_older_image_takes_its_network_from_the_host() -> None:
    image = "/appl/local/containers/sif-images/lumi-pytorch-rocm-6.2.1-python-3.12-pytorch-20240918-vllm-4075b35.sif"
    binds = expect.expected_binds(asked("lumi", image))
    assert binds.family == "lumi-pytorch-conda"
    assert binds.library_from == {"libfabric.so.1": "host", "libcxi.so.1": "host"}
    assert [bind.by for bind in binds.binds if bind.path == "/opt/cray"] == ["singularity-CPEbits"]
    python = expect.expected_python(asked("lumi", image))
    assert (python.activation, python.prepend_path) == ("with-conda", ("/opt/miniconda3/envs/pytorch/bin",))
    variables = expect.expected_caches(asked("lumi", image)).variables
    assert variables[:2] == ("MIOPEN_USER_DB_PATH", "MIOPEN_CUSTOM_CACHE_DIR")
    assert "AITER_JIT_DIR" in variables


def test_bus_ids_and_devices_are_the_platforms() -> None:
    buses = [gpu.pci_bus for gpu in expect.expected_affinity(asked("lumi")).topology.gpus]
    assert buses[3:5] == ["0000:ce:00.0", "0000:d1:00.0"]
    assert expect.expected_jax(asked("lumi")).platform == "gpu"
    assert expect.expected_jax(asked("twin")).platform == "cpu"


def test_a_target_and_options_of_a_bind_are_told_apart() -> None:
    cxi = "  - path: /usr/lib64/libcxi.so.1\n"
    site = load_text(site_text((cxi, f"{cxi}    target: /opt/l\n    options: ro\n"))).site
    binds = expect.expected_binds(expect.question(site, resolve_selection(site), None)).binds
    assert [(bind.path, bind.target) for bind in binds if "libcxi" in bind.path] == [
        ("/usr/lib64/libcxi.so.1", "/opt/l")
    ]


def test_every_version_of_every_module_is_probed() -> None:
    site = load_site("lumi").site
    selection = resolve_selection(site, rocm=["6.2", "6.4"], cpe=["all"])
    modules = expect.expected_modules(expect.question(site, selection, None)).modules
    assert sorted(module.name for module in modules if "AI" in module.name) == [
        f"singularity-AI-bindings/{cpe}-rocm{rocm}" for cpe in ("25.03", "25.09") for rocm in ("6.2", "6.4")
    ]


def test_no_code_of_a_gate_knows_lumi() -> None:
    files = [
        *PACKAGE.glob("validate/probes/gate*.py"),
        *PACKAGE.glob("validate/probes/jobside/*"),
        PACKAGE / "validate/probes/findings.py",
    ]
    for file in (file for file in files if file.is_file()):
        code = re.sub(r'""".*?"""|#.*', "", file.read_text(), flags=re.DOTALL)
        assert not re.search(r"\blumi\b|/appl|/pfs|\bhsn|cray|\bcxi\b", code, re.IGNORECASE), file


# ---- lines


def test_equal_faults_are_told_once() -> None:
    job = JobShape(tuple(f"nid{number:06}" for number in range(1, 9)), 2)
    faults = [Fault("bad", "mend it", node, rank) for rank, node in enumerate(job.nodes)]
    (finding,) = findings("gate", faults, "fine", job)
    assert finding == Finding(
        "gate",
        "fail",
        "ranks 0-7 on nid000001, nid000002, nid000003, nid000004 and 4 more: bad",
        "mend it",
        job.nodes,
    )
    assert findings("gate", [], "fine", job) == (Finding("gate", "pass", "fine", "", job.nodes),)


def test_a_task_without_a_record_is_named() -> None:
    job = JobShape(("a", "b"), 2)
    records = [{"host": "a", "rank": 0}, {"host": "a", "rank": 1}, {"host": "b", "rank": 3}]
    (fault,) = missing(records, job, each="gpu", what="the rank")
    assert (fault.node, fault.rank) == ("b", 2)
    assert fault.cause == "the rank left no record: it did not start, or was ended"
    assert [fault.node for fault in missing(records[:2], job, each="node", what="it")] == ["b"]


def test_every_judge_says_so_when_there_is_no_record_at_all() -> None:
    job = JobShape(("a", "b"), 2)
    for probe in probes_of(load_site("twin").site, jax_image="/j.sif", wrapper="/env").values():
        lines = probe.judge([], job)
        assert lines, probe.name
        assert all(isinstance(line, Finding) and line.verdict == "fail" for line in lines), probe.name


def test_a_judge_survives_any_json() -> None:
    job = JobShape(("a",), 1)
    for probe in probes_of(load_site("lumi").site, jax_image="/j.sif", wrapper="/env").values():
        for record in ({}, {"host": 1, "rank": "x"}, {"host": "a", "rank": 0, "part": "container", "paths": []}):
            assert probe.judge([record], job), probe.name
