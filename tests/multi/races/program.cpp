// SPDX-License-Identifier: Apache-2.0
// Two ranks change a word: both the same bytes (or those of 64 words: "array"), each bytes of its own, or one
// after the other with fences between. races.sh looks at what --check races says.
#include <cstdint>
#include <cstring>
#include <kasane/kasane.hpp>

namespace {

constexpr std::size_t kPageBytes = 65536;

int run(bool race, bool ordered, int stores) {
  // Pages of every rank, of which one is taken that neither of the two owns, if there are so many; and what
  // the two say to each other directly, so without a fence.
  auto* const pages = static_cast<std::byte*>(
      kasane::allocate(kasane::ranks() * kPageBytes, kPageBytes, kasane::placement::cyclic));
  auto* const words = static_cast<std::uint64_t*>(kasane::allocate(kPageBytes, kPageBytes));
  const kasane::global_ptr<std::uint64_t> steps(words), ranks(words + 1);
  std::memset(words, 0, kPageBytes);
  kasane::release_all();
  const auto step = [&] { kasane::fetch_add(steps, 1); };
  const auto wait_for = [&](std::uint64_t n) {
    while (kasane::fetch_add(steps, 0) < n) {
    }
  };
  kasane::thread other(kasane::near{pages + (kasane::ranks() - 1) * kPageBytes}, [&] {
    kasane::put(ranks, std::uint64_t{kasane::rank()});
    step();
    wait_for(2);
    auto* const page = reinterpret_cast<volatile std::uint16_t*>(kasane::get(ranks + 1));
    (void)page[0];
    step();
    wait_for(4);
    for (int i = 0; i < stores; ++i) page[4 * i] = 0x1111;
    kasane::release_all();
    step();
  });
  kasane::this_thread::move_near(pages);  // to rank 0
  std::byte* page = pages;
  wait_for(1);
  const auto first = kasane::get(ranks);
  for (std::uint32_t r = 0; r < kasane::ranks(); ++r) {
    if (const auto owner = kasane::where(pages + r * kPageBytes); owner == first || owner == kasane::rank())
      continue;
    page = pages + r * kPageBytes;
  }
  if (kasane::where(page) == kasane::rank()) page += kPageBytes;
  if (first == kasane::rank()) return 2;
  kasane::put(ranks + 1, reinterpret_cast<std::uint64_t>(page));
  auto* const seen = reinterpret_cast<volatile std::uint16_t*>(page);
  step();
  (void)seen[0];
  step();
  wait_for(5);
  if (ordered) kasane::acquire_all();
  for (int i = 0; i < stores; ++i) seen[4 * i + (race || ordered ? 0 : 1)] = 0x2222;
  kasane::release_all();
  other.join();
  if (seen[0] != (race || ordered ? 0x2222 : 0x1111)) return 3;
  if (!race && !ordered && seen[1] != 0x2222) return 4;
  return 0;
}

}  // namespace

int main(int, char** argv) {
  const bool array = std::strcmp(argv[1], "array") == 0;
  const bool race = array || std::strcmp(argv[1], "race") == 0,
             ordered = std::strcmp(argv[1], "ordered") == 0;
  return kasane::run([&] { return run(race, ordered, array ? 64 : 1); });
}
