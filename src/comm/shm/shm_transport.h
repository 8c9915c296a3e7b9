// SPDX-License-Identifier: Apache-2.0
// The transport between ranks of one host: remote memory is mapped, so that read and write are memcpy and atomics are
// the CPU's; messages, replies and doorbells live in one memfd that every rank inherited (comm/bootstrap/job.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/result.h"
#include "comm/bootstrap/job.h"
#include "comm/transport.h"

namespace kasane::comm::shm {

/// Size of the memory that a job of ranks ranks shares (Job::shared_bytes). Sparse: only what is used is populated.
[[nodiscard]] std::size_t job_bytes(std::uint32_t ranks);

/// Joins job as job.rank. The job's descriptors must stay open as long as regions are attached.
Result<std::unique_ptr<Transport>> create(const Job& job);

}  // namespace kasane::comm::shm
