// SPDX-License-Identifier: Apache-2.0
// Parts of the language and of the standard library, used by threads of all ranks and over moves.
#include <alloca.h>
#include <setjmp.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cmath>
#include <complex>
#include <coroutine>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iomanip>
#include <iostream>
#include <locale>
#include <memory_resource>
#include <numeric>
#include <random>
#include <regex>
#include <sstream>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>
#include <unordered_map>
#include <unordered_set>
#include <valarray>

#include "cases.h"

using cases::elsewhere;
using cases::on_ranks;

namespace {

// ---- exceptions -----------------------------------------------------------------------------------------
struct Failure : std::runtime_error {
  Failure(int code_, const std::string& what) : std::runtime_error(what), code(code_) {}
  int code;
};
void fails(int depth) {
  if (depth == 0) throw Failure(7, "deep " + std::string(50, 'd'));
  try {
    fails(depth - 1);
  } catch (...) {
    std::throw_with_nested(Failure(depth, "at depth " + std::to_string(depth)));
  }
}
int depth_of(const std::exception& e) {
  try {
    std::rethrow_if_nested(e);
  } catch (const std::exception& inner) {
    return 1 + depth_of(inner);
  }
  return 0;
}
void exceptions() {
  kasane::run([] {
    for (std::uint32_t r = 0; r < kasane::ranks(); ++r) {
      kasane::thread t(kasane::near{cases::place(r)}, [] { fails(3); });
      try {
        t.join();
        EXPECT(false);
      } catch (const Failure& e) {
        EXPECT_EQ(e.code, 3);
        EXPECT_EQ(depth_of(e), 3);
      }
    }
    std::exception_ptr kept;
    elsewhere([&] {
      try {
        fails(0);
      } catch (...) {
        kept = std::current_exception();
      }
    });
    std::atomic<int> caught{0};
    on_ranks(8, [&](int) {
      try {
        std::rethrow_exception(kept);
      } catch (const Failure& e) {
        caught += e.code == 7 && std::string_view(e.what()).starts_with("deep");
      }
    });
    EXPECT_EQ(caught.load(), 8);
    elsewhere([&] { kept = nullptr; });
    // moves inside of a handler and during unwinding
    struct Moves {
      ~Moves() { cases::go(cases::last()); }
    };
    try {
      const Moves moves;
      throw 42;
    } catch (int n) {
      EXPECT_EQ(n, 42);
      cases::go(0);
      try {
        throw;
      } catch (int again) {
        EXPECT_EQ(again, 42);
      }
      cases::go(1);
    }
    EXPECT_EQ(std::uncaught_exceptions(), 0);
    try {
      (void)std::vector<int>(3).at(7);
    } catch (const std::out_of_range&) {
      cases::go(0);
    }
    try {
      kasane::parallel_for(
          0, 100,
          [](int i) {
            if (i == 50) throw std::system_error(ENOENT, std::generic_category(), "fifty");
          },
          1);
      EXPECT(false);
    } catch (const std::system_error& e) {
      EXPECT_EQ(e.code().value(), ENOENT);
      EXPECT(std::string(e.what()).find("No such file") != std::string::npos);
    }
  });
}

// ---- coroutines -----------------------------------------------------------------------------------------
struct Generator {
  struct promise_type {
    int value = 0;
    std::exception_ptr failure;
    Generator get_return_object() {
      return Generator(std::coroutine_handle<promise_type>::from_promise(*this));
    }
    std::suspend_always initial_suspend() noexcept { return {}; }
    std::suspend_always final_suspend() noexcept { return {}; }
    std::suspend_always yield_value(int v) noexcept {
      value = v;
      return {};
    }
    void return_void() {}
    void unhandled_exception() { failure = std::current_exception(); }
  };
  explicit Generator(std::coroutine_handle<promise_type> h) : handle(h) {}
  Generator(Generator&& other) noexcept : handle(std::exchange(other.handle, {})) {}
  ~Generator() {
    if (handle) handle.destroy();
  }
  bool next() const {
    handle.resume();
    if (handle.promise().failure) std::rethrow_exception(handle.promise().failure);
    return !handle.done();
  }
  std::coroutine_handle<promise_type> handle;
};
Generator triangular(int n) {
  int sum = 0;
  std::vector<int> history;
  for (int i = 1; i <= n; ++i) {
    history.push_back(i);
    sum = std::accumulate(history.begin(), history.end(), 0);
    co_yield sum;
  }
  throw std::runtime_error("end of " + std::to_string(sum));
}
void coroutines() {
  kasane::run([] {
    const Generator g = triangular(10);
    int n = 0;
    try {
      for (;;) {
        cases::go(static_cast<std::uint32_t>(n));
        if (!g.next()) break;
        ++n;
        EXPECT_EQ(g.handle.promise().value, n * (n + 1) / 2);
      }
      EXPECT(false);
    } catch (const std::runtime_error& e) {
      EXPECT(std::strcmp(e.what(), "end of 55") == 0);
    }
    EXPECT_EQ(n, 10);
    elsewhere([] {
      const Generator left = triangular(5);
      EXPECT(left.next());
    });
  });
}

// ---- C's control flow and stacks ------------------------------------------------------------------------
jmp_buf jump;
void jumps() {
  kasane::run([] {
    on_ranks(4, [](int i) {
      jmp_buf here;
      volatile int count = 0;
      cases::go(static_cast<std::uint32_t>(i) + 1);
      if (setjmp(here) < 5) {
        count = count + 1;
        if (count < 6) longjmp(here, count);
      }
      EXPECT_EQ(count, 5);
    });
    volatile int seen = 0;  // the set is on one rank, the jump on another
    if (setjmp(jump) == 0) {
      cases::go(cases::last());
      seen = 1;
      longjmp(jump, 1);
    }
    EXPECT_EQ(seen, 1);
  });
}
long ackermann(long m, long n) {
  return m == 0 ? n + 1 : n == 0 ? ackermann(m - 1, 1) : ackermann(m - 1, ackermann(m, n - 1));
}
[[gnu::noinline]] long with_array(int n) {
  auto* a = static_cast<int*>(alloca(static_cast<std::size_t>(n) * sizeof(int)));
  std::iota(a, a + n, 0);
  kasane::this_thread::yield();
  cases::go(static_cast<std::uint32_t>(n));
  return std::accumulate(a, a + n, 0L);
}
int depth_reached(int n) {
  volatile char frame[200];
  frame[0] = static_cast<char>(n);
  return n == 0 ? 0 : 1 + depth_reached(n - 1) + 0 * frame[0];
}
void stacks() {
  kasane::run([] {
    EXPECT_EQ(depth_reached(20000), 20000);  // the first thread has main's size
    on_ranks(8, [](int i) {
      EXPECT_EQ(ackermann(2, 40 + i), 2 * (40 + i) + 3);
      EXPECT_EQ(with_array(8000 + i), (8000L + i) * (7999 + i) / 2);
    });
  });
}

// ---- strings, numbers, streams --------------------------------------------------------------------------
void streams() {
  kasane::run([] {
    std::ostringstream shared;
    kasane::mutex lock;
    on_ranks(8, [&](int i) {
      for (int k = 0; k < 20; ++k) {
        std::ostringstream out;
        out << std::setw(8) << std::setfill('0') << std::hex << i * 256 + k << ' ' << std::fixed
            << std::setprecision(2) << 1.5 * k;
        std::istringstream in(out.str());
        int n = 0;
        double d = 0;
        in >> std::hex >> n >> d;
        EXPECT(in && n == i * 256 + k && d == 1.5 * k);
        const std::lock_guard guard(lock);
        shared << n << ';';
      }
    });
    EXPECT_EQ(std::ranges::count(shared.str(), ';'), 160);
    std::stringstream moving;
    for (std::uint32_t r = 0; r < 8; ++r) {
      cases::go(r);
      moving << r << ' ' << std::boolalpha << true << ' ';
    }
    int sum = 0;
    bool truth = false;
    for (int n = 0; moving >> n >> truth;) {
      cases::go(static_cast<std::uint32_t>(n));
      sum += n;
    }
    EXPECT_EQ(sum, 28);
  });
}
std::locale global_locale("C");
struct Thousands : std::numpunct<char> {
  char do_thousands_sep() const override { return '\''; }
  std::string do_grouping() const override { return "\3"; }
};
void locales() {
  kasane::run([] {
    const std::locale mine(std::locale::classic(), new Thousands);
    on_ranks(4, [&](int i) {
      for (int k = 0; k < 10; ++k) {
        std::ostringstream out;
        out.imbue(mine);
        out << 1234565 + i;
        EXPECT(out.str() == "1'234'56" + std::to_string(5 + i));
        EXPECT(std::toupper('a', global_locale) == 'A');
        EXPECT(std::use_facet<std::ctype<char>>(mine).is(std::ctype_base::digit, '7'));
      }
    });
    elsewhere([] { global_locale = std::locale(std::locale::classic(), new Thousands); });
    std::ostringstream out;
    out.imbue(global_locale);
    out << 10000;
    EXPECT(out.str() == "10'000");
  });
}
const std::regex date(R"((\d{4})-(\d{2})-(\d{2}))");
void expressions() {
  kasane::run([] {
    on_ranks(4, [](int i) {
      std::smatch match;
      const std::string s = "on 2024-01-0" + std::to_string(i + 1) + " it was";
      EXPECT(std::regex_search(s, match, date) && match[3].str() == "0" + std::to_string(i + 1));
      const std::regex word("[a-z]+", std::regex::icase);
      EXPECT_EQ(std::distance(std::sregex_iterator(s.begin(), s.end(), word), std::sregex_iterator()), 3);
      EXPECT(std::regex_replace(s, word, "x") == "x 2024-01-0" + std::to_string(i + 1) + " x x");
    });
  });
}
void random_numbers() {
  kasane::run([] {
    std::vector<std::uint64_t> sums(4);
    on_ranks(4, [&](int i) {
      std::mt19937_64 engine(42);
      std::uint64_t sum = 0;
      for (int k = 0; k < 1000; ++k) {
        sum += engine();
        if (k % 200 == 0) cases::go(static_cast<std::uint32_t>(i + k));
      }
      sums[static_cast<std::size_t>(i)] = sum;
      std::normal_distribution<> normal;
      EXPECT(std::isfinite(normal(engine)));
      std::random_device device;
      (void)device();
    });
    for (const auto s : sums) EXPECT(s == sums[0]);
  });
}
void times() {
  kasane::run([] {
    const auto start = std::chrono::steady_clock::now();
    on_ranks(4, [&](int i) {
      for (std::uint32_t k = 0; k < 8; ++k) {
        const auto before = std::chrono::steady_clock::now();
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
        cases::go(static_cast<std::uint32_t>(i) + k);
        EXPECT(std::chrono::steady_clock::now() - before >= std::chrono::milliseconds(1));
        const std::time_t t = 86400 * 365;
        std::tm parts{};
        ::gmtime_r(&t, &parts);
        char text[64];
        EXPECT(std::strftime(text, sizeof text, "%Y-%m-%d", &parts) == 10 &&
               std::strcmp(text, "1971-01-01") == 0);
        std::ostringstream out;
        out << std::put_time(&parts, "%F");
        EXPECT(out.str() == "1971-01-01");
      }
    });
    EXPECT(std::chrono::steady_clock::now() > start);
  });
}
void folders() {
  namespace fs = std::filesystem;
  const fs::path top = fs::temp_directory_path() / ("kasane-cases-" + std::to_string(::getpid()));
  fs::create_directories(top);
  kasane::run([&] {
    on_ranks(8, [&](int i) {
      const fs::path mine = top / ("folder " + std::to_string(i)) / "below";
      fs::create_directories(mine);
      std::ofstream(mine / "file.txt") << std::string(static_cast<std::size_t>(i) * 1000, 'x');
      EXPECT_EQ(fs::file_size(mine / "file.txt"), static_cast<std::size_t>(i) * 1000);
      fs::rename(mine / "file.txt", mine / "renamed.txt");
    });
    elsewhere([&] {
      std::uintmax_t bytes = 0;
      int files = 0;
      for (const fs::directory_entry& e : fs::recursive_directory_iterator(top))
        if (e.is_regular_file()) bytes += e.file_size(), ++files;
      EXPECT_EQ(bytes, 28000u);
      EXPECT_EQ(files, 8);
      std::error_code error;
      (void)fs::file_size(top / "none", error);
      EXPECT(error == std::errc::no_such_file_or_directory);
    });
  });
  EXPECT_EQ(fs::remove_all(top), 1 + 8 * 3u);
}
void resources() {
  kasane::run([] {
    std::pmr::monotonic_buffer_resource buffer;
    std::pmr::unsynchronized_pool_resource pool;
    kasane::mutex lock;
    std::pmr::vector<std::pmr::string> strings(&buffer);
    std::pmr::unordered_map<int, std::pmr::string> map(&pool);
    on_ranks(8, [&](int i) {
      for (int k = 0; k < 50; ++k) {
        const std::lock_guard guard(lock);
        strings.emplace_back("a string that is long enough to be allocated " + std::to_string(i));
        map[i * 50 + k] = strings.back();
      }
    });
    EXPECT_EQ(strings.size(), 400u);
    EXPECT_EQ(map.size(), 400u);
    EXPECT(map[399].ends_with(" 7"));
  });
}
int compare(const void* a, const void* b) {
  return *static_cast<const int*>(a) - *static_cast<const int*>(b);
}
void sorting() {
  kasane::run([] {
    std::vector<int> v(80000);
    std::mt19937 engine(1);
    for (int& x : v) x = static_cast<int>(engine() % 100000);
    on_ranks(8, [&](int i) {
      std::qsort(v.data() + i * 10000, 10000, sizeof(int), compare);
      const int key = v[static_cast<std::size_t>(i) * 10000 + 77];
      EXPECT(std::bsearch(&key, v.data() + i * 10000, 10000, sizeof(int), compare) != nullptr);
    });
    for (int i = 1; i < 8; ++i)
      std::inplace_merge(v.begin(), v.begin() + i * 10000, v.begin() + (i + 1) * 10000);
    EXPECT(std::ranges::is_sorted(v));
    EXPECT(std::to_string(v[0]) == std::to_string(*std::ranges::min_element(v)));
  });
}
void numbers() {
  kasane::run([] {
    on_ranks(8, [](int i) {
      std::valarray<double> a(1.0 * i, 100);
      const std::complex<double> c(a.sum(), 1);
      EXPECT_EQ(c.real(), 100.0 * i);
      char text[32];
      const auto end = std::to_chars(text, text + 32, 1.0 / 3).ptr;
      double back = 0;
      std::from_chars(text, end, back);
      EXPECT(back == 1.0 / 3);
      EXPECT_EQ(std::stoi("12" + std::to_string(i)), 120 + i);
      try {
        (void)std::stoi("none");
        EXPECT(false);
      } catch (const std::invalid_argument&) {
      }
      errno = 0;
      EXPECT_EQ(std::strtol("99999999999999999999", nullptr, 10), 9223372036854775807L);
      EXPECT_EQ(errno, ERANGE);
      cases::go(static_cast<std::uint32_t>(i) + 1);
      EXPECT_EQ(errno, ERANGE);
      errno = 0;
      EXPECT(std::isinf(std::exp(1e10)) && std::isnan(std::sqrt(-1.0)));
      char buffer[64];
      EXPECT_EQ(std::snprintf(buffer, sizeof buffer, "%d %.3f %s %zu", i, 2.5, "s", sizeof buffer), 12);
      int n = 0;
      float f = 0;
      EXPECT_EQ(std::sscanf(buffer, "%d %f", &n, &f), 2);
      EXPECT(n == i && f == 2.5f);
    });
  });
}

// ---- OS threads of the program --------------------------------------------------------------------------
long from_os_threads[4];
void os_threads() {
  std::vector<int> of_main(1000, 1);
  long before = 0;
  std::thread([&] { before = std::accumulate(of_main.begin(), of_main.end(), 0L); }).join();
  EXPECT_EQ(before, 1000);
  kasane::run([&] {
    on_ranks(4, [&](int i) {
      std::vector<long> parts(4);
      std::vector<std::thread> threads;
      for (int k = 0; k < 4; ++k)
        threads.emplace_back([&, k] {
          parts[static_cast<std::size_t>(k)] = std::accumulate(of_main.begin(), of_main.end(), 0L) * k;
          std::string s(1000, 'x');
          from_os_threads[i] += 0;
        });
      for (std::thread& t : threads) t.join();
      from_os_threads[i] = std::accumulate(parts.begin(), parts.end(), 0L);
    });
  });
  for (const long n : from_os_threads) EXPECT_EQ(n, 6000);
}

constexpr cases::Case kAll[] = {
    {"exceptions", exceptions}, {"coroutines", coroutines}, {"jumps", jumps},
    {"stacks", stacks},         {"streams", streams},       {"locales", locales},
    {"regex", expressions},     {"random", random_numbers}, {"times", times},
    {"folders", folders},       {"pmr", resources},         {"sorting", sorting},
    {"numbers", numbers},       {"os-threads", os_threads},
};

}  // namespace

int main(int argc, char** argv) { return cases::main_of(argc, argv, kAll); }
