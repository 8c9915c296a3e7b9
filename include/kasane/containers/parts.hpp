// SPDX-License-Identifier: Apache-2.0
/// @file
/// What the containers have in common: a part at each of their ranks, some words at every rank of the job,
/// and a trivially copyable name of all that. Not for programs.
#pragma once

#include <kasane/kasane.hpp>

#include <kasane/containers/access.hpp>
#include <kasane/containers/bucket.hpp>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace kasane::detail::containers {

/// A container's name, and the way to its parts. All memory is fixed. The root is constant while the
/// container lives. Loads read it, also at ranks that have met no fence since it was made: each of its
/// entries has the container's id, so that a copy of what lay there before is noticed.
template <class Part>
class Parts {
 protected:
  struct Where {
    Part* part;
    std::uint32_t rank, id;
  };
  struct Local {
    Word* words;  ///< of a rank, for what it knows of the container
    Word id;
  };
  struct Root {
    Where where[1];  ///< of each part; then a Local of each rank
  };
  Root* root_ = nullptr;
  std::uint32_t id_ = 0, parts_ = 0;

  [[nodiscard]] Where* wheres() const noexcept { return root_->where; }
  [[nodiscard]] Local* locals() const noexcept { return reinterpret_cast<Local*>(wheres() + parts_); }
  [[nodiscard]] std::size_t root_bytes() const noexcept {
    return parts_ * sizeof(Where) + kasane::ranks() * sizeof(Local);
  }
  template <class Type>
  [[nodiscard]] Type current(const Type* entry) const {
    Type copy;
    Near::read(&copy, entry, sizeof copy);
    if (copy.id == id_) [[likely]]
      return copy;
    kasane_acquire_all();
    Near::read(&copy, entry, sizeof copy);
    if (copy.id != id_) Far::read(&copy, entry, sizeof copy);
    if (copy.id != id_) throw error(EINVAL, "kasane: this container does not exist any more");
    return copy;
  }
  /// May wait: look at it before the caller's rank is asked for.
  [[nodiscard]] Where where(std::uint32_t s) const { return current(wheres() + s); }
  [[nodiscard]] bool is_here(std::uint32_t s) const {
    const Where w = where(s);
    return w.rank == kasane_rank();
  }
  [[nodiscard]] Word* local(std::uint32_t rank) const { return current(locals() + rank).words; }

  /// At these ranks (none: all), with `words` words at every rank, all zero. start(s, part, rank) makes each
  /// part what it is at first; if that fails, undo() frees what there is.
  template <class Start, class Undo>
  void make_parts(const std::vector<std::uint32_t>& at, std::size_t words, const Start& start,
                  const Undo& undo);
  /// empty(s, part) frees what a part has, also of a container that could not be made.
  template <class Empty>
  void free_parts(const Empty& empty);
  /// Calls f(words) with those of each rank that are there.
  template <class Function>
  void each_local(const Function& f) const {
    for (std::uint32_t r = 0; r < kasane::ranks(); ++r) {
      Local l;
      Far::read(&l, locals() + r, sizeof l);
      if (l.words != nullptr) f(l.words);
    }
  }

 public:
  /// How many ranks the container has, and which.
  [[nodiscard]] std::uint32_t parts() const noexcept { return parts_; }
  [[nodiscard]] std::uint32_t rank_of_part(std::uint32_t s) const { return where(s).rank; }
};

template <class Part>
template <class Start, class Undo>
void Parts<Part>::make_parts(const std::vector<std::uint32_t>& at, std::size_t words, const Start& start,
                             const Undo& undo) {
  std::vector<std::uint32_t> ranks = at;
  for (std::uint32_t r = 0; at.empty() && r < kasane::ranks(); ++r) ranks.push_back(r);
  parts_ = static_cast<std::uint32_t>(ranks.size());
  const Parts* const self = this;
  id_ = static_cast<std::uint32_t>(bucket::mix(kasane_clock_ns() + kasane_rank(), &self, sizeof self)) | 1;
  const auto of = [](std::size_t n, std::uint32_t rank) {
    return allocate_zeroed(n, 64, placement::on(rank).fixed());
  };
  try {
    root_ = static_cast<Root*>(allocate_zeroed(root_bytes(), 64, placement::local.fixed()));
    for (std::uint32_t s = 0; s < parts_; ++s) {
      const Where w{static_cast<Part*>(of(sizeof(Part), ranks[s])), ranks[s], id_};
      Far::write(wheres() + s, &w, sizeof w);
      start(s, w.part, w.rank);
    }
    for (std::uint32_t r = 0; r < kasane::ranks(); ++r) {
      const Local l{static_cast<Word*>(of(words * sizeof(Word), r)), id_};
      Far::write(locals() + r, &l, sizeof l);
    }
  } catch (...) {
    undo();
    throw;
  }
  release_all();  // ranks that have copies of what was there before are told
}

