// SPDX-License-Identifier: Apache-2.0
// Barrier, broadcast, allreduce and allgather of all ranks. The guide is docs/guide/communication.md.
#pragma once

#include "comm/collectives/collectives.h"
