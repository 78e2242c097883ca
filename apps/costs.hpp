// selector costs: what cost files hold, and how they are joined and passed on.
#pragma once

#include <CLI/CLI.hpp>

namespace convprim {

/// Adds the subcommand `costs` with its own subcommands; each does its work when it is parsed.
/// Throws Error then.
void add_costs_command(CLI::App& app);

}  // namespace convprim
