// Replies out of bytes, RESP2 and RESP3, without I/O: for clients. Whoever is told of the values builds them.
#pragma once

#include <cstdint>
#include <string_view>

namespace verbena::kv {

// What a reply consists of, as it is read. Aggregates are told of before their items.
class ReplyVisitor {
 public:
  virtual ~ReplyVisitor() = default;
  virtual void null() = 0;
  virtual void boolean(bool yes) = 0;
  virtual void integer(int64_t number) = 0;
  virtual void number(double value) = 0;
  virtual void big_number(std::string_view digits) = 0;
  virtual void simple(std::string_view text) = 0;
  virtual void bulk(std::string_view bytes) = 0;
  virtual void error(std::string_view text) = 0;
  enum class Kind : uint8_t { array, map, set, push };
  virtual void begin(Kind kind, size_t items) = 0;  // a map's items are its keys and values
  virtual void end() = 0;
};

enum class ReplyResult : uint8_t { whole, more, bad };

// Is there a whole reply at the start of `bytes`, and how long is it? Nothing is allocated by what it claims.
ReplyResult measure_reply(std::string_view bytes, size_t& length);
// Tells of it; it must be whole.
void visit_reply(std::string_view bytes, ReplyVisitor& visitor);

}  // namespace verbena::kv
