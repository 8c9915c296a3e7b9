// SPDX-License-Identifier: Apache-2.0
// A rank whose peer is killed: every callback comes, once, with peer_lost, and flushes end.
#include <cstdlib>

#include "multi/comm/victim.h"
#include "multi/comm_engine/engine_env.h"

namespace kasane::comm::test {
namespace {

constexpr Rank kVictim{1};
constexpr std::uint64_t kHere = 65536;

struct Scene {
  Kind kind;
  Mode mode;
};
std::string scene_name(const Scene& s) {
  return name_of(s.kind) + (s.mode == Mode::offload ? "_offload" : "");
}

std::vector<Scene> scenes() {
  std::vector<Scene> all;
  if (ucx::available())
    all = {{Kind::ucx, Mode::direct},
           {Kind::ucx_tcp, Mode::direct},
           {Kind::ucx, Mode::offload},
           {Kind::ucx_tcp, Mode::offload}};
  return all;
}

/// Posts operations and counts how they ended.
class Posts {
 public:
  Posts(Engine& engine, Waiter& waiter) : engine_(engine), waiter_(waiter) {}

  /// What a full queue refuses is left out, or tried until it is taken.
  void one_of_each(bool insist) {
    const Callback c{&Posts::ended, this};
    const RemoteAddr at{kVictim, kRegion, 4096};
    const LocalAddr here{kRegion, kHere};
    const Strides rows{.dimensions = 2, .count = {8, 50}, .remote_stride = {16}, .local_stride = {8}};
    post(insist, &Engine::try_read_async, {.from = at, .to = here, .bytes = 8, .on_complete = c});
    post(insist, &Engine::try_read_async, {.from = at, .to = here, .bytes = 100'000, .on_complete = c});
    post(insist, &Engine::try_write_async, {.to = at, .from = here, .bytes = 8, .on_complete = c});
    post(insist, &Engine::try_write_async, {.to = at, .from = here, .bytes = 100'000, .on_complete = c});
    post(insist, &Engine::try_write_notify_async,
         {.to = at, .from = here, .bytes = 3000, .flag_offset = 0, .value = 1, .on_complete = c});
    post(insist, &Engine::try_atomic_async,
         {.op = AtomicOp::fetch_add,
          .width = Width::eight,
          .at = at,
          .operand = 1,
          .result = &old_,
          .on_complete = c});
    post(insist, &Engine::try_read_strided_async,
         {.remote = at, .local = here, .shape = rows, .on_complete = c});
    post(insist, &Engine::try_write_strided_async,
         {.remote = at, .local = here, .shape = rows, .on_complete = c});
    post(insist, &Engine::try_accumulate_async,
         {.to = at,
          .from = here,
          .element = Element::int64,
          .shape = {.dimensions = 1, .count = {8000}},
          .on_complete = c});
    post(insist, &Engine::try_copy_async,
         {.from = at, .to = {kVictim, kRegion, 200'000}, .bytes = 1000, .on_complete = c});
    post(insist, &Engine::try_request_async,
         {.to = kVictim, .handler = kEcho, .payload = {}, .answer = &answer_, .on_complete = c});
  }
  /// Every callback comes, and says peer_lost.
  void expect_lost() {
    waiter_.until([&] { return count_.load() >= posted_; });
    for (int i = 0; i < 1000; ++i) engine_.transport().progress();
    EXPECT_EQ(count_.load(), posted_);
    EXPECT_EQ(lost_.load(), posted_);
  }
  [[nodiscard]] std::uint64_t posted() const { return posted_; }

 private:
  template <class Params>
  void post(bool insist, bool (Engine::*call)(const Params&) noexcept,
            const std::type_identity_t<Params>& p) {
    bool accepted = false;
    if (insist) {
      waiter_.until([&] { return accepted || (accepted = (engine_.*call)(p)); });
    } else {
      for (int i = 0; i < 3 && !accepted; ++i)
        accepted = (engine_.*call)(p) || (engine_.transport().progress(), false);
    }
    posted_ += accepted ? 1 : 0;
  }
  static void ended(void* self, Status status) noexcept {
    auto& posts = *static_cast<Posts*>(self);
    if (status == Status::peer_lost) ++posts.lost_;
    ++posts.count_;
  }

  Engine& engine_;
  Waiter& waiter_;
  std::uint64_t posted_ = 0, answer_ = 0, old_ = 0;
  std::atomic<std::uint64_t> count_{0}, lost_{0};
};

class EngineLostPeer : public ::testing::TestWithParam<Scene> {};

TEST_P(EngineLostPeer, EveryCallbackComes) {
  // how soon UCX's shared memory looks whether its peers live
  ::setenv("UCX_KEEPALIVE_INTERVAL", "100ms", 1);
  Inbox inbox;
  std::unique_ptr<Engine> engine;
  const auto prepare = [&](Transport& t, int fd, std::byte* memory) {
    set_handlers(t, inbox);
    auto made = Engine::create(t, {.mode = GetParam().mode});
    ASSERT_TRUE(made) << made.error().message;
    engine = std::move(*made);
    ASSERT_TRUE(engine->attach(kRegion, fd, memory, kRegionBytes));
  };
  beside_a_victim(GetParam().kind, prepare, [&](Transport& t, pid_t victim) {
    if (!notices_lost_peers(t)) {
      ::kill(victim, SIGKILL);
      engine.reset();
      return;
    }
    PollWaiter waiter(t);
    Awaited io(*engine, waiter);
    // While it lives, everything works.
    EXPECT_TRUE(io.write(
        {.to = {kVictim, kRegion, 0}, .from = {kRegion, kHere}, .bytes = 100'000, .on_complete = {}}));
    EXPECT_TRUE(
        io.request({.to = kVictim, .handler = kEcho, .payload = {}, .answer = nullptr, .on_complete = {}}));
    stop(victim);
    Posts before(*engine, waiter), after(*engine, waiter);
    Flag one, all;
    before.one_of_each(/*insist=*/true);
    // Until queues are full, UCX's own too: what it then forgets is ended all the same
    // (docs/design/comm_ucx.md).
    constexpr int kMore = 300;
    for (int i = 0; i < kMore; ++i) before.one_of_each(/*insist=*/false);
    EXPECT_GT(before.posted(), std::uint64_t{kMore});
    const auto flush = [&](Rank rank, Flag& done) {
      bool accepted = false;
      waiter.until([&] {
        return accepted ||
               (accepted = engine->try_flush_async({.rank = rank, .on_complete = done.callback()}));
      });
    };
    flush(kVictim, one);
    flush(kNoRank, all);
    ::kill(victim, SIGKILL);
    before.expect_lost();
    EXPECT_EQ(one.wait(waiter), Status::ok);  // over is what was posted, however it ended
    EXPECT_EQ(all.wait(waiter), Status::ok);
    // Later posts end the same way, any number of them.
    for (int i = 0; i < 300; ++i) after.one_of_each(/*insist=*/true);
    after.expect_lost();
    EXPECT_TRUE(io.flush());
    // A message says nothing about its handler.
    const std::uint64_t word = 0;
    for (int i = 0; i < 1000; ++i)
      EXPECT_TRUE(io.send({.to = kVictim,
                           .handler = kSum,
                           .payload = std::as_bytes(std::span(&word, 1)),
                           .on_complete = {}}));
    // Ourselves, we are still there.
    EXPECT_TRUE(
        io.write({.to = {t.rank(), kRegion, 0}, .from = {kRegion, kHere}, .bytes = 8, .on_complete = {}}));
    EXPECT_TRUE(
        io.request({.to = t.rank(), .handler = kEcho, .payload = {}, .answer = nullptr, .on_complete = {}}));
    engine.reset();
  });
}

INSTANTIATE_TEST_SUITE_P(All, EngineLostPeer, ::testing::ValuesIn(scenes()),
                         [](const auto& i) { return scene_name(i.param); });
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(EngineLostPeer);

}  // namespace
}  // namespace kasane::comm::test
