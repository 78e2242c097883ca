// Programs run by tests.
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "files.hpp"

namespace convprim::test {

/// What a program left behind.
struct Outcome {
  int status = -1;  ///< exit status, or 128 + signal
  std::string out, err;
};

/// Starts a program (searched for in PATH) with its outputs in files.
inline pid_t start_program(const std::string& program, const std::vector<std::string>& arguments,
                           const std::string& out, const std::string& err) {
  std::fflush(nullptr);  // else the child would write what is buffered once more
  const pid_t child = fork();
  if (child == 0) {
    if (freopen(out.c_str(), "w", stdout) == nullptr ||
        freopen(err.c_str(), "w", stderr) == nullptr)
      _exit(99);
    std::vector<char*> argv = {const_cast<char*>(program.c_str())};
    for (const std::string& a : arguments) argv.push_back(const_cast<char*>(a.c_str()));
    argv.push_back(nullptr);
    execvp(argv[0], argv.data());
    _exit(98);
  }
  return child;
}

/// Runs a program to its end.
inline Outcome run_program(const TemporaryFolder& folder, const std::string& program,
                           const std::vector<std::string>& arguments) {
  const std::string out = folder.file("stdout"), err = folder.file("stderr");
  int status = 0;
  waitpid(start_program(program, arguments, out, err), &status, 0);
  return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), slurp(out), slurp(err)};
}

/// A path that the build gives in an environment variable.
inline std::string from_environment(const char* variable, const char* otherwise) {
  const char* value = std::getenv(variable);
  return value != nullptr ? value : otherwise;
}

/// The selector command.
inline std::string selector() {
  return from_environment("CONVPRIM_SELECTOR", "build/apps/selector");
}

}  // namespace convprim::test
