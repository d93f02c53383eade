... cli_filter.lua
---- the site's data, from lumi.yaml: change that and render again
site = {
  release = "RELEASE",
  root = "/appl/local/lumisite",
  images = {
    { pattern = "^.*/lumi%-multitorch%-rocm%-.*$" },
    { pattern = "^.*/lumi%-multitorch%-libfabric%-.*$" },
    { pattern = "^.*/lumi%-multitorch%-mpich%-.*$", mpi = "pmi2" },
    { pattern = "^.*/lumi%-multitorch%-.*u[0-9][0-9]r70.*$", mpi = "pmi2" },
    { pattern = "^.*/lumi%-multitorch%-.*u[0-9][0-9]r72.*$", mpi = "pmi2" },
    { pattern = "^/appl/local/laifs/containers/.*$", mpi = "pmi2" },
    { pattern = "^.*/lumi%-multitorch%-.*%.sif$", mpi = "pmi2" },
    { pattern = "^.*/lumi%-multitorch%-.*$", mpi = "pmi2" },
  },
  needs = {
    { this = { variable = "FI_CXI_RDZV_PROTO", patterns = { "^alt_read$" } },
      partners = { { option = "network", patterns = { "^disable_rdzv_get$" } } },
      text = "FI_CXI_RDZV_PROTO=alt_read needs --network=disable_rdzv_get: alt_read needs a driver that leaves rendezvous to the provider (rdzv_get_en=0), and falls back to the default without a word" },
    { this = { option = "gres-flags", patterns = { "^allow%-task%-sharing$" } },
      partners = { { option = "gpu-bind", patterns = { "^closest$" } } },
      excluded = true, text = "--gres-flags=allow-task-sharing does not go together with --gpu-bind=closest: closest does not choose GPUs reliably together with allow-task-sharing" },
    { this = { option = "gpu-bind", patterns = { "^closest$", "^map%:.*$", "^map_gpu%:.*$", "^mask%:.*$", "^mask_gpu%:.*$", "^single%:.*$", "^per_task%:.*$" } },
      partners = { { option = "gres-flags", patterns = { "^allow%-task%-sharing$" } } },
      several_tasks = true, text = "--gpu-bind needs --gres-flags=allow-task-sharing: each task cannot see the GPUs of the others on its node: RCCL and MPI fail or slow down" },
    { this = { option = "gpus-per-task" },
      partners = { { option = "gres-flags", patterns = { "^allow%-task%-sharing$" } }, { option = "gpu-bind", patterns = { "^none$" } } },
      several_tasks = true, text = "--gpus-per-task needs --gres-flags=allow-task-sharing or --gpu-bind=none: each task cannot see the GPUs of the others on its node: RCCL and MPI fail or slow down" },
    { this = { option = "ntasks-per-gpu" },
      partners = { { option = "gres-flags", patterns = { "^allow%-task%-sharing$" } }, { option = "gpu-bind", patterns = { "^none$" } } },
      several_tasks = true, text = "--ntasks-per-gpu needs --gres-flags=allow-task-sharing or --gpu-bind=none: each task cannot see the GPUs of the others on its node: RCCL and MPI fail or slow down" },
  },
}
lumisite.release = site.release
return lumisite
