// SPDX-License-Identifier: Apache-2.0
#include "common/plot_rows.h"

#include <nlohmann/json.hpp>

#include "common/text_file.h"

namespace apps {

void write_plot_rows(const nlohmann::ordered_json& rows, const std::string& file) {
  const std::string text = rows.dump(1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
  LineWriter writer(file);
  writer.line(text.data(), text.size());
  writer.close();
}

}  // namespace apps
