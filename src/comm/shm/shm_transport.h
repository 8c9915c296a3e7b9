// SPDX-License-Identifier: Apache-2.0
// The transport between ranks of one host: remote memory is mapped, so that read and write are memcpy and atomics are
// the CPU's; messages, replies and doorbells live in one memfd that every rank inherited or was passed (comm/bootstrap/job.h).
//
// In a job on several hosts it joins those of this host only, under their numbers in the whole job. mapped() is then null for the others; any
// operation towards them is a bug of the caller, who has another transport for them (comm/composed).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/result.h"
#include "comm/bootstrap/job.h"
#include "comm/transport.h"

namespace kasane::comm::shm {

/// Size of the memory that host_ranks ranks of a host share (Job::shared_bytes). Sparse: only what is used is populated.
[[nodiscard]] std::size_t job_bytes(std::uint32_t host_ranks);

/// The shared memory holds rings and doorbells twice: for the transport that programs use, and for what ranks tell each other beside it (OutOfBand), whose
/// messages and handlers must not meet the program's.
enum class Plane : std::uint8_t { data, control };

/// Joins job as job.rank. The job's descriptors must stay open as long as regions are attached. Regions are attached on one plane only.
Result<std::unique_ptr<Transport>> create(const Job& job, Plane plane = Plane::data);

/// This rank's doorbells, for a transport beside this one that is to wake the same sleepers. They live as long as transport, which create() made.
[[nodiscard]] Bells& bells(Transport& transport) noexcept;

}  // namespace kasane::comm::shm
