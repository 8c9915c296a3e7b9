// SPDX-License-Identifier: Apache-2.0 Counts the words of a text by threads at all ranks, and prints the most
// frequent ones. Each thread sends its counts to the ranks where the words lie, many in a message.
//
//   kasane run -n 2 -- word_count [FILE]
#include <algorithm>
#include <cctype>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <kasane/containers/fixed_string.hpp>
#include <kasane/containers/unordered_map.hpp>
#include <kasane/containers/updates.hpp>
#include <kasane/kasane.hpp>
#include <map>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace {

using Word = kasane::fixed_string<31>;  // longer words are cut
using Counts = kasane::unordered_map<Word, std::uint64_t>;

bool letter(char c) { return std::isalpha(static_cast<unsigned char>(c)) != 0; }

/// Calls f(word) for the words that begin in [begin, end).
template <class F>
void each_word(std::string_view text, std::size_t begin, std::size_t end, const F& f) {
  for (std::size_t i = begin; i < end; ++i) {
    if (!letter(text[i]) || (i != 0 && letter(text[i - 1]))) continue;
    std::string word;
    for (std::size_t k = i; k < text.size() && letter(text[k]); ++k)
      word += static_cast<char>(std::tolower(static_cast<unsigned char>(text[k])));
    f(Word(std::string_view(word).substr(0, Word::max_size())));
  }
}

void count(const Counts& counts, std::string_view text) {
  kasane::post_group group;
  std::vector<kasane::thread> threads;
  const std::size_t n = kasane::ranks();
  for (std::size_t r = 0; r < n; ++r)
    threads.emplace_back(kasane::at{static_cast<std::uint32_t>(r)}, [&, r] {
      kasane::updates u(counts, group);
      each_word(text, text.size() * r / n, text.size() * (r + 1) / n, [&](const Word& w) { u.add(w, 1); });
    });
  for (auto& t : threads) t.join();
  group.wait();
}

/// Text without a file: of some words the k-th about 20 000 / k² times.
std::string made_up() {
  std::string text;
  for (int n = 1; n <= 20000; ++n)
    for (int k = 1; k <= 40; ++k)
      if (n % (k * k) == 0)
        text += std::string(1, static_cast<char>('a' + k % 26)) + (k < 26 ? "lpha " : "eta ");
  return text;
}

}  // namespace

int main(int argc, char** argv) {
  std::string text = made_up();
  if (argc > 1) {
    std::ifstream file(argv[1]);
    if (!file) {
      std::fprintf(stderr, "word_count: cannot read %s\n", argv[1]);
      return 1;
    }
    std::ostringstream bytes;
    bytes << file.rdbuf();
    text = bytes.str();
  }
  std::map<Word, std::uint64_t> expected;
  each_word(text, 0, text.size(), [&](const Word& w) { ++expected[w]; });
  const bool right = kasane::run([&] {
    const Counts counts;
    count(counts, text);
    std::vector<std::pair<std::uint64_t, Word>> all;
    for (const auto& [word, n] : counts) all.emplace_back(n, word);
    std::sort(all.rbegin(), all.rend());
    for (std::size_t i = 0; i < all.size() && i < 10; ++i)
      std::printf("%8llu %s\n", static_cast<unsigned long long>(all[i].first), all[i].second.str().c_str());
    for (const auto& [n, word] : all)
      if (const auto found = expected.find(word); found == expected.end() || found->second != n) return false;
    return all.size() == expected.size();
  });
  std::printf("word_count: %s\n", right ? "ok" : "FAILED");
  return right ? 0 : 1;
}
