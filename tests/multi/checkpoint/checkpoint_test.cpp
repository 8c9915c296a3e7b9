// SPDX-License-Identifier: Apache-2.0
// Checkpoints of global memory: any owner, any rank that asks, any number of ranks.
#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <cerrno>
#include <complex>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <kasane/checkpoint.hpp>
#include <memory>
#include <string>
#include <vector>

namespace {

using Word = std::uint32_t;
constexpr std::size_t kWordsOfChunk = 16384;

class Checkpoint : public ::testing::Test {
 protected:
  Checkpoint() {
    std::string name = ::testing::TempDir() + "kasane_checkpoint.XXXXXX";
    folder_ = ::mkdtemp(name.data());
  }
  ~Checkpoint() override { std::filesystem::remove_all(folder_); }
  [[nodiscard]] std::string file(const char* name = "c") const { return folder_ + "/" + name; }
  [[nodiscard]] std::size_t files() const {
    return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator(folder_), {}));
  }
  std::string folder_;
};

Word value(std::size_t i, Word seed) {
  return i / kWordsOfChunk % 3 == 1 ? 0 : static_cast<Word>(i * 2654435761u + seed);
}

void fill(Word* p, std::size_t n, Word seed) {
  kasane::run(
      [=] { kasane::parallel_for(std::size_t{0}, n, [=](std::size_t i) { p[i] = value(i, seed); }, 1000); });
}
std::size_t wrong(const Word* p, std::size_t n, Word seed) {
  return kasane::run([=] {
    return kasane::parallel_reduce(
        std::size_t{0}, n, std::size_t{0}, [=](std::size_t i) { return std::size_t{p[i] != value(i, seed)}; },
        [](auto a, auto b) { return a + b; }, 8000);
  });
}

template <class F>
std::pair<int, std::string> failure_of(F&& f) {
  try {
    f();
  } catch (const kasane::error& e) {
    return {e.code(), e.what()};
  }
  return {0, ""};
}
void expect_failure(const std::pair<int, std::string>& failure, int code, const std::string& text) {
  EXPECT_EQ(failure.first, code) << failure.second;
  EXPECT_NE(failure.second.find(text), std::string::npos) << failure.second;
}

TEST_F(Checkpoint, ComesBackWhateverOwnsIt) {
  using kasane::placement;
  std::vector<kasane::unique_array<Word>> kept;  // so that no two are the same memory
  const auto array = [&](std::size_t n, placement where) {
    return kept.emplace_back(kasane::make_array<Word>(n, where)).get();
  };
  Word seed = 0;
  for (const placement where :
       {placement::local, placement::block, placement::cyclic, placement::first_touch,
        placement::on(kasane::ranks() - 1), placement::cyclic.in_pages(kasane::page_small),
        placement::block.in_pages(kasane::page_large)}) {
    for (const std::size_t n :
         {std::size_t{1}, kWordsOfChunk - 1, kWordsOfChunk, kWordsOfChunk + 1, 20 * kWordsOfChunk + 5}) {
      Word* const a = array(n, where);
      fill(a, n, ++seed);
      kasane::persist(a, n, file(), seed);
      fill(a, n, seed + 1000);
      kasane::restore(a, n, file());
      EXPECT_EQ(wrong(a, n, seed), 0u) << n;
      auto other = kasane::restore<Word>(file(), placement::cyclic);
      EXPECT_EQ(other.size, n);
      EXPECT_EQ(other.note, seed);
      EXPECT_EQ(wrong(other.data.get(), n, seed), 0u) << n;
      kept.push_back(std::move(other.data));
    }
  }
  EXPECT_EQ(files(), 1u);
}

TEST_F(Checkpoint, TouchesNothingBesideTheRange) {
  constexpr std::size_t n = 3 * kWordsOfChunk;
  const auto a = kasane::make_array<Word>(n, kasane::placement::cyclic.in_pages(kasane::page_small));
  fill(a.get(), n, 1);
  kasane::persist(a.get() + 1001, n - 2002, file());
  kasane::run([p = a.get()] { kasane::parallel_for(std::size_t{0}, n, [=](std::size_t i) { p[i] = 7; }); });
  kasane::restore(a.get() + 1001, n - 2002, file());
  std::size_t bad = 0;
  for (std::size_t i = 0; i < n; ++i) bad += a[i] != (i < 1001 || i >= n - 1001 ? 7 : value(i, 1));
  EXPECT_EQ(bad, 0u);
}

TEST_F(Checkpoint, OfNothing) {
  const auto a = kasane::make_array<Word>(1);
  a[0] = 5;
  kasane::persist(a.get(), 0, file(), 3);
  kasane::restore(a.get(), 0, file());
  EXPECT_EQ(a[0], 5u);
  EXPECT_EQ(kasane::describe_checkpoint(file()).note, 3u);
}

TEST_F(Checkpoint, OnThreadsAmongOthers) {
  constexpr std::size_t n = 20 * kWordsOfChunk;
  const auto a = kasane::make_array<Word>(n, kasane::placement::block),
             b = kasane::make_array<Word>(n, kasane::placement::cyclic);
  const std::size_t bad = kasane::run([&] {
    const std::string first = file("a"), second = file("b");  // made on a thread: in global memory
    std::size_t failures = 0;
    for (Word round = 0; round < 2; ++round) {
      kasane::parallel_for(std::size_t{0}, n,
                           [p = a.get(), round](std::size_t i) { p[i] = value(i, round); });
      // Two at a time, beside threads that have nothing to do with it.
      kasane::parallel_invoke(
          [&] { kasane::persist(a.get(), n, first, round); },
          [&] {
            kasane::parallel_for(std::size_t{0}, n,
                                 [q = b.get(), round](std::size_t i) { q[i] = value(i, round + 50); });
            kasane::persist(b.get(), n, second);
            kasane::restore(b.get(), n, second);
          },
          [] { kasane::parallel_for(0, 200, [](int) { kasane::this_thread::yield(); }, 1); });
      const auto back = kasane::restore<Word>(first);
      failures += back.note != round;
      for (std::size_t i = 0; i < n; i += 7)
        failures += back.data[i] != value(i, round) || b[i] != value(i, round + 50);
    }
    return failures;
  });
  EXPECT_EQ(bad, 0u);
}

