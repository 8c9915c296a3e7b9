// SPDX-License-Identifier: Apache-2.0
// What the tests of spill files share: frames to fill, every engine and route between them and a file, and an
// engine that fails on request.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "mem/bounce_buffers.h"
#include "mem/spill_engine.h"
#include "mem/spill_file.h"
#include "mem/spill_queue.h"
#include "support/folder.h"

namespace kasane::mem {

constexpr std::uint64_t kSpaceBytes = 1ull << 40;
constexpr std::size_t kFramesBytes = 16u << 20;  // of the space, from its start on

constexpr SpillRange blocks(std::uint64_t first, std::uint64_t count = 1) {
  return {first * kBlockBytes, count * kBlockBytes};
}

/// A memory file and A.
class Frames {
 public:
  Frames() : fd_(::memfd_create("frames", MFD_CLOEXEC)) {
    if (fd_ < 0 || ::ftruncate(fd_, kSpaceBytes) != 0) throw std::runtime_error("no memory file");
    // Aligned as a large frame has to be.
    auto* const first = static_cast<std::byte*>(
        ::mmap(nullptr, kReserved, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    reserved_ = first;
    bytes_ = first + (kAligned - reinterpret_cast<std::uintptr_t>(first) % kAligned) % kAligned;
    if (::mmap(bytes_, kFramesBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE | MAP_FIXED, fd_,
               0) == MAP_FAILED)
      throw std::runtime_error("no room for a mapping");
  }
  Frames(const Frames&) = delete;
  Frames& operator=(const Frames&) = delete;
  ~Frames() {
    ::munmap(reserved_, kReserved);
    ::close(fd_);
  }
  [[nodiscard]] int fd() const { return fd_; }
  [[nodiscard]] std::byte* base() const { return bytes_; }
  void fill(SpillRange r, int byte) const { std::memset(bytes_ + r.offset, byte, r.bytes); }
  [[nodiscard]] bool holds(SpillRange r, int byte) const {
    return std::all_of(bytes_ + r.offset, bytes_ + r.offset + r.bytes,
                       [byte](std::byte b) { return b == std::byte(byte); });
  }
  void punch(SpillRange r) const {
    ASSERT_EQ(::fallocate(fd_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(r.offset),
                          static_cast<off_t>(r.bytes)),
              0);
  }
  /// Has no block of the range a frame?
  [[nodiscard]] bool empty(SpillRange r) const {
    const off_t first = ::lseek(fd_, static_cast<off_t>(r.offset), SEEK_DATA);
    return first < 0 || static_cast<std::uint64_t>(first) >= r.offset + r.bytes;
  }
  /// Has each block of the range a frame?
  [[nodiscard]] bool full(SpillRange r) const {
    return static_cast<std::uint64_t>(::lseek(fd_, static_cast<off_t>(r.offset), SEEK_HOLE)) >=
           r.offset + r.bytes;
  }
  [[nodiscard]] std::unique_ptr<BounceBuffers> make_buffers(std::uint64_t page_bytes = kPageBytes,
                                                            std::uint64_t large_frame_bytes = 0) const {
    auto made =
        BounceBuffers::create({fd_, bytes_, *Pages::uniform(kSpaceBytes, page_bytes), large_frame_bytes});
    if (!made) throw std::runtime_error(made.error().message);
    return std::move(*made);
  }

 private:
  static constexpr std::size_t kAligned = 2u << 20, kReserved = kFramesBytes + kAligned;
  int fd_;
  std::byte *reserved_, *bytes_;
};

inline SpillFile make_file(const std::string& directories) {
  auto file = SpillFile::create(directories, kSpaceBytes);
  if (!file) throw std::runtime_error(file.error().message);
  return std::move(*file);
}

inline std::vector<std::string> spill_engines_here() {
  std::vector<std::string> names;
  for (const EngineInfo& e : spill_engines())
    if (e.available) names.emplace_back(e.name);
  return names;
}

/// An engine that passes transfers on, but for a chosen one, which ends with a given result.
class Injecting final : public SpillEngine {
 public:
  explicit Injecting(std::unique_ptr<SpillEngine> real, bool registers = true)
      : real_(std::move(real)), registers_(registers) {}
  /// The nth transfer from now on (from 1) ends with result. A short transfer moves as many bytes as the
  /// result says.
  void fail(unsigned nth, std::int32_t result) { nth_ = nth, result_ = result; }

  bool register_memory(std::span<std::byte> memory) noexcept override {
    return registers_ && real_->register_memory(memory);
  }
  void start(std::uint32_t slot, const SpillTransfer& t) noexcept override {
    if (nth_ == 0 || --nth_ != 0) return real_->start(slot, t);
    if (result_ > 0) {
      // Moves the first bytes; the queue must transfer the rest.
      const auto bytes = static_cast<std::size_t>(result_);
      const auto at = static_cast<off_t>(t.offset);
      const ssize_t moved =
          t.op == SpillOp::read ? ::pread(t.fd, t.memory, bytes, at) : ::pwrite(t.fd, t.memory, bytes, at);
      EXPECT_EQ(moved, result_);
    }
    injected_.push_back({slot, result_});
  }
  void flush() noexcept override { real_->flush(); }
  unsigned reap(std::span<SpillResult> results) noexcept override {
    if (injected_.empty()) return real_->reap(results);
    results[0] = injected_.back();
    injected_.pop_back();
    return 1;
  }
  bool ready() noexcept override { return !injected_.empty() || real_->ready(); }
  void sleep() noexcept override {
    if (injected_.empty()) real_->sleep();
  }

 private:
  std::unique_ptr<SpillEngine> real_;
  const bool registers_;
  std::vector<SpillResult> injected_;
  unsigned nth_ = 0;
  std::int32_t result_ = 0;
};

/// A route between frames and a file.
struct Way {
  std::string engine;
  bool staged;
  bool registers;  ///< where the engine can
};

inline std::vector<Way> ways_here() {
  std::vector<Way> ways;
  for (const std::string& engine : spill_engines_here()) {
    ways.push_back({engine, false, true});
    ways.push_back({engine, true, true});
    if (engine == "io_uring") ways.push_back({engine, true, false});
  }
  return ways;
}

inline std::string way_name(const ::testing::TestParamInfo<Way>& way) {
  return way.param.engine + (way.param.staged ? "_staged" : "_in_place") +
         (way.param.registers ? "" : "_unregistered");
}

/// One file, frames, and a queue between them over an engine that fails on request.
class SpillTest : public ::testing::TestWithParam<Way> {
 protected:
  /// Over the route under test.
  std::unique_ptr<SpillQueue> make_queue(SpillFile& to, Injecting** told = nullptr) {
    auto made = make_spill_engine(GetParam().engine, SpillQueue::kDepth);
    if (!made) throw std::runtime_error(made.error().message);
    auto injecting = std::make_unique<Injecting>(std::move(*made), GetParam().registers);
    if (told != nullptr) *told = injecting.get();
    return std::make_unique<SpillQueue>(to, std::move(injecting), buffers.get());
  }
  /// Returns the batch's errno.
  int transfer(SpillOp op, std::vector<SpillRange> ranges) {
    SpillBatch batch{op, frames.base(), ranges};
    queue->run(batch);
    return batch.error();
  }
  int write(std::vector<SpillRange> ranges) { return transfer(SpillOp::write, std::move(ranges)); }
  int read(std::vector<SpillRange> ranges) { return transfer(SpillOp::read, std::move(ranges)); }

  test::Folder folder;
  Frames frames;
  SpillFile file = make_file(folder.path());
  std::unique_ptr<BounceBuffers> buffers = GetParam().staged ? frames.make_buffers() : nullptr;
  Injecting* engine = nullptr;
  std::unique_ptr<SpillQueue> queue = make_queue(file, &engine);
};

}  // namespace kasane::mem
