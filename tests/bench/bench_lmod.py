"""`module load` and `unload` of singularity-AI-bindings against modulefiles that make the same calls by hand."""

from __future__ import annotations

import statistics
import tempfile
from pathlib import Path

from lumisite.render.manifest import MANIFEST, parse_manifest
from tests.bench.measure import Row
from tests.twin.lmod import VERSIONS, Lmod, render

PAIRS = 60
NAME = "singularity-AI-bindings"

# Both trees in turn, in one shell, so that a machine that slows down slows both.
_LOOP = f"""
for run in $(seq 0 {PAIRS}); do
    for tree in rendered hand; do
        export MODULEPATH=/$tree
        start=$EPOCHREALTIME
        module load {NAME}
        module unload {NAME}
        end=$EPOCHREALTIME
        echo $tree $((${{end/./}} - ${{start/./}}))
    done
done
"""


def run() -> list[Row]:
    """Measure both versions of Lmod."""
    with tempfile.TemporaryDirectory() as scratch:
        rendered = render(Path(scratch) / "rendered", rocm=["6.4"])
        hand = write_by_hand(rendered, Path(scratch) / "hand")
        return [against_hand(version, rendered, hand) for version in VERSIONS]


def against_hand(version: str, rendered: Path, hand: Path) -> Row:
    """The median ratio of pairs; the first pair only warms up."""
    lmod = Lmod(version, {"/rendered": rendered / "modules", "/hand": hand})
    loads = [f"export MODULEPATH=/{tree}; module load {NAME}" for tree in ("rendered", "hand")]
    ours_loaded, _, theirs_loaded, _, loop = lmod.run(loads[0], "module purge", loads[1], "module purge", _LOOP)
    assert ours_loaded.binds == theirs_loaded.binds != []
    assert ours_loaded.modules == theirs_loaded.modules
    lines = [line.split() for line in loop.output.splitlines()]
    times = {tree: [int(us) / 1000 for name, us in lines if name == tree][1:] for tree in ("rendered", "hand")}
    assert len(times["rendered"]) == len(times["hand"]) == PAIRS, loop.output
    ratio = statistics.median(ours / theirs for ours, theirs in zip(times["rendered"], times["hand"], strict=True))
    ours, theirs = (statistics.median(times[tree]) for tree in ("rendered", "hand"))
    detail = f"load and unload {ours:.1f} ms, the same calls by hand {theirs:.1f} ms, {PAIRS} pairs"
    return Row(f"Lmod {version}: rendered / hand-written", ratio, 1.15, detail)


def write_by_hand(rendered: Path, out: Path) -> Path:
    """Write modulefiles that do what those of a tree do, call for call, with no decision in them."""
    modules = parse_manifest((rendered / MANIFEST).read_bytes(), MANIFEST).modules
    for name, summary in modules.items():
        text = (rendered / "modules" / f"{name}.lua").read_text()
        # Up to the first decision both are the same: help, whatis, conflict, depends_on.
        lines = [text[: text.index("\n-- ", text.index("conflict("))]]
        if summary.binds:
            lines.append(f'append_path("SINGULARITY_BINDPATH", "{",".join(summary.binds)}", ",")')
            lines.append(f'setenv("BINDS_{name.partition("/")[0].replace("-", "_")}", "{",".join(summary.binds)}")')
        if name.startswith(NAME):
            settings = {**summary.environment, "SLURM_TASK_PROLOG": "/rendered/spank/task_prolog"}
            notes = {"NOTE": ",".join(settings), "RELEASE": "/rendered", "STACK": "25.03-rocm6.4"}
            lines += [f'setenv("{variable}", "{value}")' for variable, value in {**settings, **notes}.items()]
            lines.append('prepend_path("PATH", "/rendered/spank/bin")')
        path = out / f"{name}.lua"
        path.parent.mkdir(parents=True)
        path.write_text("\n".join([*lines, ""]))
    return out
