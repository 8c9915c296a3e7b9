// SPDX-License-Identifier: Apache-2.0
// A container of the program's own: it throws what Kasane's throw, and catches what Kasane throws.
#include <cstdint>
#include <cstdio>
#include <kasane/containers/deque.hpp>
#include <kasane/containers/fixed_string.hpp>
#include <kasane/containers/list.hpp>
#include <kasane/containers/unordered_map.hpp>
#include <kasane/containers/updates.hpp>
#include <kasane/containers/vector.hpp>
#include <limits>
#include <new>
#include <string>

namespace {

struct Stack {
  kasane::deque<int> elements;
  void push(int x) {
    if (elements.size() == 3) throw kasane::out_of_memory("a stack of 3 elements");
    elements.push_back(x);
  }
};

/// What f throws, an E.
template <class E, class F>
std::string thrown(const F& f) {
  try {
    f();
  } catch (const E& e) {
    return e.what();
  }
  return "nothing";
}

}  // namespace

int main() {
  return kasane::run([] {
    Stack stack;
    const std::string own = thrown<std::bad_alloc>([&] {
      for (int i = 0;; ++i) stack.push(i);
    });
    const std::string of_memory = thrown<kasane::out_of_memory>(
        [] { kasane::deallocate(kasane::allocate(std::numeric_limits<std::size_t>::max() / 4)); });
    const std::string of_rank = thrown<kasane::error>([] { kasane::list<int> nowhere(kasane::ranks()); });
    kasane::unordered_map<kasane::fixed_string<15>, std::uint64_t> map;
    kasane::unordered_set<std::uint64_t> set;
    kasane::vector<std::uint64_t> vector;
    {
      kasane::post_group group;
      kasane::updates updates(map, group);
      updates.add("one", 1);
    }
    set.insert(2);
    vector.push_back(3);
    const std::uint64_t sum = map.find("one").value_or(0) + set.size() + vector.get(0);
    std::printf("%s; %s; %s; %llu (%u ranks)\n", own.c_str(), of_memory.c_str(), of_rank.c_str(),
                static_cast<unsigned long long>(sum), kasane::ranks());
    return own == "a stack of 3 elements" && sum == 5 ? 0 : 1;
  });
}
