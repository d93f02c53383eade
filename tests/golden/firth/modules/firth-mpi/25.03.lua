-- modulefiles_src/singularity-CPEbits.lua.j2 and firth.yaml: change those and render again.

help([=[
firth-mpi/25.03 for Firth, platform 2026-01

Binds MPI.

Type:
  module load firth-mpi
  apptainer exec IMAGE COMMAND

What it does:
  - binds /opt/cray, /etc/firth/host.conf into the container
  - unload it before `apptainer build`, which fails on binds

To read on:
  lumisite why NAME, lumisite env IMAGE
      one variable or bind with its reason; all that a task will find

Support: Firth's "help" desk
  help@firth.example
]=])
whatis("Name: firth-mpi")
whatis("Version: 25.03")
whatis("Description: Binds MPI")
whatis("Support: Firth's \"help\" desk, help@firth.example")

-- These set the whole bind list and would take ours away.
conflict("cray-bindings")

-- A place in the container that the user binds already stays the user's. LUMISITE_BINDS_FIRTH_MPI
-- remembers what was added, so that an unload gives back the user's own list, whichever release did the load.
local variable, marker = "APPTAINER_BINDPATH", "LUMISITE_BINDS_FIRTH_MPI"
local function place(spec)
  local source, target = spec:match("^%s*([^:]*):?([^:]*)")
  return ((target ~= "" and target or source):gsub("//+", "/"):gsub("(.)/$", "%1"))
end
local added = os.getenv(marker)
if mode() ~= "unload" or not added then
  local taken, free = {}, {}
  if mode() == "load" then
    -- Left behind: Lmod cannot unload a modulefile that is gone, as a version that the present release lacks.
    -- Named `delim`: remove_path of Lmod 8.7.60 does not see it as third argument.
    if added and added ~= "" then remove_path({ variable, added, delim = "," }) end
    for spec in (os.getenv(variable) or ""):gmatch("[^,]+") do
      taken[place(spec)] = true
    end
  end
  for _, spec in ipairs({
    "/opt/cray",
    "/etc/firth/host.conf:/etc/host.conf:ro",
  }) do
    if not taken[place(spec)] then free[#free + 1] = spec end
  end
  added = table.concat(free, ",")
end
if added ~= "" then append_path(variable, added, ",") end
setenv(marker, added)
