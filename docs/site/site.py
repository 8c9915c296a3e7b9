#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`make site`: README, guide, design and the other documents as pages, with a search, dark and light; and the
reference of include/kasane by Doxygen, whose warnings are errors. A link that leads nowhere is one, too.

Usage: site.py FOLDER   (which is written anew; needs Doxygen and Debian's python3-markdown)
"""
import html
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import textwrap

import markdown

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
HERE = pathlib.Path(__file__).resolve().parent
PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>{title} – Kasane</title><link rel="icon" href="data:,"><link rel="stylesheet" href="{root}site.css">
</head><body><nav><a href="{root}index.html"><b>Kasane</b></a>
<input id="search" type="search" placeholder="Search" aria-label="Search"><div id="found"></div>
<button id="colours">dark / light</button>{menu}</nav><main>{body}</main>
<script>const kasaneRoot = "{root}";</script><script src="{root}pages.js"></script>
<script src="{root}site.js"></script></body></html>
"""
GROUPS = [("Guide", "docs/guide"), ("Design", "docs/design"), ("Figures", "docs"), ("Project", ".")]


def title_of(text):
    return re.sub(r"[`*]", "", re.search(r"^# (.*)$", text, re.M).group(1))


class Site:
    def __init__(self, out):
        self.out, self.problems, self.parts = out, [], []
        names = subprocess.run(["git", "-C", ROOT, "ls-files", "*.md"], capture_output=True, text=True,
                               check=True).stdout.split()
        self.texts = {name: (ROOT / name).read_text() for name in names}
        self.titles = {name: title_of(text) for name, text in self.texts.items()}

    def url(self, name):
        """Of a document, from the root of the site."""
        if name == "README.md":
            return "index.html"
        return re.sub(r"README$", "index", name[:-3]) + ".html"

    def menu(self, name, root):
        text = f'<h2>Reference</h2><a href="{root}api/index.html">include/kasane</a>'
        for group, folder in GROUPS:
            names = [n for n in sorted(self.texts, key=lambda n: (not n.endswith("README.md"), n))
                     if str(pathlib.PurePath(n).parent) == folder]
            text += f"<h2>{group}</h2>"
            for n in names:
                here = ' class="here"' if n == name else ""
                text += f'<a{here} href="{root}{self.url(n)}">{html.escape(self.titles[n])}</a>'
        return text

    def source(self, path):
        """A file of the tree, or the list of a folder, for those who follow a link to it."""
        where = self.out / "source" / (path + ".txt")
        where.parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / path).is_dir():
            names = subprocess.run(["git", "-C", ROOT, "ls-files", path], capture_output=True, text=True,
                                   check=True).stdout.split()
            where = self.out / "source" / path / "index.html"
            where.parent.mkdir(parents=True, exist_ok=True)
            items = ""
            for n in names:
                self.source(n)
                relative = os.path.relpath(n, path)
                items += f'<li><a href="{relative}.txt">{relative}</a>'
            where.write_text(f"<!doctype html><meta charset='utf-8'><title>{path}</title><ul>{items}</ul>")
        elif not where.exists():
            shutil.copyfile(ROOT / path, where)
        return where.relative_to(self.out).as_posix()

    def link(self, name, root, target):
        if re.match(r"[a-z]+:", target) or target.startswith("#"):
            return target
        path, _, anchor = target.partition("#")
        path = os.path.normpath(os.path.join(os.path.dirname(name), path))
        if path in self.texts:
            return root + self.url(path) + ("#" + anchor if anchor else "")
        if not (ROOT / path).exists():
            self.problems.append(f"{name}: ({target}) leads nowhere")
            return target
        return root + self.source(path)

    def page(self, name):
        where = self.out / self.url(name)
        root = os.path.relpath(self.out, where.parent) + "/"
        text = re.sub(r"^<!--.*-->$", "", self.texts[name], flags=re.M)
        # A list may follow a line at once, as on hosts of repositories.
        text = re.sub(r"^((?! *(?:[-*]|\d+\.) |  |\|).+)\n(?=(?:[-*]|1\.) )", r"\1\n\n", text, flags=re.M)
        body = markdown.Markdown(extensions=["extra", "toc", "sane_lists"], tab_length=2,
                                 extension_configs={"toc": {"slugify": slug}}).convert(text)
        # Blocks by four spaces keep two of them, as tab_length takes two.
        body = re.sub(r"<pre><code>(.*?)</code></pre>",
                      lambda m: f"<pre><code>{textwrap.dedent(m.group(1))}</code></pre>", body, flags=re.S)
        body = re.sub(r'(<a href=")([^"]+)', lambda m: m.group(1) + self.link(name, root, m.group(2)), body)
        where.parent.mkdir(parents=True, exist_ok=True)
        where.write_text(PAGE.format(title=html.escape(self.titles[name]), root=root, body=body,
                                     menu=self.menu(name, root)))
        for part in re.split(r"(?=<h[1-3] id=)", body):
            head = re.match(r'<h[1-3] id="([^"]*)">(.*?)</h', part, re.S)
            plain = " ".join(html.unescape(re.sub(r"<[^>]+>", " ", part)).split())
            if head and plain:
                heading = html.unescape(re.sub(r"<[^>]+>", "", head.group(2)))
                self.parts.append({"url": f"{self.url(name)}#{head.group(1)}", "page": self.titles[name],
                                   "head": heading, "text": plain})

    def check_anchors(self):
        ids = {}
        for file in self.out.rglob("*.html"):
            if "api" not in file.relative_to(self.out).parts:
                ids[file.resolve()] = set(re.findall(r' id="([^"]+)"', file.read_text()))
        for file, own in ids.items():
            for target in re.findall(r'<a (?:class="here" )?href="([^"]+)"', file.read_text()):
                path, _, anchor = target.partition("#")
                if re.match(r"[a-z]+:", target) or not anchor:
                    continue
                where = (file.parent / path).resolve() if path else file
                if where in ids and anchor not in ids[where]:
                    self.problems.append(f"{file.relative_to(self.out)}: no heading {target}")

    def reference(self):
        settings = f"@INCLUDE = {HERE / 'Doxyfile'}\nOUTPUT_DIRECTORY = {self.out}\nHTML_OUTPUT = api\n"
        done = subprocess.run(["doxygen", "-"], input=settings, capture_output=True, text=True, check=False,
                              cwd=ROOT)
        self.problems += [line for line in done.stderr.splitlines() if line]
        if done.returncode != 0 and not self.problems:
            self.problems.append(f"doxygen ended with {done.returncode}")
            return
        # Its main page has nothing: the list of the headers, and the way back.
        first, files = self.out / "api/index.html", (self.out / "api/files.html").read_text()
        table = re.search(r'<div class="directory">.*?</table>\s*</div>', files, re.S)
        text, count = re.subn(r'(<div class="contents">)\s*(</div><!-- contents -->)', lambda m: m.group(1)
                              + '<p><a href="../index.html">Guide and design</a></p>'
                              + (table.group(0) if table else "") + m.group(2), first.read_text())
        if table is None or count != 1:
            self.problems.append("api/index.html: no place for the list of headers")
        first.write_text(text)


def slug(text, separator):
    """The anchors of hosts of repositories, which the documents use."""
    return re.sub(r"[^\w\- ]", "", text.strip().lower()).replace(" ", separator)


def main():
    out = pathlib.Path(sys.argv[1]).resolve()
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    site = Site(out)
    for name in site.texts:
        site.page(name)
    site.check_anchors()
    (out / "pages.js").write_text("const kasanePages = " + json.dumps(site.parts, ensure_ascii=False) + ";\n")
    for name in ("site.css", "site.js"):
        shutil.copyfile(HERE / name, out / name)
    site.reference()
    print("\n".join(site.problems))
    print(f"site: {len(site.texts)} pages in {out}, {len(site.problems)} wrong")
    return 1 if site.problems else 0


if __name__ == "__main__":
    sys.exit(main())
