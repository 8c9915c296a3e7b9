// SPDX-License-Identifier: Apache-2.0
// A request with a delayed doorbell (docs/design/sched.md, "Asking a rank at work") in every order of every
// access: the requester sends, nudges, watches for its answer and at last rings; a worker of the other rank
// answers at a fork, or never forks again; its service thread sleeps; and another of its threads, which waits
// for something else, runs handlers but serves nothing. The accesses are those of comm/shm (request, test,
// reply), sched::Scheduler::answer and dsm::Coherence (on_release, answer, serve), one step each; all are
// sequentially consistent there.
//
// Checked: the requester gets its answer, whatever the worker does; a rule taken away is a deadlock.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "model/walk.h"

namespace kasane::model {
namespace {

enum class Without : std::uint8_t {
  none,
  ring_after_delay,      ///< the requester goes on watching for ever
  stop_before_look,      ///< it stops watching only after its last look
  state_before_watched,  ///< the responder reads `watched` before it answers
  note_before_look,      ///< the handler looks for a serving thread before it notes the request
  word_before_serve,     ///< the answering thread reads the notes before it takes back its word
};

/// A thread of the rank that is asked. seen: activity of its doorbell; saw: it found something to do;
/// unwatched: what it saw of `watched`.
struct Server {
  std::uint8_t at, seen, saw, unwatched;
};

struct DelayedDoorbell {
  Without without = Without::none;

  struct State {
    std::uint8_t requester, seen;           // its place; the activity of its doorbell when it last looked
    std::uint8_t message, asked_bit, gate;  // message: 1 in the ring
    std::uint8_t noted, answering;          // tokens; threads that gave their word to serve
    std::uint8_t answered, watched;
    // events of the requester's and of the service thread's doorbell
    std::uint8_t bell_here, bell_there;
    std::uint8_t unused;
    Server worker, service, poller;
  };

  // Places of the requester …
  enum : std::uint8_t { kSend, kNudge, kWatch, kStop, kRing, kSee, kLook, kSleep, kStopLate, kDone };
  // … and of the others: idle, (the worker: bit, word), progress, handler, (word back), look, reply,
  // look for watchers.
  enum : std::uint8_t {
    kIdle,
    kClear,
    kWord,
    kProgress,
    kNote,
    kSomebody,
    kLeave,
    kBack,
    kServe,
    kReply,
    kWatched,
    kRest,
    kGone
  };

  State initial() const { return {}; }
  const char* violation(const State&) const { return nullptr; }
  bool finished(const State& s) const { return s.requester == kDone; }
  std::string name(const Step& x) const {
    static constexpr const char* kWho[] = {"requester", "worker", "service thread", "poller"};
    return std::string(kWho[x.actor]) + " at " + std::to_string(x.detail);
  }
  std::string show(const State& s) const {
    return "message " + std::to_string(s.message) + " noted " + std::to_string(s.noted) + " answering " +
           std::to_string(s.answering) + " answered " + std::to_string(s.answered) + " watched " +
           std::to_string(s.watched);
  }

  template <class Emit>
  void successors(const State& s, Emit&& emit) const {
    step_requester(s, emit);
    for (const Who who : {Who::worker, Who::service, Who::poller}) step_server(s, who, emit);
  }

  template <class Emit>
  void step_requester(const State& s, Emit&& emit) const {
    State n = s;
    const Step step{0, 0, s.requester};
    switch (s.requester) {
      case kSend:
        n.watched = n.message = 1;
        n.requester = kNudge;
        return emit(n, step);
      case kNudge:
        n.asked_bit = 1;
        n.requester = kWatch;
        return emit(n, step);
      case kWatch:  // the delay ends at some time
        if (s.answered) {
          n.requester = kDone;
          return emit(n, step);
        }
        if (without == Without::ring_after_delay) return;
        n.requester = without == Without::stop_before_look ? kRing : kStop;
        return emit(n, step);
      case kStop:
        n.watched = 0;
        n.requester = kRing;
        return emit(n, step);
      case kRing:
        ++n.bell_there;
        n.requester = kSee;
        return emit(n, step);
      case kSee:
        n.seen = s.bell_here;
        n.requester = kLook;
        return emit(n, step);
      case kLook:
        n.requester = s.answered ? kDone : without == Without::stop_before_look ? kStopLate : kSleep;
        return emit(n, step);
      case kStopLate:
        n.watched = 0;
        n.requester = kSleep;
        return emit(n, step);
      case kSleep:
        if (s.bell_here == s.seen) return;
        n.requester = kSee;
        return emit(n, step);
      default: return;
    }
  }

  enum class Who : std::uint8_t { worker = 1, service, poller };
  template <class Emit>
  void step_server(const State& s, Who who, Emit&& emit) const {
    State n = s;
    const bool worker = who == Who::worker;
    Server& me = worker ? n.worker : who == Who::service ? n.service : n.poller;
    const Step step{0, static_cast<std::uint8_t>(who), me.at};
    const std::uint8_t after_progress = who == Who::poller                                ? kIdle
                                        : worker && without != Without::word_before_serve ? kBack
                                                                                          : kServe;
    const auto go = [&](std::uint8_t at) {
      me.at = at;
      emit(n, step);
    };
    switch (me.at) {
      case kIdle:
        if (who == Who::service) {
          me.seen = s.bell_there;
          me.saw = 0;
          return go(kProgress);
        }
        if (worker && s.asked_bit) go(kClear);
        if (!worker && s.message && !s.gate) go(kProgress);
        return go(kGone);  // it forks no more, it waits no more
      case kClear: n.asked_bit = 0; return go(kWord);
      case kWord: ++n.answering; return go(kProgress);
      case kProgress:  // the gate is tried
        if (!s.message || s.gate) return go(after_progress);
        n.gate = 1;
        n.message = 0;
        me.saw = 1;
        return go(without == Without::note_before_look ? kSomebody : kNote);
      case kNote: n.noted = 1; return go(without == Without::note_before_look ? kLeave : kSomebody);
      case kSomebody:
        if (s.answering == 0) ++n.bell_there;
        return go(without == Without::note_before_look ? kNote : kLeave);
      case kLeave: n.gate = 0; return go(after_progress);
      case kBack: --n.answering; return go(without == Without::word_before_serve ? kRest : kServe);
      case kServe:
        if (!s.noted) return go(worker && without == Without::word_before_serve ? kBack : kRest);
        n.noted = 0;
        me.saw = 1;
        return go(without == Without::state_before_watched ? kWatched : kReply);
      case kReply:
        n.answered = 1;
        if (without == Without::state_before_watched) {
          if (me.unwatched) ++n.bell_here;
          me.unwatched = 0;
          return go(kServe);
        }
        return go(kWatched);
      case kWatched:
        if (without == Without::state_before_watched) {
          me.unwatched = s.watched == 0;
          return go(kReply);
        }
        if (!s.watched) ++n.bell_here;
        return go(kServe);
      case kRest:
        if (!worker && !me.saw && s.bell_there == me.seen) return;  // asleep
        return go(kIdle);
      default: return;
    }
  }
};

TEST(DelayedDoorbellRequest, IsAnsweredWhateverTheWorkerDoes) { expect_sound(DelayedDoorbell{}); }

TEST(DelayedDoorbellRequest, WithoutARuleMayNeverBeAnswered) {
  expect_needed<DelayedDoorbell>(
      {Without::ring_after_delay, Without::stop_before_look, Without::state_before_watched,
       Without::note_before_look, Without::word_before_serve},
      Verdict::deadlock);
}

}  // namespace
}  // namespace kasane::model
