-- spank_helpers/cli_filter.lua.j2 and lumi.yaml: change those and render again.
-- A site's own cli_filter.lua requires this file; it never vetoes a job.
local lumisite = { release = "RELEASE" }
return lumisite
