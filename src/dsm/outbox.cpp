// SPDX-License-Identifier: Apache-2.0
#include "dsm/outbox.h"

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

std::size_t Outbox::put_changed(Rank owner, std::uint64_t offset, const std::byte* block,
                                const std::byte* base) {
  std::size_t run = 0, total = 0;  // bytes [i - run, i) differ and were not put yet
  const auto put_run = [&](std::size_t end) {
    if (run == 0) return;
    put(owner, offset + end - run, block + end - run, run);
    total += run;
    run = 0;
  };
  for (std::size_t i = 0; i < kBlockBytes; i += 8) {
    if (i % kLineBytes == 0 && run == 0) {  // most lines have no change: one branch for each of those
      while (i < kBlockBytes && same_line(block + i, base + i)) i += kLineBytes;
      if (i == kBlockBytes) break;
    }
    const std::uint64_t differs = word_at(block + i) ^ word_at(base + i);
    if (differs == 0) {
      put_run(i);
      continue;
    }
    for (unsigned k = 0; k < 8; ++k) {
      if ((differs >> (8 * k) & 0xFF) != 0) {
        ++run;
      } else {
        put_run(i + k);
      }
    }
  }
  put_run(kBlockBytes);
  return total;
}

}  // namespace kasane::dsm
