// The independent checker of certificates.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "pbqp/pbqp.hpp"

#pragma GCC visibility push(default)  // exported by the shared library
namespace pbqp {

struct CheckReport {
  bool valid = false;
  /// If not valid: what is wrong, in one sentence, and the line of the certificate (from 1; 0 if
  /// it is not about one line).
  std::string message;
  std::size_t line = 0;
  /// What the certificate proves, if valid. `upper` is the cost of its assignment.
  Status status = Status::kLimit;
  double upper = kInfinity;
  double lower = -kInfinity;
  Assignment assignment;
};

/// Verifies a certificate that `solve` wrote for this problem: evaluates the assignment, replays
/// every reduction on the original costs and recomputes every bound of every search tree, in exact
/// arithmetic. Shares no code with the solver beyond the class Problem. Does not throw for a bad
/// certificate.
CheckReport check(const Problem& problem, std::string_view certificate);

/// The checksum that ends a certificate: of all that stands before its last line.
std::string certificate_checksum(std::string_view text);

}  // namespace pbqp
#pragma GCC visibility pop
