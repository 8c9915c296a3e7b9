// SPDX-License-Identifier: Apache-2.0
// What a thread or main changes for its process (the folder, the mask of new files, the environment, the
// locale, limits, random numbers, static results) holds on all ranks.
#include <arpa/inet.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <clocale>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fstream>
#include <iomanip>
#include <iostream>
#include <locale>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "cases.h"

namespace {

using cases::elsewhere;
using cases::on_ranks;

std::string folder() {
  char path[4096];
  return ::getcwd(path, sizeof path) != nullptr ? path : "?";
}
/// umask() would change it.
mode_t mask() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("Umask:")) return static_cast<mode_t>(std::stoul(line.substr(6), nullptr, 8));
  return static_cast<mode_t>(-1);
}
std::string variable(const char* name) {
  const char* const value = std::getenv(name);
  return value != nullptr ? value : "(unset)";
}
rlim_t limit() {
  rlimit now = {};
  ::getrlimit(RLIMIT_CORE, &now);
  return now.rlim_cur;
}

/// On each rank.
template <class F>
void expect_everywhere(F holds) {
  on_ranks(static_cast<int>(kasane::ranks()), [&](int) { EXPECT(holds()); });
}

void folders() {
  const std::string before = folder();
  EXPECT_EQ(::chdir("/usr"), 0);  // in main
  kasane::run([&before] {
    expect_everywhere([] { return folder() == "/usr"; });
    // a relative path means the same file everywhere; a path in global memory
    elsewhere([] { EXPECT_EQ(::chdir(std::make_unique<std::string>("lib")->c_str()), 0); });
    expect_everywhere([] { return folder() == "/usr/lib"; });
    const int above = ::open("..", O_RDONLY | O_DIRECTORY);
    elsewhere([above] { EXPECT_EQ(::fchdir(above), 0); });
    expect_everywhere([] { return folder() == "/usr"; });
    elsewhere([] { EXPECT(::chdir("/there is no such folder") == -1 && errno == ENOENT); });
    expect_everywhere([] { return folder() == "/usr"; });
    EXPECT_EQ(::chdir(before.c_str()), 0);
    // not the child's
    elsewhere([] {
      const pid_t child = ::fork();
      if (child == 0) ::_exit(::chdir("/usr") == 0 && ::setenv("KASANE_TEST_A", "child", 1) == 0 ? 7 : 1);
      int status = 0;
      EXPECT(::waitpid(child, &status, 0) == child && WEXITSTATUS(status) == 7);
    });
    expect_everywhere([&before] { return folder() == before && variable("KASANE_TEST_A") == "(unset)"; });
  });
}

void environment() {
  static char text[] = "KASANE_TEST_C=as it is";
  ::setenv("KASANE_TEST_A", "main's", 1);
  kasane::run([] {
    expect_everywhere([] { return variable("KASANE_TEST_A") == "main's"; });
    elsewhere([] {
      ::setenv("KASANE_TEST_A", "not this", 0);
      ::setenv("KASANE_TEST_B", std::string(3000, 'b').c_str(), 1);
      ::putenv(text);
    });
    expect_everywhere([] {
      return variable("KASANE_TEST_A") == "main's" && variable("KASANE_TEST_B") == std::string(3000, 'b') &&
             variable("KASANE_TEST_C") == "as it is";
    });
    ::unsetenv("KASANE_TEST_A");
    expect_everywhere([] { return variable("KASANE_TEST_A") == "(unset)"; });
    EXPECT(::setenv("a=b", "", 1) == -1 && errno == EINVAL);
    // different values at the same time
    for (int round = 0; round < 20; ++round) {
      on_ranks(4, [](int i) { ::setenv("KASANE_TEST_D", std::to_string(i).c_str(), 1); });
      const std::string one = variable("KASANE_TEST_D");
      expect_everywhere([&one] { return variable("KASANE_TEST_D") == one; });
    }
  });
}

