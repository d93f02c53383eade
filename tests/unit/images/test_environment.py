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
    "# export X=/a",
    "X=/a # it's; X=/b\nY=$X; X=$Y:/c",
    "X=/a\nunset X",
    'export X="/a:\\\n/b"',
    "if true; then\n  X=/a\nfi",
    "Y='it''s'; X=$Y\\ \"$Y\"",
    "X=${Y-${Z-/deep}}",
    "X=\"${Y:-'a b'}\"",
    "Y=; X=${Y:-empty}${Y-unset}",
]


def worked_out(script: str) -> str:
    values = {"X": ""}
    evaluate(script, values)
    return values.get("X", "")


@pytest.mark.parametrize("script", SCRIPTS)
def test_it_is_what_the_shell_says(script: str) -> None:
    asked = subprocess.run(
        ["sh", "-c", f'{script}\nprintf %s "${{X-}}"'],
        env={"X": "", "PATH": "/bin:/usr/bin"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert worked_out(script) == asked.stdout


def test_random_words_are_what_the_shell_says() -> None:
    choose = random.Random(3)
    parts = [
        "/a",
        ":",
        "$Y",
        "${Y}",
        "${X:+:$X}",
        "'q $Y'",
        '"$Y /b"',
        "\\ ",
        "\\$Y",
        "${Z:-/z}",
        '"${Z:-"/z $Y"}"',
        "${Z+/no}",
        "''",
    ]
    for _ in range(60):
        lines = [
            "Y=/y",
            *(f"{choose.choice('XY')}={''.join(choose.choices(parts, k=choose.randrange(5)))}" for _ in range(3)),
        ]
        script = choose.choice(["\n", "; "]).join(lines)
        told = subprocess.run(["sh", "-c", f'X=\n{script}\nprintf %s "$X"'], capture_output=True, text=True, check=True)
        assert worked_out(script) == told.stdout, script


@pytest.mark.parametrize(
    "script", ["X=$(cat /x)", "X=`cat /x`", "X=$NOBODY/lib", "X=${X%:*}", "X=${X:=/x}", "X=$1", "X=$((1 + 1))"]
)
def test_what_only_running_it_would_tell_is_marked(script: str) -> None:
    assert UNKNOWN in worked_out(script)
