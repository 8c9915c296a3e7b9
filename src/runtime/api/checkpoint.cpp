// SPDX-License-Identifier: Apache-2.0
#include "runtime/api/checkpoint.h"

#include <fmt/format.h>
#include <limits.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <kasane/kasane.hpp>
#include <memory>
#include <new>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "checkpoint/file.h"
#include "comm/collectives/collectives.h"
#include "runtime/api/checkpoint_progress.h"
#include "runtime/rank/runtime.h"
#include "ult/pool.h"
#include "ult/runtime_section.h"

namespace kasane::runtime {
namespace {

using namespace checkpoint;
using ult::RuntimeSection;

/// Chunks that are copied and transferred at once.
constexpr std::uint64_t kRunChunks = 16;

/// A rank's part of a checkpoint.
struct RankOutcome {
  CheckpointFailure failure;
  bool has_chunks = false;
  bool cannot_see_file = false;
};

/// The shared state of a running checkpoint. In global memory.
struct Shared {
  char path[PATH_MAX];
  Contents contents;
  std::byte* data;
  NewFile file;                   ///< persist
  std::uint64_t header_checksum;  ///< restore: of the caller's file
  Rank holder;                    ///< the rank that has the file open, and writes for ranks that cannot
  CheckpointProgress::Words progress;
  CheckpointProgress::Show show;
};

void note(CheckpointFailure& failure, int code, const char* text) noexcept {
  failure.code = code;
  std::snprintf(failure.text, sizeof failure.text, "%s", text);
}

/// Calls step() -> FileResult<void> in a RuntimeSection: its allocations and the texts of its errors belong
/// to this process. False: it failed, as noted.
template <class Step>
bool attempt(CheckpointFailure& failure, Step&& step) {
  const RuntimeSection section;
  try {
    const FileResult<void> done = step();
    if (done) return true;
    note(failure, done.error().code, done.error().text.c_str());
  } catch (const std::bad_alloc&) {
    note(failure, ENOMEM, "no private memory for its buffers");
  }
  return false;
}

// ---- attached ranks: all call together, and rank 0 leads ----

bool attached() noexcept { return Runtime::current()->attached(); }

/// What rank 0 tells the others.
struct Asked {
  Shared* shared = nullptr;  ///< null: there is nothing to do
  RankOutcome* parts = nullptr;
  const std::uint32_t* owners = nullptr;
  std::uint64_t* table = nullptr;
  std::uint64_t restores = 0;
};

template <class T>
void tell_all(T& value) {
  const RuntimeSection section;
  Runtime::current()->release_all();
  Runtime::current()->collectives().broadcast(Rank{0}, std::as_writable_bytes(std::span(&value, 1)));
  Runtime::current()->acquire_all();
}

/// What each rank stored before is seen by all afterwards.
void meet() {
  const RuntimeSection section;
  Runtime::current()->release_all();
  Runtime::current()->collectives().barrier();
  Runtime::current()->acquire_all();
}

/// To the rank that has the file open; attached ranks are there.
void go_to_holder(const Shared& s) {
  if (!attached()) ult::Pool::go_to(s.holder);
}

/// Objects in global memory, whatever --new says; no destructors are run.
template <class T>
unique_array<T> global_array(std::size_t n) {
  unique_array<T> array(static_cast<T*>(allocate(n * sizeof(T))));
  std::uninitialized_value_construct_n(array.get(), n);
  return array;
}

/// A view of global memory that ends with the scope.
class View {
 public:
  View(const void* p, std::size_t bytes, int access) noexcept
      : p_(p), bytes_(bytes), good_(kasane_view(p, bytes, access) == 0) {}
  View(const View&) = delete;
  View& operator=(const View&) = delete;
  ~View() {
    if (good_) kasane_end_view(p_, bytes_);
  }
  [[nodiscard]] FileResult<void> result() const {
    if (good_) return {};
    return refuse(kasane_error_code(), kasane_error_message());
  }

 private:
  const void* p_;
  std::size_t bytes_;
  bool good_;
};

/// One checkpoint. It lies on the stack of the caller's thread, which runs it.
class Work {
 public:
  Work(const void* data, const Contents& contents)
      : ranks_(kasane_ranks()),
        layout_(contents.bytes()),
        shared_(global_array<Shared>(1)),
        outcomes_(global_array<RankOutcome>(ranks_)),
        owners_(global_array<std::uint32_t>(layout_.chunks)),
        table_(global_array<std::uint64_t>(layout_.chunks)) {
    Shared& s = shared_[0];
    s.contents = contents;
    s.data = static_cast<std::byte*>(const_cast<void*>(data));
    s.holder = Runtime::current()->rank();
    const RuntimeSection section;
    s.show = CheckpointProgress::show(Runtime::current()->options().progress);
    CheckpointProgress::clear(s.progress);
  }

