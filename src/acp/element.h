// SPDX-License-Identifier: Apache-2.0
// What containers of kasane/acp.h have in common. Their elements have a size at run time, those of Kasane's
// containers one at compile time, and no references: so a container of Kasane holds the addresses of
// elements, each of which is a block of acp_malloc.
#pragma once

#include <kasane/containers/access.hpp>
#include <optional>
#include <span>
#include <vector>

#include "acp/job.h"

namespace kasane::acp {

using detail::containers::fail;
using detail::containers::Far;
using detail::containers::Near;

/// A block that is freed again unless it is kept.
class Element {
 public:
  Element(std::size_t bytes, std::uint32_t rank) : ga_(Job::here().memory.allocate(bytes, rank)) {}
  Element(Element&& other) noexcept : ga_(std::exchange(other.ga_, ACP_GA_NULL)) {}
  Element& operator=(Element&&) = delete;
  ~Element() {
    if (ga_ != ACP_GA_NULL) Job::here().memory.free(ga_);
  }
  /// A copy of the element at `from`.
  [[nodiscard]] static Element copy(acp_ga_t from, std::size_t bytes, std::uint32_t rank) {
    Element e(bytes, rank);
    if (bytes > kFew) {
      detail::check(kasane_copy(pointer(e.ga_), pointer(from), bytes, nullptr));
    } else if (bytes != 0) {  // the block is fixed memory, so at its rank stores are the direct view
      char few[kFew];
      Far::read(few, pointer(from), bytes);
      if (rank == kasane::rank())
        Near::write(pointer(e.ga_), few, bytes);
      else
        Far::write(pointer(e.ga_), few, bytes);
    }
    return e;
  }
  [[nodiscard]] static Element zero(std::size_t bytes, std::uint32_t rank) {
    static constexpr char kZeros[4096] = {};
    Element e(bytes, rank);
    for (std::size_t at = 0; at < bytes; at += sizeof kZeros)
      Far::write(pointer(e.ga_ + at), kZeros, std::min(bytes - at, sizeof kZeros));
    return e;
  }
  [[nodiscard]] acp_ga_t ga() const noexcept { return ga_; }
  acp_ga_t keep() noexcept { return std::exchange(ga_, ACP_GA_NULL); }

 private:
  static constexpr std::size_t kFew = 1024;
  acp_ga_t ga_;
};

/// Frees an element that a call has popped, if there was one.
inline void drop(const std::optional<Word>& ga) {
  if (ga) Job::here().memory.free(*ga);
}

/// Several of them.
class Elements {
 public:
  Elements() = default;
  Elements(const Elements&) = delete;
  Elements& operator=(const Elements&) = delete;
  ~Elements() { free(all_); }
  void add(Element e) {
    all_.reserve(all_.size() + 1);
    all_.push_back(e.keep());
  }
  [[nodiscard]] std::span<const Word> span() const noexcept { return all_; }
  void keep() noexcept { all_.clear(); }
  static void free(std::span<const Word> all) {
    for (const Word ga : all) Job::here().memory.free(ga);
  }

 private:
  std::vector<Word> all_;
};

/// What a container's address leads to, at the rank that acp_create was given. Body: the handle of a
/// container of Kasane, with `make` and `destroy`; Body::kName, kMark.
template <class Body>
struct Record {
  Word mark;
  std::size_t element_bytes;
  Body body;

  /// A copy of that of a container. Throws no_container.
  [[nodiscard]] static Record of(acp_ga_t ga) {
    Record r;
    if (ga == ACP_GA_NULL || ga % 16 != 0 || kasane_get(&r, pointer(ga), sizeof r) != 0 ||
        r.mark != Body::kMark)
      throw no_container(Body::kName);
    return r;
  }
  /// Throws error EINVAL: the other's elements have another size.
  void check_like(const Record& other) const {
    if (other.element_bytes != element_bytes)
      fail(EINVAL, "elements of " + std::to_string(other.element_bytes) + " bytes, of " +
                       std::to_string(element_bytes) + " in the other");
  }
  void write(acp_ga_t ga) const { Far::write(pointer(ga), this, sizeof *this); }

  /// make(body) makes the container.
  template <class Make>
  [[nodiscard]] static acp_ga_t create(std::size_t element_bytes, std::uint32_t rank, const Make& make) {
    static_cast<void>(Job::here());
    Element place(sizeof(Record), rank);
    Record r{Body::kMark, element_bytes, {}};
    make(r.body);
    r.write(place.ga());
    return place.keep();
  }
  static void destroy(acp_ga_t ga) {
    Record r = of(ga);
    r.body.free_elements();
    r.body.destroy();
    Record{}.write(ga);
    Job::here().memory.free(ga);
  }
  static void swap(acp_ga_t a, acp_ga_t b) {
    const Record first = of(a), second = of(b);
    second.write(a);
    first.write(b);
  }
};

}  // namespace kasane::acp
