// SPDX-License-Identifier: Apache-2.0
// Vectors and deques: elements with indices, at one rank.
#pragma once

#include "acp/element.h"

namespace kasane::acp {

/// The calls that both have. Body (vector.cpp, deque.cpp) adds to what Record asks for: rank, read, size,
/// push_back, replace, insert, erase; the last three are exclusive.
template <class Body>
struct Sequence {
  using R = Record<Body>;
  static constexpr std::size_t kTogether = 512;

  /// f(ga) for the elements from i to end - 1.
  template <class F>
  static void each(const Body& body, std::size_t i, std::size_t end, const F& f) {
    Word block[kTogether];
    while (i < end) {
      const std::size_t n = std::min(kTogether, end - i);
      body.read(i, std::span(block, n));
      for (std::size_t k = 0; k < n; ++k) f(block[k]);
      i += n;
    }
  }
  /// The addresses of all elements.
  [[nodiscard]] static std::vector<Word> all(const Body& body) {
    std::vector<Word> found;
    each(body, 0, body.size(), [&](Word ga) { found.push_back(ga); });
    return found;
  }

  [[nodiscard]] static acp_ga_t create(std::size_t n, std::size_t bytes, std::uint32_t rank) {
    return R::create(bytes, rank, [&](Body& body) {
      Elements zeros;
      for (std::size_t i = 0; i < n; ++i) zeros.add(Element::zero(bytes, rank));
      start(body, rank, zeros);
    });
  }
  [[nodiscard]] static acp_ga_t duplicate(acp_ga_t of, std::uint32_t rank) {
    const R r = R::of(of);
    return R::create(r.element_bytes, rank, [&](Body& body) {
      Elements copies;
      each(r.body, 0, r.body.size(), [&](Word ga) { copies.add(Element::copy(ga, r.element_bytes, rank)); });
      start(body, rank, copies);
    });
  }
  static void fill(acp_ga_t of, std::size_t n, acp_ga_t ga) {
    R r = R::of(of);
    Elements copies;
    for (std::size_t i = 0; i < n; ++i) copies.add(Element::copy(ga, r.element_bytes, r.body.rank()));
    exchange(r.body, copies);
  }
  static void assign(acp_ga_t to, acp_ga_t from, std::ptrdiff_t begin, std::ptrdiff_t end) {
    R r = R::of(to);
    const R other = R::of(from);
    r.check_like(other);
    if (begin < 0 || begin > end || static_cast<std::size_t>(end) > other.body.size())
      fail(EINVAL, "no elements " + std::to_string(begin) + " to " + std::to_string(end) + " of " +
                       std::to_string(other.body.size()));
    Elements copies;
    each(other.body, static_cast<std::size_t>(begin), static_cast<std::size_t>(end),
         [&](Word ga) { copies.add(Element::copy(ga, r.element_bytes, r.body.rank())); });
    exchange(r.body, copies);
  }
  [[nodiscard]] static acp_ga_t dereference(acp_ga_t of, std::ptrdiff_t it) {
    const R r = R::of(of);
    Word ga = ACP_GA_NULL;
    if (it < 0) fail(EINVAL, "no such element");
    r.body.get(static_cast<std::size_t>(it), ga);
    return ga;
  }
  static void push_back(acp_ga_t of, acp_ga_t ga) {
    const R r = R::of(of);
    Element e = Element::copy(ga, r.element_bytes, r.body.rank());
    r.body.push_back(e.ga());
    e.keep();
  }
  [[nodiscard]] static std::ptrdiff_t insert(acp_ga_t of, std::ptrdiff_t it, acp_ga_t ga) {
    R r = R::of(of);
    if (it < 0 || static_cast<std::size_t>(it) > r.body.size()) fail(EINVAL, "no such element");
    Element e = Element::copy(ga, r.element_bytes, r.body.rank());
    r.body.insert(static_cast<std::size_t>(it), e.ga());
    e.keep();
    return it;
  }
  [[nodiscard]] static std::ptrdiff_t erase(acp_ga_t of, std::ptrdiff_t it) {
    R r = R::of(of);
    if (it < 0 || static_cast<std::size_t>(it) >= r.body.size()) fail(EINVAL, "no such element");
    Word ga = ACP_GA_NULL;
    r.body.get(static_cast<std::size_t>(it), ga);
    r.body.erase(static_cast<std::size_t>(it));
    Job::here().memory.free(ga);
    return it;
  }
  static void clear(acp_ga_t of) {
    R r = R::of(of);
    const std::vector<Word> old = all(r.body);
    r.body.clear();
    Elements::free(old);
  }

 private:
  static void start(Body& body, std::uint32_t rank, Elements& elements) {
    body.make(rank);
    try {
      body.replace(elements.span());
    } catch (...) {
      body.destroy();
      throw;
    }
    elements.keep();
  }
  static void exchange(Body& body, Elements& elements) {
    const std::vector<Word> old = all(body);
    body.replace(elements.span());
    elements.keep();
    Elements::free(old);
  }
};

}  // namespace kasane::acp
