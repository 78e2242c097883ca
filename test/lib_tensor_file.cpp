// Tensors in files: npy there and back, and every way in which a file can be wrong.
#include <cstring>
#include <numeric>
#include <random>
#include <vector>

#include "convprim/error.hpp"
#include "convprim/tensor_file.hpp"
#include "files.hpp"
#include "test.hpp"

using namespace convprim;
using convprim::test::slurp;
using convprim::test::TemporaryFolder;

namespace {

std::vector<float> ramp(std::size_t count) {
  std::vector<float> values(count);
  std::iota(values.begin(), values.end(), -3.5F);
  return values;
}

std::string raw(const std::vector<float>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)};
}

/// An npy file with that dictionary, of format 1.0 or another.
std::string npy(const std::string& dictionary, const std::string& data, char version = 1) {
  std::string bytes = "\x93NUMPY";
  bytes += {version, '\0'};
  for (int i = 0; i < (version == 1 ? 2 : 4); ++i)
    bytes += static_cast<char>(dictionary.size() >> (8 * i) & 0xff);
  return bytes + dictionary + data;
}

std::string refusal(const std::string& path, const Shape& shape) {
  try {
    read_tensor(path, shape);
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

}  // namespace

TEST_CASE("npy files there and back, of any rank") {
  const TemporaryFolder folder;
  const std::vector<std::vector<Index>> shapes = {{2, 3, 4, 5}, {7}, {}, {1, 2}, {3, 1, 1, 1, 2}};
  for (const auto& dims : shapes) {
    const auto count = std::accumulate(dims.begin(), dims.end(), Index{1}, std::multiplies<>());
    const auto values = ramp(static_cast<std::size_t>(count));
    write_npy(folder.file("a.npy"), dims, values.data());
    const FileTensor back = read_npy(folder.file("a.npy"));
    CHECK(back.dims == dims);
    CHECK(back.values == values);
    // The values are aligned, and the header ends with a line end, as the format asks.
    const std::string bytes = slurp(folder.file("a.npy"));
    CHECK((bytes.size() - raw(values).size()) % 64 == 0);
    CHECK(bytes[bytes.size() - raw(values).size() - 1] == '\n');
  }
}

TEST_CASE("headers as other writers have them") {
  const TemporaryFolder folder;
  const auto values = ramp(6);
  const auto path = folder.write(
      "a.npy",
      npy("{\"shape\": (2L, 3L), \"fortran_order\": False, \"descr\": \"<f4\"}\n", raw(values), 2));
  CHECK(read_npy(path).dims == std::vector<Index>{2, 3});
  CHECK(read_npy(path).values == values);
}

TEST_CASE("extents of 1 may be left out or added; other shapes are refused with both shapes") {
  const TemporaryFolder folder;
  const auto values = ramp(24);
  const auto path = folder.file("a.npy");
  for (const std::vector<Index>& dims :
       {std::vector<Index>{2, 3, 4}, {1, 2, 3, 4}, {2, 3, 4, 1}, {1, 1, 2, 3, 4}}) {
    write_npy(path, dims, values.data());
    CHECK(read_tensor(path, {1, 2, 3, 4}) == values);
  }
  write_npy(path, std::vector<Index>{3, 4, 2}, values.data());
  CHECK(refusal(path, {1, 2, 3, 4}).find("(3, 4, 2)") != std::string::npos);
  CHECK(refusal(path, {1, 2, 3, 4}).find("(1, 2, 3, 4)") != std::string::npos);
}

TEST_CASE("raw files hold exactly the values of the shape") {
  const TemporaryFolder folder;
  const auto values = ramp(24);
  CHECK(read_tensor(folder.write("a.bin", raw(values)), {1, 2, 3, 4}) == values);
  CHECK(refusal(folder.write("b.bin", raw(values) + "x"), {1, 2, 3, 4}).find("more") !=
        std::string::npos);
  const auto why = refusal(folder.write("c.bin", raw(values).substr(0, 90)), {1, 2, 3, 4});
  CHECK(why.find("90 bytes") != std::string::npos);
  CHECK(why.find("96") != std::string::npos);
}

TEST_CASE("a file that is not what it should be is refused with the reason") {
  const TemporaryFolder folder;
  const Shape shape{1, 2, 3, 1};
  const std::string data = raw(ramp(6));
  const std::string good = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }";
  const auto why = [&](const std::string& bytes) {
    const std::string text = refusal(folder.write("a.npy", bytes), shape);
    CHECK(text.find("a.npy") != std::string::npos);
    return text;
  };
  const auto has = [](const std::string& text, const std::string& word) {
    CAPTURE(text);
    CAPTURE(word);
    CHECK(text.find(word) != std::string::npos);
  };
  CHECK(refusal(folder.write("a.npy", npy(good, data)), shape).empty());
  has(why(""), "no npy file");
  has(why("not numpy at all"), "no npy file");
  has(why(std::string("\x93NUMPY\x09\0\0\0", 10)), "version 9");
  has(why(npy(good, data).substr(0, 30)), "ends within");
  has(why(npy("{'descr': '<f8', 'fortran_order': False, 'shape': (2, 3), }", data)), "<f8");
  has(why(npy("{'descr': '>f4', 'fortran_order': False, 'shape': (2, 3), }", data)), ">f4");
  has(why(npy("{'descr': '<f4', 'fortran_order': True, 'shape': (2, 3), }", data)), "Fortran");
  has(why(npy(good, data.substr(0, 20))), "ends after 20 bytes");
  has(why(npy(good, data + data)), "more");
  has(why(npy("{'descr': '<f4', 'shape': (2, 3)}", data)), "dictionary");
  has(why(npy("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (6,)}", data)),
      "dictionary");
  has(why(npy("{'descr': '<f4', 'fortran_order': False, 'shape': (-2, 3)}", data)), "dictionary");
  has(why(npy("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3", data)), "dictionary");
  has(refusal(folder.file("missing.npy"), shape), "missing.npy");
  has(refusal(folder.path.string(), shape), "folder");
  // Sizes that no memory holds, or that overflow, are no reason to ask for memory.
  const std::string huge = "{'descr': '<f4', 'fortran_order': False, 'shape': ";
  for (const char* dims : {"(1000000000000, 1000000000000)", "(4294967296, 4294967296, 0, 7)",
                           "(99999999999999999999,)", "(500000000000,)"}) {
    folder.write("a.npy", npy(huge + dims + "}", data));
    CHECK_THROWS_AS(read_npy(folder.file("a.npy")), Error);
  }
  folder.write("a.npy", npy("{", std::string(3, '\xff'), 2).replace(8, 4, 4, '\xff'));
  CHECK_THROWS_AS(read_npy(folder.file("a.npy")), Error);
}