template <class Part>
template <class Empty>
void Parts<Part>::free_parts(const Empty& empty) {
  if (root_ == nullptr) return;
  for (std::uint32_t s = 0; s < parts_; ++s) {
    Where w;
    Far::read(&w, wheres() + s, sizeof w);
    if (w.part == nullptr) continue;
    empty(s, w.part);
    deallocate(w.part);
  }
  each_local([](Word* words) { deallocate(words); });
  const std::vector<Word> nothing(root_bytes() / sizeof(Word));
  Far::write(root_, nothing.data(), root_bytes());  // a handle that is left names nothing
  deallocate(root_);
  root_ = nullptr;
}

/// What owns a container; a Handle, its base, only names it.
template <class Handle>
class Owner : public Handle {
 public:
  /// Trivially copyable, with the same operations.
  using handle = Handle;
  Owner(const Owner&) = delete;
  Owner& operator=(const Owner&) = delete;
  /// Exclusive.
  ~Owner() { this->destroy(); }
  /// Exclusive: handles go with the contents.
  void swap(Owner& other) {
    if (this == &other) return;
    const typename Handle::Exclusive mine(*this), theirs(other);
    std::swap<Handle>(*this, other);
  }

 protected:
  template <class Place>
  explicit Owner(const Place& place) {
    this->make(place);
  }
  Owner(Owner&& other) noexcept : Handle(std::exchange(static_cast<Handle&>(other), Handle())) {}
};

/// Calls f(s) for each part s of a container, on a thread at its rank. Throws the first exception of the
/// calls, after all that were begun have ended.
template <class Container, class Function>
void at_parts(const Container& c, const Function& f) {
  std::vector<thread> threads;
  std::exception_ptr failure;
  try {
    threads.reserve(c.parts());
    for (std::uint32_t s = 0; s < c.parts(); ++s)
      threads.emplace_back(kasane::at{c.rank_of_part(s)}, [s, &f] { f(s); });
  } catch (...) {
    failure = std::current_exception();
  }
  for (auto& t : threads) {
    try {
      t.join();
    } catch (...) {
      if (!failure) failure = std::current_exception();
    }
  }
  if (failure) std::rethrow_exception(std::move(failure));
}

/// f(s, sum) at the rank of each part, whose sum begins as identity; then all sums, combined.
template <class Container, class Result, class Combine, class Function>
[[nodiscard]] Result reduce_parts(const Container& c, Result identity, Combine& combine, const Function& f) {
  struct Slot {  // a vector of bool has no elements
    Result sum;
  };
  std::vector<Slot> slots(c.parts(), Slot{identity});
  at_parts(c, [&](std::uint32_t s) {
    Result sum = identity;
    f(s, sum);
    slots[s].sum = std::move(sum);
  });
  for (Slot& slot : slots) identity = std::invoke(combine, std::move(identity), std::move(slot.sum));
  return identity;
}

/// A container that shows the bytes of all its elements as they are at one time, by part.
template <class Container>
concept Copied = requires(const Container& c) { c.copies(); };

/// A failure that a text with numbers explains.
[[noreturn, gnu::cold, gnu::noinline]] inline void fail(int code, const std::string& text) {
  throw error(code, text.c_str());
}

}  // namespace kasane::detail::containers

namespace kasane {

/// Of a deque or list: calls f(x) with copies of all elements as they are at one time, at the ranks where
/// they lie; f may post and fork. On a thread.
template <detail::containers::Copied Container, class Function>
void for_each(const Container& c, Function f) {
  const auto values = c.copies();
  detail::containers::at_parts(c, [&](std::uint32_t s) {
    for (const auto& x : values[s]) std::invoke(f, x.object());
  });
}

/// The same: combine() of map(x) over all elements, computed where they lie. combine is associative and
/// commutative, and leaves what it combines with `identity` as it is. On a thread.
template <detail::containers::Copied Container, class Result, class Map, class Combine>
[[nodiscard]] Result reduce(const Container& c, Result identity, Map map, Combine combine) {
  const auto values = c.copies();
  return detail::containers::reduce_parts(c, std::move(identity), combine, [&](std::uint32_t s, Result& sum) {
    for (const auto& x : values[s]) sum = std::invoke(combine, std::move(sum), std::invoke(map, x.object()));
  });
}

}  // namespace kasane
