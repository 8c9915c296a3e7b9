#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""kasane bench all: every suite, one after the other, and one page of all results.
kasane bench reproduce: the figures of README.md, beside what the README says.

Usage: together.py KASANE "SUITE …" all|reproduce FLAGS…
"""
import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import time

# Seconds of a suite with --quick, on two cores: how the whole is divided, for the time that is left.
WEIGHTS = {"core": 200, "comm": 90, "pingpong": 90, "collectives": 37, "alloc": 41, "gas": 35, "spill": 33,
           "eviction": 1, "tier": 100, "arrays": 10, "containers": 90, "triad": 60, "bfs": 60, "ga": 200,
           "scale": 2, "network": 1, "stencil": 2}


class Ended(Exception):
    """By Ctrl-C."""


def shown(seconds):
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"


class Progress:
    """On standard error: a bar where that is a terminal, else a line when a part begins."""

    def __init__(self, parts):
        self.parts, self.done, self.begin = parts, 0, time.monotonic()
        self.all = sum(weight for _, weight in parts)
        self.terminal = sys.stderr.isatty()

    def text(self, index, beside):
        past = time.monotonic() - self.begin
        left = ""
        if self.done:
            left = f", some {shown(past * (self.all - self.done) / self.done)} left"
        line = f"{index + 1}/{len(self.parts)} {self.parts[index][0]}: {shown(past)} so far{left}{beside}"
        if not self.terminal:
            return line
        filled = round(24 * self.done / self.all)
        return f"[{'#' * filled}{'.' * (24 - filled)}] {line}"

    def show(self, index, beside=""):
        text = self.text(index, beside)
        if self.terminal:
            line = text[:(os.get_terminal_size(2).columns or 80) - 1]
            print(f"\r\x1b[K{line}", end="", file=sys.stderr, flush=True)
        else:
            print(text, file=sys.stderr, flush=True)

    def part_is_done(self, index):
        self.done += self.parts[index][1]
        if self.terminal:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)

    def wait(self, child, index):
        """Of a child that runs; its status."""
        self.show(index)
        try:
            while child.poll() is None:
                try:
                    child.wait(timeout=1)
                except subprocess.TimeoutExpired:
                    if self.terminal:
                        self.show(index)
            return child.returncode
        except KeyboardInterrupt:   # the child has it, too
            try:
                child.wait(timeout=30)
            except (subprocess.TimeoutExpired, KeyboardInterrupt):
                pass
            raise Ended from None
        finally:   # whatever ends this program
            if child.poll() is None:
                child.terminate()
                try:
                    child.wait(timeout=30)
                except subprocess.TimeoutExpired:
                    child.kill()
                    child.wait()


def run_all(kasane, suites, words):
    parser = argparse.ArgumentParser(prog="kasane bench all", description=run_all.__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", metavar="SUITE,…", help="these suites alone", default=",".join(suites))
    parser.add_argument("--out", metavar="FOLDER", default="kasane-bench",
                        help="where SUITE.json, SUITE.txt (what it says) and index.html go (%(default)s)")
    parser.add_argument("--quick", action="store_true", help="less of everything: minutes in all")
    arguments = parser.parse_args(words)
    chosen = arguments.only.split(",")
    for suite in chosen:
        if suite not in suites:
            parser.error(f"there is no suite {suite}: see kasane bench")
    os.makedirs(arguments.out, exist_ok=True)
    progress = Progress([(suite, WEIGHTS.get(suite, 30)) for suite in chosen])
    failed, results, took = [], [], []
    try:
        for index, suite in enumerate(chosen):
            path = os.path.join(arguments.out, suite)
            command = [kasane, "bench", suite, "--json", path + ".json"] + ["--quick"] * arguments.quick
            begin = time.monotonic()
            with open(path + ".txt", "w", encoding="utf-8") as says:
                child = subprocess.Popen(command, stdout=says, stderr=says, stdin=subprocess.DEVNULL)
                status = progress.wait(child, index)
            progress.part_is_done(index)
            took.append(f"{suite} {time.monotonic() - begin:.0f}")
            if status != 0:
                failed.append(f"{suite} (status {status}, {path}.txt)")
            else:
                results.append(path + ".json")
    except Ended:
        print("kasane bench all: ended; what was measured is kept", file=sys.stderr)
        failed.append("the rest")
    print("seconds: " + ", ".join(took))
    if results:
        page = os.path.join(arguments.out, "index.html")
        if subprocess.run([kasane, "plot", "-o", page, *results], check=False).returncode != 0:
            failed.append("the page")
    if failed:
        print("kasane bench all: failed: " + ", ".join(failed), file=sys.stderr)
    return 1 if failed else 0


run_all.__doc__ = """Runs every suite, one after the other, says on standard error how far it is, and draws
one page of all results. A suite that fails is named at the end, and does not end the others."""


# ---- the README's figures --------------------------------------------------------------------------------

def value(rows, case, system, **more):
    """The median of such a row; None where there is none."""
    for row in rows:
        if (row["case"], row["system"]) == (case, system) and all(row.get(k) == v for k, v in more.items()):
            return row["value"]
    return None


def text(number, factor=1.0):
    return "–" if number is None else f"{number * factor:.3g}"


class Measured:
    """What the suites and programs of the README's table say here, each asked once."""

    def __init__(self, kasane, folder):
        self.kasane, self.folder, self.child = kasane, folder, None

    def suite(self, *words):
        path = os.path.join(self.folder, words[0] + ".json")
        with open(os.path.join(self.folder, words[0] + ".txt"), "w", encoding="utf-8") as says:
            subprocess.run([self.kasane, "bench", *words, "--json", path], stdout=says, stderr=says,
                           stdin=subprocess.DEVNULL, check=True)
        with open(path, encoding="utf-8") as file:
            return json.load(file)

    def job(self, options, *program):
        """The object that a program in a job writes, and the seconds from start to end."""
        begin = time.monotonic()
        done = subprocess.run([self.kasane, "run", *options, "--", *program], stdout=subprocess.PIPE,
                              stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL, check=True)
        return done.stdout, time.monotonic() - begin


