# SPDX-License-Identifier: Apache-2.0
"""scripts/check_includes.py finds planted wrong arrows in a small tree, and only those."""
import pathlib
import subprocess
import sys
import tempfile
import unittest

SCRIPT = pathlib.Path(__file__).resolve().parents[3] / "scripts" / "check_includes.py"

ROWS = '''set(KASANE_LAYERS
  "base    | src/base       | "
  "topo    | src/topo       | base"
  "gas     | src/gas        | topo"
  "dsm     | src/dsm        | gas"
  "sched   | src/sched      | gas"
  "sub     | src/gas/sub    | gas"
  "runtime | src/runtime    | dsm sched api"
  "api     | include/kasane | "
)
'''

TREE = {
    "src/base/ids.h": "#include <cstdint>\n",
    "src/base/log.cpp": '#include <spdlog/logger.h>\n#include "base/ids.h"\n',
    "src/topo/topo.cpp": "#include <hwloc.h>\n",
    "src/gas/gas.h": '#include "base/ids.h"   // over topo\n',
    "src/gas/near.h": '#include "gas.h"\n',
    "src/gas/sub/sub.h": '#include "gas/gas.h"\n',
    "src/dsm/dsm.h": '#include "gas/gas.h"\n',
    "src/sched/sched.h": '#include "gas/gas.h"\n',
    "src/runtime/api.cpp": '#include <kasane/kasane.hpp>\n#include "dsm/dsm.h"\n',
    "include/kasane/kasane.hpp": "#include <vector>\n#include <kasane/kasane.h>\n",
    "include/kasane/kasane.h": "#include <stdint.h>\n",
    "apps/common/report.h": "#include <string>\n",
    "apps/sort.cpp": '#include <kasane/kasane.hpp>\n#include <CLI/CLI.hpp>\n#include "common/report.h"\n',
    "tools/kasane.cpp": '#include "runtime/api.cpp"\n',
    "tests/support/ranks.h": "#include <vector>\n",
    "bench/core.cpp": '#include "support/ranks.h"\n#include "gas/gas.h"\n',
}


class CheckIncludes(unittest.TestCase):
    def check(self, planted, rows=ROWS):
        """Exit status and output for the tree above with the planted files in it."""
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            for name, text in {**TREE, **planted, "cmake/layers.cmake": rows}.items():
                path = root / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
            done = subprocess.run([sys.executable, SCRIPT, root], capture_output=True, text=True, timeout=60)
            return done.returncode, done.stdout + done.stderr

    def expect_wrong(self, planted, *words):
        status, output = self.check(planted)
        self.assertEqual(status, 1, output)
        self.assertIn(" 1 wrong", output)
        for word in words:
            self.assertIn(word, output)

    def test_the_small_tree_is_right(self):
        status, output = self.check({})
        self.assertEqual(status, 0, output)

    def test_upward_arrow(self):
        self.expect_wrong({"src/gas/bad.h": '\n#include "dsm/dsm.h"\n'},
                          "src/gas/bad.h:2", "gas may not include dsm")

    def test_dsm_and_sched_never_include_each_other(self):
        self.expect_wrong({"src/dsm/bad.cpp": '#include "sched/sched.h"\n'}, "dsm may not include sched")
        self.expect_wrong({"src/sched/bad.cpp": '#include "dsm/dsm.h"\n'}, "sched may not include dsm")

    def test_a_folder_inside_a_layer_is_a_layer_of_its_own(self):
        self.expect_wrong({"src/gas/bad.h": '#include "gas/sub/sub.h"\n'}, "gas may not include sub")

    def test_relative_paths_do_not_hide_an_arrow(self):
        self.expect_wrong({"src/gas/bad.h": '#include "../dsm/dsm.h"\n'}, "gas may not include dsm")

    def test_angle_brackets_do_not_hide_an_arrow(self):
        self.expect_wrong({"src/gas/bad.h": "#include <dsm/dsm.h>\n"}, "gas may not include dsm")
        self.expect_wrong({"apps/bad.cpp": "#  include  <gas/gas.h>\n"}, "apps may not include gas")

    def test_layers_do_not_see_the_public_headers(self):
        self.expect_wrong({"src/dsm/bad.cpp": "#include <kasane/kasane.hpp>\n"}, "dsm may not include api")

    def test_programs_see_only_the_public_headers(self):
        self.expect_wrong({"examples/bad.cpp": '#include "base/ids.h"\n'}, "examples may not include base")
        self.expect_wrong({"apps/bad.cpp": '#include "support/ranks.h"\n'},
                          '"support/ranks.h" is no file of ours')

    def test_public_headers_stand_alone(self):
        self.expect_wrong({"include/kasane/bad.h": "#include <sys/mman.h>\n"}, "only the standard library")
        self.expect_wrong({"include/kasane/bad.h": '#include "base/ids.h"\n'}, "api may not include base")

    def test_third_party_headers_have_their_places(self):
        self.expect_wrong({"src/gas/bad.cpp": "#include <hwloc.h>\n"}, "belongs to topo only")
        self.expect_wrong({"src/runtime/bad.cpp": "#include <spdlog/spdlog.h>\n"}, "belongs to base only")
        self.expect_wrong({"src/dsm/bad.cpp": "#include <CLI/App.hpp>\n"}, "not to dsm")
        self.expect_wrong({"src/base/bad.cpp": "#include <gtest/gtest.h>\n"}, "belongs to tests only")

    def test_a_file_in_no_layer(self):
        self.expect_wrong({"src/new/file.h": "\n"}, "src/new/file.h: lies in no layer")

    def test_a_header_that_is_not_there(self):
        self.expect_wrong({"src/gas/bad.cpp": '#include "gas/gone.h"\n'}, '"gas/gone.h" is no file of ours')

    def test_a_cycle_in_the_table(self):
        status, output = self.check({}, ROWS.replace('| src/base       | "', '| src/base       | dsm"'))
        self.assertEqual(status, 1)
        self.assertIn("cycle", output)

    def test_a_name_without_a_row(self):
        status, output = self.check({}, ROWS.replace('| base"', '| basis"'))
        self.assertEqual(status, 1)
        self.assertIn("basis", output)


if __name__ == "__main__":
    unittest.main()
