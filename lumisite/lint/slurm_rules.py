"""What is wrong on every Slurm and in every shell: directives, options, what the batch script expands, launchers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from lumisite.lint.finding import BadLine
from lumisite.lint.job import Job, variables_in
from lumisite.lint.options import ADDING, EXCLUSIVE, OPTIONS, Option, is_option
from lumisite.lint.programs import launches_of, starts_of
from lumisite.lint.script import ShellCommand, read_commands, with_lines
from lumisite.lint.step import read_count
from lumisite.text import counted, nearest_name
from lumisite.vendors import all_gpus

_EXPANSION = re.compile(r"\$(?:\w+|\{\w+\}|\()|`|(?<==)~/")
#: A comment that begins as a directive does, but for its word or a space before it.
_ALMOST = re.compile(r"(#(?!SBATCH)(?:S?[A-Z]{4,6}H|sbatch)|[ \t]+#SBATCH)\s+-{1,2}\w")
_IN_COMMENT = re.compile(r"#[ \t]+SBATCH[ \t]+-{1,2}[A-Za-z]")
_MASTER = 'export MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)'

# ---------------------------------------------------------------- directives and options


def dos_line_ends(job: Job) -> Iterator[BadLine]:
    """Lines that end as on Windows, which sbatch refuses."""
    if job.dos:
        yield BadLine(1, "line ends of Windows", "sbatch refuses the script", "dos2unix SCRIPT, or sed -i 's/\\r$//'")


def late_directive(job: Job) -> Iterator[BadLine]:
    """A directive after the first command; one in a here-document is of another script."""
    first, lines = job.first_command, job.text.split("\n")
    if not job.text.startswith("#!") or not any(line.startswith("#SBATCH") for line in lines[first:]):
        return
    # As a command, so that it is found where commands are.
    marked = re.sub(r"^#SBATCH\b.*", ":SBATCH", job.text, flags=re.MULTILINE)
    for command in read_commands(marked):
        if command.spot in ("batch", "function") and command.values == (":SBATCH",) and command.line > first:
            reason = f"sbatch reads no directives after the first command, in line {first}"
            yield BadLine(command.line, lines[command.line - 1].strip(), reason, f"move the line above line {first}")


def directive_variable(job: Job) -> Iterator[BadLine]:
    """A variable, a command or `~` in a directive, which no shell expands."""
    for word, line in job.directives:
        if found := _EXPANSION.search(word):
            subject = word if found[0][-1] in "(`" else found[0]
            right = "the value itself, %x, %j or %u in names of files, or sbatch --option=… SCRIPT"
            yield BadLine(line, subject, "no shell expands directives, Slurm takes the text as it is", right)


def unknown_directive(job: Job) -> Iterator[BadLine]:
    """A directive or an option of one whose name is almost right."""
    head = job.text.split("\n")[: job.first_command]
    for at, text in enumerate(head if job.directives else (), 1):
        if found := _ALMOST.match(text):
            yield BadLine(at, found[1].strip(), "a comment, no directive of sbatch", "#SBATCH at the start of the line")
    for (word, line), (before, _) in zip(job.directives, (("", 0), *job.directives), strict=False):
        name = re.fullmatch(r"(-?)([a-z][\w-]{2,})(=.*)?", word)
        is_value = before.startswith("-") and "=" not in before and not word.startswith("-")
        if word == "=":
            yield BadLine(line, word, "no option of sbatch", "--NAME=VALUE")
        elif name and (name[1] or name[3]) and name[2] in OPTIONS["sbatch"] and not is_value:
            yield BadLine(line, f"{name[1]}{name[2]}", "no option of sbatch", f"--{name[2]}")
    yield from (found for options in job.requests for found in _unknown(options, "sbatch"))
    for option in (option for options in job.requests for option in options):
        if option.name == "gres-flags" and "allow-task-sharing" in option.value:
            yield BadLine(
                option.line, option.value, "sbatch refuses it, only srun takes it", f"srun --gres-flags={option.value}"
            )


def unknown_option(job: Job) -> Iterator[BadLine]:
    """An option that srun does not have, and that is almost one of srun."""
    yield from (found for step in job.steps if step.command for found in _unknown(step.own, "srun"))


def plugin_option(job: Job) -> Iterator[BadLine]:
    """An option that Slurm itself does not have, and that is like none: a plugin of the site may add it."""
    requests = [("sbatch", options) for options in job.requests if job.allocation.partitions]
    for program, options in (
        *requests,
        *(("srun", step.own) for step in job.steps if step.command and step.partitions),
    ):
        certain = {found.subject for found in _unknown(options, program)}
        for option in options:
            if not is_option(option.name, program) and f"--{option.name}" not in certain and len(option.name) > 2:
                reason = f"no option of Slurm's own {program}: refused where no plugin of the site adds it"
                yield BadLine(option.line, f"--{option.name}", reason, f"{program} --help lists what there is")


def _unknown(options: Iterable[Option], program: str) -> Iterator[BadLine]:
    """Yield options that a program does not have, and that are almost one of its own or one of the other program."""
    other = "srun" if program == "sbatch" else "sbatch"
    for option in options:
        if len(option.name) < 3 or is_option(option.name, program):
            continue
        if option.name in OPTIONS[other]:
            reason = f"an option of {other}, {program} refuses it"
            yield BadLine(option.line, f"--{option.name}", reason, f"{other} --{option.name}=…")
        elif near := nearest_name(option.name.lower(), OPTIONS[program], 0.86):
            yield BadLine(option.line, f"--{option.name}", f"no option of {program}", f"--{near}")


def commented_directive(job: Job) -> Iterator[BadLine]:
    """`# SBATCH`, which is a comment."""
    for at, text in enumerate(job.text.split("\n")[: job.first_command], 1):
        if _IN_COMMENT.match(text):
            yield BadLine(
                at,
                "# SBATCH",
                "a comment: sbatch reads only #SBATCH, without the space",
                text.replace("# ", "#", 1).strip(),
            )


def repeated_directive(job: Job) -> Iterator[BadLine]:
    """An option that is given twice, with another value: sbatch takes the last one."""
    for options in job.requests:
        first = {option.name: option for option in reversed(options)}
        for option in options:
            before = first[option.name]
            if option.value != before.value and option.name not in ADDING:
                reason = f"the value of line {before.line} is replaced by {option.value}"
                yield BadLine(option.line, f"--{option.name}", reason, f"one line with --{option.name}")


def options_exclude_each_other(job: Job) -> Iterator[BadLine]:
    """Options of which Slurm takes one on a line."""
    for options in (*job.requests, *(step.own for step in job.steps if step.command)):
        names = {option.name: option for option in options}
        for group in EXCLUSIVE:
            given = [names[name] for name in group if name in names]
            if len(given) > 1:
                first, second = sorted(given, key=lambda option: option.line)[:2]
                reason = f"Slurm refuses it together with --{first.name} of line {first.line}"
                yield BadLine(second.line, f"--{second.name}", reason, f"one of --{first.name} and --{second.name}")


def _tasks(job: Job) -> Iterator[tuple[Option, int, int, int]]:
    """Yield `--ntasks` with the nodes and the tasks of a node that stand on the same lines."""
    for options in (*job.requests, *(step.own for step in job.steps if step.command)):
        names = {option.name: option for option in options}
        numbers = [
            read_count(names[name].value) if name in names else None for name in ("ntasks", "nodes", "ntasks-per-node")
        ]
        tasks, nodes, each = numbers
        if tasks and nodes and each and tasks != nodes * each:
            yield names["ntasks"], tasks, nodes, each


def too_many_tasks(job: Job) -> Iterator[BadLine]:
    """More tasks than the nodes have room for."""
    for option, tasks, nodes, each in _tasks(job):
        if tasks > nodes * each:
            reason = f"{tasks} tasks do not fit on {nodes} nodes with {each} tasks each: the job never starts"
            yield BadLine(option.line, "--ntasks", reason, f"--ntasks={nodes * each}, or without it")


def fewer_tasks(job: Job) -> Iterator[BadLine]:
    """Fewer tasks than nodes and tasks of a node make: `--ntasks` wins."""
    for option, tasks, nodes, each in _tasks(job):
        if tasks < nodes * each:
            reason = f"{tasks} tasks in all are started, not {nodes} x {each}: --ntasks comes before --ntasks-per-node"
            yield BadLine(option.line, "--ntasks", reason, f"--ntasks={nodes * each}, or without it")


def array_output(job: Job) -> Iterator[BadLine]:
    """One file for the output of all jobs of an array."""
    options = job.allocation.options
    output = options.get("output")
    if "array" in options and output and not re.search(r"%\d*[ajJ]|^/dev/", output.value):
        yield BadLine(
            output.line, output.value, "all jobs of the array write to this file", "#SBATCH --output=%x-%A_%a.out"
        )


def export_without_all(job: Job) -> Iterator[BadLine]:
    """A list of variables to export, without ALL: all others stay behind, those of modules among them."""
    for options in (*job.requests, *(step.own for step in job.steps if step.command)):
        for option in options:
            names = option.value.split(",")
            if option.name == "export" and not {"ALL", "NONE", "NIL"} & set(names) and any(names):
                reason = "no other variable is passed on, those that modules set neither"
                yield BadLine(option.line, f"--export={option.value}", reason, f"--export=ALL,{option.value}")


def export_none(job: Job) -> Iterator[BadLine]:
    """`#SBATCH --export=NONE`, which srun inherits: tasks get nothing that the script sets or loads."""
    option = job.allocation.options.get("export")
    if option is None or option.value not in ("NONE", "NIL"):
        return
    for command in job.commands:
        if command.values[:2] == ("unset", "SLURM_EXPORT_ENV") or "SLURM_EXPORT_ENV" in dict(command.assignments):
            return
        step = job.step_of(command)
        if step and not step.has_own("export"):
            reason = f"srun in line {command.line} inherits it: tasks get nothing that this script sets or loads"
            yield BadLine(option.line, f"--export={option.value}", reason, "srun --export=ALL …")
            return


# ---------------------------------------------------------------- the shell


def text_after_continuation(job: Job) -> Iterator[BadLine]:
    """A backslash that is not the last character of its line, so that the line is not continued."""
    for command in job.commands:
        for word in command.words[1:]:
            if word.raw in ("\\ ", "\\\t") or re.match(r"\\[ \t]#", word.raw):
                reason = "escapes the space behind it, and does not continue the line"
                yield BadLine(word.line, "\\", reason, "nothing behind the backslash, no space and no comment")


def background_without_wait(job: Job) -> Iterator[BadLine]:
    """A step in the background after which the script ends, so that Slurm kills it."""
    commands = [command for command in job.commands if command.spot in ("batch", "function") and command.values]
    last = next((at for at in range(len(commands) - 1, -1, -1) if not _does_nothing(commands[at])), None)
    if last is not None and commands[last].end == "&" and commands[last].names_any("srun"):
        command = commands[last]
        yield BadLine(
            command.line, "&", "the script ends at once, and Slurm kills the step with it", "wait, as the last line"
        )


def _does_nothing(command: ShellCommand) -> bool:
    """Return whether a command takes no time, or is only the end of a block."""
    return command.values[0] in ("done", "fi", "}", "esac", "echo", "date", "printf", "export", "cd", "for", "while")


def no_image(job: Job) -> Iterator[BadLine]:
    """A container without an image: the program stands in its place."""
    program = re.compile(
        r"(?:.*/)?(?:python[\d.]*|bash|sh|torchrun|accelerate|deepspeed|vllm|pip3?|hostname|[\w-]+-smi)"
    )
    for start in starts_of(job):
        if start.image is None and not any(word.startswith("-h") or word == "--help" for word, _ in start.options):
            yield BadLine(start.line, start.action, "the image is missing", f"{start.action} IMAGE PROGRAM …")
        elif start.image and program.fullmatch(start.image):
            yield BadLine(
                start.line, start.image, "stands where the image must be", f"{start.action} IMAGE {start.image} …"
            )


# ---------------------------------------------------------------- what the batch script expands

_OF_TASK = r"(?<!\\)\$\{?SLURM_(?:PROCID|NODEID|LOCALID)\b\}?"
_ANYWHERE = re.compile(_OF_TASK)


def rank_in_batch(job: Job) -> Iterator[BadLine]:
    """The rank of a task, put in by the shell of the batch script, where it is 0.

    All that srun gets is for tasks; of what other commands get, a here-document is if it is a script, and what sets a
    rank or is an option of that name.
    """
    started = [step for step in job.steps if step.command is not None]
    many = any((step.nodes or 1) > 1 or step.tasks_per_node != 1 for step in started)
    in_tasks = any("$0" in step.command.values for step in started if step.command)  # the script starts itself
    visible = "|".join(name for gpu in all_gpus() for name in gpu.visible)
    name = rf"(?:\w+ENV_)?(?:\w*RANK|{visible})"
    setting = re.compile(rf"(?:\b{name}=|--(?:\w+[-_])?rank(?:=|[ \t]+))[\"'\\]*{_OF_TASK}")
    for command in (command for command in job.commands if command.spot == "batch" and many and not in_tasks):
        step = job.step_of(command)
        if step and step.nodes == step.tasks_per_node == 1:
            continue
        pattern = _ANYWHERE if command.words_after("srun", first=4) else setting
        found = [match for word in command.words for match in word.matches(pattern)]
        for document in command.documents:  # where single quotes are none
            inside = _ANYWHERE if pattern is _ANYWHERE or document.raw.startswith("#!") else setting
            found += [(match[0], line) for match, line in with_lines(inside, document.raw, document.line)]
        for assigned, word in command.assignments:
            found += list(word.matches(setting))
            if re.fullmatch(name, assigned) and _ANYWHERE.search(job.resolved(word.value)):
                found.append((assigned, word.line))
        for text, line in found:
            subject = re.split(r"[= \t]", text)[0]
            right = f"srun bash -c '… {subject} …' in single quotes, or \\$SLURM_… in double quotes and here-documents"
            yield BadLine(
                line, subject, "expanded by the shell of the batch script, where it is 0 for all tasks", right
            )


def rdzv_literal(job: Job) -> Iterator[BadLine]:
    """A variable that reaches the launcher as it is written."""
    for value, line in job.option_values(r"--rdzv[-_](?:id|endpoint)"):
        if escaped := re.search(r"\\(\$\{?\w+\}?)", value):
            reason = "not expanded after a backslash or in single quotes, and every job has the same rendezvous"
            yield BadLine(
                line, escaped[1], reason, f"--rdzv_id={escaped[1]} without the backslash, in the quotes of bash -c"
            )


_CUTTING = re.compile(
    r"\$\{SLURM_(?:JOB_|STEP_)?NODELIST[^}\w]|NODELIST.*\|\s*(?:cut|sed|awk|tr|grep|perl|python\w*)\b|"
    r"^\$\{?SLURM_(?:JOB_|STEP_)?NODELIST\}?$",
    re.DOTALL,
)


def nodelist(job: Job) -> Iterator[BadLine]:
    """The first node by cutting the list, which holds for one node only."""
    if job.allocation.value("nodes") == "1":
        return
    settings = {setting.name: setting for setting in job.settings}
    hosts = [value for value, _ in job.option_values(r"--(?:rdzv[-_]endpoint|master[-_]addr)")]
    named = [settings[name] for value in hosts for name in variables_in(value) if name in settings]
    for setting in (*(setting for setting in job.settings if setting.name == "MASTER_ADDR"), *named):
        via = re.fullmatch(r"\$\{?(\w+)\}?", setting.value)
        made = settings.get(via[1], setting) if via else setting
        if "scontrol" not in made.value and _CUTTING.search(made.value):
            reason = "a list of nodes may read nid[005001-005004,005010], which cutting does not resolve"
            yield BadLine(made.line, made.name, reason, _MASTER)


_LOCAL = r"(?:localhost|127\.\d+\.\d+\.\d+|0\.0\.0\.0)"
#: What a node says of itself.
_ITSELF = rf"(?:{_LOCAL}|(?:\$\(|`)\s*(?:/bin/)?hostname\b[^)`|]*[)`]|\$\{{?(?:HOSTNAME|SLURMD_NODENAME)\}}?)"


def local_master(job: Job) -> Iterator[BadLine]:
    """An address of the first rank that each node takes for its own."""
    found = []
    for setting, value in job.in_force(("MASTER_ADDR",)):
        pattern = _LOCAL if setting.command.spot == "batch" else _ITSELF
        if re.fullmatch(pattern, value) and job.nodes_reached(setting) == "several":
            found.append((setting.line, f"MASTER_ADDR={value}"))
    for launch in launches_of(job) if not found else ():  # else it is the address that launchers get
        pattern = _LOCAL if launch.spot == "batch" else _ITSELF
        for name in ("rdzv_endpoint", "master_addr", "main_process_ip"):
            value, line = launch.options.get(name, ("", 0))
            if launch.on_several_nodes and re.fullmatch(rf"{pattern}(?::\S*)?", value):
                found.append((line, f"--{name}={value}"))
    for line, subject in found:
        yield BadLine(line, subject, "each node waits for the others at its own address", _MASTER)


def too_many_threads(job: Job) -> Iterator[BadLine]:
    """More threads of OpenMP for a process than any step has cores for it."""
    processes: dict[int, int | None] = {}  # those of a task, where its step has a launcher
    for launch in launches_of(job):
        if launch.step is not None:
            processes.setdefault(id(launch.step), launch.processes(launch.step.gpus_per_node))
    shares = [(step.number("cpus-per-task") or 0, processes.get(id(step), 1)) for step in job.steps]
    cores = max((cpus // each if each else 0 for cpus, each in shares), default=0)
    if not cores or any(cpus == 0 or not each for cpus, each in shares):
        return
    for setting, value in job.in_force(("OMP_NUM_THREADS",)):
        each = str(job.allocation.number("cpus-per-task") or "")
        threads = read_count(re.sub(r"\$\{?SLURM_CPUS_PER_TASK\}?", each, value))
        if threads and threads > cores:
            reason = f"{threads} threads for a process with {counted(cores, 'core')}"
            yield BadLine(setting.line, f"OMP_NUM_THREADS={value}", reason, f"export OMP_NUM_THREADS={cores}")


# ---------------------------------------------------------------- launchers


def launcher_per_task(job: Job) -> Iterator[BadLine]:
    """A launcher that starts a process for each GPU, in each of several tasks of a node."""
    for launch in launches_of(job):
        processes = launch.processes(launch.step.gpus_per_node) if launch.step else None
        tasks = launch.step.tasks_per_node if launch.step else None
        if launch.step and tasks and tasks > 1 and processes and processes > 1:
            option = launch.step.first("ntasks-per-node", "ntasks")
            reason = f"{tasks} tasks of a node start {processes} processes each, {tasks * processes} in all"
            right = "#SBATCH --ntasks-per-node=1, with all cores of the node"
            yield BadLine(option.line if option else launch.line, launch.program, reason, right)


def too_many_processes(job: Job) -> Iterator[BadLine]:
    """More processes on a node than the job has GPUs there."""
    for launch in launches_of(job):
        gpus, processes = (launch.step or job.allocation).gpus_per_node, launch.processes(None)
        if gpus and processes and processes > gpus:
            reason = f"{processes} processes on a node where the job has {gpus} GPUs"
            right = f"{gpus} processes, or #SBATCH --gpus-per-node={processes}"
            yield BadLine(launch.line_of("nproc_per_node", "num_gpus"), launch.program, reason, right)


def launcher_nodes(job: Job) -> Iterator[BadLine]:
    """A number of nodes that is not that of the step, so that each node trains alone or waits for others."""
    for launch in launches_of(job):
        nodes = launch.step.nodes if launch.step else None
        counts = {"nnodes", "standalone"} & launch.options.keys()
        if nodes is None or not counts or launch.program in ("accelerate", "deepspeed"):
            continue
        given = launch.nodes(job.allocation if job.allocation.nodes else launch.step or job.allocation)
        if given is not None and given != nodes:
            reason = f"{given} for a step on {nodes} nodes"
            yield BadLine(launch.line_of("nnodes", "standalone"), "--nnodes", reason, "--nnodes=$SLURM_JOB_NUM_NODES")


def launcher_without_srun(job: Job) -> Iterator[BadLine]:
    """A launcher for several nodes that the batch script runs itself, so that it runs on the first node only."""
    nodes = job.allocation.nodes or 1
    for launch in launches_of(job):
        asked = launch.nodes(job.allocation) or 1
        if launch.step is None and launch.spot != "task" and nodes > 1 and asked > 1 and launch.program != "deepspeed":
            reason = f"runs on the first node only, and waits for {asked - 1} more that nothing starts"
            yield BadLine(launch.line, launch.program, reason, f"srun --ntasks-per-node=1 … {launch.program} …")


def no_rendezvous(job: Job) -> Iterator[BadLine]:
    """A launcher on several nodes that is not told where they meet, or, where it is static, which node this is."""
    meeting = ("rdzv_endpoint", "master_addr", "main_process_ip", "standalone", "hostfile", "config_file", "rdzv_conf")
    by_variable = any(setting.name in ("PET_RDZV_ENDPOINT", "PET_MASTER_ADDR") for setting in job.settings)
    for launch in () if by_variable else launches_of(job):
        if not launch.on_several_nodes or launch.program == "deepspeed":
            continue
        if not any(name in launch.options for name in meeting):
            right = "--rdzv_backend=c10d --rdzv_id=$SLURM_JOB_ID --rdzv_endpoint=$MASTER_ADDR:$MASTER_PORT"
            yield BadLine(launch.line, launch.program, "several nodes without the address of a rendezvous", right)
        elif "master_addr" in launch.options and not {"node_rank", "rdzv_endpoint"} & launch.options.keys():
            right = "--node_rank=$SLURM_NODEID in the task: srun bash -c '… --node_rank=$SLURM_NODEID …'"
            yield BadLine(
                launch.line_of("master_addr"),
                launch.program,
                "without --node_rank each node takes itself for the first",
                right,
            )
