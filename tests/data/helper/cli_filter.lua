-- A site of one family, to try the cli_filter module by hand:
--   cat tests/data/helper/cli_filter.lua spank_helpers/cli_filter.lua >/tmp/filter.lua; luac -p /tmp/filter.lua
local site = {
  release = "try", root = "/nowhere",
  commands = "singularity apptainer", actions = "exec run", letters = "ew", valued_letters = "B",
  global_valued = "", global_flags = "", valued = "--bind", flags = "--nv",
  families = {
    { mpi = "pmi2", "^.*/torch%-.*$" },
  },
}
