// SPDX-License-Identifier: Apache-2.0
#include "base/nearest.h"

#include <algorithm>

namespace kasane {
namespace {

/// Letters changed, left out, put in, or swapped with their neighbour (optimal string alignment).
std::size_t distance(std::string_view a, std::string_view b) {
  std::vector<std::vector<std::size_t>> d(a.size() + 1, std::vector<std::size_t>(b.size() + 1));
  for (std::size_t i = 0; i <= a.size(); ++i) {
    for (std::size_t j = 0; j <= b.size(); ++j) {
      if (i == 0 || j == 0) {
        d[i][j] = i + j;
        continue;
      }
      const std::size_t changed = d[i - 1][j - 1] + (a[i - 1] != b[j - 1] ? 1 : 0);
      d[i][j] = std::min({changed, d[i - 1][j] + 1, d[i][j - 1] + 1});
      const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped) d[i][j] = std::min(d[i][j], d[i - 2][j - 2] + 1);
    }
  }
  return d[a.size()][b.size()];
}

/// Does the word have this part, between hyphens or underscores?
bool has_part(std::string_view word, std::string_view part) {
  const auto ends = [&](std::size_t at) { return at == word.size() || word[at] == '-' || word[at] == '_'; };
  for (std::size_t at = 0; (at = word.find(part, at)) != std::string_view::npos; ++at) {
    if ((at == 0 || ends(at - 1)) && ends(at + part.size())) return true;
  }
  return false;
}

}  // namespace

std::string nearest(std::string_view word, const std::vector<std::string>& known) {
  std::string best;
  std::size_t least = std::max<std::size_t>(1, word.size() / 3) + 1;
  for (const std::string& candidate : known) {
    const std::size_t letters = distance(word, candidate);
    if (letters >= least) continue;
    least = letters;
    best = candidate;
  }
  if (!best.empty()) return best;
  for (const std::string& candidate : known) {
    if (candidate.size() > best.size() && has_part(word, candidate)) best = candidate;
  }
  return best;
}

std::string suggestion(std::string_view word, const std::vector<std::string>& known) {
  const std::string meant = nearest(word, known);
  return meant.empty() ? meant : "; did you mean " + meant + "?";
}

}  // namespace kasane
