// SPDX-License-Identifier: Apache-2.0
// Option tables: one row an option gives its command-line flag, its KASANE_* variable, its default, its unit
// and its help.
// The rows are bound to members of a struct, whose initial values are the defaults:
//
//   struct Options { std::uint64_t space = 1ull << 40; bool tag = false, races = false; } o;
//   OptionTable table;
//   table.bytes("--space", "KASANE_SPACE", o.space, "size of the space", {64 << 10, 64ull << 40})
//        .flag("--tag-output", "KASANE_TAG_OUTPUT", o.tag, "put the rank before every line of output")
//        .list("--check", "KASANE_CHECK", OptionTable().flag("races", "", o.races, "races"), "checks");
//   KASANE_TRY(table.read_environment());      // then, where there is a command line:
//   add_flags(app, table);                     // options_cli.h, CLI11
//
// Precedence: flag, then variable, then default, in whatever order they are read. A value that
// cannot be used is an Error that names the flag or variable, the value, and what is accepted.
//
// Thread safety: none; one thread uses a table, and the members to which it is bound outlive it. It needs no
// static objects, so load-time constructors may use it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/result.h"

namespace kasane {

/// How a value is written: `bytes` 4096, 64K, 1T (powers of 1024); `duration` 20us, 1.5s (kept in ns); `flag`
/// a bool;
/// `list` items of other units, separated by commas: races,seed=3; `names` words, separated by commas.
enum class Unit : std::uint8_t { count, bytes, duration, text, choice, flag, list, names };

/// The values accepted, both ends included.
struct Range {
  std::uint64_t least = 0;
  std::uint64_t most = ~std::uint64_t{0};
};

/// The source of a value; the later one wins.
enum class OptionSource : std::uint8_t { preset, environment, command_line };

struct Option {
  /// "--space" or "-n,--ranks"; empty: only by variable. Of a list's item: its name, "races"
  std::string flag;
  std::string variable;  ///< "KASANE_SPACE"; empty: only by flag
  Unit unit;
  std::string help;
  std::variant<std::uint64_t*, std::string*, bool*> value = {};  ///< of a list: that of its items
  Range range = {};                                              ///< of count, bytes and duration
  std::vector<std::string> choices = {};  ///< of choice; with a bool: {the word for false, the word for true}
  /// of a flag that may have a time, which is stored here: --stats=10s
  std::uint64_t* period = nullptr;
  std::vector<Option> items = {};  ///< of a list
  bool open = false;               ///< of a list: unknown names belong to another table's list
  std::string preset = {};         ///< the default, as it would be written
  OptionSource source = OptionSource::preset;
  std::string group = {};  ///< the heading it stands below; empty: none
};

/// What happens to names that a list does not know: they are refused, or belong to another table's list.
enum class OtherItems : std::uint8_t { refused, ignored };

class OptionTable {
 public:
  OptionTable& count(std::string flag, std::string variable, std::uint64_t& value, std::string help,
                     Range = {});
  OptionTable& bytes(std::string flag, std::string variable, std::uint64_t& value, std::string help,
                     Range = {});
  /// value is in nanoseconds, and so is the range.
  OptionTable& duration(std::string flag, std::string variable, std::uint64_t& value, std::string help,
                        Range = {});
  OptionTable& text(std::string flag, std::string variable, std::string& value, std::string help);
  /// Words, separated by commas; on the command line each may have a flag of its own.
  OptionTable& names(std::string flag, std::string variable, std::string& value, std::string help);
  OptionTable& choice(std::string flag, std::string variable, std::string& value,
                      std::vector<std::string> choices, std::string help);
  /// A choice of two words: the first means false.
  OptionTable& choice(std::string flag, std::string variable, bool& value, std::string no, std::string yes,
                      std::string help);
  OptionTable& flag(std::string flag, std::string variable, bool& value, std::string help);
  /// A flag that may have a time, stored in nanoseconds: --stats, or --stats=10s; a time of 0 is off.
  OptionTable& flag(std::string flag, std::string variable, bool& value, std::uint64_t& period,
                    std::string help);
  /// Several values in one: NAME for a flag and NAME=VALUE for the others, separated by commas. The items are
  /// the rows of a table whose flags are bare names.
  /// Items that the text does not name get their defaults.
  OptionTable& list(std::string flag, std::string variable, const OptionTable& items, std::string help,
                    OtherItems = OtherItems::refused);
  /// The rows that follow stand below this heading.
  OptionTable& heading(std::string text);

  [[nodiscard]] const std::vector<Option>& rows() const noexcept { return rows_; }

  /// Reads every row's variable that is set, but of rows that the command line has set; an empty one counts
  /// as not set. The first unusable one is the error.
  Result<> read_environment();
  /// Sets the row from text; its source says whether an error names the flag or the variable.
  Result<> set(std::size_t row, std::string_view text, OptionSource);
  /// Sets the variables of all rows whose value was given, for a program about to be started.
  void write_environment() const;

  /// A sentence about each variable of the environment that begins with `prefix` and has no row: its name,
  /// and the row or item with a similar name.
  [[nodiscard]] std::vector<std::string> unknown_variables(std::string_view prefix) const;

  /// The row's value now, as it would be written.
  [[nodiscard]] std::string value_text(std::size_t row) const;
  /// A list for each heading, with variables and defaults, as Markdown.
  [[nodiscard]] std::string markdown() const;
  /// "[KASANE_SPACE, default 1T]", which the help of the command line has behind a row's help.
  [[nodiscard]] static std::string note(const Option&);
  /// "--ranks" of "-n,--ranks".
  [[nodiscard]] static std::string long_flag(const Option&);
  /// Metavariable of a row's value: COUNT, SIZE, TIME, TEXT, a|b|c, NAME,... or NAME=VALUE,...; empty for a
  /// flag.
  [[nodiscard]] static std::string placeholder(const Option&);

  /// "--debug seed=COUNT": how a list's item is given on the command line; by variable
  /// "KASANE_DEBUG=seed=COUNT".
  [[nodiscard]] static std::string item_text(const std::string& list, const Option& item);

 private:
  OptionTable& add(Option row);
  std::vector<Option> rows_;
  std::string group_;
};

// The units, for other code that reads or prints such values. The error says what was expected, not for which
// option.
Result<std::uint64_t> parse_count(std::string_view text);
Result<std::uint64_t> parse_bytes(std::string_view text);
/// In nanoseconds. A number needs its unit (ns, us, ms, s, min), only 0 does not.
Result<std::uint64_t> parse_duration(std::string_view text);
/// The shortest exact form: 65536 is "64K", 1000 is "1000".
[[nodiscard]] std::string bytes_text(std::uint64_t bytes);
[[nodiscard]] std::string duration_text(std::uint64_t ns);

}  // namespace kasane
