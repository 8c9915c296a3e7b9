#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""anywhere.py CASE KASANE PROGRAM FIXED_PROGRAM REFUSE TRANSPORTS: programs start in surroundings that are unusual, or say what is wrong with them.

FIXED_PROGRAM is PROGRAM, not position-independent. REFUSE starts what follows where personality(ADDR_NO_RANDOMIZE) is refused. TRANSPORTS: shm,ucx,openmpi,…
"""
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time

CASE, KASANE, PROGRAM, FIXED, REFUSE, TRANSPORTS = sys.argv[1:7]
SKIPPED = 77
SECONDS = 30
failures = []


def run(command, seconds=SECONDS, **how):
    """Status (None: it hung, and was killed with all that it started), output, errors."""
    environment = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", **how.pop("env", {})}
    how.setdefault("stdin", subprocess.DEVNULL)
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True, env=environment, **how)
    try:
        out, err = process.communicate(timeout=seconds)
        return process.returncode, out, err
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        return None, *process.communicate()


def check(right, what, *evidence):
    if not right:
        failures.append(what)
        print(f"WRONG: {what}", *[str(e)[-2000:] for e in evidence], sep="\n  ")


def kasane_run(*flags):
    return [KASANE, "run", "-n", "2", *flags, "--"]


def launchers():
    """Name and words before the program; mpirun's have its own words for what is closed."""
    yield "alone", []
    yield "kasane run", kasane_run()
    if "ucx" in TRANSPORTS.split(","):
        yield "kasane run over ucx", kasane_run("--transport", "ucx")


def mpiruns(ranks):
    for mpi in ("openmpi", "mpich"):
        if mpi in TRANSPORTS.split(",") and shutil.which("mpirun." + mpi):
            yield mpi, ["mpirun." + mpi, "-n", str(ranks)] + (["--oversubscribe", "--bind-to", "none"] if mpi == "openmpi" else [])


def closed():
    """Standard descriptors that are closed: what is printed goes nowhere, input is empty, and ranks' memory is left alone."""
    for closing in ("<&-", ">&-", "2>&-", "<&- >&- 2>&-"):
        for name, words in launchers():
            status, out, err = run(["bash", "-c", f'"$@" {closing}', "bash", *words, PROGRAM, "talk"])
            where = f"{name} {closing}"
            check(status == 0, f"{where}: status {status}", out, err)
            check(out.count("a line of output\n") == (0 if " >&-" in " " + closing else 3000), f"{where}: output", out)
            check(err.count("a line of errors\n") == (0 if "2>&-" in closing else 3000), f"{where}: errors", err)
            if " >&-" not in " " + closing:
                check("0 bytes of input\n" in out, f"{where}: input", out)
        for name, words in mpiruns(2):
            status, out, err = run([*words, "bash", "-c", f'exec "$0" talk {closing}', PROGRAM])
            check(status == 0, f"mpirun.{name} {closing}: status {status}", out, err)


def core():
    """A core file of some MB within 2 s, with the stack that the crash came on."""
    with open("/proc/sys/kernel/core_pattern") as pattern:
        if pattern.read().strip()[:1] in ("|", "/") or resource.getrlimit(resource.RLIMIT_CORE)[1] != resource.RLIM_INFINITY:
            print("core files go elsewhere here, or are not allowed")
            sys.exit(SKIPPED)
    for name, words in launchers():
        with tempfile.TemporaryDirectory(dir=".") as folder:
            begun = time.monotonic()
            status, out, err = run(["bash", "-c", 'ulimit -c unlimited; exec "$@"', "bash", *words, PROGRAM, "crash"], cwd=folder, seconds=10)
            took = time.monotonic() - begun
            check(status not in (0, None) and "SIGSEGV" in err, f"{name}: status {status}", out, err)
            files = [os.path.join(folder, f) for f in os.listdir(folder)]
            check(len(files) == 1, f"{name}: {len(files)} core files")
            for file in files:
                mebibytes = os.stat(file).st_size / 2**20
                check(mebibytes <= 256, f"{name}: a core file of {mebibytes:.0f} MiB")
                if mebibytes <= 256:
                    with open(file, "rb") as content:
                        check(b"Mark-42-on the stack" in content.read(), f"{name}: the stack is not in it")
            check(took <= 5, f"{name}: {took:.1f} s")   # 0.1 to 0.5 s on an idle machine


