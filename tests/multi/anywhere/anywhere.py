#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""anywhere.py CASE KASANE PROGRAM FIXED_PROGRAM REFUSE TRANSPORTS: programs start in unusual surroundings, or
say what is wrong with them.

FIXED_PROGRAM is PROGRAM, not position-independent. REFUSE CALL ERROR starts what follows where the system
call fails with that number. TRANSPORTS: shm,ucx,openmpi,…
"""
import errno
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time

CASE, KASANE, PROGRAM, FIXED, REFUSE_CALL, TRANSPORTS = sys.argv[1:7]
SKIPPED = 77
SECONDS = 30
failures = []


def run(command, seconds=SECONDS, **how):
    """Status (None: it hung, and was killed with all that it started), output, errors."""
    root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    how["env"] = {**os.environ, **root, **how.get("env", {})}
    how.setdefault("stdin", subprocess.DEVNULL)
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    process = subprocess.Popen(command, start_new_session=True, **pipes, **how)
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


def after(what):
    """Words that do it in a shell, then become what follows."""
    return ["bash", "-c", what + ' && exec "$@"', "bash"]


def kasane_run(*flags):
    return [KASANE, "run", "-n", "2", *flags, "--"]


def refuse(call, number=errno.EPERM):
    return [REFUSE_CALL, call, str(number)]


def launchers():
    """Name and words before the program; mpirun's have its own words for what is closed."""
    yield "alone", []
    yield "kasane run", kasane_run()
    if "ucx" in TRANSPORTS.split(","):
        yield "kasane run over ucx", kasane_run("--transport", "ucx")


def mpiruns(ranks):
    for mpi in ("openmpi", "mpich"):
        if mpi in TRANSPORTS.split(",") and shutil.which("mpirun." + mpi):
            flags = ["--oversubscribe", "--bind-to", "none"] if mpi == "openmpi" else []
            yield mpi, ["mpirun." + mpi, "-n", str(ranks), *flags]


def closed():
    """With standard descriptors closed, output goes nowhere, input is empty, and ranks' memory is intact."""
    for closing in ("<&-", ">&-", "2>&-", "<&- >&- 2>&-"):
        words_closed = closing.split()
        lines, errors = (0 if word in words_closed else 3000 for word in (">&-", "2>&-"))
        for name, words in launchers():
            status, out, err = run(["bash", "-c", f'"$@" {closing}', "bash", *words, PROGRAM, "talk"])
            where = f"{name} {closing}"
            check(status == 0, f"{where}: status {status}", out, err)
            check(out.count("a line of output\n") == lines, f"{where}: output", out)
            check(err.count("a line of errors\n") == errors, f"{where}: errors", err)
            if lines != 0:
                check("0 bytes of input\n" in out, f"{where}: input", out)
        for name, words in mpiruns(2):
            status, out, err = run([*words, "bash", "-c", f'exec "$0" talk {closing}', PROGRAM])
            check(status == 0, f"mpirun.{name} {closing}: status {status}", out, err)


def core():
    """A core file of some MB within 2 s, with the stack that the crash came on."""
    with open("/proc/sys/kernel/core_pattern") as pattern:
        elsewhere = pattern.read().strip()[:1] in ("|", "/")
        if elsewhere or resource.getrlimit(resource.RLIMIT_CORE)[1] != resource.RLIM_INFINITY:
            print("core files go elsewhere here, or are not allowed")
            sys.exit(SKIPPED)
    for name, words in launchers():
        with tempfile.TemporaryDirectory(dir=".") as folder:
            begun = time.monotonic()
            status, out, err = run([*after("ulimit -c unlimited"), *words, PROGRAM, "crash"],
                                   cwd=folder, seconds=10)
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
    """ulimit -f holds for the program's files, not for ranks' memory; where that cannot be, it is named."""
    for name, words in launchers():
        status, out, err = run([*after("ulimit -S -f 8"), *words, PROGRAM, "file-limit"])
        check(status == 0 and "file limit 8192\n" in out,
              f"{name} under a soft limit: status {status}", out, err)
        # A limit that nobody may raise: root may, unless it lacks the right to.
        without = "-sys_resource"
        drop = ["setpriv", "--bounding-set=" + without, "--inh-caps=" + without] if os.geteuid() == 0 else []
        status, out, err = run([*drop, *after("ulimit -f 8"), *words, PROGRAM, "file-limit"])
        said = "8192 bytes" in err and "--space" in err
        check(status == 1 and said, f"{name} under a hard limit: status {status}", out, err)
        check(err.count("ulimit -f unlimited") == 1, f"{name} under a hard limit: not said once", err)


def personality():
    """Ranks that mpirun starts are laid out alike also where personality is refused."""
    any_mpi = False
    for name, words in mpiruns(3):
        any_mpi = True
        for program in (PROGRAM, FIXED):
            status, out, err = run([*words, *refuse("personality"), program, "place"],
                                   env={"KASANE_MAIN": "all"})
            check(status == 0 and err == "", f"mpirun.{name} {program}: status {status}", out, err)
            lines = ("variable gone\n", "headers mapped\n", "kernel agrees\n")
            right = all(out.count(line) == 3 for line in lines)
            check(right, f"mpirun.{name} {program}: output", out)
        status, out, err = run([*after("ulimit -s unlimited"), *words, *refuse("personality"), PROGRAM,
                                "place"])
        check(status == 0, f"mpirun.{name} with stacks without a limit: status {status}", out, err)
        status, out, err = run([*words, *refuse("personality"), PROGRAM, "crash"])
        check("SIGSEGV" in err and "crash" in err, f"mpirun.{name}: a crash without names", out, err)
    if not any_mpi:
        sys.exit(SKIPPED)


