// SPDX-License-Identifier: Apache-2.0
// Threads of all ranks print lines of 20 000 equal letters, and short ones. long_lines.sh reads them.
#include <cstdio>
#include <iostream>
#include <kasane/kasane.hpp>
#include <string>
#include <vector>

int main() {
  kasane::run([] {
    constexpr std::size_t kWord = 65536 / sizeof(int);
    const auto words = kasane::make_array<int>(kasane::ranks() * kWord, kasane::placement::block);
    std::vector<kasane::thread> threads;
    for (std::uint32_t i = 0; i < 4; ++i) {
      threads.emplace_back(kasane::near{words.get() + i % kasane::ranks() * kWord}, [i] {
        const std::string line(20000, static_cast<char>('a' + i));
        const auto part = std::string(30, static_cast<char>('A' + i)) + '\n';
        for (int k = 0; k < 50; ++k) {
          std::printf("%s\n", line.c_str());
          std::cout << part;  // in one call: others may print between two
        }
      });
    }
    for (auto& t : threads) t.join();
  });
}
