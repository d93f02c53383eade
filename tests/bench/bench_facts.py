"""`lumisite facts`: the whole process on a whole node, beside Python's start and the reading of the same bytes."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.bench.measure import Row, in_turn, peak_mib, seconds
from tests.support.dict_trees import write_tree
from tests.support.nodes import AFTER, BEFORE, lumi_node, sif_head

LUMISITE = str(Path(sys.executable).parent / "lumisite")
#: As many images, deployed files and other libraries as a large site has.
IMAGES, MODULEFILES, LIBRARIES = 200, 500, 4000
READ = "import sys\nfor path in sys.stdin.read().split('\\0'): open(path, 'rb').read()"


def run() -> list[Row]:
    """Measure everything of this module."""
    with tempfile.TemporaryDirectory() as scratch:
        top = Path(scratch)
        node = _node(top / "node")
        facts = [LUMISITE, "facts", "--site", "lumi", "--root", str(node), "-o", str(top / "facts.json")]
        files = "\0".join(map(str, _files(node)))
        listed = top / "files"
        listed.write_text(files)
        read = ["sh", "-c", f'{sys.executable} -c "{READ}" <{listed}']
        ratio, mine, plain = in_turn(lambda: seconds(facts), lambda: seconds(read), 9)
        write_tree(top / "before", lumi_node(BEFORE))
        old = [LUMISITE, "facts", "--site", "lumi", "--root", str(top / "before"), "-o", str(top / "old.json")]
        subprocess.run(old, check=True, stderr=subprocess.DEVNULL)
        changes = ["sh", "-c", f"{LUMISITE} changes {top}/old.json {top}/facts.json || test $? = 1"]
        both, compared, _ = in_turn(lambda: seconds(changes), lambda: seconds(facts), 5)
        count = files.count("\0") + 1
        detail = f"{IMAGES} images, {MODULEFILES} deployed files; reading {count} files takes {plain * 1000:.0f} ms"
        return [
            Row("facts of a node", mine, 1.0, detail, unit="s"),
            Row("facts / reading all of the node's files", ratio, 10, "both whole processes"),
            Row("changes / facts", both, 1.5, f"changes takes {compared * 1000:.0f} ms"),
            Row("memory of facts", peak_mib(facts), 100, "peak of the process", unit="MiB"),
        ]


def _node(top: Path) -> Path:
    files = lumi_node(AFTER)
    for number in range(IMAGES):
        files[f"/appl/local/containers/easybuild-sif-images/image-{number}.sif"] = sif_head(number)
    release = next(path for path in files if path.endswith("task_prolog")).removesuffix("spank/task_prolog")
    for number in range(MODULEFILES):
        files[f"{release}modules/module{number}/1.0.lua"] = b'help("x")\n' * 100
    for number in range(LIBRARIES):
        files[f"/usr/lib64/libother{number}.so.1"] = b""
    return write_tree(top, files)


def _files(top: Path) -> Iterator[Path]:
    return (path for path in sorted(top.rglob("*")) if path.is_file() and not path.is_symlink())


if __name__ == "__main__":
    from tests.bench.measure import table

    print(table(run()))
