// Spectra of a convolution's filters, packed for the products, and the products themselves: what
// all FFT convolutions share.
#pragma once

#include <span>
#include <vector>

#include "buffer.hpp"
#include "convprim/scenario.hpp"

namespace convprim {

/// Where the channels of spectra lie. Frequency and position strides of the two operands are the
/// caller's; a position's channels are contiguous, its planes (re, im, and re + im in Gauss's form)
/// follow one another. Input channels are stored as they come, output channels in whole vectors for
/// each group.
class SpectralFilter {
 public:
  /// Outputs that are multiplied at a time: `vectors` vectors from output vector `vector` on.
  struct Panel {
    Index group, vector, vectors;
  };
  /// One operand's strides in floats.
  struct Strides {
    Index frequency, position;
  };

  /// The transform whose frequencies the filter has.
  struct Transform {
    Index height, width;
    /// [width / 2 + 1][height]: which frequency it is, negative for those that symmetry gives.
    std::vector<Index> order;
  };
  /// A row or column of the kernel and its place on the transform's grid.
  struct Tap {
    Index index, place;
  };
  /// Taps whose spectra are those of one run of input channels.
  struct Part {
    Index tap;    ///< which of the pair's spectra
    Index begin;  ///< of the run, in a group's input channels; as long as the scenario's group
    std::vector<Tap> rows, cols;
  };

  /// Spectra without values, see fill(). `taps` spectra belong to each pair of channels.
  SpectralFilter(const Scenario& s, Index frequencies, Index taps, bool gauss);

  /// Floats that the spectra would take.
  static Index floats(const Scenario& s, Index frequencies, Index taps, bool gauss);
  /// Vectors that hold the output channels of one group.
  static Index group_vectors(const Scenario& s);

  /// Computes the spectra of a scenario's filters, over the number of the transform's points. The
  /// parts must cover all channels. They are the conjugate ones, since kernels slide without being
  /// flipped, and are summed as they are defined: with few taps that is less work than a fast
  /// transform of zeros, and a panel's spectra come out as they are stored.
  void fill(const Scenario& s, const float* filter, const Transform& transform,
            std::span<const Part> parts, int threads);

  /// y = sum over taps and channels of filter * x for all outputs of a panel. x and y point to
  /// position 0 of frequency 0; x_tap is the distance between the positions of two taps.
  void multiply(Index frequency, const Panel& panel, Index positions, const float* x,
                const Strides& x_at, Index x_tap, float* y, const Strides& y_at) const;

  std::span<const Panel> panels() const { return panels_; }
  std::size_t bytes() const { return packed_.bytes(); }
  Index x_plane() const { return x_plane_; }  ///< floats of one plane of input channels
  Index y_plane() const { return y_plane_; }  ///< floats of one plane of output channels

 private:
  class Filler;

  Index at(Index frequency, const Panel& panel) const;

  Index lanes_, taps_, channels_, planes_, x_plane_, y_plane_;
  std::vector<Panel> panels_;
  Buffer packed_;  // [frequency][panel][tap][channel][plane][vectors * lanes]
};

}  // namespace convprim