  CheckpointFailure persist(const char* path) {
    CheckpointFailure failure;
    Shared& s = shared_[0];
    const bool ready = find_owners(failure) && attempt(failure, [&]() -> FileResult<void> {
                         auto resolved = note_path(path);
                         if (!resolved) return tl::unexpected(resolved.error());
                         auto file = create(*resolved, layout_, !Runtime::current()->one_host());
                         if (!file) return tl::unexpected(file.error());
                         s.file = *file;
                         return {};
                       });
    if (!ready) return failure;
    verb_ = "persist";
    const std::uint64_t start_ns = now_ns();
    everywhere(write_part);
    // The thread is at the holder again: only the holder can rename the file, or delete it.
    go_to_holder(s);
    first_failure(failure);
    NewFile file = s.file;
    if (failure.code == 0) {
      attempt(failure, [&]() -> FileResult<void> {
        const std::vector<std::uint64_t> table(table_.get(), table_.get() + layout_.chunks);
        return commit(file, s.contents, table, s.path);
      });
    }
    const RuntimeSection section;
    if (failure.code == 0)
      tell_end(start_ns);
    else
      abandon(file, s.path);
    return failure;
  }

  CheckpointFailure restore(const char* path) {
    CheckpointFailure failure;
    Shared& s = shared_[0];
    const bool ready = find_owners(failure) && attempt(failure, [&]() -> FileResult<void> {
                         auto resolved = note_path(path);
                         if (!resolved) return tl::unexpected(resolved.error());
                         const auto file = OldFile::open(*resolved);
                         if (!file) return tl::unexpected(file.error());
                         s.header_checksum = file->header().header_checksum;
                         return check_wanted(file->header(), s.contents, *resolved);
                       });
    if (!ready) return failure;
    verb_ = "restore";
    const std::uint64_t start_ns = now_ns();
    everywhere(read_part);
    go_to_holder(s);  // whose clock measured the start
    first_failure(failure);
    const RuntimeSection section;
    if (failure.code == 0) tell_end(start_ns);
    return failure;
  }

  /// In an attached rank other than 0: does its part of what rank 0 leads.
  static CheckpointFailure take_part() {
    Asked asked;
    tell_all(asked);
    if (asked.shared != nullptr) do_own_part(asked);
    CheckpointFailure failure;
    tell_all(failure);
    return failure;
  }
  /// Attached rank 0: the others were told what to do.
  [[nodiscard]] bool told() const noexcept { return told_; }

 private:
  /// The state of a thread that does a rank's part; on its stack.
  struct Tools {
    Shared& shared;
    RankOutcome& part;
    std::uint32_t rank;  ///< the rank whose part it is
    const FileLayout& layout;
    const std::uint32_t* owners;
    std::uint64_t* table;
    const char* verb;
  };
  using DoPart = FileResult<void> (*)(const Tools&);

  void tell_end(std::uint64_t start_ns) {
    CheckpointProgress(shared_[0].progress, shared_[0].show, verb_, shared_[0].path, layout_.bytes, start_ns)
        .end();
  }

  FileResult<std::string> note_path(const char* path) {
    auto resolved = resolve(path);
    if (!resolved) return resolved;
    if (temporary_name(*resolved, {.aside = true}).size() >= sizeof shared_[0].path)
      return refuse(ENAMETOOLONG, fmt::format("the name of {} is too long", *resolved));
    std::memcpy(shared_[0].path, resolved->c_str(), resolved->size() + 1);
    return resolved;
  }

  bool find_owners(CheckpointFailure& failure) {
    return attempt(failure, [&]() -> FileResult<void> {
      for (std::uint64_t c = 0; c < layout_.chunks; ++c) {
        const auto owner = Runtime::current()->where(shared_[0].data + c * kChunkBytes);
        if (!owner) return refuse(EINVAL, owner.error().message);
        owners_[c] = raw(*owner);
        outcomes_[raw(*owner)].has_chunks = true;
      }
      return {};
    });
  }

  [[nodiscard]] Tools tools_of(std::uint32_t rank) noexcept {
    return {shared_[0], outcomes_[rank], rank, layout_, owners_.get(), table_.get(), verb_};
  }

