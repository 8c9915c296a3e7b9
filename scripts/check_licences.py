#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Fails if a file of the tree does not say its licence in its first six lines. Usage: check_licences.py [ROOT]"""
import pathlib
import sys

# What has no comments, and the program that README.md shows whole.
LEFT_OUT = {".md", ".json"}
NAMES = {"LICENSE", ".gitignore", ".clang-format", ".clang-tidy"}
SHOWN = {"tests/multi/install/hello/hello.cpp"}
FOLDERS = {".git", "build"}


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent.parent).resolve()
    wrong, count = [], 0
    for file in sorted(root.rglob("*")):
        path = file.relative_to(root)
        if not file.is_file() or path.parts[0] in FOLDERS or "__pycache__" in path.parts:
            continue
        if file.suffix in LEFT_OUT or file.name in NAMES or path.as_posix() in SHOWN:
            continue
        count += 1
        head = "".join(file.read_text(errors="replace").splitlines(True)[:6])
        if "SPDX-License-Identifier: Apache-2.0" not in head:
            wrong.append(path.as_posix())
    print("\n".join(wrong))
    print(f"check_licences: {count} files, {len(wrong)} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
