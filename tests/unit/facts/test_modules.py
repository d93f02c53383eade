"""The folders that modules are searched in, and their defaults."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from lumisite.facts.compare import compare
from lumisite.facts.facts import Facts
from lumisite.facts.report import make_report
from tests.support.breaks import LUMI, facts_of
from tests.support.breaks.row import Plant
from tests.support.dict_trees import Link
from tests.support.nodes import AFTER, lumi_node

SITE, CORE = "/usr/local/modules", "/opt/cray/pe/lmod/modulefiles/core"
LIST, LOGIN = "/etc/lmod/modulespath", "/etc/profile.d/zz-site.sh"
BASE: dict[str, bytes | Link | None] = {
    LIST: b"# as installed\n/usr/local/modules\n/usr/local/more*/all\n",
    LOGIN: b'export MODULEPATH="/appl/modules:$MODULEPATH"\n# module use /srv/old\n',
    f"{SITE}/python/.version": b'#%Module\nset ModulesVersion "3.12"\n',
    f"{SITE}/gcc/default": Link("13.2.lua"),
    f"{SITE}/gcc/13.2.lua": b"",
    f"{CORE}/cray-mpich/.version": b'#%Module\nset ModulesVersion "8.1.32"\n',
    f"{CORE}/papi/.modulerc.lua": b'module_version("papi/7.1", "default")\n',
    "/usr/local/more1/all/x/1.lua": b"",
    "/appl/modules/y/1.lua": b"",
    "/srv/old/z/1.lua": b"",
}


def node(plant: Plant) -> Facts:
    return facts_of(lumi_node(AFTER, {**BASE, **plant}))


def moved(old: str, new: str) -> Plant:
    inside = {path: content for path, content in BASE.items() if path.startswith(f"{old}/")}
    return {**dict.fromkeys(inside), **{path.replace(old, new): content for path, content in inside.items()}}


CHANGES: Mapping[str, tuple[Plant, set[tuple[str, str]]]] = {
    "a folder that moved with its list": (
        {**moved(SITE, "/usr/local/modules2"), LIST: b"/usr/local/modules2\n/usr/local/more*/all\n"},
        {("module-path", "MODULEPATH")},
    ),
    "another pattern": (
        {LIST: b"/usr/local/modules\n"},
        {("module-path", "MODULEPATH")},
    ),
    "another login file": (
        {LOGIN: b"export MODULEPATH=$HOME/modules\nmodule use /srv/old\n"},
        {("module-path", "MODULEPATH")},
    ),
    "no default any more": (
        {f"{CORE}/papi/.modulerc.lua": None, f"{CORE}/papi/7.1.lua": b""},
        {("module-default", f"{CORE}/papi")},
    ),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_of_folders_is_one_finding(name: str) -> None:
    plant, expected = CHANGES[name]
    found = make_report(node({}), node(plant), LUMI).changes
    assert {(one.kind, one.subject) for one in found} == expected
    assert len(found) == len(expected)


@pytest.mark.parametrize(
    "plant",
    [
        {LIST: b"/usr/local/more1/all\n\n/usr/local/modules/\n"},
        {LOGIN: b'# more\nMODULEPATH="$MODULEPATH:/appl/modules"\n'},
        {"/etc/profile.d/other.sh": b"PATH=/srv/old:$PATH\nMODULEPATH=$MODULEPATH:/usr/local/none\n"},
    ],
)
def test_another_spelling_is_no_change(plant: Plant) -> None:
    assert compare(node({}), node(plant)) == ()


def test_modules_below_a_link_that_is_broken_are_not_reported_beside_it() -> None:
    roots = {"/opt/cray/pe/modulefiles/x/1.lua": b"", f"{CORE}/x/1.lua": b""}
    gone = dict.fromkeys(path for path in lumi_node(AFTER, {**BASE, **roots}) if path.startswith("/opt/cray/"))
    found = compare(node(roots), node({**gone, "/opt/cray": Link("/opt/hpe/cray")}))
    assert [(one.kind, one.subject, one.after) for one in found] == [("dangling", "/opt/cray", "/opt/hpe/cray")]
