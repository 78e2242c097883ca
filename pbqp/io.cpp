// Reading and writing problems. Nothing that a file says is believed before it has been checked:
// sizes are compared with what the file really holds before memory is taken for them.
#include "pbqp/io.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <map>
#include <sstream>

#include "json.hpp"
#include "numbers.hpp"

namespace pbqp {
namespace {

using detail::Json;
using detail::quote;
using detail::shortest;

[[noreturn]] void fail(const std::string& file, std::size_t line, const std::string& message) {
  std::string s = file;
  if (line > 0) {
    s += ':';
    s += std::to_string(line);
  }
  s += ": ";
  s += message;
  throw FormatError(s);
}

std::string shown(std::string_view word) {
  std::string s = "\"";
  for (const char c : word.substr(0, 40)) {
    s += static_cast<unsigned char>(c) < 0x20 || static_cast<unsigned char>(c) == 0x7f ? '?' : c;
  }
  s += word.size() > 40 ? "...\"" : "\"";
  return s;
}

std::string cost_text(double x) { return x == kInfinity ? "inf" : shortest(x); }

// ---- Text
// ----------------------------------------------------------------------------------------

class TextReader {
 public:
  TextReader(std::string_view text, const std::string& name) : text_(text), name_(name) {}

  Problem read() {
    if (!next_line() || words_.empty() || words_[0] != "pbqp") {
      fail(name_, 1, "a problem in text form starts with the line \"pbqp 1\"");
    }
    if (words_.size() != 2 || words_[1] != "1") {
      fail(name_, line_,
           "version " + (words_.size() > 1 ? shown(words_[1]) : std::string("none")) +
               " of the text form is unknown, only 1 can be read");
    }
    try {
      while (next_line()) {
        if (!words_.empty()) statement();
      }
      finish_node();
    } catch (const std::invalid_argument& e) {
      fail(name_, line_, e.what());
    }
    return std::move(problem_);
  }

 private:
  bool next_line() {
    if (at_ >= text_.size()) return false;
    ++line_;
    std::size_t end = text_.find('\n', at_);
    if (end == std::string_view::npos) end = text_.size();
    raw_ = text_.substr(at_, end - at_);
    at_ = end + 1;
    if (!raw_.empty() && raw_.back() == '\r') raw_.remove_suffix(1);
    words_.clear();
    for (std::size_t i = 0; i < raw_.size();) {
      if (raw_[i] == ' ' || raw_[i] == '\t') {
        ++i;
        continue;
      }
      if (raw_[i] == '#') break;
      std::size_t j = i;
      while (j < raw_.size() && raw_[j] != ' ' && raw_[j] != '\t') ++j;
      words_.push_back(raw_.substr(i, j - i));
      i = j;
    }
    return true;
  }

  // What follows the first `count` words, as it stands.
  std::string tail(std::size_t count) const {
    const char* end = words_[count - 1].data() + words_[count - 1].size();
    std::string_view rest = raw_.substr(static_cast<std::size_t>(end - raw_.data()));
    const std::size_t first = rest.find_first_not_of(" \t");
    return first == std::string_view::npos ? std::string() : std::string(rest.substr(first));
  }

  double cost(std::string_view word) const {
    if (word == "inf") return kInfinity;
    double x = 0;
    const auto r = std::from_chars(word.data(), word.data() + word.size(), x);
    if (r.ptr != word.data() + word.size() || r.ec == std::errc::invalid_argument ||
        !std::isfinite(x) || word.empty()) {
      fail(name_, line_, shown(word) + " is no cost: a number or \"inf\" is needed");
    }
    if (r.ec == std::errc::result_out_of_range) {
      fail(name_, line_, shown(word) + " is out of the range of a double");
    }
    return x;
  }

