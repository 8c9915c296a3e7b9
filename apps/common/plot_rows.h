// SPDX-License-Identifier: Apache-2.0
// Rows for `kasane plot`, as `kasane bench --json` writes them.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace apps {

/// Writes an array of rows. Names in them may be in any encoding. Errors: std::runtime_error, as LineWriter.
void write_plot_rows(const nlohmann::ordered_json& rows, const std::string& file);

}  // namespace apps
