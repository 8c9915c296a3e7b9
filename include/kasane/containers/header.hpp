// SPDX-License-Identifier: Apache-2.0
/// @file
/// The header of a kasane::deque or list, whose lock word is that of versioned.hpp, and how it is
/// changed. Not for programs.
#pragma once

#include <kasane/kasane.hpp>

#include <kasane/containers/access.hpp>
#include <kasane/containers/versioned.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace kasane::detail::containers {

/// Fields: a struct of words, and the container's name.
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
  /// A copy, and what it is worth.
  template <class Access>
  [[nodiscard]] static versioned::Look read(Header* h, Header& copy) {
    if constexpr (std::is_same_v<Access,
                                 Near>) {  // the word first: if it is the same later, the fields belong to it
      copy.word = Near::load(&h->word);
      Near::read(&copy.fields, &h->fields, sizeof copy.fields);
      return versioned::judge(copy.word, true);
    } else {
      Access::read(&copy, h, sizeof copy);
      return versioned::judge(copy.word, sum_of(copy.fields));
    }
  }
  /// A copy that is whole. Throws error EBUSY: an exclusive call is under way.
  [[nodiscard]] static Header look(Header* h, std::uint32_t owner) {
    using versioned::Look;
    Header copy;
    for (Backoff wait;; wait.pause()) {
      const bool near = owner == kasane_rank();
      const Look look = near ? read<Near>(h, copy) : read<Far>(h, copy);
      if (look == Look::busy) busy(Fields::kContainer);
      if (look == Look::good && (!near || Near::load(&h->word) == copy.word)) return copy;
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
template <class Access, class Fields, class Function, class Worth>
bool try_change(Header<Fields>* h, const Function& f, const Worth& worth) {
  using versioned::Step;
  using Whole = Header<Fields>;
  Whole seen;
  Step step = versioned::next(Whole::template read<Access>(h, seen), false);
  while (step != Step::done) {
    bool ok = true;
    switch (step) {
      case Step::lock:
        if (!worth(seen.fields)) return std::is_same_v<Access, Far> || Access::load(&h->word) == seen.word;
        ok = Access::compare_swap(&h->word, seen.word, versioned::taken(seen.word, false));
        break;
      case Step::change: try { ok = f(Access{}, seen.fields) == Made::yes;
        } catch (...) {
          Access::store(&h->word, seen.word);
          throw;
        }
        if (ok) Access::write(&h->fields, &seen.fields, sizeof seen.fields);
        break;
      case Step::publish:
        Access::store(&h->word, versioned::changed(seen.word, Whole::sum_of(seen.fields)));
        break;
      case Step::restore: Access::store(&h->word, seen.word); break;
      case Step::read: return false;
      case Step::refused: busy(Fields::kContainer);
      case Step::done: break;
    }
    step = versioned::next(step, ok, false);
  }
  return true;
}

/// f(A{}, fields), once, under the lock, in a polling_scope; or not at all, where the fields are not
/// worth(fields). If it throws, nothing has changed. Throws error EBUSY: an exclusive call is under way.
template <class Fields, class Function, class Worth = Always>
void change(Header<Fields>* h, std::uint32_t owner, const Function& f, const Worth& worth = {}) {
  for (Backoff wait;; wait.pause()) {
    const polling_scope keep;
    if (owner == kasane_rank() ? try_change<Near>(h, f, worth) : try_change<Far>(h, f, worth)) return;
  }
}

/// An exclusive call's hold of a header, from any rank. Calls that meet it throw error EBUSY.
template <class Fields>
class Alone {
 public:
  /// Throws error EBUSY: another call is under way.
  explicit Alone(Header<Fields>* h) : h_(h) {
    using versioned::Step;
    Step step = versioned::next(Header<Fields>::template read<Far>(h, seen_), true);
    if (step == Step::lock)
      step = versioned::next(
          step, Far::compare_swap(&h->word, seen_.word, versioned::taken(seen_.word, true)), true);
    if (step != Step::change) busy(Fields::kContainer);
    fields = seen_.fields;
  }
  Alone(const Alone&) = delete;
  Alone& operator=(const Alone&) = delete;
  /// Unless it was published, nothing has changed.
  ~Alone() {
    using versioned::Step;
    const Step step = versioned::next(Step::change, changed_, true);
    if (step == Step::publish) Far::write(&h_->fields, &fields, sizeof fields);
    Far::store(&h_->word, step == Step::publish
                              ? versioned::changed(seen_.word, Header<Fields>::sum_of(fields))
                              : seen_.word);
  }
  /// The fields are the next ones, at the end.
  void publish() noexcept { changed_ = true; }

  Fields fields;

 private:
  Header<Fields>* h_;
  Header<Fields> seen_;
  bool changed_ = false;
};

}  // namespace kasane::detail::containers
