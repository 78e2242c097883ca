// Conversion routines against the reference, element by element, and the kernels under them at the
// edge of mapped memory.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "buffer.hpp"
#include "convprim/conversion.hpp"
#include "kernels/kernels.hpp"
#include "reference.hpp"
#include "test.hpp"

using namespace convprim;

namespace {

constexpr float kPoison = -7.25e33F;

std::vector<float> numbered(Index count) {
  std::vector<float> v(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < v.size(); ++i) v[i] = static_cast<float>(i + 1);
  return v;
}

/// True if a conversion of shape s gives exactly what the definition of the layouts says, and
/// touches nothing beyond it.
bool converts(const Conversion& conversion, const Shape& s, const ChannelSlice& slice,
              int threads) {
  const auto image = numbered(s.count());
  Buffer in(static_cast<std::size_t>(element_count(conversion.from, s)));
  to_layout(conversion.from, s, image.data(), in.data());
  Shape whole = s;
  if (slice.sliced()) whole.c = slice.channels;
  constexpr std::size_t kFence = 64;
  const auto count = static_cast<std::size_t>(element_count(conversion.to, whole));
  Buffer out(count + 2 * kFence);
  std::fill_n(out.data(), out.size(), kPoison);
  conversion.run(s, in.data(), out.data() + kFence, slice, threads);

  // What must be there: poison, but for the slice and its padding lanes.
  std::vector<float> want(out.size(), kPoison);
  const Strides at = strides(conversion.to, s, slice);
  for (Index n = 0; n < s.n; ++n)
    for (Index c = 0; c < stored_channels(conversion.to, s.c); ++c)
      for (Index h = 0; h < s.h; ++h)
        for (Index w = 0; w < s.w; ++w)
          want[kFence + static_cast<std::size_t>(at.at(n, c, h, w))] =
              c < s.c ? image[static_cast<std::size_t>(((n * s.c + c) * s.h + h) * s.w + w)] : 0;
  return std::equal(want.begin(), want.end(), out.begin());
}

/// Slices to try for s.c channels in a layout: none, and one that leaves channels on both sides. A
/// ragged slice of a blocked layout must be the last one.
std::vector<ChannelSlice> slices(Layout to, Index c) {
  const Index b = block(to);
  std::vector<ChannelSlice> all = {{}, {2 * b + c, 2 * b}};
  if (c % b == 0) all.push_back({c + 2 * b + (b == 1 ? 3 : 0), b});
  return all;
}

}  // namespace

TEST_CASE("every conversion routine does what the layouts say") {
  for (const Conversion& conversion : conversions()) {
    CAPTURE(conversion.name);
    int threads = 0;
    for (Index n : {1, 2, 3})
      for (Index c : {1, 2, 3, 4, 5, 7, 8, 9, 12, 15, 16, 17, 20, 24, 31, 33, 64, 70})
        for (const auto& [h, w] : std::initializer_list<std::pair<Index, Index>>{{1, 1},
                                                                                 {1, 2},
                                                                                 {2, 1},
                                                                                 {3, 1},
                                                                                 {1, 5},
                                                                                 {2, 3},
                                                                                 {7, 7},
                                                                                 {5, 9},
                                                                                 {13, 13},
                                                                                 {4, 16},
                                                                                 {1, 33},
                                                                                 {21, 1},
                                                                                 {6, 31}})
          for (const ChannelSlice& slice : slices(conversion.to, c)) {
            threads = threads % 3 + 1;
            CAPTURE(n);
            CAPTURE(c);
            CAPTURE(h);
            CAPTURE(w);
            CAPTURE(slice.begin);
            CAPTURE(threads);
            CHECK(converts(conversion, {n, c, h, w}, slice, threads));
          }
  }
}

TEST_CASE("conversions of tensors that several threads share") {
  for (const Conversion& conversion : conversions()) {
    CAPTURE(conversion.name);
    for (const Shape& s :
         {Shape{1, 3, 167, 161}, Shape{1, 64, 33, 35}, Shape{2, 100, 25, 23}, Shape{3, 257, 13, 13},
          Shape{2, 300, 7, 7}, Shape{1, 72, 32, 64}, Shape{1, 1025, 7, 11}, Shape{2, 16, 1, 2100},
          Shape{2, 21, 32, 32}, Shape{1, 21, 2, 1024}})
      for (const ChannelSlice& slice : slices(conversion.to, s.c))
        for (int threads : {1, 2, 3}) {
          CAPTURE(s.c);
          CAPTURE(slice.begin);
          CAPTURE(threads);
          CHECK(converts(conversion, s, slice, threads));
        }
  }
}