  std::size_t number(std::string_view word, const char* what) const {
    std::size_t x = 0;
    const auto r = std::from_chars(word.data(), word.data() + word.size(), x);
    if (r.ec != std::errc() || r.ptr != word.data() + word.size()) {
      fail(name_, line_, shown(word) + " is no " + what);
    }
    return x;
  }

  std::vector<double> costs(std::size_t from) const {
    std::vector<double> c;
    c.reserve(words_.size() - from);
    for (std::size_t i = from; i < words_.size(); ++i) c.push_back(cost(words_[i]));
    return c;
  }

  // A node is complete when something else than its attributes follows.
  void finish_node() {
    if (!open_) return;
    open_ = false;
    const std::size_t v =
        problem_.add_node(std::move(node_costs_), std::move(options_), std::move(node_name_));
    if (!weights_.empty()) problem_.set_weights(v, std::move(weights_));
    node_costs_ = {};
    options_ = {};
    node_name_ = {};
    weights_ = {};
  }

  void need_node(const char* what) const {
    if (!open_) {
      fail(name_, line_, std::string("\"") + what + "\" must follow the node that it belongs to");
    }
  }

  void statement() {
    const std::string_view verb = words_[0];
    if (verb == "node") {
      finish_node();
      if (words_.size() == 1) fail(name_, line_, "a node needs at least one cost");
      node_costs_ = costs(1);
      open_ = true;
    } else if (verb == "name") {
      need_node("name");
      node_name_ = tail(1);
    } else if (verb == "option") {
      need_node("option");
      if (words_.size() < 2) fail(name_, line_, "\"option\" needs a number and a name");
      const std::size_t i = number(words_[1], "option");
      if (i >= node_costs_.size()) {
        fail(name_, line_, "the node has no option " + std::to_string(i));
      }
      options_.resize(node_costs_.size());
      options_[i] = tail(2);
    } else if (verb == "weights") {
      need_node("weights");
      if (words_.size() != node_costs_.size() + 1) {
        fail(name_, line_, "a weight is needed for each of the node's options");
      }
      weights_ = costs(1);
    } else if (verb == "classes") {
      if (words_.size() < 3) fail(name_, line_, "\"classes\" needs a name and classes");
      Classes c;
      for (std::size_t i = 2; i < words_.size(); ++i) {
        const std::size_t x = number(words_[i], "class");
        if (x > 0xffffffffu) fail(name_, line_, shown(words_[i]) + " is too large for a class");
        c.push_back(static_cast<std::uint32_t>(x));
      }
      classes_[std::string(words_[1])] = std::move(c);
    } else if (verb == "edge") {
      finish_node();
      edge();
    } else {
      fail(name_, line_,
           shown(verb) +
               " is unknown: a line starts with node, name, option, weights, classes or "
               "edge");
    }
  }

  void edge() {
    if (words_.size() < 4) fail(name_, line_, "an edge needs two nodes and costs");
    std::size_t node[2];
    const Classes* map[2] = {nullptr, nullptr};
    for (int k = 0; k < 2; ++k) {
      const std::string_view w = words_[static_cast<std::size_t>(k) + 1];
      const std::size_t colon = w.find(':');
      node[k] = number(w.substr(0, colon), "node");
      if (colon == std::string_view::npos) continue;
      const auto it = classes_.find(std::string(w.substr(colon + 1)));
      if (it == classes_.end()) {
        fail(name_, line_, "the classes " + shown(w.substr(colon + 1)) + " have not been defined");
      }
      map[k] = &it->second;
    }
    if ((map[0] == nullptr) != (map[1] == nullptr)) {
      fail(name_, line_, "an edge has classes at both ends or at none");
    }
    if (map[0] == nullptr) {
      problem_.add_edge(node[0], node[1], costs(3));
      return;
    }
    const std::string_view shape = words_[3];
    const std::size_t x = shape.find('x');
    if (x == std::string_view::npos) {
      fail(name_, line_, "a class edge needs the shape of its matrix, such as 3x3");
    }
    const std::size_t rows = number(shape.substr(0, x), "number of rows");
    const std::size_t cols = number(shape.substr(x + 1), "number of columns");
    std::vector<double> c = costs(4);
    // Division, so that no product can overflow.
    if (cols == 0 || c.size() % cols != 0 || c.size() / cols != rows) {
      fail(name_, line_,
           "a matrix of " + std::string(shape) + " was given " + std::to_string(c.size()) +
               " costs");
    }
    problem_.add_class_edge(node[0], *map[0], node[1], *map[1], Matrix(rows, cols, std::move(c)));
  }

