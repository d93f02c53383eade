-- modulefiles_src/singularity-AI-bindings.lua.j2 and twin.yaml: change those and render again.

help([=[
singularity-AI-bindings/25.03-rocm6.2 for the twin, platform 2026-01

Everything that AI containers need on the twin.

Type:
  module load singularity-AI-bindings
  srun singularity exec IMAGE COMMAND
      Every srun task gets the binds and variables listed below. No extra
      options are needed.

`singularity` and `apptainer` are now wrappers, first on PATH: they add what
the image that runs takes, and start the real singularity
(/usr/bin/singularity), or the one that a module of yours has put on PATH.
`singularity build` gets no binds from this. `type singularity` shows which
one you have.

To switch it off:
  LUMISITE=off srun singularity ...
      for one step: helper and wrapper do nothing; the modules' binds stay
  module unload singularity-AI-bindings
      the environment of before comes back

To read on:
  LUMISITE_VERBOSE=1 srun singularity ...
      each task prints what was set and bound
  module help singularity-userfilesystems
  module help singularity-CPEbits
  lumisite why NAME, lumisite env IMAGE
      the same before a job runs, with reasons, where lumisite is installed

Loads:
  singularity-userfilesystems/2026-01
      Binds the user file systems of the twin into containers
  singularity-CPEbits/25.03
      Binds the stand-ins for the Cray programming environment into containers

Appends to SINGULARITY_BINDPATH, by singularity-userfilesystems/2026-01:
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

Appends to SINGULARITY_BINDPATH, by singularity-CPEbits/25.03:
  /opt/cray
      stand-ins for libfabric, Cray MPICH and the plugin
  /usr/lib64/libcxi.so.1
      libfabric's cxi provider loads it

Environment variables (your own values take precedence):
  SLURM_TASK_PROLOG = the helper
      srun runs it before each task

`module unload` restores your environment. Variables you set yourself are
never changed. (LUMISITE_* is bookkeeping.)

Switches the srun helper on (SLURM_TASK_PROLOG). In each task of a job step it
does the following. What depends on the image (its ROCm release, its family,
its plugin) is decided by the image that runs, whatever the version of this
module.

Binds, where the node has it:
  /var/spool/slurmd
      Slurm's process manager interface keeps its sockets there, on compute
      nodes only

Environment variables (your own values take precedence; most important first):
  NCCL_SOCKET_IFNAME = hsn0,hsn1,hsn2,hsn3
      as on LUMI
  GLOO_SOCKET_IFNAME = hsn0
      gloo otherwise binds to the address of the host name, on the management
      network
  USE_LIBUV = 0
      Debian's PyTorch is built without libuv, and its TCPStore asks for it
  NCCL_NET_GDR_LEVEL = PHB
      as on LUMI (multi-node jobs)
  MIOPEN_USER_DB_PATH = a private node-local directory, miopen/db
      as on LUMI
  MIOPEN_CUSTOM_CACHE_DIR = a private node-local directory, miopen/cache
      as on LUMI
  PYTHONNOUSERSITE = 1
      packages in ~/.local would hide those of the image
  MASTER_ADDR = first node of the job step (set at run time)
      the first node of the step, by its name on the high-speed network
  MASTER_PORT = a port from the ids of the job and the step (set at run time)
      a fixed port collides where jobs share a node

Support: the developers of lumisite
  docs/reference/twin.md
]=])
whatis("Name: singularity-AI-bindings")
whatis("Version: 25.03-rocm6.2")
whatis("Description: Everything that AI containers need on the twin")
whatis("Keywords: singularity, container, bind, AI, PyTorch")
whatis("Support: the developers of lumisite, docs/reference/twin.md")

-- These set the whole bind list and would take ours away.
conflict("singularity-bindings")
conflict("lumi-aif-singularity-bindings")

depends_on("singularity-userfilesystems/2026-01")
depends_on("singularity-CPEbits/25.03")

-- `current` moves with the next deployment; a job keeps the release that it started with.
local top = myFileName():match("^(.*)/modules/[^/]+/[^/]+$") or "/appl/lumisite/current"
if top:sub(-8) == "/current" then top = top:sub(1, -8) .. "releases/RELEASE" end
local function bin(release) return release .. "/spank/bin" end

-- What an earlier load has set and is still so goes, whichever release it was: on unload, where Lmod turns setenv
-- around, and on load too, if the modulefile of that load was gone when it should have been unloaded.
local memory = "LUMISITE_SETS_SINGULARITY_AI_BINDINGS"
if mode() == "unload" or mode() == "load" then
  local take_back = mode() == "unload" and setenv or unsetenv
  for name, value in (os.getenv(memory) or ""):gmatch("([^,=]+)=([^,]*)") do
    value = value:gsub("%%(%x%x)", function(hex) return string.char(tonumber(hex, 16)) end)
    if os.getenv(name) == value then take_back(name, value) end
  end
  local earlier = os.getenv("LUMISITE_RELEASE")
  if earlier and mode() == "load" then remove_path("PATH", bin(earlier)) end
  if earlier and mode() == "unload" then top = earlier end
end

-- A variable that the user has set stays as it is.
local set = {}
local function offer(name, value)
  if mode() == "unload" or (mode() == "load" and os.getenv(name)) then return end
  setenv(name, value)
  set[#set + 1] = name .. "=" .. value:gsub("[%%,]", function(c) return ("%%%02x"):format(c:byte()) end)
end
offer("SLURM_TASK_PROLOG", top .. "/spank/task_prolog")
local prolog = os.getenv("SLURM_TASK_PROLOG")
if mode() == "load" and prolog ~= top .. "/spank/task_prolog" then
  LmodMessage("SLURM_TASK_PROLOG is your own (" .. prolog .. "), so the srun helper stays off: no CPU masks, "
    .. "no network and MIOpen settings. Unset it and load this module again to have them.")
end
setenv(memory, table.concat(set, ","))
setenv("LUMISITE_RELEASE", top)
setenv("LUMISITE_STACK", "25.03-rocm6.2")
prepend_path("PATH", bin(top))
