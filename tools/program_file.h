// SPDX-License-Identifier: Apache-2.0
// Finds a program and inspects it before it is started.
#pragma once

#include <optional>
#include <string>

namespace kasane::tools {

/// The file that execvp(3) would execute for name; empty: the PATH has none.
std::string find_program(const std::string& name);

/// False only for an ELF program, found as execvp(3) would find it, that does not contain Kasane's load-time
/// start. Scripts and files that cannot be read may start such a program.
bool may_be_kasane_program(const std::string& name);

/// How an ELF program was compiled, as far as its object files say (<kasane/built_with.h>): a letter for
/// each, c: its atomics are calls; i: they are inline. Empty: none says so. None: it is no such program.
std::optional<std::string> built_with(const std::string& name);

}  // namespace kasane::tools
