// What every unit test includes: doctest, and where the data lies.
#pragma once

#include <doctest/doctest.h>

#include <string>

namespace convprim::test {

/// Notes that the current case is skipped: call it once and return. The case then counts as
/// skipped, not as passed.
void skip(const std::string& why);

/// Full path of a file of the optional test data (environment variable CONVPRIM_SHARED), or an
/// empty string where it is absent.
std::string shared(const std::string& path);

/// Full path of a file below the project's own data/.
std::string data(const std::string& path);

}  // namespace convprim::test