TEST_CASE("conversions: names say what they do, and each pair comes once") {
  std::vector<std::pair<Layout, Layout>> pairs;
  for (const Conversion& conversion : conversions()) {
    CHECK(conversion.name ==
          std::string(name(conversion.from)) + "-to-" + std::string(name(conversion.to)));
    CHECK(conversion.from != conversion.to);
    pairs.emplace_back(conversion.from, conversion.to);
  }
  std::sort(pairs.begin(), pairs.end());
  CHECK(std::adjacent_find(pairs.begin(), pairs.end()) == pairs.end());
}

namespace {

/// Floats that end exactly where the mapped memory ends, and begin after an unmapped page: a load
/// or store beyond them is a fault.
class Guarded {
 public:
  explicit Guarded(std::size_t count) : count_(count) {
    const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    inner_ = (count * sizeof(float) + page - 1) / page * page;
    bytes_ = inner_ + 2 * page;
    base_ =
        static_cast<char*>(mmap(nullptr, bytes_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    REQUIRE(base_ != MAP_FAILED);
    REQUIRE(mprotect(base_ + page, inner_, PROT_READ | PROT_WRITE) == 0);
    first_ = base_ + page;
  }
  Guarded(const Guarded&) = delete;
  Guarded& operator=(const Guarded&) = delete;
  ~Guarded() { munmap(base_, bytes_); }
  float* data() { return reinterpret_cast<float*>(first_ + inner_) - count_; }

 private:
  std::size_t count_, inner_ = 0, bytes_ = 0;
  char *base_ = nullptr, *first_ = nullptr;
};

}  // namespace

TEST_CASE("transpose kernels at the end of mapped memory") {
  const auto& k = *kernels::active().transpose;
  for (std::ptrdiff_t rows = 1; rows <= 37; ++rows)
    for (std::ptrdiff_t cols = 1; cols <= 37; ++cols) {
      const std::ptrdiff_t src_ld = cols + rows % 3, dst_ld = rows + cols % 2;
      Guarded src(static_cast<std::size_t>((rows - 1) * src_ld + cols));
      Guarded dst(static_cast<std::size_t>((cols - 1) * dst_ld + rows));
      for (std::ptrdiff_t i = 0; i < (rows - 1) * src_ld + cols; ++i) {
        src.data()[i] = static_cast<float>(i);
      }
      CAPTURE(rows);
      CAPTURE(cols);
      for (const auto kernel : {k.transpose, k.to_planes}) {
        std::fill_n(dst.data(), (cols - 1) * dst_ld + rows, kPoison);
        kernel(rows, cols, src.data(), src_ld, dst.data(), dst_ld);
        bool right = true;
        for (std::ptrdiff_t j = 0; j < cols; ++j)
          for (std::ptrdiff_t i = 0; i < dst_ld && (j + 1 < cols || i < rows); ++i)
            right = right &&
                    dst.data()[j * dst_ld + i] == (i < rows ? src.data()[i * src_ld + j] : kPoison);
        CHECK(right);
      }
    }
}

TEST_CASE("block and row kernels at the end of mapped memory") {
  const auto& k = *kernels::active().transpose;
  for (std::ptrdiff_t b : {8, 16})
    for (std::ptrdiff_t valid = 1; valid <= b; ++valid)
      for (std::ptrdiff_t cols : {1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 23, 40}) {
        CAPTURE(b);
        CAPTURE(valid);
        CAPTURE(cols);
        const std::ptrdiff_t ld = cols + 3;
        const auto plane = static_cast<std::size_t>((valid - 1) * ld + cols);
        Guarded planes(plane), blocks(static_cast<std::size_t>(b * cols)), back(plane);
        for (std::size_t i = 0; i < plane; ++i) planes.data()[i] = static_cast<float>(i);
        k.to_block(b, valid, cols, planes.data(), ld, blocks.data());
        std::fill_n(back.data(), plane, kPoison);
        k.from_block(b, valid, cols, blocks.data(), back.data(), ld);
        bool right = true;
        for (std::ptrdiff_t j = 0; j < cols; ++j)
          for (std::ptrdiff_t i = 0; i < b; ++i)
            right =
                right && blocks.data()[j * b + i] == (i < valid ? planes.data()[i * ld + j] : 0.0F);
        for (std::ptrdiff_t i = 0; i < static_cast<std::ptrdiff_t>(plane); ++i)
          right = right && back.data()[i] == (i % ld < cols ? planes.data()[i] : kPoison);
        CHECK(right);

        // hwc with `valid` channels to a block and back.
        Guarded pixels(static_cast<std::size_t>(valid * cols)),
            again(static_cast<std::size_t>(valid * cols));
        for (std::ptrdiff_t i = 0; i < valid * cols; ++i) {
          pixels.data()[i] = static_cast<float>(i);
        }
        k.copy_lanes(cols, valid, b, pixels.data(), valid, blocks.data(), b);
        k.copy_rows(cols, valid, blocks.data(), b, again.data(), valid);
        right = std::equal(pixels.data(), pixels.data() + valid * cols, again.data());
        for (std::ptrdiff_t j = 0; j < cols; ++j)
          for (std::ptrdiff_t i = valid; i < b; ++i)
            right = right && blocks.data()[j * b + i] == 0.0F;
        CHECK(right);
      }
}

TEST_CASE("copies of planes at the end of mapped memory") {
  const auto& k = *kernels::active().transpose;
  using Count = std::pair<std::ptrdiff_t, std::ptrdiff_t>;
  for (const auto& [planes, rows] : {Count{3, 4}, Count{35, 7}, Count{3, 32}, Count{2, 45}})
    for (std::ptrdiff_t n = 1; n <= 33; ++n)
      for (std::ptrdiff_t gap : {0, 1, 5})
        for (bool swapped : {false, true}) {
          CAPTURE(planes);
          CAPTURE(rows);
          CAPTURE(n);
          CAPTURE(gap);
          CAPTURE(swapped);
          // In the source rows lie one behind the other, or the same row of each plane does.
          const std::ptrdiff_t src_plane = swapped ? n : rows * n,
                               src_ld = swapped ? planes * n : n;
          const std::ptrdiff_t dst_plane = rows * n + gap;
          const auto count = static_cast<std::size_t>(planes * rows * n);
          const auto room = static_cast<std::size_t>((planes - 1) * dst_plane + rows * n);
          Guarded src(count), dst(room);
          for (std::size_t i = 0; i < count; ++i) src.data()[i] = static_cast<float>(i);
          std::fill_n(dst.data(), room, kPoison);
          k.copy_planes(planes, rows, n, src.data(), src_plane, src_ld, dst.data(), dst_plane, n);
          bool right = true;
          for (std::ptrdiff_t p = 0; p < planes; ++p)
            for (std::ptrdiff_t i = 0;
                 i < dst_plane && p * dst_plane + i < static_cast<std::ptrdiff_t>(room); ++i) {
              const float want =
                  i < rows * n ? src.data()[p * src_plane + i / n * src_ld + i % n] : kPoison;
              right = right && dst.data()[p * dst_plane + i] == want;
            }
          CHECK(right);
        }
}

TEST_CASE("two half blocks side by side, and back") {
  const auto& k = *kernels::active().transpose;
  for (std::ptrdiff_t rows : {1, 2, 3, 16, 17})
    for (std::ptrdiff_t gap : {0, 3, 16}) {
      const std::ptrdiff_t ld = 16 + gap;
      Guarded first(static_cast<std::size_t>(rows * 8)), second(static_cast<std::size_t>(rows * 8));
      const std::ptrdiff_t room = (rows - 1) * ld + 16;
      Guarded dst(static_cast<std::size_t>(room));
      for (std::ptrdiff_t i = 0; i < rows * 8; ++i) {
        first.data()[i] = static_cast<float>(i);
        second.data()[i] = static_cast<float>(-i - 1);
      }
      std::fill_n(dst.data(), room, kPoison);
      k.join_halves(rows, first.data(), second.data(), dst.data(), ld);
      bool right = true;
      for (std::ptrdiff_t i = 0; i < room; ++i) {
        const std::ptrdiff_t row = i / ld, j = i % ld;
        const float want = j < 8    ? first.data()[row * 8 + j]
                           : j < 16 ? second.data()[row * 8 + j - 8]
                                    : kPoison;
        right = right && dst.data()[i] == want;
      }
      CHECK(right);
      Guarded low(static_cast<std::size_t>(rows * 8)), high(static_cast<std::size_t>(rows * 8));
      k.split_halves(rows, dst.data(), ld, low.data(), high.data());
      CHECK(std::equal(low.data(), low.data() + rows * 8, first.data()));
      CHECK(std::equal(high.data(), high.data() + rows * 8, second.data()));
    }
}
