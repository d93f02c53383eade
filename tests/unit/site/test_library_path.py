"""Where a container has the host's libraries that its loader must search first: below the target of a bind."""

from __future__ import annotations

import pytest

from lumisite.errors import SiteError
from lumisite.site.library_path import host_path, library_path
from lumisite.site.load import LoadedSite
from tests.support.sites import load_text, site_text

FAMILY = "    plugin: from-host\n"
BORROWS = f"{FAMILY}    library_path: [libfabric]\n"
CRAY = "  - path: /opt/cray\n    where: singularity-CPEbits\n"
FABRIC = "/opt/cray/libfabric/1.22.0/lib64"


def site(*binds: str, more: str = BORROWS) -> LoadedSite:
    """Give the twin, with these binds in the place of that of /opt/cray."""
    text = "".join(f"  - {{{bind}, why: w, source: s}}\n" for bind in binds)
    old = CRAY + '    why: "stand-ins for libfabric, Cray MPICH and the plugin"\n    source: tests/twin\n'
    return load_text(site_text((FAMILY, more), (old, text)))


def path_of(*binds: str) -> tuple[str, ...]:
    return library_path(site(*binds).site, "2026-01", "twin-torch")


CPE = "where: singularity-CPEbits"
HOST = f"path: /opt/cray, target: /host/opt/cray, {CPE}"


@pytest.mark.parametrize(
    ("binds", "found"),
    [
        ((f"path: /opt/cray, {CPE}",), FABRIC),
        ((HOST,), f"/host{FABRIC}"),
        ((f"path: /, target: /host, {CPE}",), f"/host{FABRIC}"),
        ((HOST, f"path: {FABRIC}, target: /fabric, {CPE}"), "/fabric"),
        # Of several the most specific one; another place, or a bind for other platforms, does not count.
        ((f"path: /opt, target: /host/opt, {CPE}", f"path: /opt/cray/libfabric, target: /f, {CPE}"), "/f/1.22.0/lib64"),
        ((HOST, "path: /opt, target: /other, where: singularity-AI-bindings"), f"/host{FABRIC}"),
        ((HOST, f"path: /opt/cray/libfabric, target: /f, when: {{platform: [2024-08]}}, {CPE}"), f"/host{FABRIC}"),
        # One that applies always counts more than one that may not.
        ((HOST, f"path: /opt/cray/libfabric, target: /f, when: {{stacks: {{cpe: '>=25'}}}}, {CPE}"), f"/host{FABRIC}"),
    ],
)
def test_a_library_is_where_a_bind_has_it(binds: tuple[str, ...], found: str) -> None:
    assert path_of(*binds) == (found,)


def test_the_path_on_the_host_leads_back() -> None:
    one = site(HOST, f"path: /usr/share, target: /host/opt/cray/share, {CPE}").site
    assert host_path(one, f"/host{FABRIC}") == FABRIC
    assert host_path(one, "/host/opt/cray/share/x") == "/usr/share/x"
    assert host_path(one, "/host/opt/crayon") == "/host/opt/crayon"
    assert host_path(one, "/scratch/x") == "/scratch/x"


def unbound(platform: str, release: str) -> str:
    path = f"/opt/cray/libfabric/{release}/lib64"
    return f"families.twin-torch.library_path[0]: {path} of platform {platform} is not "


def test_a_library_below_no_bind_is_a_fault_of_each_platform() -> None:
    binds = (f"path: /opt/cray/pe, {CPE}", "path: /opt, where: singularity-AI-bindings")
    with pytest.raises(SiteError) as caught:
        site(*binds)
    found = [f"{one.subject}: {one.message}" for one in caught.value.findings]
    assert found[0].startswith(unbound("2024-08", "1.15.2.0"))
    assert found[1].startswith(unbound("2026-01", "1.22.0"))
    assert all(one.place and one.place.line > 0 and one.place.column > 0 for one in caught.value.findings)


def test_the_container_wrapper_binds_the_host_by_itself() -> None:
    one = site(f"path: /usr/share, {CPE}", more=f"{BORROWS}    activation: tykky\n").site
    assert library_path(one, "2026-01", "twin-torch") == (FABRIC,)
