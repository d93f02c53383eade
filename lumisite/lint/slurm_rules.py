"""What is wrong on every Slurm and in every shell: directives, options, what the batch script expands, launchers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from lumisite.lint.job import BadLine, Job, variables_in
from lumisite.lint.programs import launches_of, starts_of
from lumisite.lint.script import read_commands, with_lines
from lumisite.lint.slurm_options import ADDING, EXCLUSIVE, OPTIONS, Option, Program, is_option
from lumisite.lint.step import read_count
from lumisite.text import counted, nearest_name
from lumisite.vendors import all_gpus

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


_EXPANSION = re.compile(r"\$(?:\w+|\{\w+\}|\()|`|(?<==)~/")


def directive_variable(job: Job) -> Iterator[BadLine]:
    """A variable, a command or `~` in a directive, which no shell expands."""
    for word, line in job.directives:
        if found := _EXPANSION.search(word):
            subject = word if found[0][-1] in "(`" else found[0]
            right = "the value itself, %x, %j or %u in names of files, or sbatch --option=… SCRIPT"
            yield BadLine(line, subject, "no shell expands directives, Slurm takes the text as it is", right)


_IN_COMMENT = re.compile(r"#[ \t]+SBATCH[ \t]+-{1,2}[A-Za-z]")


def commented_directive(job: Job) -> Iterator[BadLine]:
    """`# SBATCH`, which is a comment."""
    reason = "a comment: sbatch reads only #SBATCH, without the space"
    for at, text in enumerate(job.text.split("\n")[: job.first_command], 1):
        if _IN_COMMENT.match(text):
            yield BadLine(at, "# SBATCH", reason, text.replace("# ", "#", 1).strip())


#: A comment that begins as a directive does, but for its word or a space before it.
_ALMOST = re.compile(r"(#(?!SBATCH)(?:S?[A-Z]{4,6}H|sbatch)|[ \t]+#SBATCH)\s+-{1,2}\w")


def unknown_directive(job: Job) -> Iterator[BadLine]:
    """A directive, or an option of one, whose name is almost right."""
    head = job.text.split("\n")[: job.first_command]
    for at, text in enumerate(head if job.directives else (), 1):
        if found := _ALMOST.match(text):
            yield BadLine(at, found[1].strip(), "a comment, no directive of sbatch", "#SBATCH at the start of the line")
    for options in job.requests:
        yield from _unknown(options, "sbatch")


def unknown_option(job: Job) -> Iterator[BadLine]:
    """An option that srun does not have, and that is almost one of srun."""
    for step in job.sruns:
        yield from _unknown(step.own, "srun")


def _unknown(options: Iterable[Option], program: Program) -> Iterator[BadLine]:
    """Yield options that a program does not have, and that are almost one of its own or one of the other program."""
    other: Program = "srun" if program == "sbatch" else "sbatch"
    for option in options:
        if len(option.name) < 3 or is_option(option.name, program):
            continue
        if option.name in OPTIONS[other]:
            reason = f"an option of {other}, {program} refuses it"
            yield BadLine(option.line, f"--{option.name}", reason, f"{other} --{option.name}=…")
        elif near := nearest_name(option.name.lower(), OPTIONS[program], 0.86):
            yield BadLine(option.line, f"--{option.name}", f"no option of {program}", f"--{near}")


def repeated_directive(job: Job) -> Iterator[BadLine]:
    """An option that is given twice, with another value: sbatch takes the last one."""
    for options in job.requests:
        first = {option.name: option for option in reversed(options)}
        for option in options:
            before = first[option.name]
            if option.value != before.value and option.name not in ADDING:
                reason = f"the value of line {before.line} is replaced by {option.value}"
                yield BadLine(option.line, f"--{option.name}", reason, f"one line with --{option.name}")


def array_output(job: Job) -> Iterator[BadLine]:
    """One file for the output of all jobs of an array, which each of them empties where it does not add to it."""
    output = job.allocation.options.get("output")
    emptied = "array" in job.allocation.options and job.allocation.value("open-mode") != "append"
    if output and emptied and not re.search(r"%\d*[ajJ]|^/dev/", output.value):
        reason = "all jobs of the array write to this file, and each one begins it anew"
        yield BadLine(output.line, output.value, reason, "#SBATCH --output=%x-%A_%a.out")


def options_exclude_each_other(job: Job) -> Iterator[BadLine]:
    """Options of which Slurm takes one on a line."""
    for options in job.option_lists:
        names = {option.name: option for option in options}
        for group in EXCLUSIVE:
            given = sorted((names[name] for name in group if name in names), key=lambda option: option.line)
            if len(given) > 1:
                first, second = given[:2]
                reason = f"Slurm refuses it together with --{first.name} of line {first.line}"
                yield BadLine(second.line, f"--{second.name}", reason, f"one of --{first.name} and --{second.name}")


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


def _tasks(job: Job) -> Iterator[tuple[Option, int, int, int]]:
    """Yield `--ntasks` with the number of tasks, of nodes and of tasks of a node, where all stand together."""
    for options in job.option_lists:
        names = {option.name: option for option in options if read_count(option.value)}
        if {"ntasks", "nodes", "ntasks-per-node"} <= names.keys():
            tasks = names["ntasks"]
            yield tasks, int(tasks.value), int(names["nodes"].value), int(names["ntasks-per-node"].value)


def export_without_all(job: Job) -> Iterator[BadLine]:
    """A list of variables to export, without ALL: all others stay behind, those of modules among them."""
    reason = "no other variable is passed on, those that modules set neither"
    for option in (option for options in job.option_lists for option in options if option.name == "export"):
        names = option.value.split(",")
        if any(names) and not {"ALL", "NONE", "NIL"} & set(names):
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
    reason = "escapes the space behind it, and does not continue the line"
    for word in (word for command in job.commands for word in command.words[1:]):
        if word.raw in ("\\ ", "\\\t") or re.match(r"\\[ \t]#", word.raw):
            yield BadLine(word.line, "\\", reason, "nothing behind the backslash, no space and no comment")


#: Commands that take no time, and ends of blocks.
_BRIEF = ("done", "fi", "}", "esac", "echo", "date", "printf", "export", "cd", "for", "while")


def background_without_wait(job: Job) -> Iterator[BadLine]:
    """A step in the background after which the script ends, so that Slurm kills it."""
    commands = [command for command in job.commands if command.spot in ("batch", "function") and command.values]
    last = next((command for command in reversed(commands) if command.values[0] not in _BRIEF), None)
    if last is not None and last.end == "&" and last.names_any("srun"):
        yield BadLine(last.line, "&", "the script ends at once, and Slurm kills the step with it", "wait, at the end")


_PROGRAM = re.compile(r"(?:.*/)?(?:python[\d.]*|bash|sh|torchrun|accelerate|deepspeed|vllm|pip3?|hostname|[\w-]+-smi)")


def no_image(job: Job) -> Iterator[BadLine]:
    """A container without an image: the program stands in its place."""
    for start in starts_of(job):
        asks_for_help = any(word.startswith("-h") or word == "--help" for word, _ in start.options)
        if start.image is None and not asks_for_help:
            yield BadLine(start.line, start.action, "the image is missing", f"{start.action} IMAGE PROGRAM …")
        elif start.image and _PROGRAM.fullmatch(start.image):
            right = f"{start.action} IMAGE {start.image} …"
            yield BadLine(start.line, start.image, "stands where the image must be", right)


# ---------------------------------------------------------------- what the batch script expands

_OF_TASK = r"(?<!\\)\$\{?SLURM_(?:PROCID|NODEID|LOCALID)\b\}?"
_ANYWHERE = re.compile(_OF_TASK)
_RANK = rf"(?:\w+ENV_)?(?:\w*RANK|{'|'.join(name for gpu in all_gpus() for name in gpu.visible)})"
_SET_TO_IT = re.compile(rf"(?:\b{_RANK}=|--(?:\w+[-_])?rank(?:=|[ \t]+))[\"'\\]*{_OF_TASK}")


def rank_in_batch(job: Job) -> Iterator[BadLine]:
    """The rank of a task, put in by the shell of the batch script, where it is 0.

    All that srun gets is for tasks, and a here-document that is a script. Of what other commands get it is what sets a
    rank, or is an option of that name.
    """
    many = any((step.nodes or 1) > 1 or step.tasks_per_node != 1 for step in job.sruns)
    if not many or any("$0" in step.command.values for step in job.sruns if step.command):  # it starts itself
        return
    reason = "expanded by the shell of the batch script, where it is 0 for all tasks"
    for command in (command for command in job.commands if command.spot == "batch"):
        step = job.step_of(command)
        if step and step.nodes == step.tasks_per_node == 1:
            continue
        found = [match for word in command.words for match in word.matches(_ANYWHERE if step else _SET_TO_IT)]
        for document in command.documents:  # in which single quotes are ordinary characters
            pattern = _ANYWHERE if step or document.raw.startswith("#!") else _SET_TO_IT
            found += [(match[0], line) for match, line in with_lines(pattern, document.raw, document.line)]
        for name, word in command.assignments:
            found += word.matches(_SET_TO_IT)
            if re.fullmatch(_RANK, name) and _ANYWHERE.search(job.resolved(word.value)):
                found.append((name, word.line))
        for text, line in found:
            subject = re.split(r"[= \t]", text)[0]
            right = f"srun bash -c '… {subject} …' in single quotes, or \\$SLURM_… in double quotes and here-documents"
            yield BadLine(line, subject, reason, right)


def rdzv_literal(job: Job) -> Iterator[BadLine]:
    """A variable that reaches the launcher as it is written."""
    reason = "not expanded after a backslash or in single quotes, and every job has the same rendezvous"
    for value, line in job.option_values(r"--rdzv[-_](?:id|endpoint)"):
        if escaped := re.search(r"\\(\$\{?\w+\}?)", value):
            right = f"--rdzv_id={escaped[1]} without the backslash, in the quotes of bash -c"
            yield BadLine(line, escaped[1], reason, right)


_CUT = re.compile(
    r"\$\{SLURM_(?:JOB_|STEP_)?NODELIST[^}\w]|NODELIST.*\|\s*(?:cut|sed|awk|tr|grep|perl|python\w*)\b|"
    r"^\$\{?SLURM_(?:JOB_|STEP_)?NODELIST\}?$",
    re.DOTALL,
)


def nodelist(job: Job) -> Iterator[BadLine]:
    """The first node by cutting the list, which holds for one node only."""
    reason = "a list of nodes may read nid[005001-005004,005010], which cutting does not resolve"
    hosts = [value for value, _ in job.option_values(r"--(?:rdzv[-_]endpoint|master[-_]addr)")]
    hosts += [setting.value for setting in job.settings if setting.name == "MASTER_ADDR"]
    used = {"MASTER_ADDR", *(name for value in hosts for name in variables_in(value))}
    for setting in job.settings if job.allocation.value("nodes") != "1" else ():
        if setting.name in used and "scontrol" not in setting.value and _CUT.search(setting.value):
            yield BadLine(setting.line, setting.name, reason, _MASTER)


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


# ---------------------------------------------------------------- launchers and threads


def too_many_threads(job: Job) -> Iterator[BadLine]:
    """More threads of OpenMP for a task than any step gives it cores."""
    cores = [step.number("cpus-per-task") or 0 for step in job.steps]
    for setting, value in job.in_force(("OMP_NUM_THREADS",)) if all(cores) else ():
        threads = read_count(value)
        if threads and threads > max(cores):
            reason = f"{threads} threads for a task with {counted(max(cores), 'core')}"
            yield BadLine(setting.line, f"OMP_NUM_THREADS={value}", reason, f"export OMP_NUM_THREADS={max(cores)}")


def launcher_per_task(job: Job) -> Iterator[BadLine]:
    """A launcher that starts several processes, in each of several tasks of a node."""
    for launch in launches_of(job):
        tasks = launch.step.tasks_per_node if launch.step else None
        processes = launch.options.get("nproc_per_node", ("1", 0))[0]
        if tasks and tasks > 1 and processes != "1":
            reason = f"{tasks} tasks of a node start {processes} processes each"
            right = "#SBATCH --ntasks-per-node=1, with all cores of the node"
            yield BadLine(launch.line, launch.program, reason, right)


def launcher_nodes(job: Job) -> Iterator[BadLine]:
    """A number of nodes that is not that of the step, so that each node trains alone or waits for others."""
    for launch in launches_of(job):
        nodes = launch.step.nodes if launch.step else None
        counts = [launch.options[name][1] for name in ("nnodes", "standalone") if name in launch.options]
        if launch.step is None or nodes is None or not counts:
            continue
        given = launch.nodes(job.allocation if job.allocation.nodes else launch.step)
        if given is not None and given != nodes:
            reason = f"{given} for a step on {nodes} nodes"
            yield BadLine(counts[0], "--nnodes", reason, "--nnodes=$SLURM_JOB_NUM_NODES")


def launcher_without_srun(job: Job) -> Iterator[BadLine]:
    """A launcher for several nodes that the batch script runs itself, so that it runs on the first node only."""
    for launch in launches_of(job):
        asked = launch.nodes(job.allocation) or 1
        if launch.step is None and launch.spot != "task" and (job.allocation.nodes or 1) > 1 and asked > 1:
            reason = f"runs on the first node only, and waits for {asked - 1} more that nothing starts"
            yield BadLine(launch.line, launch.program, reason, f"srun --ntasks-per-node=1 … {launch.program} …")


#: How the launchers of several nodes find each other.
_MEETING = ("rdzv_endpoint", "master_addr", "main_process_ip", "standalone", "config_file", "rdzv_conf")


def no_rendezvous(job: Job) -> Iterator[BadLine]:
    """A launcher on several nodes without the address where they meet."""
    by_variable = any(setting.name in ("PET_RDZV_ENDPOINT", "PET_MASTER_ADDR") for setting in job.settings)
    for launch in launches_of(job) if not by_variable else ():
        if launch.on_several_nodes and launch.options.keys().isdisjoint(_MEETING):
            right = "--rdzv_backend=c10d --rdzv_id=$SLURM_JOB_ID --rdzv_endpoint=$MASTER_ADDR:$MASTER_PORT"
            yield BadLine(launch.line, launch.program, "several nodes without the address of a rendezvous", right)