  std::string_view text_;
  const std::string& name_;
  std::size_t at_ = 0;
  std::size_t line_ = 0;
  std::string_view raw_;
  std::vector<std::string_view> words_;
  Problem problem_;
  std::map<std::string, Classes> classes_;
  bool open_ = false;
  std::vector<double> node_costs_;
  std::vector<double> weights_;
  std::vector<std::string> options_;
  std::string node_name_;
};

// Numbers class maps in the order of their first use.
class MapNumbers {
 public:
  /// The number, and whether it is new.
  std::pair<std::size_t, bool> of(const std::shared_ptr<const Classes>& map) {
    const auto [it, fresh] = numbers_.try_emplace(map.get(), numbers_.size());
    return {it->second, fresh};
  }

 private:
  std::map<const Classes*, std::size_t> numbers_;
};

std::string one_line(const std::string& s) {
  std::string r = s;
  std::replace_if(
      r.begin(), r.end(), [](char c) { return c == '\n' || c == '\r'; }, ' ');
  return r;
}

// ---- JSON
// ----------------------------------------------------------------------------------------

class JsonReader {
 public:
  explicit JsonReader(const std::string& name) : name_(name) {}

  Problem read(std::string_view text) {
    Json root;
    try {
      root = detail::parse_json(text);
    } catch (const detail::JsonError& e) {
      fail(name_, e.line, e.what());
    }
    known(root, {"format", "version", "nodes", "classes", "edges"});
    const Json& format = member(root, "format", Json::Kind::kString, "a string");
    if (format.string != "pbqp") fail(name_, format.line, "\"format\" must be \"pbqp\"");
    if (const Json& v = member(root, "version", Json::Kind::kNumber, "a number"); v.number != 1) {
      fail(name_, v.line, "this version of the format is unknown, only 1 can be read");
    }
    for (const Json& n : member(root, "nodes", Json::Kind::kArray, "an array").items) node(n);
    if (root.find("classes") != nullptr) {
      for (const Json& c : member(root, "classes", Json::Kind::kArray, "an array").items) {
        classes_.push_back(class_map(c));
      }
    }
    for (const Json& e : member(root, "edges", Json::Kind::kArray, "an array").items) edge(e);
    return std::move(problem_);
  }

