"""The judges of caches, Python, JAX and the wrapper, on records that real steps left and on changed ones."""

from __future__ import annotations

from typing import Any

import pytest

from lumisite.validate.lines import Gate, Sample
from lumisite.validate.probes.jax.judge import jax
from lumisite.validate.probes.miopen.judge import miopen
from lumisite.validate.probes.probe import Expected, Target, Vector
from lumisite.validate.probes.python.judge import conda, usersite
from lumisite.validate.probes.wrapper.judge import wrapper
from tests.support.records import TWO_NODES, a_job, causes, changed, judged, only, recorded, target_of
from tests.support.sites import load_text, site_text

TWIN = target_of("twin")

# ---- caches

DB = "MIOPEN_USER_DB_PATH"
PATH = "/tmp/lumisite-2000/miopen/db"


def caches_found(*changes: tuple[str, object]) -> list[str]:
    records = recorded("miopen")
    for key, value in changes:
        records = changed(records, "directories", DB, *key.split("."), value=value)
    return causes(judged(miopen(TWIN), records))


def test_directories_of_an_untouched_twin_pass() -> None:
    assert caches_found() == [f"pass {DB} and MIOPEN_CUSTOM_CACHE_DIR are private and node-local for 2 ranks"]


@pytest.mark.parametrize(
    ("changes", "cause"),
    [
        ([("set", False)], f"{DB} is not set, so that it falls back to the home directory"),
        ([("mount.type", "lustre")], f"{DB}={PATH} is on a lustre file system, which all nodes share"),
        ([("real", "/users/me/x")], f"{DB}={PATH}, which leads to /users/me/x, is on /users, which all nodes share"),
        ([("real", "/usersx")], f"{DB}={PATH}, which leads to /usersx, is not on a node-local file system (/tmp would be right)"),
        ([("exists", False)], f"{DB}={PATH} does not exist"),
        ([("directory", False)], f"{DB}={PATH} is no directory"),
        ([("owner", 1)], f"{DB}={PATH} belongs to user 1, and the job runs as 2000"),
        ([("mode", "770")], f"{DB}={PATH} has mode 770, so that others reach it (700 would be right)"),
        ([("writing", "No space left on device")], f"{DB}={PATH} cannot be written: No space left on device"),
    ],
)  # fmt: skip
def test_a_directorys_fault_is_named(changes: list[tuple[str, object]], cause: str) -> None:
    assert caches_found(*changes) == [f"fail rank 0 on nid000001: {cause}"]


def test_the_sticky_bit_of_the_helpers_own_directory_is_no_fault() -> None:
    assert caches_found(("mode", "1700"))[0].startswith("pass")


def test_a_finding_about_one_rank_has_its_node_and_what_to_do() -> None:
    finding = only(judged(miopen(TWIN), changed(recorded("miopen"), "directories", DB, "set", value=False, rank=1)))
    assert finding.advice == "LUMISITE_VERBOSE=1 srun … says what the helper made of it"
    assert (finding.rank, finding.nodes) == (1, ("nid000002",))


def test_the_advice_names_the_place_that_the_site_has() -> None:
    tmp = "{path: /tmp, kind: node-local, writable: yes,"
    site = load_text(site_text((tmp, "{path: /tmp, kind: node-local, job_folder: $TMPDIR,"))).site
    records = changed(recorded("miopen"), "directories", DB, "owner", value=1)
    for target, place in ((TWIN, "/tmp"), (target_of(site), "$TMPDIR")):
        advice = only(judged(miopen(target), records)).advice
        assert advice.endswith(f"unset {DB} before the job: the helper then makes a private directory under {place}")


def test_a_site_without_such_directories_passes() -> None:
    text = site_text(
        ("    directory: miopen/db\n", "    leave: yes\n"), ("    directory: miopen/cache\n", "    leave: yes\n")
    )
    finding = only(judged(miopen(target_of(load_text(text).site)), recorded("miopen")))
    assert finding.cause == "the site asks for no private directory"


