-- modulefiles_src/singularity-AI-bindings.lua.j2 and lumi.yaml: change those and render again.

help([=[
singularity-AI-bindings/25.03-rocm6.2 for LUMI, platform 2026-01

Everything that AI containers need on LUMI: binds, network, CPU masks and
caches.

Type:
  module load singularity-AI-bindings
  srun singularity exec IMAGE COMMAND
      Every srun task gets the binds and variables listed below. No extra
      options are needed.

Versions: without one you get the default, 25.03-rocm6.2, which is right for
nearly all. CPE in a version says which libraries of the host are bound. Of
ROCm the image that runs decides, whatever the version says.

There are:
  25.03-rocm6.2
      CPE 25.03, ROCm 6.2.4, cray-mpich 8.1.32, cray-pmi 6.1.15 (the default)
  25.03-rocm7.0
      CPE 25.03, ROCm 7.0.3, cray-mpich 8.1.32, cray-pmi 6.1.15

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
      Binds the user file systems of LUMI into containers
  singularity-CPEbits/25.03
      Binds the parts of the Cray programming environment that images cannot
      carry: libfabric, libcxi, Cray MPICH

Appends to SINGULARITY_BINDPATH, by singularity-userfilesystems/2026-01:
  /pfs
      the Lustre file systems themselves, where the other paths lead
  /scratch
      project scratch space
  /projappl
      project software
  /project
      project space
  /flash
      project space on flash storage
  /appl
      central software, the container images among it

Appends to SINGULARITY_BINDPATH, by singularity-CPEbits/25.03:
  /opt/cray
      libfabric, Cray MPICH with its GPU transport layer, PMI and PALS: what
      carries traffic on Slingshot
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
  FI_MR_CACHE_MONITOR = userfaultfd
      with the default monitor, memhooks, the second communicator of a job
      hangs (measured with libfabric 2.1 in the image; with the host's 1.22
      nobody has looked whether userfaultfd takes effect) (multi-node GPU
      jobs)
  FI_CXI_DISABLE_HOST_REGISTER = 1
      registering host memory with the GPU driver can hang (multi-node GPU
      jobs)
  FI_CXI_DEFAULT_CQ_SIZE = 131072
      the default completion queue is too small for large jobs (multi-node GPU
      jobs)
  FI_CXI_DEFAULT_TX_SIZE = 2048
      the default transmit queue is too small for large jobs (multi-node GPU
      jobs; no effect on speed measured on 4 nodes; recommended for jobs of
      any size)
  FI_CXI_RX_MATCH_MODE = hybrid
      matching goes on in software when the adapter's table is full, instead
      of failing (multi-node GPU jobs)
  MASTER_ADDR = first node of the job step (set at run time)
      the name of the step's first node; which network that name leads to is
      for NCCL_SOCKET_IFNAME and GLOO_SOCKET_IFNAME
  NCCL_SOCKET_IFNAME = hsn0,hsn1,hsn2,hsn3
      RCCL meets its peers over the first interface that it finds, which may
      be the slow management network (GPU jobs; no effect on start-up measured
      on 2 to 8 nodes; recommended for jobs of any size)
  NCCL_NET_GDR_LEVEL = PHB
      the network adapter reads and writes GPU memory directly; from ROCm 6.2
      on RCCL does so by itself (multi-node GPU jobs, rocm <6.2)
  NCCL_NET = AWS Libfabric
      a plugin that does not load becomes an error instead of a job that goes
      over TCP in silence; all releases of the plugin take this name
      (multi-node GPU jobs, plugin yes)
  NCCL_CROSS_NIC = 1
      rings may change the adapter between nodes, which Slingshot allows at no
      cost (multi-node GPU jobs; no effect on speed measured on 4 nodes;
      recommended for jobs of any size)
  HSA_FORCE_FINE_GRAIN_PCIE = 1
      GPU memory must be fine-grained for direct access by the adapter
      (multi-node GPU jobs)
  GLOO_SOCKET_IFNAME = hsn0
      gloo otherwise binds to the address of the host name, which may be on
      the management network (GPU jobs)
  MIOPEN_USER_DB_PATH = a private node-local directory, miopen/db
      its databases fail on Lustre; /tmp is shared by all users of a node, so
      the directory is private; it outlives the job, for the next one (GPU
      jobs)
  MIOPEN_CUSTOM_CACHE_DIR = a private node-local directory, miopen/cache
      as MIOPEN_USER_DB_PATH, for compiled kernels (GPU jobs)
  TORCHINDUCTOR_CACHE_DIR = a private node-local directory, inductor
      what Inductor compiles is written by all ranks at once, which a shared
      file system does not take well; Inductor's own default, in /tmp, is on
      the node too (GPU jobs)
  TRITON_CACHE_DIR = a private node-local directory, triton
      as TORCHINDUCTOR_CACHE_DIR, for kernels of Triton, whose default is the
      home directory (GPU jobs)
  TORCH_EXTENSIONS_DIR = a private node-local directory, extensions
      as TORCHINDUCTOR_CACHE_DIR, for extensions in C++, whose default is the
      home directory (GPU jobs)
  PYTHONNOUSERSITE = 1
      packages in ~/.local would hide those of the image
  MASTER_PORT = a port from the ids of the job and the step (set at run time)
      a fixed port such as 29500 collides where jobs share a node
  AITER_JIT_DIR = a private node-local directory, aiter/{rank}
      an experimental fix of these images, whose vLLM locks files there; ranks
      must not share one, and programs expect build/ in it (GPU jobs, rocm
      ==6.2.4, family lumi-pytorch)
  ROCR_VISIBLE_DEVICES = the task's own GPU (set at run time)
      only on request (LUMISITE_GPUS=one); by default a task sees all GPUs,
      and torch picks one by its local rank (GPU jobs)

MPI inside third layer of the LUMI AI Factory images, with MPI and the plugin
needs `srun --mpi=pmi2`. No module sets that, since it would reach programs
outside of containers too.

MPI inside LUMI AI Factory images with PyTorch (the layers torch and full)
needs `srun --mpi=pmi2`. No module sets that, since it would reach programs
outside of containers too.

Support: LUMI User Support Team
  https://lumi-supercomputer.eu/user-support/need-help/
]=])
whatis("Name: singularity-AI-bindings")
whatis("Version: 25.03-rocm6.2")
whatis("Description: Everything that AI containers need on LUMI: binds, network, CPU masks and caches")
whatis("Keywords: singularity, container, bind, AI, PyTorch, JAX, RCCL, ROCm, slingshot")
whatis("Support: LUMI User Support Team, https://lumi-supercomputer.eu/user-support/need-help/")

-- These set the whole bind list and would take ours away.
conflict("singularity-bindings")
conflict("lumi-aif-singularity-bindings")

depends_on("singularity-userfilesystems/2026-01")
depends_on("singularity-CPEbits/25.03")

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
setenv("LUMISITE_STACK", "25.03-rocm6.2")
prepend_path("PATH", bin(top))
