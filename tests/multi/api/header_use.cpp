// SPDX-License-Identifier: Apache-2.0
// The templates of the public headers are instantiated with the warnings that programs may have on.
#include <atomic>
#include <kasane/algorithm.hpp>
#include <kasane/array.hpp>
#include <kasane/containers/deque.hpp>
#include <kasane/containers/list.hpp>
#include <kasane/containers/unordered_map.hpp>
#include <kasane/containers/vector.hpp>
#include <kasane/global_ptr.hpp>
#include <kasane/kasane.hpp>
#include <kasane/sync.hpp>
#include <kasane/team.hpp>
#include <string>
#include <vector>

template class kasane::array<double, 2>;
template class kasane::array<int, 1>;
template class kasane::unordered_map<int, kasane::list<int>::iterator>;
template class kasane::list<double>;

/// As a statement, whose value nobody uses.
void use_of_atomics(std::atomic_flag& flag, bool& plain);
void use_of_atomics(std::atomic_flag& flag, bool& plain) {
  flag.test_and_set();
  __atomic_test_and_set(&plain, __ATOMIC_SEQ_CST);
  __atomic_clear(&plain, __ATOMIC_SEQ_CST);
}

long use_of_headers();
long use_of_headers() {
  std::vector<long> numbers(100, 1);
  kasane::run([&] {
    kasane::for_each(numbers, [](long& n) { n += 1; });
    kasane::parallel_for(0, 10, [&](int i) { numbers[static_cast<std::size_t>(i)] += 1; });
  });
  kasane::run([] {
    kasane::list<int> list;
    const auto first = list.push_back(1);
    kasane::unordered_map<int, kasane::list<int>::iterator> places;
    places.insert(1, first);
    if (const auto found = places.find(1)) list.erase(*found);
    kasane::vector<double> values;
    values.push_back(1.0);
    kasane::deque<long> queue;
    queue.push_back(2);
    kasane::array<double, 2> a({8, 8}), b({8, 8});
    a.fill(1.0);
    b.fill(2.0);
    if (kasane::dot(a, b) != 0) places.erase(1);
  });
  return kasane::run([&] {
    return kasane::parallel_reduce(
        0, 10, 0L, [](int i) { return long{i}; }, [](long a, long b) { return a + b; });
  });
}