void others() {
  const mode_t before = mask();
  kasane::run([] {
    elsewhere([] { ::umask(0027); });
    expect_everywhere([] { return mask() == 0027; });
    elsewhere([] { EXPECT(std::setlocale(LC_NUMERIC, "C.UTF-8") != nullptr); });
    expect_everywhere([] { return std::strcmp(std::setlocale(LC_NUMERIC, nullptr), "C.UTF-8") == 0; });
    std::locale::global(std::locale("C.UTF-8"));
    expect_everywhere([] { return std::locale().name() == "C.UTF-8"; });
    elsewhere([] { std::locale::global(std::locale::classic()); });
    expect_everywhere([] { return std::locale().name() == "C"; });
    rlimit now = {};
    ::getrlimit(RLIMIT_CORE, &now);
    now.rlim_cur = 0;
    elsewhere([now] { EXPECT_EQ(::setrlimit(RLIMIT_CORE, &now), 0); });
    expect_everywhere([] { return limit() == 0; });
  });
  ::umask(before);
}

std::string lines_of(const std::string& path) {
  std::ifstream file(path);
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  std::sort(lines.begin(), lines.end());
  std::string all;
  for (const std::string& line : lines) all += line + ";";
  return all;
}

void print(int i) {
  std::printf("%d by printf\n", i);
  std::cout << std::to_string(i) + " by cout\n" << std::flush;  // one insertion, as a line
  std::fflush(stdout);
  const std::string line = std::to_string(i) + " by write\n";
  EXPECT_EQ(::write(1, line.data(), line.size()), static_cast<ssize_t>(line.size()));
}

