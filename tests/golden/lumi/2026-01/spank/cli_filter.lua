-- spank_helpers/cli_filter.lua and lumi.yaml: change those and render again.
local site = {
  release = "RELEASE", root = "/appl/local/lumisite",
  families = {
    { "^.*/lumi%-multitorch%-rocm%-.*$" },
    { "^.*/lumi%-multitorch%-libfabric%-.*$" },
    { mpi = "pmi2", "^.*/lumi%-multitorch%-mpich%-.*$" },
    { mpi = "pmi2", "^/appl/local/laifs/containers/.*$", "^.*/lumi%-multitorch%-.*%.sif$", "^.*/lumi%-multitorch%-.*$" },
    { "^/appl/local/containers/easybuild%-sif%-images/.*$" },
    { "^.*/lumi%-pytorch%-rocm%-.*%-pytorch%-v2%.[6-9].*$", "^.*/lumi%-pytorch%-rocm%-.*%-pytorch%-v2%.[1-9][0-9].*$" },
    { "^.*/lumi%-pytorch%-rocm%-.*$" },
    { "^.*/lumi%-jax%-rocm%-.*$" },
    { "^.*/lumi%-tensorflow%-rocm%-.*$" },
    { "^.*/lumi%-mpi4py%-rocm%-.*$" },
    { "^.*/lumi%-rocm%-rocm%-.*$" },
    { "^.*/container%.sif$" },
  },
}
-- For a site's own cli_filter.lua, which calls it: docs/how-to/site-wide-helper.md shows how. Nothing here vetoes a job,
... cli_filter.lua
