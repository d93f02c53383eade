-- The cli_filter part of lumisite. The site's own cli_filter.lua calls it on the submit host, as
-- the user, for each srun, sbatch and salloc. It changes options of srun and warns; it refuses no
-- job, and no error gets out of it.
--   off for one user:  export LUMISITE=off
--   off for all:       lumisite policy @ROOT@ off
--   the same by hand:  echo 'off default' >@ROOT@/policy
--   take it out:       delete its call in the site's cli_filter.lua
--   whose it is:       release @RELEASE@ of @SITE@
--   whom to ask:       @SUPPORT@
--                      @CONTACT@
--
-- 1 Read the policy: off ends here; observe does 2 and 3 alone, and the prolog then only observes.
-- 2 Attach the task prolog to container steps.
-- 3 Mark a --cpu-bind that the user typed: in the task it looks like Slurm's own binding.
-- 4 Choose --mpi for the image.
-- 5 Warn of options that do not go together.
local lumisite, site = {}, {}

-- How Slurm 22.05 to 26.05 show an option that is not set, or that the command does not have.
local UNSET = { [""] = true, unset = true, ["-2"] = true, ["0"] = true, ["(null)"] = true,
  ["invalid-context"] = true }

-- Returns the text of an option, or nil.
local function get(options, name)
  local fine, value = pcall(function() return options[name] end)
  return fine and value ~= nil and not UNSET[tostring(value)] and tostring(value) or nil
end

local function say(level, text)
  pcall(function() slurm["log_" .. level]("%s", "lumisite: " .. text) end)
end

-- Returns the words of a container command, or nil for another program.
local function container_words(options)
  local fine, words = pcall(function() return options.argv end)
  local program = fine and type(words) == "table" and tostring(words[1]):match("[^/]*$")
  return (program == "singularity" or program == "apptainer") and words or nil
end

-- Returns the prolog beside this file by its release: `current` moves, and a job keeps its release.
local function our_prolog()
  local release = "/releases/" .. site.release .. "/spank"
  local file = debug.getinfo(1, "S").source:match("^@(/.*)/[^/]*$")
  local folder = file and file:gsub("/current/spank$", function() return release end)
  return (folder or site.root .. release) .. "/task_prolog"
end
local module_prolog = (os.getenv("SLURM_TASK_PROLOG") or ""):match("^/.*/spank/task_prolog$")

