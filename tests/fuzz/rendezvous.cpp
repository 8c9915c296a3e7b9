// SPDX-License-Identifier: Apache-2.0
// What the ranks of a host send each other over abstract sockets while they meet: requests for the host's
// memory, and the messages that bring its descriptors. One of two ranks is ours; the other one's messages are
// what the input makes of those that are right. Whatever comes, the call ends in time, and no descriptor is
// left.
#include "comm/bootstrap/rendezvous.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <thread>
#include <vector>

#include "base/owned_fd.h"
#include "comm/bootstrap/descriptor_messages.h"
#include "comm/shm/shm_transport.h"
#include "fuzz.h"

using namespace kasane;
using kasane::fuzz::expect;

namespace {

constexpr std::size_t kKeyBytes = 16;

/// What follows the key: in a request the rank; in a message with descriptors the first, how many, of how
/// many.
struct Message {
  std::string bytes;
  std::uint32_t files = 0, sockets = 0;  ///< descriptors beside it
  bool right_size = true;                ///< of the files
};

/// The right bytes; where the input says so others.
std::string spoilt(fuzz::Input& input, std::string right) {
  if (input.below(2) == 0) return right;
  for (char& byte : right) {
    if (input.below(8) == 1) input.take_into(&byte, 1);
  }
  right.resize(std::min<std::size_t>(right.size() + 8, right.size() + input.below(9)));
  right.resize(right.size() - std::min<std::size_t>(right.size(), input.below(9)));
  return right;
}

std::string words(std::initializer_list<std::uint32_t> all) {
  std::string text;
  for (const std::uint32_t word : all) text.append(reinterpret_cast<const char*>(&word), sizeof word);
  return text;
}

sockaddr_un address_of(const std::string& name, socklen_t& bytes) {
  constexpr char kHex[] = "0123456789abcdef";
  std::string text = "kasane.";
  for (const char c : name) text.append({kHex[static_cast<unsigned char>(c) >> 4], kHex[c & 15]});
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + text.size());
  std::memcpy(address.sun_path + 1, text.data(), text.size());
  return address;
}

class Other final : public comm::OutOfBand {
 public:
  Other(fuzz::Input& input, Rank rank) : rank_(rank) {
    const bool leads = raw(rank) == 0;  // ours does
    for (std::uint32_t n = 1 + input.below(3); n != 0; --n) {
      // 4 descriptors: memory, a read end, two write ends
      const std::uint32_t first = input.below(2) == 0 ? 0 : input.below(5);
      const std::uint32_t count = input.below(2) == 0 ? 4 : input.below(20);
      Message message{spoilt(input, leads ? words({1}) : words({first, count, 4}))};
      message.right_size = input.below(4) != 1;
      if (!leads || input.below(4) == 1) {
        message.files = input.below(4) == 1 ? input.below(6) : 1;
        message.sockets = input.below(4) == 1 ? input.below(20) : 3;
      }
      messages_.push_back(std::move(message));
    }
    spoils_key_ = input.below(4) == 1;
  }
  ~Other() override {
    over_.store(true);
    if (sender_.joinable()) sender_.join();
  }
  [[nodiscard]] Rank rank() const noexcept override { return rank_; }
  [[nodiscard]] std::uint32_t ranks() const noexcept override { return 2; }

  /// The calls: bound, names, looked for a leader, leaders, memory made, ended.
  Result<std::vector<std::string>> allgather(std::string_view mine) override {
    std::vector<std::string> all(2, std::string(mine));
    ++calls_;
    if (calls_ == 2 && mine.size() >= 2 * kKeyBytes) {
      name_ = mine.substr(0, kKeyBytes);
      key_ = mine.substr(kKeyBytes, kKeyBytes);
      if (raw(rank_) == 1) {  // the other one leads
        for (char& byte : name_) byte = static_cast<char>(byte ^ 0x55);
        all[0].replace(0, kKeyBytes, name_);
        listen();
      }
      if (spoils_key_) key_.front() = static_cast<char>(key_.front() ^ 1);
    }
    if (calls_ == 5 && raw(rank_) == 0) ask();
    if (calls_ == 5 && raw(rank_) == 1) sender_ = std::thread([this] { answer(); });
    return all;
  }

 private:
  void send(int to, const Message& message) const {
    std::vector<OwnedFd> held;
    std::vector<int> descriptors;
    const auto add = [&](int fd) {
      held.emplace_back(fd);
      if (fd >= 0) descriptors.push_back(fd);
    };
    for (std::uint32_t i = 0; i < message.files; ++i) {
      add(::memfd_create("fuzz", MFD_CLOEXEC));
      const std::size_t bytes = message.right_size ? comm::shm::job_bytes(2) : 4096;
      expect(::ftruncate(descriptors.back(), static_cast<off_t>(bytes)) == 0, "a file");
    }
    for (std::uint32_t i = 0; i < message.sockets; ++i)
      add(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    const std::string all = key_ + message.bytes;
    if (descriptors.empty())
      static_cast<void>(::send(to, all.data(), all.size(), MSG_NOSIGNAL));
    else
      comm::send_with(to, std::as_bytes(std::span(all)), descriptors);
  }
  /// A rank that is no leader, whose requests lie in the queue of the leader's socket.
  void ask() {
    for (const Message& message : messages_) {
      asked_.emplace_back(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
      socklen_t bytes = 0;
      const sockaddr_un address = address_of(name_, bytes);
      if (::connect(asked_.back().get(), reinterpret_cast<const sockaddr*>(&address), bytes) != 0) return;
      send(asked_.back().get(), message);
    }
  }
  void listen() {
    listener_ = OwnedFd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    socklen_t bytes = 0;
    const sockaddr_un address = address_of(name_, bytes);
    expect(::bind(listener_.get(), reinterpret_cast<const sockaddr*>(&address), bytes) == 0 &&
               ::listen(listener_.get(), 16) == 0,
           "a socket that listens");
  }
  /// A leader, as soon as somebody asks.
  void answer() {
    while (!over_.load()) {
      pollfd arrival{.fd = listener_.get(), .events = POLLIN, .revents = 0};
      if (::poll(&arrival, 1, 1) <= 0) continue;
      asked_.emplace_back(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
      for (const Message& message : messages_) send(asked_.back().get(), message);
    }
  }

  Rank rank_;
  std::vector<Message> messages_;
  bool spoils_key_ = false;
  int calls_ = 0;
  std::string name_, key_;
  OwnedFd listener_;
  std::vector<OwnedFd> asked_;
  std::atomic<bool> over_{false};
  std::thread sender_;
};

int open_descriptors() {
  const int next = ::dup(2);  // the lowest that is free
  ::close(next);
  return next;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  fuzz::Input input(bytes, size);
  static const int before = open_descriptors();
  {
    Other other(input, Rank{input.below(2)});
    const auto job =
        comm::rendezvous(other, {.shared_bytes = comm::shm::job_bytes, .domain = {}, .limit_ns = 30'000'000});
    if (job) comm::close_job(*job);
  }
  expect(open_descriptors() == before, "no descriptor is left");
  return 0;
}