 private:
  void known(const Json& j, std::initializer_list<std::string_view> names) const {
    if (j.kind != Json::Kind::kObject) fail(name_, j.line, "an object is needed here");
    for (const Json::Member& m : j.members) {
      if (std::find(names.begin(), names.end(), m.name) == names.end()) {
        fail(name_, m.value.line, "the member " + shown(m.name) + " is unknown here");
      }
    }
  }
  const Json& member(const Json& j, const char* key, Json::Kind kind, const char* what) const {
    const Json* m = j.find(key);
    if (m == nullptr) fail(name_, j.line, std::string("the member \"") + key + "\" is missing");
    if (m->kind != kind) {
      fail(name_, m->line, std::string("the member \"") + key + "\" must be " + what);
    }
    return *m;
  }
  double cost(const Json& j) const {
    if (j.kind == Json::Kind::kString && j.string == "inf") return kInfinity;
    if (j.kind != Json::Kind::kNumber) fail(name_, j.line, "a cost is a number or \"inf\"");
    return j.number;
  }
  std::vector<double> costs(const Json& j, const char* key) const {
    std::vector<double> c;
    for (const Json& x : member(j, key, Json::Kind::kArray, "an array").items) {
      c.push_back(cost(x));
    }
    return c;
  }
  std::size_t index(const Json& j) const {
    if (j.kind != Json::Kind::kNumber || !(j.number >= 0 && j.number <= 4294967295.0) ||
        j.number != std::floor(j.number)) {
      fail(name_, j.line, "a whole number that is not negative is needed here");
    }
    return static_cast<std::size_t>(j.number);
  }
  std::size_t index(const Json& j, const char* key) const {
    return index(member(j, key, Json::Kind::kNumber, "a number"));
  }
  Classes class_map(const Json& j) const {
    if (j.kind != Json::Kind::kArray) fail(name_, j.line, "classes are an array of numbers");
    Classes c;
    for (const Json& x : j.items) c.push_back(static_cast<std::uint32_t>(index(x)));
    return c;
  }
  void node(const Json& j) {
    known(j, {"name", "costs", "options", "weights"});
    std::vector<std::string> options;
    std::string node_name;
    if (j.find("options") != nullptr) {
      for (const Json& o : member(j, "options", Json::Kind::kArray, "an array").items) {
        if (o.kind != Json::Kind::kString) fail(name_, o.line, "an option's name is a string");
        options.push_back(o.string);
      }
    }
    if (j.find("name") != nullptr) {
      node_name = member(j, "name", Json::Kind::kString, "a string").string;
    }
    try {
      const std::size_t v =
          problem_.add_node(costs(j, "costs"), std::move(options), std::move(node_name));
      if (j.find("weights") != nullptr) problem_.set_weights(v, costs(j, "weights"));
    } catch (const std::invalid_argument& e) {
      fail(name_, j.line, e.what());
    }
  }
  void edge(const Json& j) {
    known(j, {"u", "v", "u_classes", "v_classes", "rows", "cols", "costs"});
    const std::size_t u = index(j, "u");
    const std::size_t v = index(j, "v");
    std::vector<double> c = costs(j, "costs");
    const bool by_class = j.find("u_classes") != nullptr || j.find("v_classes") != nullptr;
    try {
      if (!by_class) {
        problem_.add_edge(u, v, std::move(c));
        return;
      }
      const auto map = [&](const char* key) -> const Classes& {
        const std::size_t i = index(j, key);
        if (i >= classes_.size()) {
          fail(name_, j.line, "there are no classes " + std::to_string(i));
        }
        return classes_[i];
      };
      const std::size_t rows = index(j, "rows");
      const std::size_t cols = index(j, "cols");
      problem_.add_class_edge(u, map("u_classes"), v, map("v_classes"),
                              Matrix(rows, cols, std::move(c)));
    } catch (const std::invalid_argument& e) {
      fail(name_, j.line, e.what());
    }
  }

  const std::string& name_;
  Problem problem_;
  std::vector<Classes> classes_;
};

std::string cost_json(double x) { return x == kInfinity ? "\"inf\"" : shortest(x); }

template <class Range, class F>
std::string list(const Range& r, F f) {
  std::string s = "[";
  bool first = true;
  for (const auto& x : r) {
    if (!first) s += ',';
    first = false;
    s += f(x);
  }
  s += ']';
  return s;
}

// ---- WCSP
// ----------------------------------------------------------------------------------------

class WcspReader {
 public:
  WcspReader(std::string_view text, const std::string& name) : text_(text), name_(name) {}

