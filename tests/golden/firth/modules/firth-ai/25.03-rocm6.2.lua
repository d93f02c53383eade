-- modulefiles_src/singularity-AI-bindings.lua.j2 and firth.yaml: change those and render again.

help([=[
firth-ai/25.03-rocm6.2 for Firth, platform 2026-01

All that AI containers need.

firth-ai is deprecated: It is old [2024] {so to say}. Use firth-next instead.

Type:
  module load firth-ai
  srun apptainer exec IMAGE COMMAND
      Every srun task gets the binds and variables listed below. No extra
      options are needed.

`singularity` and `apptainer` are now wrappers, first on PATH: they add what
the image that runs takes, and start the real apptainer (/usr/bin/apptainer),
or the one that a module of yours has put on PATH. `apptainer build` gets no
binds from this. `type apptainer` shows which one you have.

To switch it off:
  LUMISITE=off srun apptainer ...
      for one step: helper and wrapper do nothing; the modules' binds stay
  module unload firth-ai
      the environment of before comes back

To read on:
  LUMISITE_VERBOSE=1 srun apptainer ...
      each task prints what was set and bound
  module help firth-files
  module help firth-mpi
  lumisite why NAME, lumisite env IMAGE
      the same before a job runs, with reasons, where lumisite is installed

Loads:
  firth-files/2026-01
      Binds the file systems
  firth-mpi/25.03
      Binds MPI

Appends to APPTAINER_BINDPATH, by firth-files/2026-01:
  /scratch
      project space

Appends to APPTAINER_BINDPATH, by firth-mpi/25.03:
  /opt/cray
      MPI and libfabric
  /etc/firth/host.conf:/etc/host.conf:ro
      names of hosts

Environment variables (your own values take precedence):
  FIRTH_PRICE = 100% of $5, {a} "b" [c] \d
      text that a shell would read
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
      sockets of PMI

Environment variables (your own values take precedence; most important first):
  NCCL_SOCKET_IFNAME = hsn0,hsn1
      the fast interfaces
  NCCL_NET_GDR_LEVEL = PHB
      GPUs that are near their adapter (multi-node jobs)
  HSA_XNACK = 1
      paging (rocm >=6.2)
  FIRTH_DEBUG is unset
      left over in profiles
  MASTER_ADDR = first node of the job step (set at run time)
      the first node
  MIOPEN_USER_DB_PATH = a private node-local directory, miopen
      locks on shared file systems

Support: Firth's "help" desk
  help@firth.example
]=])
whatis("Name: firth-ai")
whatis("Version: 25.03-rocm6.2")
whatis("Description: All that AI containers need")
whatis("Support: Firth's \"help\" desk, help@firth.example")

depends_on("firth-files/2026-01")
depends_on("firth-mpi/25.03")

if mode() == "load" then
  LmodMessage("firth-ai is deprecated: It is old [2024] {so to say}. Use firth-next instead.")
end

-- `current` moves with the next deployment; a job keeps the release that it started with.
local top = myFileName():match("^(.*)/modules/[^/]+/[^/]+$") or "/opt/lumisite/current"
if top:sub(-8) == "/current" then top = top:sub(1, -8) .. "releases/RELEASE" end
local function bin(release) return release .. "/spank/bin" end

-- What an earlier load has set and is still so goes, whichever release it was: on unload, where Lmod turns setenv
-- around, and on load too, if the modulefile of that load was gone when it should have been unloaded.
local memory = "LUMISITE_SETS_FIRTH_AI"
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
offer("FIRTH_PRICE", "100% of $5, {a} \"b\" [c] \\d")
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
