// The checker. It trusts nothing in a certificate: every line is an instruction whose precondition
// is tested before its effect is applied to the checker's own copy of the problem. It is written to
// be read, and apart from class Problem it shares no code with the solver, arithmetic included.
// README.md specifies the language.
#include "pbqp/check.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <map>
#include <set>
#include <utility>

namespace pbqp {
namespace {

// ---- Exact integers
// ------------------------------------------------------------------------------

__extension__ typedef __int128 Int128;

// Two's complement in 32-bit limbs: wide enough for any sum of finite doubles.
struct Big {
  static constexpr int kLimbs = 74;
  std::array<std::uint32_t, kLimbs> limb{};

  Big() = default;
  explicit Big(std::int64_t x) {
    limb.fill(x < 0 ? 0xffffffffu : 0u);
    limb[0] = static_cast<std::uint32_t>(x);
    limb[1] = static_cast<std::uint32_t>(static_cast<std::uint64_t>(x) >> 32);
  }
  bool negative() const { return (limb[kLimbs - 1] >> 31) != 0; }
  Big operator-() const {
    Big r;
    std::uint64_t carry = 1;
    for (int i = 0; i < kLimbs; ++i) {
      carry += static_cast<std::uint32_t>(~limb[i]);
      r.limb[i] = static_cast<std::uint32_t>(carry);
      carry >>= 32;
    }
    return r;
  }
  Big operator+(const Big& o) const {
    Big r;
    std::uint64_t carry = 0;
    for (int i = 0; i < kLimbs; ++i) {
      carry += std::uint64_t{limb[i]} + o.limb[i];
      r.limb[i] = static_cast<std::uint32_t>(carry);
      carry >>= 32;
    }
    return r;
  }
  Big operator-(const Big& o) const { return *this + -o; }
  bool operator==(const Big& o) const { return limb == o.limb; }
  bool operator<(const Big& o) const {
    if (negative() != o.negative()) return negative();
    for (int i = kLimbs - 1; i >= 0; --i) {
      if (limb[i] != o.limb[i]) return limb[i] < o.limb[i];
    }
    return false;
  }
};

Big doubled(const Big& x) { return x + x; }
std::int64_t doubled(std::int64_t x) { return x * 2; }
Int128 doubled(Int128 x) { return x * 2; }

template <class T>
constexpr int bits_of() {
  if constexpr (std::is_same_v<T, Big>) return 32 * Big::kLimbs;
  return 8 * static_cast<int>(sizeof(T));
}

template <class T>
T times_power_of_two(T x, int n) {
  if constexpr (std::is_same_v<T, Big>) {
    for (int i = 0; i < n; ++i) x = doubled(x);
    return x;
  } else {
    return x * (T(1) << n);
  }
}

template <class T>
T power_of_two(int n) {
  return times_power_of_two(T(1), n);
}

template <class T>
double as_double(T x) {
  // Round to nearest, ties to even, by hand: collect the leading 54 bits and whether more follow.
  const bool negative = x < T(0);
  if (negative) x = T(0) - x;
  std::vector<T> powers{T(1)};
  while (!(x < powers.back()) && static_cast<int>(powers.size()) < bits_of<T>() - 1) {
    powers.push_back(doubled(powers.back()));
  }
  std::uint64_t head = 0;
  int dropped = 0;
  bool sticky = false;
  for (std::size_t i = powers.size(); i-- > 0;) {
    const bool bit = !(x < powers[i]);
    if (bit) x = x - powers[i];
    if ((head >> 60) != 0) {
      ++dropped;
      sticky = sticky || bit;
    } else {
      head = head << 1 | (bit ? 1 : 0);
    }
  }
  if (sticky) head |= 1;
  const double d = std::ldexp(static_cast<double>(head), dropped);
  return negative ? -d : d;
}

// An integer or plus infinity.
template <class T>
struct Cost {
  T value{};
  bool infinite = false;

  static Cost infinity() { return {T(0), true}; }
  Cost operator+(const Cost& o) const {
    if (infinite || o.infinite) return infinity();
    return {value + o.value, false};
  }
  bool operator<(const Cost& o) const {
    if (infinite || o.infinite) return !infinite && o.infinite;
    return value < o.value;
  }
  bool operator==(const Cost& o) const {
    return infinite == o.infinite && (infinite || value == o.value);
  }
};

struct Rejected {
  std::string message;
};

[[noreturn]] void reject(std::string message) { throw Rejected{std::move(message)}; }

void require(bool condition, const char* message) {
  if (!condition) reject(message);
}

// ---- Reading
// -------------------------------------------------------------------------------------

class Lines {
 public:
  explicit Lines(std::string_view text) : text_(text) {}
  /// The words of the next line; false at the end.
  bool next(std::vector<std::string_view>& words) {
    words.clear();
    if (at_ >= text_.size()) return false;
    ++number_;
    std::size_t end = text_.find('\n', at_);
    if (end == std::string_view::npos) end = text_.size();
    const std::string_view line = text_.substr(at_, end - at_);
    at_ = end + 1;
    for (std::size_t i = 0; i <= line.size();) {
      std::size_t j = line.find(' ', i);
      if (j == std::string_view::npos) j = line.size();
      words.push_back(line.substr(i, j - i));
      i = j + 1;
    }
    return true;
  }
  std::size_t number() const { return number_; }