  /// Runs each rank's part at that rank, all at once. Then the holder does the parts that other ranks could
  /// not do.
  void everywhere(DoPart do_part) {
    attached() ? ask_ranks(do_part) : fork_parts(do_part);
    for (std::uint32_t r = 0; r < ranks_; ++r) {
      if (!outcomes_[r].cannot_see_file) continue;
      go_to_holder(shared_[0]);
      attempt(outcomes_[r].failure, [&] { return do_part(tools_of(r)); });
    }
  }

  void ask_ranks(DoPart do_part) {
    Asked asked{shared_.get(), outcomes_.get(), owners_.get(), table_.get(), do_part == read_part};
    told_ = true;
    tell_all(asked);
    do_own_part(asked);
  }
  /// What any rank has stored before is in it; what it stores itself is seen by all afterwards.
  static void do_own_part(const Asked& a) {
    meet();
    if (const std::uint32_t me = raw(Runtime::current()->rank()); a.parts[me].has_chunks) do_asked(a, me);
    meet();
  }
  static void do_asked(const Asked& a, std::uint32_t me) {
    const FileLayout layout(a.shared->contents.bytes());
    const Tools tools{
        *a.shared, a.parts[me], me, layout, a.owners, a.table, a.restores != 0 ? "restore" : "persist"};
    attempt(a.parts[me].failure, [&] { return a.restores != 0 ? read_part(tools) : write_part(tools); });
  }

  /// The holder's is forked last, since it runs here immediately.
  void fork_parts(DoPart do_part) {
    const auto threads = global_array<thread>(ranks_);
    for (std::uint32_t i = 1; i <= ranks_; ++i) {
      const std::uint32_t r = (raw(shared_[0].holder) + i) % ranks_;
      if (!outcomes_[r].has_chunks) continue;
      const auto run = [t = tools_of(r), do_part] {
        ult::Pool::go_to(Rank{t.rank});
        attempt(t.part.failure, [&] { return do_part(t); });
      };
      try {
        threads[r] = thread(run);
      } catch (const error&) {  // no stack is left: the parts run one after the other
        run();
      }
    }
    for (std::uint32_t r = 0; r < ranks_; ++r)
      if (threads[r].joinable()) threads[r].join();
  }

  void first_failure(CheckpointFailure& failure) const noexcept {
    for (std::uint32_t r = 0; r < ranks_ && failure.code == 0; ++r)
      if (outcomes_[r].failure.code != 0) failure = outcomes_[r].failure;
  }

  /// Calls run(first, chunks) over the part's chunks, adjacent ones together.
  template <class Run>
  static FileResult<void> for_runs(const Tools& t, Run&& run) {
    for (std::uint64_t c = 0; c < t.layout.chunks;) {
      std::uint64_t n = 0;
      while (n < kRunChunks && c + n < t.layout.chunks && t.owners[c + n] == t.rank) ++n;
      if (n == 0) {
        ++c;
        continue;
      }
      if (auto done = run(c, n); !done) return done;
      c += n;
    }
    return {};
  }

  static FileResult<void> write_part(const Tools& t) {
    Shared& s = t.shared;
    const std::string path(s.path);
    const bool holds = Runtime::current()->rank() == s.holder;
    int fd = s.file.fd;
    if (!holds) {
      const auto same = open_same(path, t.layout, s.file);
      if (!same && same.error().code != EFBIG) {
        t.part.cannot_see_file = true;
        return {};
      }
      if (!same) return tl::unexpected(same.error());
      fd = *same;
    }
    CheckpointProgress progress(s.progress, s.show, t.verb, s.path, t.layout.bytes, now_ns());
    const std::unique_ptr<std::byte[]> buffer(new std::byte[kRunChunks * kChunkBytes]);
    FileResult<void> done = for_runs(t, [&](std::uint64_t first, std::uint64_t n) -> FileResult<void> {
      const std::uint64_t bytes = (n - 1) * kChunkBytes + t.layout.bytes_of(first + n - 1);
      {  // one copy is checked and written, whatever is stored to the memory meanwhile
        const View view(s.data + first * kChunkBytes, bytes, KASANE_READ);
        if (auto good = view.result(); !good) return good;
        std::memcpy(buffer.get(), s.data + first * kChunkBytes, bytes);
      }
      std::uint64_t stored = 0;
      for (std::uint64_t i = 0; i < n;) {  // stretches between holes
        std::uint64_t end = i, stretch = 0;
        for (; end < n; ++end) {
          const std::uint64_t in_chunk = t.layout.bytes_of(first + end);
          t.table[first + end] = chunk_word(buffer.get() + end * kChunkBytes, in_chunk);
          if (t.table[first + end] == 0) break;
          stretch += in_chunk;
        }
        if (stretch != 0) {
          if (auto written = write(fd, {buffer.get() + i * kChunkBytes, stretch}, first + i, t.layout, path);
              !written)
            return written;
        }
        stored += stretch;
        i = end + 1;
      }
      progress.add(bytes, stored);
      return {};
    });
    if (holds) return done;  // flushed by commit()
    if (done) done = flush(fd, path);
    ::close(fd);
    return done;
  }

