// SPDX-License-Identifier: Apache-2.0
// A program as checkpoints are for: it counts generations, whose data follow from their number, and goes on
// from its checkpoint if there is one.
//
//   checkpoint_program PATH GENERATIONS      prints "saved N" after each checkpoint
//   checkpoint_program PATH check LEAST      it is whole, of generation LEAST or later; prints "holds N"
//
// CHECKPOINT_VALUES of the environment, which all ranks have alike: how many values, of 8 bytes.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <kasane/checkpoint.hpp>

namespace {

using Value = std::uint64_t;
const std::size_t n = [] {
  const char* const text = std::getenv("CHECKPOINT_VALUES");
  return text != nullptr ? std::strtoull(text, nullptr, 10) : 300'000;  // 37 chunks and a part of one
}();
constexpr std::size_t on_a_page = 8192;

Value value_of(std::uint64_t generation, std::size_t i) {
  if (i / on_a_page % 5 == generation % 5) return 0;  // other chunks are zero in each
  return (generation << 32 | i) * 0x9E3779B97F4A7C15u;
}

void make(Value* data, std::uint64_t generation) {
  kasane::run([=] {
    kasane::parallel_for(std::size_t{0}, n, [=](std::size_t i) { data[i] = value_of(generation, i); });
  });
}

bool is(const Value* data, std::uint64_t generation) {
  return 0 == kasane::run([=] {
           return kasane::parallel_reduce(
               std::size_t{0}, n, std::size_t{0},
               [=](std::size_t i) { return std::size_t{data[i] != value_of(generation, i)}; },
               [](auto a, auto b) { return a + b; });
         });
}

int run(const char* path, const char* what, std::uint64_t least) {
  if (std::strcmp(what, "check") == 0) {
    const auto found = kasane::restore<Value>(path, kasane::placement::cyclic);
    if (found.size != n || !is(found.data.get(), found.note))
      return std::printf("%s does not hold generation %lu\n", path, found.note), 1;
    if (found.note < least)
      return std::printf("%s holds generation %lu, but %lu was saved\n", path, found.note, least), 1;
    std::printf("holds %lu\n", found.note);
    return 0;
  }
  const auto data = kasane::make_array<Value>(n, kasane::placement::block);
  std::uint64_t generation = 0;
  if (std::filesystem::exists(path)) {
    kasane::restore(data.get(), n, path);
    generation = kasane::describe_checkpoint(path).note;
    if (!is(data.get(), generation))
      return std::printf("%s does not hold generation %lu\n", path, generation), 1;
  }
  for (const std::uint64_t end = generation + std::strtoull(what, nullptr, 10); generation < end;) {
    make(data.get(), ++generation);
    kasane::persist(data.get(), n, path, generation);
    std::printf("saved %lu\n", generation);
    std::fflush(stdout);
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  try {
    return run(argv[1], argv[2], argc > 3 ? std::strtoull(argv[3], nullptr, 10) : 0);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
}