  Problem read() {
    const std::string title(word("the name of the problem"));
    const std::size_t n = number("the number of variables");
    number("the largest domain");
    const std::size_t m = number("the number of functions");
    const double top = cost("the upper bound");
    if (n > text_.size() || m > text_.size()) {
      fail(name_, line_, "the file is too short for what its first line announces");
    }
    scale(title);
    std::vector<std::vector<double>> unary;
    for (std::size_t v = 0; v < n; ++v) {
      const std::size_t d = number("a domain size");
      if (d == 0) fail(name_, line_, "variable " + std::to_string(v) + " has an empty domain");
      claim(d);
      unary.emplace_back(d, 0.0);
    }
    struct Binary {
      std::size_t u, v;
      Matrix m;
    };
    std::vector<Binary> binary;
    double constant = offset_;
    for (std::size_t f = 0; f < m; ++f) {
      const std::size_t arity = number("the number of variables of a function");
      if (arity > 2) {
        fail(name_, line_,
             "a function of " + std::to_string(arity) +
                 " variables: a PBQP has functions of at most two");
      }
      std::size_t v[2] = {0, 0};
      for (std::size_t k = 0; k < arity; ++k) {
        v[k] = number("a variable");
        if (v[k] >= n) fail(name_, line_, "variable " + std::to_string(v[k]) + " does not exist");
      }
      const double rest = infinite_from(cost("a default cost"), top);
      const std::size_t tuples = number("the number of tuples");
      if (arity == 0) {
        if (tuples != 0) fail(name_, line_, "a constant has no tuples");
        constant += rest;
        continue;
      }
      const std::size_t cols = arity == 2 ? unary[v[1]].size() : 1;
      const std::size_t rows = unary[v[0]].size();
      claim(rows * cols);
      Matrix table(rows, cols, std::vector<double>(rows * cols, rest));
      for (std::size_t t = 0; t < tuples; ++t) {
        const std::size_t a = number("a value");
        const std::size_t b = arity == 2 ? number("a value") : 0;
        if (a >= rows || b >= cols) fail(name_, line_, "a tuple has a value outside its domain");
        table(a, b) = infinite_from(cost("a cost"), top);
      }
      if (arity == 2) {
        binary.push_back({v[0], v[1], std::move(table)});
      } else {
        for (std::size_t a = 0; a < rows; ++a) unary[v[0]][a] += table(a, 0);
      }
    }
    Problem problem;
    for (auto& c : unary) {
      for (double& x : c) x = real(x);
      problem.add_node(std::move(c));
    }
    for (Binary& b : binary) {
      for (double& x : b.m.data) x = real(x);
      problem.add_edge(b.u, b.v, std::move(b.m));
    }
    if (constant != 0) problem.add_node({real(constant)}, {}, "constant");
    return problem;
  }

 private:
  std::string_view word(const char* what) {
    while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_])) != 0) {
      if (text_[at_] == '\n') ++line_;
      ++at_;
    }
    std::size_t end = at_;
    while (end < text_.size() && std::isspace(static_cast<unsigned char>(text_[end])) == 0) ++end;
    if (end == at_) fail(name_, line_, std::string("the file ends before ") + what);
    const std::string_view w = text_.substr(at_, end - at_);
    at_ = end;
    return w;
  }
  std::size_t number(const char* what) {
    const std::string_view w = word(what);
    std::size_t x = 0;
    const auto r = std::from_chars(w.data(), w.data() + w.size(), x);
    if (r.ec != std::errc() || r.ptr != w.data() + w.size() || x > 0xffffffffu) {
      fail(name_, line_, shown(w) + " stands in place of " + what);
    }
    return x;
  }
  double cost(const char* what) {
    const std::string_view w = word(what);
    std::int64_t x = 0;
    const auto r = std::from_chars(w.data(), w.data() + w.size(), x);
    if (r.ec != std::errc() || r.ptr != w.data() + w.size() || x < 0) {
      fail(name_, line_, shown(w) + " stands in place of " + what);
    }
    return static_cast<double>(x);
  }
  double infinite_from(double x, double top) {
    if (x >= top) return kInfinity;
    if (x > 0x1p53) fail(name_, line_, "a cost above 2^53 cannot be read exactly");
    return x;
  }
  // Tables are written out in full; a short file must not ask for all memory.
  void claim(std::size_t entries) {
    constexpr std::size_t kMost = std::size_t{1} << 26;
    if (entries > kMost || (claimed_ += entries) > kMost) {
      fail(name_, line_, "the tables of this problem are too large");
    }
  }
  // What write_wcsp says in the title.
  void scale(const std::string& title) {
    int e = 0;
    long long o = 0;
    int used = 0;
    if (std::sscanf(title.c_str(), "pbqp_e%d_o%lld%n", &e, &o, &used) == 2 &&
        static_cast<std::size_t>(used) == title.size() && std::abs(e) <= 1074) {
      exponent_ = e;
      offset_ = static_cast<double>(o);
    }
  }
  double real(double x) const { return x == kInfinity ? x : std::ldexp(x, exponent_); }

  std::string_view text_;
  const std::string& name_;
  std::size_t at_ = 0;
  std::size_t line_ = 1;
  std::size_t claimed_ = 0;
  int exponent_ = 0;
  double offset_ = 0;
};

}  // namespace

