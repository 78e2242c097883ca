// doctest's entry point for all unit tests: runs the cases and ends with the line that the test
// command adds up.
#define DOCTEST_CONFIG_IMPLEMENT
#include "test.hpp"

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>

namespace convprim::test {
namespace {

int skipped_cases = 0;

/// Counts cases, which doctest itself reports to listeners only.
struct Counter final : doctest::IReporter {
  explicit Counter(const doctest::ContextOptions&) {}
  static inline int passed = 0, failed = 0;
  void report_query(const doctest::QueryData&) override {}
  void test_run_start() override {}
  void test_run_end(const doctest::TestRunStats&) override {}
  void test_case_start(const doctest::TestCaseData&) override {}
  void test_case_reenter(const doctest::TestCaseData&) override {}
  void test_case_end(const doctest::CurrentTestCaseStats& stats) override {
    ++(stats.testCaseSuccess ? passed : failed);
  }
  void test_case_exception(const doctest::TestCaseException&) override {}
  void subcase_start(const doctest::SubcaseSignature&) override {}
  void subcase_end() override {}
  void log_assert(const doctest::AssertData&) override {}
  void log_message(const doctest::MessageData&) override {}
  void test_case_skipped(const doctest::TestCaseData&) override {}
};

REGISTER_LISTENER("counter", 1, Counter);

}  // namespace

void skip(const std::string& why) {
  ++skipped_cases;
  std::printf("skipped: %s\n", why.c_str());
}

std::string shared(const std::string& path) {
  const char* root = std::getenv("CONVPRIM_SHARED");
  if (root == nullptr) return "";
  const auto full = std::filesystem::path(root) / path;
  return std::filesystem::exists(full) ? full.string() : "";
}

std::string data(const std::string& path) {
  const char* root = std::getenv("CONVPRIM_DATA");
  return (std::filesystem::path(root != nullptr ? root : "data") / path).string();
}

}  // namespace convprim::test

int main(int argc, char** argv) {
  doctest::Context context(argc, argv);
  const int status = context.run();
  using convprim::test::Counter;
  std::printf("%d passed, %d failed, %d skipped\n", Counter::passed - convprim::test::skipped_cases,
              Counter::failed, convprim::test::skipped_cases);
  return status;
}
