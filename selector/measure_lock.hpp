// One program at a time measures into a cost file.
#pragma once

#include <string>

namespace convprim {

/// Two programs that measure at once disturb each other, and take the same costs twice. The lock is
/// the kernel's, by the file's identity: it leaves nothing behind and ends with the process. Where
/// the system has no such locks, everybody gets it.
class MeasureLock {
 public:
  explicit MeasureLock(const std::string& path);
  MeasureLock(const MeasureLock&) = delete;
  MeasureLock& operator=(const MeasureLock&) = delete;
  ~MeasureLock();

  /// Takes the lock if it is free; false if another holds it.
  bool try_take();

 private:
  std::string name_;
  int socket_ = -1;
};

}  // namespace convprim