Problem read_text(std::string_view text, const std::string& name) {
  return TextReader(text, name).read();
}

Problem read_json(std::string_view text, const std::string& name) {
  return JsonReader(name).read(text);
}

Problem read_wcsp(std::string_view text, const std::string& name) {
  return WcspReader(text, name).read();
}

std::string write_text(const Problem& p) {
  std::string s = "pbqp 1\n";
  const auto append = [&](const std::vector<double>& costs) {
    for (const double x : costs) {
      s += ' ';
      s += cost_text(x);
    }
    s += '\n';
  };
  for (std::size_t v = 0; v < p.node_count(); ++v) {
    s += "node";
    append(p.costs(v));
    if (!p.name(v).empty()) {
      s += "name ";
      s += one_line(p.name(v));
      s += '\n';
    }
    for (std::size_t i = 0; i < p.option_names(v).size(); ++i) {
      s += "option ";
      s += std::to_string(i);
      s += ' ';
      s += one_line(p.option_names(v)[i]);
      s += '\n';
    }
    if (!p.weights(v).empty()) {
      s += "weights";
      append(p.weights(v));
    }
  }
  MapNumbers maps;
  for (std::size_t i = 0; i < p.edge_count(); ++i) {
    const Edge& e = p.edge(i);
    std::string ends[2] = {std::to_string(e.u), std::to_string(e.v)};
    for (int k = 0; k < 2 && e.row_class; ++k) {
      const auto& map = k == 0 ? e.row_class : e.col_class;
      const auto [number, fresh] = maps.of(map);
      if (fresh) {
        s += "classes ";
        s += std::to_string(number);
        for (const std::uint32_t c : *map) {
          s += ' ';
          s += std::to_string(c);
        }
        s += '\n';
      }
      ends[k] += ':';
      ends[k] += std::to_string(number);
    }
    s += "edge ";
    s += ends[0];
    s += ' ';
    s += ends[1];
    if (e.row_class) {
      s += ' ';
      s += std::to_string(e.matrix.rows);
      s += 'x';
      s += std::to_string(e.matrix.cols);
    }
    append(e.matrix.data);
  }
  return s;
}