# ---- usersite

SITE = "/users/lumiuser/.local/lib/python3.13/site-packages"


def usersite_found(records: list[Any], target: Target = TWIN) -> list[str]:
    return causes(judged(usersite(target), records))


def user_site(hidden: list[str], own: list[str]) -> list[Any]:
    records = changed(recorded("python"), "user_site_on_path", value=True)
    records = changed(records, "hidden", value=hidden)
    return changed(records, "user_packages", value=own)


def test_packages_of_an_untouched_twin_are_the_images() -> None:
    assert usersite_found(recorded("python")) == [
        "pass no package of a user site or of PYTHONPATH stands before the image's for 2 ranks"
    ]


def test_what_a_user_site_hides_is_named() -> None:
    many = [f"p{number}" for number in range(9)]
    assert usersite_found(user_site(["torch"], ["torch", "x"])) == [
        f"fail rank 0 on nid000001: {SITE} is on sys.path: torch there hides the image's own (PYTHONNOUSERSITE is '1')"
    ]
    assert usersite_found(user_site([], many)) == [
        (
            f"fail rank 0 on nid000001: {SITE} is on sys.path: it has p0, p1, p2, p3, p4, p5 and 3 more "
            "(PYTHONNOUSERSITE is '1')"
        )
    ]


def test_a_ledgers_own_variable_is_missed_before_it_does_harm() -> None:
    records = recorded("python")
    for record in records:
        del record["environment"]["PYTHONNOUSERSITE"]
    (cause,) = usersite_found(records)
    assert cause.startswith("fail ranks 0-1 on nid000001, nid000002: PYTHONNOUSERSITE is not set, so that")
    open_site = load_text(
        site_text(('  - name: PYTHONNOUSERSITE\n    value: "1"\n', "  - name: PYTHONNOUSERSITE\n    leave: yes\n"))
    ).site
    assert usersite_found(records, target_of(open_site))[0].startswith("pass")


def test_what_a_folder_on_pythonpath_hides_is_named() -> None:
    records = changed(recorded("python"), "pythonpath", value=[{"path": "/s", "hidden": ["torch"]}])
    assert usersite_found(records) == ["fail rank 0 on nid000001: PYTHONPATH has /s: torch there hides the image's own"]


@pytest.mark.parametrize("path", ["/gone", "/scratch/me/src", "/x/lib/python3.13/site-packages"])
def test_a_users_own_folder_on_pythonpath_is_theirs(path: str) -> None:
    entry = {"path": path, "hidden": []}
    assert usersite_found(changed(recorded("python"), "pythonpath", value=[entry]))[0].startswith("pass")


# ---- conda

CONDA = target_of(
    "lumi", "/appl/local/containers/sif-images/lumi-pytorch-rocm-6.2.1-python-3.12-pytorch-20240918-vllm-4075b35.sif"
)
MET = "python3 is /usr/bin/python3 (Python 3.13.5, prefix /usr)"


def conda_found(records: list[Any], target: Target = TWIN) -> list[str]:
    return causes(judged(conda(target), records))


def test_the_python_of_an_untouched_twin_is_the_images() -> None:
    assert conda_found(recorded("python")) == ["pass python3 is /usr/bin/python3 3.13.5 for 2 ranks"]


def test_a_python_beside_the_environment_is_named() -> None:
    finding = only(judged(conda(CONDA), recorded("python")))
    assert finding.cause == (
        f"ranks 0-1 on nid000001, nid000002: {MET}; family lumi-pytorch-conda needs it from "
        "/opt/miniconda3/envs/pytorch/bin"
    )
    assert "$WITH_CONDA" in finding.advice


def test_the_environments_python_passes() -> None:
    records = recorded("python")
    for record in records:
        path = "/opt/miniconda3/envs/pytorch/bin/python3"
        record["executable"]["path"] = path
        record["found"]["python"] = {"path": path, "real": record["executable"]["real"]}
    assert conda_found(records, CONDA)[0].startswith("pass")


