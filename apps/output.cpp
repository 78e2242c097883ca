#include "apps/output.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <system_error>
#include <utility>

#include "convprim/error.hpp"

namespace convprim {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void unwritable(const std::string& path) {
  throw Error(fmt::format("{}: cannot be written; choose another file", path));
}

/// The file that writing to `path` replaces: a link's target. Empty for a device or a pipe, which
/// is written to as it stands.
std::string replaced_file(const std::string& path) {
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
  if (file && !target.empty()) fs::rename(partial, target, error);
  if (!file || error) {
    if (!target.empty()) fs::remove(partial, error);
    unwritable(path);
  }
}

void check_writable(const std::string& option, const std::string& path,
                    const std::vector<std::string>& inputs) {
  const std::string target = replaced_file(path);
  if (target.empty()) return;
  for (const std::string& input : inputs) {
    std::error_code error;
    if (!input.empty() && fs::equivalent(input, target, error)) {
      throw Error(fmt::format("{} {}: would replace a file that is read; choose another file",
                              option, path));
    }
  }
  const std::string partial = fmt::format("{}.part-{}", target, getpid());
  const bool opened = std::ofstream(partial).is_open();
  std::error_code error;
  fs::remove(partial, error);
  if (!opened) unwritable(path);
}

void write_folder(const std::string& folder, const std::vector<OutputFile>& files) {
  std::error_code error;
  const bool made = fs::create_directory(folder, error);
  if (!fs::is_directory(folder)) unwritable(folder);
  std::vector<std::pair<fs::path, fs::path>> parts;
  std::string failed;
  for (const OutputFile& file : files) {
    const fs::path target = replaced_file((fs::path(folder) / file.name).string());
    parts.emplace_back(fmt::format("{}.part-{}", target.string(), getpid()), target);
    std::ofstream stream(parts.back().first, std::ios::binary);
    stream << file.content;
    stream.close();
    if (!stream) {
      failed = target.string();
      break;
    }
  }
  for (const auto& [part, target] : parts) {
    if (failed.empty()) fs::rename(part, target, error);
    if (failed.empty() && error) failed = target.string();
  }
  if (failed.empty()) return;
  for (const auto& [part, target] : parts) fs::remove(part, error);
  if (made) fs::remove(folder, error);
  unwritable(failed);
}

void check_folder(const std::string& option, const std::string& folder,
                  const std::vector<std::string>& names, const std::vector<std::string>& inputs) {
  std::error_code error;
  if (fs::is_directory(folder, error)) {
    for (const std::string& name : names)
      check_writable(option, (fs::path(folder) / name).string(), inputs);
    return;
  }
  if (fs::exists(folder, error))
    throw Error(fmt::format("{} {}: is a file; choose a folder", option, folder));
  const bool made = fs::create_directory(folder, error);
  fs::remove(folder, error);
  if (!made)
    throw Error(fmt::format("{} {}: the folder cannot be made; choose another", option, folder));
}

}  // namespace convprim
