// SPDX-License-Identifier: Apache-2.0
#include "ga.h"

#include <fmt/format.h>

#include <cstdio>
#include <filesystem>

#include "base/helper_folder.h"
#include "mpirun.h"

namespace kasane::tools {

int print_ga_variables(const std::string& mpi) {
  const std::string library = find_helper("ga/" + mpi + "/libarmci-" + mpi + ".so");
  if (library.empty()) {
    std::string known;
    bool is_one = false;
    for (const char* name : kMpis) {
      known += (known.empty() ? "" : " or ") + std::string(name);
      is_one |= mpi == name;
    }
    fmt::print(stderr, "kasane: {}\n",
               is_one
                   ? fmt::format("there is no ga/{0}/libarmci-{0}.so beside libkasane.so: build Kasane where "
                                 "{0} and armci.h are installed (Debian: libarmci-mpi-dev)",
                                 mpi)
                   : fmt::format("--ga takes the MPI of the program: {}, not {}", known, mpi));
    return 2;
  }
  const std::string folder = std::filesystem::canonical(library).parent_path();
  const auto line = [](const char* name, const std::string& path) {
    fmt::print("export {0}='{1}'${{{0}:+:${0}}}\n", name, path);
  };
  line("COMPILER_PATH", folder + "/bin");
  for (const char* name : {"LIBRARY_PATH", "LD_RUN_PATH", "LD_LIBRARY_PATH"}) line(name, folder);
  return 0;
}

}  // namespace kasane::tools
