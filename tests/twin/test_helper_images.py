"""What the wrapper gives to an image in real steps by where its name is from, on all three Slurm generations."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.twin.cluster import Cluster, ClusterPlan, running
from tests.twin.fixtures import require_twin
from tests.twin.helper_site import GENERATIONS, IMAGE, LOAD, deploy_site

pytestmark = [pytest.mark.root, pytest.mark.slurm, pytest.mark.apptainer, pytest.mark.lmod]

#: Values that abort or hang some images: an entry for images of one family, of a value that harms those of another.
SOME_IMAGES = {
    "families:\n": """families:
  bare:
    title: images without the plugin
    paths: ['*/bare-*.sif']
    modules: [singularity-userfilesystems]
    plugin: none
    why: for the test
    source: here
""",
    "  - name: PYTHONNOUSERSITE\n": """  - {name: NCCL_NET, value: AWS Libfabric, when: {nodes: several, family: [twin-torch]}, why: x, source: here}
  - name: NCCL_NET
    leave: yes
    why: an image without the plugin would abort
    harmful: [{value: '*Libfabric', when: {family: [bare]}}]
    source: here
  - name: PYTHONNOUSERSITE
""",
    "    paths: ['/appl/images/*']\n": "    paths: ['/appl/images/*', '*/torch-*.sif']\n",
}


@pytest.fixture(scope="module", params=GENERATIONS, name="site")
def _site(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    require_twin()
    with running(ClusterPlan(request.param, images=("small",))) as cluster:
        deploy_site(cluster, SOME_IMAGES)
        yield cluster


def test_what_harms_some_images_is_given_by_a_name_of_the_sites_own_alone(site: Cluster) -> None:
    """A copy of the image under a name that a user chose may be anything; a link to the site's image is that image."""
    own, copy, link = IMAGE, "/scratch/torch-rocm-6.2.4.sif", "/scratch/mine.sif"
    site.run(f"cp {own} {copy}; ln -sf {own} {link}").check()
    net = "sh -c 'echo ${NCCL_NET-unset}'"
    for image, value in ((own, "AWS Libfabric"), (copy, "unset"), (link, "AWS Libfabric")):
        done = site.run(f"{LOAD}; srun -N2 --ntasks-per-node=1 singularity --quiet exec {image} {net} 2>/dev/null")
        assert done.check().stdout.splitlines() == [value, value], image
