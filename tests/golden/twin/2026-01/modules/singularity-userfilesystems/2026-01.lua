-- modulefiles_src/singularity-userfilesystems.lua.j2 and twin.yaml: change those and render again.

help([=[
singularity-userfilesystems/2026-01 for the twin, platform 2026-01

Binds the user file systems of the twin into containers.

Appends to SINGULARITY_BINDPATH:
  /scratch
      project scratch space
  /project
      project space
  /projappl
      project software
  /flash
      project space on flash storage
  /appl
      central software, the container images among it

Unload it before `singularity build`, which fails on binds.

Support: the developers of lumisite
  docs/reference/twin.md
]=])
whatis("Name: singularity-userfilesystems")
whatis("Version: 2026-01")
whatis("Description: Binds the user file systems of the twin into containers")
whatis("Keywords: singularity, container, bind")
whatis("Support: the developers of lumisite, docs/reference/twin.md")

-- These set a whole bind list of their own, and with both the container would have two.
conflict("singularity-bindings")
conflict("lumi-aif-singularity-bindings")

-- Binds that the user already has are left alone, so that unloading gives back the user's own list.
-- LUMISITE_BINDS_SINGULARITY_USERFILESYSTEMS remembers which ones this module has added.
local variable, marker = "SINGULARITY_BINDPATH", "LUMISITE_BINDS_SINGULARITY_USERFILESYSTEMS"
local unloading = mode() == "unload"
local known = os.getenv(unloading and marker or variable)
local added = {}
local function bind(spec)
  local listed = known ~= nil and ("," .. known .. ","):find("," .. spec .. ",", 1, true) ~= nil
  if listed == unloading or (unloading and known == nil) then
    append_path(variable, spec, ",")
    added[#added + 1] = spec
  end
end
bind("/scratch")
bind("/project")
bind("/projappl")
bind("/flash")
bind("/appl")
setenv(marker, table.concat(added, ","))
