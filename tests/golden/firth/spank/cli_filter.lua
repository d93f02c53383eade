-- spank_helpers/cli_filter.lua and firth.yaml: change those and render again.
local site = {
  release = "RELEASE", root = "/opt/lumisite",
  commands = "singularity apptainer", actions = "exec run shell test",
  letters = "Ccefhinpuw", valued_letters = "BHSWo",
  global_valued = [[
    --config -c
  ]],
  global_flags = [[
    --build-config --debug --help --nocolor --quiet --silent --verbose --version -d -h -q -s -v
  ]],
  valued = [[
    --add-caps --app --apply-cgroups --arch --authfile --bind --blkio-weight --blkio-weight-device --cdi-dirs
    --containlibs --cpu-shares --cpus --cpuset-cpus --cpuset-mems --cwd --data --device --dns --docker-host
    --docker-password --docker-username --drop-caps --env --env-file --fusemount --home --hostname --memory
    --memory-reservation --memory-swap --mount --netns-path --network --network-args --no-env --no-mount
    --overlay --pem-path --pid-file --pids-limit --proot --pwd --runscript-timeout --scratch --security
    --shell --tmpdir --workdir
  ]],
  flags = [[
    --allow-setuid --boot --cleanenv --compat --compat32 --contain --containall --debug --disable-cache
    --docker-login --fakeroot --help --ignore-fakeroot-command --ignore-subuid --ignore-userns --intel-hpu
    --ipc --keep-layers --keep-privs --net --no-compat --no-eval --no-home --no-https --no-init --no-nv
    --no-oci --no-pid --no-privs --no-rocm --no-setgroups --no-tmp-sandbox --no-umask --nocolor --nohttps --nv
    --nvccli --oci --oom-kill-disable --passphrase --pid --quiet --rocm --sharens --sif-fuse --silent
    --tmp-sandbox --underlay --unsquash --userns --uts --verbose --writable --writable-tmpfs
  ]],
  families = {
    { "^.*/torch.*%.sif$" },
  },
}
-- For a site's own cli_filter.lua, which calls it: docs/how-to/site-wide-helper.md shows how. Nothing here vetoes a job,
... cli_filter.lua