def file_limit():
    """ulimit -f holds for the program's files, not for the memory of ranks; where that cannot be, it is named."""
    for name, words in launchers():
        status, out, err = run(["bash", "-c", 'ulimit -S -f 8; exec "$@"', "bash", *words, PROGRAM, "file-limit"])
        check(status == 0 and "file limit 8192\n" in out, f"{name} under a soft limit: status {status}", out, err)
        # A limit that nobody may raise: root may, unless it lacks the right to.
        without_right = ["setpriv", "--bounding-set=-sys_resource", "--inh-caps=-sys_resource"] if os.geteuid() == 0 else []
        status, out, err = run([*without_right, "bash", "-c", 'ulimit -f 8; exec "$@"', "bash", *words, PROGRAM, "file-limit"])
        check(status == 1 and "ulimit -f unlimited" in err and "8192 bytes" in err and "--space" in err, f"{name} under a hard limit: status {status}", out, err)
        check(err.count("ulimit -f unlimited") == 1, f"{name} under a hard limit: not said once", err)


def personality():
    """Ranks that mpirun starts are laid out alike also where personality is refused."""
    any_mpi = False
    for name, words in mpiruns(3):
        any_mpi = True
        for program in (PROGRAM, FIXED):
            status, out, err = run([*words, REFUSE, program, "place"], env={"KASANE_MAIN": "all"})
            check(status == 0 and err == "", f"mpirun.{name} {program}: status {status}", out, err)
            check(out.count("variable gone\n") == 3 and out.count("headers mapped\n") == 3, f"mpirun.{name} {program}: output", out)
        status, out, err = run(["bash", "-c", 'ulimit -s unlimited; exec "$@"', "bash", *words, REFUSE, PROGRAM, "place"])
        check(status == 0, f"mpirun.{name} with stacks without a limit: status {status}", out, err)
        status, out, err = run([*words, REFUSE, PROGRAM, "crash"])
        check("SIGSEGV" in err and "crash" in err, f"mpirun.{name}: a crash is not reported with its names", out, err)
    if not any_mpi:
        sys.exit(SKIPPED)


def hostile_parent():
    """Every signal ignored and blocked, as by a daemon that starts programs from a thread."""
    for s in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        signal.signal(s, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())


def surroundings():
    """Limits, variables, folders and signals that a program may find."""
    as_root = os.geteuid() == 0
    in_shell = {"64 descriptors, more allowed": "ulimit -S -n 64", "stacks without a limit": "ulimit -s unlimited", "stacks of 64 KiB": "ulimit -s 64",
                "100 GB of addresses": "ulimit -v 100000000; export KASANE_SPACE=1G", "no variables": "unset $(compgen -e)",
                "a language and a time zone that are none": "export LC_ALL=xx_YY.none TZ=No/Where", "no folder for files": "export TMPDIR=/nowhere; unset HOME",
                "a folder that is gone": "cd $(mktemp -d); rmdir $PWD"}
    for name, words in launchers():
        for what, how in in_shell.items():
            status, out, err = run(["bash", "-c", how + '; exec "$@"', "bash", *words, PROGRAM, "talk"])
            check(status == 0 and out.endswith("0 bytes of input\n"), f"{name}, {what}: status {status}", out, err)
        if as_root:
            status, out, err = run(["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", *words, PROGRAM, "talk"], cwd="/")
            check(status == 0, f"{name}, another user: status {status}", out, err)
        # Over UCX these are its own to refuse.
        if as_root and "ucx" not in name and subprocess.run(["unshare", "-m", "true"], stderr=subprocess.DEVNULL).returncode == 0:
            for what, how in {"no /proc": "umount -l /proc", "a root that nobody writes to": "mount -o remount,bind,ro /"}.items():
                status, out, err = run(["unshare", "-m", "bash", "-c", how + ' && exec "$@"', "bash", *words, PROGRAM, "talk"])
                check(status == 0, f"{name}, {what}: status {status}", out, err)
        status, out, err = run([*words, PROGRAM, "talk"], preexec_fn=hostile_parent)
        check(status == 0, f"{name}, signals ignored and blocked: status {status}", out, err)
        status, out, err = run([*words, PROGRAM, "crash"], preexec_fn=hostile_parent)
        check(status not in (0, None) and "SIGSEGV" in err and "null pointer" in err, f"{name}, a crash, signals ignored and blocked: status {status}", out, err)
        for what, how, said in (("40 descriptors", "ulimit -n 40", "ulimit -n"), ("1 GB of addresses", "ulimit -v 1000000", "ulimit -v")):
            status, out, err = run(["bash", "-c", how + '; exec "$@"', "bash", *words, PROGRAM, "talk"])
            check(status == 1 and said in err, f"{name}, {what}: status {status}", out, err)


{"closed": closed, "core": core, "file_limit": file_limit, "personality": personality, "surroundings": surroundings}[CASE]()
print(f"{len(failures)} wrong")
sys.exit(1 if failures else 0)
