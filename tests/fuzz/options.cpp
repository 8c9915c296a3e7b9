// SPDX-License-Identifier: Apache-2.0
// Words of options: sizes, times, lists, and every row of the runtime's table. What is accepted is written as
// a word that means the same.
#include "base/options.h"

#include "fuzz.h"
#include "runtime/rank/options.h"

using namespace kasane;
using kasane::fuzz::expect;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  fuzz::Input input(bytes, size);
  const std::uint32_t which = input.below(256);
  const std::string word(input.rest());
  (void)parse_count(word);
  if (const auto value = parse_bytes(word)) {
    const auto again = parse_bytes(bytes_text(*value));
    expect(again && *again == *value, "a size that was written means the same");
  }
  if (const auto value = parse_duration(word)) {
    const auto again = parse_duration(duration_text(*value));
    expect(again && *again == *value, "a time that was written means the same");
  }
  runtime::Options options;
  OptionTable table = runtime::option_table(options);
  const std::size_t row = which % table.rows().size();
  if (!table.set(row, word, OptionSource::command_line)) return 0;
  const std::string written = table.value_text(row);
  if (written.empty()) return 0;
  expect(table.set(row, written, OptionSource::command_line).has_value(), "a value that was written is read");
  expect(table.value_text(row) == written, "a value that was written means the same");
  return 0;
}
