... cli_filter.lua
---- the site's data, from twin.yaml: change that and render again
site = {
  release = "RELEASE",
  root = "/appl/lumisite",
  images = {
  },
  needs = {
    { this = { option = "gpus-per-task" },
      partners = { { option = "gres-flags", patterns = { "^allow%-task%-sharing$" } }, { option = "gpu-bind", patterns = { "^none$" } } },
      several_tasks = true, text = "--gpus-per-task needs --gres-flags=allow-task-sharing or --gpu-bind=none: as on LUMI: each task cannot see the GPUs of the others on its node" },
  },
}
lumisite.release = site.release
return lumisite
