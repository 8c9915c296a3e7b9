// SPDX-License-Identifier: Apache-2.0
// Walks lock-free code as it ships, access by access, inside a walk over states (explorer.h).
//
// The structures of the program take their atomics as a template parameter (base/atomics.h). With
// WalkedAtomics each of their words is kept in a byte of the walk's state, and a call of one of their
// functions can stop after any access: what it has read so far is kept in the state too, as its Log. The next
// step of that thread runs the call again from its beginning, takes from the log what it has read before, and
// makes one more access. So a call needs no state of its own to be copied, and every order of the accesses of
// several calls is walked, cycles included. interleave.h, which runs programs from their beginning, cannot
// see that two ways lead to the same state.
//
// Limits: sequential consistency only. A call may have no objects with destructors while it makes an access.
// Words and what is read: -100 to 100.
// Thread safety: none: a walk is one thread.
#pragma once

#include <atomic>
#include <csetjmp>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

namespace kasane::model {

/// What a call that is under way has read, access by access. Zeros beyond n: equal logs have equal bytes.
struct Log {
  static constexpr std::uint8_t kMost = 94;
  std::uint8_t n;
  std::int8_t read[kMost];
};

/// What a mutant takes from a word: what is taken off it never is.
struct Lack {
  int word = -1;
};

/// What is one step of a call: each access; what it reads and then one write; or all of it.
enum class Grain : std::uint8_t { access, write, call };

/// The words of the structures of a walk, in the order in which they were made, and the call that runs.
class Accesses {
 public:
  static std::vector<std::uint64_t*>& words() { return words_; }
  static void load(std::span<const std::int8_t> from) {
    for (std::size_t i = 0; i < words_.size(); ++i)
      *words_[i] = static_cast<std::uint64_t>(std::int64_t{from[i]});
  }
  static void save(std::span<std::int8_t> to) {
    for (std::size_t i = 0; i < words_.size(); ++i) to[i] = small(*words_[i]);
  }
  /// Words of which other threads read nothing that matters: accesses to them are no steps.
  static void set_own(std::vector<bool> own) { own_ = std::move(own); }
  static void set_lack(Lack lack) { lack_ = lack; }

  /// The next step of a call. True: it has ended.
  template <class Call>
  [[gnu::noinline]] static bool step(Log& log, Grain grain, const Call& call) {
    log_ = &log;
    at_ = 0;
    live_ = log.n == 0;  // a call begins
    grain_ = grain;
    stepped_ = false;
    if (setjmp(stop_) != 0) return false;  // NOLINT: trivial frames only
    call();
    log = {};
    return true;
  }

  /// access(): makes it, returns what was read.
  template <class Access>
  static std::int8_t access(int word, bool writes, const Access& access) {
    if (own_[static_cast<std::size_t>(word)])
      return live_ ? access() : small(*words_[static_cast<std::size_t>(word)]);
    if (grain_ == Grain::call) return access();
    if (at_ < log_->n) return log_->read[at_++];
    if (stepped_) std::longjmp(stop_, 1);  // NOLINT: as above
    if (log_->n == Log::kMost) std::abort();
    stepped_ = grain_ == Grain::access || (grain_ == Grain::write && writes);
    live_ = true;
    ++at_;
    return log_->read[log_->n++] = access();
  }
  static bool lacks(int word, std::int64_t operand) { return word == lack_.word && operand < 0; }
  static std::int8_t small(std::uint64_t word) {
    const auto value = static_cast<std::int64_t>(word);
    if (value < -100 || value > 100) std::abort();
    return static_cast<std::int8_t>(value);
  }

 private:
  static inline std::vector<std::uint64_t*> words_;
  static inline std::vector<bool> own_;
  static inline Lack lack_;
  static inline std::jmp_buf stop_;
  static inline Log* log_ = nullptr;
  static inline unsigned at_ = 0;
  static inline Grain grain_ = Grain::access;
  static inline bool stepped_ = false;
  static inline bool live_ = false;  // past what was done in steps before
};

struct WalkedAtomics {
  template <class T>
  class Atomic {
   public:
    Atomic() : Atomic(T{}) {}
    explicit Atomic(T value) : word_(value), index_(static_cast<int>(Accesses::words().size())) {
      Accesses::words().push_back(&word_);
    }
    Atomic(const Atomic&) = delete;
    Atomic& operator=(const Atomic&) = delete;

    T load(std::memory_order) const {
      return value(Accesses::access(index_, false, [this] { return Accesses::small(word_); }));
    }
    void store(T to, std::memory_order) {
      Accesses::access(index_, true, [&] { return word_ = to, std::int8_t{0}; });
    }
    T exchange(T to, std::memory_order) {
      return value(Accesses::access(index_, true, [&] { return Accesses::small(std::exchange(word_, to)); }));
    }
    /// What was there is not returned: it would only make states different.
    void fetch_add(T operand, std::memory_order) {
      const auto change = static_cast<std::int64_t>(static_cast<std::make_signed_t<T>>(operand));
      const std::uint64_t added = Accesses::lacks(index_, change) ? 0 : static_cast<std::uint64_t>(change);
      Accesses::access(index_, true, [&] { return word_ += added, std::int8_t{0}; });
    }
    bool compare_exchange_strong(T& expected, T desired, std::memory_order, std::memory_order) {
      const std::int8_t got = Accesses::access(index_, true, [&] {
        const std::int8_t before = Accesses::small(word_);
        if (word_ != expected) return before;
        word_ = desired;
        return kDone;
      });
      if (got == kDone) return true;
      expected = value(got);
      return false;
    }

   private:
    static constexpr std::int8_t kDone = 127;
    static T value(std::int8_t read) { return static_cast<T>(std::int64_t{read}); }
    std::uint64_t word_;
    const int index_;
  };
};

}  // namespace kasane::model
