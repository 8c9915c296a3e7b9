// SPDX-License-Identifier: Apache-2.0
// What libstdc++ keeps for a process, on threads of several ranks: locales, numbers, locks and handlers.
//   standard_library [CASE…]
#include <algorithm>
#include <array>
#include <atomic>
#include <barrier>
#include <cstdlib>
#include <exception>
#include <iomanip>
#include <locale>
#include <memory>
#include <memory_resource>
#include <new>
#include <sstream>
#include <string>
#include <vector>

#include "cases.h"

using cases::elsewhere;
using cases::on_ranks;

namespace {

constexpr int kThreads = 4;

std::atomic<int> alive{0};

struct Thousands : std::numpunct<char> {
  Thousands() { ++alive; }
  Thousands(const Thousands&) = delete;
  Thousands& operator=(const Thousands&) = delete;
  ~Thousands() override {
    mark = '?';
    --alive;
  }
  char do_thousands_sep() const override { return mark; }
  std::string do_grouping() const override { return "\3"; }
  char mark = '\'';
};

std::locale with_thousands() { return {std::locale::classic(), new Thousands}; }

std::string printed(const std::locale& locale, int n) {
  std::ostringstream out;
  out.imbue(locale);
  out << n;
  return out.str();
}

/// Threads of all ranks are the first to print with a locale, at the same time.
void first_use() {
  kasane::run([] {
    constexpr int kLocales = 400;
    std::vector<std::locale> locales;
    for (int i = 0; i < kLocales; ++i) locales.push_back(with_thousands());
    std::barrier<> all(kThreads);
    std::atomic<int> wrong{0};
    on_ranks(kThreads, [&](int) {
      for (const std::locale& locale : locales) {
        all.arrive_and_wait();
        wrong += printed(locale, 1234567) != "1'234'567";
        wrong += printed(locale, 7654321) != "7'654'321";
      }
    });
    EXPECT_EQ(wrong.load(), 0);
  });
}

/// Amounts of money, and wide characters.
void other_caches() {
  struct Coins : std::moneypunct<char> {
    char do_thousands_sep() const override { return '_'; }
    std::string do_grouping() const override { return "\2"; }
    std::string do_curr_symbol() const override { return "EUR "; }
    int do_frac_digits() const override { return 2; }
  };
  struct Wide : std::numpunct<wchar_t> {
    wchar_t do_thousands_sep() const override { return L'.'; }
    std::string do_grouping() const override { return "\3"; }
    std::wstring do_truename() const override { return L"ja"; }
  };
  kasane::run([] {
    std::vector<std::locale> locales;
    for (int i = 0; i < 100; ++i)
      locales.emplace_back(std::locale(std::locale::classic(), new Coins), new Wide);
    std::barrier<> all(kThreads);
    std::atomic<int> wrong{0};
    on_ranks(kThreads, [&](int) {
      for (const std::locale& locale : locales) {
        all.arrive_and_wait();
        std::ostringstream out;
        out.imbue(locale);
        out << std::showbase << std::put_money("123456");
        wrong += out.str() != "EUR 12_34.56";
        std::wostringstream wide;
        wide.imbue(locale);
        wide << std::boolalpha << 1234 << true;
        wrong += wide.str() != L"1.234ja";
      }
    });
    EXPECT_EQ(wrong.load(), 0);
  });
}

/// Copies made and dropped on all ranks at once: the facet ends with the last, and not before.
void copies() {
  kasane::run([] {
    const int before = alive.load();
    for (int round = 0; round < 40; ++round) {
      auto shared = std::make_unique<std::locale>(with_thousands());
      std::vector<std::vector<std::locale>> kept(kThreads);
      std::barrier<> all(kThreads);
      std::atomic<int> wrong{0};
      on_ranks(kThreads, [&](int i) {
        auto& mine = kept[static_cast<std::size_t>(i)];
        all.arrive_and_wait();
        for (int k = 0; k < 7; ++k) mine.push_back(*shared);
        for (int k = 0; k < 7; ++k) mine[static_cast<std::size_t>(k)] = mine[0];
        all.arrive_and_wait();
        // another thread's, so on another rank
        auto& other = kept[static_cast<std::size_t>(i + 1) % kThreads];
        for (std::size_t k = 0; k < 6; ++k) other.pop_back();
        wrong += printed(other[0], 1234) != "1'234";
      });
      EXPECT_EQ(alive.load(), before + 1);
      shared.reset();
      for (std::size_t i = 0; i + 1 < kThreads; ++i) elsewhere([&] { kept[i].clear(); });
      EXPECT_EQ(alive.load(), before + 1);
      EXPECT(printed(kept.back()[0], 1234) == "1'234");
      kept.back().clear();
      EXPECT_EQ(alive.load(), before);
      EXPECT_EQ(wrong.load(), 0);
    }
  });
}

/// Locales made from one another on all ranks at once, which share a facet.
void derived() {
  struct Truth : std::numpunct<wchar_t> {
    std::wstring do_truename() const override { return L"wahr"; }
  };
  kasane::run([] {
    const int before = alive.load();
    for (int round = 0; round < 20; ++round) {
      auto base = std::make_unique<std::locale>(with_thousands());
      std::vector<std::locale> made(kThreads * 8, std::locale::classic());
      std::barrier<> all(kThreads);
      on_ranks(kThreads, [&](int i) {
        all.arrive_and_wait();
        for (int k = 0; k < 8; ++k)
          made[static_cast<std::size_t>(i * 8 + k)] =
              k % 2 == 0 ? std::locale(*base, new Truth)
                         : std::locale(std::locale::classic(), *base, std::locale::numeric);
      });
      base.reset();
      std::atomic<int> wrong{0};
      on_ranks(kThreads, [&](int i) {
        for (int k = 0; k < 8; ++k) {
          std::locale& locale = made[static_cast<std::size_t>(((i + 1) % kThreads) * 8 + k)];
          wrong += printed(locale, 4321) != "4'321";
          if (i + k != 0) locale = std::locale::classic();
        }
      });
      EXPECT_EQ(wrong.load(), 0);
      EXPECT_EQ(alive.load(), before + 1);
      made.clear();
      EXPECT_EQ(alive.load(), before);
    }
  });
}

/// Made on one rank, ended on another: the standard facets of neither are counted down.
void ended_elsewhere() {
  kasane::run([] {
    std::vector<std::locale> locales;
    for (int i = 0; i < 200; ++i) locales.push_back(with_thousands());
    elsewhere([&] {
      locales.clear();
      std::ostringstream out;
      out << 1234.5 << true << std::put_money("7");
      EXPECT(out.str() == "1234.517");
      EXPECT(printed(with_thousands(), 1234) == "1'234");
    });
  });
}

/// Kinds of facets, each first used on some rank: one number each for the job.
template <int kKind>
struct Kind : std::locale::facet {
  static std::locale::id id;
  int value = 1000 + kKind;
};
template <int kKind>
std::locale::id Kind<kKind>::id;

template <int... kKinds>
void kinds_of(std::integer_sequence<int, kKinds...>) {
  std::vector<std::locale> made(sizeof...(kKinds), std::locale::classic());
  std::barrier<> all(kThreads);
  std::atomic<int> wrong{0};
  on_ranks(kThreads, [&](int i) {
    all.arrive_and_wait();
    ((kKinds % kThreads == i ? void(made[kKinds] = std::locale(std::locale::classic(), new Kind<kKinds>))
                             : void()),
     ...);
    all.arrive_and_wait();
    ((wrong += !std::has_facet<Kind<kKinds>>(made[kKinds]) ||
               std::use_facet<Kind<kKinds>>(made[kKinds]).value != 1000 + kKinds),
     ...);
    std::locale every = std::locale::classic();
    ((every = every.combine<Kind<kKinds>>(made[kKinds])), ...);
    ((wrong += std::use_facet<Kind<kKinds>>(every).value != 1000 + kKinds), ...);
  });
  EXPECT_EQ(wrong.load(), 0);
}
void kinds() {
  kasane::run([] { kinds_of(std::make_integer_sequence<int, 12>()); });
}

/// A locale of the system, made on a thread: where its facets are all there.
void named() {
  kasane::run([] {
    for (int i = 0; i < 10; ++i) {
      const std::locale c("C.UTF-8");
      const std::locale mine(c, new Thousands);
      EXPECT(printed(c, 1234) == "1234");
      EXPECT(printed(mine, 1234) == "1'234");
      EXPECT(std::isalpha('x', mine) && std::has_facet<std::messages<wchar_t>>(mine));
    }
    EXPECT_EQ(alive.load(), 0);
  });
}

/// ios_base::xalloc: no two threads get one number.
void stream_words() {
  kasane::run([] {
    constexpr int kEach = 8;
    std::vector<int> words(kThreads * kEach);
    on_ranks(kThreads, [&](int i) {
      for (int k = 0; k < kEach; ++k)
        words[static_cast<std::size_t>(i * kEach + k)] = std::ios_base::xalloc();
    });
    std::ostringstream out;
    for (const int word : words) out.iword(word) = word;
    EXPECT(std::all_of(words.begin(), words.end(), [&](int word) { return out.iword(word) == word; }));
    std::sort(words.begin(), words.end());
    EXPECT(std::adjacent_find(words.begin(), words.end()) == words.end());
    EXPECT(words[0] >= 0);
  });
}

/// std::atomic_load and its like of shared_ptr.
struct Twin {
  explicit Twin(int n) : a(n), b(n) { ++alive; }
  Twin(const Twin&) = delete;
  Twin& operator=(const Twin&) = delete;
  ~Twin() {
    a = -1;
    --alive;
  }
  int a, b;
};
std::shared_ptr<Twin> shared_twin, other_twin;
void shared_pointers() {
  kasane::run([] {
    shared_twin = std::make_shared<Twin>(0);
    std::atomic<int> wrong{0}, sum{0};
    on_ranks(kThreads, [&](int) {
      for (int k = 0; k < 100; ++k) {
        std::shared_ptr<Twin> seen = std::atomic_load(&shared_twin);
        wrong += seen->a < 0 || seen->a != seen->b;
        while (!std::atomic_compare_exchange_strong(&shared_twin, &seen, std::make_shared<Twin>(seen->a + 1)))
          wrong += seen->a != seen->b;
        std::atomic_store(&other_twin, seen);
        if (std::atomic_exchange(&other_twin, std::shared_ptr<Twin>()) != nullptr) ++sum;
      }
    });
    EXPECT_EQ(wrong.load(), 0);
    EXPECT_EQ(shared_twin->a, kThreads * 100);
    EXPECT(sum.load() > 0);
    other_twin.reset();
    EXPECT_EQ(alive.load(), 1);
    shared_twin.reset();
    EXPECT_EQ(alive.load(), 0);
  });
}

/// std::set_terminate and its like hold on all ranks.
struct Counting : std::pmr::memory_resource {
  void* do_allocate(std::size_t bytes, std::size_t align) override {
    ++used;
    return ::operator new(bytes, std::align_val_t(align));
  }
  void do_deallocate(void* p, std::size_t, std::size_t align) override {
    ::operator delete(p, std::align_val_t(align));
  }
  bool do_is_equal(const memory_resource& other) const noexcept override { return this == &other; }
  std::atomic<int> used{0};
};
Counting counting;
[[noreturn]] void end_of_mine() { std::abort(); }
void more_memory() {}
void handlers() {
  const std::terminate_handler end_before = std::set_terminate(end_of_mine);
  kasane::run([&] {
    EXPECT(std::set_new_handler(more_memory) == nullptr);
    elsewhere([] { EXPECT(std::pmr::set_default_resource(&counting) == std::pmr::new_delete_resource()); });
    on_ranks(kThreads, [](int i) {
      EXPECT(std::get_terminate() == end_of_mine);
      EXPECT(std::get_new_handler() == more_memory);
      EXPECT(std::pmr::get_default_resource() == &counting);
      const std::pmr::vector<int> numbers(100, i);
      EXPECT_EQ(numbers[99], i);
    });
    EXPECT_EQ(counting.used.load(), kThreads);
    EXPECT(std::set_new_handler(nullptr) == more_memory);
    EXPECT(std::pmr::set_default_resource(nullptr) == &counting);
  });
  EXPECT(std::set_terminate(end_before) == end_of_mine);
  kasane::run([&] {
    on_ranks(kThreads, [&](int) {
      EXPECT(std::get_terminate() == end_before);
      EXPECT(std::get_new_handler() == nullptr);
      EXPECT(std::pmr::get_default_resource() == std::pmr::new_delete_resource());
    });
  });
}

constexpr cases::Case kAll[] = {
    {"first_use", first_use}, {"other_caches", other_caches},       {"copies", copies},
    {"derived", derived},     {"ended_elsewhere", ended_elsewhere}, {"kinds", kinds},
    {"named", named},         {"stream_words", stream_words},       {"shared_pointers", shared_pointers},
    {"handlers", handlers},
};

}  // namespace

int main(int argc, char** argv) { return cases::main_of(argc, argv, kAll); }
