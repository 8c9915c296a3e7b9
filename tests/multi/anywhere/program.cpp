// SPDX-License-Identifier: Apache-2.0
// What anywhere.py starts: it does what its first argument says.
#include <elf.h>
#include <sys/auxv.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>
#include <kasane/kasane.hpp>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

namespace {

/// Work on all ranks; right if they share memory that nothing else writes to.
bool sum_is_right() {
  constexpr long kNumbers = 20000;
  std::vector<long> numbers(kNumbers, 0);
  long sum = 0;
  kasane::run([&] {
    std::vector<long> squares(kNumbers);
    kasane::parallel_for(0L, kNumbers, [&](long i) { squares[static_cast<std::size_t>(i)] = i; }, 16);
    for (const long n : squares) sum += n;
  });
  return sum == kNumbers * (kNumbers - 1) / 2;
}

/// More than the first pages of any memory file, on both outputs; then what input there is.
int talk() {
  for (int i = 0; i < 3000; ++i) {
    std::printf("a line of output\n");
    std::fprintf(stderr, "a line of errors\n");
  }
  std::fflush(nullptr);
  std::size_t bytes = 0;
  char text[256];
  for (ssize_t n; (n = ::read(0, text, sizeof text)) > 0;) bytes += static_cast<std::size_t>(n);
  std::printf("%zu bytes of input\n", bytes);
  return sum_is_right() ? 0 : 1;
}

volatile std::uintptr_t g_wild = 8;  // an address that no compiler knows

[[gnu::noinline]] void crash() {
  char mark[32];  // never whole in the program's file
  std::snprintf(mark, sizeof mark, "%s-%d-%s", "mark", 4 * 10 + 2, "on the stack");
  volatile char* first = mark;
  *first = 'M';
  *reinterpret_cast<volatile int*>(g_wild) = *first;
}

int crash_on_a_thread() {
  kasane::run([] { kasane::thread(crash).join(); });
  return 0;
}

/// A write beyond the limit ends the program, as it would without Kasane.
int print_file_limit() {
  rlimit limit{};
  ::getrlimit(RLIMIT_FSIZE, &limit);
  std::printf("file limit %llu\n", static_cast<unsigned long long>(limit.rlim_cur));
  return sum_is_right() ? 0 : 1;
}

/// Of the program's place, as libc has it. True, too, where the kernel cannot be told.
bool kernel_knows_place() {
  unsigned bytes = 0;
  if (::prctl(PR_SET_MM, PR_SET_MM_MAP_SIZE, &bytes, 0, 0) != 0) return true;
  Elf64_auxv_t values[64] = {};
  std::FILE* file = std::fopen("/proc/self/auxv", "re");
  if (file == nullptr) return false;
  const std::size_t count = std::fread(values, sizeof values[0], 64, file);
  std::fclose(file);
  for (std::size_t i = 0; i < count; ++i) {
    if (values[i].a_type == AT_PHDR) return values[i].a_un.a_val == ::getauxval(AT_PHDR);
  }
  return false;
}

int print_place() {
  std::printf("kernel %s\n", kernel_knows_place() ? "agrees" : "does not know");
  std::printf("variable %s\n", std::getenv("KASANE_SAME_IMAGE") == nullptr ? "gone" : "left");
  const auto* file = reinterpret_cast<const char*>(::getauxval(AT_PHDR) & ~std::uint64_t{4095});
  std::printf("headers %s\n", std::memcmp(file, "\177ELF", 4) == 0 ? "mapped" : "missing");
  return kasane_rank() != 0 || sum_is_right() ? 0 : 1;
}

/// More than --dram 12M of two ranks, twice.
int spill() {
  constexpr std::size_t kWords = std::size_t{4} << 20, kStep = 512;
  std::size_t right = 0;
  kasane::run([&] {
    const auto all = kasane::make_array<std::size_t>(kWords, kasane::placement::cyclic);
    for (std::size_t i = 0; i < kWords; i += kStep) all[i] = i;
    for (std::size_t i = 0; i < kWords; i += kStep) right += all[i] == i ? 1 : 0;
  });
  return right == kWords / kStep ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "";
  if (what == "talk") return talk();
  if (what == "crash") return crash_on_a_thread();
  if (what == "file-limit") return print_file_limit();
  if (what == "spill") return spill();
  if (what == "place") return print_place();
  return 2;
}