std::string write_json(const Problem& p) {
  std::string s = "{\"format\":\"pbqp\",\"version\":1,\n\"nodes\":[";
  for (std::size_t v = 0; v < p.node_count(); ++v) {
    s += v == 0 ? "\n{" : ",\n{";
    if (!p.name(v).empty()) {
      s += "\"name\":";
      s += quote(p.name(v));
      s += ',';
    }
    s += "\"costs\":";
    s += list(p.costs(v), cost_json);
    if (!p.option_names(v).empty()) {
      s += ",\"options\":";
      s += list(p.option_names(v), [](const std::string& o) { return quote(o); });
    }
    if (!p.weights(v).empty()) {
      s += ",\"weights\":";
      s += list(p.weights(v), cost_json);
    }
    s += '}';
  }
  s += "],\n\"classes\":[";
  MapNumbers maps;
  bool first = true;
  for (std::size_t i = 0; i < p.edge_count(); ++i) {
    for (const auto* map : {&p.edge(i).row_class, &p.edge(i).col_class}) {
      if (*map == nullptr || !maps.of(*map).second) continue;
      s += first ? "\n" : ",\n";
      first = false;
      s += list(**map, [](std::uint32_t c) { return std::to_string(c); });
    }
  }
  s += "],\n\"edges\":[";
  for (std::size_t i = 0; i < p.edge_count(); ++i) {
    const Edge& e = p.edge(i);
    s += i == 0 ? "\n{\"u\":" : ",\n{\"u\":";
    s += std::to_string(e.u);
    s += ",\"v\":";
    s += std::to_string(e.v);
    if (e.row_class) {
      s += ",\"u_classes\":";
      s += std::to_string(maps.of(e.row_class).first);
      s += ",\"v_classes\":";
      s += std::to_string(maps.of(e.col_class).first);
      s += ",\"rows\":";
      s += std::to_string(e.matrix.rows);
      s += ",\"cols\":";
      s += std::to_string(e.matrix.cols);
    }
    s += ",\"costs\":";
    s += list(e.matrix.data, cost_json);
    s += '}';
  }
  s += "]}\n";
  return s;
}

std::string write_wcsp(const Problem& p, double quantum) {
  using detail::decompose;
  int exponent = 1024;
  const auto scan = [&](const std::vector<double>& costs) {
    for (const double x : costs) {
      if (x != 0 && x != kInfinity) exponent = std::min(exponent, decompose(x).e);
    }
  };
  for (std::size_t v = 0; v < p.node_count(); ++v) scan(p.costs(v));
  for (std::size_t e = 0; e < p.edge_count(); ++e) scan(p.edge(e).matrix.data);
  if (exponent == 1024) exponent = 0;
  if (quantum > 0) exponent = std::max(exponent, std::ilogb(quantum));

  // Every function as integers from 0; what was taken off is the offset.
  long long offset = 0;
  double range = 1;
  const auto shift = [&](const std::vector<double>& costs) {
    std::vector<double> r;
    double least = kInfinity;
    double most = -kInfinity;
    for (const double x : costs) {
      r.push_back(x == kInfinity ? x : std::nearbyint(std::ldexp(x, -exponent)));
      if (x != kInfinity) {
        least = std::min(least, r.back());
        most = std::max(most, r.back());
      }
    }
    if (least == kInfinity) return r;
    range += most - least;
    if (!(range < 0x1p56) || std::abs(least) > 0x1p53 ||
        std::abs(static_cast<double>(offset) + least) > 0x1p53) {
      throw std::invalid_argument(
          "the costs need more than the 56 bits that the wcsp format has: give a quantum");
    }
    for (double& x : r) x -= least;
    offset += static_cast<long long>(least);
    return r;
  };
  std::vector<std::vector<double>> unary;
  std::vector<std::vector<double>> binary;
  std::size_t largest = 0;
  for (std::size_t v = 0; v < p.node_count(); ++v) {
    unary.push_back(shift(p.costs(v)));
    largest = std::max(largest, p.option_count(v));
  }
  for (std::size_t i = 0; i < p.edge_count(); ++i) {
    const Edge& e = p.edge(i);
    std::vector<double> costs;
    const std::size_t cols = e.u == e.v ? 1 : p.option_count(e.v);  // a self-loop is its diagonal
    for (std::size_t a = 0; a < p.option_count(e.u); ++a) {
      for (std::size_t b = 0; b < cols; ++b) costs.push_back(e.cost(a, e.u == e.v ? a : b));
    }
    binary.push_back(shift(costs));
  }
  const auto top = static_cast<long long>(range);
  const auto text = [&](double x) {
    return std::to_string(x == kInfinity ? top : static_cast<long long>(x));
  };
  std::ostringstream s;
  s << "pbqp_e" << exponent << "_o" << offset << ' ' << p.node_count() << ' ' << largest << ' '
    << p.node_count() + p.edge_count() << ' ' << top << '\n';
  for (std::size_t v = 0; v < p.node_count(); ++v) {
    s << (v == 0 ? "" : " ") << p.option_count(v);
  }
  s << '\n';
  for (std::size_t v = 0; v < p.node_count(); ++v) {
    s << "1 " << v << " 0 " << unary[v].size() << '\n';
    for (std::size_t a = 0; a < unary[v].size(); ++a) s << a << ' ' << text(unary[v][a]) << '\n';
  }
  for (std::size_t i = 0; i < p.edge_count(); ++i) {
    const Edge& e = p.edge(i);
    if (e.u == e.v) {
      s << "1 " << e.u << " 0 " << binary[i].size() << '\n';
      for (std::size_t a = 0; a < binary[i].size(); ++a) {
        s << a << ' ' << text(binary[i][a]) << '\n';
      }
      continue;
    }
    s << "2 " << e.u << ' ' << e.v << " 0 " << binary[i].size() << '\n';
    std::size_t k = 0;
    for (std::size_t a = 0; a < p.option_count(e.u); ++a) {
      for (std::size_t b = 0; b < p.option_count(e.v); ++b) {
        s << a << ' ' << b << ' ' << text(binary[i][k++]) << '\n';
      }
    }
  }
  return s.str();
}

