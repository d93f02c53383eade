-- spank_helpers/cli_filter.lua.j2 and twin.yaml: change those and render again.
-- For a site's own cli_filter.lua, which calls it: docs/how-to/site-wide-helper.md shows how. Nothing here vetoes a job,
-- and no error gets out of it; a syntax error would stop every srun, sbatch and salloc of the host, so this file is
-- compiled and run against a made-up `slurm` table in the tests.
local lumisite = { release = "RELEASE" }

local CONTAINERS = { singularity = true, apptainer = true }
-- How Slurm 22.05 to 26.05 show an option that is not set, or that the command does not have.
local UNSET = { [""] = true, ["unset"] = true, ["-2"] = true, ["0"] = true, ["(null)"] = true, ["invalid-context"] = true }
local MARK = "LUMISITE_CPU_BIND=user"

local function get(options, name)
  local fine, value = pcall(function() return options[name] end)
  if not fine or value == nil or UNSET[tostring(value)] then return nil end
  return tostring(value)
end

local function set(options, name, value)
  return (pcall(function() options[name] = value end))
end

local function say(level, text)
  pcall(function() slurm["log_" .. level]("%s", "lumisite: " .. text) end)
end

-- The prolog beside this file. `current` moves with the next deployment; a job keeps the release that it started with.
local function find_prolog()
  local root, release = "/appl/lumisite", "/releases/RELEASE/spank"
  local here = root .. release
  pcall(function()
    local source = debug.getinfo(1, "S").source:match("^@(/.*)/[^/]*$")
    here = source and source:gsub("/current/spank$", function() return release end) or here
  end)
  return here .. "/task_prolog"
end
local prolog = find_prolog()

local function readable(path)
  local fine, file = pcall(io.open, path, "r")
  if not fine or not file then return false end
  file:close()
  return true
end

local function is_container(options)
  local fine, argv = pcall(function() return options.argv end)
  if not fine or type(argv) ~= "table" then return false end
  local command = argv[1]
  return type(command) == "string" and CONTAINERS[command:match("[^/]*$")] == true
end

-- A prolog that is missing fails every task, so one that this host cannot read is not attached.
local function attach_prolog(options)
  local kind = get(options, "type")
  if (kind ~= nil and kind ~= "srun") or not is_container(options) or get(options, "task-prolog") then return end
  if readable(prolog) then
    set(options, "task-prolog", prolog)
  else
    say("verbose", "cannot read " .. prolog .. ", so the srun helper stays off")
  end
end

-- In the task, --cpu-bind=cores looks like Slurm's automatic binding. A step inside a step inherits SLURM_CPU_BIND from
-- the outer one, which is nobody's wish.
local function mark_binding(options)
  local binding = get(options, "cpu-bind")
  if not binding or not binding:find("cores") and not binding:find("threads") and not binding:find("sockets")
    and not binding:find("ldom") and not binding:find("map") and not binding:find("mask") and not binding:find("rank") then
    return
  end
  local step = tonumber(os.getenv("SLURM_STEP_ID") or "")
  if step and step >= 0 and step < 4294967290 and os.getenv("SLURM_CPU_BIND") then return end
  local export = get(options, "export") or "ALL"
  if export:find(MARK, 1, true) then return end
  set(options, "export", export == "NONE" and MARK or export .. "," .. MARK)
end

local function warn(options)
  local gpu_bind, flags = get(options, "gpu-bind"), get(options, "gres-flags") or ""
  local hides = gpu_bind and not gpu_bind:find("none") and "--gpu-bind=" .. gpu_bind
  for _, name in ipairs({ "gpus-per-task", "ntasks-per-gpu" }) do
    hides = hides or (not gpu_bind and get(options, name) and "--" .. name)
  end
  if hides and not flags:find("allow%-task%-sharing") then
    say("info", hides .. " hides the other GPUs of the node from each task, which breaks or slows GPU-to-GPU traffic: "
      .. "add --gres-flags=allow-task-sharing, or leave it out and choose the GPU by the local rank")
  end
  local binding = get(options, "cpu-bind")
  if binding and (binding:find("mask_cpu") or binding:find("map_cpu")) and get(options, "cpus-per-task") then
    say("info", "--cpu-bind with a list of CPUs does not go together with --cpus-per-task: leave out one of them")
  end
end

function lumisite.setup_defaults(options, early)
end

function lumisite.pre_submit(options, pack_offset)
  if os.getenv("LUMISITE") == "off" then return end
  for _, step in ipairs({ attach_prolog, mark_binding, warn }) do
    local fine, message = pcall(step, options)
    if not fine then say("debug", tostring(message)) end
  end
end

function lumisite.post_submit(offset, job_id, step_id)
end

return lumisite
