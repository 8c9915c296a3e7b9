// SPDX-License-Identifier: Apache-2.0
// Runs an application under `kasane run`, for what it measures of itself.
// Thread safety: none needed; suites measure one thing at a time.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace kasane::bench {

/// The JSON object that a command writes to standard output (--json -), after whatever else it says. Throws std::runtime_error if it fails or is not verified.
nlohmann::json run_app(const std::string& command);

double median(std::vector<double> values);

}  // namespace kasane::bench
