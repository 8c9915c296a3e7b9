// SPDX-License-Identifier: Apache-2.0
// Arrays of more than 2^31 and 2^32 elements, most of them in memory that nobody touches; transfers and bulk
// operations of more than 2^31 bytes; and patches without an element. Says what is wrong, with status 1.
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <kasane/array.hpp>
#include <memory>
#include <string>
#include <vector>

namespace {

int g_wrong = 0;
void require(bool holds, const std::string& what) {
  if (holds) return;
  ++g_wrong;
  std::printf("wrong: %s\n", what.c_str());
}

template <class F>
void require_refused(const F& f, const char* what) {
  try {
    f();
    require(false, std::string(what) + " was not refused");
  } catch (const kasane::error& e) {
    require(e.code() == EINVAL && std::string(e.what()).find("dimension") != std::string::npos, e.what());
  }
}

constexpr std::size_t kTwo31 = std::size_t{1} << 31, kTwo32 = std::size_t{1} << 32;

/// Patches and elements around `at` and at the end of an array of one dimension.
void try_line(const kasane::distribution& how) {
  using Line = kasane::array<std::int32_t, 1>;
  const std::size_t n = kTwo32 + 1000;
  Line a({n}, how);
  require(a.size() == n && a.extent(0) == n, "size");
  std::vector<std::int32_t> values(200), seen(200), twos(200, 2);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<std::int32_t>(i) - 77;
  for (const std::size_t at : {kTwo31 - 100, kTwo32 - 100, n - 200}) {
    const std::string where = " at " + std::to_string(at);
    const kasane::box<1> patch{{at}, {at + 200}};
    a.put(patch, values.data());
    a.accumulate(patch, twos.data(), {}, 3);
    a.get(patch, seen.data());
    for (std::size_t i = 0; i < seen.size(); ++i) require(seen[i] == values[i] + 6, "a patch" + where);
    require(a.fetch_add({at + 150}, 5) == values[150] + 6, "fetch_add" + where);
    require(a.get(Line::index{at + 150}) == values[150] + 11, "an element" + where);
    a.set({at + 150}, 1 << 30);
    std::vector<Line::index> indices{{at + 199}, {at + 150}, {at}};
    std::vector<std::int32_t> some(3);
    a.gather(indices, some);
    require(some == std::vector<std::int32_t>{values[199] + 6, 1 << 30, values[0] + 6}, "gather" + where);
    a.scatter(indices, std::vector<std::int32_t>{7, 8, 9});
    require(a.get(Line::index{at + 199}) == 7 && a.get(Line::index{at}) == 9, "scatter" + where);
    require(a.owner({at}) < kasane::ranks(), "owner" + where);
  }
  require_refused([&] { (void)a.get(Line::index{n}); }, "an index beyond the end");
  require_refused([&] { a.put({{n - 1}, {n + 1}}, values.data()); }, "a patch beyond the end");
}

/// A matrix whose rows, and elements before them, are many.
void try_matrix() {
  const std::size_t n = (std::size_t{1} << 16) + 3;
  kasane::array<std::uint8_t, 2> a({n, n}, kasane::tiles{4096, 4096});
  require(a.size() == n * n, "size of a matrix");
  std::vector<std::uint8_t> in(3 * 5000), out(3 * 5000);
  for (std::size_t i = 0; i < in.size(); ++i) in[i] = static_cast<std::uint8_t>(i);
  for (const std::size_t row : {std::size_t{0}, kTwo31 / n - 1, kTwo32 / n - 1, n - 3}) {
    const kasane::box<2> patch{{row, n - 4000}, {row + 3, n}};
    a.put(patch, in.data(), 5000);
    a.get(patch, out.data(), 5000);
    for (std::size_t i = 0; i < 3; ++i)
      for (std::size_t j = 0; j < 4000; ++j)
        require(in[i * 5000 + j] == out[i * 5000 + j], "a patch of row " + std::to_string(row + i));
  }
}

/// More than 2^31 elements by one put, and by each bulk operation.
void try_all_at_once() {
  const std::size_t n = kTwo31 + 1000;
  kasane::array<std::uint8_t, 1> a({n});
  a.fill(3);
  {  // private memory of this rank, where the thread stays meanwhile; nobody writes to it
    const std::unique_ptr<void, void (*)(void*)> zeros(std::calloc(n, 1), std::free);
    if (zeros == nullptr) std::abort();
    a.put(a.all(), static_cast<const std::uint8_t*>(zeros.get()));
  }
  require(a.max() == 0, "a put of all");
  a.set({n - 1}, 9);
  require(a.max() == 9 && a.min() == 0 && a.sum() == 9, "reductions");
  a.transform_in_place([](std::uint8_t x) { return static_cast<std::uint8_t>(x + 1); });
  require(a.sum() == static_cast<std::uint8_t>(n + 9), "the sum of all");
  require(kasane::dot(a, a) == static_cast<std::uint8_t>(n - 1 + 100), "dot");
}

void try_nothing() {
  kasane::array<std::int64_t, 2> a({7, 9}, kasane::tiles{3, 3});
  a.fill(4);
  std::int64_t none = 17;
  for (std::size_t i = 0; i <= 7; ++i)
    for (std::size_t j = 0; j <= 9; ++j)
      for (const kasane::box<2>& patch :
           {kasane::box<2>{{i, j}, {i, j}}, {{i, 0}, {i, 9}}, {{0, j}, {7, j}}}) {
        kasane::pending_group group;
        a.get(patch, &none), a.put(patch, &none), a.accumulate(patch, &none, {}, (1L << 60) + 1);
        a.get_async(patch, &none, {}, group), a.put_async(patch, &none, {}, group);
        a.accumulate_async(patch, &none, {}, 1, group);
        a.put(patch, nullptr), a.get(patch, nullptr);
        group.wait();
      }
  a.gather({}, {});
  a.scatter({}, {});
  require(none == 17 && a.min() == 4 && a.max() == 4, "patches without an element");
  require_refused([] { kasane::array<double, 2>({0, 3}); }, "no row");
  require_refused([] { kasane::array<double, 1>({0}); }, "no element");
  require_refused([] { kasane::array<char, 3>({5, 5, 0}, kasane::tiles{2, 2, 2}); }, "no column");
  require_refused([&] { a.put({{3, 3}, {2, 3}}, &none); }, "a patch that ends before it begins");
  require_refused([&] { a.get({{8, 0}, {8, 0}}, &none); }, "an empty patch beyond the end");
}

}  // namespace

int main() {
  kasane::run([] {
    try_nothing();
    try_line(kasane::blocks());
    try_line(kasane::tiles{1 << 20});
    try_matrix();
    try_all_at_once();
  });
  std::printf("many: %s\n", g_wrong == 0 ? "right" : "WRONG");
  return g_wrong == 0 ? 0 : 1;
}
