-- modulefiles_src/singularity-CPEbits.lua.j2 and twin.yaml: change those and render again.

help([=[
singularity-CPEbits/25.03 for the twin, platform 2026-01

Binds the stand-ins for the Cray programming environment into containers.

Appends to SINGULARITY_BINDPATH:
  /opt/cray
      stand-ins for libfabric, Cray MPICH and the plugin
  /usr/lib64/libcxi.so.1
      libfabric's cxi provider loads it

Host libraries behind these binds:
  /opt/cray/libfabric/1.22.0
      libfabric
  /opt/cray/pe/mpich/8.1.32
      cray-mpich

Unload it before `singularity build`, which fails on binds.

Support: the developers of lumisite
  docs/reference/twin.md
]=])
whatis("Name: singularity-CPEbits")
whatis("Version: 25.03")
whatis("Description: Binds the stand-ins for the Cray programming environment into containers")
whatis("Keywords: singularity, container, bind, cray")
whatis("Support: the developers of lumisite, docs/reference/twin.md")

-- These set a whole bind list of their own, and with both the container would have two.
conflict("singularity-bindings")
conflict("lumi-aif-singularity-bindings")

-- Binds that the user already has are left alone, so that unloading gives back the user's own list.
-- LUMISITE_BINDS_SINGULARITY_CPEBITS remembers which ones this module has added.
local variable, marker = "SINGULARITY_BINDPATH", "LUMISITE_BINDS_SINGULARITY_CPEBITS"
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
bind("/opt/cray")
bind("/usr/lib64/libcxi.so.1")
setenv(marker, table.concat(added, ","))
