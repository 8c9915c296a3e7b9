// SPDX-License-Identifier: Apache-2.0
#include "runtime/binding.h"

#include <span>

#include "runtime/warn.h"

namespace kasane::runtime {

namespace {

void keep_on(std::span<const topo::Core> cores) noexcept {
  if (const auto bound = topo::pin(cores); !bound) {
    CrashText text;
    warn(text.add("kasane: --bind core (KASANE_BIND): ")
             .add(bound.error().message.c_str())
             .add("; it runs where the kernel lets it\n"));
  }
}

}  // namespace

Result<Binding> Binding::to_cores(std::uint32_t index, std::uint32_t ranks_here, std::uint32_t workers) {
  auto machine = topo::Machine::discover();
  if (!machine) return tl::unexpected(machine.error());
  Binding binding;
  binding.cores_ = machine->cores();
  binding.first_ = index * workers;
  const std::size_t used = std::size_t{ranks_here} * workers;
  if (used < binding.cores_.size())
    binding.others_.assign(binding.cores_.begin() + static_cast<std::ptrdiff_t>(used), binding.cores_.end());
  return binding;
}

void Binding::bind_worker(std::uint32_t w) const noexcept {
  if (!cores_.empty()) keep_on({&cores_[(first_ + w) % cores_.size()], 1});
}

void Binding::bind_server() const noexcept {
  if (!others_.empty()) keep_on(others_);
}

}  // namespace kasane::runtime
