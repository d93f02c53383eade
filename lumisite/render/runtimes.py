"""The container runtimes, and the options of theirs that stand before the image: for wrapper, cli_filter and lint.

Source: `cmd/internal/cli/singularity.go`, `action_flags.go` and `actions.go` of SingularityCE 4 and `apptainer.go` and
the like of Apptainer 1 (main branches of August 2026). The wrapper takes an option that is not listed for one without a
value: of an image that it takes for another word it knows nothing, and leaves the environment as it is.
"""

from __future__ import annotations

#: What the wrapper stands for: the first is the file, and the others are links to it.
RUNTIMES = ("singularity", "apptainer")

#: Before the command: options with a value.
GLOBAL_VALUED = ("--config", "-c")

#: Commands that start a container from an image.
ACTIONS = ("exec", "run", "shell", "test")

#: Options of those that take a value from the next argument (after `=` it is part of the same one).
ACTION_VALUED = (
    *("--add-caps", "--app", "--apply-cgroups", "--arch", "--authfile", "--bind", "--blkio-weight"),
    *("--blkio-weight-device", "--cdi-dirs", "--containlibs", "--cpu-shares", "--cpus", "--cpuset-cpus"),
    *("--cpuset-mems", "--cwd", "--data", "--device", "--dns", "--docker-host", "--docker-password"),
    *("--docker-username", "--drop-caps", "--env", "--env-file", "--fusemount", "--home", "--hostname", "--memory"),
    *("--memory-reservation", "--memory-swap", "--mount", "--netns-path", "--network", "--network-args", "--no-env"),
    *("--no-mount", "--overlay", "--pem-path", "--pid-file", "--pids-limit", "--proot", "--pwd"),
    *("--runscript-timeout", "--scratch", "--security", "--shell", "--tmpdir", "--workdir"),
)
ACTION_FLAGS = (
    *("--allow-setuid", "--boot", "--cleanenv", "--compat", "--compat32", "--contain", "--containall", "--debug"),
    *("--disable-cache", "--docker-login", "--fakeroot", "--help", "--ignore-fakeroot-command", "--ignore-subuid"),
    *("--ignore-userns", "--intel-hpu", "--ipc", "--keep-layers", "--keep-privs", "--net", "--no-compat", "--no-eval"),
    *("--no-home", "--no-https", "--no-init", "--no-nv", "--no-oci", "--no-pid", "--no-privs", "--no-rocm"),
    *("--no-setgroups", "--no-tmp-sandbox", "--no-umask", "--nocolor", "--nohttps", "--nv", "--nvccli", "--oci"),
    *("--oom-kill-disable", "--passphrase", "--pid", "--quiet", "--rocm", "--sharens", "--sif-fuse", "--silent"),
    *("--tmp-sandbox", "--underlay", "--unsquash", "--userns", "--uts", "--verbose", "--writable"),
    "--writable-tmpfs",
)
#: One-letter options with a value; those and others may stand together (`-eB /data`). `-s` has one with `shell` only.
ACTION_VALUED_LETTERS = "BHSWo"
