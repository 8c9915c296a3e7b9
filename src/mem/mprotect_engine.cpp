// SPDX-License-Identifier: Apache-2.0
// mprotect returns after every core has dropped the old translations, as protect() promises.
#include "mem/mprotect_engine.h"

#include <sys/mman.h>

#include <cerrno>
#include <string>

#include "base/assert.h"
#include "mem/fault_ranges.h"
#include "mem/mappings.h"
#include "mem/page_tables.h"

namespace kasane::mem {
namespace {

constexpr int protection(Access access) {
  switch (access) {
    case Access::none: return PROT_NONE;
    case Access::read: return PROT_READ;
    case Access::write: return PROT_READ | PROT_WRITE;
  }
  return PROT_NONE;
}

class MprotectEngine final : public FaultEngine {
 public:
  MprotectEngine(const Space& space, std::uint64_t limit)
      : map_(space.addresses()), bytes_(space.bytes()), mappings_(limit) {}
  ~MprotectEngine() override { stop(); }

  std::string_view name() const noexcept override { return "mprotect"; }

  Result<void> start(FaultHandler handler, void* context) override {
    KASANE_CHECK(handler != nullptr && handler_ == nullptr);
    handler_ = handler;
    context_ = context;
    auto registered = register_ranges(map_, on_fault, this);
    if (!registered) handler_ = nullptr;
    return registered;
  }

  void stop() noexcept override {
    if (handler_ == nullptr) return;
    unregister_ranges(map_);
    handler_ = nullptr;
  }

  Result<void> leave_open(BlockRange run) override {
    if (protect(run, Access::write)) return {};
    return fail_errno(Errc::limit,
                      "cannot make " + std::to_string(run.count) + " blocks of the space accessible");
  }

  bool protect(BlockRange run, Access access) noexcept override {
    const std::uint64_t offset = offset_of(run.first), bytes = run.count * kBlockBytes;
    // A stray mprotect would change other memory
    KASANE_CHECK(offset <= bytes_ && bytes <= bytes_ - offset);
    if (bytes == 0) return true;
    mappings_.spend();  // before, so that the bound holds while mprotect runs
    if (::mprotect(map_.address(offset), bytes, protection(access)) == 0) return true;
    KASANE_CHECK_OP(errno, ==, ENOMEM);
    mappings_.refused();
    return false;
  }

  // Rights are the mappings', so translations may go at any time.
  void drop_kept_translations(BlockRange run) const noexcept override {
    drop_translations(map_.address(offset_of(run.first)), run.count * kBlockBytes);
  }

  void give_tables_back(BlockRange run) noexcept override { drop_kept_translations(run); }

  bool crowded() const noexcept override { return mappings_.crowded(); }

 private:
  static bool on_fault(void* self, void* address, bool write, int) {
    const auto* engine = static_cast<const MprotectEngine*>(self);
    const auto offset = engine->map_.offset(address);
    return engine->handler_(engine->context_, offset, write ? Access::write : Access::read, Served::in_place);
  }

  const AddressMap map_;
  const std::size_t bytes_;
  MappingBudget mappings_;
  FaultHandler handler_ = nullptr;  // constant between start() and stop()
  void* context_ = nullptr;
};

}  // namespace

std::unique_ptr<FaultEngine> make_mprotect_engine(const Space& space, std::uint64_t mapping_limit) {
  return std::make_unique<MprotectEngine>(space, mapping_limit);
}

}  // namespace kasane::mem
