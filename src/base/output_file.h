// SPDX-License-Identifier: Apache-2.0
// Files that a user names for output (--trace, --json). As the shell's `>`, but where all may write (/tmp) no
// link of another user is followed, also where fs.protected_symlinks is off: it would have this user
// overwrite a file of his own. Links in the path before the name are the kernel's affair.
// Thread safety: pure but for the file system.
#pragma once

#include <sys/stat.h>

#include <cstdio>
#include <string>

namespace kasane {

/// Is `link`, in that folder, one that another user has put where all may write?
[[nodiscard]] bool planted(const std::string& folder, const struct stat& link) noexcept;

/// For writing, emptied; null with errno. EACCES: the name is a planted link.
[[nodiscard]] std::FILE* open_output(const std::string& path) noexcept;

}  // namespace kasane
