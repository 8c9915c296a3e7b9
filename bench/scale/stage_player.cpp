// SPDX-License-Identifier: Apache-2.0
// The scripts of kasane bench scale on ranks of a job: each is run REPETITIONS times on fresh memory, and
// rank 0 prints "NAME NANOSECONDS" for each. What a script computes is a loop that takes its time.
//   kasane run -n 2 --workers 1 --debug relocate=off -- kasane-stage-player REPETITIONS [NAME…]
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <kasane/kasane.hpp>
#include <kasane/team.hpp>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/assert.h"
#include "base/clock.h"
#include "base/random.h"
#include "comm/collectives/collectives.h"
#include "runtime/rank/runtime.h"
#include "scale/programs.h"

namespace {

using namespace kasane;
using namespace kasane::scale;

void spin(std::uint64_t turns) {
  std::uint64_t x = turns;
  for (; turns != 0; --turns) asm volatile("imul $3, %0, %0" : "+r"(x));
}
/// Turns of spin() in a microsecond: the most of several tries, since something else may run.
std::uint64_t turns_of_a_microsecond() {
  std::uint64_t most = 0;
  for (int i = 0; i < 50; ++i) {
    const std::uint64_t begin = now_ns();
    spin(200'000);
    most = std::max(most, 200'000'000 / (now_ns() - begin));
  }
  return most;
}

/// The ranks of the job. It lies in the space and does not change while a script runs.
class Ranks final : public Stage {
 public:
  Ranks(std::uint64_t bytes, std::uint64_t page_bytes, std::uint64_t turns)
      : memory_(static_cast<std::byte*>(
            allocate(bytes, page_bytes, placement::first_touch.in_pages(page_bytes)))),
        bytes_(bytes),
        page_bytes_(page_bytes),
        turns_(turns),
        took_(static_cast<std::uint64_t*>(allocate_zeroed(8, 64))) {}
  ~Ranks() override {
    deallocate(memory_);
    deallocate(took_);
    for (auto& [name, mutex] : mutexes_) std::destroy_at(mutex), deallocate(mutex);
  }
  Ranks(const Ranks&) = delete;
  Ranks& operator=(const Ranks&) = delete;

  [[nodiscard]] std::uint32_t ranks() const noexcept override { return kasane::ranks(); }
  [[nodiscard]] std::uint64_t heap() const noexcept override { return 0; }
  void place(std::uint64_t offset, std::uint64_t bytes,
             const std::function<Rank(std::uint64_t page)>& owner) override {
    team([=, this](member& me) {
      for (std::uint64_t at = 0; at < bytes; at += page_bytes_)
        if (raw(owner(at / page_bytes_)) == me.rank()) std::memset(memory_ + offset + at, 1, page_bytes_);
    });
  }
  void make_mutex(SyncName name) override {
    void* const at = allocate(sizeof(mutex), 64, placement::on(raw(name.rank)));
    kasane::run([&] { kasane::thread(kasane::at{raw(name.rank)}, [at] { ::new (at) mutex; }).join(); });
    mutexes_.emplace_back(name, static_cast<mutex*>(at));
  }
  Result<void> play(const std::function<void(Actor&)>& body) override;
  Result<std::uint64_t> play_tree(const ForkJoin&, const Node& root) override;
  [[nodiscard]] std::uint64_t took() const noexcept { return *took_; }

  [[nodiscard]] std::byte* at(std::uint64_t offset) const noexcept { return memory_ + offset; }
  [[nodiscard]] mutex& mutex_of(SyncName name) const {
    for (const auto& [known, mutex] : mutexes_)
      if (known.rank == name.rank && known.index == name.index) return *mutex;
    std::abort();
  }
  [[nodiscard]] std::uint64_t turns_of(std::uint64_t ns) const noexcept { return ns * turns_ / 1000; }
  [[nodiscard]] std::uint64_t bytes() const noexcept { return bytes_; }

 private:
  std::byte* memory_;
  std::uint64_t bytes_, page_bytes_, turns_;
  std::uint64_t* took_;
  std::vector<std::pair<SyncName, mutex*>> mutexes_;
};

class OfRank final : public Actor {
 public:
  explicit OfRank(const Ranks& stage, member* me = nullptr)
      : stage_(stage),
        me_(me),
        random_(1'000'003 + kasane::rank()),
        collectives_(runtime::Runtime::current()->collectives()) {}
  void compute(std::uint64_t ns) override { spin(stage_.turns_of(ns)); }
  void read(std::uint64_t offset, std::size_t bytes) override {
    const volatile std::byte* const from = stage_.at(offset);
    for (std::size_t i = 0; i < bytes; i += mem::kBlockBytes) static_cast<void>(from[i]);
    static_cast<void>(from[bytes - 1]);
  }
  void write(std::uint64_t offset, std::size_t bytes) override {
    std::memset(stage_.at(offset), ++fill_, bytes);
  }
  void meet() override { me_->wait(); }
  void lock(SyncName name) override { stage_.mutex_of(name).lock(); }
  void unlock(SyncName name) override { stage_.mutex_of(name).unlock(); }
  void get(std::uint64_t offset, std::size_t bytes) override {
    buffer_.resize(std::max(buffer_.size(), bytes));
    kasane::get(buffer_.data(), stage_.at(offset), bytes);
  }
  void put(std::uint64_t offset, std::size_t bytes) override {
    buffer_.resize(std::max(buffer_.size(), bytes));
    kasane::put(stage_.at(offset), buffer_.data(), bytes);
  }
  void add(std::uint64_t offset) override {
    static_cast<void>(
        fetch_add(global_ptr<std::uint64_t>(reinterpret_cast<std::uint64_t*>(stage_.at(offset))), 1u));
  }
  void allreduce(std::size_t doubles) override {
    std::vector<double> values(doubles);
    collectives_.allreduce<double>(comm::Reduce::sum, values);
  }
  void barrier_of_collectives() override { collectives_.barrier(); }
  [[nodiscard]] Rank rank() const noexcept override { return Rank{me_->rank()}; }
  [[nodiscard]] std::uint32_t ranks() const noexcept override { return kasane::ranks(); }
  [[nodiscard]] std::uint64_t random(std::uint64_t bound) override { return random_.below(bound); }

 private:
  const Ranks& stage_;
  member* me_;
  Random random_;
  comm::Collectives& collectives_;
  std::vector<std::byte> buffer_;
  std::uint8_t fill_ = 1;
};

Result<void> Ranks::play(const std::function<void(Actor&)>& body) {
  team([this, body](member& me) {
    OfRank actor(*this, &me);
    me.wait();
    actor.barrier_of_collectives();
    const std::uint64_t begin = now_ns();  // one rank's clock: hosts have their own
    body(actor);
    actor.barrier_of_collectives();
    if (me.index() == 0) *took_ = now_ns() - begin;
  });
  return {};
}

/// A thread, and its children's.
void branch(const Ranks& stage, const ForkJoin& program, const Node& node, std::uint64_t* result) {
  OfRank actor(stage);
  for (std::uint32_t phase = 0; phase < program.phases(node); ++phase) {
    if (phase == 0) program.touch(actor, node);
    std::vector<Node> children;
    actor.compute(program.children(node, phase, children));
    std::vector<kasane::thread> threads;
    std::uint64_t results[64];
    KASANE_CHECK_OP(children.size(), <=, std::size(results));
    threads.reserve(children.size());
    for (std::size_t i = 0; i < children.size(); ++i)
      threads.emplace_back(
          [&stage, &program, child = children[i], to = &results[i]] { branch(stage, program, child, to); });
    for (auto& t : threads) t.join();
  }
  *result = 1;
}

Result<std::uint64_t> Ranks::play_tree(const ForkJoin& program, const Node& root) {
  const std::uint64_t begin = now_ns();  // main stays at its rank, whose clock it is
  kasane::run([&] {
    std::uint64_t result = 0;
    branch(*this, program, root, &result);
  });
  *took_ = now_ns() - begin;
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "kasane-stage-player REPETITIONS [NAME…]\n");
    return 2;
  }
  const std::uint64_t turns = turns_of_a_microsecond();
  for (int i = std::atoi(argv[1]); i > 0; --i) {
    for (const Script& script : scripts()) {
      const auto wanted = [&](const char* name) { return script.name == std::string(name); };
      if (argc > 2 && std::none_of(argv + 2, argv + argc, wanted)) continue;
      const auto stage = std::make_unique<Ranks>(
          std::max(script.together, script.heap_each * ranks()) + (2 << 20), script.page_bytes, turns);
      const auto ran = script.run(*stage, true);
      KASANE_CHECK(ran.has_value(), script.name);
      std::printf("%s %llu\n", script.name, static_cast<unsigned long long>(stage->took()));
      std::fflush(stdout);
    }
  }
  return 0;
}
