#include "selector/measure_lock.hpp"

#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>

namespace convprim {

MeasureLock::MeasureLock(const std::string& path) {
  struct stat file {};
  if (stat(path.c_str(), &file) == 0)
    name_ = fmt::format("convprim-measures-{}-{}", file.st_dev, file.st_ino);
}

MeasureLock::~MeasureLock() {
  if (socket_ >= 0) close(socket_);
}

bool MeasureLock::try_take() {
#ifdef __linux__
  // A name in Linux's abstract namespace: bound once, and gone with the process.
  if (socket_ >= 0 || name_.empty()) return true;
  const int made = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (made < 0) return true;
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::size_t length = std::min(name_.size(), sizeof address.sun_path - 1);
  std::copy_n(name_.begin(), length, address.sun_path + 1);
  const auto bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + length);
  if (bind(made, reinterpret_cast<const sockaddr*>(&address), bytes) == 0) {
    socket_ = made;
    return true;
  }
  const bool taken = errno == EADDRINUSE;
  close(made);
  return !taken;
#else
  return true;
#endif
}

}  // namespace convprim