/// What threads of all ranks print is in the file to which one rank has redirected standard output.
void redirections() {
  std::fflush(stdout);
  const int terminal = ::dup(1);
  const std::string path = "/tmp/kasane_process_calls." + std::to_string(::getpid());
  std::string expected;
  for (int i = 0; i < 6; ++i)
    for (const char* const by : {" by cout;", " by printf;", " by write;"})
      expected += std::to_string(i) + by;
  kasane::run([&] {
    EXPECT(std::freopen(path.c_str(), "w", stdout) != nullptr);
    on_ranks(6, print);
    std::fflush(stdout);
    EXPECT(lines_of(path) == expected);
    // by another rank, with another file
    elsewhere([&path] {
      const int file = ::open((path + ".2").c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
      EXPECT_EQ(::dup2(file, 1), 1);
      ::close(file);
    });
    on_ranks(6, print);
    EXPECT(lines_of(path + ".2") == expected);
    // as programs did before dup2
    elsewhere([&path] {
      ::close(1);
      EXPECT_EQ(::open((path + ".3").c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600), 1);
    });
    on_ranks(6, print);
    EXPECT(lines_of(path + ".3") == expected);
  });
  EXPECT_EQ(::dup2(terminal, 1), 1);
  ::unlink(path.c_str());
  ::unlink((path + ".2").c_str());
  ::unlink((path + ".3").c_str());
  std::puts("printed at the end");
}

/// libc's sequences, wherever the numbers are drawn: those that its functions with a state draw.
void random_numbers() {
  char state[128];
  random_data random = {};
  drand48_data of_48_bits = {};
  const auto expected = [&random] {
    std::int32_t number = 0;
    ::random_r(&random, &number);
    return number;
  };
  ::initstate_r(1, state, sizeof state, &random);
  EXPECT_EQ(std::rand(), expected());  // no seed
  kasane::run([&] {
    for (int i = 0; i < 8; ++i) {
      cases::go(static_cast<std::uint32_t>(i));
      EXPECT_EQ(i % 2 == 0 ? std::rand() : ::random(), expected());
    }
    elsewhere([] { std::srand(42); });
    ::srandom_r(42, &random);
    for (int i = 0; i < 8; ++i) {
      cases::go(static_cast<std::uint32_t>(i));
      EXPECT_EQ(std::rand(), expected());
    }
    elsewhere([] { ::srand48(7); });
    ::srand48_r(7, &of_48_bits);
    for (int i = 0; i < 8; ++i) {
      cases::go(static_cast<std::uint32_t>(i));
      double fraction = 0;
      long number = 0;
      ::drand48_r(&of_48_bits, &fraction);
      EXPECT(::drand48() == fraction);
      ::lrand48_r(&of_48_bits, &number);
      EXPECT_EQ(::lrand48(), number);
      ::mrand48_r(&of_48_bits, &number);
      EXPECT_EQ(::mrand48(), number);
    }
    std::uint16_t seed[3] = {1, 2, 3};
    elsewhere([&seed] { ::seed48(seed); });
    const std::uint16_t* const before = ::seed48(seed);
    EXPECT(std::equal(seed, seed + 3, before));
    elsewhere([before, &seed] { EXPECT(std::equal(seed, seed + 3, before)); });  // not that rank's
    // all ranks at the same time: each number once
    std::srand(5);
    ::srandom_r(5, &random);
    constexpr int kEach = 100;
    std::vector<int> drawn(4 * kEach), all(4 * kEach);
    on_ranks(4, [&drawn](int i) {
      for (int k = 0; k < kEach; ++k) drawn[static_cast<std::size_t>(i * kEach + k)] = std::rand();
    });
    for (int& number : all) number = expected();
    std::sort(drawn.begin(), drawn.end());
    std::sort(all.begin(), all.end());
    EXPECT(drawn == all);
  });
}

/// Results that libc leaves in variables of its own, read on another rank.
void static_results() {
  std::time_t leap = 951782400;  // 2000-02-29
  kasane::run([leap] {
    elsewhere([] {
      char other[] = "x y";
      std::strtok(other, " ");
      std::strtok(nullptr, " ");
    });
    char text[] = "a b,c";
    cases::go(0);
    EXPECT_EQ(*std::strtok(text, " "), 'a');
    cases::go(cases::last());
    EXPECT_EQ(*std::strtok(nullptr, ","), 'b');
    cases::go(0);
    EXPECT_EQ(*std::strtok(nullptr, ","), 'c');
    EXPECT(std::strtok(nullptr, ",") == nullptr);
    const std::tm* const time = std::gmtime(&leap);
    cases::go(cases::last());
    EXPECT(time->tm_mon == 1 && time->tm_mday == 29);
    const char* const written = std::asctime(time);
    const std::tm* const local = std::localtime(&leap);
    cases::go(0);
    EXPECT(std::strcmp(written, "Tue Feb 29 00:00:00 2000\n") == 0);
    EXPECT_EQ(std::mktime(const_cast<std::tm*>(local)), leap);
    std::tm far = *time;
    far.tm_year = 12000 - 1900;
    EXPECT(std::strcmp(std::asctime(&far), "Tue Feb 29 00:00:00 12000\n") == 0);
    const char* const again = std::ctime(&leap);
    in_addr address = {};
    ::inet_pton(AF_INET, "10.20.30.40", &address);
    const char* const name = ::inet_ntoa(address);
    cases::go(cases::last());
    EXPECT(std::strstr(again, " 2000\n") != nullptr && std::strcmp(name, "10.20.30.40") == 0);
    cases::go(0);
  });
}

/// What main has set before kasane::run.
void formats() {
  const auto written = [] {
    std::ostringstream text;
    text.copyfmt(std::cout);
    text.precision(std::cout.precision());
    text << 255 << ' ' << 1.0 / 3;
    return text.str();
  };
  std::cout << std::fixed << std::setprecision(3) << std::setfill('*');
  std::cerr << std::hex;
  kasane::run([&written] {
    expect_everywhere([&written] {
      return written() == "255 0.333" && std::cout.fill() == '*' && (std::cerr.flags() & std::ios::hex) != 0;
    });
  });
  std::cout << std::scientific;
  std::cerr << std::dec << std::setprecision(-1);  // six digits
  kasane::run([&written] {
    expect_everywhere([&written] {
      return written() == "255 3.333e-01" && (std::cerr.flags() & std::ios::hex) == 0 &&
             std::cerr.precision() == -1;
    });
  });
}

constexpr cases::Case kAll[] = {{"folders", folders},
                                {"environment", environment},
                                {"others", others},
                                {"redirections", redirections},
                                {"random_numbers", random_numbers},
                                {"static_results", static_results},
                                {"formats", formats}};

}  // namespace

int main(int argc, char** argv) { return cases::main_of(argc, argv, kAll); }
