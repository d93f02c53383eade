"""What is a site's or a vendor's stands in their files alone: another site or vendor is another file."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from lumisite.site.load import load_site
from lumisite.vendors import all_fabrics, all_gpus, all_software, all_vendors, gpu_names

TOP = Path(__file__).parents[2]
SITES, VENDORS = "lumisite/sites/", "lumisite/vendors/"
SEARCHED = ("lumisite", "spank_helpers", "modulefiles_src")
#: Names of sites that are words of the language, or the kind of a machine.
PLAIN = {"twin", "university"}
#: Names of products that no field of a vendor has.
PRODUCTS = (
    *("amd", "rocr", "hip", "hsa", "kfd", "miopen", "gcd", "mi250x", "mi300a"),
    *("nvidia", "nvml", "cudart", "dgx", "gh200", "mellanox", "mlx5", "connectx", "hopper"),
    *("intel", "xpu", "sycl", "hpe", "cray", "cassini", "libcxi", "hsn", "shasta", "frontier", "craype"),
)
#: What is `allowed` in files that fit a pattern, and why.
EXCEPTIONS = (
    (r"lumisite/(cli/options|site/selection)\.py", "rocm cpe", "the short forms --rocm and --cpe of --use"),
    (r"lumisite/cli/(site_choice|options)\.py", "lumi", "the site where nothing says another"),
    (r"lumisite/validate/probes/environment/checks\.py", "miopen", "the name of a gate, as runs and reports have it"),
    (r"lumisite/render/runtimes\.py|spank_helpers/wrapper\.sh", "rocm nv intel hpu",
     "options of the container runtimes, as users type them"),
)  # fmt: skip


def tracked() -> Iterator[str]:
    """The files that are searched; what is not tracked yet counts too, unless it is ignored."""
    listed = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", *SEARCHED]
    names = subprocess.run(listed, cwd=TOP, capture_output=True, text=True, check=True).stdout.split("\n")
    yield from (name for name in names if name and (TOP / name).is_file())


@cache
def words() -> frozenset[str]:
    """The names of sites and vendors, with those of their products as far as the vendors' files have them."""
    found = {path.stem for path in (TOP / SITES).glob("*.yaml")}
    found |= {word for site in found for word in re.findall(r"[\w-]+", load_site(site).site.name)}
    found |= {*gpu_names(), *PRODUCTS}
    for vendor in all_vendors():
        found |= set(vendor.title.split())
    for _, software in all_software():
        found |= {software.name, software.title}
    for gpu in all_gpus():
        found |= {gpu.collectives.title, gpu.collectives.name, *gpu.drivers, *gpu.visible}
        found |= {name for cache in gpu.caches for name in (cache.variable,)}
    for fabric in all_fabrics():
        found |= {fabric.title, *fabric.carriers[:1]} if fabric.folder != "/sys/class/infiniband" else set()
    # NCCL is the name of the common interface, and of the libraries that have it.
    neutral = {"", "nccl", "and", "infiniband", "roce", *PLAIN}
    return frozenset(word.lower() for word in found if word.lower() not in neutral)


@cache
def pattern() -> re.Pattern[str]:
    """A word, where no letter or digit is beside it: `_` and `-` part words. Numbers may follow."""
    either = "|".join(sorted(map(re.escape, words()), key=len, reverse=True))
    return re.compile(rf"(?<![a-z0-9])({either})(?![a-z])", re.IGNORECASE)


def allowed(name: str) -> set[str]:
    return {word for where, said, _ in EXCEPTIONS if re.fullmatch(where, name) for word in said.split()}


def named(name: str, text: str) -> list[str]:
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        for match in pattern().finditer(line):
            if match[1].lower() not in allowed(name):
                found.append(f"{name}:{number}: {match[1]}: {line.strip()[:90]}")
    return found


def test_only_their_own_files_name_sites_and_vendors() -> None:
    found = []
    for name in tracked():
        if not name.startswith((SITES, VENDORS)):
            found += named(name, f"{Path(name).name}\n{(TOP / name).read_text()}")
    assert found == []


@pytest.mark.parametrize("text", ["ROCm", "/opt/rocm-6.2", "ls_cuda=", "LUMI", "Slingshot", "hsn0"])
def test_a_name_is_found_in_whatever_it_stands(text: str) -> None:
    assert named("lumisite/text.py", f"x = {text}")
    assert not named("lumisite/text.py", "illuminate lumisite hipster NCCL_DEBUG a university InfiniBand")


def test_each_exception_is_still_needed() -> None:
    for where, said, why in EXCEPTIONS:
        files = [name for name in tracked() if re.fullmatch(where, name)]
        assert files, f"{where} ({why})"
        text = "\n".join((TOP / name).read_text() for name in files).lower()
        assert all(word in text for word in said.split()), f"{where}: {said} ({why})"
