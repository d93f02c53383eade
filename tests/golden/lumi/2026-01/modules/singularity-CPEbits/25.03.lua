-- modulefiles_src/singularity-CPEbits.lua.j2 and lumi.yaml: change those and render again.

help([=[
singularity-CPEbits/25.03 for LUMI, platform 2026-01

Binds the parts of the Cray programming environment that images cannot carry:
libfabric, libcxi, Cray MPICH.

Type:
  module load singularity-CPEbits
  singularity exec IMAGE COMMAND
      `run` in place of `exec` for LUMI AI Factory images with PyTorch and
      ROCm 7.0; LUMI AI Factory images with PyTorch and ROCm 7.2 and 1 more:
      their runscript prepares them

What it does:
  - binds /opt/cray, /usr/lib64/libcxi.so.1 into the container
  - unload it before `singularity build`, which fails on binds

To read on:
  lumisite why NAME, lumisite env IMAGE
      one variable or bind with its reason; all that a task will find

Support: LUMI User Support Team
  https://lumi-supercomputer.eu/user-support/need-help/
]=])
whatis("Name: singularity-CPEbits")
whatis("Version: 25.03")
whatis("Description: Binds the parts of the Cray programming environment that images cannot carry: libfabric, libcxi, Cray MPICH")
whatis("Keywords: singularity, container, bind, cray, slingshot, libfabric, mpich")
whatis("Support: LUMI User Support Team, https://lumi-supercomputer.eu/user-support/need-help/")

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
