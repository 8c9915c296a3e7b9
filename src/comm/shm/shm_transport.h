// SPDX-License-Identifier: Apache-2.0
// The transport between ranks of one host. Remote memory is mapped, so that read and write are memcpy and
// atomics are the CPU's. Messages, replies and doorbells lie in one memfd that every rank inherited or
// received (comm/bootstrap/job.h).
//
// In a job on several hosts it joins only the ranks of this host, under their numbers in the whole job. For
// other ranks mapped() is null, and an operation towards them is a bug of the caller (comm/composed has
// another transport for them).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/result.h"
#include "comm/bootstrap/job.h"
#include "comm/transport.h"

namespace kasane::comm::shm {

/// Size of the memory that host_ranks ranks of a host share (Job::shared_bytes). Sparse: only used pages are
/// populated.
[[nodiscard]] std::size_t job_bytes(std::uint32_t host_ranks);

/// The shared memory holds rings and doorbells twice: for the transport that programs use, and for the ranks'
/// out-of-band exchange (OutOfBand), whose messages and handlers must not mix with the program's.
enum class Plane : std::uint8_t { data, control };

/// Joins job as job.rank. The job's descriptors must stay open as long as regions are attached. Regions are
/// attached on one plane only.
Result<std::unique_ptr<Transport>> create(const Job& job, Plane plane = Plane::data);

/// This rank's doorbells, for a second transport that must wake the same sleepers. They live as long as
/// transport, which create() made.
[[nodiscard]] Bells& bells(Transport& transport) noexcept;

}  // namespace kasane::comm::shm