TEST_CASE("whatever the bytes, a value or an Error") {
  const TemporaryFolder folder;
  const std::string good =
      npy("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }", raw(ramp(6)));
  std::mt19937 rng(7);
  for (int i = 0; i < 500; ++i) {
    std::string bytes = good;
    for (unsigned k = 0; k <= rng() % 3; ++k) bytes[rng() % 70] = static_cast<char>(rng());
    if (rng() % 4 == 0) bytes.resize(rng() % bytes.size());
    folder.write("a.npy", bytes);
    try {
      const FileTensor t = read_npy(folder.file("a.npy"));
      CHECK(static_cast<Index>(t.values.size()) ==
            std::accumulate(t.dims.begin(), t.dims.end(), Index{1}, std::multiplies<>()));
    } catch (const Error&) {
      continue;
    }
  }
}

TEST_CASE("a file that cannot be written is an Error and leaves nothing") {
  const TemporaryFolder folder;
  const auto values = ramp(1);
  CHECK_THROWS_AS(write_npy(folder.file("no/a.npy"), {}, values.data()), Error);
  CHECK_FALSE(std::filesystem::exists(folder.file("no")));
}

TEST_CASE("file names from tensor names") {
  CHECK(safe_file_name("conv1/relu:0") == "conv1_relu_0");
  CHECK(safe_file_name("../../etc/passwd") == "_.._.._etc_passwd");
  CHECK(safe_file_name("") == "_");
  CHECK(safe_file_name("-rf") == "_-rf");
  CHECK(safe_file_name("caf\xc3\xa9") == "caf__");
  CHECK(safe_file_name(std::string(1000, 'x')).size() == 100);
}

TEST_CASE("files of tensors of one name do not meet") {
  CHECK(npy_file_names({"a/b", "a_b", "c", "a:b", "a_b_2"}) ==
        std::vector<std::string>{"a_b.npy", "a_b_2.npy", "c.npy", "a_b_3.npy", "a_b_2_2.npy"});
}
