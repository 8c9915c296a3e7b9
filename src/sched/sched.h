// SPDX-License-Identifier: Apache-2.0
// The layer's one header: threads across ranks.
#pragma once

#include "sched/scheduler.h"
#include "sched/steal.h"
#include "sched/victims.h"
#include "sched/words.h"
