// SPDX-License-Identifier: Apache-2.0
#include "usage.h"

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <memory>
#include <utility>

namespace kasane::tools {
namespace {

class UsageFormatter : public CLI::Formatter {
 public:
  explicit UsageFormatter(std::string line) : line_(std::move(line)) {}
  std::string make_usage(const CLI::App*, std::string) const override { return "Usage: " + line_ + "\n"; }

 private:
  std::string line_;
};

}  // namespace

void set_usage(CLI::App& app, std::string line) {
  app.formatter(std::make_shared<UsageFormatter>(std::move(line)));
}

}  // namespace kasane::tools
