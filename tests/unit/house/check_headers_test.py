# SPDX-License-Identifier: Apache-2.0
"""scripts/check_headers.py finds a header that does not include what it uses, and one that is not C."""
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

SCRIPT = pathlib.Path(__file__).resolve().parents[3] / "scripts" / "check_headers.py"
CXX, CC = os.environ.get("CXX", "c++"), os.environ.get("CC", "cc")


class CheckHeaders(unittest.TestCase):
    def check(self, files):
        with tempfile.TemporaryDirectory() as folder:
            for name, text in files.items():
                path = pathlib.Path(folder) / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
            command = [sys.executable, SCRIPT, folder, CXX, CC]
            done = subprocess.run(command, capture_output=True, text=True, timeout=120)
            return done.returncode, done.stdout

    def test_self_contained(self):
        status, output = self.check({"src/base/a.h": "#pragma once\n#include <cstdint>\n"
                                                     "inline std::uint64_t f() { return 1; }\n",
                                     "include/kasane/kasane.h": "#include <stdint.h>\nuint64_t f(void);\n"})
        self.assertEqual(status, 0, output)
        self.assertIn("3 compiled, 0 wrong", output)

    def test_a_header_that_leans_on_another(self):
        status, output = self.check({"src/base/a.h": "inline std::uint64_t f() { return 1; }\n"})
        self.assertEqual(status, 1)
        self.assertIn("a.h as c++", output)

    def test_a_c_header_with_cpp_in_it(self):
        status, output = self.check({"include/kasane/kasane.h": "namespace kasane {}\n"})
        self.assertEqual(status, 1)
        self.assertIn("kasane.h as c:", output)
        self.assertIn("2 compiled, 1 wrong", output)

    def test_a_name_that_a_programs_macro_hits(self):
        for name, wrong in (("N", 1), ("kMost", 0)):
            status, output = self.check({"include/kasane/a.hpp": "#include <cstddef>\n"
                                         f"template <std::size_t {name}>\nstruct Array {{}};\n"})
            self.assertEqual(status, wrong, output)
            self.assertEqual("behind macros" in output, wrong == 1)

    def test_nothing_to_compile_is_wrong(self):
        self.assertEqual(self.check({})[0], 1)


if __name__ == "__main__":
    unittest.main()
