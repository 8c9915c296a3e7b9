// SPDX-License-Identifier: Apache-2.0
#include "base/options.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <cstdlib>

#include "base/nearest.h"
#include "base/options_cli.h"

namespace kasane {
namespace {

struct Options {
  std::uint64_t ranks = 1;
  std::uint64_t space = 1ull << 40;
  std::uint64_t spin = 20'000;
  std::string spill = "/tmp";
  std::string faults = "mprotect";
  bool every_rank = false;
  bool tag = false;
  bool heap = true;
  bool stats = false;
  std::uint64_t stats_period = 0;
  bool races = false, mixing = false;
  std::uint64_t seed = 1;
  bool copies = true;
  std::uint64_t hosts = 1;
};

class OptionTest : public ::testing::Test {
 protected:
  OptionTest() {
    table.count("-n,--ranks", "KASANE_T_RANKS", o.ranks, "processes", {1, 4096})
        .bytes("--space", "KASANE_T_SPACE", o.space, "size of the space", {64 << 10, 64ull << 40})
        .duration("--spin", "KASANE_T_SPIN", o.spin, "how long to spin", {0, 1'000'000'000})
        .text("--spill", "KASANE_T_SPILL", o.spill, "where cold memory goes")
        .choice("--faults", "KASANE_T_FAULTS", o.faults, {"mprotect", "uffd"}, "fault engine")
        .choice("--main", "KASANE_T_MAIN", o.every_rank, "one", "all", "where main runs")
        .flag("--tag", "KASANE_T_TAG", o.tag, "tag lines")
        .flag("", "KASANE_T_HEAP", o.heap, "only a variable")
        .flag("--stats", "KASANE_T_STATS", o.stats, o.stats_period, "count")
        .list("--check", "KASANE_T_CHECK",
              OptionTable()
                  .flag("races", "", o.races, "find races")
                  .flag("mixing", "", o.mixing, "find mixing"),
              "what is checked")
        .list("--debug", "KASANE_T_DEBUG",
              OptionTable()
                  .count("seed", "", o.seed, "of what is drawn", {1, 99})
                  .choice("copies", "", o.copies, "off", "on", "keep copies"),
              "settings")
        .list("", "KASANE_T_OPEN", OptionTable().count("hosts", "", o.hosts, "parts"),
              "some items of several tables", OtherItems::ignored);
    clear();
  }
  ~OptionTest() override { clear(); }
  void clear() {
    for (const Option& row : table.rows()) ::unsetenv(row.variable.c_str());
  }
  std::string error_of(const char* variable, const char* value) {
    clear();
    ::setenv(variable, value, 1);
    const auto read = table.read_environment();
    return read ? "" : read.error().message;
  }

  Options o;
  OptionTable table;
};

TEST_F(OptionTest, DefaultsAreTheMembersOwn) {
  ASSERT_TRUE(table.read_environment());
  EXPECT_EQ(o.space, 1ull << 40);
  EXPECT_EQ(table.rows()[1].preset, "1T");
  EXPECT_EQ(table.rows()[2].preset, "20us");
  EXPECT_EQ(table.rows()[5].preset, "one");
}

TEST_F(OptionTest, VariablesSetMembers) {
  ::setenv("KASANE_T_RANKS", "4", 1);
  ::setenv("KASANE_T_SPACE", "16G", 1);
  ::setenv("KASANE_T_SPIN", "1.5ms", 1);
  ::setenv("KASANE_T_FAULTS", "uffd", 1);
  ::setenv("KASANE_T_MAIN", "all", 1);
  ::setenv("KASANE_T_TAG", "on", 1);
  ::setenv("KASANE_T_HEAP", "0", 1);
  ::setenv("KASANE_T_SPILL", "", 1);
  ASSERT_TRUE(table.read_environment());
  EXPECT_EQ(o.ranks, 4u);
  EXPECT_EQ(o.space, 16ull << 30);
  EXPECT_EQ(o.spin, 1'500'000u);
  EXPECT_EQ(o.faults, "uffd");
  EXPECT_TRUE(o.every_rank);
  EXPECT_TRUE(o.tag);
  EXPECT_FALSE(o.heap);
  EXPECT_EQ(o.spill, "/tmp") << "an empty variable is not set";
}

TEST_F(OptionTest, ErrorsNameVariableValueAndWhatWouldDo) {
  EXPECT_EQ(error_of("KASANE_T_RANKS", "0"), "KASANE_T_RANKS=0: must be at least 1");
  EXPECT_EQ(error_of("KASANE_T_RANKS", "100000"), "KASANE_T_RANKS=100000: must be at most 4096");
  EXPECT_EQ(error_of("KASANE_T_RANKS", "-1"), "KASANE_T_RANKS=-1: expected a whole number such as 4");
  EXPECT_EQ(error_of("KASANE_T_RANKS", "4x"), "KASANE_T_RANKS=4x: expected a whole number such as 4");
  EXPECT_EQ(error_of("KASANE_T_SPACE", "4Q"),
            "KASANE_T_SPACE=4Q: expected a size such as 4096, 64K, 512M or 1T");
  EXPECT_EQ(error_of("KASANE_T_SPACE", "65T"), "KASANE_T_SPACE=65T: must be at most 64T");
  EXPECT_EQ(error_of("KASANE_T_SPACE", "99999999999P"), "KASANE_T_SPACE=99999999999P: more than 2^64 bytes");
  EXPECT_EQ(error_of("KASANE_T_SPIN", "20"),
            "KASANE_T_SPIN=20: expected a time with its unit such as 20us, 1.5s or 2min");
  EXPECT_EQ(error_of("KASANE_T_SPIN", "2min"), "KASANE_T_SPIN=2min: must be at most 1s");
  EXPECT_EQ(error_of("KASANE_T_FAULTS", "magic"), "KASANE_T_FAULTS=magic: expected one of mprotect, uffd");
  EXPECT_NE(error_of("KASANE_T_TAG", "maybe").find("KASANE_T_TAG=maybe: expected 1 or 0"), std::string::npos);
  EXPECT_EQ(o.ranks, 1u) << "a value that cannot be used changes nothing";
}

TEST_F(OptionTest, AListSetsItsItems) {
  ::setenv("KASANE_T_CHECK", "races,mixing", 1);
  ::setenv("KASANE_T_DEBUG", "copies=off,seed=3", 1);
  ::setenv("KASANE_T_OPEN", "seed=4,hosts=2,other", 1);
  ASSERT_TRUE(table.read_environment());
  EXPECT_TRUE(o.races);
  EXPECT_TRUE(o.mixing);
  EXPECT_EQ(o.seed, 3u) << "not that of the open list, which is another table's";
  EXPECT_FALSE(o.copies);
  EXPECT_EQ(o.hosts, 2u);
  EXPECT_EQ(table.value_text(9), "races,mixing");
  EXPECT_EQ(table.value_text(10), "seed=3,copies=off") << "in the table's order";
  ASSERT_TRUE(table.set(9, "races=0,mixing=on", OptionSource::command_line));
  EXPECT_EQ(table.value_text(9), "mixing");
  ASSERT_TRUE(table.set(10, "seed=4", OptionSource::command_line));
  EXPECT_TRUE(o.copies) << "an item that is not named has its default";
  ASSERT_TRUE(table.set(10, "", OptionSource::command_line));
  EXPECT_EQ(table.value_text(10), "");
}

TEST_F(OptionTest, AListSaysWhatItDoesNotKnow) {
  EXPECT_EQ(error_of("KASANE_T_CHECK", "races,heap"),
            "KASANE_T_CHECK=races,heap: there is no heap (known: races, mixing)");
  EXPECT_EQ(error_of("KASANE_T_CHECK", "race"),
            "KASANE_T_CHECK=race: there is no race; did you mean races? (known: races, mixing)");
  EXPECT_EQ(error_of("KASANE_T_CHECK", "races=maybe"),
            "KASANE_T_CHECK=races=maybe: races: expected 1 or 0 (also on/off, true/false, yes/no)");
  EXPECT_EQ(error_of("KASANE_T_DEBUG", "help"),
            "KASANE_T_DEBUG=help: there is no help (known: seed, copies)");
  EXPECT_EQ(error_of("KASANE_T_DEBUG", "seed=0"), "KASANE_T_DEBUG=seed=0: seed: must be at least 1");
  EXPECT_EQ(error_of("KASANE_T_DEBUG", "copies=none"),
            "KASANE_T_DEBUG=copies=none: copies: expected one of off, on");
  EXPECT_EQ(error_of("KASANE_T_DEBUG", "seed"), "KASANE_T_DEBUG=seed: seed has a value: seed=COUNT");
}

TEST_F(OptionTest, AFlagMaySayATime) {
  ::setenv("KASANE_T_STATS", "10s", 1);
  ASSERT_TRUE(table.read_environment());
  EXPECT_TRUE(o.stats);
  EXPECT_EQ(o.stats_period, 10'000'000'000u);
  EXPECT_EQ(table.value_text(8), "10s");
  EXPECT_NE(error_of("KASANE_T_STATS", "often").find("KASANE_T_STATS=often: expected 1, 0 or a time"),
            std::string::npos);
}

TEST_F(OptionTest, SizesAndTimesBothWays) {
  EXPECT_EQ(parse_bytes("64K").value(), 65536u);
  EXPECT_EQ(parse_bytes("64KiB").value(), 65536u);
  EXPECT_EQ(parse_bytes("64k").value(), 65536u);
  EXPECT_EQ(parse_bytes("100B").value(), 100u);
  EXPECT_EQ(parse_bytes("0").value(), 0u);
  EXPECT_FALSE(parse_bytes("K"));
  EXPECT_FALSE(parse_bytes(" 1K"));
  EXPECT_FALSE(parse_bytes("18446744073709551616"));
  EXPECT_EQ(parse_duration("0").value(), 0u);
  EXPECT_EQ(parse_duration("250ns").value(), 250u);
  EXPECT_FALSE(parse_duration("1e400s"));
  EXPECT_FALSE(parse_duration("99999999999999999999s"));
  for (std::uint64_t v : {0ull, 1ull, 1000ull, 65536ull, (1ull << 40) + 1, 3ull << 50})
    EXPECT_EQ(parse_bytes(bytes_text(v)).value(), v);
  for (std::uint64_t v : {0ull, 1ull, 20'000ull, 90'000'000'000ull})
    EXPECT_EQ(parse_duration(duration_text(v)).value(), v);
}

int parse(OptionTable& table, std::vector<std::string> arguments, std::string* message = nullptr) {
  CLI::App app("test");
  add_flags(app, table);
  std::reverse(arguments.begin(), arguments.end());  // as CLI11 wants them
  try {
    app.parse(arguments);
  } catch (const CLI::ParseError& e) {
    if (message != nullptr) *message = e.get_exit_code() == 0 ? app.help() : e.what();
    return e.get_exit_code();
  }
  return 0;
}

TEST_F(OptionTest, FlagsWinOverVariables) {
  ::setenv("KASANE_T_RANKS", "4", 1);
  ::setenv("KASANE_T_TAG", "1", 1);
  ASSERT_TRUE(table.read_environment());
  EXPECT_EQ(parse(table, {"-n", "8", "--no-tag", "--main=all"}), 0);
  EXPECT_EQ(o.ranks, 8u);
  EXPECT_FALSE(o.tag);
  EXPECT_TRUE(o.every_rank);
  EXPECT_EQ(table.rows()[0].source, OptionSource::command_line);
}

TEST_F(OptionTest, FlagsWithTimesAndListsOnTheCommandLine) {
  EXPECT_EQ(parse(table, {"--stats=50ms", "--check=races", "--debug", "seed=2", "--debug", "copies=off"}), 0);
  EXPECT_EQ(o.stats_period, 50'000'000u);
  EXPECT_TRUE(o.races);
  EXPECT_FALSE(o.mixing);
  EXPECT_EQ(table.value_text(10), "seed=2,copies=off") << "several of one list are one";
  EXPECT_EQ(parse(table, {"--stats", "--check", "mixing"}), 0);
  EXPECT_TRUE(o.stats);
  EXPECT_FALSE(o.races) << "the whole list is given anew";
  EXPECT_EQ(parse(table, {"--no-stats"}), 0);
  EXPECT_FALSE(o.stats);
}

TEST_F(OptionTest, AFlagWinsOverAVariableThatIsReadLater) {
  ::setenv("KASANE_T_RANKS", "4", 1);
  EXPECT_EQ(parse(table, {"-n", "8"}), 0);
  ASSERT_TRUE(table.read_environment());
  EXPECT_EQ(o.ranks, 8u);
}

TEST_F(OptionTest, UnknownVariablesAreNamed) {
  ::setenv("KASANE_T_SEED", "3", 1);
  ::setenv("KASANE_T_CHECK_RACES", "1", 1);
  const std::vector<std::string> said = table.unknown_variables("KASANE_T_");
  for (const char* name : {"KASANE_T_SEED", "KASANE_T_CHECK_RACES"}) ::unsetenv(name);
  EXPECT_EQ(said.size(), 2u);
  for (const char* wanted :
       {"nothing here reads the variable KASANE_T_SEED; did you mean KASANE_T_DEBUG=seed=COUNT?",
        "nothing here reads the variable KASANE_T_CHECK_RACES; did you mean KASANE_T_CHECK?"})
    EXPECT_EQ(std::ranges::count(said, wanted), 1) << wanted;
}

TEST_F(OptionTest, AWrongFlagSaysWhy) {
  std::string message;
  EXPECT_NE(parse(table, {"--space", "lots"}, &message), 0);
  EXPECT_NE(message.find("--space lots: expected a size such as"), std::string::npos) << message;
  EXPECT_NE(parse(table, {"-n", "0"}, &message), 0);
  EXPECT_NE(message.find("--ranks 0: must be at least 1"), std::string::npos) << message;
  EXPECT_NE(parse(table, {"--nonsense"}, &message), 0);
}

TEST_F(OptionTest, HelpShowsUnitVariableAndDefault) {
  std::string help;
  EXPECT_EQ(parse(table, {"--help"}, &help), 0);
  for (const char* wanted : {"--space", "SIZE", "size of the space [KASANE_T_SPACE, default 1T]",
                             "mprotect|uffd", "--tag", "--check", "NAME,...", "--debug", "NAME=VALUE,..."})
    EXPECT_NE(help.find(wanted), std::string::npos) << wanted << " in\n" << help;
  EXPECT_EQ(help.find("KASANE_T_HEAP"), std::string::npos) << "a row without a flag is no flag";
  for (const Option& row : table.rows()) EXPECT_NE(table.markdown().find(row.variable), std::string::npos);
  EXPECT_NE(table.markdown().find("  - `seed=COUNT`, default `1`: of what is drawn\n"), std::string::npos)
      << table.markdown();
}

// What `kasane run` does: the program it starts reads the same values from its environment.
TEST_F(OptionTest, GivenValuesGoToTheEnvironment) {
  ASSERT_EQ(parse(table, {"--space", "16GiB", "--tag"}), 0);
  table.write_environment();
  EXPECT_STREQ(std::getenv("KASANE_T_SPACE"), "16G");
  EXPECT_STREQ(std::getenv("KASANE_T_TAG"), "1");
  EXPECT_EQ(std::getenv("KASANE_T_RANKS"), nullptr) << "a default stays unsaid";
}

TEST(Names, AreOneListHoweverTheyAreGiven) {
  std::string names;
  OptionTable table;
  table.names("--of", "KASANE_T_OF", names, "some words");
  CLI::App app;
  add_flags(app, table);
  app.parse("--of one --of two,three");
  EXPECT_EQ(names, "one,two,three");
  EXPECT_EQ(table.value_text(0), names);
  EXPECT_EQ(OptionTable::placeholder(table.rows()[0]), "NAME,...");
}

TEST(Nearest, FindsWhatWasMeant) {
  const std::vector<std::string> known{"ranks", "workers", "stats", "stats-every", "run"};
  EXPECT_EQ(nearest("rank", known), "ranks");
  EXPECT_EQ(nearest("wrokers", known), "workers") << "two letters swapped";
  EXPECT_EQ(nearest("statsevery", known), "stats-every");
  EXPECT_EQ(nearest("rum", known), "run");
  EXPECT_EQ(nearest("ranks", known), "ranks");
  EXPECT_EQ(nearest("", known), "");
  EXPECT_EQ(nearest("mine", known), "") << "no word is like it";
  EXPECT_EQ(nearest("rum", {}), "");
  EXPECT_EQ(nearest("stats-of-all-runs", known), "stats") << "a part";
  EXPECT_EQ(nearest("statistics-of-all", known), "") << "not a whole one";
  EXPECT_EQ(suggestion("rum", known), "; did you mean run?");
  EXPECT_EQ(suggestion("mine", known), "");
}

}  // namespace
}  // namespace kasane
