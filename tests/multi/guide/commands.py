#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The commands of README.md and the guide are typed. `kasane run` with a program of the reader's starts
hello with the same options; where a placeholder names a disk, that is a folder. Of a suite, and of an
application, which take minutes, each option is in the --help. What the tutorial's programs print is what
the page says. The words that faq.md quotes are in the sources.

Usage: commands.py SOURCE-FOLDER KASANE HELLO EXAMPLES-FOLDER
"""
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile

# Placeholders of the reader's disks and hosts. Pages that have one say so.
DISKS = ["/mnt/ssd", "/nvme", "/ssd0", "/ssd1"]
HOSTS = ["hostA", "a:2"]
COMMAND = re.compile(r"^(?:[A-Z_]+=\S+ )*(?:build/release/bin/|ENV/bin/)?kasane(?= |$)")
TUTORIAL = {"primes": "primes", "primes_threads": "primes_threads"}


def lines_of(text):
    """The lines of code, those that end in a backslash with the next, and those that → marks below them."""
    inside, before = False, ""
    for number, line in enumerate(text.split("\n"), 1):
        if line.startswith("```"):
            inside = not inside
            continue
        if not inside and not line.startswith("    "):
            continue
        line = before + line.strip()
        before = line[:-1] + " " if line.endswith("\\") else ""
        if not before:
            yield number, line


class Typist:
    def __init__(self, source, kasane, hello, examples, folder):
        self.source, self.kasane, self.hello, self.examples = source, kasane, hello, examples
        self.folder = folder
        self.wrong, self.count, self.help = [], 0, {}

    def output(self, command):
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=100,
                              cwd=self.folder, stdin=subprocess.DEVNULL)
        return done.returncode, done.stdout + done.stderr

    def help_of(self, words):
        key = tuple(words)
        if key not in self.help:
            self.help[key] = self.output([self.kasane, *words, "--help"])[1]
        return self.help[key]

    def check_flags(self, where, words, flags):
        text = self.help_of(words)
        for flag in flags:
            name = flag.split("=")[0]
            if re.match(r"--?[a-zA-Z]", name) and not re.search(rf"(^|[\s,]){re.escape(name)}\b", text, re.M):
                self.wrong.append(f"{where}: {' '.join(words)} has no {name}")

    def run(self, where, words, expected):
        """kasane run OPTIONS -- PROGRAM ARGUMENTS"""
        at = words.index("--") if "--" in words else next(
            (i for i, word in enumerate(words) if word.startswith(("./", "build/"))), len(words) - 1)
        options, program = words[:at], words[at + 1:] if words[at:at + 1] == ["--"] else words[at:]
        name = pathlib.Path(program[0]).name
        if {"--attach", "--globals-of", "--code-of", "--preload", "numa"} & set(options):
            return self.check_flags(where, ["run"], options)   # tests/multi/{python,globals,preload,…}
        if "--agent" in options:
            return self.check_flags(where, ["run"], [option for option in options if option[0] == "-"])
        if "--hosts" in options:   # they are this one
            options = [*options, "--agent", "env HOST=%h"]
        if name in TUTORIAL:
            program = [str(self.examples / TUTORIAL[name]), *program[1:]]
        elif pathlib.Path(self.kasane).parent.parent.joinpath("apps", name).exists():
            words_of = ["run", "--", name]
            if name == "graph":
                words_of.append(program[1])
            return self.check_flags(where, words_of, program[1:])
        else:   # with main on each rank, another one
            program = [str(self.examples / "acp_list") if "all" in options else self.hello]
        status, text = self.output([self.kasane, "run", *options, "--", *program])
        if status != 0 and "not in the PATH" not in text:
            self.wrong.append(f"{where}: status {status}:\n{text[-1000:]}")
        for line in expected:
            if line not in text:
                self.wrong.append(f"{where}: does not print: {line}\nbut:\n{text[-1000:]}")
        return None

    def type(self, where, line, expected):
        for command in line.split(" && "):
            for disk in DISKS:
                command = command.replace(disk, str(self.folder))
            if "…" in command or "PROGRAM" in command:
                continue
            try:
                words = shlex.split(command.split(" >")[0], comments=True)
            except ValueError:
                continue
            if not words:
                continue
            while re.match(r"[A-Z_]+=", words[0]) and len(words) > 1:
                words = words[1:]
            if pathlib.Path(words[0]).name != "kasane":
                continue
            self.count += 1
            if words[1:2] == ["run"]:
                self.run(where, words[2:], expected)
            elif words[1:2] == ["bench"] and len(words) > 2:
                self.check_flags(where, words[1:3], words[3:])
            elif words[1] in ("plot", "bench", "info", "help", "version"):
                flags = [word for word in words[2:] if word.startswith("-")]
                self.check_flags(where, words[1:2], flags)
            else:
                self.wrong.append(f"{where}: {command}: what is that?")

    def page(self, document):
        text = document.read_text()
        lines = list(lines_of(text))
        for at, (number, line) in enumerate(lines):
            if not COMMAND.match(line):
                continue
            expected = []
            while at + 1 < len(lines) and lines[at + 1][1].startswith("→ "):
                at += 1
                expected.append(lines[at][1][2:])
            self.type(f"{document.name}:{number}", line, expected)
        named = [word for word in DISKS + HOSTS if re.search(rf"(^|[\s=:]){re.escape(word)}\b", text)]
        if named and "placeholder" not in text:
            self.wrong.append(f"{document.name}: does not say that {', '.join(named)} are placeholders")

    def messages(self):
        """Those of faq.md, in the sources, where a text may go over several lines."""
        sources = "".join(file.read_text(errors="replace") for folder in ("src", "tools")
                          for file in (self.source / folder).rglob("*.cpp"))
        sources = re.sub(r'"\s*"', "", sources).replace("%s ", "")
        for message in re.findall(r"^- \*\*(.*?)\*\*", (self.source / "docs/guide/faq.md").read_text(),
                                  re.M | re.S):
            for words in re.findall(r"`([^`]+)`", message):
                if " ".join(words.split()) not in sources:
                    self.wrong.append(f"faq.md: no source says: {words}")


def main():
    source = pathlib.Path(sys.argv[1])
    folder = tempfile.mkdtemp()
    typist = Typist(source, sys.argv[2], sys.argv[3], pathlib.Path(sys.argv[4]), folder)
    for document in [source / "README.md", *sorted((source / "docs/guide").glob("*.md"))]:
        typist.page(document)
    typist.messages()
    shutil.rmtree(folder)
    print("\n".join(typist.wrong))
    print(f"commands: {typist.count} commands, {len(typist.wrong)} wrong")
    return 1 if typist.wrong or typist.count < 60 else 0


if __name__ == "__main__":
    sys.exit(main())
