"""Each runtime has its own variables and no other's; and where a container finds libraries bound under another path."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest

from lumisite.cli import main
from lumisite.render.render import losses, render_tree
from lumisite.render.templates import load_templates
from lumisite.site.load import LoadedSite
from lumisite.site.selection import resolve_selection
from tests.support.prologs import (
    ROOT,
    SHELLS,
    STEP,
    Script,
    lay_out,
    lumi_like,
    render_files,
    shell_command,
    write_script,
)
from tests.support.sites import load_text, site_faults, site_text
from tests.support.wrappers import FILES, RUNTIME, Wrapper

SINGULARITY = "    prefix: SINGULARITY\n"
CRAY = "  - path: /opt/cray\n"
UNDER_HOST = (CRAY, f"{CRAY}    target: /host/opt/cray\n")
BORROWS = ("    plugin: from-host\n", "    plugin: from-host\n    library_path: [libfabric]\n")
INSIDE = "/host/opt/cray/libfabric/1.22.0/lib64"
OTHERS = (
    "\nfabric:",
    "  podman: {emit: cdi, variant: x, source: here}\n\nfabric:",
)
OF_RUNTIMES = (
    "settings:\n",
    (
        "settings:\n"
        "  - {name: SINGULARITY_CONTAINLIBS, value: /a, where: singularity-AI-bindings, why: w, source: here}\n"
        "  - {name: APPTAINERENV_A, value: b, why: w, source: here}\n"
        "  - {name: SINGULARITYENV_A, value: b, when: {partition: [small-g]}, why: w, source: here}\n"
        "  - {name: APPTAINER_NV, value: '1', when: {plugin: yes}, why: w, source: here}\n"
    ),
)


def tree(loaded: LoadedSite) -> dict[str, str]:
    return {
        path: file.text for path, file in render_tree(loaded, resolve_selection(loaded.site), load_templates()).items()
    }


# ---- whose variables they are


def test_files_for_other_runtimes_have_no_variable_of_singularity_or_apptainer() -> None:
    loaded = load_text(site_text(OTHERS, OF_RUNTIMES))
    files = render_tree(loaded, resolve_selection(loaded.site), load_templates())
    own = re.compile(r"\b(SINGULARITY|APPTAINER)(ENV)?_(CONTAINLIBS|A|NV)\b")
    holding = {path.partition("/")[0] for path, file in files.items() if own.search(file.text)}
    assert holding == {"help", "modules", "spank", "MANIFEST.json"}
    assert not [one for one in losses(files) if "APPTAINER" in one or "SINGULARITY" in one]
    assert "SINGULARITY_CONTAINLIBS" in files["modules/singularity-AI-bindings/25.03-rocm6.2.lua"].text
    assert "APPTAINERENV_A" in files["spank/task_prolog"].text


def test_a_site_whose_runtime_reads_no_such_variable_sets_none() -> None:
    faults = site_faults((SINGULARITY, "    emit: cdi\n"), OF_RUNTIMES)
    names = ["SINGULARITY_CONTAINLIBS", "APPTAINERENV_A", "SINGULARITYENV_A", "APPTAINER_NV"]
    assert faults == [f"settings[{index}].name: key-without-effect" for index in range(len(names))]


def test_without_a_runtime_for_modulefiles_there_is_no_wrapper_and_the_prolog_binds_nothing(tmp_path: Path) -> None:
    files = tree(load_text(site_text((SINGULARITY, "    emit: cdi\n"))))
    assert not [path for path in files if path.startswith("spank/bin/")]
    spank = lay_out(tmp_path, files)
    ran = Script(tuple(shell_command("dash", tmp_path)), spank / "task_prolog").run(STEP)
    assert ran.exports["GLOO_SOCKET_IFNAME"] == "hsn0"
    assert not [name for name in ran.exports if name.startswith(("SINGULARITY", "APPTAINER", "LUMISITE_BINDS", "PATH"))]


SECOND = (
    "\nfabric:",
    f"  apptainer: {{executable: {ROOT}/other/apptainer, variant: x, prefix: APPTAINER, source: TYK}}\n\nfabric:",
)


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("second", [True, False])
def test_each_wrapper_is_for_the_runtime_of_its_name(shell: str, tmp_path: Path, *, second: bool) -> None:
    """Without one of its name it is for the default runtime, which Apptainer understands."""
    executable = ("executable: /usr/bin/singularity", f"executable: {ROOT}/runtime/singularity")
    files = render_files(lumi_like(executable, SECOND), rocm=("6.2",)) if second else FILES
    lay_out(tmp_path, files)
    write_script(tmp_path / "runtime/singularity", RUNTIME)
    own = tmp_path / ("other" if second else "runtime") / "apptainer"
    write_script(own, RUNTIME)
    wrapper = Wrapper(tuple(shell_command(shell, tmp_path)), tmp_path)
    environment = {"PATH": "/usr/bin:/bin", "SINGULARITY_BINDPATH": "/mine"}
    for name, real, prefix in (
        ("singularity", wrapper.runtime, "SINGULARITY"),
        ("apptainer", own, "APPTAINER" if second else "SINGULARITY"),
    ):
        words = [str(tmp_path / "spank/bin" / name), "exec", "/env/container.sif", "true"]
        subprocess.run([*wrapper.shell, *words], env=environment, check=True)
        pairs = (real.parent / "environment").read_bytes().decode().split("\0")
        found = {pair.partition("=")[0] for pair in pairs if "LD_LIBRARY_PATH" in pair}
        assert found == {f"{prefix}ENV_LD_LIBRARY_PATH"}, name


# ---- libraries that are bound under another path


def test_the_wrapper_and_env_name_what_the_container_has(capsys: pytest.CaptureFixture[str]) -> None:
    Path("site.yaml").write_text(site_text(UNDER_HOST, BORROWS))
    assert main(["env", "/appl/images/torch.sif", "--site", "./site.yaml", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["variables"]["SINGULARITYENV_LD_LIBRARY_PATH"]["value"] == INSIDE
    assert {"source": "/opt/cray", "target": "/host/opt/cray"}.items() <= told["binds"][5].items()


def test_what_the_container_wrapper_serves_follows_the_bind_too() -> None:
    tykky = ("    plugin: from-host\n", "    plugin: from-host\n    activation: tykky\n    library_path: [libfabric]\n")
    assert f"ls_site_libraries={INSIDE}\n" in tree(load_text(site_text(UNDER_HOST, tykky)))["spank/task_prolog"]


def test_a_device_says_which_libraries_it_cannot_have_as_the_container_has_them() -> None:
    loaded = load_text(site_text((SINGULARITY, "    emit: cdi\n"), UNDER_HOST, BORROWS))
    files = render_tree(loaded, resolve_selection(loaded.site), load_templates())
    assert f"cdi/: LD_LIBRARY_PATH = {INSIDE}" in losses(files)
