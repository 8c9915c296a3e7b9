// SPDX-License-Identifier: Apache-2.0
#include "dsm/outbox.h"

#include <atomic>
#include <cstring>

#include "base/assert.h"
#include "comm/copy.h"
#include "dsm/word_at.h"
#include "gas/regions.h"
#include "mem/block_table.h"

namespace kasane::dsm {

using mem::kBlockBytes;

namespace {

constexpr std::size_t kLineBytes = 64;  ///< of a cache line
constexpr unsigned kLengthBits = 16;    ///< of a run in a message; the bits above are its offset

[[nodiscard]] bool same_line(const std::byte* a, const std::byte* b) noexcept {
  std::uint64_t differ = 0;
  for (std::size_t i = 0; i < kLineBytes; i += 8) differ |= word_at(a + i) ^ word_at(b + i);
  return differ == 0;
}

}  // namespace

void Outbox::put(Rank owner, std::uint64_t offset, const std::byte* from, std::size_t bytes) {
  if (bytes <= kShort && batch_.io().transport().mapped(owner, gas::kFrames) == nullptr)
    return pack(owner, offset, from, bytes);
  batch_.write({owner, gas::kFrames, offset}, from, bytes);
}

void Outbox::pack(Rank owner, std::uint64_t offset, const std::byte* from, std::size_t bytes) {
  if (owner != to_ || packed_ + sizeof(std::uint64_t) + bytes > message_.size()) send();
  to_ = owner;
  const std::uint64_t head = offset << kLengthBits | bytes;
  std::memcpy(&message_[packed_], &head, sizeof head);
  std::memcpy(&message_[packed_ + sizeof head], from, bytes);
  packed_ += sizeof head + bytes;
}

void Outbox::send() {
  if (packed_ == 0) return;
  requests_.post(to_, gas::kChangesHandler, {message_.data(), packed_});
  packed_ = 0;
  if (counters_ != nullptr) count(counters_->messages_put);
}

void Outbox::await() {
  send();
  requests_.await();
  batch_.await();
}

void Outbox::unpack(const mem::Space& space, std::span<const std::byte> message) noexcept {
  for (std::size_t at = 0; at < message.size();) {
    const std::uint64_t head = word_at(&message[at]), offset = head >> kLengthBits,
                        bytes = head & ((1u << kLengthBits) - 1);
    at += sizeof head;
    KASANE_CHECK_OP(bytes, <=, message.size() - at);
    comm::copy_out(space.a(offset), &message[at], bytes);
    at += bytes;
  }
}

/// Calls changed(at, word, which) for each word of the block that differs from base: `which` has 0xFF for its
/// bytes that do. open: stores to the block may happen meanwhile: each word is loaded once, for the call and
/// for base. Returns how many bytes differ.
template <class Changed>
std::size_t Outbox::for_each_changed(const std::byte* block, std::byte* base, bool open,
                                     const Changed& changed) {
  std::size_t total = 0;
  for (std::size_t i = 0; i < kBlockBytes; i += 8) {
    if (i % kLineBytes == 0) {  // most lines have no change: one branch for each of those
      while (i < kBlockBytes && same_line(block + i, base + i)) i += kLineBytes;
      if (i == kBlockBytes) break;
    }
    // relaxed: either of two racing values will do, if owner and twin get the same one
    const std::uint64_t now =
        std::atomic_ref(*reinterpret_cast<std::uint64_t*>(const_cast<std::byte*>(block + i)))
            .load(std::memory_order_relaxed);
    const std::uint64_t which = differing_bytes(now, word_at(base + i));
    if (which == 0) continue;
    if (open) std::memcpy(base + i, &now, sizeof now);
    changed(i, now, which);
    total += bytes_in(which);
  }
  return total;
}

std::size_t Outbox::put_changed(Rank owner, std::uint64_t offset, const std::byte* block, std::byte* base,
                                bool open) {
  if (std::byte* const frames = batch_.io().transport().mapped(owner, gas::kFrames)) {
    const std::size_t total =
        for_each_changed(block, base, open, [&](std::size_t at, std::uint64_t word, std::uint64_t which) {
          store_bytes(frames + offset + at, word, which);
        });
    comm::fence_release();  // as a put that has completed
    return total;
  }
  const std::byte* const from = open ? base : block;
  std::size_t end = 0, length = 0;  // bytes [end - length, end) differ and were not put yet
  const auto put_run = [&] {
    if (length != 0) put(owner, offset + end - length, from + end - length, length);
    length = 0;
  };
  const std::size_t total =
      for_each_changed(block, base, open, [&](std::size_t at, std::uint64_t, std::uint64_t which) {
        for (; which != 0; which >>= 8, ++at) {
          if ((which & 0xFF) == 0) continue;
          if (at != end) put_run();
          ++length;
          end = at + 1;
        }
      });
  put_run();
  return total;
}

}  // namespace kasane::dsm