def refused():
    """Where a filter refuses a system call, a job does without it, or says which it is. Crashes are reported
    without, too, and jobs spill."""
    eperm, both = (errno.EPERM,), (errno.EPERM, errno.ENOSYS)
    seccomp = "filter of system calls"
    said = {"memfd_create": (both, "memfd_create"), "fallocate": (both, "fallocate"),
            "socketpair": (both, "socketpair"), "clone3": (eperm, "it must fail with ENOSYS")}
    said_over_ucx = {"epoll_create1": (both, "epoll_create1"), "eventfd2": (both, "UCX_LOG_LEVEL")}
    without = ("close_range", "get_mempolicy", "getrandom", "io_uring_setup", "madvise", "mbind",
               "membarrier", "mincore", "move_pages", "prctl", "preadv2", "prlimit64", "process_vm_readv",
               "pwritev2", "rseq", "rt_tgsigqueueinfo", "sched_getaffinity", "sched_setaffinity",
               "set_mempolicy", "signalfd4", "statx", "userfaultfd")
    for name, words in launchers():
        for call in (*said, *said_over_ucx, *without):
            numbers, text = said.get(call, ((), ""))
            if "ucx" in name:
                numbers, text = said_over_ucx.get(call, (numbers, text))
            for number in both if numbers else eperm:
                status, out, err = run([*refuse(call, number), *words, PROGRAM, "file-limit"])
                where = f"{name} without {call} ({errno.errorcode[number]}): status {status}"
                if number in numbers:
                    hint = text == "UCX_LOG_LEVEL" or seccomp in err
                    check(status == 1 and text in err and hint, where, out, err)
                else:
                    check(status == 0, where, out, err)
    for call in ("io_uring_setup", "madvise", "membarrier", "mincore", "process_vm_readv", "userfaultfd"):
        spill = kasane_run("--dram", "12M", "--workers", "1")
        status, out, err = run([*refuse(call), *spill, PROGRAM, "spill"])
        check(status == 0, f"spilling without {call}: status {status}", out, err)
        status, out, err = run([*refuse(call), *kasane_run(), PROGRAM, "crash"])
        check("SIGSEGV" in err and "#0" in err, f"a crash without {call}: status {status}", out, err)
    status, out, err = run([*refuse("madvise"), *kasane_run("--faults", "uffd"), PROGRAM, "talk"])
    check(status == 1 and "madvise" in err, f"uffd without madvise: status {status}", out, err)


def hostile_parent():
    """Every signal ignored and blocked, as by a daemon that starts programs from a thread."""
    for s in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        signal.signal(s, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())


def surroundings():
    """Limits, variables, folders and signals that a program may find."""
    as_root = os.geteuid() == 0
    in_shell = {"64 descriptors, more allowed": "ulimit -S -n 64",
                "stacks without a limit": "ulimit -s unlimited",
                "stacks of 64 KiB": "ulimit -s 64", "no variables": "unset $(compgen -e)",
                "100 GB of addresses": "ulimit -v 100000000; export KASANE_SPACE=1G",
                "a language and a time zone that are none": "export LC_ALL=xx_YY.none TZ=No/Where",
                "no folder for files": "export TMPDIR=/nowhere; unset HOME",
                "a folder that is gone": "cd $(mktemp -d); rmdir $PWD"}
    for name, words in launchers():
        for what, how in in_shell.items():
            status, out, err = run([*after(how), *words, PROGRAM, "talk"])
            check(status == 0 and out.endswith("0 bytes of input\n"),
                  f"{name}, {what}: status {status}", out, err)
        if as_root:
            nobody = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"]
            status, out, err = run([*nobody, *words, PROGRAM, "talk"], cwd="/")
            check(status == 0, f"{name}, another user: status {status}", out, err)
        if as_root and run(["unshare", "-m", "true"])[0] == 0:
            for what, how in (("no /proc", "umount -l /proc"),
                              ("a read-only root", "mount -o remount,bind,ro /")):
                status, out, err = run(["unshare", "-m", *after(how), *words, PROGRAM, "talk"])
                if "ucx" in name and "/proc" in what:   # UCX has no way to any rank there
                    right = status == 1 and "mount -t proc" in err
                    check(right, f"{name}, {what}: status {status}", out, err)
                else:
                    check(status == 0, f"{name}, {what}: status {status}", out, err)
        status, out, err = run([*words, PROGRAM, "talk"], preexec_fn=hostile_parent)
        check(status == 0, f"{name}, signals ignored and blocked: status {status}", out, err)
        status, out, err = run([*words, PROGRAM, "crash"], preexec_fn=hostile_parent)
        reported = status not in (0, None) and "SIGSEGV" in err and "null pointer" in err
        check(reported, f"{name}, a crash, signals ignored and blocked: status {status}", out, err)
        for what, how, said in (("40 descriptors", "ulimit -n 40", "ulimit -n"),
                                ("1 GB of addresses", "ulimit -v 1000000", "ulimit -v")):
            status, out, err = run([*after(how), *words, PROGRAM, "talk"])
            check(status == 1 and said in err, f"{name}, {what}: status {status}", out, err)


for case in (closed, core, file_limit, personality, refused, surroundings):
    if case.__name__ == CASE:
        case()
print(f"{len(failures)} wrong")
sys.exit(1 if failures else 0)
