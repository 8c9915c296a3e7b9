#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs programs that check their own results while their ranks are killed, stopped or slowed, their disk
fills, and their messages are delayed; over shared memory, UCX and MPI, in core and beyond DRAM.

    chaos.py BUILD [--faults N] [--seed S] [--run I]

BUILD is a build folder (build/release). Run I of a seed always takes the same program, network and faults;
`--run I` repeats that one alone, and prints what it printed. After each run: the job has ended in bounded
time, its result is right or it ended with a status that is not 0 and a message that names the rank or the
reason, and no process and no file of it is left in /dev/shm, the temporary folder or the folder of spill
files. The report is a table. The status is 1 if a run failed, and 77 where no run is possible.

As root the runs have /dev/shm, a temporary folder and a disk of their own; others cannot fill a disk nor
delay messages, and these kinds are left out.
"""

import argparse
import collections
import dataclasses
import fcntl
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

START_S = 40  # until the ranks are there; a loaded machine takes seconds
RUN_S = 600  # of a run that no fault ends: seconds, but for a machine that has much else to do
END_S = 60  # from a fault that ends the job to its end
GRACE_S = 5  # for processes that a launcher has killed to be gone
DISK_MIB = 1024  # of spill files: each rank has one, in which a page may have been

ROOT = os.geteuid() == 0


@dataclasses.dataclass(frozen=True)
class Network:
    """How ranks are joined, and how much a program is to do so that it runs for some seconds."""

    flags: tuple
    rounds: int
    ranks: tuple = (2,)
    environment: tuple = ()


NETWORKS = {
    "shm": Network((), 400, (2, 4)),
    "ucx": Network(("--transport", "ucx"), 12, (2,), (("UCX_TLS", "tcp,self"),)),
    "openmpi": Network(("--transport", "mpi", "--mpi", "openmpi"), 4, (2,),
                       (("OMPI_MCA_pml", "ob1"), ("OMPI_MCA_btl", "tcp,self"),
                        ("OMPI_MCA_btl_tcp_if_include", "lo"))),
    # Over its own shared memory: MPI_Finalize of MPICH 4.0.2 does not always return over UCX's TCP.
    "mpich": Network(("--transport", "mpi", "--mpi", "mpich"), 4),
}


@dataclasses.dataclass
class Plan:
    """One run: what is started, and what happens to it."""

    number: int
    kind: str
    network: str
    beyond: bool
    ranks: int
    program: str
    command: list
    right: str  # a pattern of the output of a run whose result is right
    events: list  # (seconds after the ranks are there, what, which rank, how)
    environment: dict = dataclasses.field(default_factory=dict)


def programs_of(rng, build, kind, network, ranks, beyond):
    """(name, options of kasane run, command, pattern of a right result): one of them, drawn."""
    rounds = NETWORKS[network].rounds
    drf = ["bin/stress_drf", "--seed", str(rng.randrange(1, 1 << 30))]
    if beyond:
        drf += ["--count", str(max(2, rounds // 16)), "--data", f"{24 * ranks}M"]
    else:
        drf += ["--count", str(rounds)]
    choices = [("stress_drf", [], drf, r": 0 wrong reads")]
    if kind == "delay":
        pass  # the others send little
    elif network == "shm":
        choices.append(("lu_spread", ["--threads", "spread", "--malloc", "space"],
                        ["examples/lu_spread", "-n", "896"], r"checksum .*: ok"))
        choices.append(("cilksort", [], ["apps/cilksort", "--count", "3000000", "--repeat", "4", "--quiet"],
                        r"verified"))
        if not beyond:
            choices.append(("nqueens", [], ["apps/nqueens", "-n", "15", "--quiet"], r"verified"))
    elif network == "ucx" and not beyond:
        choices.append(("nqueens", [], ["apps/nqueens", "-n", "15", "--quiet"], r"verified"))
    else:
        choices.append(("armci", [], [f"bin/armci_oracle_{network}", str(rng.randrange(1, 1000)), "30"],
                        r"oracle: passed"))
    choices = [c for c in choices if os.access(os.path.join(build, c[2][0]), os.X_OK)]
    return rng.choice(choices) if choices else None


def events_of(rng, kind, ranks):
    rank = lambda: rng.randrange(ranks)
    if kind == "kill":
        how = rng.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGSEGV, signal.SIGABRT])
        return [(rng.uniform(0, 1.5), "signal", rank(), how)]
    if kind == "end":
        return [(rng.uniform(0, 1.5), "launcher", 0, rng.choice([signal.SIGTERM, signal.SIGINT]))]
    if kind == "stop":
        at, events = 0.0, []
        for _ in range(rng.randrange(6, 14)):
            at += rng.uniform(0.02, 0.25)
            events.append((at, "stop", rank(), rng.uniform(0.01, 0.3)))
        return events
    if kind == "slow":
        victim, at, events = rank(), rng.uniform(0, 0.3), []
        for _ in range(40):
            events.append((at, "stop", victim, 0.02))
            at += 0.025
        return events
    if kind == "disk":
        at = rng.uniform(0, 1.0)
        events = [(at, "fill", 0, None)]
        if rng.random() < 0.3:
            events.append((at + rng.uniform(0.1, 0.6), "empty", 0, None))
        return events
    at, events = 0.0, []
    for _ in range(rng.randrange(5, 10)):
        at += rng.uniform(0.05, 0.4)
        events.append((at, "delay", 0, (rng.choice([64, 256, 1000]), rng.uniform(0.05, 0.3))))
    return events


def plan(seed, number, build, networks):
    """The run of this number: of a seed it is always the same one."""
    rng = random.Random(f"{seed}-{number}")
    kinds = ["kill", "end", "stop", "stop", "slow"] + (["disk", "delay"] if ROOT else [])
    kind = rng.choice(kinds)
    fitting = [n for n in networks if kind != "delay" or n in ("ucx", "openmpi")]
    if not fitting:
        kind, fitting = "stop", networks
    network = rng.choice(fitting + ["shm"] * (kind != "delay"))
    beyond = kind == "disk" or rng.random() < 0.35
    ranks = rng.choice(NETWORKS[network].ranks)
    chosen = programs_of(rng, build, kind, network, ranks, beyond)
    if chosen is None:
        return None
    name, options, command, right = chosen
    flags = list(NETWORKS[network].flags) + options
    if command[0].startswith("bin/armci"):
        flags = []  # it has an MPI of its own
    if beyond:
        flags += ["--dram", f"{12 * ranks}M", "--spill", "@SPILL@"]
    whole = ["bin/kasane", "run", "-n", str(ranks), *flags, "--", *command]
    return Plan(number, kind, network, beyond, ranks, name, whole, right, events_of(rng, kind, ranks),
                dict(NETWORKS[network].environment))


class Job:
    """The processes of one run. A variable of their environment tells which they are."""

    def __init__(self, build, folders, this, log):
        self.mark = f"CHAOS_JOB={os.getpid()}-{this.number}-{time.monotonic_ns()}".encode()
        environment = dict(os.environ, TMPDIR=folders["tmp"], OMPI_ALLOW_RUN_AS_ROOT="1",
                           OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", **this.environment)
        for name in [n for n in environment if n.startswith("KASANE_")]:
            del environment[name]
        name, value = self.mark.decode().split("=")
        environment[name] = value
        self.command = [folders["spill"] if word == "@SPILL@" else word for word in this.command]
        self.program = os.path.realpath(os.path.join(build, this.command[this.command.index("--") + 1]))
        start = self.command
        self.own_network = this.kind == "delay"
        if self.own_network:
            start = ["unshare", "-n", "sh", "-c", 'ip link set lo up && exec "$@"', "sh", *start]
        self.process = subprocess.Popen(start, cwd=build, env=environment, stdin=subprocess.DEVNULL,
                                        stdout=log, stderr=subprocess.STDOUT, start_new_session=True)

    def all(self):
        """PIDs with the mark, without zombies."""
        found = []
        for entry in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{entry}/environ", "rb") as file:
                    if self.mark in file.read().split(b"\0"):
                        found.append(int(entry))
            except OSError:
                pass
        return found

    def ranks(self):
        """The program's processes that have no child of the same program: a supervisor has."""
        own = {}
        for pid in self.all():
            try:
                if os.readlink(f"/proc/{pid}/exe") == self.program:
                    with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
                        own[pid] = int(file.read().rsplit(")", 1)[1].split()[1])
            except OSError:
                pass
        return sorted(pid for pid in own if pid not in own.values())

    def kill_all(self):
        for _ in range(20):
            left = self.all()
            for pid in left:
                send(pid, signal.SIGKILL)
            if not left:
                break
            time.sleep(0.1)
        self.process.wait()


