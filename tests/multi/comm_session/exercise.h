// SPDX-License-Identifier: Apache-2.0
// A communication-only program on a Session: every rank reaches every rank by every kind of operation,
// whatever transport is underneath. The same for forked ranks and for ranks that mpirun started.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "comm/blocking.h"
#include "comm/collectives/collectives.h"
#include "comm/session/session.h"
#include "support/service_thread.h"

namespace kasane::comm::test {

inline constexpr RegionId kRegion{1};
inline constexpr std::size_t kRegionBytes = std::size_t{4} << 20;
inline constexpr HandlerId kAsk{1};

/// Counts what went wrong, and remembers the first.
class Failures {
 public:
  void expect(bool ok, const std::string& what) {
    if (!ok && text_.empty()) text_ = what;
  }
  [[nodiscard]] const std::string& text() const { return text_; }

 private:
  std::string text_;
};

/// One rank's part; each writer has its own words in the region.
class Exercise {
 public:
  explicit Exercise(Session& session)
      : transport_(session.transport()), session_(session), waiter_(transport_), all_(transport_, waiter_) {
    transport_.set_handler(
        kAsk,
        [](void* c, const Message& m) noexcept {
          auto& t = *static_cast<Transport*>(c);
          std::uint64_t x;
          std::memcpy(&x, m.payload.data(), 8);
          t.reply(m.token, x * 1000 + raw(t.rank()) * 10 + raw(m.from));
        },
        &transport_);
  }

  /// Empty, or what failed first.
  std::string run() {
    const int fd = ::memfd_create("kasane-test", MFD_CLOEXEC);
    if (fd < 0 || ::ftruncate(fd, kRegionBytes) != 0) return "no memory for a region";
    memory_ =
        static_cast<std::byte*>(::mmap(nullptr, kRegionBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
    if (auto attached = transport_.attach(kRegion, fd, memory_, kRegionBytes); !attached)
      return attached.error().message;
    {
      const kasane::test::ServiceThread service(transport_);
      all_.barrier();
      beside();
      put_and_get();
      atomics();
      ask();
      notify();
      all_.barrier();
    }
    ::close(fd);
    return failures_.text();
  }

 private:
  [[nodiscard]] std::uint32_t me() const { return raw(transport_.rank()); }
  [[nodiscard]] std::uint64_t word(std::size_t i) const {
    return std::atomic_ref(reinterpret_cast<std::uint64_t*>(memory_)[i]).load();
  }

  /// What ranks tell each other beside the transport meets none of its messages.
  void beside() {
    const auto said = session_.out_of_band().allgather(std::string(me() + 1, 'x'));
    failures_.expect(said && said->size() == transport_.ranks(), "the out-of-band exchange failed");
    for (std::uint32_t r = 0; said && r < said->size(); ++r)
      failures_.expect((*said)[r].size() == r + 1, "wrong bytes out of band");
  }

  void put_and_get() {
    Blocking io(transport_, waiter_);
    for (const std::size_t bytes :
         {std::size_t{1}, std::size_t{8}, std::size_t{4097}, std::size_t{200'000}}) {
      for (std::uint32_t r = 0; r < transport_.ranks(); ++r) {
        const std::vector<std::byte> data(bytes, static_cast<std::byte>(me() * 16 + r + bytes));
        std::vector<std::byte> back(bytes);
        const RemoteAddr at{Rank{r}, kRegion, (std::size_t{1} << 20) + me() * (std::size_t{1} << 18)};
        io.write(at, data.data(), bytes);
        io.read(at, back.data(), bytes);
        failures_.expect(
            back == data,
            "rank " + std::to_string(r) + " returned other bytes than were put, of " + std::to_string(bytes));
      }
    }
  }

  void atomics() {
    constexpr std::uint64_t kEach = 100;
    Blocking io(transport_, waiter_);
    for (std::uint64_t i = 0; i < kEach; ++i) {
      for (std::uint32_t r = 0; r < transport_.ranks(); ++r) io.fetch_add({Rank{r}, kRegion, 0}, 1);
    }
    all_.barrier();
    const std::uint64_t sum = io.load({transport_.rank(), kRegion, 0});
    failures_.expect(sum == kEach * transport_.ranks(), "atomics sum up to " + std::to_string(sum));
    all_.barrier();
  }

  void ask() {
    Blocking io(transport_, waiter_);
    for (std::uint64_t i = 0; i < 50; ++i) {
      for (std::uint32_t r = 0; r < transport_.ranks(); ++r) {
        const std::uint64_t answer = io.request(Rank{r}, kAsk, as_payload(i));
        failures_.expect(answer == i * 1000 + r * 10 + me(),
                         "rank " + std::to_string(r) + " answered " + std::to_string(answer));
      }
    }
  }

  /// Round the ranks: data and flag arrive together, and are looked at before they are passed on, since the
  /// next round overwrites them.
  void notify() {
    auto take = [&](std::uint64_t round) {
      waiter_.until([&] { return word(64 + 7) == round; });
      failures_.expect(
          word(64) == round * 3 && word(65) == (me() + transport_.ranks() - 1) % transport_.ranks(),
          "a notification came without its data");
    };
    for (std::uint64_t round = 1; round <= 20; ++round) {
      if (me() != 0) take(round);
      pass_on(round);
      if (me() == 0) take(round);
    }
  }

  void pass_on(std::uint64_t round) {
    struct Done : Completion {
      std::atomic<bool> flag{false};
    } done;
    done.fn = [](Completion* c) noexcept { static_cast<Done*>(c)->flag.store(true); };
    const std::uint64_t data[2] = {round * 3, me()};
    const Rank next{(me() + 1) % transport_.ranks()};
    Post post = Post::again;
    waiter_.until([&] {
      if (post == Post::again)
        post = transport_.write_notify({next, kRegion, 512}, data, sizeof(data), 512 + 56, round, &done);
      return post == Post::done || done.flag.load();
    });
  }

  Transport& transport_;
  Session& session_;
  PollWaiter waiter_;
  Collectives all_;
  std::byte* memory_ = nullptr;
  Failures failures_;
};

}  // namespace kasane::comm::test
