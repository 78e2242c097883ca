// The one exception type of the library.
#pragma once

#include <stdexcept>
#include <string>

#pragma GCC visibility push(default)  // exported by the shared library
namespace convprim {

/// Thrown at the boundaries of the library: files, parsing, unsupported requests. The message is
/// one sentence that says what is wrong, where (file, line, layer) and what to do about it.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace convprim
#pragma GCC visibility pop
