-- spank_helpers/cli_filter.lua and twin.yaml: change those and render again.
local site = {
  release = "RELEASE", root = "/appl/lumisite",
  families = {
    { "^/appl/images/.*$" },
  },
}
-- For a site's own cli_filter.lua, which calls it: docs/how-to/site-wide-helper.md shows how. Nothing here vetoes a job,
... cli_filter.lua
