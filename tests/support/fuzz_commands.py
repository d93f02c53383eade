"""Every command, what it is given, and the files that it reads of them."""

from __future__ import annotations

_RUN = "runs/after/{run.json,facts.json,samples.jsonl}"
_OUT = "new/{MANIFEST.json,spank/task_prolog,modules/*/*}"
_ROOT = (
    "root/{history,.lock,current,releases,releases/*/MANIFEST.json,releases/*/spank/task_prolog,releases/*/modules/*/*}"
)
_JOBS = "jobs.jsonl,samples.jsonl,aside.jsonl,lock,facts.json,jobs/*/{done,facts.json,seen,set-before,job.1.sh}"
_STEPS = "jobs/*/*/{exit,began,stderr,stdout,records/*}"
_SLURM = "slurm/{squeue,sinfo,scontrol,sbatch,sacct}"
_LOADER = "node/{etc/ld.so.cache,etc/ld.so.conf,etc/ld.so.conf.d/*,lib64/*,usr/lib64/*,opt/cray/libfabric/*/lib64/*,opt/cray/pe/mpich/*/*/*/*/*/*}"
_KERNEL = "node/{proc/*,proc/*/*,proc/sys/kernel/*,sys/devices/system/cpu/*,sys/devices/system/cpu/cpu1*/*/*,sys/devices/system/node/*/*,sys/devices/pci0000:00/*/*/*}"
_INSTALLED = "node/{etc/*,etc/slurm/*,etc/slurm/*/*,opt/*,opt/cray/*/*,opt/cray/pe/*/*,opt/rocm-*/*/*,appl/local/*/*,appl/local/laifs/containers/*/*,sys/module/*/*,boot/*}"
_SIFS = "sifs/*"
#: What a command is given, the files that it reads, and what it changes.
COMMANDS: tuple[tuple[str, str, str], ...] = (
    ("check site.yaml", "site.yaml", ""),
    ("check lumi.yaml", "{lumi.yaml,plan.yaml}", ""),
    ("check site.yaml --host --root host-root --host-root node", f"{_LOADER} {_INSTALLED} {_KERNEL}", ""),
    ("check site.yaml --host --root host-root --host-root node --json", _ROOT.replace("root", "host-root", 1), ""),
    ("init facts.json later.json -o made.yaml", "{facts,later}.json", "made.yaml"),
    ("why rocm --site site.yaml --rocm 6.2", "site.yaml", ""),
    ("why platform rocm --site lumi.yaml --json", "lumi.yaml", ""),
    ("why NCCL_SOCKET_IFNAME MASTER_PORT --site site.yaml", "site.yaml", ""),
    ("why NCCL_NET_GDR_LEVEL --site lumi --image sifs/latest.sif --json", _SIFS, ""),
    ("why libcxi.so.1 --site lumi --image image --host-root node", f"{_LOADER} {_KERNEL}", ""),
    ("env x.sif --site site.yaml", "site.yaml", ""),
    ("env lumi-multitorch-x.sif --site lumi --json --plan plan.yaml --lock images.lock", "{plan.yaml,images.lock}", ""),
    ("render --site site.yaml --out out --rocm 6.2", "site.yaml", "out"),
    ("render --site lumi.yaml --out out", "{lumi.yaml,images.lock,plan.yaml}", "out"),
    ("render --site lumi --out out --lock images.lock --plan plan.yaml", "{images.lock,plan.yaml}", "out"),
    ("render --site site.yaml --out new", _OUT, "new"),
    ("deploy new root", f"{_OUT} {_ROOT}", ""),
    ("deploy new root --details", f"{_OUT} {_ROOT}", ""),
    ("deploy new root --json --full", f"{_OUT} {_ROOT}", ""),
    ("deploy new root --apply", f"{_OUT} {_ROOT}", "root"),
    ("deploy new root --apply --set-edits-aside --full", _ROOT, "root"),
    ("rollback root", _ROOT, "root"),
    ("status host-root --site site.yaml --host-root node", f"{_LOADER} {_INSTALLED} {_KERNEL}", ""),
    ("status host-root --site site.yaml --host-root node --json", _ROOT.replace("root", "host-root", 1), ""),
    ("status root --all", _ROOT, ""),
    ("policy root", "root/policy", ""),
    ("policy root off --partition standard-g", "root/policy", "root"),
    ("status root --all --json", _ROOT, ""),
    ("masks --topology node.xml", "node.xml", ""),
    ("masks --topology node.xml --json --site site.yaml", "{node.xml,site.yaml}", ""),
    ("masks --node live", _KERNEL, ""),
    ("masks --node live --json", _KERNEL, ""),
    ("binds image --host-root node --site lumi --write plan.out", f"{_LOADER} {_KERNEL}", "plan.out"),
    ("binds image --host-root node --site lumi --json", "image/{*/*,*/*/*,usr/lib/*/*,opt/*/*/*}", ""),
    ("binds image --host-root node --site lumi --write plan.yaml", "plan.yaml", "plan.yaml"),
    ("binds sifs/latest.sif --host-root node --site lumi", _SIFS, ""),
    ("binds sifs/xz.sif --host-root node --site lumi --json", "sifs/xz.sif", ""),
    ("binds sifs/zstd.sif --host-root node --site lumi", "sifs/zstd.sif", ""),
    ("images sifs --site lumi", _SIFS, ""),
    ("images sifs --site lumi --json --digest whole", _SIFS, ""),
    ("images sifs --site lumi --lock images.lock", f"{_SIFS} images.lock", "images.lock"),
    ("images --site lumi --lock images.lock --check", f"{_SIFS} images.lock", ""),
    ("facts --root node --site twin -o facts.out", f"{_KERNEL} {_INSTALLED} {_LOADER}", "facts.out"),
    ("facts --root node --site lumi.yaml", f"lumi.yaml {_INSTALLED}", ""),
    ("changes facts.json later.json --site lumi", "{facts,later}.json", ""),
    ("changes facts.json later.json --json --site lumi.yaml", "{facts.json,later.json,lumi.yaml}", ""),
    ("changes facts.json later.json --users --site lumi", "{facts,later}.json", ""),
    ("validate --resume resumed", f"resumed/{{run.json,{_JOBS}}} {_SLURM}", "resumed"),
    ("validate --resume resumed", f"resumed/{_STEPS}", "resumed"),
    ("validate --resume resumed --json", f"resumed/{{{_STEPS},jobs.jsonl}}", "resumed"),
    ("validate --more resumed", f"resumed/{{run.json,samples.jsonl,jobs.jsonl}} {_SLURM}", "resumed"),
    ("validate --site site.yaml --out fresh --dry-run --nodelist nid[1-2]", f"site.yaml {_SLURM}", "fresh"),
    ("validate --site twin --out fresh --dry-run --baseline runs/before --nodelist nid[1-2]", "runs/before/*", "fresh"),
    ("baseline --resume base", f"base/{{run.json,{_JOBS},{_STEPS}}}", "base into"),
    ("baseline --site site.yaml --out fresh --dry-run --nodelist nid[1-2]", f"site.yaml {_SLURM}", "fresh"),
    ("try NCCL_ALGO=Ring --site site.yaml --seed 1 --dry-run", "site.yaml", ""),
    ("try --ledger --site lumi.yaml --seed 1 --dry-run --json", "lumi.yaml", ""),
    ("reframe --site site.yaml --image sifs/image.sif -o module.py", "{site.yaml,sifs/image.sif}", "module.py"),
    ("reframe --judge stage --job 7", f"stage/{{run.json,{_JOBS},jobs/*/nodes,{_STEPS}}} {_SLURM}", "stage"),
    ("transport rank.log", "rank.log", ""),
    ("transport fail.log rank.log --json --nics 4", "{fail,rank}.log", ""),
    ("transport rank.log.gz --site site.yaml", "{rank.log.gz,site.yaml}", ""),
    ("verdict --before runs/before/samples.jsonl --after runs/after/samples.jsonl", "runs/*/samples.jsonl", ""),
    ("verdict --before runs/before/samples.jsonl --after runs/after/samples.jsonl.gz --json", "runs/after/*.gz", ""),
    ("lint job.sh", "job.sh", ""),
    ("lint job.sh --json --site lumi.yaml", "{job.sh,lumi.yaml}", ""),
    ("report runs/after --baseline runs/before", _RUN, ""),
    ("report runs/after --baseline runs/before --json", _RUN, ""),
    ("report runs/after/samples.jsonl --baseline runs/before -o report.html", _RUN, "report.html"),
    ("report resumed", "resumed/{run.json,samples.jsonl,facts.json}", ""),
)
