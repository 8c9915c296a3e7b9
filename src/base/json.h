// SPDX-License-Identifier: Apache-2.0
// JSON output. Include it in .cpp files only: the library's header is heavy.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "base/result.h"

namespace kasane {

/// Members keep the order in which they were added.
using Json = nlohmann::ordered_json;

/// Writes json, indented, with a line end, to the file at path; "-" is standard output.
Result<> write_json_file(const std::string& path, const Json& json);

}  // namespace kasane
