// SPDX-License-Identifier: Apache-2.0
#include "base/options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <iterator>

#include "base/environment.h"
#include "base/nearest.h"
#include "base/text_table.h"

namespace kasane {
namespace {

struct Suffix {
  std::string_view text;
  std::uint64_t factor;
};

// Largest first: the shortest exact form is the first that divides.
constexpr Suffix kByteSuffixes[] = {
    {"P", 1ull << 50}, {"T", 1ull << 40}, {"G", 1ull << 30}, {"M", 1ull << 20}, {"K", 1ull << 10}};
constexpr Suffix kTimeSuffixes[] = {
    {"min", 60'000'000'000}, {"s", 1'000'000'000}, {"ms", 1'000'000}, {"us", 1'000}, {"ns", 1}};

constexpr std::uint64_t kLongestPeriod = 86'400'000'000'000;  // a day

constexpr const char* kCountWanted = "expected a whole number such as 4";
constexpr const char* kBytesWanted = "expected a size such as 4096, 64K, 512M or 1T";
constexpr const char* kDurationWanted = "expected a time with its unit such as 20us, 1.5s or 2min";

// The number at the begin of text; rest: what follows. No sign and no space are accepted, so a wrong value is
// never partly read.
template <class Number>
bool leading_number(std::string_view text, Number& number, std::string_view& rest) {
  if (text.empty() || text.front() < '0' || text.front() > '9') return false;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc()) return false;
  rest = text.substr(static_cast<std::size_t>(end - text.data()));
  return true;
}

// "KiB", "KB", "k" are all K: sizes here are always powers of 1024.
std::string_view byte_suffix(std::string_view rest) {
  if (rest.ends_with("iB")) return rest.substr(0, rest.size() - 2);
  if (rest.ends_with("B")) return rest.substr(0, rest.size() - 1);
  return rest;
}

template <std::size_t N>
std::string shortest(std::uint64_t value, const Suffix (&suffixes)[N]) {
  for (const Suffix& s : suffixes)
    if (value != 0 && value % s.factor == 0) return fmt::format("{}{}", value / s.factor, s.text);
  return fmt::format("{}", value);
}

Result<bool> parse_switch(std::string_view text) {
  for (std::string_view yes : {"1", "on", "true", "yes"})
    if (text == yes) return true;
  for (std::string_view no : {"0", "off", "false", "no"})
    if (text == no) return false;
  return fail(Errc::invalid_argument, "expected 1 or 0 (also on/off, true/false, yes/no)");
}

std::string number_text(Unit unit, std::uint64_t value) {
  switch (unit) {
    case Unit::bytes: return bytes_text(value);
    case Unit::duration: return duration_text(value);
    default: return fmt::format("{}", value);
  }
}

Result<std::uint64_t> parse_number(Unit unit, std::string_view text) {
  switch (unit) {
    case Unit::bytes: return parse_bytes(text);
    case Unit::duration: return parse_duration(text);
    default: return parse_count(text);
  }
}

Result<> check_range(const Option& row, std::uint64_t number) {
  if (number < row.range.least)
    return fail(Errc::invalid_argument, "must be at least " + number_text(row.unit, row.range.least));
  if (number > row.range.most)
    return fail(Errc::invalid_argument, "must be at most " + number_text(row.unit, row.range.most));
  return {};
}

Result<> assign_choice(const Option& row, std::string_view text) {
  const auto found = std::find(row.choices.begin(), row.choices.end(), text);
  if (found == row.choices.end())
    return fail(Errc::invalid_argument, fmt::format("expected one of {}", fmt::join(row.choices, ", ")));
  if (auto* words = std::get_if<std::string*>(&row.value))
    **words = *found;
  else
    *std::get<bool*>(row.value) = found != row.choices.begin();
  return {};
}

Result<> assign_flag(const Option& row, std::string_view text) {
  auto on = parse_switch(text);
  if (!on && row.period != nullptr) {
    const auto time = parse_duration(text);
    if (!time)
      return fail(Errc::invalid_argument, std::string("expected 1, 0 or a time: ") + kDurationWanted);
    KASANE_TRY(check_range(row, *time));
    *row.period = *time;
    on = *time != 0;
  }
  KASANE_TRY(on);
  *std::get<bool*>(row.value) = *on;
  return {};
}

Result<> assign(const Option& row, std::string_view text);

/// NAME or NAME=VALUE.
Result<> assign_item(const Option& list, std::string_view text) {
  const std::size_t equals = text.find('=');
  const std::string_view name = text.substr(0, equals);
  const auto item = std::ranges::find(list.items, name, &Option::flag);
  if (item == list.items.end()) {
    if (list.open) return {};
    std::vector<std::string> names;
    std::ranges::transform(list.items, std::back_inserter(names), &Option::flag);
    return fail(Errc::invalid_argument, fmt::format("there is no {}{} (known: {})", name,
                                                    suggestion(name, names), fmt::join(names, ", ")));
  }
  if (equals == std::string_view::npos && item->unit != Unit::flag) {
    return fail(Errc::invalid_argument,
                fmt::format("{} has a value: {}={}", name, name, OptionTable::placeholder(*item)));
  }
  const auto done = assign(*item, equals == std::string_view::npos ? "1" : text.substr(equals + 1));
  return done ? Result<>() : fail(done.error().code, fmt::format("{}: {}", name, done.error().message));
}

Result<> assign_list(const Option& row, std::string_view text) {
  for (const Option& item : row.items) KASANE_TRY(assign(item, item.preset));
  while (!text.empty()) {
    const std::size_t comma = std::min(text.find(','), text.size());
    KASANE_TRY(assign_item(row, text.substr(0, comma)));
    text.remove_prefix(std::min(comma + 1, text.size()));
  }
  return {};
}

Result<> assign(const Option& row, std::string_view text) {
  switch (row.unit) {
    case Unit::text:
    case Unit::names: *std::get<std::string*>(row.value) = text; return {};
    case Unit::choice: return assign_choice(row, text);
    case Unit::flag: return assign_flag(row, text);
    case Unit::list: return assign_list(row, text);
    case Unit::count:
    case Unit::bytes:
    case Unit::duration: break;
  }
  auto number = parse_number(row.unit, text);
  if (!number) return tl::unexpected<Error>(std::move(number).error());
  KASANE_TRY(check_range(row, *number));
  *std::get<std::uint64_t*>(row.value) = *number;
  return {};
}

/// "post-buffer" → "POST_BUFFER".
std::string as_variable(std::string name) {
  for (char& c : name) c = c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return name;
}

std::string current_text(const Option& row);

/// The items that do not have their defaults.
std::string list_text(const Option& row) {
  std::vector<std::string> given;
  for (const Option& item : row.items) {
    const std::string value = current_text(item);
    if (value != item.preset)
      given.push_back(item.unit == Unit::flag && value == "1" ? item.flag : item.flag + "=" + value);
  }
  return fmt::format("{}", fmt::join(given, ","));
}

std::string current_text(const Option& row) {
  if (row.unit == Unit::list) return list_text(row);
  if (auto* number = std::get_if<std::uint64_t*>(&row.value)) return number_text(row.unit, **number);
  if (auto* words = std::get_if<std::string*>(&row.value)) return **words;
  const bool on = *std::get<bool*>(row.value);
  if (on && row.period != nullptr && *row.period != 0) return duration_text(*row.period);
  return row.unit == Unit::choice ? row.choices[on ? 1 : 0] : (on ? "1" : "0");
}

}  // namespace

Result<std::uint64_t> parse_count(std::string_view text) {
  std::uint64_t number = 0;
  std::string_view rest;
  if (!leading_number(text, number, rest) || !rest.empty()) return fail(Errc::invalid_argument, kCountWanted);
  return number;
}

Result<std::uint64_t> parse_bytes(std::string_view text) {
  std::uint64_t number = 0;
  std::string_view rest;
  if (!leading_number(text, number, rest)) return fail(Errc::invalid_argument, kBytesWanted);
  rest = byte_suffix(rest);
  if (rest.empty()) return number;
  for (const Suffix& s : kByteSuffixes) {
    if (rest != s.text && !(rest.size() == 1 && rest[0] == (s.text[0] | 0x20))) continue;
    if (number > ~std::uint64_t{0} / s.factor) return fail(Errc::invalid_argument, "more than 2^64 bytes");
    return number * s.factor;
  }
  return fail(Errc::invalid_argument, kBytesWanted);
}

Result<std::uint64_t> parse_duration(std::string_view text) {
  double number = 0;
  std::string_view rest;
  if (!leading_number(text, number, rest)) return fail(Errc::invalid_argument, kDurationWanted);
  if (rest.empty() && number == 0) return 0;
  for (const Suffix& s : kTimeSuffixes) {
    if (rest != s.text) continue;
    const double ns = std::round(number * static_cast<double>(s.factor));
    if (ns > 9.0e18) return fail(Errc::invalid_argument, "more than 292 years");
    return static_cast<std::uint64_t>(ns);
  }
  return fail(Errc::invalid_argument, kDurationWanted);
}

std::string bytes_text(std::uint64_t bytes) { return shortest(bytes, kByteSuffixes); }
std::string duration_text(std::uint64_t ns) { return shortest(ns, kTimeSuffixes); }

OptionTable& OptionTable::add(Option row) {
  row.preset = current_text(row);
  row.group = group_;
  rows_.push_back(std::move(row));
  return *this;
}

OptionTable& OptionTable::count(std::string flag, std::string variable, std::uint64_t& value,
                                std::string help, Range range) {
  return add({std::move(flag), std::move(variable), Unit::count, std::move(help), &value, range});
}

OptionTable& OptionTable::bytes(std::string flag, std::string variable, std::uint64_t& value,
                                std::string help, Range range) {
  return add({std::move(flag), std::move(variable), Unit::bytes, std::move(help), &value, range});
}

OptionTable& OptionTable::duration(std::string flag, std::string variable, std::uint64_t& value,
                                   std::string help, Range range) {
  return add({std::move(flag), std::move(variable), Unit::duration, std::move(help), &value, range});
}

OptionTable& OptionTable::text(std::string flag, std::string variable, std::string& value, std::string help) {
  return add({std::move(flag), std::move(variable), Unit::text, std::move(help), &value});
}

OptionTable& OptionTable::names(std::string flag, std::string variable, std::string& value,
                                std::string help) {
  return add({std::move(flag), std::move(variable), Unit::names, std::move(help), &value});
}

OptionTable& OptionTable::choice(std::string flag, std::string variable, std::string& value,
                                 std::vector<std::string> choices, std::string help) {
  return add(
      {std::move(flag), std::move(variable), Unit::choice, std::move(help), &value, {}, std::move(choices)});
}

OptionTable& OptionTable::choice(std::string flag, std::string variable, bool& value, std::string no,
                                 std::string yes, std::string help) {
  std::vector<std::string> words{std::move(no), std::move(yes)};
  return add(
      {std::move(flag), std::move(variable), Unit::choice, std::move(help), &value, {}, std::move(words)});
}

OptionTable& OptionTable::flag(std::string flag, std::string variable, bool& value, std::string help) {
  return add({std::move(flag), std::move(variable), Unit::flag, std::move(help), &value});
}

OptionTable& OptionTable::flag(std::string flag, std::string variable, bool& value, std::uint64_t& period,
                               std::string help) {
  return add({std::move(flag),
              std::move(variable),
              Unit::flag,
              std::move(help),
              &value,
              {0, kLongestPeriod},
              {},
              &period});
}

OptionTable& OptionTable::list(std::string flag, std::string variable, const OptionTable& items,
                               std::string help, OtherItems others) {
  return add({std::move(flag),
              std::move(variable),
              Unit::list,
              std::move(help),
              {},
              {},
              {},
              nullptr,
              items.rows_,
              others == OtherItems::ignored});
}

OptionTable& OptionTable::heading(std::string text) {
  group_ = std::move(text);
  return *this;
}

Result<> OptionTable::read_environment() {
  for (std::size_t i = 0; i < rows_.size(); ++i) {
    if (rows_[i].source == OptionSource::command_line || rows_[i].variable.empty()) continue;
    const char* text = kasane::variable(rows_[i].variable.c_str());
    if (text == nullptr || *text == '\0') continue;
    KASANE_TRY(set(i, text, OptionSource::environment));
  }
  return {};
}

Result<> OptionTable::set(std::size_t index, std::string_view text, OptionSource source) {
  Option& row = rows_.at(index);
  if (auto done = assign(row, text); !done) {
    const bool by_flag = source == OptionSource::command_line;
    return fail(done.error().code, fmt::format("{}{}{}: {}", by_flag ? long_flag(row) : row.variable,
                                               by_flag ? " " : "=", text, done.error().message));
  }
  row.source = source;
  return {};
}

void OptionTable::write_environment() const {
  for (const Option& row : rows_)
    if (row.source != OptionSource::preset && !row.variable.empty())
      ::setenv(row.variable.c_str(), current_text(row).c_str(), 1);
}

std::vector<std::string> OptionTable::unknown_variables(std::string_view prefix) const {
  // names without the prefix, which would make any two of them similar; how to write what they name
  std::vector<std::string> words, meant;
  for (const Option& row : rows_) {
    if (!row.variable.starts_with(prefix)) continue;
    words.push_back(row.variable.substr(prefix.size()));
    meant.push_back(row.variable);
    for (const Option& item : row.items) {
      words.push_back(as_variable(item.flag));
      meant.push_back(item_text(row.variable + "=", item));
    }
  }
  std::vector<std::string> said;
  for (char** variable = environ; variable != nullptr && *variable != nullptr; ++variable) {
    const std::string_view whole(*variable), name = whole.substr(0, whole.find('='));
    if (!name.starts_with(prefix) || std::ranges::find(rows_, name, &Option::variable) != rows_.end())
      continue;
    const std::string near = nearest(name.substr(prefix.size()), words);
    const auto index = static_cast<std::size_t>(std::ranges::find(words, near) - words.begin());
    said.push_back(fmt::format("nothing here reads the variable {}{}", name,
                               near.empty() ? "" : fmt::format("; did you mean {}?", meant[index])));
  }
  return said;
}

std::string OptionTable::value_text(std::size_t row) const { return current_text(rows_.at(row)); }

std::string OptionTable::long_flag(const Option& row) {
  return row.flag.empty() ? row.flag : row.flag.substr(row.flag.find("--"));
}

std::string OptionTable::placeholder(const Option& row) {
  switch (row.unit) {
    case Unit::count: return "COUNT";
    case Unit::bytes: return "SIZE";
    case Unit::duration: return "TIME";
    case Unit::text: return "TEXT";
    case Unit::names: return "NAME,...";
    case Unit::choice: return fmt::format("{}", fmt::join(row.choices, "|"));
    case Unit::list:
      return std::ranges::all_of(row.items, [](const Option& item) { return item.unit == Unit::flag; })
                 ? "NAME,..."
                 : "NAME=VALUE,...";
    case Unit::flag: return row.period != nullptr ? "[=TIME]" : "";
  }
  return {};
}

std::string OptionTable::item_text(const std::string& list, const Option& item) {
  const std::string value = placeholder(item);
  return list + item.flag + (value.empty() ? "" : "=" + value);
}

std::string OptionTable::note(const Option& row) {
  const std::string preset = row.preset.empty() ? std::string("none") : row.preset;
  return fmt::format("[{}{}default {}]", row.variable, row.variable.empty() ? "" : ", ", preset);
}

std::string OptionTable::markdown() const {
  const auto entry = [](std::string_view indent, const std::string& how, const Option& row) {
    std::string text = fmt::format("`{}`", how);
    if (!row.variable.empty() && how != row.variable) text += fmt::format(", `{}`", row.variable);
    if (!row.preset.empty()) text += fmt::format(", default `{}`", row.preset);
    return wrapped(fmt::format("{}- ", indent), fmt::format("{}  ", indent), text + ": " + row.help);
  };
  std::string out, group;
  for (const Option& row : rows_) {
    if (out.empty() || row.group != group) {
      group = row.group;
      out += fmt::format("{}## {}\n\n", out.empty() ? "" : "\n", group);
    }
    const std::string value = placeholder(row);
    const std::string flag =
        value.empty() ? row.flag : row.flag + (row.unit == Unit::flag ? "" : " ") + value;
    out += entry("", row.flag.empty() ? row.variable : flag, row);
    for (const Option& item : row.items) out += entry("  ", item_text("", item), item);
  }
  return out;
}

}  // namespace kasane
