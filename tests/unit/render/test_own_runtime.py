"""Each runtime has its own variables and no other's; and where a container finds libraries bound under another path."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from lumisite.cli import main
from lumisite.render.render import render_tree
from lumisite.render.templates import load_templates
from lumisite.site.load import LoadedSite
from lumisite.site.selection import resolve_selection
from tests.support.prologs import (
    ROOT,
    lay_out,
    lumi_like,
    render_files,
    shell_command,
    write_script,
)
from tests.support.sites import site_text
from tests.support.wrappers import FILES, RUNTIME, Wrapper

CRAY = "  - path: /opt/cray\n"
UNDER_HOST = (CRAY, f"{CRAY}    target: /host/opt/cray\n")
BORROWS = ("    plugin: from-host\n", "    plugin: from-host\n    library_path: [libfabric]\n")
INSIDE = "/host/opt/cray/libfabric/1.22.0/lib64"


def tree(loaded: LoadedSite) -> dict[str, str]:
    return {
        path: file.text for path, file in render_tree(loaded, resolve_selection(loaded.site), load_templates()).items()
    }


SECOND = (
    "\nfabric:",
    f"  apptainer: {{executable: {ROOT}/other/apptainer, variant: x, prefix: APPTAINER, source: TYK}}\n\nfabric:",
)


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
