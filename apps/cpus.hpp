// Which processors a command runs on.
#pragma once

#include <string>
#include <vector>

namespace convprim {

/// Processor numbers of a list such as "0-3" or "0,2,4-5". Throws Error naming --cpus.
std::vector<int> parse_cpus(const std::string& list);

/// Keeps this process, and threads that it starts from now on, on these processors. Throws Error if
/// the system refuses.
void pin(const std::vector<int>& cpus);

}  // namespace convprim
