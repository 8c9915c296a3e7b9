// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <kasane/version.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <sstream>

#include "described.h"

namespace kasane::tools {
namespace {

/// Text for troff: hyphens that are copied into a command line, backslashes, characters that only UTF-8 has,
/// and a dot or an apostrophe that would begin a request.
std::string troff(std::string_view text) {
  static const std::map<char32_t, std::string_view> marks{{U'…', "..."}, {U'×', "\\(mu"}, {U'–', "\\(en"}};
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    if (byte == '-') {
      out += "\\-";
    } else if (byte == '\\') {
      out += "\\e";
    } else if ((byte == '.' || byte == '\'') && (out.empty() || out.back() == '\n')) {
      out += "\\&";
      out += text[i];
    } else if (byte < 0x80) {
      out += text[i];
    } else {
      const int more = byte >= 0xf0 ? 3 : byte >= 0xe0 ? 2 : 1;
      char32_t code = byte & (0x3fU >> more);
      for (int k = 0; k < more && i + 1 < text.size(); ++k)
        code = code << 6 | (static_cast<unsigned char>(text[++i]) & 0x3fU);
      const auto mark = marks.find(code);
      out += mark != marks.end() ? std::string(mark->second)
                                 : fmt::format("\\[u{:04X}]", static_cast<std::uint32_t>(code));
    }
  }
  return out;
}

std::string upper(std::string text) {
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return std::toupper(c); });
  return text;
}

std::string command_of(const Described& d) { return d.name.empty() ? "kasane" : "kasane " + d.name; }
std::string page_of(const Described& d) { return d.name.empty() ? "kasane" : "kasane-" + d.name; }

/// "threads, pointers …" of "Kasane: threads, pointers …"
std::string without_name(const std::string& help) {
  const std::string name = "Kasane: ";
  return help.starts_with(name) ? help.substr(name.size()) : help;
}

/// An entry of a list: its tag, what it means.
std::string entry(const std::string& tag, const std::string& help) {
  return ".TP\n" + tag + "\n" + troff(help) + "\n";
}

std::string bold(const std::string& text) { return "\\fB" + troff(text) + "\\fR"; }
std::string italic(const std::string& text) { return text.empty() ? "" : "\\fI" + troff(text) + "\\fR"; }

std::string flag_text(const Flag& flag) {
  std::string tag;
  for (const std::string& name : flag.names) tag += (tag.empty() ? "" : ", ") + bold(name);
  if (!flag.value.empty()) tag += (flag.takes_word() ? " " : "") + italic(flag.value);
  std::string text = entry(tag, flag.help);
  if (flag.items.empty()) return text;
  text += ".RS\n";
  for (const Word& item : flag.items) text += entry(bold(item.text), item.help);
  return text + ".RE\n";
}

std::string flags_text(const Described& d) {
  std::string text, group;
  for (const Flag& flag : d.flags) {
    if (flag.group != group && flag.group != "Options") text += ".SS " + troff(flag.group) + "\n";
    group = flag.group;
    text += flag_text(flag);
  }
  return text;
}

/// Paragraphs; lines that begin with two spaces stay as they are.
std::string paragraphs(const std::string& footer) {
  std::string text;
  bool verbatim = false;
  std::istringstream lines(footer);
  for (std::string line; std::getline(lines, line);) {
    if (const bool indented = line.starts_with("  "); indented != verbatim) {
      text += indented ? ".PP\n.EX\n" : ".EE\n";
      verbatim = indented;
    }
    if (line.empty()) continue;
    text += (verbatim ? "" : ".PP\n") + troff(line) + "\n";
  }
  return text + (verbatim ? ".EE\n" : "");
}

}  // namespace

bool has_page(const Described& d) { return d.name != "help" && d.name != "version"; }

std::string man_page(const Described& d, std::span<const Described> all) {
  std::string text = fmt::format(
      ".\\\" Made by kasane help; a change belongs in its options.\n"
      ".TH \"{}\" \"1\" \"\" \"kasane {}\" \"Kasane\"\n",
      troff(upper(page_of(d))), kasane_version());
  text += ".SH NAME\n" + troff(page_of(d)) + " \\- " + troff(without_name(d.help)) + "\n";
  text += ".SH SYNOPSIS\n.nh\n" + bold(command_of(d)) +
          troff(d.usage.substr(std::min(command_of(d).size(), d.usage.size()))) + "\n.hy\n";
  text += ".SH DESCRIPTION\n" + troff(d.help) + (d.help.ends_with('.') ? "\n" : ".\n");
  text += paragraphs(d.footer);
  for (const Flag& positional : d.positionals)
    text += entry(italic(positional.names.front()), positional.help);
  if (d.name.empty()) {
    for (const Word& command : d.words) text += entry(bold("kasane " + command.text), command.help);
  }
  text += ".SH OPTIONS\n" + flags_text(d);
  if (d.name == "run") {
    text += ".SH ENVIRONMENT\n" +
            troff(
                "Each option has the variable that stands behind it in brackets, which works without "
                "kasane run, too; a flag wins. Options that are on or off take 1 and 0 there.") +
            "\n";
  }
  text += ".SH SEE ALSO\n";
  std::string others;
  for (const Described& other : all) {
    if (other.name != d.name && has_page(other))
      others += (others.empty() ? "" : ",\n") + bold(page_of(other)) + "(1)";
  }
  return text + others + ".\n.PP\n" +
         troff("The guide: share/doc/kasane/docs/guide of the prefix that kasane is installed in.") + "\n";
}

}  // namespace kasane::tools
