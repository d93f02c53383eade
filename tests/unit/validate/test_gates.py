"""What the gate probes of a site are: derived from its description, and nothing of LUMI in the code."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest

import lumisite
from lumisite.errors import ResolveError
from lumisite.site.selection import resolve_selection
from lumisite.validate.lines import Gate
from lumisite.validate.probes.affinity.judge import expected_topology
from lumisite.validate.probes.binds.judge import host_paths, library_origins
from lumisite.validate.probes.miopen.judge import private_directories
from lumisite.validate.probes.modules.judge import module_binds
from lumisite.validate.probes.probe import OUT, PROBES, Ended, Part, Probe, Record, scripts
from lumisite.validate.probes.python.judge import shuts_out
from lumisite.validate.probes.ranks import Fault, missing, tell
from lumisite.validate.probes.suite import choose_probes, groups
from tests.support.records import a_job, judged, only, target_of
from tests.support.sites import load_text, site_text

PACKAGE = Path(lumisite.__file__).parent
GATES = ["node", "modules", "binds", "affinity", "miopen", "usersite", "conda"]
NODE_PART = Part("", (), each="node")
FOLDERS = ["node", "modules", "binds", "affinity", "miopen", "python", "jax", "wrapper", "job"]


def probes_of(site: str, **options: str) -> dict[str, Probe]:
    return {probe.name: probe for probe in choose_probes(target_of(site, **options))}


def test_the_probes_come_in_their_order() -> None:
    measuring = ["transport", "communicators", "collectives", "ddp", "pairs"]
    assert list(probes_of("twin")) == [*GATES, *measuring]
    assert list(probes_of("twin", jax_image="/j.sif", wrapper="/env")) == [*GATES, "jax", "wrapper", *measuring]


@pytest.mark.parametrize(("name", "option"), [("jax", "--jax-image"), ("wrapper", "--wrapper")])
def test_a_probe_without_what_it_needs_names_the_option(name: str, option: str) -> None:
    with pytest.raises(ResolveError, match=rf"there is no probe '{name}' \(it needs {option}\)"):
        choose_probes(target_of("twin"), [name])


def test_each_folder_is_a_probe_and_says_what_it_asks() -> None:
    probes = probes_of("twin", jax_image="/j.sif", wrapper="/env")
    folders = {path.parent.name for path in (PACKAGE / "validate/probes").glob("*/judge.py")}
    assert folders - {"python"} == set(probes) - {"usersite", "conda"}
    assert all(probe.asks.endswith(".") for probe in probes.values())


def test_commands_are_what_a_user_would_type() -> None:
    probes = probes_of("twin", wrapper="/scratch/env")

    def words(name: str, part: int = 0) -> str:
        return " ".join(probes[name].parts[part].words).replace(PROBES, "/p").replace(OUT, "/o")

    assert words("modules") == (
        "bash /p/modules.sh /o /appl/lumisite/current/modules SINGULARITY_BINDPATH=/etc/hostname:/lumisite-probe -- "
        "singularity-userfilesystems/2026-01 singularity-CPEbits/25.03 singularity-AI-bindings/25.03-rocm6.2"
    )
    assert words("binds").startswith("sh /p/binds_host.sh /o /opt/cray /usr/lib64/libcxi.so.1 /scratch ")
    assert words("affinity") == "singularity exec --bind /p,/o /appl/images/torch.sif python3 /p/affinity.py /o"
    assert words("miopen").endswith("--variable MIOPEN_USER_DB_PATH --variable MIOPEN_CUSTOM_CACHE_DIR")
    assert words("wrapper", 1) == (
        "/scratch/env/bin/python /p/ddp.py /o --backend gloo --part wrapper --model epoch:linear:8:512:16 --warm-up 2 "
        "--limit 60 --steps 8"
    )


def test_the_same_step_serves_usersite_and_conda() -> None:
    probes = probes_of("twin")
    assert probes["usersite"].parts == probes["conda"].parts


def test_every_script_is_there() -> None:
    target = target_of("twin", jax_image="/j.sif", wrapper="/env")
    every = groups(choose_probes(target), target.plan, None, ("n1", "n2"))
    wanted = {file for group in every for step in group.steps for file in step.part.files}
    assert wanted == {name for name, path in scripts().items() if path.is_file()}


def test_scripts_of_probes_do_not_take_each_others_names() -> None:
    folders = (PACKAGE / "validate/probes").glob("*/")
    files = [file for folder in folders for file in folder.iterdir() if file.name.startswith("job") and file.is_file()]
    shared = {"lumisite_record.py", "rank.py"}
    assert len(scripts()) == len(files) + len(shared)
    assert shared < set(scripts())


def test_lumis_own_image_brings_its_network_and_is_started_by_its_runscript() -> None:
    assert probes_of("lumi")["binds"].parts[1].start[:2] == ("singularity", "run")
    target = target_of("lumi", rocm="6.4")
    assert target.family_name == "laif-multitorch"
    names = ("librccl-net.so", "libnccl-net.so", "libfabric.so.1")
    assert library_origins(target) == dict.fromkeys(names, "image")
    paths = [bind.path for bind in host_paths(target)]
    assert "/opt/cray" not in paths
    assert "/var/spool/slurmd" in paths


def test_the_user_site_is_shut_out_where_the_ledger_does_it() -> None:
    assert shuts_out(target_of("twin"))
    without = site_text(("  - name: PYTHONNOUSERSITE\n", "  - name: OTHER\n"))
    assert not shuts_out(target_of(load_text(without).site))


def test_an_older_image_takes_its_network_from_the_host() -> None:
    image = "/appl/local/containers/sif-images/lumi-pytorch-rocm-6.2.1-python-3.12-pytorch-20240918-vllm-4075b35.sif"
    target = target_of("lumi", image)
    assert target.family_name == "lumi-pytorch-conda"
    plugins, libraries = ("librccl-net.so", "libnccl-net.so"), ("libfabric.so.1", "libcxi.so.1")
    assert library_origins(target) == dict.fromkeys(plugins, "image") | dict.fromkeys(libraries, "host")
    assert [bind.where for bind in host_paths(target) if bind.path == "/opt/cray"] == ["singularity-CPEbits"]
    assert target.family.activation == "with-conda"
    assert target.family.prepend_path == ("/opt/miniconda3/envs/pytorch/bin",)
    variables = private_directories(target)
    assert variables[:2] == ["MIOPEN_USER_DB_PATH", "MIOPEN_CUSTOM_CACHE_DIR"]
    assert "AITER_JIT_DIR" not in variables


def test_bus_ids_and_devices_are_the_platforms() -> None:
    buses = [gpu.pci_bus for gpu in expected_topology(target_of("lumi")).gpus]
    assert buses[3:5] == ["0000:ce:00.0", "0000:d1:00.0"]
    assert "--one-gpu" in probes_of("lumi", jax_image="/j.sif")["jax"].parts[0].arguments
    assert "--one-gpu" not in probes_of("twin", jax_image="/j.sif")["jax"].parts[0].arguments


def test_a_target_and_options_of_a_bind_are_told_apart() -> None:
    cxi = "  - path: /usr/lib64/libcxi.so.1\n"
    site = load_text(site_text((cxi, f"{cxi}    target: /opt/l\n    options: ro\n"))).site
    binds = host_paths(target_of(site))
    assert [(bind.path, bind.target) for bind in binds if "libcxi" in bind.path] == [
        ("/usr/lib64/libcxi.so.1", "/opt/l")
    ]


def test_every_version_of_every_module_is_probed() -> None:
    target = target_of("lumi")
    selection = resolve_selection(target.site, rocm=["6.2", "6.4"], cpe=["all"])
    modules = module_binds(dataclasses.replace(target, selection=selection))
    assert sorted(name for name in modules if "AI" in name) == [
        f"singularity-AI-bindings/{cpe}-rocm{rocm}" for cpe in ("25.03", "25.09") for rocm in ("6.2", "6.4")
    ]


def test_no_code_of_a_gate_knows_lumi() -> None:
    asking = [PACKAGE / "validate/probes" / name for name in FOLDERS]
    files = [file for folder in (*asking, PACKAGE / "validate/probes") for file in folder.iterdir() if file.is_file()]
    for file in files:
        code = re.sub(r'""".*?"""|#.*', "", file.read_text(), flags=re.DOTALL)
        assert not re.search(r"\blumi\b|/appl|/pfs|\bhsn|cray|\bcxi\b", code, re.IGNORECASE), file


# ---- lines


def test_equal_faults_are_told_once() -> None:
    job = a_job(tuple(f"nid{number:06}" for number in range(1, 9)), 2)
    faults = [Fault("bad", "mend it", node, rank) for rank, node in enumerate(job.nodes)]
    assert tell(faults, "fine", job) == [
        job.gate("fail", "ranks 0-7 on nid000001, nid000002, nid000003, nid000004 and 4 more: bad", "mend it")
    ]
    assert tell([], "fine", job) == [job.gate("pass", "fine")]
    assert only(tell(faults[1:2], "fine", job)).nodes == ("nid000002",)


def test_a_task_without_a_record_is_named() -> None:
    job = a_job(("a", "b"), 2)
    records = [{"host": "a", "rank": 0}, {"host": "a", "rank": 1}, {"host": "b", "rank": 3}]
    (fault,) = missing(records, job, "the rank")
    assert (fault.node, fault.rank) == ("b", 2)
    assert fault.cause == "the rank left no record: it did not start, or was ended"
    # Busy nodes stand last in a set, and have the first ranks all the same.
    assert missing(records, dataclasses.replace(job, nodes=("b", "a")), "the rank") == [fault]
    assert [fault.node for fault in missing(records[:2], dataclasses.replace(job, part=NODE_PART), "it")] == ["b"]


def test_every_judge_says_so_when_there_is_no_record_at_all() -> None:
    for probe in probes_of("twin", jax_image="/j.sif", wrapper="/env").values():
        lines = judged(probe, [], a_job(("a", "b"), 2))
        assert lines, probe.name
        assert all(isinstance(line, Gate) and line.verdict == "fail" for line in lines), probe.name


def test_a_judge_survives_any_json() -> None:
    odd: tuple[Record, ...] = ({}, {"host": 1, "rank": "x"}, {"host": "a", "rank": 0, "part": "container", "paths": []})
    for probe in probes_of("lumi", jax_image="/j.sif", wrapper="/env").values():
        for record in odd if not probe.together else ():
            assert judged(probe, [{**record, "local_rank": 0}], a_job(("a",), 1)), probe.name


# ---- steps that ended otherwise

WORDS = "FATAL: could not open image /appl/images/none.sif: no such file or directory"


def told(name: str, *codes: int, records: int = 0) -> list[str]:
    """Judge a probe whose steps ended so; the first has a record of each of so many nodes."""
    job = a_job(("n1", "n2"), 1)
    target = target_of("twin")
    (group,) = groups(choose_probes(target, [name]), target.plan, 60, job.nodes)
    left = tuple({"host": job.nodes[rank], "rank": rank, "local_rank": 0} for rank in range(records))
    steps = [
        Ended(step, () if number else left, code, WORDS if code else "")
        for number, (step, code) in enumerate(zip(group.steps, codes, strict=True))
    ]
    return [line.cause for line in group.judge(steps, job) if isinstance(line, Gate)]


def test_a_step_that_ran_nowhere_is_told_in_the_runtimes_words() -> None:
    assert told("conda", 1) == [f"conda-2n ran on no node: {WORDS}"]


@pytest.mark.parametrize(("name", "what"), [("modules", "the login shell"), ("affinity", "the rank")])
def test_a_task_that_left_no_record_is_told_in_the_last_words_of_its_step(name: str, what: str) -> None:
    assert any(cause.endswith(f"{what} left no record: {WORDS}") for cause in told(name, 1, records=1))


def test_a_step_whose_time_was_over_is_told() -> None:
    assert told("conda", 124, records=1) == ["conda-2n was not done after 60 s"]


def test_what_one_step_has_seen_tells_more_than_that_the_other_did_not_run() -> None:
    causes = told("binds", 0, 1, records=2)
    assert causes
    assert not any("ran on no node" in cause for cause in causes)
