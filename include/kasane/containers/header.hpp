// SPDX-License-Identifier: Apache-2.0
/// @file The header of a kasane::deque or list, whose lock word is that of versioned.hpp, and how it is
/// changed. Not for programs.
#pragma once

#include <kasane/kasane.hpp>

#include <kasane/containers/access.hpp>
#include <kasane/containers/versioned.hpp>

#include <cstddef>
#include <cstring>

namespace kasane::detail::containers {

/// Fields: a struct of words.
template <class Fields>
struct Header {
  static constexpr std::size_t kFields = sizeof(Fields) / sizeof(Word);
  Word word;
  Fields fields;

  [[nodiscard]] static std::uint32_t sum_of(const Fields& f) noexcept {
    Word words[kFields];
    std::memcpy(words, &f, sizeof words);
    return versioned::sum_of(words, kFields);
  }
  /// As it is in new memory of its owner.
  void start() {
    const Header first{versioned::changed(0, sum_of(Fields{})), Fields{}};
    Far::write(this, &first, sizeof first);
  }
  /// A copy that is whole.
  [[nodiscard]] static Header look(Header* h, std::uint32_t owner) {
    Header copy;
    for (Backoff wait;; wait.pause()) {
      if (owner == kasane_rank()) {
        copy.word = Near::load(&h->word);
        Near::read(&copy.fields, &h->fields, sizeof copy.fields);
        if (!versioned::locked(copy.word) && Near::load(&h->word) == copy.word) return copy;
      } else {
        Far::read(&copy, h, sizeof copy);
        if (versioned::good(copy.word, sum_of(copy.fields))) return copy;
      }
    }
  }
};

/// How a change of the fields goes on: as f says.
enum class Made : std::uint8_t {
  yes,  ///< the fields that it has left are the next ones
  no,   ///< nothing has changed
};

struct Always {
  template <class Fields>
  bool operator()(const Fields&) const noexcept {
    return true;
  }
};

/// One try of a change: f(A{}, fields) under the lock, where worth(fields). False: the word was not as it had
/// been read.
template <class A, class Fields, class F, class Worth>
bool try_change(Header<Fields>* h, const F& f, const Worth& worth) {
  using versioned::Step;
  using H = Header<Fields>;
  H seen;
  bool ok = false;
  for (Step step = Step::read; step != Step::done;) {
    switch (step) {
      case Step::read:
        if constexpr (std::is_same_v<A, Near>) {  // the word first: then the lock proves the fields
          seen.word = Near::load(&h->word);
          Near::read(&seen.fields, &h->fields, sizeof seen.fields);
          ok = !versioned::locked(seen.word);
        } else {
          A::read(&seen, h, sizeof seen);
          ok = versioned::good(seen.word, H::sum_of(seen.fields));
        }
        break;
      case Step::lock:
        if (!worth(seen.fields)) return std::is_same_v<A, Far> || A::load(&h->word) == seen.word;
        ok = A::compare_swap(&h->word, seen.word, seen.word | versioned::kLocked);
        break;
      case Step::change: try { ok = f(A{}, seen.fields) == Made::yes;
        } catch (...) {
          A::store(&h->word, seen.word);
          throw;
        }
        if (ok) A::write(&h->fields, &seen.fields, sizeof seen.fields);
        break;
      case Step::publish: A::store(&h->word, versioned::changed(seen.word, H::sum_of(seen.fields))); break;
      case Step::restore: A::store(&h->word, seen.word); break;
      case Step::done: break;
    }
    step = versioned::next(step, ok);
    if (step == Step::read) return false;
  }
  return true;
}

/// f(A{}, fields), once, under the lock, in a polling_scope; or not at all, where the fields are not
/// worth(fields). If it throws, nothing has changed.
template <class Fields, class F, class Worth = Always>
void change(Header<Fields>* h, std::uint32_t owner, const F& f, const Worth& worth = {}) {
  for (Backoff wait;; wait.pause()) {
    const polling_scope keep;
    if (owner == kasane_rank() ? try_change<Near>(h, f, worth) : try_change<Far>(h, f, worth)) return;
  }
}

}  // namespace kasane::detail::containers