def test_a_python_without_the_framework_is_named() -> None:
    records = changed(recorded("python"), "frameworks", "torch", value={"path": "", "real": ""})
    assert conda_found(records) == [f"fail rank 0 on nid000001: {MET}, which has no torch"]
    finding = only(judged(conda(target_of("lumi")), records))
    assert "singularity run" in finding.advice


@pytest.mark.parametrize("mount", ["mount", "real_mount"])
def test_a_python_that_is_bound_from_the_host_is_named(mount: str) -> None:
    place = {"point": "/scratch", "type": "lustre", "root": "/"}
    records = changed(recorded("python"), "executable", mount, value=place)
    assert conda_found(records) == [
        f"fail rank 0 on nid000001: {MET} from /scratch, which is bound from the host, not the image's own"
    ]
    mounted = {"point": "/user-software", "type": "fuse.squashfuse_ll", "root": "/"}
    assert conda_found(changed(records, "executable", mount, value=mounted))[0].startswith("pass")


def test_two_pythons_on_path_are_named() -> None:
    other = {"path": "/opt/bin/python", "real": "/opt/bin/python3.6"}
    assert conda_found(changed(recorded("python"), "found", "python", value=other)) == [
        f"fail rank 0 on nid000001: {MET}, but `python` is /opt/bin/python"
    ]


# ---- JAX

TWIN_JAX = target_of("twin", jax_image="/j.sif")


@pytest.mark.parametrize(
    ("key", "value", "cause"),
    [
        ("error", "RuntimeError: no", "JAX failed: RuntimeError: no"),
        ("processes", 1, "JAX counts 1 processes, expected 2"),
        ("local_devices", 8, "JAX counts 8 devices of its own, expected 1"),
        ("devices", 1, "JAX counts 1 devices in all, expected 2"),
        ("sum", 1.0, "the sum over 2 devices is 1.0, expected 3"),
        ("platform", "rocm", "JAX runs on the rocm, expected cpu"),
    ],
)
def test_a_fault_of_jax_is_named(key: str, value: object, cause: str) -> None:
    records = changed(recorded("jax"), key, value=value)
    assert causes(judged(jax(TWIN_JAX), records)) == [f"fail rank 0 on nid000001: {cause}"]


def test_jax_on_the_twin_passes_and_on_a_gpu_node_it_would_not() -> None:
    assert causes(judged(jax(TWIN_JAX), recorded("jax"))) == [
        "pass JAX 0.10.2 finds 2 cpu devices, and the sum over them is right"
    ]
    finding = only(judged(jax(target_of("lumi", jax_image="/j.sif")), recorded("jax")))
    assert finding.cause.endswith("JAX runs on the cpu, expected gpu")
    assert finding.advice.endswith("or the GPU is hidden (ROCR_VISIBLE_DEVICES, --rocm)")
    finding = only(judged(jax(target_of("university", jax_image="/j.sif")), recorded("jax")))
    assert finding.advice.endswith("or the GPU is hidden (CUDA_VISIBLE_DEVICES, --nv)")


# ---- wrapper


TWIN_WRAPPER = target_of("twin", wrapper="/env")
WRAPPER = a_job(TWO_NODES.nodes, 1, "wrapper")


def timed(container: list[float], wrapper: list[float], *, rank: int = 0) -> list[Any]:
    records = recorded("wrapper")
    for record in records:
        record["models"]["epoch"]["step_s"] = [0.1 for _ in container]
    records = changed(records, "models", "epoch", "step_s", value=container, part="container", rank=rank)
    return changed(records, "models", "epoch", "step_s", value=wrapper, part="wrapper", rank=rank)