TEST_F(Checkpoint, KnowsItsElements) {
  const auto doubles = kasane::make_array<double>(10);
  kasane::persist(doubles.get(), 10, file());
  const auto as = [&]<class T>(T, std::size_t n) {
    const auto a = kasane::make_array<T>(n);
    return failure_of([&] { kasane::restore(a.get(), n, file()); });
  };
  EXPECT_EQ(as(double{}, 10).first, 0);
  expect_failure(as(double{}, 9), EINVAL, file() + " holds 10 elements; 9 were asked for");
  expect_failure(as(float{}, 20), EINVAL, "holds elements of 8 bytes; elements of 4 bytes were asked for");
  expect_failure(as(std::uint64_t{}, 10), EINVAL, "holds elements of type 1; type 3 was asked for");
  const auto held = kasane::describe_checkpoint(file());
  EXPECT_EQ(held.count, 10u);
  EXPECT_EQ(held.element_bytes, 8u);
  expect_failure(failure_of([&] { (void)kasane::restore<std::complex<float>>(file()); }), EINVAL,
                 "type 4 was asked for");
}

TEST_F(Checkpoint, RefusesWhatCannotBe) {
  const auto a = kasane::make_array<Word>(10);
  const std::unique_ptr<void, void (*)(void*)> local(std::calloc(10, sizeof(Word)), std::free);
  auto* const words = static_cast<Word*>(local.get());
  expect_failure(failure_of([&] { kasane::persist(words, 10, file()); }), EINVAL,
                 "kasane::persist: the range is not in global memory");
  expect_failure(failure_of([&] { kasane::restore(words, 10, file()); }), EINVAL,
                 "kasane::restore: the range is not in global memory");
  expect_failure(failure_of([&] { kasane::persist(a.get(), std::size_t{1} << 61, file()); }), EINVAL,
                 "not in global memory");
  expect_failure(failure_of([&] { kasane::persist(a.get(), std::size_t{1} << 30, file()); }), EINVAL,
                 "not allocated");
  expect_failure(failure_of([&] { kasane::persist(a.get(), 10, file("nowhere/c")); }), ENOENT, "nowhere/c");
  expect_failure(failure_of([&] { kasane::persist(a.get(), 10, folder_); }), EISDIR, folder_);
  expect_failure(failure_of([&] { kasane::restore(a.get(), 10, file("none")); }), ENOENT,
                 "cannot read " + file("none"));
  expect_failure(failure_of([&] { (void)kasane::describe_checkpoint(file("none")); }), ENOENT, "none");
  std::ofstream(file("text")) << "no checkpoint";
  expect_failure(failure_of([&] { kasane::restore(a.get(), 10, file("text")); }), EINVAL, "is no checkpoint");
  expect_failure(kasane::run([&] { return failure_of([&] { kasane::restore(a.get(), 10, file("text")); }); }),
                 EINVAL, "is no checkpoint");
  EXPECT_EQ(files(), 1u);
}

TEST_F(Checkpoint, NamesTheChunkThatIsDamaged) {
  constexpr std::size_t n = 60 * kWordsOfChunk;
  const auto a = kasane::make_array<Word>(n, kasane::placement::block);
  fill(a.get(), n, 1);
  kasane::persist(a.get(), n, file());
  std::fstream(file(), std::ios::in | std::ios::out | std::ios::binary)
      .seekp(-65536 * 4 + 100, std::ios::end)
      .put('x');
  expect_failure(failure_of([&] { kasane::restore(a.get(), n, file()); }), EIO, "chunk 56 of 60 is damaged");
  std::filesystem::resize_file(file(), std::filesystem::file_size(file()) - 65536 * 2 - 1);
  expect_failure(failure_of([&] { kasane::restore(a.get(), n, file()); }), EIO,
                 "chunk 57 of 60 is incomplete");
  // And the next one is good again.
  kasane::persist(a.get(), n, file());
  kasane::restore(a.get(), n, file());
}

TEST_F(Checkpoint, InC) {
  auto* p = static_cast<double*>(kasane_allocate(1000 * sizeof(double), 16, KASANE_PLACEMENT_CYCLIC));
  for (int i = 0; i < 1000; ++i) p[i] = i;
  kasane_checkpoint_t contents = {500, 16, 77, 9};
  EXPECT_EQ(kasane_persist(p, &contents, file().c_str()), 0);
  std::memset(p, 0, 16000 / 2);
  EXPECT_EQ(kasane_restore(p, &contents, file().c_str()), 0);
  EXPECT_EQ(p[499], 499);
  kasane_checkpoint_t found;
  EXPECT_EQ(kasane_describe_checkpoint(file().c_str(), &found), 0);
  EXPECT_TRUE(found.count == 500 && found.element_bytes == 16 && found.note == 77 && found.type == 9);
  contents.type = 8;
  EXPECT_EQ(kasane_restore(p, &contents, file().c_str()), EINVAL);
  EXPECT_EQ(kasane_error_code(), EINVAL);
  kasane_free(p);
}

}  // namespace
