// SPDX-License-Identifier: Apache-2.0
// Runs an application under `kasane run`, for what it measures of itself.
// Thread safety: none needed; suites measure one thing at a time.
#pragma once

#include <string>
#include <vector>

namespace kasane::bench {

/// Figures of the JSON object that a command writes to standard output (--json -), after whatever else it
/// says: each a number, or a list of them, by its path ("/result/gigaflops"); one after the other. Throws
/// std::runtime_error if the command fails, is not verified, or does not say one.
std::vector<double> run_app(const std::string& command, const std::vector<std::string>& figures);

}  // namespace kasane::bench
