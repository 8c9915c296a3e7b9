// SPDX-License-Identifier: Apache-2.0
// The job that kasane run or mpirun started: launch(), Session. The guide is docs/guide/communication.md.
#pragma once

#include "comm/launch/launch.h"
