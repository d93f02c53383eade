"""The codes of findings, each with its meaning: a code stands for one kind of thing that a reader would do."""

from __future__ import annotations

from collections.abc import Mapping

CODES: Mapping[str, str] = {
    # Files and the site description
    "file-unreadable": "a file cannot be read, or not as what it should be: repair it, or name another",
    "key-unknown": "a key that no such file has: correct its name",
    "key-repeated": "a key is given twice: remove one",
    "key-missing": "a key that must be there is not: add it",
    "value-wrong": "a value, or an argument, that cannot be meant: write another",
    "name-unknown": "a name that nothing describes: correct it, or describe what it names",
    "keys-contradict": "values that are sound by themselves do not go together: change one of them",
    "name-taken": "two files have one name: rename one",
    "library-unmet": "an image cannot have a library that it needs: accept it in words, or use another image",
    "release-unavailable": "a release that the platform does not have: ask for another",
    "program-not-found": "a program is not on PATH: load its module, or go to a node that has it",
    "system-refused": "the system refused to read, write or run something: look at the path",
    #
    # Images and binds
    "plan-image-changed": "an image is not the one that its bind plan was made for",
    "plan-image-missing": "the image of a bind plan is not here",
    #
    "no-image": "a path is no image: name one",
    "image-damaged": "an image file is damaged, or its end is missing: copy or build it again",
    "image-unsupported": "an image of a kind that is not read: build it in another way, or give it unpacked",
    "image-overlay": "an image has an overlay, which is not read",
    "image-family": "the image family of an image, and what it follows from",
    "image-family-default": "no family recognises an image: describe images like it",
    "image-not-locked": "an image is right by itself but not in the lock: lock the images again",
    "locked-image-lost": "a locked image is gone or cannot be read: restore it",
    "locked-image-changed": "a locked image is another one now: restore it or tell users, and lock the images again",
    #
    "image-unfit": "the image is for other GPUs, or has a release that the driver does not run: use another image",
    "image-misnamed": "the name of an image states another release than is in it",
    "image-unread": "an image cannot be read: its releases and family follow from its name",
    "family-unlike": "an image differs from the site's description of its family",
    "collectives-copies": "an image has several copies of its library for collectives: use one with one copy",
    "image-without-network": "the plugin of the image finds no libfabric, so that jobs of several nodes go over TCP",
    "set-by-image": "the image itself sets the variable, so that lumisite leaves it alone",
    "harmful-value-exported": "a variable of the shell or of the image is known to do harm here",
    "value-may-harm": "a variable of the shell or of the image does harm to some images or steps",
    #
    # Scripts of users: `lumisite/lint/rules.py` has the table of what `lint` finds
    "no-script": "a file is no job script",
    "missing-partner": "a setting works only together with an option of srun",
    #
    # Logs (`transport`)
    #
    "transport-fine": "the expected network carried the traffic of all processes",
    "transport-wrong-network": "the traffic went through another network or interface than the expected one",
    "transport-nics": "another number of NICs is used than expected",
    "transport-no-gdr": "data goes through the host's memory, where GPU Direct RDMA is required",
    "transport-errors": "the network did not deliver data",
    "transport-stuck": "the setup of a communicator hangs",
    "transport-unfinished": "a communicator began and was not set up, or was given up before",
    "transport-one-node": "a run on one node shows nothing about the network between nodes",
    "transport-same-name": "processes with the same host and pid: their lines cannot be separated",
    "transport-not-shown": "the log does not show it: log more, or give the logs of all ranks",
    "transport-refused": "a network device could not be opened",
    "transport-note": "what a log shows beside the verdict",
    "transport-blind": "a step that was forced onto the wrong network passes too",
    "route-wrong-interface": "a node sends through another interface than the others, with the same settings",
    # This node (`check --host`)
    "container-start": "the runtime of this node cannot start containers, or not as the modules need it",
    "host-adapters": "this node lacks adapters of the high-speed network, or their driver",
    "host-clock": "reading the time is slow on this node",
    "host-device": "device files of GPUs or adapters are missing",
    "host-gpus": "this node has fewer GPUs that can be used than nodes of its kind",
    "host-interface": "a high-speed interface is missing, down, slow, or without address",
    "host-kernel": "the kernel is not that of the platform",
    "host-library": "a library is missing, or is another one than containers need",
    "host-limit": "processes may lock too little memory for the adapters",
    "host-memory": "this node has less memory than jobs can be given",
    "host-mount": "a file system is not mounted as jobs need it, or does not answer",
    "host-path": "a path that the release needs is missing, is a broken link, or is something else",
    "host-runtime": "the container runtime is missing, empty, or lumisite's own wrapper",
    "node-of-no-kind": "this node is of no kind that the site description has",
    "same-on-all-nodes": "other nodes have the same fault, so this node is not the cause",
    "slurm-prolog": "Slurm calls no task prolog here, or one that does not exist",
    "task-path": "a path that only compute nodes have is not here",
    "users-shut-out": "users may not read, enter or write what they need",
    #
    # Releases: render, deploy, rollback, status, policy
    "out-changed": "a rendered tree was changed since; render it again",
    "out-unfit": "a folder is no rendered tree, or may not be replaced by one",
    "out-untrusted": "others could have changed the tree that is to be deployed",
    "release-damaged": "a release that is to be used is missing, or is not as it was deployed",
    "release-edited": "a file of a release is not as lumisite wrote it",
    "release-file-missing": "a file of a release is missing",
    "release-id-taken": "another release of the same id is deployed",
    "release-missing": "a release is missing as a whole",
    "release-mode": "owner or mode of a file of a release is another one",
    "root-damaged": "the history of a deployment root or its link is not as lumisite wrote it",
    "root-locked": "another deploy or rollback is running",
    "root-of-other-site": "the deployment root belongs to another site",
    "root-open": "others can change what users load",
    "root-unfit": "a path is no deployment root",
    "not-deployed": "what the site description says is not deployed yet",
    "policy-damaged": "the policy file is not as `lumisite policy` writes it",
    #
    # What a maintenance changed (`facts`, `changes`): a change has the name of its kind (`lumisite.facts.kinds`)
    "file-exists": "a file is there already and is not written over: name another one",
    "facts-incomplete": "a capture lacks something: open or repair what it names, and capture again",
    "facts-mismatch": "facts files of different sites, or of one that is not known: name the right one",
    "facts-of-two-hosts": "the two facts files are of different nodes: fine where these are alike",
    "facts-without-site": "only what `init` takes was captured: name a site for the rest",
    #
    # Nodes and settings of a run (`validate`)
    #
    "node-fine": "nothing to do: a node has what it should have, and is as the others",
    "node-lost": "a node left no record: look at slurmd on it and at the stderr of the step",
    "node-interface": "an interface of a node is down, misconfigured, or counts errors: look at cable and driver",
    "node-link": "TCP between nodes fails or loses packets: look at link, switch port, MTU and firewall",
    "node-path": "a path is missing, silent, or shut to users: mount it, restore it, or correct its mode",
    "node-file": "a file is missing, empty, or not as on the other nodes: restore it",
    "node-mount": "a mount is missing or not as on the other nodes: mount what they have",
    "node-full": "a folder has no room, or cannot be written: make room, or mount it again",
    "node-differs": "a setting of a node is not as on the other nodes: set it as there",
    "nodes-disagree": "nodes differ, and nothing says which is right: compare with the original",
    "step-failed": "a step did not run: start it by hand",
    # Slurm and the jobs of a run (`validate`)
    "job-progress": "what a job does while it is well",
    "job-done": "all steps of a job have run",
    "sbatch-refused": "sbatch did not take a job: its account, partition or options",
    "job-waits": "a job waits its turn",
    "job-over-limit": "a job waits, as a limit of the account, user or QOS is reached",
    "job-cannot-start": "a job never starts as it was submitted",
    "job-nodes-away": "a job waits for nodes that are out of service",
    "job-nodes-completing": "a job waits for nodes on which the job before does not end",
    "job-module-failed": "the deployed module does not load in a job",
    "job-step-lost": "Slurm did not start a step, however often it was tried",
    "job-node-lost": "Slurm ended a job because of a node that it took out of service",
    "job-time-limit": "a job reached its time limit",
    "job-cancelled": "somebody cancelled a job",
    "job-forgotten": "Slurm does not know a job any more",
    "job-failed": "a job ended before all its steps had run",
    "job-results-missing": "a job ended and left no results that can be read",
    "job-changed": "what a job measured was changed while the run went on",
    "step-skipped": "a step was not run because of what was found before it",
    "start-failed": "a task or a container did not start, and Slurm's or the runtime's own line says why",
    "environment-cleaned": "a container starts without Slurm's variables",
    "port-in-use": "something else listens on MASTER_PORT on the node of rank 0",
    "records-unreadable": "what ranks wrote cannot be judged",
    "slurm-setting": "a setting of slurm.conf prevents or changes what the site counts on",
    "slurm-silent": "Slurm does not answer",
    "variable-set": "a variable was set before lumisite ran, or is left out of jobs",
    #
    # Numbers (`verdict`, `report`)
    "nodes-bad": "single nodes failed a gate, or are slower than the others",
    #
}