def fork_and_join(m):
    rows = m.suite("core", "--only", "fork-join")
    def both(system):
        return "; ".join(text(value(rows, "fork-join", system, threads=n)) for n in (1, 2))
    return both("kasane") + " ns", f"chili {both('chili')}, oneTBB {both('tbb')}, OpenMP {both('openmp')}"


def load_of_a_block(m):
    rows = m.suite("core", "--only", "pages,uffd")
    ours, fault = (value(rows, "page-miss", name) for name in ("kasane, uffd", "fault, uffd"))
    return text(ours) + " µs", text(fault)


def sort_on_two_ranks(m):
    one, two = [], []
    for _ in range(5):   # in turns
        for ranks, all_seconds in (("1", one), ("2", two)):
            said, _ = m.job(["-n", ranks, "--workers", "1"], "cilksort", "--count", "8000000", "--quiet",
                            "--json", "-")
            all_seconds.append(json.loads(said)["seconds"])
    return f"{statistics.median(a / b for a, b in zip(one, two)):.2g} ×", "one rank: 1.0"


def pingpong(m):
    rows = m.suite("pingpong", "--over", "memory", "--threads", "1", "--sizes", "4096",
                   "--only", "kasane-shm,ucx-pointer")
    ours, theirs = (value(rows, "pingpong-latency", name) for name in ("kasane-shm", "ucx-pointer"))
    return text(ours / theirs if ours and theirs else None), f"{text(ours)}; {text(theirs)} µs"


def sequential_read(m):
    rows = m.suite("tier", "--size", "512M", "--only", "seq-read,kasane,mmap-sequential")
    ours, theirs = (value(rows, "seq-read", name) for name in ("kasane", "mmap-sequential"))
    return text(ours / theirs if ours and theirs else None), f"{text(ours)}; {text(theirs)} MiB/s"


def many_ranks(m):
    seconds = [m.job(["-n", "256"], "fib", "-n", "1", "--quiet")[1] for _ in range(3)]
    return f"{statistics.median(seconds):.2g} s", "–"


# The first three as in README.md (a test compares them): the case, Kasane's figure, what stands beside it.
README = [
    ("fork and join, one worker; two", "3.0 ns; 1.5 ns", "chili 2.4; 1.5, oneTBB 89; 45, OpenMP 47; 166",
     fork_and_join, 120),   # the last: seconds that it takes
    ("a load of a block of another rank", "5.7 µs", "the kernel's bare fault 4.7", load_of_a_block, 30),
    ("sort of 8 M keys, two ranks", "1.6 × the serial time's speed", "one rank: 1.0", sort_on_two_ranks, 15),
    ("PingPong of 4 KiB within a host", "1.01 of the best peer's time", "UCX by `ucp_rkey_ptr`", pingpong,
     30),
    ("sequential read of four times the DRAM", "1.1 to 1.2 of its rate", "mmap, `MADV_SEQUENTIAL`",
     sequential_read, 60),
    ("start and end of 256 ranks", "1.8 to 2.5 s, 5.2 MiB a rank", "–", many_ranks, 12),
]


def reproduce(kasane, _suites, words):
    parser = argparse.ArgumentParser(prog="kasane bench reproduce", description=reproduce.__doc__)
    parser.add_argument("--only", metavar="ROW,…", help="these rows of the table alone, from 1")
    parser.add_argument("--out", metavar="FOLDER", default="kasane-bench",
                        help="where rows and what suites say go (default: %(default)s)")
    parser.add_argument("--list", action="store_true", help="say what the README says, and end")
    arguments = parser.parse_args(words)
    if arguments.list:
        for number, (case, ours, beside, _, _) in enumerate(README, 1):
            print(f"{number}: {case} | {ours} | {beside}")
        return 0
    try:
        chosen = [README[int(n) - 1] for n in arguments.only.split(",")] if arguments.only else README
    except (ValueError, IndexError):
        parser.error(f"--only takes rows from 1 to {len(README)}, as 1,4")
    os.makedirs(arguments.out, exist_ok=True)
    measured = Measured(kasane, arguments.out)
    progress = Progress([(row[0], row[4]) for row in chosen])
    failed = 0
    for index, (case, ours, beside, measure, _) in enumerate(chosen):
        progress.show(index)
        try:
            here, here_beside = measure(measured)
        except KeyboardInterrupt:
            return 130
        except (subprocess.CalledProcessError, OSError, ValueError, KeyError) as error:
            here, here_beside, failed = f"failed: {error}", "–", failed + 1
        progress.part_is_done(index)
        print(f"{case}\n  README: {ours}; beside it: {beside}\n"
              f"  here:   {here}; beside it: {here_beside}", flush=True)
    return 1 if failed else 0


reproduce.__doc__ = """Measures what README.md has a figure of, and prints it beside what the README says. On
a quiet machine; two cores are what the README's has."""


def main():
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    kasane, suites, what, *words = sys.argv[1:]
    return {"all": run_all, "reproduce": reproduce}[what](kasane, suites.split(), words)


if __name__ == "__main__":
    sys.exit(main())