Format format_of(const std::string& path) {
  if (path.ends_with(".json")) return Format::kJson;
  if (path.ends_with(".wcsp")) return Format::kWcsp;
  return Format::kText;
}

std::string read_file(const std::string& path) {
  if (path == "-") {
    return std::string(std::istreambuf_iterator<char>(std::cin), std::istreambuf_iterator<char>());
  }
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) fail(path, 0, "this is a folder, not a file");
  std::ifstream in(path, std::ios::binary);
  if (!in) fail(path, 0, "the file does not exist or cannot be opened");
  std::string s{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  if (in.bad()) fail(path, 0, "the file cannot be read");
  return s;
}

void write_file(const std::string& path, std::string_view content) {
  if (path == "-") {
    std::cout << content << std::flush;
    if (!std::cout) fail("standard output", 0, "writing failed");
    return;
  }
  const std::string temporary = path + ".part";
  {
    std::ofstream out(temporary, std::ios::binary | std::ios::trunc);
    out << content << std::flush;
    if (!out) {
      std::error_code ignored;
      std::filesystem::remove(temporary, ignored);
      fail(path, 0, "the file cannot be written");
    }
  }
  std::error_code error;
  std::filesystem::rename(temporary, path, error);
  if (error) {
    std::error_code ignored;
    std::filesystem::remove(temporary, ignored);
    fail(path, 0, "the file cannot be written: " + error.message());
  }
}

Problem load(const std::string& path) {
  const std::string text = read_file(path);
  const std::string name = path == "-" ? "standard input" : path;
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  if (first == std::string::npos) fail(name, 0, "the file is empty");
  if (text[first] == '{') return read_json(text, name);
  if (text.compare(first, 5, "pbqp ") == 0 || text[first] == '#') return read_text(text, name);
  if (text.find('\0') != std::string::npos) {
    fail(name, 0, "this is no problem file: it holds binary data");
  }
  return read_wcsp(text, name);
}

void save(const std::string& path, const Problem& problem, Format format, double quantum) {
  switch (format) {
    case Format::kText:
      write_file(path, write_text(problem));
      return;
    case Format::kJson:
      write_file(path, write_json(problem));
      return;
    case Format::kWcsp:
      write_file(path, write_wcsp(problem, quantum));
      return;
  }
}

}  // namespace pbqp
