// SPDX-License-Identifier: Apache-2.0
// What an application found: times, verification and the job's counters, as lines for people and as one JSON
// object for programs.
//
// Thread safety: none; main uses it. nlohmann-json stays in report.cpp.
#pragma once

#include <concepts>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <memory>
#include <string>

#include "common/command_line.h"

namespace apps {

class Report {
 public:
  explicit Report(const CommandLine& line);
  ~Report();

  void parameter(const std::string& name, std::uint64_t value);
  void parameter(const std::string& name, const std::string& value);
  void parameter(const std::string& name, std::same_as<double> auto value) { real_parameter(name, value); }
  /// A figure of the result (nodes, solutions …): shown, and in JSON under "result".
  void result(const std::string& name, std::uint64_t value);
  void result(const std::string& name, const std::string& value);
  void result(const std::string& name, std::same_as<double> auto value) { real_result(name, value); }

  /// Takes the time of f and counts it as a run.
  template <class F>
  void measure(F&& f) {
    begin();
    f();
    end();
  }
  /// Takes the time of the sequential elision.
  template <class F>
  void measure_serial(F&& f) {
    const double start = now();
    f();
    serial(now() - start);
  }
  /// Another time that belongs beside the result, in seconds: JSON "seconds_NAME".
  template <class F>
  void measure_part(const std::string& name, F&& f) {
    const double start = now();
    f();
    part(name, now() - start);
  }

  /// A check. The first that fails makes the whole run not verified, and is shown.
  bool verify(bool good, const std::string& what);

  /// Where the summary goes instead of to standard output.
  void print_to(std::FILE*);
  /// Prints the summary, writes the JSON; returns the exit status: 0 only if at least one check was made and
  /// all were good, and JSON was written.
  [[nodiscard]] int finish();

 private:
  [[nodiscard]] static double now();
  void real_parameter(const std::string& name, double value);
  void real_result(const std::string& name, double value);
  void begin();
  void end();
  void serial(double seconds);
  void part(const std::string& name, double seconds);
  void print(double median) const;
  [[nodiscard]] bool write_json(double median) const;

  struct State;
  std::unique_ptr<State> state_;
};

/// Runs main's body; an exception becomes a message "NAME: what" and status 1.
template <class F>
int guarded(const char* name, F&& body) noexcept;
void complain(const char* name, const char* what) noexcept;

template <class F>
int guarded(const char* name, F&& body) noexcept {
  try {
    return body();
  } catch (const std::exception& e) {
    complain(name, e.what());
  } catch (...) {
    complain(name, "an exception of unknown type");
  }
  return 1;
}

}  // namespace apps
