// SPDX-License-Identifier: Apache-2.0
// Whether an installed program may run on several ranks (kasane run --preload), as far as its file and those
// of its libraries tell. A race that x86 hides is not seen in a file: so only programs that were examined run
// there without being asked for it.
//
// Files are read by libelf; instructions by Capstone, since the lock prefix is a byte like others: only a
// decoder knows where an instruction begins.
// Thread safety: one thread.
#pragma once

#include <string>

namespace kasane::tools {

struct Spread {
  std::string file;          ///< empty: there is no such program
  std::string examined;      ///< name and version in the list of examined programs; empty: it is not there
  std::string refusal;       ///< why it cannot; empty: nothing is known that forbids it
  std::string all_examined;  ///< "pigz 2.6, xz 5.4.1, …"
};

/// Within 5 s, or that is the refusal.
Spread may_spread(const std::string& name);

}  // namespace kasane::tools
