# SPDX-License-Identifier: Apache-2.0
"""scripts/check_documents.py finds a file without a licence line, a link to no file or heading, a function
that is not there, a document that is too wide or too long, and code that is too wide."""
import pathlib
import subprocess
import sys
import tempfile
import unittest

SCRIPT = pathlib.Path(__file__).resolve().parents[3] / "scripts" / "check_documents.py"
LINE = "// SPDX-License-Identifier: Apache-2.0\n"


class CheckDocuments(unittest.TestCase):
    def check(self, files):
        with tempfile.TemporaryDirectory() as folder:
            for name, text in files.items():
                path = pathlib.Path(folder) / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
            command = [sys.executable, SCRIPT, folder]
            done = subprocess.run(command, capture_output=True, text=True, timeout=60)
            return done.returncode, done.stdout

    def test_all_is_well(self):
        status, output = self.check({
            "a.cpp": LINE,
            "a.md": "[b](docs/b.md#two-words) [c](#here)\n# Here\n",
            "docs/b.md": "## Two `words`\n"})
        self.assertEqual(status, 0, output)

    def test_no_licence(self):
        status, output = self.check({"a.cpp": "int a;\n"})
        self.assertEqual(status, 1)
        self.assertIn("a.cpp: says no licence", output)

    def test_links_that_lead_nowhere(self):
        status, output = self.check({"a.md": "[b](b.md) [c](c.md#no)\n", "c.md": "# Yes\n"})
        self.assertEqual(status, 1)
        self.assertIn("a.md: (b.md) leads to no file", output)
        self.assertIn("a.md: (c.md#no) leads to no heading", output)

    def test_links_after_indented_code(self):
        status, output = self.check({"a.md": "    code [a](a)\n\n[b](b.md)\n\n    more\n[c](c.md)\n"})
        self.assertEqual(status, 1)
        self.assertIn("a.md: (b.md) leads to no file", output)
        self.assertIn("a.md: (c.md) leads to no file", output)
        self.assertIn("2 wrong", output)

    def test_functions_that_are_not_there(self):
        status, output = self.check({
            "src/a.h": LINE + "class A { void f(); };\n",
            "a.md": "`src/a.h: A::f` `src/a.h: A::g` `src/b.h: f` `src/a.h`\n"})
        self.assertEqual(status, 1)
        self.assertIn("a.md: src/a.h has no A::g", output)
        self.assertIn("a.md: there is no src/b.h", output)
        self.assertIn("2 wrong", output)

    def test_names_of_a_table_that_are_not_there(self):
        status, output = self.check({
            "src/a.h": LINE + "enum class A { one, two };\n",
            "a.md": "<!-- names of src/a.h -->\n| `one` | `three` → `two` |\n|---|---|\n\n| `four` |\n"})
        self.assertEqual(status, 1)
        self.assertIn("a.md: src/a.h has no three", output)
        self.assertIn("1 wrong", output)

    def test_too_wide_or_too_long(self):
        status, output = self.check({"a.md": "é" * 100 + "\n" + "é" * 101 + "\n", "README.md": "a\n" * 101})
        self.assertEqual(status, 1)
        self.assertIn("a.md:2: 101 columns, more than 100", output)
        self.assertIn("README.md: 101 lines, more than 100", output)
        self.assertIn("2 wrong", output)

    def test_code_that_is_too_wide(self):
        names = ("a.h", "b.hpp", "c.cpp", "d.c", "e.S", "CMakeLists.txt", "f.cmake", "g.in", "h.sh", "i.py",
                 "Makefile", "j.json")
        files = {name: LINE + "é" * 110 + "\n" + "é" * 111 + "\n" for name in names}
        files["run"] = "#!/bin/sh\n" + LINE + "é" * 110 + "\n" + "é" * 111
        files["data.txt"] = LINE + "é" * 111 + "\n"
        status, output = self.check(files)
        self.assertEqual(status, 1)
        for name in names:
            self.assertIn(f"{name}:3: 111 columns, more than 110", output)
        self.assertIn("run:4: 111 columns, more than 110", output)
        self.assertIn(f"{len(names) + 1} wrong", output)


if __name__ == "__main__":
    unittest.main()
