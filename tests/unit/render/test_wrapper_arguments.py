"""The wrapper leaves arguments alone, and finds the image among them."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lumisite.render import runtimes
from tests.support.prologs import SHELLS
from tests.support.wrappers import CONDA, LAIF, ODD, Wrapper, make


@pytest.fixture(scope="module", params=SHELLS)
def shared(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Wrapper:
    return make(tmp_path_factory.mktemp("wrapper"), request.param)


# ---- arguments


@pytest.mark.thorough
@settings(max_examples=60)
@given(
    words=st.lists(
        st.text(st.characters(exclude_characters="\0"), max_size=12)
        | st.sampled_from(
            [
                *ODD,
                *runtimes.ACTIONS,
                "instance",
                "start",
                "build",
                "-B",
                "-eB",
                "--bind",
                "--nv",
                "--writable",
                LAIF,
                CONDA,
            ]
        ),
        max_size=8,
    )
)
def test_any_arguments_reach_the_runtime_untouched(shared: Wrapper, words: list[str]) -> None:
    plain = [word.encode("utf-8", "surrogatepass").decode("utf-8", "surrogateescape") for word in words]
    assert shared.call(*plain).arguments == plain


# ---- where the image is


PLACES = [
    ["exec", "IMAGE", "python"],
    ["run", "IMAGE"],
    ["shell", "IMAGE"],
    ["shell", "-s", "/bin/zsh", "IMAGE"],
    ["test", "IMAGE"],
    ["instance", "start", "IMAGE", "name"],
    ["instance", "run", "--nv", "IMAGE", "name"],
    ["-d", "exec", "IMAGE", "x"],
    ["--debug", "--config", "exec", "run", "IMAGE"],
    ["-c", "build", "exec", "IMAGE", "x"],
    ["--config=build", "exec", "IMAGE", "x"],
    ["exec", "--bind", "/x.sif:/y", "IMAGE", "x"],
    ["exec", "--bind=/x.sif:/y", "IMAGE", "x"],
    ["exec", "-B", "/a,/b", "--rocm", "-e", "--env", "A=b c", "IMAGE", "x"],
    ["exec", "-B/a", "IMAGE", "x"],
    ["exec", "-B/raw,/e,/scratch", "IMAGE", "x"],
    ["exec", "-eB/e,/raw", "IMAGE", "x"],
    ["exec", "-eB", "/a", "IMAGE", "x"],
    ["exec", "-eB/a", "-cip", "IMAGE", "x"],
    ["exec", "--pwd", "--rocm", "IMAGE", "x"],
    ["exec", "--home", "build", "-H", "pull", "IMAGE", "x"],
    ["exec", "--", "IMAGE", "--writable"],
    ["exec", "IMAGE", "singularity", "build", "--writable", "-w"],
]


@pytest.mark.parametrize("words", PLACES, ids=" ".join)
def test_the_image_is_found_among_the_options(wrapper: Wrapper, words: list[str]) -> None:
    given = [LAIF if word == "IMAGE" else word for word in words]
    call = wrapper.call(*given)
    assert call.arguments == given
    assert call.binds == ["/mine", "/usr", "/sbin", "/other"], "without the Cray bits, which this family does not need"


@pytest.mark.parametrize(
    "words",
    [["exec", "--new-option"], ["exec", "-eZ"], ["--new-option", "exec"], ["exec", "-s"], ["-Z,--x=y", "exec"]],
    ids=" ".join,
)
def test_an_option_that_is_not_known_has_no_value(wrapper: Wrapper, words: list[str]) -> None:
    call = wrapper.call(*words, LAIF, "x")
    assert call.arguments == [*words, LAIF, "x"]
    assert f"{wrapper.folder}/opt/cray" not in call.binds, "which the family of the image does not need"


def test_where_it_has_one_nothing_is_corrected(wrapper: Wrapper) -> None:
    call = wrapper.call("exec", "--new-option", "value", LAIF, "x")
    assert call.environment["SINGULARITY_BINDPATH"] == wrapper.binds


def test_the_options_of_the_runtimes_are_listed_once() -> None:
    assert not set(runtimes.ACTION_VALUED) & set(runtimes.ACTION_FLAGS)
    assert len(set(runtimes.ACTION_VALUED)) == len(runtimes.ACTION_VALUED)
    assert len(set(runtimes.ACTION_FLAGS)) == len(runtimes.ACTION_FLAGS)
