"""The commands, in the order in which an admin meets them, and what may be typed after each."""

from __future__ import annotations

from pathlib import Path

from lumisite.cli.arguments import (
    COUNT,
    EMPTY,
    INPUTS,
    JOBS,
    ONE_RELEASE,
    OTHER_IMAGES,
    PATH,
    RUN_FOLDER,
    SELECTION,
    SITE_OR_EXAMPLE,
    shared,
)
from lumisite.cli.parser import About, Command, number_to

COMMANDS: dict[str, Command] = {
    "init": Command(
        "write a site description from the machine itself",
        "Ask Slurm, this node, and one compute node of each kind through a short job, and write what they say: values "
        "with sources, guesses with the command that would tell, and questions. Compute nodes need no Python.",
        {
            "--from FACTS...": About("a facts file instead of a job; may be given several times", {"dest": "facts"}),
            "--name N": "name of the site (default: Slurm's ClusterName)",
            "--out FILE": About("where to write, if nothing is there (default: NAME.yaml)", PATH),
            "--partition P...": "only this partition and its nodes; may be given several times",
            "--srun OPTION...": "one more option for srun, such as --srun=--account=project",
        },
    ),
    "check": Command(
        "find all faults of a site description",
        "Read a site description and print every fault as file:line:column: key: what is wrong, or as JSON with file, "
        "line, column, key and message. Exit 0 when there is none, 2 otherwise. With --update, write the file anew in "
        "today's format instead, with its comments, and show what changes. With --host, check the deployed release "
        "against this node instead: exit 1 when something that its modules need is not there as they need it, 5 when "
        "only this node can be meant.",
        {
            "file [FILE]": About("a YAML file, or an embedded site's name (default: as for --site)", {"default": ""}),
            "--update": "write the file anew in today's format, and show what changes",
            "--out FILE": About("with --update: write this file instead", PATH),
            "--host": "check the deployed release of the site against this node",
            "--root ROOT": "with --host: the deployment root (default: the site's)",
            "--host-root DIR": "with --host: the root of the node, or of a copy of it (default: /)",
            "--other-node FILE...": About(
                "with --host: what --json printed on another node of the kind; a fault of all of them drains no node",
                PATH,
            ),
            "--site NAME|FILE": "the same as FILE",
            **shared("--json"),
        },
        either=("--update", "--host"),
        run="describe.run_check",
    ),
    "resolve": Command(
        "show which releases would be chosen, and why the others lost",
        "Show the platform and the releases of its stacks that `render` would use, and why each other one lost.",
        {**SITE_OR_EXAMPLE, **SELECTION, **shared("--json")},
        run="describe.run_resolve",
    ),
    "why": Command(
        "explain a setting, bind, module or library",
        "Explain a variable, a bound path or a module: the value, the rule that won, the reason and its evidence with "
        "its sources, and the entries that lost. What is not given of image, nodes and partition stays open, and each "
        "entry that could win is shown with its condition. What is inside the image is judged by --image; --use "
        "and --platform choose versions of modules. A library is explained for one image.",
        {
            "names NAME...": "a variable, an absolute path, a module, or a SONAME",
            **SITE_OR_EXAMPLE,
            "--root ROOT": "explain what is deployed in this deployment root: its site, platform and releases",
            **SELECTION,
            "--family F": "image family (default: any)",
            "--nodes": About("nodes of the job step (default: any)", {"choices": ("one", "several")}),
            "--partition NAME": "partition (default: any)",
            "--image IMAGE": "the image that runs: read where it is there, else told by its name",
            **shared("--host-root DIR", "--json"),
        },
        run="describe.run_why",
    ),
    "env": Command(
        "what a rank will find: each variable, bind and CPU mask, who sets it, and why",
        "Run the rendered task prolog and wrapper in a made-up step, on a made-up node that has all that the site "
        "describes and grants all of its CPUs, and print what the first rank finds: each variable, bind and mask, with "
        "who sets it (module, prolog, wrapper), by which entry of the site description, and why. A variable that this "
        "shell has set before is named with its value. Without IMAGE it is what every container gets that no wrapper "
        "sees. Slurm is not asked, and no container is started.",
        {
            "image [IMAGE]": "the image, as a job names it; it need not be here",
            "--nodes N": About("nodes of the step (default: 1)", {"type": number_to(999999), "default": 1}),
            "--tasks-per-node T": About(
                "tasks on each node (default: one for each GPU, else 1)",
                {"type": number_to(1024)},  # the prolog is run for each of them
            ),
            "--partition P": "partition (default: the one that the site validates)",
            "--node KIND": "node kind, where the partition has nodes of several (default: the first)",
            "--module M": "the module that is loaded, with or without its version, or `none`, where the site's "
            "cli_filter attaches the helper (default: the module with the helper)",
            **shared("--platform P"),
            **INPUTS,
            **SITE_OR_EXAMPLE,
            **shared("--json"),
        },
    ),
    "render": Command(
        "write the modulefiles and the srun helper",
        "Write modules/, spank/ and MANIFEST.json for the releases asked for. The same input gives the same bytes; "
        "OUT is replaced as a whole or not at all.",
        {
            **SITE_OR_EXAMPLE,
            **SELECTION,
            "--out DIR": About("where to write (default: %(default)s)", {"type": Path, "default": Path("site-out")}),
            "--strict": "write nothing, and exit 1, where a file cannot say all that the site wants",
            **INPUTS,
        },
    ),
    "diff": Command(
        "what deploying a rendered tree would change",
        None,
        shared("out OUT", "root ROOT", "--details", "--full", "--json"),
        run="release.run_diff",
    ),
    "deploy": Command(
        "put a rendered tree into a deployment root",
        None,
        {
            **shared("out OUT", "root ROOT"),
            "--apply": "write; without it, only show what would change",
            "--set-edits-aside": "go on over files that were edited by hand in ROOT; they stay in their release's "
            "folder, or, where that release is deployed again and made whole, are kept in ROOT/set-aside",
            "--change-site": "go on over a root that is of another site than OUT",
            **shared("--details", "--full"),
        },
        run="release.run_deploy",
    ),
    "rollback": Command(
        "go one release back, at once",
        None,
        {
            **shared("root ROOT"),
            "release [ID]": About("the release to go to (default: the one before)", {"default": ""}),
        },
        run="release.run_rollback",
    ),
    "releases": Command(
        "what is deployed: releases, inputs, and whether they are whole",
        None,
        shared("root ROOT", "--json"),
        run="release.run_releases",
    ),
    "status": Command(
        "what is deployed, whether it fits this machine, and what to do next",
        "Say which release users load, of which site, whether it is whole and fits this node (as `check --host`), what "
        "the site description has that it lacks, and the next command. The exit code is that of `check --host`, and 4 "
        "where the site of the release is not known (--site names it).",
        {
            "root [ROOT]": "the deployment root (default: the site's)",
            "--site NAME|FILE": "the site (default: the one that the release is of, by LUMISITE_SITE or embedded)",
            **shared("--host-root DIR", "--json"),
        },
    ),
    "masks": Command(
        "the CPU mask of each task on a node",
        "Print one CPU list and mask for each task of a node: cores nearest to the task's GPU, inside what was "
        "granted. A task without a sound answer gets none, with the reason on stderr and exit code 1.",
        {
            "--site NAME|FILE": About(
                "the site, whose reserved cores are left out: the name of an embedded one, or a YAML file (default: "
                "LUMISITE_SITE, else without --topology the embedded one that this machine is known as)",
                EMPTY,
            ),
            "--node KIND": "a node kind of the site, or 'live' for this node (default: the site's only kind with GPUs)",
            "--topology XML": "a node as hwloc's `lstopo FILE.xml` wrote it",
            "--tasks N": About("tasks on the node (default: one for each GPU)", {"type": int}),
            "--threads": About("hardware threads of each core", {"type": int, "choices": (1, 2), "default": 1}),
            "--cpus LIST": "granted CPUs in kernel numbers, such as 49-55 (default: all)",
            "--gpus LIST": "granted GPUs in task order, such as 0-3 or 4,5,2,3 (default: all)",
            **shared("--json"),
        },
        either=("--node", "--topology"),
    ),
    "binds": Command(
        "what a container needs from the host, library by library",
        "Print what an image needs from the host: each library with the decision to bind it, to skip it (the image "
        "has it), to refuse it (the image cannot run it), or that the host misses it; with reason and chain. The image "
        "is read, never run. Where no family recognises it, also what it lacks for full speed on the site's network. "
        "Exit 0 when all is bound or skipped, 1 otherwise, 4 where an image without a family lacks something.",
        {
            "image IMAGE": "a SIF, or the folder of an unpacked image",
            **shared("--site NAME|FILE", "--host-root DIR"),
            "--family F": "image family (default: the one that recognises the image)",
            "--library SONAME...": "a library to bring beside those of the family (libmpi.so.12); several times",
            **shared("--platform P"),
            "--use STACK=V...": "release of a stack (default: the platform's own)",
            **ONE_RELEASE,
            "--write FILE": About(
                "also store it as a plan, to be reviewed, for `render`; what you have edited in FILE before stays",
                PATH,
            ),
            "--path PATTERN...": "how jobs name the image, for its plan, and for its family where IMAGE itself tells "
            "none; may be given several times (default: IMAGE, and where it leads)",
            **shared("--json"),
        },
    ),
    "images": Command(
        "where each image alias points, what it carries, and what moved",
        "Print the images of the site, or those given: where each name leads, family, size, digest, and the versions "
        "inside. Images are read, never run. Exit 1 when an image cannot be used; with --check, when one differs from "
        "the lock.",
        {
            "paths [DIR|FILE]...": "images, or directories of them (default: those of the site)",
            **shared("--site NAME|FILE", "--host-root DIR"),
            "--lock FILE": "write what is found to a lock; with --check, compare with it",
            "--check": "say what moved, changed, broke, vanished or is new",
            "--digest": About(
                "what to take of a file: `header` sees every new build and reads little, `whole` reads everything "
                "(default: header; with --check, as the lock)",
                {"choices": ("header", "whole")},
            ),
            "--systems FILE": "write cotainr's systems.json with the file behind each base image, only",
            **shared("--json"),
        },
    ),
    "facts": Command(
        "capture what this node is, as one JSON file",
        "Write down what a maintenance may change under the containers: system, kernel, glibc, Slurm, GPU driver, "
        "releases of stacks, libraries, interfaces, GPUs, CPUs, kernel parameters, default modules, Slurm's "
        "files, image names and the deployed release. Only files are read; no program is run and no root is needed. "
        "What is not there is absent in the file; what may not be read is said, with the command that opens it. The "
        "same node gives the same bytes.",
        {
            **shared("--site NAME|FILE", "--host-root --root DIR", "-o --output FILE"),
        },
    ),
    "changes": Command(
        "what changed between two facts files, and what that touches",
        "Compare two captures of a node, before and after a maintenance. Each change comes with the modules, image "
        "families, masks and entries of the site description that it touches; then a draft of the platform for the "
        "site description, and a text for users. Exit 0 when nothing changed, 1 when something did.",
        {
            "before BEFORE": "the facts file from before",
            "after AFTER": "the facts file from after",
            "--site NAME|FILE": "the site: the name of an embedded one, or a YAML file (default: the one that the "
            "files name, by LUMISITE_SITE or embedded)",
            "--draft": "print only the draft for the site description",
            "--users": "print only the text for users",
            **shared("--json"),
        },
        either=("--draft", "--users", "--json"),
        run="facts.run_changes",
    ),
    "validate": Command(
        "measure the system after a change, with real jobs",
        "Submit jobs that run the probes in the site's container through the deployed module, follow them, and keep "
        "every number as a line in RUN/samples.jsonl. Exit code 0: all gates passed, 1: one failed, 4: one could not "
        "tell, 5: a node is bad, or slower than the others; with --baseline that of the verdict.",
        {
            **RUN_FOLDER,
            "--more RUN": "add jobs to a run, on other nodes if there are any: what its verdict asks for",
            "--jobs N": About("jobs to measure (default: 5)", COUNT),
            **JOBS,
            "--baseline FILE...": "judge against these runs from before the change: folders, files, reports and "
            "perflogs of ReFrame (default: only gates decide)",
            **OTHER_IMAGES,
            **shared("--dry-run", "--json"),
        },
        either=("--out", "--resume", "--more"),
    ),
    "baseline": Command(
        "measure the system before a change",
        "As `validate`, for the time before a change: to be run on several days, so that noise is known.",
        {
            **RUN_FOLDER,
            "--jobs N": About("jobs to measure (default: 4)", COUNT),
            **JOBS,
            "--into PLACE": "add what was measured to PLACE, and say what is still missing for a baseline; PLACE is a "
            "folder like that of a run, or a file NAME.jsonl, which has the samples only",
            **OTHER_IMAGES,
            **shared("--dry-run", "--json"),
        },
        either=("--out", "--resume"),
        run="validate.run",
    ),
    "try": Command(
        "what a setting is worth on this machine: evidence for the ledger",
        "Run what ranks have today first and last, and between them, in an order drawn from the seed, each setting, a "
        "sham and a control. What they have is tried by doing without. Exit 0: all answered, 1: harmful, 4: not all.",
        {
            "settings [NAME=VALUE]...": "a variable with the value that is tried",
            **RUN_FOLDER,
            "--unset NAME...": "try to do without a variable",
            "--against NAME=VALUE...": "what the reference sets (default: nothing more than what ranks have today)",
            "--ledger": "try every entry of the ledger that ranks have here and nobody measured on this platform",
            "--budget NODE_HOURS": About("with --ledger: as many entries as this is enough for (default: all)", COUNT),
            "--allocations K": About("valid allocations that are needed (default: 3)", COUNT),
            "--attempts A": About("slots of each setting in each allocation (default: 1)", COUNT),
            "--seed S": About("draw the order of slots from this number (default: at random)", COUNT),
            **{name: about for name, about in JOBS.items() if name != "--node-sets N"},
            "--write SITE.yaml": About("add the evidence to the ledger's entries in this file", PATH),
            "--dry-run": "print the design only",
            **shared("--json"),
        },
        ("--out", "--resume"),
        "try_.run",
    ),
    "transport": Command(
        "which network NCCL, or a library like it, really used",
        "Read the logs of NCCL or its like (NCCL_DEBUG=INFO, NCCL_DEBUG_SUBSYS=INIT,NET,ENV) of all ranks of a run and "
        "tell whether the plugin carried the traffic over the expected fabric. Exit code 0: it did, 1: it did not, 4: "
        "the log does not show it.",
        {
            "logs LOG...": "a log, plain or gzip; - is standard input",
            "--expect PROVIDER": "libfabric provider that must carry the traffic, such as verbs (default: that of "
            "--site; without --site, any but those over sockets)",
            "--nics N": About("NICs that each process must find (default: as many as --site has)", COUNT),
            "--require-gdr": "fail without proof of GPU Direct RDMA",
            "--site NAME|FILE": About(
                "take provider and NICs from this site (default: LUMISITE_SITE, else none)", EMPTY
            ),
            **shared("--json"),
        },
    ),
    "verdict": Command(
        "whether the system became slower",
        "Judge samples and gates after a change against those before it: files of JSON lines, samples with metric, "
        "value, better (higher or lower), run, nodes and time, gates with gate, verdict, cause, advice, run, nodes and "
        "time. A failed gate is a failure. The first five jobs after the change decide, five later ones on other nodes "
        "confirm. Exit code 0: not slower, 1: a gate failed, or slower and confirmed, 4: not decided, with what to run "
        "next, 5: the system is fine but some nodes are not.",
        {
            **{
                f"--{side} FILE...": About(
                    f"samples {side} the change, or a report or perflog of ReFrame; may be given several times; - is "
                    "standard input",
                    {"required": True},
                )
                for side in ("before", "after")
            },
            "--site NAME|FILE": About(
                "take what is expected of each metric from this site (default: LUMISITE_SITE, else none)", EMPTY
            ),
            "--allow-image-change": "compare samples of different images: the image is what is tested",
            **shared("--json"),
        },
        run="report.run_verdict",
    ),
    "lint": Command(
        "known-bad lines in job scripts",
        "Find lines in job scripts that are known to fail, hang or run slowly on this site, each with the line that "
        "would be right. Exit code 1 if there are any.",
        {
            "scripts SCRIPT...": "a job script; - is standard input",
            "--lock FILE": INPUTS["--lock FILE"],
            **SITE_OR_EXAMPLE,
            **shared("--json"),
        },
    ),
    "report": Command(
        "what a run found: what changed, what is slower, which node, what to do",
        "Show a run of `validate` against a baseline: the verdict, what to do, what changed on the machine, gates, "
        "metrics, nodes, and as HTML the plots. A run is the folder that `validate` or `baseline` wrote, a file of "
        "samples, or a report or perflog of ReFrame. The exit code is that of the verdict: 0 fine, 1 failed, 4 not "
        "decided, 5 only some nodes.",
        {
            "run RUN": "the folder of a run after the change, or its file of samples",
            "--baseline FILE...": "a run from before the change, folder or file, or a report or perflog of ReFrame; "
            "may be given several times (default: none, and then only gates and the site's expectations decide)",
            "--site NAME|FILE": "take what is expected of each metric, and what changes touch, from this site "
            "(default: the one that the run was made for)",
            "--allow-image-change": "compare samples of different images",
            "--format": About(
                "what to write; html is one file, with plots where matplotlib is installed (default: by the ending of "
                "FILE: .md, .html, .xml, .json, else text)",
                {"choices": ("text", "markdown", "html", "junit", "json")},
            ),
            **shared("--json", "-o --output FILE"),
        },
    ),
    "reframe": Command(
        "the same probes as a ReFrame test module",
        "Write a test module for ReFrame 4 with the probes of `validate`: same jobs, same gates, same numbers. "
        "`verdict`, `report` and `validate --baseline` take what ReFrame recorded as it is.",
        {
            **shared("--site NAME|FILE", "--image FILE", "--probe NAME...", "--nodes N"),
            "--partition P": "Slurm's partition (default: the site's)",
            **OTHER_IMAGES,
            **shared("-o --output FILE"),
            "--stage DIR": "for the module: put a probe's job into a stage directory",
            "--judge DIR": "for the module: judge a probe's job in a stage directory",
            "--job ID": "with --judge: the job's number",
        },
        either=("--stage", "--judge"),
    ),
}
