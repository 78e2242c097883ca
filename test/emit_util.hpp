// Emitted programs, as tests build and read them.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "process.hpp"
#include "test.hpp"

namespace convprim::test {

/// The emitted program in that folder, compiled; an empty string if it does not compile.
inline std::string compiled(const TemporaryFolder& folder, const std::string& program) {
  const std::string library = from_environment("CONVPRIM_LIBRARY", "build/libconvprim.so");
  const std::string exe = program + "/net";
  const Outcome o =
      run_program(folder, "/bin/sh",
                  {"-c", from_environment("CONVPRIM_CXX", "g++") +
                             " -std=c++20 -O0 -Wall -Wextra -Wpedantic -Werror -I" +
                             from_environment("CONVPRIM_INCLUDE", "lib/include") + " " + program +
                             "/main.cpp " + program + "/net.cpp " + library + " -Wl,-rpath," +
                             std::filesystem::path(library).parent_path().string() + " -o " + exe});
  CAPTURE(o.err);
  CHECK(o.status == 0);
  return o.status == 0 ? exe : "";
}

/// Runs an emitted program, under the emulator where it is one for another machine.
inline Outcome run_emitted(const TemporaryFolder& folder, const std::string& exe,
                           std::vector<std::string> arguments) {
  const std::string emulator = from_environment("CONVPRIM_EMULATOR", "");
  arguments.insert(arguments.begin(), {"-c", "exec " + emulator + " \"$@\"", "sh", exe});
  return run_program(folder, "/bin/sh", arguments);
}

/// The files of a folder.
inline std::map<std::string, std::string> content(const std::string& folder) {
  std::map<std::string, std::string> all;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    all[entry.path().filename().string()] = slurp(entry.path().string());
  return all;
}

}  // namespace convprim::test
