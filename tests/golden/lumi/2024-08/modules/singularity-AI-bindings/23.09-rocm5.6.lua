-- modulefiles_src/singularity-AI-bindings.lua.j2 and lumi.yaml: change those and render again.

help([=[
singularity-AI-bindings/23.09-rocm5.6 for LUMI, platform 2024-08

Everything that AI containers need on LUMI: binds, network, CPU masks and
caches.

Type:
  module load singularity-AI-bindings
  srun singularity exec IMAGE COMMAND
      `run` in place of `exec` for LUMI AI Factory images with PyTorch and
      ROCm 7.0; LUMI AI Factory images with PyTorch and ROCm 7.2 and 1 more:
      their runscript prepares them

What it does, in each task that srun starts:
  - binds /pfs, /scratch, /projappl, /project, /flash, /appl and 4 more into
    the container
  - sets 20 environment variables for network, start-up and caches; yours stay
  - binds the task to the CPUs near its GPU, unless you bind it
  - puts wrappers named singularity and apptainer first on PATH, which add
    what the image that runs takes, and start the real singularity

Versions (without one you get the first):
  23.09-rocm6.0
      CPE 23.09, ROCm 6.0.3, cray-mpich 8.1.27 (the default)
  23.09-rocm5.6
      CPE 23.09, ROCm 5.6.1, cray-mpich 8.1.27
  23.09-rocm5.7
      CPE 23.09, ROCm 5.7.3, cray-mpich 8.1.27
  and 2 more: module spider singularity-AI-bindings

To switch it off:
  LUMISITE=off srun ...
      for one step: no settings, no CPU binding; the modules' binds stay
  LUMISITE_CPU_BIND=off srun ...
      the CPU binding alone; your own `srun --cpu-bind` wins as well
  module unload singularity-AI-bindings
      your environment is as it was before

MPI inside needs `srun --mpi=pmi2`: third layer of the LUMI AI Factory images,
with MPI and the plugin; LUMI AI Factory images with PyTorch and ROCm 7.0 and
2 more.

To read on:
  LUMISITE_VERBOSE=1 srun ...
      each node prints what was set and bound
  lumisite why NAME, lumisite env IMAGE
      one variable or bind with its reason; all that a task will find
  module help singularity-userfilesystems
  module help singularity-CPEbits

Support: LUMI User Support Team
  https://lumi-supercomputer.eu/user-support/need-help/
]=])
whatis("Name: singularity-AI-bindings")
whatis("Version: 23.09-rocm5.6")
whatis("Description: Everything that AI containers need on LUMI: binds, network, CPU masks and caches")
whatis("Keywords: singularity, container, bind, AI, PyTorch, JAX, RCCL, ROCm, slingshot")
whatis("Support: LUMI User Support Team, https://lumi-supercomputer.eu/user-support/need-help/")

-- These set the whole bind list and would take ours away.
conflict("singularity-bindings")
conflict("lumi-aif-singularity-bindings")

depends_on("singularity-userfilesystems/2024-08")
depends_on("singularity-CPEbits/23.09")

-- `current` moves with the next deployment; a job keeps the release that it started with.
local top = myFileName():match("^(.*)/modules/[^/]+/[^/]+$") or "/appl/local/lumisite/current"
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
setenv("LUMISITE_STACK", "23.09-rocm5.6")
prepend_path("PATH", bin(top))