-- 1. Returns the policy's word, as spank_helpers/common.sh reads it. Where the partition or account
-- of a line is not known yet (an srun that makes its own allocation), it is observe: the prolog,
-- which knows them, is attached.
local function policy(options)
  local root = our_prolog():match("^(.*)/releases/")
  local file, _, code = io.open((root or site.root) .. "/policy", "r")
  if not file and code ~= 2 then return "off" end
  if not file and not root then return "on" end
  local for_others, lines = not file, 0
  local text = file and file:read(4096) or ""
  for line in (text:match("[^\n]$") and text .. "\n" or text):gmatch("([^\n]*)\n") do
    local words = {}
    for word in line:gmatch("[^ \t]+") do words[#words + 1] = word end
    local word, what, name = words[1], words[2], words[3]
    lines = lines + 1
    if lines == 65 then return "off" end
    if word and word:sub(1, 1) ~= "#" then
      if #words == 2 and what == "default" then return word end
      if #words ~= 3 or what ~= "partition" and what ~= "account" then return "off" end
      local of_job, value = os.getenv("SLURM_JOB_ID"), get(options, what)
      if of_job then value = os.getenv("SLURM_JOB_" .. what:upper()) end
      if not value then return "observe" end
      if value == name then return word end
      for_others = true
    end
  end
  return for_others and os.getenv("LUMISITE_STACK") and "on" or "off"
end

-- 2. Returns whether ours will run. One that this host cannot read would fail every task.
local function attach_prolog(options)
  local named, prolog = get(options, "task-prolog"), our_prolog()
  if named or not container_words(options) then return named ~= nil and named == module_prolog end
  local file = io.open(prolog, "r")
  if not file then
    say("verbose", "cannot read " .. prolog .. ", so the srun helper stays off")
    return false
  end
  file:close()
  options["task-prolog"] = prolog
  return true
end

-- 3. A step inside a step inherits SLURM_CPU_BIND from the outer one, which is nobody's wish.
local function mark_binding(options)
  local binding, typed = get(options, "cpu-bind") or "", false
  for _, word in ipairs({ "cores", "threads", "sockets", "ldom", "map", "mask", "rank" }) do
    typed = typed or binding:find(word, 1, true)
  end
  local step = tonumber(os.getenv("SLURM_STEP_ID") or "") or -1
  local inherited = step >= 0 and step < 4294967290 and os.getenv("SLURM_CPU_BIND")
  local export, mark = get(options, "export") or "ALL", "LUMISITE_CPU_BIND=user"
  if not typed or inherited or export:find(mark, 1, true) then return end
  options["export"] = export == "NONE" and mark or export .. "," .. mark
end

-- 4. The first word that fits a pattern is the image; the first pattern counts. A path has at most
-- 4096 bytes. (Set for the whole session, another MPI would break steps without a container.)
local function choose_mpi(options)
  if get(options, "mpi") then return end
  for _, word in ipairs(container_words(options) or {}) do
    for _, image in ipairs(#word <= 4096 and site.images or {}) do
      if word:match(image.pattern) or ("/" .. word):match(image.pattern) then
        if image.mpi then options["mpi"] = image.mpi end
        return
      end
    end
  end
end

-- Returns whether an option or a variable is set, to a word between commas that fits a pattern if
-- there are any.
local function has(options, term)
  local value = term.variable and os.getenv(term.variable)
  if term.option then value = get(options, term.option) end
  for word in (value or ""):gmatch("[^,]+") do
    for _, pattern in ipairs(term.patterns or {}) do
      if word:lower():match(pattern) then return true end
    end
  end
  return value ~= nil and not term.patterns
end

-- 5.
local function warn(options)
  local named, ours = get(options, "task-prolog"), module_prolog or our_prolog()
  local other = named and named ~= ours and named ~= our_prolog()
  if other and (module_prolog or container_words(options)) then
    say("info", "--task-prolog=" .. named .. " comes in the place of " .. ours .. ": call that at "
      .. "its end, or the task gets none of its binds, settings and CPU mask")
  end
  local alone = get(options, "ntasks") == "1" or get(options, "ntasks-per-node") == "1"
  for _, pair in ipairs(site.needs) do
    local partner = false
    for _, term in ipairs(pair.partners) do partner = partner or has(options, term) end
    local wrong = partner == (pair.excluded or false) and not (pair.several_tasks and alone)
    if wrong and has(options, pair.this) then say("info", pair.text) end
  end
  local cpus = get(options, "cpu-bind") or ""
  if (cpus:find("mask_cpu") or cpus:find("map_cpu")) and get(options, "cpus-per-task") then
    say("info", "--cpu-bind with a list of CPUs does not go together with --cpus-per-task: leave "
      .. "out one of them")
  end
end

function lumisite.pre_submit(options, pack_offset)
  local known, word = pcall(policy, options)
  local switched_off = { off = true, OFF = true, no = true, ["0"] = true }
  if switched_off[os.getenv("LUMISITE") or ""] or not known then return end
  if word ~= "on" and word ~= "observe" then return end
  local is_srun = (get(options, "type") or "srun") == "srun"
  -- Each step on its own: an error in one, returned as text, leaves the others.
  local function try(step, wanted)
    local fine, answer = true, false
    if wanted then fine, answer = pcall(step, options) end
    if not fine then say("debug", tostring(answer)) end
    return fine and answer
  end
  local attached = try(attach_prolog, is_srun)
  -- Where no prolog is sure to take the mark back, only what is on leaves one.
  try(mark_binding, attached or word == "on")
  try(choose_mpi, is_srun and word == "on")
  try(warn, word == "on")
end
