// SPDX-License-Identifier: Apache-2.0
// Threads that stay at a rank, and errors that are expected.
#pragma once

#include <cerrno>
#include <cstdint>
#include <exception>
#include <kasane/kasane.hpp>
#include <string>
#include <vector>

namespace kasane::test {

inline void go_to(std::uint32_t rank) {
  while (kasane::rank() != rank) kasane::this_thread::move_to(rank);
}

/// f(thread) on two threads at each rank.
template <class F>
void everywhere(const F& f) {
  std::vector<kasane::thread> threads;
  for (std::uint32_t t = 0; t < 2 * kasane::ranks(); ++t)
    threads.emplace_back(kasane::at{t / 2}, [&f, t] {
      go_to(t / 2);
      f(t);
    });
  for (auto& t : threads) t.join();
}

/// f() throws an error with this code.
template <class F>
bool refused(int code, const F& f) {
  try {
    f();
  } catch (const kasane::error& e) {
    return e.code() == code;
  }
  return false;
}

/// f() throws an error of any kind, whose text has all of these.
template <class F, class... Texts>
bool says(const F& f, const Texts&... texts) {
  try {
    f();
  } catch (const std::exception& e) {
    const std::string text = e.what();
    return ((text.find(texts) != std::string::npos) && ...);
  }
  return false;
}

/// Names a container, and can hold it as an exclusive call does.
template <class Handle>
struct Held : Handle {
  explicit Held(const Handle& h) : Handle(h) {}
  using typename Handle::Exclusive;
};

/// While an exclusive call of the container is under way, each of the calls throws EBUSY; afterwards none.
/// how: of Exclusive's constructor.
template <class Handle, class Calls, class... How>
std::uint64_t meets(const Handle& h, const Calls& calls, How... how) {
  std::uint64_t wrong = 0;
  {
    const typename Held<Handle>::Exclusive alone(h, how...);
    for (const auto& call : calls) wrong += !refused(EBUSY, call);
  }
  for (const auto& call : calls) call();
  return wrong;
}

}  // namespace kasane::test
