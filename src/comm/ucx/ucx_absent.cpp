// SPDX-License-Identifier: Apache-2.0
// What a build without UCX's headers answers.
#include "comm/ucx/ucx_transport.h"

#if !defined(KASANE_HAVE_UCX)
namespace kasane::comm::ucx {

Result<void> available() {
  return fail(Errc::unsupported, "built without UCX: install libucx-dev and build again");
}

Result<std::unique_ptr<Transport>> create(OutOfBand&, Bells&, const Options&) {
  return tl::unexpected<Error>(std::move(available()).error());
}

}  // namespace kasane::comm::ucx
#endif
