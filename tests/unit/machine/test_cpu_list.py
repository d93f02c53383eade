from __future__ import annotations

import contextlib
import doctest
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lumisite.machine import hwloc, masks
from lumisite.machine.hwloc import parse_hwloc_bitmap
from lumisite.machine.masks import mask_of
from lumisite.site.cpu_list import CPU_NUMBER_LIMIT, CpusetError, format_cpu_list, parse_number_list

cpu_sets = st.sets(st.integers(0, CPU_NUMBER_LIMIT - 1), min_size=1, max_size=200)


@given(cpu_sets)
def test_lists_and_masks_invert(cpus: set[int]) -> None:
    assert set(parse_number_list(format_cpu_list(cpus))) == cpus
    assert int(mask_of(cpus), 16) == sum(1 << cpu for cpu in cpus)


@given(cpu_sets)
def test_a_mask_is_lower_case_hex_without_padding(cpus: set[int]) -> None:
    mask = mask_of(cpus)
    assert mask == hex(int(mask, 16)) == mask.lower()
    assert int(mask, 16).bit_count() == len(cpus)


@given(cpu_sets)
def test_hwloc_words_say_the_same_as_the_mask(cpus: set[int]) -> None:
    value = sum(1 << cpu for cpu in cpus)
    words = [value >> 32 * index & 0xFFFFFFFF for index in reversed(range(max(cpus) // 32 + 1))]
    for text in (
        ",".join(f"0x{word:08x}" for word in words),
        ",".join(f"0x{word:08x}" if word else "" for word in words),
    ):
        assert parse_hwloc_bitmap(text) == frozenset(cpus)


def test_the_order_of_a_list_is_kept() -> None:
    assert parse_number_list("4,5,2-3,6-7,0,1") == (4, 5, 2, 3, 6, 7, 0, 1)
    assert parse_number_list("8191") == (8191,)
    assert parse_number_list("") == parse_number_list("\n") == ()


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("a", "value-wrong"),
        ("1-", "value-wrong"),
        ("-1", "value-wrong"),
        ("1,,2", "value-wrong"),
        ("1-2-3", "value-wrong"),
        ("0x3", "value-wrong"),
        ("٣", "value-wrong"),  # a digit, but not one of ASCII
        ("7-1", "value-wrong"),
        ("0-99999999", "value-wrong"),
        ("8192", "value-wrong"),
        ("9" * 5000, "value-wrong"),
        ("1,0-2", "value-wrong"),
    ],
)
def test_a_damaged_list_is_refused(text: str, code: str) -> None:
    with pytest.raises(CpusetError) as caught:
        parse_number_list(text)
    assert caught.value.finding.code == code
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize("text", ["", "g", "0x", "0xfffffffff", "0x1;0x2", "f...f", "0x1," * 300, "-1", "1 1"])
def test_a_damaged_bitmap_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=re.escape(text) or "^$"):
        parse_hwloc_bitmap(text)


def test_a_bitmap_without_an_end_is_everything() -> None:
    assert parse_hwloc_bitmap("0xf...f") is None
    assert parse_hwloc_bitmap("0xf...f,0xffffff00") is None


@given(st.text())
def test_any_text_is_read_or_refused(text: str) -> None:
    with contextlib.suppress(ValueError):
        parse_hwloc_bitmap(text)
    with contextlib.suppress(CpusetError):
        parse_number_list(text)


def test_the_examples_in_the_docstrings_are_true() -> None:
    for module in (hwloc, masks):
        assert doctest.testmod(module).failed == 0
        assert doctest.testmod(module).attempted > 0
