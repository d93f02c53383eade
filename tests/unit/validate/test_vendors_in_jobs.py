"""What jobs are told of the vendors of a site: the scripts know none by themselves."""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

from lumisite.site.load import EMBEDDED, load_site
from lumisite.site.model import Site
from lumisite.validate.probes.probe import Srun, scripts
from lumisite.validate.probes.suite import choose_probes
from tests.support.job_scripts import put_scripts
from tests.support.records import target_of
from tests.support.sites import load_text, site_text

UNIVERSITY = (EMBEDDED / "university.yaml").read_text()
SITES = {
    "lumi": load_site("lumi").site,
    "nvidia": load_text(UNIVERSITY).site,
    "twin": load_site("twin").site,
    # GPUs that no node kind describes.
    "undescribed": load_text(site_text(("  backend: gloo\n", "  backend: nccl\n"))).site,
}
AMD = ("--settings RCCL_", "--settings MIOPEN_", "--settings HSA_")


def part(site: Site, probe: str, number: int = 0, **options: str) -> Srun:
    target = target_of(site, **options)
    (found,) = choose_probes(target, [probe])[-1:]
    return found.sruns[number]


def given(words: tuple[str, ...], *options: str) -> list[str]:
    """Give these options of a part, with their values."""
    pairs = pairwise(words)
    return [f"{name} {value}" for name, value in pairs if name.removeprefix("--") in options]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("lumi", ["--backend nccl", "--device cuda", *AMD]),
        ("nvidia", ["--backend nccl", "--device cuda", "--settings NCCL_", "--settings CUDA_"]),
        ("twin", ["--backend gloo"]),
        ("undescribed", ["--backend nccl", "--device cuda", *AMD]),
    ],
)
def test_ranks_get_their_device_and_the_names_of_settings(name: str, expected: list[str]) -> None:
    for probe in ("transport", "communicators", "collectives", "ddp", "pairs"):
        assert given(part(SITES[name], probe).arguments, "backend", "device", "settings", "carrier") == expected


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("lumi", ["--runtime libamdhip64.so:hipGetDeviceCount:hipDeviceGetPCIBusId", "--device /dev/kfd"]),
        ("nvidia", ["--runtime libcudart.so:cudaGetDeviceCount:cudaDeviceGetPCIBusId", "--device /dev/nvidiactl"]),
        ("twin", []),
    ],
)
def test_ranks_look_for_their_own_gpus(name: str, expected: list[str]) -> None:
    assert given(part(SITES[name], "environment", 1).arguments, "runtime", "device") == expected


# ---------------------------------------------------------------- the scripts themselves

#: PyTorch as far as a rank asks it for its device; the group is a made-up one.
TORCH = """
__version__ = "0"
device = lambda kind, index=0: f"{kind}:{index}"
ones = lambda *_, device: print("made on", device)
set_num_threads = print
class Gpus:
    device_count = lambda: 3
    set_device = lambda device: print("set", device)
    synchronize = lambda device: print("waited for", device)
xpu = Gpus
"""
DISTRIBUTED = """
init_process_group = lambda backend, **_: print("met by", backend)
all_reduce = barrier = destroy_process_group = lambda *_, **__: None
get_world_size = lambda: 1
"""


def test_a_rank_takes_the_device_that_it_is_told(tmp_path: Path) -> None:
    put_scripts(tmp_path, "rank.py", "lumisite_record.py")
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch/__init__.py").write_text(TORCH)
    (tmp_path / "torch/distributed.py").write_text(DISTRIBUTED)
    (tmp_path / "meet.py").write_text("import rank\nrank.run(rank.Rank.connect)\n")
    (tmp_path / "out").mkdir()
    own = {"MASTER_ADDR": "none", "MASTER_PORT": "1", "SLURM_PROCID": "0", "SLURM_LOCALID": "4", "CCL_X": "1"}
    words = "meet.py out --limit 9 --backend xccl --device xpu --settings CCL_"
    command = [sys.executable, *words.split()]
    done = subprocess.run(
        command, cwd=tmp_path, env={**os.environ, **own}, timeout=30, check=True, capture_output=True, text=True
    )
    assert done.stdout.splitlines() == ["set xpu:1", "met by xccl", "made on xpu:1", "waited for xpu:1"]
    assert json.loads((tmp_path / "out/0.json").read_text())["environment"] == {"CCL_X": "1"}


class Runtime:
    """A run-time library with two GPUs, whose functions are called as it is told."""

    def __init__(self, name: str) -> None:
        if name != "libtwo.so":
            raise OSError(name)

    def count(self, number: ctypes._CArgObject) -> int:
        ctypes.cast(number, ctypes.POINTER(ctypes.c_int))[0] = 2
        return 0

    def address(self, text: ctypes.Array[ctypes.c_char], size: ctypes.c_int, index: ctypes.c_int) -> int:
        text.value = f"0000:C{index.value}:00.0".encode()[: size.value]
        return 0


def test_addresses_come_from_the_library_that_the_site_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(scripts()["lumisite_record.py"].parent))
    found: dict[str, object] = {"__name__": "environment"}
    exec(compile(scripts()["environment.py"].read_text(), "environment.py", "exec"), found)
    monkeypatch.setattr(ctypes, "CDLL", Runtime)
    monkeypatch.setattr(
        sys, "argv", ["environment.py", "out", "--runtime", "libgone.so:a:b", "--runtime", "libtwo.so:count:address"]
    )
    bus_ids = found["bus_ids"]
    assert callable(bus_ids)
    assert bus_ids() == ["0000:c0:00.0", "0000:c1:00.0"]
