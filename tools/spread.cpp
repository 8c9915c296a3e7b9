// SPDX-License-Identifier: Apache-2.0
#include "spread.h"

#include <unistd.h>

#include <sstream>

#include "base/helper_folder.h"
#include "execute.h"
#include "program_file.h"

namespace kasane::tools {

Spread may_spread(const std::string& name) {
  Spread found;
  found.file = find_program(name);
  if (::access(found.file.c_str(), X_OK) != 0) return {};
  std::istringstream said(output_of({find_helper("kasane-examine"), found.file}));
  if (!std::getline(said, found.examined) || !std::getline(said, found.refusal) ||
      !std::getline(said, found.all_examined))
    found.refusal =
        "it could not be examined within 5 s (kasane-examine, an installed helper of the command)";
  return found;
}

}  // namespace kasane::tools
