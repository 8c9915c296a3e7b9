// SPDX-License-Identifier: Apache-2.0
// The histogram of a map of k-mers in files.
//
// Thread safety: none; main uses it. Errors are std::runtime_error with the file's name and the reason.
#pragma once

#include <string>

#include "kmers/count.h"

namespace apps::kmers {

/// As `jellyfish histo` prints it: "multiplicity k-mers" a line. Empty: to standard output.
void write_histogram(const Histogram&, const std::string& file);
/// As `kasane plot` reads it, up to the multiplicity that has nearly all of the text below it.
void write_spectrum(const Histogram&, unsigned k, const std::string& what, const std::string& file);

}  // namespace apps::kmers
