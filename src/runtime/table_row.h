// SPDX-License-Identifier: Apache-2.0
// Rows of the tables of --stats: numbers with units that can be read. Programs that want the numbers themselves have kasane::counter() and the reports in JSON.
// Thread safety: pure.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace kasane::runtime {

enum class Unit : std::uint8_t { count, thousands, bytes, nanoseconds };   ///< count: to the last digit; thousands: as the others

/// Three digits that count, and a unit: "4711", "4.71 k", "1.50 MiB", "5.35 s", "0".
[[nodiscard]] std::string in_units(std::uint64_t value, Unit);

/// "name   value … help\n", a column a rank; nothing if all are 0. A name that begins with ns_ begins with time_ here, since what follows has units of its own.
[[nodiscard]] std::string table_row(std::string_view name, std::span<const std::uint64_t> values, Unit, std::string_view help);

}  // namespace kasane::runtime
