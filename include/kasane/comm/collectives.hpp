// SPDX-License-Identifier: Apache-2.0
// Barriers, broadcasts, reductions and their kin between all ranks or some. The guide is
// docs/guide/communication.md.
#pragma once

#include "comm/collectives.h"
