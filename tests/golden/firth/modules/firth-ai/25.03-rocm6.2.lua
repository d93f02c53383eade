-- modulefiles_src/singularity-AI-bindings.lua.j2 and firth.yaml: change those and render again.

help([=[
firth-ai/25.03-rocm6.2 for Firth, platform 2026-01

All that AI containers need.

firth-ai is deprecated: It is old [2024] {so to say}. Use firth-next instead.

Type:
  module load firth-ai
  srun apptainer exec IMAGE COMMAND

What it does, in each task that srun starts:
  - binds /scratch, /opt/cray, /etc/firth/host.conf, /var/spool/slurmd into
    the container
  - sets 7 environment variables for network, start-up and caches; yours stay
  - binds the task to the CPUs near its GPU, unless you bind it
  - puts wrappers named singularity and apptainer first on PATH, which add
    what the image that runs takes, and start the real apptainer

To switch it off:
  LUMISITE=off srun ...
      for one step: no settings, no CPU binding; the modules' binds stay
  LUMISITE_CPU_BIND=off srun ...
      the CPU binding alone; your own `srun --cpu-bind` wins as well
  module unload firth-ai
      your environment is as it was before

To read on:
  LUMISITE_VERBOSE=1 srun ...
      each node prints what was set and bound
  lumisite why NAME, lumisite env IMAGE
      one variable or bind with its reason; all that a task will find
  module help firth-files
  module help firth-mpi

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
