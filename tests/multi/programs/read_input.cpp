// SPDX-License-Identifier: Apache-2.0
// Reads "0 1 2 …" a line each from standard input, in every way that libc and libstdc++ offer, by one thread
// that moves between ranks. The first line is main's. Status 1 if a line is missing or out of order.
#include <unistd.h>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <kasane/kasane.hpp>
#include <string>

namespace {

constexpr int kLines = 300;

int number_of(const std::string& line) { return line.empty() ? -1 : std::atoi(line.c_str()); }

int by_scanf() {
  int n = -1;
  return std::scanf("%d", &n) == 1 && std::getchar() == '\n' ? n : -1;
}
int by_fscanf() {
  int n = -1;
  return std::fscanf(stdin, "%d%*c", &n) == 1 ? n : -1;
}
int by_fgets() {
  char line[32];
  return std::fgets(line, sizeof line, stdin) != nullptr ? number_of(line) : -1;
}
int by_getline() {
  char* line = nullptr;
  std::size_t bytes = 0;
  const int n = ::getline(&line, &bytes, stdin) > 0 ? number_of(line) : -1;
  std::free(line);
  return n;
}
int by_getc() {
  std::string line;
  for (int c = std::getc(stdin); c != '\n' && c != EOF; c = std::fgetc(stdin)) line += static_cast<char>(c);
  return number_of(line);
}
int by_getchar_unlocked() {
  std::string line;
  for (int c = getchar_unlocked(); c != '\n' && c != EOF; c = getchar_unlocked())
    line += static_cast<char>(c);
  return number_of(line);
}
int by_fread() {
  std::string line;
  for (char c = 0; std::fread(&c, 1, 1, stdin) == 1 && c != '\n';) line += c;
  return number_of(line);
}
int by_cin() {
  int n = -1;
  std::cin >> n;
  std::cin.ignore();
  return n;
}
int by_getline_of_cin() {
  std::string line;
  return std::getline(std::cin, line) ? number_of(line) : -1;
}

int (*const kWays[])() = {by_scanf, by_fscanf, by_fgets,         by_getline, by_getc, by_getchar_unlocked,
                          by_fread, by_cin,    by_getline_of_cin};

}  // namespace

int main() {
  if (by_scanf() != 0) return 2;
  int wrong = 0;
  kasane::run([&] {
    auto* const places = new void*[kasane_ranks()];
    for (unsigned r = 0; r < kasane_ranks(); ++r) places[r] = kasane_allocate_at(8, 8, r);
    for (int i = 1; i < kLines; ++i) {
      kasane::this_thread::move_near(places[static_cast<unsigned>(i) % kasane_ranks()]);
      wrong += kWays[static_cast<unsigned>(i) % std::size(kWays)]() != i;
    }
    kasane::this_thread::move_near(places[kasane_ranks() - 1]);
    wrong += std::getchar() != EOF;
    kasane::this_thread::move_near(places[kasane_ranks() - 1]);
    wrong += std::feof(stdin) == 0;
  });
  if (wrong != 0) std::printf("wrong %d times\n", wrong);
  return wrong != 0;
}
