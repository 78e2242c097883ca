// Files that commands write.
#pragma once

#include <string>
#include <vector>

namespace convprim {

/// Writes a file whole or not at all; a link's target is replaced, a device or pipe written to.
/// Throws Error.
void write_file(const std::string& path, const std::string& content);

/// Finds out before long work whether write_file() will be able to write, and that it will not
/// replace an input. Throws Error naming the option that gave the path.
void check_writable(const std::string& option, const std::string& path,
                    const std::vector<std::string>& inputs);

/// A file to be, by its name in a folder.
struct OutputFile {
  std::string name;
  std::string content;
};

/// Writes files into a folder, which is made if there is none: all or none. Throws Error.
void write_folder(const std::string& folder, const std::vector<OutputFile>& files);

/// check_writable() for write_folder() with files of those names.
void check_folder(const std::string& option, const std::string& folder,
                  const std::vector<std::string>& names, const std::vector<std::string>& inputs);

}  // namespace convprim
