-- modulefiles_src/singularity-AI-bindings.lua.j2 and twin.yaml: change those and render again.

help([=[
singularity-AI-bindings/24.03-rocm6.0 for the twin, platform 2024-08

Everything that AI containers need on the twin.

Type:
  module load singularity-AI-bindings
  srun singularity exec IMAGE COMMAND

What it does, in each task that srun starts:
  - binds /scratch, /project, /projappl, /flash, /appl, /opt/cray and 2 more
    into the container
  - sets 9 environment variables for network, start-up and caches; yours stay
  - binds the task to CPUs of its own, unless you bind it
  - puts wrappers named singularity and apptainer first on PATH, which add
    what the image that runs takes, and start the real singularity

To switch it off:
  LUMISITE=off srun ...
      for one step: no settings, no CPU binding; the modules' binds stay
  LUMISITE_CPU_BIND=off srun ...
      the CPU binding alone; your own `srun --cpu-bind` wins as well
  module unload singularity-AI-bindings
      your environment is as it was before

To read on:
  LUMISITE_VERBOSE=1 srun ...
      each node prints what was set and bound
  lumisite why NAME, lumisite env IMAGE
      one variable or bind with its reason; all that a task will find
  module help singularity-userfilesystems
  module help singularity-CPEbits

Support: the developers of lumisite
  docs/explanation/twin.md
]=])
whatis("Name: singularity-AI-bindings")
whatis("Version: 24.03-rocm6.0")
whatis("Description: Everything that AI containers need on the twin")
whatis("Keywords: singularity, container, bind, AI, PyTorch")
whatis("Support: the developers of lumisite, docs/explanation/twin.md")

-- These set the whole bind list and would take ours away.
conflict("singularity-bindings")
conflict("lumi-aif-singularity-bindings")

depends_on("singularity-userfilesystems/2024-08")
depends_on("singularity-CPEbits/24.03")

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
setenv("LUMISITE_STACK", "24.03-rocm6.0")
prepend_path("PATH", bin(top))
