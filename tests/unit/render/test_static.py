"""EDFs and modules of podman-hpc: what they say, read back by TOML and YAML, and what is said to be lost."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import tomli
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from lumisite.cli import main
from lumisite.errors import ResolveError
from lumisite.render.manifest import RenderedFile
from lumisite.render.render import losses, render_tree
from lumisite.render.templates import dotted_key, load_templates, quote_toml_or_yaml
from lumisite.site.load import LoadedSite
from lumisite.site.selection import resolve_selection
from tests.support.sites import load_text, site_faults, site_text

RUNTIME = "    prefix: SINGULARITY\n"
SETTINGS = "settings:\n"
AI = "singularity-AI-bindings"


def twin(emit: str, *changes: tuple[str, str], more: str = "") -> LoadedSite:
    return load_text(site_text((RUNTIME, f"{RUNTIME}    emit: {emit}\n{more}"), *changes))


def render(loaded: LoadedSite, **asked: Any) -> dict[str, RenderedFile]:
    return render_tree(loaded, resolve_selection(loaded.site, **asked), load_templates())


def edf(loaded: LoadedSite, name: str = AI) -> Mapping[str, Any]:
    found: Mapping[str, Any] = tomli.loads(render(loaded)[f"edf/{name}.toml"].text)
    return found


def podman(loaded: LoadedSite, name: str = "singularity-ai-bindings") -> Mapping[str, Any]:
    found: Mapping[str, Any] = yaml.safe_load(render(loaded)[f"podman-hpc/modules.d/{name}.yaml"].text)
    return found


def setting(text: str) -> tuple[str, str]:
    return SETTINGS, f"{SETTINGS}  - {{{text}, why: w, source: here}}\n"


def test_an_edf_has_what_the_module_and_those_that_it_loads_bind_and_what_is_known_before_the_step() -> None:
    found = edf(twin("edf", more="    annotations: {com.hooks.cxi.enabled: 'true'}\n"))
    places = ["/scratch", "/project", "/projappl", "/flash", "/appl", "/opt/cray", "/usr/lib64/libcxi.so.1"]
    assert found == {
        "image": "",
        "mounts": [f"{path}:{path}" for path in [*places, "/var/spool/slurmd"]],
        "env": {
            "NCCL_SOCKET_IFNAME": "hsn0,hsn1,hsn2,hsn3",
            "GLOO_SOCKET_IFNAME": "hsn0",
            "USE_LIBUV": "0",
            "PYTHONNOUSERSITE": "1",
        },
        "annotations": {"com": {"hooks": {"cxi": {"enabled": "true"}}}},
    }


def test_an_edf_for_several_nodes_has_what_they_need_besides() -> None:
    one, several = (edf(twin("edf"), f"{AI}{suffix}") for suffix in ("", "-several"))
    assert several == {**one, "env": {**one["env"], "NCCL_NET_GDR_LEVEL": "PHB"}}
    assert "edf/singularity-CPEbits-several.toml" not in render(twin("edf"))


def test_a_tree_has_an_edf_by_each_name_and_nothing_that_runs() -> None:
    names = ["", "-25.03-rocm6.2", "-24.03"]
    several = [f"edf/{AI}{name}{more}.toml" for name in names for more in ("", "-several")]
    others = [f"edf/singularity-{name}.toml" for name in ("CPEbits", "CPEbits-25.03")]
    others += [f"edf/singularity-{name}.toml" for name in ("userfilesystems", "userfilesystems-2026-01")]
    assert set(render(twin("edf"))) == {*several, *others, "MANIFEST.json"}


def test_only_the_default_version_has_the_plain_name() -> None:
    files = render(twin("edf"), cpe=["25.03", "24.03"])
    plain, default, other = (
        tomli.loads(files[f"edf/{AI}{one}.toml"].text) for one in ("", "-25.03-rocm6.2", "-24.03-rocm6.2")
    )
    assert plain == default
    assert other["mounts"] == default["mounts"]
    assert "edf/singularity-CPEbits-24.03.toml" in files


def test_a_mount_keeps_its_flags() -> None:
    bind = (
        "binds:\n",
        "binds:\n  - {path: /a, target: /c, options: ro, where: singularity-CPEbits, why: w, source: here}\n",
    )
    assert "/a:/c:ro" in edf(twin("edf", bind))["mounts"]


@pytest.mark.parametrize("sign", ["$", "`", '"', "\\"])
def test_a_value_that_an_engine_would_expand_is_lost_and_not_changed(sign: str) -> None:
    loaded = twin("edf", setting(f"name: PRICE, value: 'a{sign}b', exact: yes"))
    assert "PRICE" not in edf(loaded)["env"]
    assert f"edf/: PRICE = a{sign}b" in losses(render(loaded))


@pytest.mark.parametrize("sign", ["$", "`", ";"])
def test_a_path_that_an_engine_would_expand_is_lost_and_not_changed(sign: str) -> None:
    bind = f"binds:\n  - {{path: '/a{sign}b', exact: yes, where: task, why: w, source: here}}\n"
    loaded = twin("edf", ("binds:\n", bind))
    assert sign not in "".join(edf(loaded)["mounts"])
    lost = losses(render(loaded))
    assert f"edf/: the bind /a{sign}b, which would be expanded" in lost


def test_a_variable_is_taken_away_by_an_edf_and_by_podman() -> None:
    change = setting("name: GONE, unset: yes")
    assert edf(twin("edf", change))["env"]["GONE"] == ""
    assert "--unsetenv=GONE" in podman(twin("podman-hpc", change))["additional_args"]


def test_a_setting_for_a_rocm_release_is_for_the_version_that_names_it() -> None:
    for wanted, expected in ((">=6.2", True), (">=7", False)):
        change = setting(f"name: FOR_ROCM, value: x, when: {{rocm: '{wanted}'}}")
        assert ("FOR_ROCM" in edf(twin("edf", change))["env"]) == expected


def test_what_all_nodes_of_a_site_have_alike_is_known_before_the_step() -> None:
    changes = [setting(f"name: GPUS_{has.upper()}, value: x, when: {{gpus: {has}}}") for has in ("yes", "no")]
    loaded = twin("edf", *changes)  # no node of the twin has one
    assert [name for name in edf(loaded)["env"] if name.startswith("GPUS")] == ["GPUS_NO"]
    assert not [one for one in losses(render(loaded)) if "GPUS" in one]


def test_what_a_module_needs_is_bound_before_what_it_binds_itself() -> None:
    bind = f"binds:\n  - {{path: /own, where: {AI}, why: w, source: here}}\n"
    mounts = edf(twin("edf", ("binds:\n", bind)))["mounts"]
    assert (
        mounts.index("/opt/cray:/opt/cray")
        < mounts.index("/own:/own")
        < mounts.index("/var/spool/slurmd:/var/spool/slurmd")
    )


def test_a_module_of_podman_hpc_says_all_that_the_plan_does_and_takes_the_rest_from_the_task() -> None:
    more = "    arguments: [--ipc=host]\n    shared_run: yes\n"
    found = podman(twin("podman-hpc", more=more))
    assert found["name"] == found["cli_arg"] == "singularity-ai-bindings"
    assert found["env"] == "LUMISITE_SINGULARITY_AI_BINDINGS"
    assert found["shared_run"] is True
    assert found["conflicts"] == ["singularity-ai-bindings-25-03-rocm6-2", "singularity-ai-bindings-24-03"]
    assert found["bind"][0] == "/scratch:/scratch"
    assert found["bind"][-1] == "/var/spool/slurmd:/var/spool/slurmd"
    assert found["additional_args"] == [
        "--ipc=host",
        "--env=NCCL_SOCKET_IFNAME=hsn0,hsn1,hsn2,hsn3",
        "--env=GLOO_SOCKET_IFNAME=hsn0",
        "--env=USE_LIBUV=0",
        "--env=PYTHONNOUSERSITE=1",
        "--env=NCCL_NET_GDR_LEVEL",
        "--env=MASTER_ADDR",
        "--env=MASTER_PORT",
    ]


def test_a_module_of_podman_hpc_without_settings_has_empty_lists() -> None:
    found = podman(twin("podman-hpc"), "singularity-cpebits")
    assert (found["additional_args"], found["bind"][0]) == ([], "/opt/cray:/opt/cray")


COMMON = ["CPU masks of tasks", "MIOPEN_USER_DB_PATH = a private node-local directory, miopen/db"]


@pytest.mark.parametrize(
    ("emit", "change", "lost"),
    [
        ("edf", None, "MASTER_PORT = a port from the ids of the job and the step (set at run time)"),
        ("edf", setting("name: EMPTY, value: ''"), "EMPTY = "),
        ("edf", setting("name: X, value: y, when: {partition: [small-g]}"), "X = y (where partition is small-g)"),
        ("edf", setting("name: X, value: y, when: {family: [twin-torch]}"), "X = y (where family is twin-torch)"),
        ("podman-hpc", setting("name: X, value: y, when: {plugin: yes}"), "X = y (where plugin is yes)"),
        ("podman-hpc", setting("name: X, unset: yes, when: {nodes: one}"), "X is unset (where nodes is one)"),
        (
            "podman-hpc",
            ("binds:\n", "binds:\n  - {path: /a, options: ro, where: task, why: w, source: here}\n"),
            "ro of the bind /a:/a:ro",
        ),
        (
            "podman-hpc",
            ("binds:\n", "binds:\n  - {path: '/a*', exact: yes, where: task, why: w, source: here}\n"),
            "the bind /a*, which would be expanded",
        ),
        (
            "edf",
            ("binds:\n", "binds:\n  - {path: /a, options: 'ro,image-src=/b', where: task, why: w, source: here}\n"),
            "image-src=/b of the bind /a:/a:ro,image-src=/b",
        ),
    ],
)
def test_what_a_file_cannot_say_is_listed_once(emit: str, change: tuple[str, str] | None, lost: str) -> None:
    loaded = twin(emit, *([change] if change else []))
    found = losses(render(loaded))
    folder = "edf" if emit == "edf" else "podman-hpc"
    assert {f"{folder}/: {one}" for one in (*COMMON, lost)} <= set(found)
    assert len(found) == len(set(found))
    files = [file.text for path, file in render(loaded).items() if path.startswith(folder)]
    assert sum(f"#   {lost}\n" in text for text in files) > 0


def test_a_variable_whose_first_entry_only_the_step_decides_is_not_set_at_all() -> None:
    changes = setting("name: X, value: otherwise"), setting("name: X, value: y, when: {partition: [small-g]}")
    assert "X" not in edf(twin("edf", *changes))["env"]
    assert "--env=X" in podman(twin("podman-hpc", *changes))["additional_args"]


def test_what_may_be_left_alone_is_lost_only_where_another_entry_would_set_it() -> None:
    left = "  - {name: X, leave: yes, when: {partition: [small-g]}, why: w, source: here}\n"
    for more, lost in (("", False), ("  - {name: X, value: y, why: w, source: here}\n", True)):
        loaded = twin("edf", (SETTINGS, f"{SETTINGS}{left}{more}"))
        found = losses(render(loaded))
        assert ("edf/: X = y" in found) == lost
        assert not any("left alone" in one for one in found)
        assert "X" not in edf(loaded)["env"]


def test_modulefiles_lose_nothing() -> None:
    loaded = load_text(site_text())
    assert losses(render(loaded)) == []


def test_render_says_what_is_lost_and_strictly_writes_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    Path("site.yaml").write_text(site_text((RUNTIME, f"{RUNTIME}    emit: edf\n")))
    assert main(["render", "--site", "site.yaml", "--strict"]) == 1
    assert not Path("site-out").exists()
    assert main(["render", "--site", "site.yaml"]) == 0
    told = capsys.readouterr().err
    assert told.count("lumisite: cannot be said in edf/: CPU masks of tasks\n") == 2
    assert "nothing was written" in told
    assert f"try it:    export EDF_PATH={Path.cwd()}/site-out/edf\n" in told
    assert main(["deploy", "site-out", "root", "--apply"]) == 0
    assert main(["diff", "site-out", "root"]) == 0
    Path("site-out/edf/singularity-CPEbits.toml").write_text("edited\n")
    assert main(["diff", "site-out", "root"]) == 1


@pytest.mark.parametrize("command", [["env"], ["render", "--strict"]])
def test_what_needs_modulefiles_says_so_and_what_loses_nothing_is_fine(
    command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    emit = "podman-hpc" if command == ["env"] else "modulefile"
    Path("site.yaml").write_text(site_text((RUNTIME, f"{RUNTIME}    emit: {emit}\n")))
    assert main([*command, "--site", "site.yaml"]) == (2 if command == ["env"] else 0)
    assert ("[site-without-modulefiles]" in capsys.readouterr().err) == (command == ["env"])


def test_two_modules_that_would_have_one_name_are_refused() -> None:
    name = "  singularity-CPEbits:\n    template"
    clash = (
        name,
        f"  singularity-cpebits-25.03: {{template: singularity-CPEbits, version: [platform], summary: x}}\n{name}",
    )
    with pytest.raises(ResolveError) as caught:
        render(twin("podman-hpc", clash))
    finding = caught.value.finding
    assert (finding.code, finding.subject.rpartition("/")[2]) == ("file-taken", "singularity-cpebits-25-03.yaml")


@pytest.mark.parametrize(
    ("more", "fault"),
    [
        (
            "    arguments: [--x]\n",
            "runtimes.singularity.arguments: key-without-effect",
        ),
        (
            "    annotations: {a.b: x, a: y}\n",
            "runtimes.singularity.annotations.a: named-twice",
        ),
    ],
)
def test_what_a_runtime_says_to_nobody_is_a_fault(more: str, fault: str) -> None:
    assert site_faults((RUNTIME, f"{RUNTIME}    emit: edf\n{more}")) == [fault]


def test_one_runtime_of_a_kind_is_enough_and_a_modulefile_needs_its_prefix() -> None:
    two = "  pyxis: {emit: edf, variant: x, source: here}\n  other: {emit: edf, variant: x, source: here}\n\nfabric:"
    assert site_faults(("\nfabric:", two)) == ["runtimes.other.emit: named-twice"]
    fault = "runtimes.singularity.prefix: key-missing"
    assert site_faults((RUNTIME, "")) == [fault]


def test_jobs_of_a_validation_load_from_the_folder_that_the_site_has() -> None:
    only_tcl = [
        (f"    template: singularity-{name}\n", f"    template: singularity-{name}\n    systems: [tcl]\n")
        for name in ("userfilesystems", "CPEbits", "AI-bindings")
    ]
    assert load_text(site_text(*only_tcl)).site.module_folder == "modules-tcl"
    assert load_text(site_text()).site.module_folder == "modules"


@settings(max_examples=60)
@given(text=st.text(st.characters(codec="utf-8"), max_size=40))
def test_toml_and_yaml_read_any_string_back(text: str) -> None:
    assert tomli.loads(f"x = {quote_toml_or_yaml(text)}\n") == {"x": text}
    assert yaml.safe_load(f"x: {quote_toml_or_yaml(text)}\n") == {"x": text}
    assert tomli.loads(f"{dotted_key('a.b+c.d')} = 1") == {"a": {"b+c": {"d": 1}}}
