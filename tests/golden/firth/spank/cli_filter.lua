-- spank_helpers/cli_filter.lua and firth.yaml: change those and render again.
local site = {
  release = "RELEASE", root = "/opt/lumisite",
  families = {
    { "^.*/torch.*%.sif$" },
  },
}
-- For a site's own cli_filter.lua, which calls it: docs/how-to/site-wide-helper.md shows how. Nothing here vetoes a job,
... cli_filter.lua
