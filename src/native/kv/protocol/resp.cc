#include "kv/protocol/resp.h"

#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstring>

namespace verbena::kv {

namespace {

bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

// Takes the next argument of an inline request, with quotes and escapes. False: the quotes are unbalanced.
bool take_argument(std::string_view line, size_t& at, std::string& argument) {
  const char quote = line[at] == '"' || line[at] == '\'' ? line[at] : 0;
  if (!quote) {
    while (at < line.size() && !is_space(line[at])) {
      if (line[at] == '"' || line[at] == '\'') {  // a quoted part within an argument
        if (!take_argument(line, at, argument)) return false;
        continue;
      }
      argument.push_back(line[at++]);
    }
    return true;
  }
  for (++at; at < line.size(); ++at) {
    const char c = line[at];
    if (c == quote) {
      ++at;
      return at == line.size() || is_space(line[at]);
    }
    if (c != '\\' || at + 1 >= line.size()) {
      argument.push_back(c);
    } else if (quote == '\'') {
      if (line[at + 1] == '\'') ++at;
      argument.push_back(line[at]);
    } else if (line[at + 1] == 'x' && at + 3 < line.size() && hex_digit(line[at + 2]) >= 0 &&
               hex_digit(line[at + 3]) >= 0) {
      argument.push_back(static_cast<char>(hex_digit(line[at + 2]) * 16 + hex_digit(line[at + 3])));
      at += 3;
    } else {
      constexpr std::string_view kFrom = "nrtba", kTo = "\n\r\t\b\a";
      const size_t known = kFrom.find(line[++at]);
      argument.push_back(known == std::string_view::npos ? line[at] : kTo[known]);
    }
  }
  return false;
}

}  // namespace

void RequestReader::next() {
  position_ = 0;
  missing_ = argument_bytes_ = -1;
  expected_ = 0;
  pieces_.clear();
  arguments_.clear();
}

void RequestReader::adopt(std::string_view input, size_t bytes, Arguments arguments) {
  next();
  for (const std::string_view argument : arguments) {
    pieces_.push_back({static_cast<size_t>(argument.data() - input.data()), argument.size()});
  }
  position_ = bytes;
  missing_ = 0;
}

RequestReader::Result RequestReader::bad(std::string why) {
  fault_ = "ERR Protocol error: " + std::move(why);
  return Result::bad;
}

bool RequestReader::read_number(std::string_view input, const char* what, int64_t& number) {
  const char* start = input.data() + position_ + 1;
  const size_t left = input.size() - position_ - 1;
  const auto* end = static_cast<const char*>(std::memchr(start, '\r', std::min<size_t>(left, 32)));
  if (end == nullptr || end + 1 >= input.data() + input.size()) {
    if (left > 32 && end == nullptr) bad(what);
    return false;
  }
  const auto [stop, error] = std::from_chars(start, end, number);
  if (error != std::errc() || stop != end || end[1] != '\n') {
    bad(what);
    return false;
  }
  position_ = static_cast<size_t>(end + 2 - input.data());
  return true;
}

namespace {

// Takes a number of at most nine digits and its line end. -1: it has another form, and a RequestReader must
// parse it.
inline int64_t take_plain_number(const char*& at, const char* end) {
  int64_t number = 0;
  const char* const start = at;
  for (; at < end && at - start < 10 && static_cast<uint8_t>(*at - '0') < 10; ++at) {
    number = number * 10 + (*at - '0');
  }
  if (at == start || at - start > 9 || end - at < 2 || at[0] != '\r' || at[1] != '\n') return -1;
  at += 2;
  return number;
}

}  // namespace

size_t parse_whole_request(std::string_view input, const RequestLimits& limits,
                           std::span<std::string_view> arguments, size_t& count) {
  if (input.empty() || input[0] != '*') return 0;
  const char *at = input.data() + 1, *const end = input.data() + input.size();
  const int64_t announced = take_plain_number(at, end);
  if (announced <= 0 || announced > static_cast<int64_t>(std::min(limits.arguments, arguments.size())))
    return 0;
  count = static_cast<size_t>(announced);
  for (std::string_view& argument : arguments.first(count)) {
    if (at == end || *at++ != '$') return 0;
    const int64_t length = take_plain_number(at, end);
    if (length < 0 || length > static_cast<int64_t>(limits.argument_bytes) || end - at < length + 2 ||
        at[length] != '\r' || at[length + 1] != '\n') {
      return 0;
    }
    argument = {at, static_cast<size_t>(length)};
    at += length + 2;
  }
  return static_cast<size_t>(at - input.data());
}

RequestReader::Result RequestReader::read(std::string_view input, const RequestLimits& limits) {
  fault_.clear();
  arguments_.clear();
  const auto or_more = [&] { return fault_.empty() ? Result::more : Result::bad; };
  if (missing_ < 0) {
    if (input.empty()) return Result::more;
    if (input[0] != '*') return read_inline(input, limits);
    int64_t count;
    if (!read_number(input, "invalid multibulk length", count)) return or_more();
    if (count > static_cast<int64_t>(limits.arguments)) {
      return bad(limits.arguments == kUnauthenticatedLimits.arguments ? "unauthenticated multibulk length"
                                                                      : "invalid multibulk length");
    }
    if (count <= 0) return Result::ready;  // no arguments
    missing_ = count;
  }
  while (missing_ > 0) {
    if (argument_bytes_ < 0) {
      if (position_ >= input.size()) return Result::more;
      if (input[position_] != '$') return bad(std::string("expected '$', got '") + input[position_] + "'");
      int64_t length;
      if (!read_number(input, "invalid bulk length", length)) return or_more();
      if (length < 0 || length > static_cast<int64_t>(limits.argument_bytes)) {
        return bad(length >= 0 && limits.arguments == kUnauthenticatedLimits.arguments
                       ? "unauthenticated bulk length"
                       : "invalid bulk length");
      }
      argument_bytes_ = length;
    }
    const auto length = static_cast<size_t>(argument_bytes_);
    expected_ = position_ + length + 2;
    if (input.size() < expected_) return Result::more;
    // Redis does not check the two bytes after an argument; we do, to detect broken framing.
    if (input[position_ + length] != '\r' || input[position_ + length + 1] != '\n') {
      return bad("expected the end of a bulk string");
    }
    pieces_.push_back({position_, length});
    position_ = expected_;
    argument_bytes_ = -1;
    --missing_;
  }
  for (const Piece& piece : pieces_) arguments_.push_back(input.substr(piece.start, piece.length));
  return Result::ready;
}

RequestReader::Result RequestReader::read_inline(std::string_view input, const RequestLimits& limits) {
  const size_t end = input.find('\n');
  if (end == std::string_view::npos) {
    return input.size() > limits.inline_bytes ? bad("too big inline request") : Result::more;
  }
  if (end > limits.inline_bytes) return bad("too big inline request");
  const std::string_view line = input.substr(0, end > 0 && input[end - 1] == '\r' ? end - 1 : end);
  inline_text_.clear();
  inline_text_.reserve(line.size());  // unescaped arguments never get longer, so the views stay valid
  for (size_t at = 0; at < line.size();) {
    if (is_space(line[at])) {
      ++at;
      continue;
    }
    const size_t start = inline_text_.size();
    std::string argument;
    if (!take_argument(line, at, argument)) return bad("unbalanced quotes in request");
    inline_text_ += argument;
    arguments_.push_back(std::string_view(inline_text_).substr(start, argument.size()));
  }
  position_ = end + 1;
  return Result::ready;
}

void put_count(std::string& out, char kind, size_t count) {
  char text[24];
  text[0] = kind;
  char* end = std::to_chars(text + 1, text + sizeof text - 2, count).ptr;
  *end++ = '\r', *end++ = '\n';
  out.append(text, static_cast<size_t>(end - text));
}

void put_argument(std::string& out, std::string_view argument) {
  put_count(out, '$', argument.size());
  out.append(argument).append("\r\n", 2);
}

void ReplyWriter::header(char kind, size_t number) { put_count(out_, kind, number); }

void ReplyWriter::simple(std::string_view text) {
  out_.push_back('+');
  out_.append(text).append("\r\n", 2);
}

void ReplyWriter::error(std::string_view text) {
  out_.push_back('-');
  for (const char c : text) out_.push_back(c == '\r' || c == '\n' ? ' ' : c);
  out_.append("\r\n", 2);
}

void ReplyWriter::integer(int64_t number) {
  char text[24];
  text[0] = ':';
  char* end = std::to_chars(text + 1, text + sizeof text - 2, number).ptr;
  *end++ = '\r', *end++ = '\n';
  out_.append(text, static_cast<size_t>(end - text));
}

void ReplyWriter::bulk(std::string_view bytes) {
  header('$', bytes.size());
  out_.append(bytes).append("\r\n", 2);
}

void ReplyWriter::boolean(bool yes) {
  if (version_ == 2) return integer(yes);
  out_.append(yes ? "#t\r\n" : "#f\r\n", 4);
}

void ReplyWriter::number(double value) {
  const std::string text = format_double(value);
  if (version_ == 2) return bulk(text);
  out_.append(",").append(text).append("\r\n");
}

void ReplyWriter::big_number(std::string_view digits) {
  if (version_ == 2) return bulk(digits);
  out_.append("(").append(digits).append("\r\n");
}

void ReplyWriter::verbatim(std::string_view text) {
  if (version_ == 2) return bulk(text);
  header('=', text.size() + 4);
  out_.append("txt:").append(text).append("\r\n");
}

std::string format_double(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  if (value == std::floor(value) && std::fabs(value) < 1e17) {
    if (value == 0) return std::signbit(value) ? "-0" : "0";
    char text[32];
    return {text, std::to_chars(text, text + sizeof text, static_cast<int64_t>(value)).ptr};
  }
  char text[40];
  return {text, static_cast<size_t>(std::snprintf(text, sizeof text, "%.17g", value))};
}

}  // namespace verbena::kv
