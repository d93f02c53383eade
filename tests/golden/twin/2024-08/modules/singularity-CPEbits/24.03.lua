-- modulefiles_src/singularity-CPEbits.lua.j2 and twin.yaml: change those and render again.

help([=[
singularity-CPEbits/24.03 for the twin, platform 2024-08

Binds the stand-ins for the Cray programming environment into containers.

Type:
  module load singularity-CPEbits
  singularity exec IMAGE COMMAND

What it does:
  - binds /opt/cray, /usr/lib64/libcxi.so.1 into the container
  - unload it before `singularity build`, which fails on binds

To read on:
  lumisite why NAME, lumisite env IMAGE
      one variable or bind with its reason; all that a task will find

Support: the developers of lumisite
  docs/explanation/twin.md
]=])
whatis("Name: singularity-CPEbits")
whatis("Version: 24.03")
whatis("Description: Binds the stand-ins for the Cray programming environment into containers")
whatis("Keywords: singularity, container, bind, cray")
whatis("Support: the developers of lumisite, docs/explanation/twin.md")

-- These set the whole bind list and would take ours away.
conflict("singularity-bindings")
conflict("lumi-aif-singularity-bindings")

-- A place in the container that the user binds already stays the user's. LUMISITE_BINDS_SINGULARITY_CPEBITS
-- remembers what was added, so that an unload gives back the user's own list, whichever release did the load.
local variable, marker = "SINGULARITY_BINDPATH", "LUMISITE_BINDS_SINGULARITY_CPEBITS"
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
    "/usr/lib64/libcxi.so.1",
  }) do
    if not taken[place(spec)] then free[#free + 1] = spec end
  end
  added = table.concat(free, ",")
end
if added ~= "" then append_path(variable, added, ",") end
setenv(marker, added)
