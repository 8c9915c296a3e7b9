#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Doxygen's input filter: in the headers of include/kasane a comment holds for all declarations below it,
up to the next empty line, and that of a class for what it says of its members (lock and unlock of a mutex,
the operators of a pointer). Doxygen knows only the first, so this repeats the comment before each further
declaration that has none of its own, and says of a member where to look.

Usage: group_comments.py HEADER   (prints it)
"""
import re
import sys

SCOPE = re.compile(r"\b(namespace|class|struct|union|enum|extern)\b[^;()=]*\{\s*$")


NAMED = re.compile(r"\b(?:class|struct|union|enum class|enum) (?:alignas\S* |\[\[\w+\]\] )?(\w+)")
# Several names in one declaration: Doxygen knows the first.
NAMES = r"\w+(?:\[\w*\])?(?:\{\}| = [^,;]*)?"
SEVERAL = re.compile(rf"^(\s*[\w:<>&*, ]+?[\w>&*] )((?:{NAMES}, )+{NAMES});(\s*///?<.*)?$")


def is_comment(line):
    return line.startswith(("///", "/**", "*", "//", "/*"))


class Group:
    """What stands between two empty lines, in one scope."""

    def __init__(self, of_class=()):
        self.comment = list(of_class)   # lines
        self.of_class = of_class        # what holds where there is none
        self.fresh = False   # the comment, or none, belongs to the declaration that begins now


def repeated(text):
    out, scopes, group = [], [], Group()
    depth, parens, begun, in_block = 0, 0, False, False
    for line in text.split("\n"):
        stripped = line.strip()
        if in_block or stripped.startswith("/**"):
            if not in_block:
                group.comment, group.fresh = [], True
            group.comment.append(line)
            in_block = "*/" not in stripped
            out.append(line)
            continue
        if not begun and stripped.startswith("///") and not stripped.startswith("///<"):
            if not group.fresh:
                group.comment, group.fresh = [], True
            group.comment.append(line)
            out.append(line)
            continue
        code = re.sub(r"//.*|/\*.*?\*/", "", re.sub(r'"(\\.|[^"\\])*"|\'(\\.|[^\'\\])\'', '""', line)).strip()
        if depth == 0 and stripped.startswith("}"):   # of a scope; the last value of an enum has no comma
            group, begun = scopes.pop() if scopes else Group(), False
            out.append(line)
            continue
        if not begun:
            if not stripped or re.match(r"(public|private|protected):", stripped):
                group = Group(group.of_class)
                out.append(line)
                continue
            if re.match(r"// (?!--|SPDX-)", stripped):
                if not group.fresh:
                    group.comment, group.fresh = [], True
                group.comment.append(line.replace("//", "///", 1))
                out.append(group.comment[-1])
                continue
            if is_comment(stripped):
                out.append(line)
                continue
            if group.comment and not group.fresh and "///<" not in line and "/**<" not in line:
                if stripped.startswith("#") and not stripped.startswith("#define"):
                    out.append(line)
                    continue
                out.extend(group.comment)
        # Of a declaration, which goes on to ; or } outside of all braces.
        several = SEVERAL.match(line) if not begun and depth == 0 else None
        group.fresh, begun = False, True
        if several:
            for name in re.split(r", (?=\w)", several.group(2)):
                if not out[-1].endswith(tuple(group.comment[-1:]) or ("\0",)):
                    out.extend(group.comment)
                out.append(f"{several.group(1)}{name};{several.group(3) or ''}")
            begun = False
            continue
        out.append(line)
        if stripped.startswith("#"):
            begun = stripped.endswith("\\")
            continue
        if SCOPE.search(code) and depth == 0:
            scopes.append(group)
            name = NAMED.search(code)
            of_class = ("/// As described of %s." % name.group(1),) if name and group.comment else ()
            group, begun = Group(of_class), False
            continue
        depth += code.count("{") - code.count("}")
        parens += code.count("(") - code.count(")")
        if depth == 0 and parens == 0 and code.endswith((";", "}")):
            begun = False
        elif depth == 0 and parens == 0 and scopes and re.match(r"\w+(\s*=.*)?,$", code):
            begun = False   # a value of an enum
    return "\n".join(out)


if __name__ == "__main__":
    print(repeated(open(sys.argv[1], encoding="utf-8").read()), end="")
