-- modulefiles_src/singularity-AI-bindings.lua.j2 and twin.yaml: change those and render again.

help([=[
singularity-AI-bindings/25.03-rocm6.2 for the twin, platform 2026-01

Everything that AI containers need on the twin.

Loads:
  singularity-userfilesystems/2026-01
      Binds the user file systems of the twin into containers
  singularity-CPEbits/25.03
      Binds the stand-ins for the Cray programming environment into containers

Switches the srun helper on (SLURM_TASK_PROLOG). In each task of a job step it
does the following.

Binds, where the node has it:
  /var/spool/slurmd
      Slurm's process manager interface keeps its sockets there, on compute
      nodes only

Sets, unless you have set it:
  NCCL_SOCKET_IFNAME = hsn0,hsn1,hsn2,hsn3
      as on LUMI
  GLOO_SOCKET_IFNAME = hsn0
      gloo otherwise binds to the address of the host name, on the management
      network
  USE_LIBUV = 0
      Debian's PyTorch is built without libuv, and its TCPStore asks for it
  NCCL_NET_GDR_LEVEL = PHB
      as on LUMI (where nodes is several)
  MIOPEN_USER_DB_PATH = a private node-local directory, miopen/db
      as on LUMI
  MIOPEN_CUSTOM_CACHE_DIR = a private node-local directory, miopen/cache
      as on LUMI
  PYTHONNOUSERSITE = 1
      packages in ~/.local would hide those of the image
  MASTER_ADDR = master address, worked out on the node
      the first node of the step, by its name on the high-speed network
  MASTER_PORT = master port, worked out on the node
      a fixed port collides where jobs share a node

LUMISITE=off switches the helper off, LUMISITE_VERBOSE=1 makes it say what it
does.

Support: the developers of lumisite
  docs/reference/twin.md
]=])
whatis("Name: singularity-AI-bindings")
whatis("Version: 25.03-rocm6.2")
whatis("Description: Everything that AI containers need on the twin")
whatis("Keywords: singularity, container, bind, AI, PyTorch")
whatis("Support: the developers of lumisite, docs/reference/twin.md")

-- These set a whole bind list of their own, and with both the container would have two.
conflict("singularity-bindings")
conflict("lumi-aif-singularity-bindings")

depends_on("singularity-userfilesystems/2026-01")
depends_on("singularity-CPEbits/25.03")

-- A variable that the user has set stays as it is, on load and on unload.
-- LUMISITE_SETS remembers which ones this module has set.
local sets = "," .. (os.getenv("LUMISITE_SETS") or "") .. ","
local function offer(name, value)
  local current = os.getenv(name)
  local ours = sets:find("," .. name .. ",", 1, true) ~= nil
  if mode() == "unload" then
    if ours and current == value then setenv(name, value) end
    if ours then append_path("LUMISITE_SETS", name, ",") end
  elseif current == nil then
    setenv(name, value)
    append_path("LUMISITE_SETS", name, ",")
  end
end

-- `current` moves with the next deployment; a job keeps the release that it started with.
local release = "RELEASE"
local top = myFileName():match("^(.*)/modules/[^/]+/[^/]+$") or "/appl/lumisite/current"
top = top:gsub("/current$", "/releases/" .. release)
local prolog = top .. "/spank/task_prolog"
local users = os.getenv("SLURM_TASK_PROLOG")
if mode() == "load" and users and users ~= prolog then
  LmodMessage("SLURM_TASK_PROLOG is your own (" .. users .. "), so the srun helper stays off: no CPU masks, "
    .. "no network and MIOpen settings. Unset it and load this module again to have them.")
end
offer("SLURM_TASK_PROLOG", prolog)
setenv("LUMISITE_STACK", "25.03-rocm6.2")
prepend_path("PATH", top .. "/spank/bin")
