... cli_filter.lua
---- the site's data, from lumi.yaml: change that and render again
site = {
  release = "RELEASE",
  name = "lumi", root = "/appl/local/lumisite",
  ask = "LUMI User Support Team, https://lumi-supercomputer.eu/user-support/need-help/",
  images = {
    { pattern = "^.*/lumi%-multitorch%-rocm%-.*$" },
    { pattern = "^.*/lumi%-multitorch%-libfabric%-.*$" },
    { pattern = "^.*/lumi%-multitorch%-mpich%-.*$", mpi = "pmi2" },
    { pattern = "^/appl/local/laifs/containers/.*$", mpi = "pmi2" },
    { pattern = "^.*/lumi%-multitorch%-.*%.sif$", mpi = "pmi2" },
    { pattern = "^.*/lumi%-multitorch%-.*$", mpi = "pmi2" },
    { pattern = "^/appl/local/containers/easybuild%-sif%-images/.*$" },
    { pattern = "^.*/lumi%-pytorch%-rocm%-.*%-pytorch%-v2%.[6-9].*$" },
    { pattern = "^.*/lumi%-pytorch%-rocm%-.*%-pytorch%-v2%.[1-9][0-9].*$" },
    { pattern = "^.*/lumi%-pytorch%-rocm%-.*$" },
    { pattern = "^.*/lumi%-jax%-rocm%-.*$" },
    { pattern = "^.*/lumi%-tensorflow%-rocm%-.*$" },
    { pattern = "^.*/lumi%-mpi4py%-rocm%-.*$" },
    { pattern = "^.*/lumi%-rocm%-rocm%-.*$" },
    { pattern = "^.*/container%.sif$" },
  },
}
lumisite.release = site.release
return lumisite
