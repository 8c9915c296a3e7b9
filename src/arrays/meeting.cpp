// SPDX-License-Identifier: Apache-2.0
// How the ranks of attached processes meet for an operation on whole arrays
// (include/kasane/array_owners.hpp). One exchange at the begin, which also compares what the ranks call, and
// one at the end, which also carries results and failures.
#include <kasane/kasane.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <functional>
#include <kasane/array_owners.hpp>
#include <kasane/error.hpp>
#include <new>
#include <string>
#include <vector>

#include "arrays/error.h"

namespace kasane::detail {
namespace {

/// What a rank calls.
struct Called {
  char name[48] = {};
  std::uint64_t digest = 0;
};

/// How an operation ended at a rank; code 0: well.
struct Outcome {
  std::int32_t code = 0;
  char text[420] = {};
};

Outcome outcome_of(const std::exception_ptr& failure) {
  Outcome o;
  if (failure == nullptr) return o;
  const auto note = [&o](int code, const char* text) {
    o.code = code != 0 ? code : EIO;
    std::snprintf(o.text, sizeof o.text, "%s", text);
  };
  try {
    std::rethrow_exception(failure);
  } catch (const error& e) {
    note(e.code(), e.what());
  } catch (const std::bad_alloc& e) {
    note(ENOMEM, e.what());
  } catch (const std::exception& e) {
    note(EIO, e.what());
  } catch (...) {
    note(EIO, "an exception that is no std::exception");
  }
  return o;
}
[[noreturn]] void fail_as(const Outcome& o, const std::string& text) {
  if (o.code == ENOMEM) throw out_of_memory(text.c_str());
  throw error(o.code, text.c_str());
}

/// The first rank that failed tells the others why.
[[noreturn]] void fail_as_rank(std::uint32_t failed, const char* call, const std::exception_ptr& own) {
  Outcome o = outcome_of(own);
  check(kasane_ranks_broadcast(&o, sizeof o, failed));
  if (own != nullptr) std::rethrow_exception(own);
  fail_as(o, std::string(call) + " failed at rank " + std::to_string(failed) + ": " + o.text);
}

}  // namespace

Digest& Digest::bytes(const void* p, std::size_t n) noexcept {
  for (std::size_t i = 0; i < n; ++i)
    value_ = (value_ ^ static_cast<const unsigned char*>(p)[i]) * 0x100000001b3;
  return *this;
}
Digest& Digest::add(const ArrayLayout& l) noexcept {
  const std::size_t n = l.dimensions * sizeof *l.extents;
  add(l.base).add(l.element_bytes).add(l.dimensions);
  return bytes(l.extents, n).bytes(l.tile, n).bytes(l.grid, n).bytes(l.ghost, n);
}

void ranks_meet(const char* call, const Digest& digest) {
  if (kasane_attached() == 0) return;
  Called mine;
  std::snprintf(mine.name, sizeof mine.name, "%s", call);
  mine.digest = digest.value();
  std::vector<Called> all(ranks());
  kasane_release_all();
  check(kasane_ranks_allgather(&mine, all.data(), sizeof mine));
  kasane_acquire_all();
  for (std::uint32_t r = 1; r < all.size(); ++r) {
    if (std::strcmp(all[r].name, all[0].name) != 0)
      arrays::fail(
          EINVAL,
          "rank 0 calls %s, rank %u %s; operations on whole arrays are collective: all ranks make the "
          "same ones in the same order",
          all[0].name, r, all[r].name);
    if (all[r].digest != all[0].digest)
      arrays::fail(
          EINVAL,
          "%s: rank %u gives other arrays, extents or values than rank 0; operations on whole arrays "
          "are collective: give the same at all ranks",
          call, r);
  }
}

void ranks_end(const char* call, const std::exception_ptr& failure, const void* mine, void* all,
               std::size_t bytes) {
  const std::size_t each = 8 + bytes;
  const auto zeros = [](std::size_t n) noexcept { return std::vector<std::byte>(n); };
  std::vector<std::byte> own = zeros(each), everything = zeros(each * ranks());
  own[0] = std::byte{failure != nullptr};
  if (bytes != 0 && failure == nullptr) std::memcpy(own.data() + 8, mine, bytes);
  kasane_release_all();
  check(kasane_ranks_allgather(own.data(), everything.data(), each));
  kasane_acquire_all();
  for (std::uint32_t r = 0; r < ranks(); ++r)
    if (everything[r * each] != std::byte{}) fail_as_rank(r, call, failure);
  if (bytes == 0) return;
  for (std::uint32_t r = 0; r < ranks(); ++r)
    std::memcpy(static_cast<std::byte*>(all) + r * bytes, everything.data() + r * each + 8, bytes);
}

void by_one_rank(const std::function<void()>& f, void* data, std::size_t bytes) {
  if (kasane_attached() == 0) return f();
  std::exception_ptr failure;
  if (rank() == 0) {
    try {
      f();
      kasane_release_all();
    } catch (...) {
      failure = std::current_exception();
    }
  }
  Outcome outcome = outcome_of(failure);
  std::vector<std::byte> message(sizeof outcome + bytes);
  std::memcpy(message.data(), &outcome, sizeof outcome);
  if (bytes != 0) std::memcpy(message.data() + sizeof outcome, data, bytes);
  check(kasane_ranks_broadcast(message.data(), message.size(), 0));
  kasane_acquire_all();
  if (failure != nullptr) std::rethrow_exception(failure);
  std::memcpy(&outcome, message.data(), sizeof outcome);
  if (outcome.code != 0) fail_as(outcome, outcome.text);
  if (bytes != 0) std::memcpy(data, message.data() + sizeof outcome, bytes);
}

}  // namespace kasane::detail
