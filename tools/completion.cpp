// SPDX-License-Identifier: Apache-2.0
// Completions for bash, zsh and fish: of commands, options, the words that an option's value may be, the
// items of its list, and behind the options a program with its own command line, files, or suites.
#include <fmt/format.h>

#include <algorithm>

#include "described.h"

namespace kasane::tools {
namespace {

constexpr char kMade[] = "# SPDX-License-Identifier: Apache-2.0\n# Made by kasane help.\n";

std::string joined(const std::vector<Word>& words) {
  std::string text;
  for (const Word& word : words) text += (text.empty() ? "" : " ") + word.text;
  return text;
}

/// "seed=" of "seed=COUNT": what may be typed of an item.
std::vector<Word> typed(const std::vector<Word>& items) {
  std::vector<Word> out = items;
  for (Word& item : out) item.text.resize(std::min(item.text.size(), item.text.find('=') + 1));
  for (std::size_t i = 0; i < out.size(); ++i) {
    if (out[i].text.empty()) out[i].text = items[i].text;
  }
  return out;
}

bool list_of_names(const Flag& flag) { return !flag.items.empty(); }

/// The first sentence, without what the shells' own notations would take for theirs.
std::string short_help(const std::string& help) {
  std::string text = help.substr(0, help.find(". "));
  std::erase_if(text, [](char c) { return c == '\'' || c == '[' || c == ']' || c == '`' || c == '$'; });
  std::ranges::replace(text, ':', ',');
  std::ranges::replace(text, '"', ' ');
  return text;
}

// ---- bash ----

/// Bash splits words at = and :, so words are joined again, and of what is offered only the part behind the
/// last of these goes into the line.
constexpr char kBash[] = R"bash(
_kasane() {
  local cur prev opt value head words=() word i command
  COMPREPLY=()
  for ((i = 0; i <= COMP_CWORD; ++i)); do
    word=${COMP_WORDS[i]}
    if ((${#words[@]})) && [[ $word == [=:]* || ${words[-1]} == *[=:] ]]; then
      words[-1]+=$word
    else
      words+=("$word")
    fi
  done
  cur=${words[-1]}
  ((${#words[@]} > 1)) || return
  command=
  ((${#words[@]} == 2)) || command=${words[1]}
  # Behind the options begins another command line.
  for ((i = 2; i < ${#words[@]} - 1; ++i)); do
    word=${words[i]}
    [[ $word == -* && $word != -- ]] || break
    [[ $word == *=* ]] || ! _kasane_takes_word "$command $word" || ((++i))
  done
  [[ ${words[i]} != -- || i -eq ${#words[@]}-1 ]] || ((++i))
  if [[ i -lt ${#words[@]}-1 && $command == run ]]; then
    if declare -F _command_offset >/dev/null; then
      for ((i = COMP_CWORD; i > 1; --i)); do [[ ${COMP_WORDS[i]} != -- ]] || break; done
      ((i > 1)) && _command_offset $((i + 1)) && return
    fi
    COMPREPLY=($(compgen -f -- "$cur"))
    return
  fi
  if ((i < ${#words[@]} - 1)); then
    [[ $command != plot ]] || COMPREPLY=($(compgen -f -- "$cur"))
    return
  fi
  opt= value= prev=${words[-2]}
  if [[ $cur == -*=* ]]; then
    opt=${cur%%=*} value=${cur#*=} head=$opt=
  elif [[ $prev != -- ]] && _kasane_takes_word "$command $prev"; then
    opt=$prev value=$cur head=
  fi
  local choices items
  if [[ -n $opt ]]; then
    _kasane_values "$command $opt"
    if [[ -n $items ]]; then
      [[ $value != *,* ]] || head+=${value%,*},
      choices=$items value=${value##*,}
    fi
    if [[ -n $choices ]]; then
      COMPREPLY=($(compgen -P "$head" -W "$choices" -- "$value"))
      [[ ${COMPREPLY[*]} != *= ]] || compopt -o nospace 2>/dev/null
    else
      COMPREPLY=($(compgen -P "$head" -f -- "$value"))
    fi
  elif [[ $cur == -* ]]; then
    COMPREPLY=($(compgen -W "$(_kasane_flags "$command")" -- "$cur"))
  else
    _kasane_behind "$command"
  fi
  # What is in the line already.
  if [[ $cur == *[=:]* && $COMP_WORDBREAKS == *=* ]]; then
    head=${cur%"${cur##*[=:]}"}
    COMPREPLY=("${COMPREPLY[@]#"$head"}")
  fi
}
complete -F _kasane kasane
)bash";

std::string bash(std::span<const Described> all) {
  std::string takes, values, flags, behind;
  for (const Described& d : all) {
    std::string names;
    for (const Flag& flag : d.flags) {
      for (const std::string& name : flag.names) {
        names += (names.empty() ? "" : " ") + name;
        if (flag.takes_word()) takes += fmt::format("{}\"{} {}\"", takes.empty() ? "" : " | ", d.name, name);
        if (!flag.choices.empty())
          values += fmt::format("    \"{} {}\") choices='{}' ;;\n", d.name, name, joined(flag.choices));
        else if (list_of_names(flag))
          values += fmt::format("    \"{} {}\") items='{}' ;;\n", d.name, name, joined(typed(flag.items)));
      }
    }
    flags += fmt::format("    '{}') echo '{}' ;;\n", d.name, names);
    const std::string what = d.takes == Takes::program ? "-c"
                             : d.takes == Takes::files ? "-f"
                             : d.takes == Takes::words ? "-W '" + joined(d.words) + "'"
                                                       : "";
    if (!what.empty())
      behind += fmt::format("    '{}') COMPREPLY=($(compgen {} -- \"$cur\")) ;;\n", d.name, what);
  }
  return fmt::format(
      "{}_kasane_takes_word() {{\n  case $1 in\n    {}) return 0 ;;\n  esac\n  return 1\n}}\n"
      "_kasane_values() {{\n  case $1 in\n{}  esac\n}}\n"
      "_kasane_flags() {{\n  case $1 in\n{}  esac\n}}\n"
      "_kasane_behind() {{\n  case $1 in\n{}  esac\n}}{}",
      kMade, takes, values, flags, behind, kBash);
}

// ---- zsh ----

std::string zsh_value(const Flag& flag) {
  if (!flag.choices.empty()) return "(" + joined(flag.choices) + ")";
  if (list_of_names(flag)) {
    std::string words;
    for (const Word& item : typed(flag.items)) {
      const bool with_value = item.text.ends_with('=');
      words += " \"" + item.text.substr(0, item.text.size() - (with_value ? 1 : 0)) + "[" +
               short_help(item.help) + "]" + (with_value ? ":value\"" : "\"");
    }
    return "{_values -s , items" + words + "}";
  }
  return "_files";
}

std::string zsh_flag(const Flag& flag) {
  const std::string help = "[" + short_help(flag.help) + "]";
  std::string text;
  for (const std::string& name : flag.names) {
    const bool assigned = flag.takes_word() && name.starts_with("--");
    text += fmt::format("    '{}{}{}{}'\n", name, assigned ? "=" : "", help,
                        flag.takes_word() ? ":value:" + zsh_value(flag) : "");
  }
  return text;
}

std::string zsh_words(const std::vector<Word>& words) {
  std::string text;
  for (const Word& word : words)
    text += fmt::format("{}{}\\:\"{}\"", text.empty() ? "" : " ", word.text, short_help(word.help));
  return "((" + text + "))";
}

std::string zsh(std::span<const Described> all) {
  std::string text =
      fmt::format("#compdef kasane\n{}_kasane() {{\n  local curcontext=$curcontext state line\n", kMade);
  text += "  _arguments -C \\\n    '(-)1:command:->command' '*::argument:->argument' && return\n";
  text += "  if [[ $state == command ]]; then\n    local -a commands=(\n";
  for (const Word& word : all.front().words)
    text += fmt::format("      '{}:{}'\n", word.text, short_help(word.help));
  text += "    )\n    _describe command commands\n    return\n  fi\n  local -a flags\n  case $words[1] in\n";
  for (const Described& d : all.subspan(1)) {
    text += fmt::format("  {})\n    flags=(\n", d.name);
    for (const Flag& flag : d.flags) text += zsh_flag(flag);
    text += "    )\n    _arguments -S $flags";
    if (d.takes == Takes::program)
      text += " '(-)1:program:_command_names -e' '*::argument:_normal'";
    else if (d.takes == Takes::files)
      text += " '*:file:_files'";
    else if (d.takes == Takes::words)
      text += fmt::format(" '1:word:{}' '*:file:_files'", zsh_words(d.words));
    text += "\n    ;;\n";
  }
  return text + "  esac\n}\n_kasane \"$@\"\n";
}

// ---- fish ----

std::string fish_flag(const std::string& command, const Flag& flag) {
  std::string text = "complete -c kasane";
  text += command.empty() ? " -n __fish_use_subcommand"
                          : fmt::format(" -n '__fish_seen_subcommand_from {}'", command);
  for (const std::string& name : flag.names)
    text += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
  text += fmt::format(" -d '{}'", short_help(flag.help));
  if (!flag.choices.empty()) return text + fmt::format(" -xa '{}'\n", joined(flag.choices));
  if (list_of_names(flag))  // behind the items that are there
    return text + fmt::format(" -xa '(__kasane_items {})'\n", joined(typed(flag.items)));
  return text + (flag.takes_word() ? " -rF\n" : "\n");
}

std::string fish(std::span<const Described> all) {
  std::string text = kMade;
  text +=
      "function __kasane_items\n"
      "  set -l before (string match -r '^(?:-.*=)?(.*,)?' -- (commandline -ct))[2]\n"
      "  printf \"$before%s\\n\" $argv\n"
      "end\n"
      "complete -c kasane -f\n";
  for (const Word& word : all.front().words)
    text += fmt::format("complete -c kasane -n __fish_use_subcommand -a {} -d '{}'\n", word.text,
                        short_help(word.help));
  for (const Described& d : all) {
    for (const Flag& flag : d.flags) text += fish_flag(d.name, flag);
    if (d.name.empty()) continue;
    const std::string where = fmt::format("complete -c kasane -n '__fish_seen_subcommand_from {}'", d.name);
    if (d.takes == Takes::program) text += where + " -xa '(__fish_complete_subcommand)'\n";
    if (d.takes == Takes::files) text += where + " -F\n";
    for (const Word& word : d.takes == Takes::words ? d.words : std::vector<Word>())
      text += where + fmt::format(" -a {} -d '{}'\n", word.text, short_help(word.help));
  }
  return text;
}

}  // namespace

std::string completion(const std::string& shell, std::span<const Described> all) {
  return shell == "bash" ? bash(all) : shell == "zsh" ? zsh(all) : shell == "fish" ? fish(all) : "";
}

}  // namespace kasane::tools
