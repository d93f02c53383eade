-- For a site's own cli_filter.lua, which calls it: docs/how-to/site-wide-helper.md shows how. Nothing here vetoes a job,
-- and no error gets out of it; a syntax error would stop every srun, sbatch and salloc of the host, so this file is
-- compiled and run against a made-up `slurm` table in the tests. `lumisite render` puts the table `site` before it.
local lumisite = { release = site.release }

-- How Slurm 22.05 to 26.05 show an option that is not set, or that the command does not have.
local UNSET = { [""] = true, ["unset"] = true, ["-2"] = true, ["0"] = true, ["(null)"] = true, ["invalid-context"] = true }

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
  local release = "/releases/" .. site.release .. "/spank"
  local here = site.root .. release
  pcall(function()
    local source = debug.getinfo(1, "S").source:match("^@(/.*)/[^/]*$")
    here = source and source:gsub("/current/spank$", function() return release end) or here
  end)
  return here .. "/task_prolog"
end
local prolog = find_prolog()

-- What is known of the step before it starts. Inside of a job that is the job's, whatever the options say.
local function about(options, name)
  if os.getenv("SLURM_JOB_ID") then return os.getenv("SLURM_JOB_" .. name:upper()) end
  return get(options, name)
end

-- The policy's word for this step, as spank_helpers/policy.sh reads it. Where the partition or account of a line is not
-- known yet, as of an srun that makes its own allocation, it is `observe`: the prolog, which knows them, is attached.
local function word_of(options)
  local root = prolog:match("^(.*)/releases/")
  local file, _, code = io.open((root or site.root) .. "/policy", "r")
  if file then
    local lines = 0
    for line in (file:read(4096) or ""):gmatch("([^\n]*)\n") do
      local word, what, name = line:match("^(%S+) (%l+) ?(%S*)$")
      if what == "default" and name == "" then return word end
      if what == "partition" or what == "account" then
        local value = about(options, what)
        if not value then return "observe" end
        if value == name then return word end
      end
      lines = lines + 1
      if lines == 64 then break end
    end
  elseif code ~= 2 then
    return "off"
  elseif not root then
    return "on"
  end
  return os.getenv("LUMISITE_STACK") and "on" or "off"
end

local function is_container(options)
  local fine, argv = pcall(function() return options.argv end)
  if not fine or type(argv) ~= "table" then return false end
  local command = argv[1]
  return type(command) == "string" and (" " .. site.commands .. " "):find(" " .. command:match("[^/]*$") .. " ", 1, true) ~= nil
end

local module_prolog = (os.getenv("SLURM_TASK_PROLOG") or ""):match(".*/spank/task_prolog$")

-- Whether ours will run. A prolog that is missing fails every task, so one that this host cannot read is not attached.
local function attach_prolog(options)
  local kind, named = get(options, "type"), get(options, "task-prolog")
  if kind ~= nil and kind ~= "srun" then return false end
  if named then return named == module_prolog end
  if not is_container(options) then return false end
  local file = io.open(prolog, "r")
  if file then
    file:close()
    return set(options, "task-prolog", prolog)
  end
  say("verbose", "cannot read " .. prolog .. ", so the srun helper stays off")
  return false
end

-- The options are those of the wrapper, before the action and behind it: those that take the next word, and flags.
local function set_of(words)
  local found = {}
  for word in words:gmatch("%S+") do found[word] = true end
  return found
end
local ACTIONS, GLOBAL_VALUED, GLOBAL_FLAGS = set_of(site.actions), set_of(site.global_valued), set_of(site.global_flags)
local VALUED, FLAGS = set_of(site.valued), set_of(site.flags)
local FLAG_LETTERS = "^%-[" .. site.letters .. "]+$"
local VALUED_LETTERS = "^%-[" .. site.letters .. "]*[" .. site.valued_letters .. "]$"

-- Nothing at the first word that is not known for sure.
local function image_of(argv)
  local action, skip = false, false
  local valued, flags = GLOBAL_VALUED, GLOBAL_FLAGS
  for index = 2, #argv do
    local word = argv[index]
    if skip then
      skip = false
    elseif valued[word] or (action and word:match(VALUED_LETTERS)) then
      skip = true
    elseif word:sub(1, 1) ~= "-" then
      if action then return word end
      if not ACTIONS[word] then return nil end
      action, valued, flags = true, VALUED, FLAGS
    elseif not (flags[word] or word:match("^%-%-[%w-]+=") or (action and word:match(FLAG_LETTERS))) then
      return nil
    end
  end
end

-- MPI in an image may need another interface than the host's. For a whole session it would break native steps, so each
-- step of such an image gets it here; what the user or SLURM_MPI_TYPE says stays.
local function choose_mpi(options)
  local kind = get(options, "type")
  if (kind ~= nil and kind ~= "srun") or not is_container(options) or get(options, "mpi") then return end
  local image = image_of(options.argv)
  if not image then return end
  for _, family in ipairs(site.families) do
    for _, pattern in ipairs(family) do
      if image:match(pattern) or ("/" .. image):match(pattern) then
        if family.mpi then set(options, "mpi", family.mpi) end
        return
      end
    end
  end
end

-- In the task, --cpu-bind=cores looks like Slurm's automatic binding: so it is marked for the prolog, which takes the mark
-- back. A step inside a step inherits SLURM_CPU_BIND from
-- the outer one, which is nobody's wish.
local function mark_binding(options)
  local binding = get(options, "cpu-bind")
  if not binding or not binding:find("cores") and not binding:find("threads") and not binding:find("sockets")
    and not binding:find("ldom") and not binding:find("map") and not binding:find("mask") and not binding:find("rank") then
    return
  end
  local step = tonumber(os.getenv("SLURM_STEP_ID") or "")
  if step and step >= 0 and step < 4294967290 and os.getenv("SLURM_CPU_BIND") then return end
  local export, mark = get(options, "export") or "ALL", "LUMISITE_CPU_BIND=user"
  if export:find(mark, 1, true) then return end
  set(options, "export", export == "NONE" and mark or export .. "," .. mark)
end

local function warn(options)
  local named = get(options, "task-prolog")
  if named and named ~= module_prolog and named ~= prolog and (module_prolog or is_container(options)) then
    say("info", "--task-prolog=" .. named .. " comes in the place of " .. (module_prolog or prolog) .. ": call that at its end, or "
      .. "the task gets none of its binds, settings and CPU mask")
  end
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
  local fine, word = pcall(word_of, options)
  if not fine or (word ~= "on" and word ~= "observe") then return end
  local attached = false
  local steps = {
    function() attached = attach_prolog(options) end,
    -- Where no prolog is sure to take the mark back, only what is on leaves one.
    function() if attached or word == "on" then mark_binding(options) end end,
  }
  if word == "on" then
    steps[3] = function() choose_mpi(options) end
    steps[4] = function() warn(options) end
  end
  for _, step in ipairs(steps) do
    local ran, message = pcall(step)
    if not ran then say("debug", tostring(message)) end
  end
end

function lumisite.post_submit(offset, job_id, step_id)
end

return lumisite