def send(pid, what):
    try:
        os.kill(pid, what)
        return True
    except ProcessLookupError:
        return False


def fill(folder):
    """The disk of spill files has no room any more."""
    with open(os.path.join(folder, "filler"), "wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(1 << 20))
        except OSError:
            pass


def shape(job, rate_kbit):
    """Messages of the job's network wait in a queue that leaves at this rate; netem does the same where a
    kernel has it, but this one need not."""
    command = ["nsenter", "-t", str(job.process.pid), "-n", "tc", "qdisc"]
    if rate_kbit is None:
        command += ["del", "dev", "lo", "root"]
    else:
        command += ["replace", "dev", "lo", "root", "tbf", "rate", f"{rate_kbit}kbit", "burst", "70kb",
                    "latency", "2s"]
    return subprocess.run(command, stderr=subprocess.DEVNULL, check=False).returncode == 0


def apply(job, folders, what, pid, how):
    """Returns whether it has happened to a job that ran."""
    if what == "signal":
        return send(pid, how)
    if what == "launcher":
        return send(job.process.pid, how)
    if what == "stop":
        if not send(pid, signal.SIGSTOP):
            return False
        time.sleep(how)
        return send(pid, signal.SIGCONT)
    if what == "delay":
        rate, seconds = how
        done = shape(job, rate)
        time.sleep(seconds)
        shape(job, None)
        return done
    if what == "fill":
        fill(folders["spill"])
        return True
    os.unlink(os.path.join(folders["spill"], "filler"))
    return False  # the end of a fault is none


def wait(process, seconds):
    try:
        process.wait(seconds)
        return True
    except subprocess.TimeoutExpired:
        return False


@dataclasses.dataclass
class Outcome:
    verdict: str  # "right", "ended", or what is wrong
    faults: int = 0
    end_s: float = 0.0
    why: str = ""


def left_in(folders):
    names = [os.path.join(folder, name) for folder in folders.values() for name in os.listdir(folder)
             if ROOT or "kasane" in name]
    return [name for name in names if not is_of_the_dead(name)]


def is_of_the_dead(name):
    """A folder for UCX's queues whose rank an mpirun's end has killed while it started. It can be locked, so
    the next start removes it (docs/design/comm_ucx.md); under `kasane run` the supervisor does."""
    if "/kasane-ucx-" not in name or not os.path.isdir(name):
        return False
    descriptor = os.open(name, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    except OSError:
        return False
    finally:
        os.close(descriptor)


def judge(this, status, text, applied):
    """Right, or ended with a message that names the rank or the reason."""
    if status == 0:
        return ("right", "") if re.search(this.right, text) else ("wrong", "status 0, and no right result")
    if not applied or this.kind in ("stop", "slow", "delay"):
        return "wrong", f"status {status}, though nothing ended it"
    if this.kind == "end":
        return "ended", ""
    if this.kind == "disk":
        named = re.search(r"No space left|spill", text)
    else:
        names = [r"rank \d+", r"RANK \d+", r"process \d+"] + ([r"PID \d+"] if this.network == "mpich" else [])
        named = re.search("|".join(names), text)
        # MPICH's mpirun writes to a rank that has ended while it starts, and is ended by that itself.
        named = named or (this.network == "mpich" and status == -signal.SIGPIPE)
    return ("ended", "") if named else ("silent", f"status {status}, and no message that names it")


def run_one(this, build, folders, log):
    job = Job(build, folders, this, log)
    try:
        return watch(this, job, folders, log)
    finally:
        job.kill_all()
        clean(folders)


def watch(this, job, folders, log):
    ranks, until = [], time.monotonic() + START_S
    while len(ranks) < this.ranks and time.monotonic() < until and job.process.poll() is None:
        time.sleep(0.02)
        ranks = job.ranks()
    begin, applied, last = time.monotonic(), 0, time.monotonic()
    for at, what, rank, how in this.events:
        if wait(job.process, max(0.0, begin + at - time.monotonic())):
            break
        pid = ranks[rank] if rank < len(ranks) else job.process.pid
        if apply(job, folders, what, pid, how):
            applied, last = applied + 1, time.monotonic()
    ends = this.kind in ("kill", "end") and applied > 0
    ended = wait(job.process, END_S if ends else RUN_S)
    took = time.monotonic() - last
    faults = min(applied, 4) if this.kind == "slow" else applied
    if not ended:
        why = "\n".join(stack_of(pid) for pid in job.all())
        return Outcome("hang", faults, took, why)
    until = time.monotonic() + GRACE_S
    while (remaining := job.all()) and time.monotonic() < until:
        time.sleep(0.05)
    log.flush()
    with open(log.name, encoding="utf-8", errors="replace") as file:
        verdict, why = judge(this, job.process.returncode, file.read(), applied)
    if os.path.exists(filler := os.path.join(folders["spill"], "filler")):
        os.unlink(filler)
    names = left_in(folders)
    if verdict in ("right", "ended") and (remaining or names):
        verdict, why = "left", f"processes {remaining}, files {names}"
    return Outcome(verdict, faults, took if ends else 0.0, why)


def stack_of(pid):
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            what = file.read().replace(b"\0", b" ").decode(errors="replace")
        threads = []
        for thread in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{thread}/wchan", encoding="ascii") as file:
                threads.append(file.read())
        return f"{pid} {what}: {', '.join(threads)}"
    except OSError:
        return str(pid)


def clean(folders):
    if not ROOT:
        return
    for folder in folders.values():
        for name in os.listdir(folder):
            path = os.path.join(folder, name)
            shutil.rmtree(path, ignore_errors=True) if os.path.isdir(path) else os.unlink(path)


def own_folders(work):
    """As root all that jobs may leave files in is their own (the caller has a mount namespace of its own)."""
    folders = {"tmp": os.path.join(work, "tmp"), "spill": os.path.join(work, "spill"), "shm": "/dev/shm"}
    for name in ("tmp", "spill"):
        os.mkdir(folders[name])
    if ROOT:
        for folder, options in ((folders["spill"], f"size={DISK_MIB}m"), ("/dev/shm", "size=50%")):
            subprocess.run(["mount", "-t", "tmpfs", "-o", options, "none", folder], check=True)
    return folders


def available_networks(build):
    text = subprocess.run([os.path.join(build, "bin/kasane"), "info"], capture_output=True, text=True,
                          check=True).stdout
    found = ["shm"]
    if re.search(r"^ *ucx +between", text, re.M):
        found.append("ucx")
    return found + [m for m in ("openmpi", "mpich") if re.search(rf"^ *mpi \({m}\)", text, re.M)]


VERDICTS = ["right", "ended", "hang", "wrong", "silent", "left"]


def table(outcomes):
    rows = collections.defaultdict(list)
    for this, outcome in outcomes:
        rows[(this.kind, this.network + (", beyond DRAM" if this.beyond else ""))].append(outcome)
    lines = [f"{'fault':7} {'network':22} {'runs':>5} {'faults':>7} {'right':>6} {'ended':>6} {'hang':>5} "
             f"{'wrong':>6} {'silent':>7} {'left':>5}  {'longest end':>11}"]

    def line(first, second, of):
        count = collections.Counter(o.verdict for o in of)
        counts = [count[v] for v in VERDICTS]
        return (f"{first:7} {second:22} {len(of):5} {sum(o.faults for o in of):7} {counts[0]:6} "
                f"{counts[1]:6} {counts[2]:5} {counts[3]:6} {counts[4]:7} {counts[5]:5}  "
                f"{max(o.end_s for o in of):9.1f} s")

    for key in sorted(rows):
        lines.append(line(*key, rows[key]))
    lines.append(line("all", "", [o for _, o in outcomes]))
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build")
    parser.add_argument("--faults", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--run", type=int, help="this run alone, with what it prints")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    build = os.path.realpath(arguments.build)
    if ROOT and os.environ.get("CHAOS_INSIDE") is None:
        environment = dict(os.environ, CHAOS_INSIDE="1")
        os.execvpe("unshare", ["unshare", "-m", "--propagation", "private", sys.executable, *sys.argv],
                   environment)
    networks = available_networks(build)
    work = tempfile.mkdtemp(prefix="chaos")
    try:
        folders = own_folders(work)
    except (OSError, subprocess.CalledProcessError) as error:
        print(f"chaos: no folders of its own: {error}")
        return 77
    outcomes, faults, failed = [], 0, 0
    numbers = [arguments.run] if arguments.run is not None else range(1, 1 << 30)
    try:
        for number in numbers:
            this = plan(arguments.seed, number, build, networks)
            if this is None:
                continue
            with open(os.path.join(work, "log"), "w+b") as log:
                outcome = run_one(this, build, folders, log)
                log.seek(0)
                text = log.read().decode(errors="replace")
            outcomes.append((this, outcome))
            if faults // 100 != (faults + outcome.faults) // 100:
                print(f"chaos: {faults + outcome.faults} faults, {len(outcomes)} runs, {failed} failed",
                      file=sys.stderr, flush=True)
            faults += outcome.faults
            bad = outcome.verdict not in ("right", "ended")
            failed += bad
            if bad or arguments.run is not None:
                print(f"--seed {arguments.seed} --run {number}: {outcome.verdict}: {this.kind}, "
                      f"{' '.join(this.command)}\n{outcome.why}\n{text[-3000:]}", flush=True)
            if faults >= arguments.faults:
                break
    except KeyboardInterrupt:
        print("chaos: interrupted")
    finally:
        if ROOT:
            subprocess.run(["umount", "-l", folders["spill"]], check=False)
        shutil.rmtree(work, ignore_errors=True)
    if not outcomes:
        print("chaos: no programs in " + build)
        return 77
    print(table(outcomes))
    print(f"chaos: seed {arguments.seed}, {faults} faults in {len(outcomes)} runs, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