 private:
  std::string_view text_;
  std::size_t at_ = 0;
  std::size_t number_ = 0;
};

std::size_t number(std::string_view word, std::size_t below, const char* what) {
  std::size_t x = 0;
  const auto r = std::from_chars(word.data(), word.data() + word.size(), x);
  if (r.ec != std::errc() || r.ptr != word.data() + word.size() || x >= below) {
    std::string message = "\"";
    message += word.substr(0, 40);
    message += "\" is no ";
    message += what;
    reject(message);
  }
  return x;
}

template <class T>
T integer(std::string_view word) {
  const bool negative = !word.empty() && word[0] == '-';
  if (negative) word.remove_prefix(1);
  require(!word.empty() && word.size() < 700, "an integer is missing or too long");
  const T limit = power_of_two<T>(bits_of<T>() - 8);
  T x(0);
  for (const char c : word) {
    require(c >= '0' && c <= '9', "an integer has a character that is no digit");
    const T twice = doubled(x);
    x = doubled(doubled(twice)) + twice + T(c - '0');
    require(x < limit, "an integer is too large for the costs of this problem");
  }
  return negative ? T(0) - x : x;
}

// ---- The proof
// -----------------------------------------------------------------------------------

struct Header {
  int exponent = 0;
  Status status = Status::kLimit;
  std::string_view upper;
  std::string_view lower;
};

template <class T>
class Checker {
 public:
  Checker(const Problem& problem, Lines& lines) : problem_(problem), lines_(lines) {}

  void run(const Header& header, CheckReport& report);

 private:
  using C = Cost<T>;
  struct Function {
    std::vector<std::size_t> scope;    // parts, ascending
    std::vector<C> table;              // row-major
    std::vector<std::size_t> sources;  // problem edges not yet added to the table
    bool from_node = false;            // joins the two parts of a node, not yet in the table
  };

  C convert(double x) const;
  C node_cost(std::size_t v, std::size_t i) const;
  void read_parts(std::vector<std::string_view>& words);
  void build();
  bool blind(const Edge& e, bool rows, const std::vector<std::uint32_t>& map) const;
  void fill(Function& f);
  std::set<std::size_t> neighbours(std::size_t p) const;
  Function& between(std::size_t p, std::size_t q);
  void forget(std::size_t f);
  void eliminate(std::size_t p);
  void drop(std::size_t p, std::size_t q);
  void block(const std::vector<std::string_view>& words);
  void tree(std::size_t held, const C& target);
  C tree_bound();
  C forced_bound(std::size_t member, std::size_t option);
  std::size_t part(std::string_view w) const {
    const std::size_t p = number(w, cost_.size(), "part");
    require(alive_[p], "the part has been removed already");
    return p;
  }
  void guard(const T& x) const {
    require(x < limit_ && T(0) - x < limit_, "a value grew beyond the range of exact arithmetic");
  }

  const Problem& problem_;
  Lines& lines_;
  int exponent_ = 0;
  T limit_{};
  T beyond_{};  // more than any finite assignment of any part of the problem can cost
  C constant_;
  // Per part: its node, the class of each option (an index into maps_), the costs of its classes.
  std::map<std::size_t, std::vector<std::uint32_t>> maps_;
  std::vector<std::size_t> node_of_;
  std::vector<const std::vector<std::uint32_t>*> map_of_;
  std::vector<std::size_t> first_part_;
  std::vector<std::vector<C>> cost_;
  std::vector<bool> alive_;
  std::vector<Function> functions_;
  std::vector<std::vector<std::size_t>> functions_of_;  // per part
  std::vector<std::vector<std::size_t>> loops_;         // per node

  // The block whose tree is being checked. Its parts and edges are numbered from 0.
  struct Side {
    std::size_t member;
    std::vector<T> taken;  // per option: taken from the edge, given to the part
  };
  struct Link {
    std::size_t f;
    Side side[2];  // rows, columns
    C least;       // of what is left over living pairs
    bool stale;
  };
  struct Member {
    std::vector<bool> live;
    std::vector<C> theta;  // costs with all that was given
    C least;               // over living options
    bool stale;
  };
  struct Tree {
    std::vector<Member> members;
    std::vector<Link> links;
  };
  Tree tree_;
  std::vector<std::size_t> members_;                                    // parts
  std::vector<std::vector<std::size_t>> links_of_;                      // per member
  std::map<std::size_t, std::size_t> member_of_;                        // of a part
  std::map<std::pair<std::size_t, std::size_t>, std::size_t> link_of_;  // of two members

