#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Fails if a file does not say its licence in its first six lines, if a link of a Markdown file leads
nowhere, or if a document names a function, as in `src/base/deque.h: Deque::pop`, that is not in that file.
So it is with the words in backquotes of a table that stands below a line <!-- names of src/base/deque.h -->.
Lines of documents have at most 100 characters, lines of code, scripts and build files 110. Some
documents have a limit of lines, too (MOST_LINES).

Reads what git tracks, or all files where the folder is no checkout. Usage: check_documents.py [ROOT]
"""
import pathlib
import re
import subprocess
import sys

# What has no comments, and the program that README.md shows whole.
NO_LICENCE_LINE = {".md", ".json"}
NAMES = {"LICENSE", ".gitignore", ".clang-format", ".clang-tidy"}
SHOWN = {"tests/multi/install/hello/hello.cpp"}
SEEDS = "tests/fuzz/seeds/"  # bytes
MOST_COLUMNS = 100
MOST_COLUMNS_OF_CODE = 110
CODE_SUFFIXES = {".h", ".hpp", ".c", ".cpp", ".S", ".inc", ".cmake", ".in", ".map", ".supp", ".sh", ".py",
                 ".json"}
CODE_NAMES = {"CMakeLists.txt", "Makefile", ".clang-format", ".clang-tidy"}
MOST_LINES = {"README.md": 100, "docs/performance.md": 200, "docs/design/dsm.md": 300}
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
NAMED = re.compile(r"`([\w./-]+\.(?:h|hpp|cpp|S|py|cmake)):\s+([\w:~]+)`")
TABLE = re.compile(r"^<!-- names of (\S+) -->\n((?:\|.*\n)+)", re.M)
CODE = re.compile(r"```.*?```|`[^`\n]*`|^    [^\n]*$", re.S | re.M)


def files_of(root):
    command = ["git", "-C", root, "ls-files", "-z"]
    listed = subprocess.run(command, capture_output=True, text=True, check=False)
    if listed.returncode == 0:
        return [root / name for name in listed.stdout.split("\0") if name and (root / name).is_file()]
    return [file for file in root.rglob("*") if file.is_file()]


def anchors_of(file):
    """As hosts of repositories make them of headings."""
    found = set(re.findall(r'<a (?:id|name)="([^"]+)"', file.read_text()))
    for heading in re.findall(r"^#+ (.*)$", file.read_text(), re.M):
        text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).strip().lower()
        found.add(re.sub(r"[^\w\- ]", "", text).replace(" ", "-"))
    return found


def check_links(root, file):
    for target in LINK.findall(CODE.sub("", file.read_text())):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        where = (file.parent / path).resolve() if path else file
        if not where.exists():
            yield f"{file.relative_to(root)}: ({target}) leads to no file"
        elif anchor and where.suffix == ".md" and anchor not in anchors_of(where):
            yield f"{file.relative_to(root)}: ({target}) leads to no heading"


def has_name(text, name):
    """The name as a whole, or, since a body inside its class does not repeat that, each of its parts."""
    return name in text or all(re.search(rf"\b{re.escape(part)}\b", text) for part in name.split("::"))


def names_of(text):
    """Pairs of a path and a name that should be in that file."""
    yield from NAMED.findall(text)
    for path, table in TABLE.findall(text):
        yield from ((path, name) for name in sorted(set(re.findall(r"`([^`]+)`", table))))


def check_names(root, file):
    for path, name in names_of(file.read_text()):
        where = root / path
        if not where.is_file():
            yield f"{file.relative_to(root)}: there is no {path}"
        elif not has_name(where.read_text(), name):
            yield f"{file.relative_to(root)}: {path} has no {name}"


def is_code(file):
    """Whether the file is source, a build file or a script. A script without a suffix begins with #!."""
    if file.suffix in CODE_SUFFIXES or file.name in CODE_NAMES:
        return True
    with file.open("rb") as content:
        return content.read(2) == b"#!"


def check_columns(root, file, most):
    for number, line in enumerate(file.read_text(errors="replace").split("\n"), 1):
        if len(line) > most:
            yield f"{file.relative_to(root).as_posix()}:{number}: {len(line)} columns, more than {most}"


def check_lines(root, file):
    name = file.relative_to(root).as_posix()
    lines = file.read_text().splitlines()
    if len(lines) > MOST_LINES.get(name, len(lines)):
        yield f"{name}: {len(lines)} lines, more than {MOST_LINES[name]}"


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent.parent).resolve()
    problems, files = [], files_of(root)
    for file in sorted(files):
        path = file.relative_to(root).as_posix()
        if file.suffix == ".md":
            problems += check_links(root, file)
            problems += check_names(root, file)
            problems += check_columns(root, file, MOST_COLUMNS)
            problems += check_lines(root, file)
        elif is_code(file):
            problems += check_columns(root, file, MOST_COLUMNS_OF_CODE)
        if file.suffix in NO_LICENCE_LINE or file.name in NAMES or path in SHOWN or path.startswith(SEEDS):
            continue
        head = "".join(file.read_text(errors="replace").splitlines(True)[:6])
        if "SPDX-License-Identifier: Apache-2.0" not in head:
            problems.append(f"{path}: says no licence (SPDX-License-Identifier: Apache-2.0)")
    print("\n".join(problems))
    print(f"check_documents: {len(files)} files, {len(problems)} wrong")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
