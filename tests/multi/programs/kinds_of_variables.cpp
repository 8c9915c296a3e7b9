// SPDX-License-Identifier: Apache-2.0
// Variables of a program of every kind that C++ has, changed and read by threads of all ranks.
#include <any>
#include <array>
#include <atomic>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <typeindex>
#include <typeinfo>
#include <unordered_map>
#include <variant>

#include "cases.h"

using cases::elsewhere;
using cases::on_ranks;

namespace {

// ---- plain ones ---------------------------------------------------------------------------------------
double table[1 << 14];
struct Class {
  static int member;
  static inline long inline_member = 7;
  static constexpr int kConstant = 11;
};
int Class::member = 3;
template <class T>
struct Template {
  static inline T value{};
};
template <class T>
T variable_template = T(5);
volatile int volatile_word = 1;
struct Bits {
  unsigned a : 3, b : 5, c : 24;
} bits;
alignas(4096) char page_of_its_own[4096];
int neighbours[64];
char bytes_of_ranks[64];
const char* names[] = {"zero", "one", "two", "three"};
std::string_view views[] = {"a", "bc"};

void arrays() {
  kasane::run([] {
    on_ranks(8, [](int i) {
      for (int k = i * 2048; k < (i + 1) * 2048; ++k) table[k] = k;
    });
    std::array<double, 8> sums{};
    on_ranks(8, [&](int i) {
      double s = 0;
      for (int k = i; k < 1 << 14; k += 8) s += table[k];
      sums[static_cast<std::size_t>(i)] = s;
    });
    EXPECT_EQ(std::accumulate(sums.begin(), sums.end(), 0.0), 16383.0 * 8192);
  });
  EXPECT_EQ(table[5], 5);
}

void members() {
  kasane::run([] {
    elsewhere([] {
      EXPECT_EQ(Class::member, 3);
      Class::member = 4;
      Class::inline_member += Class::kConstant;
      Template<long>::value = 6;
      Template<char>::value = 'x';
      variable_template<int> = 9;
      volatile_word = 2;
      bits = {1, 2, 3};
      page_of_its_own[4095] = 'e';
      names[1] = names[2];
      views[0] = views[1];
    });
    EXPECT_EQ(Class::member, 4);
    EXPECT_EQ(Class::inline_member, 18);
    EXPECT_EQ(Template<long>::value, 6);
    EXPECT_EQ(Template<char>::value, 'x');
    EXPECT_EQ(Template<int>::value, 0);
    EXPECT_EQ(variable_template<int>, 9);
    EXPECT_EQ(volatile_word, 2);
    EXPECT(bits.a == 1 && bits.b == 2 && bits.c == 3);
    EXPECT_EQ(page_of_its_own[4095], 'e');
    EXPECT(std::strcmp(names[1], "two") == 0);
    EXPECT(views[0] == "bc");
  });
}

void neighbours_of_ranks() {
  kasane::run([] {
    std::fill(std::begin(neighbours), std::end(neighbours), 0);
    on_ranks(8, [](int i) {
      for (int k = 0; k < 3000; ++k) {
        ++neighbours[i];
        ++bytes_of_ranks[i];
        if (k % 500 == 0) kasane::this_thread::yield();
      }
    });
    for (int i = 0; i < 8; ++i) {
      EXPECT_EQ(neighbours[i], 3000);
      EXPECT_EQ(static_cast<unsigned char>(bytes_of_ranks[i]), 3000 % 256);
    }
  });
}

// ---- objects with constructors --------------------------------------------------------------------------
int constructions = 0;
struct Counted {
  Counted() { ++constructions; }
};
Counted counted;
std::vector<int> numbers = {1, 2, 3};
std::string text = "short";
std::map<std::string, int> words = {{"one", 1}, {"two", 2}};
std::unordered_map<int, std::string> lines;
std::set<int> squares;
std::deque<int> queue;
std::list<int> list;
std::optional<std::string> maybe;
std::variant<int, std::string, std::vector<int>> either;
std::any anything;
std::function<int(int)> function = [](int x) { return x; };
std::unique_ptr<std::vector<int>> owned;
std::shared_ptr<std::string> shared;
std::array<std::string, 3> strings = {"", "x", std::string(100, 'y')};
// Depends on another static object, and on memory of its constructor.
std::vector<std::string> built = [] {
  std::vector<std::string> v;
  for (int i = 0; i < 100; ++i) v.push_back("string number " + std::to_string(i));
  return v;
}();
const std::map<int, const char*> constant_map = {{1, "a"}, {2, "b"}};

void containers() {
  kasane::run([] {
    EXPECT_EQ(constructions, 1);
    static kasane::mutex lock;
    on_ranks(8, [](int i) {
      for (int k = 0; k < 50; ++k) {
        const std::lock_guard guard(lock);
        const int n = i * 50 + k;
        numbers.push_back(n);
        text += static_cast<char>('a' + i);
        ++words["word " + std::to_string(n % 40)];
        lines.emplace(n, std::string(40, static_cast<char>('a' + i)));
        squares.insert(n * n);
        i % 2 ? queue.push_back(n) : queue.push_front(n);
        list.insert(list.begin(), n);
        if (n % 7 == 0) lines.erase(n);
      }
    });
    EXPECT_EQ(numbers.size(), 403u);
    EXPECT_EQ(std::accumulate(numbers.begin(), numbers.end(), 0), 399 * 200 + 6);
    EXPECT_EQ(text.size(), 405u);
    EXPECT_EQ(words.size(), 42u);
    EXPECT_EQ(words["word 39"], 10);
    EXPECT_EQ(lines.size(), 400u - 58);
    EXPECT_EQ(squares.size(), 400u);
    EXPECT_EQ(queue.size(), 400u);
    EXPECT_EQ(std::accumulate(list.begin(), list.end(), 0), 399 * 200);
    elsewhere([] {
      EXPECT_EQ(constructions, 1);
      EXPECT_EQ(constant_map.at(2)[0], 'b');
      EXPECT_EQ(built.size(), 100u);
      EXPECT(built[99] == "string number 99");
      built.resize(200);
      built.shrink_to_fit();
      maybe = std::string(100, 'm');
      either = std::vector<int>{1, 2, 3};
      anything = std::string("any");
      const int offset = 5;
      std::array<long, 20> large{};
      large[19] = 30;
      function = [offset, large](int x) { return x + offset + static_cast<int>(large[19]); };
      owned = std::make_unique<std::vector<int>>(1000, 2);
      shared = std::make_shared<std::string>("shared");
      strings[0].swap(strings[2]);
    });
    EXPECT_EQ(built.size(), 200u);
    EXPECT_EQ(maybe->size(), 100u);
    EXPECT_EQ(std::get<2>(either).at(2), 3);
    EXPECT(std::any_cast<std::string>(anything) == "any");
    EXPECT_EQ(function(1), 36);
    EXPECT_EQ(owned->at(999), 2);
    EXPECT(*shared == "shared" && shared.use_count() == 1);
    EXPECT(strings[0].size() == 100 && strings[2].empty());
  });
  owned.reset();
  EXPECT_EQ(function(2), 37);
}

// ---- function statics -----------------------------------------------------------------------------------
std::atomic<int> tries, made;
struct Lazy {
  explicit Lazy(int n) : values(static_cast<std::size_t>(n)) {
    ++made;
    std::iota(values.begin(), values.end(), 0);
  }
  std::vector<int> values;
};
const Lazy& lazy() {
  static const Lazy object(2000);
  return object;
}
const Lazy& outer() {
  static const Lazy& object = [&]() -> const Lazy& {
    kasane::parallel_for(0, 64, [](int) { (void)lazy(); }, 1);
    return lazy();
  }();
  return object;
}
int difficult() {
  static const int value = [] {
    if (++tries < 4) throw std::runtime_error("try again");
    return 42;
  }();
  return value;
}
template <int N>
std::string& of_template() {
  static std::string s(static_cast<std::size_t>(N), 't');
  return s;
}
int counted_up() {
  static int n = 0;
  return ++n;
}
int recursive(int n) {
  static int initial = n;
  return n == 0 ? initial : recursive(n - 1);
}

void function_statics() {
  kasane::run([] {
    std::atomic<long> sum{0};
    std::atomic<int> caught{0};
    on_ranks(16, [&](int i) {
      sum += lazy().values.back();
      sum += outer().values[static_cast<std::size_t>(i)];
      for (;;) {
        try {
          sum += difficult();
          break;
        } catch (const std::runtime_error&) {
          ++caught;
        }
      }
    });
    EXPECT_EQ(sum.load(), 16 * 1999 + 120 + 16 * 42);
    EXPECT_EQ(caught.load(), 3);
    EXPECT_EQ(tries.load(), 4);
    EXPECT_EQ(made.load(), 1);
    elsewhere([] { of_template<3>() += "more"; });
    EXPECT(of_template<3>() == "tttmore" && of_template<4>() == "tttt");
    for (std::uint32_t r = 0; r < 2 * kasane::ranks(); ++r) {
      cases::go(r);
      EXPECT_EQ(counted_up(), static_cast<int>(r) + 1);
    }
    elsewhere([] { EXPECT_EQ(recursive(5), 5); });
    EXPECT_EQ(recursive(3), 5);
  });
}

// ---- types ----------------------------------------------------------------------------------------------
struct Shape {
  virtual ~Shape() = default;
  virtual double area() const = 0;
};
struct Named {
  virtual ~Named() = default;
  virtual std::string name() const { return "named"; }
};
struct Square : virtual Shape, Named {
  explicit Square(double s) : side(s) {}
  double area() const override { return side * side; }
  std::string name() const override { return "square"; }
  double side;
};
struct Circle final : virtual Shape {
  double area() const override { return 3; }
};
std::vector<std::unique_ptr<Shape>> shapes;
std::map<std::type_index, int> by_type;
using Operation = double (*)(const Shape&);
const Operation operations[] = {[](const Shape& s) { return s.area(); },
                                [](const Shape& s) { return 2 * s.area(); }};
double (Shape::* const pointer_to_virtual)() const = &Shape::area;

void types() {
  kasane::run([] {
    kasane::mutex lock;
    on_ranks(8, [&](int i) {
      const std::lock_guard guard(lock);
      if (i % 2)
        shapes.push_back(std::make_unique<Circle>());
      else
        shapes.push_back(std::make_unique<Square>(i));
      ++by_type[typeid(*shapes.back())];
    });
    on_ranks(4, [](int i) {
      double sum = 0;
      int squares_seen = 0;
      for (const auto& s : shapes) {
        sum += operations[i % 2](*s) + ((*s).*pointer_to_virtual)();
        if (const auto* named = dynamic_cast<const Named*>(s.get()))
          squares_seen += named->name() == "square";
      }
      EXPECT_EQ(squares_seen, 4);
      EXPECT_EQ(sum, (4 * 3 + 0 + 4 + 16 + 36) * (i % 2 + 2.0));
    });
    EXPECT_EQ(by_type[typeid(Square)], 4);
    EXPECT_EQ(by_type.size(), 2u);
    elsewhere([] { shapes.clear(); });
    EXPECT(shapes.empty());
  });
}

// ---- 1 GiB of .bss --------------------------------------------------------------------------------------
constexpr std::size_t kHuge = std::size_t{1} << 30;
char huge[kHuge];
void huge_array() {
  kasane::run([] {
    on_ranks(8, [](int i) {
      for (std::size_t k = static_cast<std::size_t>(i) << 20; k < kHuge; k += std::size_t{8} << 20)
        huge[k] = static_cast<char>(i + 1);
    });
    long sum = 0;
    for (std::size_t k = 0; k < kHuge; k += std::size_t{1} << 20) sum += huge[k];
    EXPECT_EQ(sum, 128 * 36);
    elsewhere([] {
      long s = 0;
      for (std::size_t k = 0; k < kHuge; k += std::size_t{1} << 20) s += huge[k] + huge[k + 1];
      EXPECT_EQ(s, 128 * 36);
    });
  });
}

// ---- memory and stack of main ---------------------------------------------------------------------------
void main_memory() {
  std::vector<long> v(300000);
  std::iota(v.begin(), v.end(), 0L);
  std::string s = "of main";
  int on_stack[100] = {};
  auto p = std::make_unique<std::map<int, int>>();
  long sum = kasane::run([&] {
    std::atomic<long> total{0};
    on_ranks(8, [&](int i) {
      long part = 0;
      for (std::size_t k = static_cast<std::size_t>(i); k < v.size(); k += 8) part += v[k];
      total += part;
      on_stack[i] = i;
    });
    elsewhere([&] {
      s += ", changed";
      (*p)[3] = 4;
      v.push_back(1);
      v.resize(2000000, 2);
    });
    return total.load();
  });
  EXPECT_EQ(sum, 299999L * 150000);
  EXPECT(s == "of main, changed");
  EXPECT_EQ((*p)[3], 4);
  EXPECT(v.size() == 2000000 && v.back() == 2 && v[300000] == 1);
  EXPECT_EQ(std::accumulate(on_stack, on_stack + 100, 0), 28);
}

constexpr cases::Case kAll[] = {
    {"arrays", arrays},
    {"members", members},
    {"neighbours", neighbours_of_ranks},
    {"containers", containers},
    {"function-statics", function_statics},
    {"types", types},
    {"huge-array", huge_array},
    {"main-memory", main_memory},
};

}  // namespace

int main(int argc, char** argv) { return cases::main_of(argc, argv, kAll); }