  static FileResult<void> read_part(const Tools& t) {
    Shared& s = t.shared;
    const std::string path(s.path);
    const auto file = OldFile::open(path);
    if (!file || file->header().header_checksum != s.header_checksum) {
      if (Runtime::current()->rank() != s.holder) {
        t.part.cannot_see_file = true;
        return {};
      }
      if (!file) return tl::unexpected(file.error());
      return refuse(ESTALE, path + " was replaced while it was read");
    }
    t.part.cannot_see_file = false;
    CheckpointProgress progress(s.progress, s.show, t.verb, s.path, t.layout.bytes, now_ns());
    const std::unique_ptr<std::byte[]> buffer(new std::byte[kRunChunks * kChunkBytes]);
    return for_runs(t, [&](std::uint64_t first, std::uint64_t n) -> FileResult<void> {
      std::uint64_t all = 0, stored = 0;
      for (std::uint64_t i = 0; i < n;) {
        const bool hole = file->is_hole(first + i);
        std::uint64_t end = i, stretch = 0;
        for (; end < n && file->is_hole(first + end) == hole; ++end)
          stretch += t.layout.bytes_of(first + end);
        std::byte* const to = s.data + (first + i) * kChunkBytes;
        if (auto done = hole ? clear(to, stretch) : fill(*file, {buffer.get(), stretch}, first + i, to);
            !done)
          return done;
        all += stretch;
        stored += hole ? 0 : stretch;
        i = end;
      }
      progress.add(all, stored);
      return {};
    });
  }

  static FileResult<void> fill(const OldFile& file, std::span<std::byte> buffer, std::uint64_t chunk,
                               std::byte* to) {
    if (auto read = file.read(buffer, chunk); !read) return read;
    const View view(to, buffer.size(), KASANE_WRITE_ONLY);
    if (auto good = view.result(); !good) return good;
    std::memcpy(to, buffer.data(), buffer.size());
    return {};
  }

  /// Bytes that are zero already are not written.
  static FileResult<void> clear(std::byte* to, std::uint64_t bytes) {
    {
      const View view(to, bytes, KASANE_READ);
      if (auto good = view.result(); !good || all_zero(to, bytes)) return good;
    }
    const View view(to, bytes, KASANE_WRITE_ONLY);
    if (auto good = view.result(); !good) return good;
    std::memset(to, 0, bytes);
    return {};
  }

  const std::uint32_t ranks_;
  const FileLayout layout_;
  const char* verb_ = "";
  bool told_ = false;
  const unique_array<Shared> shared_;
  const unique_array<RankOutcome> outcomes_;
  const unique_array<std::uint32_t> owners_;  ///< of each chunk's first byte, at the begin
  const unique_array<std::uint64_t> table_;
};

template <class Act>
CheckpointFailure with_work(const void* data, const Contents& contents, Act&& act) {
  if (attached() && raw(Runtime::current()->rank()) != 0) return Work::take_part();
  CheckpointFailure failure;
  bool told = false;
  try {
    Work work(data, contents);
    failure = act(work);
    told = work.told();
  } catch (const out_of_memory& e) {
    note(failure, ENOMEM, e.what());
  } catch (const error& e) {
    note(failure, e.code(), e.what());
  }
  if (!attached()) return failure;
  if (Asked nothing; !told) tell_all(nothing);
  tell_all(failure);
  return failure;
}

}  // namespace

CheckpointFailure persist(const char* path, const void* data, const Contents& contents) {
  return with_work(data, contents, [path](Work& work) { return work.persist(path); });
}

CheckpointFailure restore(const char* path, void* data, const Contents& contents) {
  return with_work(data, contents, [path](Work& work) { return work.restore(path); });
}

CheckpointFailure describe_checkpoint(const char* path, Contents& contents) {
  CheckpointFailure failure;
  attempt(failure, [&]() -> FileResult<void> {
    const auto resolved = resolve(path);
    if (!resolved) return tl::unexpected(resolved.error());
    const auto file = OldFile::open(*resolved);
    if (!file) return tl::unexpected(file.error());
    contents = file->header().contents();
    return {};
  });
  return failure;
}

}  // namespace kasane::runtime
