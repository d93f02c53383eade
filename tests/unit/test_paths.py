"""What a release and a deployment root are made of is spelled in one place."""

from __future__ import annotations

import re
from pathlib import Path

from lumisite import paths

ROOT = Path(paths.__file__).parents[1]
#: Parts of paths in code; a word of a sentence has none of these signs beside it.
SPELLED = re.compile(
    rf"\b{paths.PROLOG}|\b{paths.CLI_FILTER}|\b{paths.WRAPPERS}|}}/{paths.CURRENT}\b|\"/{paths.CURRENT}"
    rf"|/ \"({paths.RELEASES}|{paths.CURRENT}|{paths.POLICY}|{paths.MODULES})\"|\"({paths.RELEASES}|{paths.MODULES})/[{{*]"
)


def test_only_paths_spells_what_a_release_and_a_root_have() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in sorted((ROOT / "lumisite").rglob("*.py"))
        if path != Path(paths.__file__)
        for number, line in enumerate(path.read_text().splitlines(), start=1)
        if SPELLED.search(line)
    ]
    assert found == []


def test_the_scripts_spell_the_same() -> None:
    """They stay sh and Lua that a person reads: a name that changes in `paths.py` changes in these too."""
    root = (f"/{paths.CURRENT}/{paths.SPANK}", f"/{paths.RELEASES}/", f"/{paths.POLICY}")
    folder, prolog = paths.WRAPPERS, paths.PROLOG
    expected = {
        "common.sh": root,
        "prolog.sh": (f"/{paths.CURRENT}/{paths.SPANK}", f"/{paths.RELEASES}/$site_release/{folder}"),
        "wrapper.sh": (f"/{folder}",),
        "cli_filter.lua": (*root, prolog, f"/{paths.SPANK}"),
    }
    missing = {
        name: [word for word in words if word not in (ROOT / "spank_helpers" / name).read_text()]
        for name, words in expected.items()
    }
    assert not any(missing.values()), missing
