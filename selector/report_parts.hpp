// Parts of the report that have files of their own.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "convprim/explain.hpp"
#include "selector/compare.hpp"
#include "selector/report.hpp"

namespace convprim {

/// The rows of an explanation for people.
std::string table(const Explanation& explanation);

/// The same for programs: keys as in docs/report.md.
nlohmann::ordered_json json(const Explanation& explanation);

/// Measured bars for people, and for programs.
std::string table(const Comparison& comparison);
nlohmann::ordered_json json(const Comparison& comparison);

/// Predicted and measured time by type of layer.
std::string kinds_table(const Report& report);
nlohmann::ordered_json kinds_json(const Report& report);

/// The lines on memory.
std::string memory_text(const Report& report);
nlohmann::ordered_json memory_json(const Report& report);

/// Milliseconds, or null for what is infinite.
nlohmann::ordered_json json_ms(double seconds);

}  // namespace convprim
