// The matrices of Winograd's minimal filtering F(m, r): m outputs of an r-tap correlation from
// t = m + r - 1 products,
//
//   y = A^T [(G g) * (B^T d)],
//
// by Toom and Cook's interpolation at t - 1 points a_j and infinity (Lavin and Gray, arXiv
// 1509.09308; Barabasz et al., arXiv 1803.10986). With N_j = prod over l != j of (a_j - a_l):
//
//   A^T[i][j] = a_j^i                   last column: 1 in its last row, else 0
//   G[j][k]   = a_j^k / N_j             last row:    1 in its last column, else 0
//   B^T[j]    = coefficients of prod over l != j of (x - a_l); last row: of the whole product
//
// Computed by the compiler: nothing here exists at run time, so that kernel files may include it.
#pragma once

namespace convprim::kernels {

inline constexpr int kMaxWinogradTile = 10;  ///< largest t

/// Finite points of a transform of t values: zero, then pairs (a, -a), which let B^T and A^T share
/// their even and odd halves, then for odd t one without a partner.
struct WinogradPoints {
  double at[kMaxWinogradTile - 1];
  int pairs;      ///< points 1 and 2, 3 and 4, ...
  bool unpaired;  ///< the last one
};

/// Points with short mantissas, chosen for the rounding error of a two-dimensional convolution of
/// normal random data: the best of all sets with values among 25 simple fractions and roots. For
/// t = 6 they halve the error of the usual 0, +-1, +-2.
consteval WinogradPoints winograd_points(int m, int r) {
  switch (m + r - 1) {
    case 1:
      return {{}, 0, false};
    case 4:
      return {{0, 1, -1}, 1, false};
    case 5:
      return {{0, 0.625, -0.625, 1.75}, 1, true};
    case 6:
      return {{0, 0.625, -0.625, 1.5, -1.5}, 2, false};
    case 7:
      return {{0, 0.875, -0.875, 1.75, -1.75, 0.375}, 2, true};
    case 10:
      return {{0, 0.375, -0.375, 0.75, -0.75, 1.25, -1.25, 2.5, -2.5}, 4, false};
    default:
      if (r == 3) return {{0, 0.5, -0.5, 1, -1, 1.75, -1.75}, 3, false};
      return {{0, 0.5, -0.5, 1, -1, 2, -2}, 3, false};
  }
}

/// F(m, r); t is 1 (no transform), 4 to 8 or 10.
template <int M, int R>
struct WinogradMatrices {
  static constexpr int kM = M, kR = R, kT = M + R - 1;
  static constexpr WinogradPoints kPoints = winograd_points(M, R);
  double at[M][kT];
  double g[kT][R];
  double bt[kT][kT];

  consteval WinogradMatrices() : at(), g(), bt() {
    for (int j = 0; j < kT - 1; ++j) {
      const double a = kPoints.at[j];
      double norm = 1, power = 1;
      for (int l = 0; l < kT - 1; ++l) norm *= l == j ? 1 : a - kPoints.at[l];
      for (int i = 0; i < M; ++i, power *= a) at[i][j] = power;
      power = 1;
      for (int k = 0; k < R; ++k, power *= a) g[j][k] = power / norm;
      expand(j);
    }
    at[M - 1][kT - 1] = 1;
    g[kT - 1][R - 1] = 1;
    expand(kT - 1);
  }

 private:
  /// Row j of B^T: the product of (x - a_l) over all points but j.
  consteval void expand(int j) {
    bt[j][0] = 1;
    int degree = 0;
    for (int l = 0; l < kT - 1; ++l) {
      if (l == j) continue;
      ++degree;
      for (int i = degree; i >= 0; --i) {
        bt[j][i] = (i > 0 ? bt[j][i - 1] : 0) - kPoints.at[l] * bt[j][i];
      }
    }
  }
};

}  // namespace convprim::kernels
