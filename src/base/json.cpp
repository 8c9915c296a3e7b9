// SPDX-License-Identifier: Apache-2.0
#include "base/json.h"

#include <cstdio>

#include "base/output_file.h"

namespace kasane {
namespace {

// Both calls set errno on failure; a full disk may be reported only by the close.
bool write_all(std::FILE* file, const std::string& text) {
  return std::fwrite(text.data(), 1, text.size(), file) == text.size() && std::fflush(file) == 0;
}

}  // namespace

Result<> write_json_file(const std::string& path, const Json& json) {
  // replace: a name that is not UTF-8 must not lose the results.
  const std::string text = json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
  if (path == "-") {
    if (!write_all(stdout, text)) return fail_errno(Errc::io, "cannot write JSON to standard output");
    return {};
  }
  std::FILE* file = open_output(path);
  if (file == nullptr) return fail_errno(Errc::io, "cannot open " + path + " for JSON output");
  const bool written = write_all(file, text);
  const int write_error = errno;
  if (std::fclose(file) != 0 && written) return fail_errno(Errc::io, "cannot write JSON to " + path);
  if (!written) return fail_errno(Errc::io, "cannot write JSON to " + path, write_error);
  return {};
}

}  // namespace kasane
