// Problems in files: a line-based text form, JSON, and .wcsp (toulbar2). README.md specifies the
// first two.
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>

#include "pbqp/pbqp.hpp"

#pragma GCC visibility push(default)  // exported by the shared library
namespace pbqp {

/// A file that cannot be read or does not say what its format demands. what() is one sentence that
/// starts with "FILE:LINE: " (or "FILE: " where no line is to blame).
class FormatError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

enum class Format { kText, kJson, kWcsp };

/// Parses a problem; `name` is what messages call the file. All throw FormatError.
Problem read_text(std::string_view text, const std::string& name);
Problem read_json(std::string_view text, const std::string& name);
/// Functions of up to two variables; costs of at least the file's upper bound are infinite.
Problem read_wcsp(std::string_view text, const std::string& name);

/// The same problem reads back from these, names and weights included, costs to the last bit.
std::string write_text(const Problem& problem);
std::string write_json(const Problem& problem);

/// For toulbar2, whose costs are integers from 0: costs are divided by their common power of two
/// (or by `quantum`, then rounded), each function is shifted to a least cost of 0, and the first
/// word of the file ("pbqp_e-20_o-17": exponent and offset) says how to get back; read_wcsp does.
/// Throws std::invalid_argument if the costs need more than 56 bits.
std::string write_wcsp(const Problem& problem, double quantum = 0.0);

/// Reads a file ("-": standard input), telling the format by its content.
Problem load(const std::string& path);
/// Writes a file ("-": standard output), as a whole or not at all.
void save(const std::string& path, const Problem& problem, Format format, double quantum = 0.0);
/// The format that a file name suggests: .json, .wcsp, otherwise text.
Format format_of(const std::string& path);

/// The whole content of a file ("-": standard input). Throws FormatError.
std::string read_file(const std::string& path);
/// Writes by way of a temporary file beside it. Throws FormatError.
void write_file(const std::string& path, std::string_view content);

}  // namespace pbqp
#pragma GCC visibility pop
