-- modulefiles_src/singularity-userfilesystems.lua.j2 and twin.yaml: change those and render again.

help([=[
singularity-userfilesystems/2024-08 for the twin, platform 2024-08

Binds the user file systems of the twin into containers.

Type:
  module load singularity-userfilesystems
  singularity exec IMAGE COMMAND

What it does:
  - binds /scratch, /project, /projappl, /flash, /appl into the container
  - unload it before `singularity build`, which fails on binds

To read on:
  lumisite why NAME, lumisite env IMAGE
      one variable or bind with its reason; all that a task will find

Support: the developers of lumisite
  docs/explanation/twin.md
]=])
whatis("Name: singularity-userfilesystems")
whatis("Version: 2024-08")
whatis("Description: Binds the user file systems of the twin into containers")
whatis("Keywords: singularity, container, bind")
whatis("Support: the developers of lumisite, docs/explanation/twin.md")

-- These set the whole bind list and would take ours away.
conflict("singularity-bindings")
conflict("lumi-aif-singularity-bindings")

-- A place in the container that the user binds already stays the user's. LUMISITE_BINDS_SINGULARITY_USERFILESYSTEMS
-- remembers what was added, so that an unload gives back the user's own list, whichever release did the load.
local variable, marker = "SINGULARITY_BINDPATH", "LUMISITE_BINDS_SINGULARITY_USERFILESYSTEMS"
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
    "/scratch",
    "/project",
    "/projappl",
    "/flash",
    "/appl",
  }) do
    if not taken[place(spec)] then free[#free + 1] = spec end
  end
  added = table.concat(free, ",")
end
if added ~= "" then append_path(variable, added, ",") end
setenv(marker, added)
