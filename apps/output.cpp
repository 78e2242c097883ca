#include "apps/output.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <system_error>

#include "convprim/error.hpp"

namespace convprim {
namespace {

[[noreturn]] void unwritable(const std::string& path) {
  throw Error(fmt::format("{}: cannot be written; choose another file", path));
}

/// The file that writing to `path` replaces: a link's target. Empty for a device or a pipe, which
/// is written to as it stands.
std::string replaced_file(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code error;
  const auto status = fs::status(path, error);
  if (fs::is_directory(status)) throw Error(fmt::format("{}: is a folder; choose a file", path));
  if (fs::exists(status) && !fs::is_regular_file(status)) return "";
  const auto target = fs::weakly_canonical(path, error);
  return error ? path : target.string();
}

}  // namespace

void write_file(const std::string& path, const std::string& content) {
  const std::string target = replaced_file(path);
  const std::string partial = target.empty() ? path : fmt::format("{}.part-{}", target, getpid());
  std::ofstream file(partial, std::ios::binary);
  file << content;
  file.close();
  std::error_code error;
  if (file && !target.empty()) std::filesystem::rename(partial, target, error);
  if (!file || error) {
    if (!target.empty()) std::filesystem::remove(partial, error);
    unwritable(path);
  }
}

void check_writable(const std::string& option, const std::string& path,
                    const std::vector<std::string>& inputs) {
  const std::string target = replaced_file(path);
  if (target.empty()) return;
  for (const std::string& input : inputs) {
    std::error_code error;
    if (!input.empty() && std::filesystem::equivalent(input, target, error)) {
      throw Error(fmt::format("{} {}: would replace a file that is read; choose another file",
                              option, path));
    }
  }
  const std::string partial = fmt::format("{}.part-{}", target, getpid());
  const bool opened = std::ofstream(partial).is_open();
  std::error_code error;
  std::filesystem::remove(partial, error);
  if (!opened) unwritable(path);
}

}  // namespace convprim
