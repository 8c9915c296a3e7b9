// SPDX-License-Identifier: Apache-2.0
// Runs a measurement in a process and a process group of its own, so that an interrupt ends all that it has
// started, and its owner can clean up behind it.
#pragma once

#include <functional>

namespace kasane::bench {

/// body's result, or 128 + the number of the signal that ended it; 1 for an exception, which is reported as
/// "NAME: what". SIGINT, SIGTERM and SIGHUP of the caller go to the whole group; a process that does not end
/// within seconds is killed. Nothing of the group runs when it returns.
int run_guarded(const char* name, const std::function<int()>& body);

}  // namespace kasane::bench
