"""What an image's scripts set, worked out as a shell does, and without one."""

from __future__ import annotations

import random
import subprocess

import pytest

from lumisite.images.environment import UNKNOWN, evaluate

#: Scripts as builders write them; each sets X.
SCRIPTS = [
    'export X="/a:${X}"',
    'export X="${X:-"/opt/rocm/lib:/b"}"',
    "export X=/a\nexport X=/b${X:+:$X}",
    "ROCM=/opt/rocm\nexport X=$ROCM/lib:/c",
    "X=/a\n# export X=/b",
    "X=/a # it's; X=/b\nY=$X; X=$Y:/c",
    "X=/a\nunset X",
    'export X="/a:\\\n/b"',
    "if true; then\n  X=/a\nfi",
    "Y='it''s'; X=$Y\\ \"$Y\"",
    "X=${Y-${Z-/deep}}",
    "X=\"${Y:-'a b'}\"",
    "Y=; X=${Y:-empty}${Y-unset}",
]
PARTS = [
    *("/a", ":", "$Y", "${Y}", "${X:+:$X}", "'q $Y'", '"$Y /b"', "\\ ", "\\$Y", "${Z:-/z}", '"${Z:-"/z $Y"}"'),
    *("${Z+/no}", "''"),
]


def random_scripts(count: int) -> list[str]:
    choose = random.Random(3)
    scripts = []
    for _ in range(count):
        words = ("".join(choose.choices(PARTS, k=choose.randrange(5))) for _ in range(3))
        lines = ["Y=/y", *(f"{choose.choice('XY')}={word}" for word in words)]
        scripts.append(choose.choice(["\n", "; "]).join(lines))
    return scripts


def evaluated(script: str) -> str:
    values = {"X": ""}
    evaluate(script, values)
    return values.get("X", "")


def test_it_is_what_the_shell_says() -> None:
    for script in (*SCRIPTS, *random_scripts(60)):
        command = ["sh", "-c", f'X=\n{script}\nprintf %s "${{X-}}"']
        by_shell = subprocess.run(command, env={"PATH": "/bin:/usr/bin"}, capture_output=True, text=True, check=True)
        assert evaluated(script) == by_shell.stdout, script


@pytest.mark.parametrize(
    "script", ["X=$(cat /x)", "X=`cat /x`", "X=$NOBODY/lib", "X=${X%:*}", "X=${X:=/x}", "X=$1", "X=$((1 + 1))"]
)
def test_what_only_running_it_would_tell_is_marked(script: str) -> None:
    assert UNKNOWN in evaluated(script)
