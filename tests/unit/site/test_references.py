"""Values that refer to others of the same file, and what nothing fills in."""

from __future__ import annotations

import doctest

import pytest

import lumisite.site.references
from tests.support.sites import load_text, site_faults, site_text


def setting(value: str, more: str = "") -> tuple[str, str]:
    return ("settings:\n", f"settings:\n  - {{name: A, value: '{value}', {more}why: w, source: here}}\n")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("={fabric.interfaces}", "hsn0,hsn1,hsn2,hsn3"),
        ("={fabric.interfaces[1]}", "hsn1"),
        ("=={fabric.management}", "=eth0"),
        ("=a:{fabric.carrier};{name}", "a:tcp;twin"),
        ("={stacks.cpe.releases.25.03.libraries.cray-mpich}/lib", "/opt/cray/pe/mpich/8.1.32/lib"),
        ("=mlx5_0,mlx5_1", "=mlx5_0,mlx5_1"),
        ("={}", "={}"),
        ("{fabric.interfaces}", "{fabric.interfaces}"),
        ("US$ 5 * ?", "US$ 5 * ?"),
    ],
)
def test_a_value_is_what_the_file_says_there(value: str, text: str) -> None:
    site = load_text(site_text(setting(value, "where: singularity-AI-bindings, "))).site
    assert site.settings[0].value == text


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("={fabric.interfces}", "unknown reference {fabric.interfces}"),
        ("={fabrik}", "unknown reference {fabrik}"),
        ("={fabric}", "{fabric} is neither a value nor a list of values"),
        ("={binds}", "{binds} is neither a value nor a list of values"),
        ("={fabric.interfaces[4]}", "unknown reference {fabric.interfaces[4]}"),
        ("={fabric.carrier.x}", "unknown reference {fabric.carrier.x}"),
        ("={settings[0].value}", "{settings[0].value} is neither a value nor a list of values"),
        ("$FI_PROVIDER", "contains '$FI_PROVIDER', which nothing expands"),
    ],
)
def test_what_cannot_be_filled_in_is_a_fault(value: str, message: str) -> None:
    assert site_faults(setting(value)) == [f"settings[0].value: {message}"]


def test_exact_says_that_signs_stand_for_themselves() -> None:
    site = load_text(site_text(setting("${A}`x`", "exact: yes, "))).site
    assert site.settings[0].value == "${A}`x`"


@pytest.mark.parametrize(("path", "sign"), [("/opt/${USER}", "${USER"), ("/opt/lib*", "*"), ("/opt/a;b", ";")])
def test_a_bind_is_one_path(path: str, sign: str) -> None:
    found = site_faults(("  - path: /opt/cray\n", f"  - path: {path}\n"))
    assert found == [f"binds[0].path: contains {sign!r}, which nothing expands"]
    (fault,) = site_faults(("{path: /flash,", f"{{path: '{path}',"))
    assert fault == f"file_systems[3].path: contains {sign!r}, which nothing expands"


def test_a_condition_asks_for_variables_by_their_names() -> None:
    change = setting("1", "when: {variable: {A-B: x}}, ")
    assert site_faults(change) == ["settings[0].when.variable.A-B: 'A-B' is not a variable name"]


def test_examples_in_docstrings() -> None:
    assert doctest.testmod(lumisite.site.references).failed == 0
