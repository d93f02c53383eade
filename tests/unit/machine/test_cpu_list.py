from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lumisite.machine.masks import mask_of
from lumisite.site.cpu_list import CPU_NUMBER_LIMIT, CpusetError, format_cpu_list, parse_number_list

cpu_sets = st.sets(st.integers(0, CPU_NUMBER_LIMIT - 1), min_size=1, max_size=200)


@given(cpu_sets)
def test_lists_and_masks_invert(cpus: set[int]) -> None:
    assert set(parse_number_list(format_cpu_list(cpus))) == cpus
    assert int(mask_of(cpus), 16) == sum(1 << cpu for cpu in cpus)


def test_the_order_of_a_list_is_kept() -> None:
    assert parse_number_list("4,5,2-3,6-7,0,1") == (4, 5, 2, 3, 6, 7, 0, 1)
    assert parse_number_list("8191") == (8191,)
    assert parse_number_list("") == parse_number_list("\n") == ()


@pytest.mark.parametrize(
    "text", ["a", "1-", "-1", "1,,2", "0x3", "٣", "7-1", "0-99999999", "8192", "9" * 5000, "1,0-2"]
)
def test_a_damaged_list_is_refused(text: str) -> None:
    with pytest.raises(CpusetError) as caught:
        parse_number_list(text)
    assert caught.value.finding.code == "value-wrong"
    assert len(str(caught.value)) < 200