  void refresh();
  C link_least(const Link& link, std::size_t member, std::size_t option) const;
  void disturb(std::size_t member) {
    tree_.members[member].stale = true;
    for (const std::size_t l : links_of_[member]) tree_.links[l].stale = true;
  }
};

template <class T>
typename Checker<T>::C Checker<T>::convert(double x) const {
  if (x == kInfinity) return C::infinity();
  if (x == 0) return {T(0), false};
  int e = 0;
  auto m = static_cast<std::int64_t>(std::ldexp(std::frexp(x, &e), 53));  // x = m * 2^(e-53)
  int shift = e - 53 - exponent_;
  while (shift < 0 && m % 2 == 0) m /= 2, ++shift;
  require(shift >= 0, "a cost is no multiple of the unit");
  return {times_power_of_two(T(m), shift), false};
}

template <class T>
typename Checker<T>::C Checker<T>::node_cost(std::size_t v, std::size_t i) const {
  C c = convert(problem_.costs(v)[i]);
  for (const std::size_t e : loops_[v]) c = c + convert(problem_.edge(e).cost(i, i));
  return c;
}

// True if the edge costs the same for all options of a class.
template <class T>
bool Checker<T>::blind(const Edge& e, bool rows, const std::vector<std::uint32_t>& map) const {
  const auto& classes = rows ? e.row_class : e.col_class;
  const Matrix& m = e.matrix;
  std::map<std::uint32_t, std::size_t> first;
  std::set<std::pair<std::size_t, std::size_t>> known;
  for (std::size_t i = 0; i < map.size(); ++i) {
    const std::size_t a = classes ? (*classes)[i] : i;
    const auto [it, fresh] = first.try_emplace(map[i], a);
    const std::size_t b = it->second;
    if (fresh || a == b || !known.insert({a, b}).second) continue;
    const std::size_t count = rows ? m.cols : m.rows;
    for (std::size_t j = 0; j < count; ++j) {
      if (rows ? m(a, j) != m(b, j) : m(j, a) != m(j, b)) return false;
    }
  }
  return true;
}

template <class T>
void Checker<T>::read_parts(std::vector<std::string_view>& words) {
  first_part_.push_back(0);
  while (true) {
    require(lines_.next(words), "the certificate ends before its proof");
    if (words[0] == "proof") break;
    if (words[0] == "map") {
      require(words.size() >= 3, "a map needs a number and classes");
      std::vector<std::uint32_t> map;
      std::uint32_t classes = 0;
      for (std::size_t i = 2; i < words.size(); ++i) {
        const std::size_t c =
            number(words[i], classes + std::size_t{1}, "class in first-seen order");
        if (c == classes) ++classes;
        map.push_back(static_cast<std::uint32_t>(c));
      }
      const bool fresh =
          maps_.emplace(number(words[1], ~std::size_t{0}, "map number"), std::move(map)).second;
      require(fresh, "a map is defined twice");
      continue;
    }
    require(words[0] == "part" && words.size() == 3, "expected a map, a part or the proof");
    const std::size_t v = number(words[1], problem_.node_count(), "node");
    const auto map = maps_.find(number(words[2], ~std::size_t{0}, "map number"));
    require(map != maps_.end(), "the part names a map that is not defined");
    require(map->second.size() == problem_.option_count(v),
            "the map has not one class per option of the node");
    const std::size_t node = first_part_.size() - 1;  // the node whose parts are being read
    if (v == node) {
      first_part_.push_back(node_of_.size());
    } else {
      require(v + 1 == node && node_of_.size() - first_part_[node] < 2,
              "parts are not in the order of the nodes, one or two for each");
    }
    node_of_.push_back(v);
    map_of_.push_back(&map->second);
  }
  require(first_part_.size() == problem_.node_count() + 1, "a node has no part");
  first_part_.erase(first_part_.begin());
  first_part_.push_back(node_of_.size());
}

template <class T>
void Checker<T>::build() {
  const std::size_t n = node_of_.size();
  loops_.resize(problem_.node_count());
  cost_.resize(n);
  functions_of_.resize(n);
  alive_.assign(n, true);
  T sum(0);
  const auto account = [&](const std::vector<double>& costs) {
    double largest = 0;
    for (const double x : costs) {
      if (x != kInfinity) largest = std::max(largest, std::abs(x));
    }
    sum = sum + convert(largest).value;
    guard(doubled(doubled(sum)));
  };
  for (std::size_t e = 0; e < problem_.edge_count(); ++e) {
    if (problem_.edge(e).u == problem_.edge(e).v) loops_[problem_.edge(e).u].push_back(e);
    account(problem_.edge(e).matrix.data);
  }
  for (std::size_t v = 0; v < problem_.node_count(); ++v) {
    account(problem_.costs(v));
    const std::size_t p = first_part_[v];
    const auto classes = [&](std::size_t q) {
      return *std::max_element(map_of_[q]->begin(), map_of_[q]->end()) + std::size_t{1};
    };
    if (first_part_[v + 1] == p + 1) {
      cost_[p].assign(classes(p), C::infinity());
      for (std::size_t i = 0; i < problem_.option_count(v); ++i) {
        C& c = cost_[p][(*map_of_[p])[i]];
        c = std::min(c, node_cost(v, i));
      }
    } else {
      cost_[p].assign(classes(p), C{});
      cost_[p + 1].assign(classes(p + 1), C{});
      Function f;
      f.scope = {p, p + 1};
      f.from_node = true;
      functions_of_[p].push_back(functions_.size());
      functions_of_[p + 1].push_back(functions_.size());
      functions_.push_back(std::move(f));
    }
  }
  beyond_ = doubled(sum) + T(1);

  std::map<std::pair<std::size_t, std::size_t>, std::size_t> joined;
  for (std::size_t i = 0; i < problem_.edge_count(); ++i) {
    const Edge& e = problem_.edge(i);
    if (e.u == e.v) continue;
    const auto end = [&](std::size_t v, bool rows) {
      for (std::size_t p = first_part_[v]; p < first_part_[v + 1]; ++p) {
        if (blind(e, rows, *map_of_[p])) return p;
      }
      reject("an edge tells options apart that no part of " + problem_.describe(v) +
             " tells apart");
    };
    const std::size_t p = end(e.u, true);
    const std::size_t q = end(e.v, false);
    const auto [it, fresh] =
        joined.try_emplace({std::min(p, q), std::max(p, q)}, functions_.size());
    if (fresh) {
      Function f;
      f.scope = {std::min(p, q), std::max(p, q)};
      functions_of_[p].push_back(functions_.size());
      functions_of_[q].push_back(functions_.size());
      functions_.push_back(std::move(f));
    }
    functions_[it->second].sources.push_back(i);
  }
}

template <class T>
void Checker<T>::fill(Function& f) {
  if (f.sources.empty() && !f.from_node) return;
  const std::size_t p = f.scope[0];
  const std::size_t q = f.scope[1];
  const std::size_t cols = cost_[q].size();
  const auto& mp = *map_of_[p];
  const auto& mq = *map_of_[q];
  if (f.from_node) {
    f.table.assign(cost_[p].size() * cols, C::infinity());
    for (std::size_t i = 0; i < mp.size(); ++i) {
      C& c = f.table[mp[i] * cols + mq[i]];
      c = std::min(c, node_cost(node_of_[p], i));
    }
  } else {
    f.table.assign(cost_[p].size() * cols, C{});
    std::vector<std::size_t> first_p(cost_[p].size(), ~std::size_t{0});
    std::vector<std::size_t> first_q(cols, ~std::size_t{0});
    for (std::size_t i = mp.size(); i-- > 0;) first_p[mp[i]] = i;
    for (std::size_t j = mq.size(); j-- > 0;) first_q[mq[j]] = j;
    for (const std::size_t id : f.sources) {
      const Edge& e = problem_.edge(id);
      for (std::size_t a = 0; a < cost_[p].size(); ++a) {
        for (std::size_t b = 0; b < cols; ++b) {
          const double x =
              e.u == node_of_[p] ? e.cost(first_p[a], first_q[b]) : e.cost(first_q[b], first_p[a]);
          f.table[a * cols + b] = f.table[a * cols + b] + convert(x);
        }
      }
    }
  }
  f.sources.clear();
  f.from_node = false;
}

template <class T>
std::set<std::size_t> Checker<T>::neighbours(std::size_t p) const {
  std::set<std::size_t> r;
  for (const std::size_t f : functions_of_[p]) {
    for (const std::size_t q : functions_[f].scope) {
      if (q != p) r.insert(q);
    }
  }
  return r;
}

template <class T>
void Checker<T>::forget(std::size_t f) {
  for (const std::size_t q : functions_[f].scope) std::erase(functions_of_[q], f);
  functions_[f] = Function{};
}

// Replaces a part and its functions by one function of its neighbours.
template <class T>
void Checker<T>::eliminate(std::size_t p) {
  const std::set<std::size_t> near = neighbours(p);
  std::vector<std::size_t> scope(near.begin(), near.end());
  double entries = 1;
  for (const std::size_t q : scope) entries *= static_cast<double>(cost_[q].size());
  require(entries < 4e8, "an elimination needs too large a table");
  std::vector<std::size_t> functions = functions_of_[p];
  for (const std::size_t f : functions) fill(functions_[f]);

  // Strides of each function along the new scope and along p.
  std::vector<std::vector<std::size_t>> stride(functions.size(),
                                               std::vector<std::size_t>(scope.size(), 0));
  std::vector<std::size_t> along(functions.size(), 0);
  for (std::size_t f = 0; f < functions.size(); ++f) {
    const auto& s = functions_[functions[f]].scope;
    std::size_t step = 1;
    for (std::size_t k = s.size(); k-- > 0;) {
      if (s[k] == p) {
        along[f] = step;
      } else {
        const auto at = std::find(scope.begin(), scope.end(), s[k]) - scope.begin();
        stride[f][static_cast<std::size_t>(at)] = step;
      }
      step *= cost_[s[k]].size();
    }
  }
  std::vector<C> result(static_cast<std::size_t>(entries));
  std::vector<std::size_t> digit(scope.size(), 0);
  std::vector<std::size_t> at(functions.size());
  for (C& out : result) {
    for (std::size_t f = 0; f < functions.size(); ++f) {
      at[f] = 0;
      for (std::size_t d = 0; d < scope.size(); ++d) at[f] += digit[d] * stride[f][d];
    }
    out = C::infinity();
    for (std::size_t k = 0; k < cost_[p].size(); ++k) {
      C sum = cost_[p][k];
      for (std::size_t f = 0; f < functions.size() && !sum.infinite; ++f) {
        sum = sum + functions_[functions[f]].table[at[f] + k * along[f]];
      }
      if (sum < out) out = sum;
    }
    for (std::size_t d = scope.size(); d-- > 0;) {
      if (++digit[d] < cost_[scope[d]].size()) break;
      digit[d] = 0;
    }
  }
  for (const std::size_t f : functions) forget(f);
  alive_[p] = false;
  if (scope.empty()) {
    constant_ = constant_ + result[0];
  } else if (scope.size() == 1) {
    auto& target = cost_[scope[0]];
    for (std::size_t i = 0; i < target.size(); ++i) target[i] = target[i] + result[i];
  } else {
    if (scope.size() == 2) {
      for (const std::size_t id : functions_of_[scope[0]]) {
        Function& f = functions_[id];
        if (f.scope != scope) continue;
        fill(f);
        for (std::size_t i = 0; i < result.size(); ++i) f.table[i] = f.table[i] + result[i];
        return;
      }
    }
    for (const std::size_t q : scope) functions_of_[q].push_back(functions_.size());
    functions_.push_back({scope, std::move(result), {}, false});
  }
}

template <class T>
typename Checker<T>::Function& Checker<T>::between(std::size_t p, std::size_t q) {
  Function* found = nullptr;
  for (const std::size_t id : functions_of_[p]) {
    Function& f = functions_[id];
    if (std::find(f.scope.begin(), f.scope.end(), q) == f.scope.end()) continue;
    require(f.scope.size() == 2 && found == nullptr, "the two parts share more than one edge");
    found = &f;
  }
  require(found != nullptr, "there is no edge between the two parts");
  fill(*found);
  return *found;
}

// M[a][b] = least + f[a] + g[b] where f and g are the minima of rows and columns above the least:
// moves f and g to the parts. Forbidden options do not count.
template <class T>
void Checker<T>::drop(std::size_t p, std::size_t q) {
  if (p > q) std::swap(p, q);
  const Function& f = between(p, q);
  const std::size_t rows = cost_[p].size();
  const std::size_t cols = cost_[q].size();
  std::vector<C> row(rows, C::infinity());
  std::vector<C> col(cols, C::infinity());
  C least = C::infinity();
  for (std::size_t a = 0; a < rows; ++a) {
    for (std::size_t b = 0; b < cols; ++b) {
      if (cost_[p][a].infinite || cost_[q][b].infinite) continue;
      const C& x = f.table[a * cols + b];
      row[a] = std::min(row[a], x);
      col[b] = std::min(col[b], x);
      least = std::min(least, x);
    }
  }
  for (std::size_t a = 0; a < rows; ++a) {
    for (std::size_t b = 0; b < cols; ++b) {
      if (cost_[p][a].infinite || cost_[q][b].infinite) continue;
      const C& x = f.table[a * cols + b];
      const C sum = row[a] + col[b];
      require(sum.infinite == x.infinite && (x.infinite || x.value + least.value == sum.value),
              "the edge is dropped but its costs are not independent");
    }
  }
  const auto move = [&](std::vector<C>& to, const std::vector<C>& amount) {
    for (std::size_t i = 0; i < to.size(); ++i) {
      if (to[i].infinite) continue;
      to[i] = amount[i].infinite ? C::infinity() : to[i] + C{amount[i].value - least.value, false};
    }
  };
  move(cost_[p], row);
  move(cost_[q], col);
  if (!least.infinite) constant_ = constant_ + least;
  forget(static_cast<std::size_t>(&f - functions_.data()));
}

// ---- Search trees
// --------------------------------------------------------------------------------

constexpr std::size_t kNone = ~std::size_t{0};

// The least of what is left of an edge over living pairs, with one member held at an option if
// asked.
template <class T>
typename Checker<T>::C Checker<T>::link_least(const Link& link, std::size_t member,
                                              std::size_t option) const {
  const Member& r = tree_.members[link.side[0].member];
  const Member& c = tree_.members[link.side[1].member];
  const bool row_held = link.side[0].member == member;
  const bool col_held = link.side[1].member == member;
  const auto& table = functions_[link.f].table;
  const std::size_t cols = c.live.size();
  C least = C::infinity();
  for (std::size_t a = 0; a < r.live.size(); ++a) {
    if (!r.live[a] || (row_held && a != option)) continue;
    for (std::size_t b = 0; b < cols; ++b) {
      const C& x = table[a * cols + b];
      if (x.infinite || !c.live[b] || (col_held && b != option)) continue;
      const C y{x.value - link.side[0].taken[a] - link.side[1].taken[b], false};
      if (y < least) least = y;
    }
  }
  return least;
}

template <class T>
void Checker<T>::refresh() {
  for (Member& m : tree_.members) {
    if (!m.stale) continue;
    m.least = C::infinity();
    for (std::size_t i = 0; i < m.theta.size(); ++i) {
      if (m.live[i] && m.theta[i] < m.least) m.least = m.theta[i];
    }
    m.stale = false;
  }
  for (Link& l : tree_.links) {
    if (!l.stale) continue;
    l.least = link_least(l, kNone, 0);
    l.stale = false;
  }
}

// The sum of all least costs bounds every assignment of living options from below.
template <class T>
typename Checker<T>::C Checker<T>::tree_bound() {
  refresh();
  C sum;
  for (const Member& m : tree_.members) sum = sum + m.least;
  for (const Link& l : tree_.links) sum = sum + l.least;
  return sum;
}

// The same with one member held at an option.
template <class T>
typename Checker<T>::C Checker<T>::forced_bound(std::size_t member, std::size_t option) {
  refresh();
  C sum = tree_.members[member].theta[option];
  for (std::size_t m = 0; m < tree_.members.size(); ++m) {
    if (m != member) sum = sum + tree_.members[m].least;
  }
  for (const Link& l : tree_.links) {
    const bool touches = l.side[0].member == member || l.side[1].member == member;
    sum = sum + (touches ? link_least(l, member, option) : l.least);
  }
  return sum;
}

// Reads to the "end" of a case. The scopes of "try" are kept on a stack.
template <class T>
void Checker<T>::tree(std::size_t held, const C& target) {
  struct Scope {
    std::size_t member, option;
    Tree saved;
  };
  std::vector<Scope> scopes;
  std::vector<std::string_view> words;
  const auto member = [&](std::string_view word) {
    const auto it = member_of_.find(number(word, cost_.size(), "part"));
    require(it != member_of_.end(), "the part does not belong to the block");
    return it->second;
  };
  const auto living = [&](const std::vector<std::string_view>& w) {
    require(w.size() == 3, "a part and an option are needed");
    const std::size_t m = member(w[1]);
    const std::size_t i = number(w[2], tree_.members[m].live.size(), "option of the part");
    require(m != held, "the part is held by the case");
    require(tree_.members[m].live[i], "the option has been removed already");
    return std::pair(m, i);
  };
  const auto kill = [&](std::size_t m, std::size_t i) {
    tree_.members[m].live[i] = false;
    disturb(m);
  };
  while (true) {
    require(lines_.next(words), "the certificate ends inside a search tree");
    if (words[0] == "shift") {
      // From the edge between two parts to the first: an amount for each of its living options.
      require(words.size() >= 3, "a shift needs two parts");
      const std::size_t m = member(words[1]);
      const std::size_t w = member(words[2]);
      const auto at = link_of_.find({std::min(m, w), std::max(m, w)});
      require(at != link_of_.end(), "there is no edge to shift along");
      Link& link = tree_.links[at->second];
      Side& side = link.side[0].member == m ? link.side[0] : link.side[1];
      Member& to = tree_.members[m];
      std::size_t next = 3;
      for (std::size_t i = 0; i < to.live.size(); ++i) {
        if (!to.live[i]) continue;
        require(next < words.size(), "a shift needs an amount for each living option");
        const T amount = integer<T>(words[next++]);
        side.taken[i] = side.taken[i] + amount;
        guard(side.taken[i]);
        if (to.theta[i].infinite) continue;
        to.theta[i].value = to.theta[i].value + amount;
        guard(to.theta[i].value);
      }
      require(next == words.size(), "a shift has more amounts than living options");
      to.stale = true;
      link.stale = true;
    } else if (words[0] == "cut") {
      const auto [m, i] = living(words);
      require(!(forced_bound(m, i) < target), "the option is cut but its bound is too low");
      kill(m, i);
    } else if (words[0] == "try") {
      const auto [m, i] = living(words);
      scopes.push_back({m, i, tree_});
      auto& live = tree_.members[m].live;
      for (std::size_t k = 0; k < live.size(); ++k) live[k] = k == i;
      disturb(m);
    } else if (words[0] == "end") {
      require(words.size() == 1, "nothing may follow \"end\"");
      require(!(tree_bound() < target), "a branch ends but its bound is too low");
      if (scopes.empty()) return;
      Scope s = std::move(scopes.back());
      scopes.pop_back();
      tree_ = std::move(s.saved);
      kill(s.member, s.option);
    } else {
      reject("expected shift, cut, try or end");
    }
  }
}

// A set of parts that hangs on the rest by one part at most: what it costs, for each option of
// that.
template <class T>
void Checker<T>::block(const std::vector<std::string_view>& words) {
  require(words.size() >= 3, "a block needs its parts");
  const std::size_t hook = words[1] == "-" ? kNone : part(words[1]);
  members_.clear();
  std::set<std::size_t> inside;
  for (std::size_t k = 2; k < words.size(); ++k) {
    const std::size_t p = part(words[k]);
    require(p != hook && inside.insert(p).second, "a part is in the block twice");
    members_.push_back(p);
  }
  std::set<std::size_t> functions;
  for (const std::size_t p : members_) {
    for (const std::size_t f : functions_of_[p]) {
      for (const std::size_t q : functions_[f].scope) {
        require(q == hook || inside.contains(q), "the block has an edge to a part outside");
      }
      require(functions_[f].scope.size() == 2, "the block has a table of more than two parts");
      functions.insert(f);
    }
  }
  if (hook != kNone) members_.push_back(hook);
  member_of_.clear();
  link_of_.clear();
  links_of_.assign(members_.size(), {});
  for (std::size_t m = 0; m < members_.size(); ++m) member_of_[members_[m]] = m;
  std::size_t count = 0;
  for (const std::size_t f : functions) {
    fill(functions_[f]);
    const std::size_t a = member_of_.at(functions_[f].scope[0]);
    const std::size_t b = member_of_.at(functions_[f].scope[1]);
    require(link_of_.emplace(std::pair(std::min(a, b), std::max(a, b)), count).second,
            "two parts of the block share more than one edge");
    links_of_[a].push_back(count);
    links_of_[b].push_back(count++);
  }

  std::vector<C> result;
  std::vector<std::string_view> line;
  const std::size_t cases = hook == kNone ? 1 : cost_[hook].size();
  for (std::size_t i = 0; i < cases; ++i) {
    if (hook != kNone && cost_[hook][i].infinite) {
      result.push_back(C::infinity());
      continue;
    }
    require(lines_.next(line) && line[0] == "case" && line.size() == 3, "a case is missing");
    if (hook == kNone) {
      require(line[1] == "-", "the case does not follow the options");
    } else {
      require(number(line[1], cases, "option") == i, "the case does not follow the options");
    }
    const C target = line[2] == "inf" ? C::infinity() : C{integer<T>(line[2]), false};
    tree_ = Tree{};
    for (const std::size_t p : members_) {
      Member m{std::vector<bool>(cost_[p].size()), std::vector<C>(cost_[p].size()), C{}, true};
      for (std::size_t k = 0; k < cost_[p].size(); ++k) {
        m.live[k] = p == hook ? k == i : !cost_[p][k].infinite;
        if (p != hook) m.theta[k] = cost_[p][k];
      }
      tree_.members.push_back(std::move(m));
    }
    for (const std::size_t f : functions) {
      const auto side = [&](std::size_t p) {
        return Side{member_of_.at(p), std::vector<T>(cost_[p].size(), T(0))};
      };
      const auto& scope = functions_[f].scope;
      tree_.links.push_back({f, {side(scope[0]), side(scope[1])}, C{}, true});
    }
    // Nothing finite costs as much as `beyond`.
    tree(hook == kNone ? kNone : member_of_.at(hook), target.infinite ? C{beyond_, false} : target);
    result.push_back(target);
  }
  if (hook == kNone) {
    constant_ = constant_ + result[0];
  } else {
    for (std::size_t i = 0; i < cases; ++i) cost_[hook][i] = cost_[hook][i] + result[i];
  }
  for (const std::size_t f : functions) forget(f);
  for (const std::size_t p : members_) {
    if (p != hook) alive_[p] = false;
  }
}

template <class T>
void Checker<T>::run(const Header& header, CheckReport& report) {
  exponent_ = header.exponent;
  limit_ = power_of_two<T>(bits_of<T>() - 6);
  std::vector<std::string_view> words;

  // The assignment.
  require(lines_.next(words) && words[0] == "assignment", "the assignment is missing");
  const bool none = words.size() == 2 && words[1] == "-";
  C upper = C::infinity();
  if (!none) {
    require(words.size() == problem_.node_count() + 1,
            "the assignment has not one option per node");
    for (std::size_t v = 0; v < problem_.node_count(); ++v) {
      report.assignment.push_back(number(words[v + 1], problem_.option_count(v), "option"));
    }
    upper = C{};
    for (std::size_t v = 0; v < problem_.node_count(); ++v) {
      upper = upper + convert(problem_.costs(v)[report.assignment[v]]);
    }
    for (std::size_t i = 0; i < problem_.edge_count(); ++i) {
      const Edge& e = problem_.edge(i);
      upper = upper + convert(e.cost(report.assignment[e.u], report.assignment[e.v]));
    }
    require(!upper.infinite, "the assignment costs infinity");
  }
  const C claimed_upper =
      header.upper == "inf" ? C::infinity() : C{integer<T>(header.upper), false};
  require(upper == claimed_upper, "the assignment does not cost what the certificate says");

  // The lower bound.
  read_parts(words);
  build();
  bool done = false;
  while (!done) {
    require(lines_.next(words), "the certificate ends inside its proof");
    const std::string_view verb = words[0];
    if (verb == "r0" || verb == "r1" || verb == "r2" || verb == "elim") {
      require(words.size() >= 2, "a reduction needs a part");
      const std::size_t p = part(words[1]);
      std::set<std::size_t> named;
      for (std::size_t k = 2; k < words.size(); ++k) named.insert(part(words[k]));
      require(verb == "elim" || named.size() == static_cast<std::size_t>(verb[1] - '0'),
              "the reduction does not fit the number of neighbours");
      require(named.size() + 2 == words.size() && named == neighbours(p),
              "the reduction does not name the neighbours of the part");
      eliminate(p);
    } else if (verb == "drop") {
      require(words.size() == 3 && words[1] != words[2], "a drop needs two parts");
      drop(part(words[1]), part(words[2]));
    } else if (verb == "block") {
      block(words);
    } else if (verb == "rest") {
      require(words.size() == 1, "nothing may follow \"rest\"");
      for (std::size_t p = 0; p < cost_.size(); ++p) {
        if (alive_[p]) constant_ = constant_ + *std::min_element(cost_[p].begin(), cost_[p].end());
        alive_[p] = false;
      }
      for (Function& f : functions_) {
        if (f.scope.empty()) continue;
        fill(f);
        constant_ = constant_ + *std::min_element(f.table.begin(), f.table.end());
      }
    } else if (verb == "qed") {
      require(words.size() == 1, "nothing may follow \"qed\"");
      done = true;
    } else {
      reject("expected r0, r1, r2, elim, drop, block, rest or qed");
    }
  }
  require(constant_.infinite || std::find(alive_.begin(), alive_.end(), true) == alive_.end(),
          "the proof ends before all parts are accounted for");
  const C lower = header.lower == "inf" ? C::infinity() : C{integer<T>(header.lower), false};
  require(lower == constant_, "the proof does not yield the lower bound that the certificate says");
  require(!(upper < lower), "the lower bound exceeds the cost of the assignment");
  const Status status = lower.infinite   ? Status::kInfeasible
                        : upper.infinite ? Status::kLimit
                        : upper == lower ? Status::kOptimal
                                         : Status::kFeasible;
  require(status == header.status, "the status does not follow from the bounds");
  report.status = status;
  report.upper = upper.infinite ? kInfinity : std::ldexp(as_double(upper.value), exponent_);
  report.lower = lower.infinite ? kInfinity : std::ldexp(as_double(lower.value), exponent_);
  if (status == Status::kFeasible || status == Status::kLimit) {
    report.lower = std::nextafter(report.lower, -kInfinity);
  }
}

// Bits that sums of the problem's costs may need in units of 2^exponent.
int bits_needed(const Problem& problem, int exponent) {
  double sum = 0;  // scaled by 2^-100 against overflow
  const auto account = [&](const std::vector<double>& costs) {
    double largest = 0;
    for (const double x : costs) {
      if (x != kInfinity) largest = std::max(largest, std::abs(x));
    }
    sum += std::ldexp(largest, -100);
  };
  for (std::size_t v = 0; v < problem.node_count(); ++v) account(problem.costs(v));
  for (std::size_t e = 0; e < problem.edge_count(); ++e) account(problem.edge(e).matrix.data);
  return sum == 0 ? 0 : std::ilogb(sum) + 102 - exponent;
}

}  // namespace

std::string certificate_checksum(std::string_view text) {
  std::uint64_t h = 0xcbf29ce484222325u;  // FNV-1a
  for (const char c : text) h = (h ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  std::string s(16, '0');
  for (int i = 15; i >= 0; --i, h >>= 4)
    s[static_cast<std::size_t>(i)] = "0123456789abcdef"[h & 15];
  return s;
}

CheckReport check(const Problem& problem, std::string_view certificate) {
  CheckReport report;
  Lines lines(certificate);
  try {
    std::vector<std::string_view> words;
    require(
        lines.next(words) && words.size() == 2 && words[0] == "pbqp-certificate" && words[1] == "1",
        "this is no certificate of version 1");
    const std::size_t last = certificate.rfind("checksum ");
    require(last != std::string_view::npos && last > 0 && certificate[last - 1] == '\n',
            "the checksum is missing: the certificate is cut off");
    require(certificate.substr(last) ==
                "checksum " + certificate_checksum(certificate.substr(0, last)) + "\n",
            "the checksum is wrong: the certificate has been damaged");
    require(lines.next(words) && words.size() == 3 && words[0] == "problem" &&
                number(words[1], ~std::size_t{0}, "count") == problem.node_count() &&
                number(words[2], ~std::size_t{0}, "count") == problem.edge_count(),
            "the certificate is for a problem of another size");
    Header header;
    require(lines.next(words) && words.size() == 2 && words[0] == "exponent",
            "the unit is missing");
    const auto exponent =
        std::from_chars(words[1].data(), words[1].data() + words[1].size(), header.exponent);
    require(exponent.ec == std::errc() && exponent.ptr == words[1].data() + words[1].size() &&
                header.exponent >= -1074 && header.exponent <= 1024,
            "the unit is no exponent of a double");
    require(lines.next(words) && words.size() == 2 && words[0] == "status",
            "the status is missing");
    bool known = false;
    for (const Status s :
         {Status::kOptimal, Status::kFeasible, Status::kInfeasible, Status::kLimit}) {
      if (to_string(s) == words[1]) header.status = s, known = true;
    }
    require(known, "the status is unknown");
    require(lines.next(words) && words.size() == 2 && words[0] == "upper",
            "the upper bound is missing");
    header.upper = words[1];
    require(lines.next(words) && words.size() == 2 && words[0] == "lower",
            "the lower bound is missing");
    header.lower = words[1];

    const int bits = bits_needed(problem, header.exponent);
    if (bits <= 64 - 12) {
      Checker<std::int64_t>(problem, lines).run(header, report);
    } else if (bits <= 128 - 12) {
      Checker<Int128>(problem, lines).run(header, report);
    } else {
      require(bits <= 32 * Big::kLimbs - 12, "the unit is too small for these costs");
      Checker<Big>(problem, lines).run(header, report);
    }
    require(lines.next(words) && words[0] == "checksum" && !lines.next(words),
            "lines follow the end of the proof");
    report.valid = true;
  } catch (const Rejected& r) {
    report = CheckReport{};
    report.message = r.message;
    report.line = lines.number();
  }
  return report;
}

}  // namespace pbqp