def wrapper_found(records: list[Any], job: Expected = WRAPPER) -> tuple[list[str], dict[str, float]]:
    lines = judged(wrapper(TWIN_WRAPPER), records, job)
    return causes(lines), {line.metric: line.value for line in lines if isinstance(line, Sample)}


def test_two_environments_stand_side_by_side() -> None:
    found, measures = wrapper_found(timed([0.5, 1.0, 1.0, 1.2], [0.9, 1.5, 1.1, 1.2], rank=1))
    # The first epoch warms up; of the others the fastest counts, and in each the slowest rank.
    assert measures == {
        "wrapper/epoch_s/container/2n": 1.0,
        "wrapper/epoch_s/wrapper/2n": 1.1,
        "wrapper/epoch_ratio/2n": 1.1,
    }
    assert found == [
        "pass the fastest epoch takes 1.1 s in the wrapper's environment and 1 s in the container (1.10 times)"
    ]


def test_every_epoch_is_kept_for_a_table() -> None:
    lines = judged(wrapper(TWIN_WRAPPER), timed([2.0, 1.0], [4.0, 1.5]), WRAPPER)
    assert [(line.series, line.values) for line in lines if isinstance(line, Vector)] == [
        ("wrapper/epoch_s/container/2n", (2.0, 1.0)),
        ("wrapper/epoch_s/wrapper/2n", (4.0, 1.5)),
    ]


def test_an_epoch_is_the_sum_of_its_steps() -> None:
    lines = judged(wrapper(TWIN_WRAPPER), timed([1.0, 2.0] * 4, [1.0] * 6 + [2.0, 2.0]), WRAPPER)
    assert [line.values for line in lines if isinstance(line, Vector)] == [(3.0, 3.0, 3.0, 3.0), (2.0, 2.0, 2.0, 4.0)]


def test_a_much_slower_environment_is_named_with_what_it_lacks() -> None:
    records = timed([1.0, 1.0], [9.0, 7.7])
    for record in records:
        if record["part"] == "container":
            record["mapped"] = ["/opt/aws-ofi-rccl/librccl-net.so"]
            record["environment"]["NCCL_SOCKET_IFNAME"] = "hsn"
        else:
            record["mapped"] = []
            del record["environment"]["NCCL_SOCKET_IFNAME"]
    (finding, *_) = judged(wrapper(TWIN_WRAPPER), records, WRAPPER)
    assert isinstance(finding, Gate)
    assert finding.verdict == "fail"
    assert "(7.70 times); in the environment NCCL_SOCKET_IFNAME is not set, not hsn" in finding.cause
    assert "librccl-net is not in use" in finding.cause
    assert "LUMISITE_TYKKY" in finding.advice


def test_training_that_failed_is_named_with_its_part() -> None:
    records = changed(recorded("wrapper"), "error", value="RuntimeError: gloo", part="wrapper", rank=1)
    found, measures = wrapper_found(records)
    assert found == ["fail rank 1 on nid000002: training in the wrapper failed: RuntimeError: gloo"]
    assert not measures


def test_an_environment_that_did_not_start_is_named() -> None:
    records = [record for record in recorded("wrapper") if record["part"] == "container"]
    assert wrapper_found(records)[0] == [
        "fail ranks 0-1 on nid000001, nid000002: the rank in the wrapper left no record: it did not start, or was ended"
    ]


@pytest.mark.parametrize(("nodes", "tasks", "shape"), [(1, 1, "1g"), (1, 2, "1n"), (2, 1, "2n")])
def test_shapes_are_named_as_metrics_are(nodes: int, tasks: int, shape: str) -> None:
    (record, *_) = timed([1.0, 1.0], [1.0, 1.0])
    both = [
        {**record, "part": part, "rank": rank} for rank in range(nodes * tasks) for part in ("container", "wrapper")
    ]
    _, measures = wrapper_found(both, a_job(TWO_NODES.nodes[:nodes], tasks, "wrapper"))
    assert {name.rpartition("/")[2] for name in measures} == {shape}
