// SPDX-License-Identifier: Apache-2.0
// What a command accepts, read back from its command line and its table of options, and the pages that are
// made of it: manuals and completions (tools/pages.cmake).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "commands.h"

namespace kasane::tools {

/// A word that may stand somewhere, and what it means.
struct Word {
  std::string text;
  std::string help;
};

struct Flag {
  std::vector<std::string> names = {};  ///< "-n", "--ranks"
  std::string value = {};               ///< "COUNT"; "[=TIME]" of one that may have a value; empty: none
  std::string help = {};
  std::string group = {};
  std::vector<Word> choices = {};  ///< what its value may be
  std::vector<Word> items = {};    ///< what its value, a list with commas, may have: "races", "seed=COUNT"
  [[nodiscard]] bool takes_word() const { return !value.empty() && value.front() != '['; }
};

enum class Takes : std::uint8_t { nothing, program, files, words };

struct Described {
  std::string name;  ///< "run"; of the command itself empty
  std::string help;
  std::string usage;        ///< "kasane run [OPTIONS] [--] PROGRAM [ARGUMENTS...]"
  std::string footer = {};  ///< paragraphs, or lines that begin with two spaces
  std::vector<Flag> flags = {};
  std::vector<Flag> positionals = {};  ///< name and help
  Takes takes = Takes::nothing;        ///< what stands behind the flags
  std::vector<Word> words = {};
};

/// The text of --help. (The app's own help() is that of the command that was given.)
[[nodiscard]] std::string help_of(const CLI::App&);

/// The command itself first, then its subcommands.
[[nodiscard]] std::vector<Described> describe(const CLI::App& kasane, std::span<const Command> commands);

/// Whether there is a manual of it alone.
[[nodiscard]] bool has_page(const Described&);
/// As troff source for man(1).
[[nodiscard]] std::string man_page(const Described&, std::span<const Described> all);
/// For bash, zsh or fish; empty: of no other shell.
[[nodiscard]] std::string completion(const std::string& shell, std::span<const Described> all);

}  // namespace kasane::tools
