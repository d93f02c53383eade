-- modulefiles_src/singularity-CPEbits.lua.j2 and lumi.yaml: change those and render again.

help([=[
singularity-CPEbits/25.09 for LUMI, platform 2026-01

Binds the parts of the Cray programming environment that images cannot carry:
libfabric, libcxi, Cray MPICH.

Appends to SINGULARITY_BINDPATH:
  /opt/cray
      libfabric, Cray MPICH with its GPU transport layer, PMI and PALS: what
      carries traffic on Slingshot
  /usr/lib64/libcxi.so.1
      libfabric's cxi provider loads it

Host libraries behind these binds:
  /opt/cray/libfabric/1.22.0
      libfabric
  /opt/cray/pe/mpich/9.0.1
      cray-mpich
  /opt/cray/pe/pmi/6.1.16
      cray-pmi

Unload it before `singularity build`, which fails on binds.

Support: LUMI User Support Team
  https://lumi-supercomputer.eu/user-support/need-help/
]=])
whatis("Name: singularity-CPEbits")
whatis("Version: 25.09")
whatis("Description: Binds the parts of the Cray programming environment that images cannot carry: libfabric, libcxi, Cray MPICH")
whatis("Keywords: singularity, container, bind, cray, slingshot, libfabric, mpich")
whatis("Support: LUMI User Support Team, https://lumi-supercomputer.eu/user-support/need-help/")

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
