-- A site of one family, to try the cli_filter module by hand:
--   cat spank_helpers/cli_filter.lua tests/data/helper/cli_filter.lua >/tmp/filter.lua; luac -p /tmp/filter.lua
site = {
  release = "try",
  root = "/nowhere",
  images = {
    { pattern = "^.*/torch%-.*$", mpi = "pmi2" },
  },
  needs = {
    { this = { option = "exact" },
      partners = { { option = "cpu-bind", patterns = { "^none$" } } },
      excluded = true, text = "--exact does not go together with --cpu-bind=none" },
  },
}
lumisite.release = site.release
return lumisite
