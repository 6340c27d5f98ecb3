#include "kv/protocol/reply_reader.h"

#include <charconv>
#include <cmath>
#include <limits>
#include <string>

namespace verbena::kv {

namespace {

constexpr int kDeepest = 32;
constexpr int64_t kMostItems = int64_t{1} << 32;

struct Cursor {
  std::string_view bytes;
  size_t at = 0;

  // Takes the line at the cursor. False: it is incomplete, and the cursor has not moved.
  bool line(std::string_view& text) {
    const size_t end = bytes.find("\r\n", at);
    if (end == std::string_view::npos) return false;
    text = bytes.substr(at, end - at);
    at = end + 2;
    return true;
  }
};

bool parse(std::string_view text, int64_t& number) {
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && stop == text.data() + text.size();
}

ReplyResult measure(Cursor& cursor, int depth) {
  if (depth > kDeepest) return ReplyResult::bad;
  std::string_view line;
  if (cursor.at >= cursor.bytes.size() || !cursor.line(line)) return ReplyResult::more;
  if (line.empty()) return ReplyResult::bad;
  int64_t count = 0;
  switch (line[0]) {
    case '+':
    case '-':
    case ':':
    case ',':
    case '(':
    case '_':
    case '#':
      return ReplyResult::whole;
    case '$':
    case '=':
    case '!':
      if (!parse(line.substr(1), count) || count < -1 || count > int64_t{1} << 40) return ReplyResult::bad;
      if (count < 0) return ReplyResult::whole;
      if (cursor.bytes.size() - cursor.at < static_cast<size_t>(count) + 2) return ReplyResult::more;
      cursor.at += static_cast<size_t>(count) + 2;
      return ReplyResult::whole;
    case '*':
    case '~':
    case '>':
    case '%':
    case '|':
      if (!parse(line.substr(1), count) || count < -1 || count > kMostItems) return ReplyResult::bad;
      count *= line[0] == '%' || line[0] == '|' ? 2 : 1;
      if (line[0] == '|') ++count;  // attributes come before the value that they describe
      for (int64_t i = 0; i < count; ++i) {
        if (const ReplyResult result = measure(cursor, depth + 1); result != ReplyResult::whole)
          return result;
      }
      return ReplyResult::whole;
    default:
      return ReplyResult::bad;
  }
}

double parse_double(std::string_view text) {
  if (text == "inf") return std::numeric_limits<double>::infinity();
  if (text == "-inf") return -std::numeric_limits<double>::infinity();
  double value = std::numeric_limits<double>::quiet_NaN();
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

// NOLINTNEXTLINE: measure() has limited the depth of the recursion
void visit(Cursor& cursor, ReplyVisitor& visitor) {
  std::string_view line;
  cursor.line(line);
  const char kind = line[0];
  const std::string_view text = line.substr(1);
  int64_t count = 0;
  switch (kind) {
    case '+':
      return visitor.simple(text);
    case '-':
      return visitor.error(text);
    case ':':
      return parse(text, count) ? visitor.integer(count) : visitor.big_number(text);
    case ',':
      return visitor.number(parse_double(text));
    case '(':
      return visitor.big_number(text);
    case '_':
      return visitor.null();
    case '#':
      return visitor.boolean(text == "t");
    default:
      parse(text, count);
  }
  if (count < 0) return visitor.null();
  if (kind == '$' || kind == '=' || kind == '!') {
    std::string_view body = cursor.bytes.substr(cursor.at, static_cast<size_t>(count));
    cursor.at += static_cast<size_t>(count) + 2;
    if (kind == '=' && body.size() >= 4) body.remove_prefix(4);  // "txt:"
    return kind == '!' ? visitor.error(body) : visitor.bulk(body);
  }
  if (kind == '|') {  // attributes are skipped
    Cursor skipped = cursor;
    for (int64_t i = 0; i < 2 * count; ++i) measure(skipped, 0);
    cursor = skipped;
    return visit(cursor, visitor);
  }
  using Kind = ReplyVisitor::Kind;
  const Kind as = kind == '%' ? Kind::map : kind == '~' ? Kind::set : kind == '>' ? Kind::push : Kind::array;
  const auto items = static_cast<size_t>(kind == '%' ? 2 * count : count);
  visitor.begin(as, items);
  for (size_t i = 0; i < items; ++i) visit(cursor, visitor);
  visitor.end();
}

}  // namespace

ReplyResult measure_reply(std::string_view bytes, size_t& length) {
  Cursor cursor{bytes};
  const ReplyResult result = measure(cursor, 0);
  length = cursor.at;
  return result;
}

void visit_reply(std::string_view bytes, ReplyVisitor& visitor) {
  Cursor cursor{bytes};
  visit(cursor, visitor);
}

}  // namespace verbena::kv
